"""Why a container does not start, in few words and with what helps."""

from __future__ import annotations

import pytest
from objects import ended, launcher, waiting

from dsjob.reasons import pod_reasons

# As containerd and runc tell it; since runc 1.1 they may say a word more.
RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: {}exec: {}: unknown"
)
INIT = "error during container init: "
IN_PATH = '"python3": executable file not found in $PATH'
NO_FILE = '"/opt/python3": stat /opt/python3: no such file or directory'


@pytest.mark.parametrize("what", [IN_PATH, NO_FILE])
@pytest.mark.parametrize("more", ["", INIT])
@pytest.mark.parametrize("again", [False, True], ids=["at once", "in a loop"])
def test_a_program_that_the_image_lacks(what: str, more: str, again: bool) -> None:
    status = ended("workers", 128, "StartError", RUNC.format(more, what))
    if again:
        status = waiting("workers", "CrashLoopBackOff", "back-off 10s", last=status["state"]["terminated"])
    reason = pod_reasons(launcher("Pending", status), [])[0]
    assert reason.cause == "StartError"
    assert reason.message.endswith(f"container workers cannot start: exec: {what}")
    assert reason.remedy.startswith(f"the image has no program {what.split(chr(34))[1]}:")
