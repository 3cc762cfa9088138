"""The job's code: where it comes from and which commit it is, as the pods that fetch it tell. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dsjob.kube import Object, container_state, template
from dsjob.model import JobState, Part

CONTAINER = "code"


def code_part(state: JobState, job: Object | None, pods: Sequence[Object]) -> list[Part]:
    """The line of the code, if the job fetches some; the commit goes into the state. `pods`: the launcher's first."""
    found = next(
        (one for one in template(job).get("initContainers") or [] if one.get("name") == CONTAINER), None
    )
    if found is None:
        return []
    settings = {one["name"]: str(one.get("value", "")).replace("$$", "$") for one in found.get("env") or []}
    ended = [container_state(pod, CONTAINER).get("terminated") for pod in pods]
    done = next((one for one in ended if one and one.get("exitCode") == 0), None)
    if "CODE_RSYNC" in settings:
        return [Part("code", settings["CODE_RSYNC"], "copied" if done else "not there yet", good=True)]
    state.commit = str(done.get("message", "")) if done else ""
    ref = settings.get("CODE_REF", "")
    named = f" ({ref})" if ref not in ("", state.commit) else ""
    text = f"commit {state.commit}{named}" if state.commit else f"no commit yet{named}"
    return [Part("code", settings.get("CODE_GIT", ""), text)]
