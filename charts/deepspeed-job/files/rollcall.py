"""Workers report to the launcher's pod as soon as they run: Kubernetes would tell of it a second later, and the DNS later still.

The report says which worker it is, or why it cannot serve; where it is, the connection says. Both ends have the job's key, so nobody
else can report.
"""

import hashlib
import hmac
import json
import socket
import threading
import time

from common import say

MAX_BYTES = 4096
TIMEOUT_SECONDS = 5


def make_report(host: str, key: bytes, refusal: str = "") -> bytes:
    """Return the line in which a worker reports; `refusal` is why it cannot serve."""
    text = refusal[: MAX_BYTES // 8]
    proof = hmac.new(key, f"{host}\0{text}".encode(), hashlib.sha256).hexdigest()
    return json.dumps({"host": host, "refusal": text, "proof": proof}).encode() + b"\n"


def read_report(line: bytes, key: bytes) -> tuple:
    """Return the name of the worker that reports, and its refusal. Raises ValueError for what is no report with our key."""
    report = json.loads(line)
    if not isinstance(report, dict) or not hmac.compare_digest(
        make_report(str(report.get("host")), key, str(report.get("refusal"))), line
    ):
        raise ValueError("not a report of this job's workers")
    return report["host"], report["refusal"]


def report(host: str, key: bytes, address: str, port: int, refusal: str = "") -> None:
    """Report to the launcher's pod, again until it answers: it may be starting."""
    while True:
        try:
            with socket.create_connection((address, port), timeout=TIMEOUT_SECONDS) as link:
                link.sendall(make_report(host, key, refusal))
                if link.recv(16):
                    return
        except OSError:
            pass
        time.sleep(0.1)


def listen(port: int, key: bytes, on_report) -> None:
    """Take reports from now on; on_report(host, address, refusal) is called for each."""
    server = (
        socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        if _has_ipv6()
        else socket.create_server(("", port))
    )
    threading.Thread(target=_accept, args=[server, key, on_report], daemon=True).start()


def _has_ipv6() -> bool:
    # A kernel may have the protocol and a pod no such address, which serves as well.
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::", 0))
        return socket.has_dualstack_ipv6()
    except OSError:
        return False


def _accept(server: socket.socket, key: bytes, on_report) -> None:
    while True:
        link, peer = server.accept()
        threading.Thread(target=_take, args=[link, peer[0], key, on_report], daemon=True).start()


def _take(link: socket.socket, address: str, key: bytes, on_report) -> None:
    with link:
        link.settimeout(TIMEOUT_SECONDS)
        try:
            host, refusal = read_report(link.makefile("rb").readline(MAX_BYTES), key)
            on_report(host, address[7:] if address.startswith("::ffff:") else address, refusal)
            link.sendall(b"ok\n")
        except (OSError, ValueError) as error:
            say(f"a report from {address} was refused: {error}")
