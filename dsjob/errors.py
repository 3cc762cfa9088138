"""What dsjob says and returns when something is not right."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every verb. They are a contract: scripts branch on them."""

    OK = 0  # done, or the job succeeded
    JOB_FAILED = 1
    INVALID = 2  # values or usage
    NOT_FOUND = 3
    PREFLIGHT = 4  # the cluster is not ready for this job; nothing was changed
    TIMEOUT = 5
    CLUSTER = 6  # the cluster or helm answered with an error
    CONSENT = 7  # a question must be answered, and nobody can be asked
    INTERRUPTED = 130


class DsjobError(Exception):
    """An error for the user: what is wrong, what to do, and the code to exit with.

    `detail` is the raw text of the tool below (helm, the API server); it is shown with -v.
    """

    def __init__(self, message: str, code: ExitCode, *, hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.detail = detail
