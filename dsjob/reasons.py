"""Why something is not right, and what helps: pure functions over pods, claims and their events.

Kubernetes says most causes in one field of one object, and the rest only in events. Each function here takes
plain API objects and returns Reasons, the most telling one first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dsjob.kube import Object, concerns, containers, newest_first


@dataclass(frozen=True)
class Reason:
    """One cause: its name, what happened, what to do about it, and the object that tells."""

    cause: str
    message: str
    remedy: str = ""
    where: str = ""


# Remedies by the text of the scheduler, the kubelet and the admission, first match wins.
_REMEDIES = (
    (
        r"Insufficient (?P<r>\S+/[\w.-]*\w)",
        "no node has enough free {r}: lower `accelerator.count` or `workers.count`, or wait until others end",
    ),
    (
        r"Insufficient (?P<r>cpu|memory|ephemeral-storage)",
        "no node has enough free {r}: lower the requests in `workers.resources` or `launcher.resources`",
    ),
    (
        r"persistentvolumeclaim \"(?P<c>[^\"]+)\" not found",
        "make the claim `{c}`, or name another one in `data`",
    ),
    (r"unbound immediate PersistentVolumeClaims", "a claim is not bound: see `volumes`"),
    (
        r"volume node affinity conflict",
        "the volume is tied to another node: use a ReadWriteMany class, or one node",
    ),
    (
        r"untolerated taint \{(?P<t>[^}]*)\}",
        "add a toleration for the taint {t} to `workers.tolerations` (or `launcher.tolerations`)",
    ),
    (
        r"node affinity/selector|didn't match node selector",
        "no node has these labels: see `nodeSelector`, and `kubectl get nodes --show-labels`",
    ),
    (r"Too many pods", "the nodes are full: wait, or add nodes"),
    (r"didn't have free ports", "a host port is taken on every node"),
    (
        r"exceeded quota: (?P<q>[^,]+)",
        "the quota {q} is used up: `kubectl describe quota {q}`; ask for less or wait",
    ),
    (
        r"violates PodSecurity \"(?P<l>[^\"]+)\"",
        "the namespace enforces Pod Security {l}: keep the chart's "
        "`podSecurityContext` and `securityContext`",
    ),
    (r"serviceaccount \"(?P<s>[^\"]+)\" not found", "the service account {s} is gone: run `dsjob up` again"),
    (
        r"no PriorityClass with name (?P<p>\S+)",
        "there is no priority class {p}: correct `scheduling.priorityClassName`",
    ),
    (r"admission webhook \"(?P<h>[^\"]+)\"", "the policy {h} refuses the pods: ask who runs it"),
    (
        r"secret \"(?P<s>[^\"]+)\" not found",
        "make the Secret `{s}` in this namespace, or correct its name in the values",
    ),
    (
        r"configmap \"(?P<s>[^\"]+)\" not found",
        "make the ConfigMap `{s}` in this namespace, or correct its name",
    ),
    (
        r"couldn't find key (?P<k>\S+) in (?P<o>Secret|ConfigMap) \S+/(?P<n>\S+)",
        "the {o} `{n}` has no key `{k}`: add it, or correct the reference in `env`",
    ),
    (r"runAsNonRoot|image will run as root", "the image runs as root: set `podSecurityContext.runAsUser`"),
    (
        r"exec: \"(?P<e>[^\"]+)\".*(not found|no such file)",
        "the image has no program {e}: see what the image needs in the chart's README",
    ),
    (
        r"unauthorized|authentication required|access denied|denied: ",
        "the registry refuses: check the image name, and name a pull secret in `imagePullSecrets`",
    ),
    (
        r"not found|manifest unknown|does not exist",
        "there is no such image: correct `image.repository` or `image.tag`",
    ),
    (
        r"InvalidImageName|invalid reference format|couldn't parse image",
        "that is no image name: correct `image`",
    ),
    (
        r"no such host|i/o timeout|connection refused|dial tcp|TLS handshake",
        "the node cannot reach the registry: check its name and the node's network",
    ),
    (r"ErrImageNeverPull", "`image.pullPolicy` is Never, and the node does not have the image"),
    (
        r"Multi-Attach|already exclusively attached",
        "the claim is ReadWriteOnce and used on another node: use a ReadWriteMany class",
    ),
)

USE_LESS = "use less (a smaller micro batch, a higher ZeRO stage)"

_IMAGE = {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ImageInspectError", "ErrImageNeverPull"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"}
_OWN_KEYS = re.compile(r"non-existent secret key: (ssh-privatekey|launcher|commit)")
_VOLUME = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")
_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}


def remedy(text: str) -> str:
    """What helps against a cause, told by its text; empty if unknown."""
    for pattern, words in _REMEDIES:
        found = re.search(pattern, text, re.IGNORECASE)
        if found:
            return words.format(**found.groupdict())
    return ""


def pod_reasons(pod: Object, events: Sequence[Object]) -> list[Reason]:
    """Why this pod does not run, or why it ended badly."""
    return list(_pod(pod, [event for event in events if concerns(event, pod)]))


def _pod(pod: Object, events: Sequence[Object]) -> Iterator[Reason]:
    status, where = pod.get("status", {}), f"pod/{pod['metadata']['name']}"
    if status.get("reason") in ("Evicted", "NodeLost", "UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory"):
        yield Reason(
            status["reason"], status.get("message", "the node gave the pod up"), _evicted(status), where
        )
    for condition in status.get("conditions", []):
        kind, reason = condition.get("type"), condition.get("reason", "")
        text = condition.get("message", "")
        if kind == "PodScheduled" and condition.get("status") == "False":
            yield Reason(reason or "Unschedulable", _scheduler(text), remedy(text), where)
        if (
            kind == "DisruptionTarget"
            and condition.get("status") == "True"
            and status.get("reason") != "Evicted"
        ):
            yield Reason(reason or "Disrupted", text or "the pod was taken from its node", "", where)
    for container in containers(pod):
        yield from _container(pod, container, where)
    if status.get("phase") == "Pending":
        for event in newest_first(events):
            text = event.get("message", "")
            # They are written by the launcher once it runs: a worker that waits for them is not at fault.
            if event.get("reason") in _VOLUME and not _OWN_KEYS.search(text):
                yield Reason(event["reason"], _short(text), remedy(text), where)
                break


def _container(pod: Object, container: Object, where: str) -> Iterator[Reason]:
    name = container.get("name", "")
    state = container.get("state", {})
    waiting, ended = state.get("waiting", {}), state.get("terminated")
    before = container.get("lastState", {}).get("terminated")
    reason, text = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _IMAGE:
        image = _spec(pod, name).get("image", "")
        yield Reason(reason, f"image {image}: {_short(text) or reason}", remedy(f"{text} {reason}"), where)
    elif reason in _CONFIG:
        yield Reason(reason, _short(text) or reason, remedy(text), where)
    elif reason == "CrashLoopBackOff":
        yield ended_reason(pod, name, before or {}, where, "keeps ending: ")
    elif ended and ended.get("exitCode"):
        yield ended_reason(pod, name, ended, where)
    elif before and before.get("exitCode") and container.get("restartCount"):
        yield ended_reason(
            pod, name, before, where, f"restarted {container['restartCount']} times; the last time: "
        )


def ended_reason(pod: Object, container: str, ended: Object, where: str, before: str = "") -> Reason:
    """Why a container ended, with the memory limit if it was killed for that."""
    code = int(ended.get("exitCode", 0))
    if ended.get("reason") == "OOMKilled":
        limit = _spec(pod, container).get("resources", {}).get("limits", {}).get("memory", "")
        text = f"{before}killed for using more memory than its limit" + (f" of {limit}" if limit else "")
        key = {"worker": "workers", "tensorboard": "tensorboard", "code": "code"}.get(container, "launcher")
        less = "" if key == "code" else f", or {USE_LESS}"
        return Reason("OOMKilled", text, f"raise `{key}.resources.limits.memory`{less}", where)
    cause, told = ended.get("reason") or "Error", ended.get("message", "")
    if container == "code" and cause == "Error" and told:  # it says itself what is wrong, and what helps
        return Reason("CodeNotFetched", before + told, "", where)
    how = f"cannot start: {_short(told)}" if cause == "StartError" else f"ended with {exit_meaning(code)}"
    return Reason(cause, f"{before}container {container} {how}", remedy(told), where)


def exit_meaning(code: int) -> str:
    """An exit code in words; deepspeed and Python give negative ones for signals."""
    known = {
        126: "found, but it cannot be executed",
        127: "command not found",
        255: "ssh lost its connection",
    }
    number = code - 128 if 128 < code < 160 else -code if code < 0 else 256 - code if 192 < code < 255 else 0
    if number in _SIGNALS:
        known[code] = _SIGNALS[number] + (", often out of memory" if number == 9 else "")
    return f"exit code {code}" + (f" ({known[code]})" if code in known else "")


def creation_reasons(owner: Object, events: Sequence[Object]) -> list[Reason]:
    """Why a Job or StatefulSet gets no pods: quota, Pod Security, a webhook."""
    where = f"{owner.get('kind', 'object').lower()}/{owner['metadata']['name']}"
    for event in newest_first(events):
        if event.get("reason") == "FailedCreate" and concerns(event, owner):
            text = event.get("message", "")
            return [
                Reason("FailedCreate", _short(re.sub(r"^.*? is forbidden: ", "", text)), remedy(text), where)
            ]
    return []


def claim_reasons(name: str, claim: Object | None, events: Sequence[Object]) -> list[Reason]:
    """Why a claim cannot be used."""
    where = f"pvc/{name}"
    if claim is None:
        return [
            Reason(
                "ClaimNotFound",
                f"there is no claim {name} in this namespace",
                f"make the claim `{name}`, or name another one in `data`",
                where,
            )
        ]
    phase = claim.get("status", {}).get("phase")
    if phase == "Lost":
        return [Reason("ClaimLost", "its volume is gone", "restore the volume, or use another claim", where)]
    if phase == "Bound":
        return []
    for event in newest_first(events):
        if concerns(event, claim) and event.get("reason") in ("ProvisioningFailed", "FailedBinding"):
            text = event.get("message", "")
            what = (
                "`kubectl get storageclass` lists the classes; correct `storageClass`, or set a default one"
            )
            return [Reason(event["reason"], _short(text), what, where)]
    return [Reason("ClaimNotBound", "waits for a volume", "", where)]


def _spec(pod: Object, container: str) -> Object:
    spec = pod.get("spec", {})
    every = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    return next((one for one in every if one.get("name") == container), {})


def _scheduler(text: str) -> str:
    """The scheduler's message without its words about preemption."""
    return (
        re.split(r"\.? (?:no new claims to deallocate|preemption:|not found$)", text)[0].rstrip(". ")
        or "no node yet"
    )


def _evicted(status: Object) -> str:
    low = re.search(r"low on resource: (\S+?)[.]", status.get("message", ""))
    return f"the node ran out of {low[1]}: ask for what the pods need in `resources.requests`" if low else ""


def _short(text: str) -> str:
    """One line of at most 300 letters, without what the container runtime wraps around the cause."""
    line = " ".join(text.split())
    line = re.sub(r"^(Back-off pulling image \"[^\"]*\": )?(ErrImagePull: )?", "", line)
    line = re.sub(r"^rpc error: code = \w+ desc = ", "", line)
    line = re.sub(r"^.*unable to start container process: (error during container init: )?", "", line)
    line = line.removesuffix(": unknown")
    return line if len(line) <= 300 else line[:299] + "…"
