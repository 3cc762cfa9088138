"""What became of an attempt: a pure function of the command's exit code and of what the workers report."""

import re

from common import short

# Lines of DeepSpeed and pdsh about an end, not of its cause.
NOISE = re.compile(r"\[launch\.py:|\[runner\.py:|^pdsh@|^\s*$|Main process received SIG|sigkill_handler")
KEPT_LINES = 10


def tail_of(lines: list, host: str) -> list:
    """Return the last lines that tell something, those of the host (pdsh prefixes them) if it said anything."""
    telling = [line for line in lines if not NOISE.search(line)]
    own = [line for line in telling if host and line.startswith(f"{host}:")]
    return (own or telling)[-KEPT_LINES:]


def explain_code(code: int) -> str:
    """Return an exit code with its meaning where it has one: a shell's 128 + signal, Python's 256 - signal."""
    names = {
        9: "killed",
        6: "aborted",
        7: "bus error, often a too small /dev/shm",
        11: "segmentation fault",
        15: "terminated",
    }
    number = code - 128 if code < 192 else 256 - code
    return f"exit code {code}" + (f" ({names[number]})" if number in names else "")


def failure(reason: str, message: str, exit_code: int = 1, **more: object) -> dict:
    """Return the verdict of an attempt that failed."""
    return {"phase": "Failed", "exitCode": exit_code, "reason": reason, "message": message, **more}


def judge(code: int, lines: list, answers: dict) -> dict:
    """Return phase, exitCode, reason, message, host and lastLines of an attempt.

    `code` is the command's exit code, `lines` its last output, `answers` what each host reported, or link.Unreachable. Success needs a 0
    from the command AND from everything that ran on a worker, and that something ran on each that was called: `deepspeed` ends with 0 too
    when pdsh is killed, and pdsh when an ssh of it is.
    """
    failed, killed, silent, unreachable = [], [], [], {}
    for host, answer in answers.items():
        if isinstance(answer, Exception):
            unreachable[short(host)] = answer.text
            continue
        killed += [short(host)] * (answer["oomKills"] > 0)
        silent += [short(host)] * bool(answer.get("called") and not answer["sessions"])
        for session in answer["sessions"]:
            result = session.get("exitCode")
            if result != 0:
                # One without a result was itself killed; it sorts last, since the cause is rather what ended by itself.
                failed.append(
                    (session.get("endedAt", float("inf")), short(host), 137 if result is None else result)
                )
    failed.sort()

    def verdict(reason: str, message: str, host: str = "", exit_code: int = code or 1) -> dict:
        return failure(reason, message, exit_code, host=host, lastLines=tail_of(lines, host))

    if code == 0 and not failed and not silent and not unreachable:
        return {
            "phase": "Succeeded",
            "exitCode": 0,
            "reason": "Completed",
            "message": "every rank ended with 0",
            "lastLines": [],
        }
    if killed:
        return verdict(
            "OOMKilled",
            f"the kernel killed a process on {killed[0]} for want of memory: raise workers.resources.limits.memory",
            killed[0],
        )
    if unreachable:
        host, text = next(iter(unreachable.items()))
        return verdict("WorkerLost", f"{host} is lost: {text}", host)
    if failed and code != 127:
        _, host, result = failed[0]
        result = 128 - result if result < 0 else result
        return verdict("RankFailed", f"{host} failed with {explain_code(result)}", host, code or result)
    if silent and code == 0:
        text = f"{silent[0]} was called by ssh and nothing ran there: the call was killed before its command began"
        return verdict("RankFailed", text, silent[0])
    return verdict("CommandFailed", f"the command failed with {explain_code(code)}")
