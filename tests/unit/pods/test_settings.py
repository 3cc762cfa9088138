"""What every program that calls `ssh` or reads a hostfile finds, as the image's own ssh reads it."""

import subprocess

import pytest
import settings

RUN = {"name": "job", "port": 2022, "slots": 4}
ADDRESSES = {"job-worker-0.job": "10.0.0.7", "job-worker-2.job": "fd00::9"}


@pytest.fixture(autouse=True)
def job_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "SSH", tmp_path / "ssh")
    monkeypatch.setattr(settings, "HOSTFILE", tmp_path / "hostfile")
    monkeypatch.setattr(settings, "CALLED", tmp_path / "called")
    return tmp_path


def as_ssh_reads(host):
    """The settings for a host, as a dict."""
    argv = ["ssh", "-G", "-F", settings.SSH / "config", host]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_the_hostfile_has_the_workers_of_the_attempt_in_rank_order():
    settings.write_hosts(RUN, ADDRESSES)
    assert settings.HOSTFILE.read_text() == "job-worker-0.job slots=4\njob-worker-2.job slots=4\n"
    settings.write_hosts(RUN, {"job-worker-2.job": "10.0.0.8"})
    assert settings.HOSTFILE.read_text() == "job-worker-2.job slots=4\n"


def test_whom_the_command_called_is_known_until_the_next_attempt():
    settings.write_hosts(RUN, ADDRESSES)
    assert not settings.was_called("job-worker-0.job")
    (settings.CALLED / "job-worker-0").touch()
    assert settings.was_called("job-worker-0.job")
    assert not settings.was_called("job-worker-2.job")
    settings.write_hosts(RUN, ADDRESSES)
    assert not settings.was_called("job-worker-0.job")


@pytest.mark.parametrize("host", ["job-worker-0.job", "job-worker-0"])
def test_a_worker_is_reached_at_the_address_that_it_reported(host):
    settings.write_hosts(RUN, ADDRESSES)
    found = as_ssh_reads(host)
    assert (found["hostname"], found["port"]) == ("10.0.0.7", "2022")
    assert found["identityfile"] == str(settings.SSH / "id")
    assert found["userknownhostsfile"] == str(settings.SSH / "known_hosts")
    assert (found["batchmode"], found["stricthostkeychecking"]) == ("yes", "true")
    assert as_ssh_reads("job-worker-2.job")["hostname"] == "fd00::9"


def test_an_address_of_an_earlier_attempt_is_forgotten():
    settings.write_hosts(RUN, ADDRESSES)
    settings.write_hosts(RUN, {"job-worker-0.job": "10.0.0.8"})
    assert as_ssh_reads("job-worker-0.job")["hostname"] == "10.0.0.8"
    assert as_ssh_reads("job-worker-2.job")["hostname"] == "job-worker-2.job"


def test_hosts_that_are_not_the_jobs_have_ssh_s_own_settings():
    settings.write_hosts(RUN, ADDRESSES)
    found = as_ssh_reads("example.com")
    assert found["port"] == "22"
    assert str(settings.SSH) not in found["identityfile"]


def test_the_workers_host_key_is_the_jobs_own(job_folder):
    settings.SSH.mkdir()
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", settings.SSH / "id"]
    subprocess.run(argv, check=True)
    settings.write_settings(RUN)
    known = (settings.SSH / "known_hosts").read_text()
    assert known == "* " + (settings.SSH / "id.pub").read_text().strip() + "\n"
    assert as_ssh_reads("job-worker-0.job")["port"] == "2022"
    for name in ("known_hosts", "config"):
        assert (settings.SSH / name).stat().st_mode & 0o777 == 0o600
