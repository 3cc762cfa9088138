"""What stands between the launcher and a worker, from what ssh says."""

import pytest
from hosts import read_events, step_of


@pytest.mark.parametrize(
    ("stderr", "step"),
    [
        ("ssh: Could not resolve hostname job-worker-0.job: Name or service not known", "resolve"),
        ("ssh: connect to host job-worker-0.job port 2222: Connection refused", "connect"),
        ("ssh: connect to host job-worker-0.job port 2222: No route to host", "connect"),
        ("Connection closed by 10.1.2.3 port 2222", "connect"),
        ("kex_exchange_identification: read: Connection reset by peer", "connect"),
        ("Host key verification failed.", "connect"),
        ("", "connect"),
        ("job@job-worker-0.job: Permission denied (publickey).", "authenticate"),
        ("Can't open user config file /job/ssh/config: No such file or directory", "execute"),
    ],
)
def test_the_step_is_named(stderr, step):
    assert step_of(stderr) == step


def test_what_a_shells_start_up_file_prints_is_no_event():
    lines = [
        b"Welcome!\n",
        b"\n",
        b"42\n",
        b"[]\n",
        b'{"event": "ready"}\n',
        b'{"x": 1}\n',
        b'{"event": "ended", "exitCode": 3}\n',
    ]
    assert [one["event"] for one in read_events(lines)] == ["ready", "ended"]
