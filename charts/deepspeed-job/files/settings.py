"""What the launcher writes for every program that calls `ssh` or reads a hostfile: addresses, keys, slots."""

import shutil
import subprocess

from common import CALLED, HOSTFILE, SSH, current_user, find_programs, short, write_private

# Every launcher that calls `ssh` gets these, through the shim `ssh`. The workers' host key is the job's own key.
SSH_CONFIG = """\
Host {name}-worker-*
  Port {port}
  User {user}
  IdentityFile {ssh}/id
  IdentitiesOnly yes
  UserKnownHostsFile {ssh}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  UpdateHostKeys no
  BatchMode yes
  LogLevel ERROR
  ConnectTimeout 5
  # A dead link is noticed after 30 s.
  ServerAliveInterval 5
  ServerAliveCountMax 6
"""
# The address that the worker reported. The cluster's DNS may learn it later, or remember an earlier pod's for half a minute.
SSH_HOST = """\
Host {host} {short}
  HostName {address}
"""


def write_settings(run: dict) -> None:
    """Write known_hosts and the ssh settings without addresses into /job."""
    keygen = find_programs(["ssh", "ssh-keygen"], "launcher")["ssh-keygen"]
    argv = [keygen, "-y", "-P", "", "-f", str(SSH / "id")]
    public = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    write_private(SSH / "known_hosts", f"* {public}".encode())
    _write_ssh_config(run, {})


def write_hosts(run: dict, addresses: dict) -> None:
    """Write the hostfile, and the ssh settings with the addresses, for an attempt with these workers, in rank order.

    The hostfile's form is that of DeepSpeed and of OpenMPI. Nobody was called yet, see `was_called`.
    """
    shutil.rmtree(CALLED, ignore_errors=True)
    CALLED.mkdir()
    HOSTFILE.write_text("".join(f"{host} slots={run['slots']}\n" for host in addresses))
    _write_ssh_config(run, addresses)


def was_called(host: str) -> bool:
    """Tell whether the command called this worker by ssh; the shim `ssh` notes it."""
    return (CALLED / short(host)).exists()


def _write_ssh_config(run: dict, addresses: dict) -> None:
    settings = SSH_CONFIG.format(name=run["name"], port=run["port"], user=current_user().pw_name, ssh=SSH)
    places = [
        SSH_HOST.format(host=host, short=short(host), address=address) for host, address in addresses.items()
    ]
    write_private(SSH / "config", (settings + "".join(places)).encode())
