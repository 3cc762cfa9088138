"""The state of a job from objects and events: phase, causes and remedies, as a table."""

from __future__ import annotations

import json

import pytest
from objects import (
    NOW,
    board,
    claim,
    condition,
    ended,
    event,
    failed,
    healthy,
    job,
    launcher,
    lease,
    objects,
    pod,
    running,
    succeeded,
    unscheduled,
    waiting,
    worker,
    workers_set,
)

from dsjob import render
from dsjob.model import JobState, Objects, unsettled
from dsjob.progress import steps
from dsjob.reasons import exit_meaning, remedy
from dsjob.state import describe, names


def state_of(found: Objects) -> JobState:
    state = describe("hello", "team", found, NOW)
    assert state is not None
    return state


TRAINS = (launcher("Running", running("launcher")), lease())
STARTS = (launcher("Running", running("launcher")), lease("Starting"))
NOT_FOUND = (
    'failed to pull and unpack image "r/x:v9": failed to resolve reference "r/x:v9": r/x:v9: not found'
)
QUOTA = (
    'create Pod hello-worker-1 in StatefulSet hello-worker failed error: pods "hello-worker-1" is forbidden: '
    "exceeded quota: gpus, requested: requests.nvidia.com/gpu=4, used: requests.nvidia.com/gpu=4, limited: 4"
)
RESTRICTED = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
MOUNT = 'MountVolume.SetUp failed for volume "key" : references non-existent secret key: ssh-privatekey'

_launcher_job = job()
_new_claim = claim("logs", "Pending", job="hello")
_stuck = launcher("Pending", waiting("launcher", "ContainerCreating"))
_key_wait = worker(0, "Pending", waiting("worker", "ContainerCreating"))

# name: objects, phase, text of the message, causes, text of the first remedy
CASES: dict[str, tuple[Objects, str, str, list[str], str]] = {
    "trains": (healthy(), "Running", "2/2 workers ready", [], ""),
    "no pod yet": (objects(job(), workers_set(0)), "Pending", "0/2 workers ready", [], ""),
    "launcher waits for a node": (
        objects(
            job(),
            workers_set(0),
            launcher(
                "Pending",
                node="",
                conditions=unscheduled(
                    "0/3 nodes are available: 3 Insufficient memory. preemption: 0/3 nodes are available"
                ),
            ),
        ),
        "Pending",
        "3 Insufficient memory",
        ["Unschedulable"],
        "lower the requests",
    ),
    "workers wait for devices": (
        objects(
            job(),
            workers_set(),
            *STARTS,
            worker(0),
            worker(
                1,
                "Pending",
                waiting("worker", "x"),
                node="",
                conditions=unscheduled(
                    "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. no new claims to deallocate, "
                ),
            ),
        ),
        "Pending",
        "1/2 workers ready; 0/1 nodes are available: 1 Insufficient nvidia.com/gpu",
        ["Unschedulable"],
        "no node has enough free nvidia.com/gpu: lower `accelerator.count`",
    ),
    "a taint": (
        objects(
            job(),
            workers_set(),
            *STARTS,
            worker(
                0,
                "Pending",
                node="",
                conditions=unscheduled(
                    "0/1 nodes are available: 1 node(s) had untolerated taint {pool: gpu}."
                ),
            ),
        ),
        "Pending",
        "untolerated taint",
        ["Unschedulable"],
        "toleration for the taint pool: gpu",
    ),
    "a selector that no node has": (
        objects(
            job(),
            workers_set(),
            *STARTS,
            worker(
                0,
                "Pending",
                node="",
                conditions=unscheduled(
                    "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
                ),
            ),
        ),
        "Pending",
        "node affinity",
        ["Unschedulable"],
        "`nodeSelector`",
    ),
    "a claim that is not there": (
        objects(
            job(claim="nope"),
            workers_set(0),
            launcher(
                "Pending",
                node="",
                conditions=unscheduled('0/1 nodes are available: persistentvolumeclaim "nope" not found.'),
            ),
        ),
        "Pending",
        'persistentvolumeclaim "nope" not found',
        ["Unschedulable", "ClaimNotFound"],
        "make the claim `nope`",
    ),
    "a claim that no class provides": (
        objects(
            job(claim="logs"),
            workers_set(0),
            _new_claim,
            launcher(
                "Pending",
                node="",
                conditions=unscheduled(
                    "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
                ),
            ),
            events=[event(_new_claim, "ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found')],
        ),
        "Pending",
        "unbound immediate",
        ["Unschedulable", "ProvisioningFailed"],
        "see `volumes`",
    ),
    "an image that is not there": (
        objects(
            job(),
            workers_set(0),
            launcher(
                "Pending",
                waiting(
                    "launcher",
                    "ImagePullBackOff",
                    'Back-off pulling image "r/x:v9": ErrImagePull: ' + NOT_FOUND,
                ),
            ),
        ),
        "Pending",
        "image registry.example/team/train:v1: failed to pull",
        ["ImagePullBackOff"],
        "correct `image.repository`",
    ),
    "a registry that refuses": (
        objects(
            job(),
            workers_set(0),
            launcher(
                "Pending",
                waiting(
                    "launcher",
                    "ErrImagePull",
                    "pull access denied, repository does not exist or may require authorization: 401",
                ),
            ),
        ),
        "Pending",
        "pull access denied",
        ["ErrImagePull"],
        "`imagePullSecrets`",
    ),
    "a Secret that is not there": (
        objects(
            job(),
            workers_set(),
            *STARTS,
            worker(0, "Pending", waiting("worker", "CreateContainerConfigError", 'secret "hf" not found')),
        ),
        "Pending",
        'secret "hf" not found',
        ["CreateContainerConfigError"],
        "make the Secret `hf`",
    ),
    "a Secret without the key": (
        objects(
            job(),
            workers_set(),
            *STARTS,
            worker(
                0,
                "Pending",
                waiting("worker", "CreateContainerConfigError", "couldn't find key token in Secret team/hf"),
            ),
        ),
        "Pending",
        "couldn't find key",
        ["CreateContainerConfigError"],
        "the Secret `hf` has no key `token`",
    ),
    "an image that runs as root": (
        objects(
            job(),
            workers_set(0),
            launcher(
                "Pending",
                waiting(
                    "launcher",
                    "CreateContainerConfigError",
                    "container has runAsNonRoot and image will run as root",
                ),
            ),
        ),
        "Pending",
        "runAsNonRoot",
        ["CreateContainerConfigError"],
        "`podSecurityContext.runAsUser`",
    ),
    "a volume that does not mount": (
        objects(
            job(),
            workers_set(0),
            _stuck,
            events=[event(_stuck, "FailedAttachVolume", 'Multi-Attach error for volume "pvc-1"')],
        ),
        "Pending",
        "Multi-Attach",
        ["FailedAttachVolume"],
        "ReadWriteMany",
    ),
    "a worker that waits for its key": (
        objects(job(), workers_set(1), *STARTS, _key_wait, events=[event(_key_wait, "FailedMount", MOUNT)]),
        "Starting",
        "0/2 workers ready",
        [],
        "",
    ),
    "a quota": (
        objects(
            job(), workers_set(2), *STARTS, worker(0), events=[event(workers_set(), "FailedCreate", QUOTA)]
        ),
        "Pending",
        "exceeded quota: gpus",
        ["FailedCreate"],
        "quota gpus is used up",
    ),
    "Pod Security": (
        objects(
            _launcher_job,
            workers_set(0),
            events=[event(_launcher_job, "FailedCreate", "Error creating: " + RESTRICTED)],
        ),
        "Pending",
        "violates PodSecurity",
        ["FailedCreate"],
        "enforces Pod Security restricted:latest",
    ),
    "suspended": (objects(job(suspend=True), workers_set(0)), "Suspended", "it holds nothing", [], ""),
    "a worker is gone in mid-run": (
        objects(
            job(),
            workers_set(),
            *TRAINS,
            worker(0),
            worker(1, "Pending", waiting("worker", "ContainerCreating")),
        ),
        "Degraded",
        "1/2 workers ready",
        [],
        "",
    ),
    "a worker was out of memory": (
        objects(
            job(),
            workers_set(),
            *TRAINS,
            worker(0),
            worker(
                1,
                "Running",
                running("worker", False, 1, {"exitCode": 137, "reason": "OOMKilled"}),
                limits={"memory": "8Gi"},
            ),
        ),
        "Degraded",
        "its limit of 8Gi",
        ["OOMKilled"],
        "`workers.resources.limits.memory`",
    ),
    "a worker that keeps ending": (
        objects(
            job(),
            workers_set(),
            *STARTS,
            worker(0),
            worker(1, "Running", waiting("worker", "CrashLoopBackOff", "back-off", {"exitCode": 127})),
        ),
        "Pending",
        "exit code 127 (command not found)",
        ["Error"],
        "",
    ),
    "succeeded": (succeeded(), "Succeeded", "exit code 0", [], ""),
    "ended, but the Job does not know yet": (
        objects(job(), workers_set(), launcher("Running", ended("launcher", 0)), worker(0)),
        "Succeeded",
        "exit code 0",
        [],
        "",
    ),
    "a rank failed": (
        failed(),
        "Failed",
        "hello-worker-1 failed with exit code 3",
        ["RankFailed"],
        "dsjob logs hello",
    ),
    "a worker was out of memory, and is gone": (
        objects(
            job(condition("Failed")),
            workers_set(0),
            launcher(
                "Failed", ended("launcher", 137, told={"reason": "OOMKilled", "message": "worker-1 ran out"})
            ),
        ),
        "Failed",
        "worker-1 ran out",
        ["OOMKilled"],
        "`workers.resources.limits.memory`",
    ),
    "the launcher was out of memory": (
        objects(
            job(condition("Failed")),
            workers_set(0),
            launcher("Failed", ended("launcher", 137, "OOMKilled"), limits={"memory": "4Gi"}),
        ),
        "Failed",
        "its limit of 4Gi",
        ["OOMKilled"],
        "`launcher.resources.limits.memory`",
    ),
    "killed without a word": (
        objects(job(condition("Failed")), workers_set(0), launcher("Failed", ended("launcher", 137))),
        "Failed",
        "exit code 137 (SIGKILL",
        ["Error"],
        "",
    ),
    "a word that is no JSON": (
        objects(
            job(condition("Failed")), workers_set(0), launcher("Failed", ended("launcher", 1, told="oops {"))
        ),
        "Failed",
        "exit code 1",
        ["Error"],
        "",
    ),
    "the start took too long": (
        objects(
            job(condition("Failed")),
            workers_set(0),
            launcher(
                "Failed",
                ended(
                    "launcher",
                    1,
                    told={
                        "exitCode": 1,
                        "reason": "StartTimeout",
                        "message": "only 1 of 2 workers were ready",
                    },
                ),
            ),
        ),
        "Failed",
        "only 1 of 2",
        ["StartTimeout"],
        "`run.startTimeout`",
    ),
    "failed, and its pod is gone": (
        objects(
            job(
                condition(
                    "Failed",
                    reason="DeadlineExceeded",
                    message="Job was active longer than specified deadline",
                )
            ),
            workers_set(0),
        ),
        "Failed",
        "longer than specified deadline; its pod is gone",
        ["DeadlineExceeded"],
        "",
    ),
    "evicted": (
        objects(
            job(condition("Failed")),
            workers_set(0),
            launcher(
                "Failed",
                status={"reason": "Evicted", "message": "The node was low on resource: memory. Threshold"},
            ),
        ),
        "Failed",
        "low on resource: memory",
        ["Evicted"],
        "the node ran out of memory",
    ),
    "its node is drained": (
        objects(
            job(),
            workers_set(0),
            launcher(
                "Failed",
                ended("launcher", 143),
                conditions=[
                    condition("PodScheduled"),
                    condition(
                        "DisruptionTarget", reason="EvictionByEvictionAPI", message="Eviction API: evicting"
                    ),
                ],
            ),
        ),
        "Pending",
        "Eviction API",
        ["EvictionByEvictionAPI", "Error"],
        "",
    ),
    "being removed": (objects(worker(0), worker(1)), "Stopping", "it is being removed", [], ""),
    "its Job is gone": (objects(workers_set(0)), "Unknown", "its Job is gone", [], ""),
    "TensorBoard's image is wrong": (
        objects(
            *succeeded().jobs,
            *succeeded().pods,
            workers_set(0),
            board(0),
            claim("logs"),
            pod(
                "hello-tensorboard-1",
                "tensorboard",
                "Pending",
                waiting("tensorboard", "ErrImagePull", NOT_FOUND),
                run="",
            ),
        ),
        "Succeeded",
        "exit code 0",
        ["ErrImagePull"],
        "correct `image.repository`",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_state(name: str) -> None:
    found, phase, message, causes, helps = CASES[name]
    state = state_of(found)
    assert state.phase.value == phase
    assert message in state.message
    assert [reason.cause for reason in state.reasons] == causes
    assert helps in (state.reasons[0].remedy if state.reasons else "")
    json.dumps(state.to_json())
    assert "hello" in render.tree(state)


def test_one_of_two_jobs_and_of_two_namespaces() -> None:
    found = healthy()
    other = failed()
    for thing in (*other.jobs, *other.pods, *other.statefulsets):
        thing["metadata"]["namespace"] = "elsewhere"
    found.jobs += other.jobs
    found.pods += other.pods
    found.statefulsets += other.statefulsets
    assert names(found) == [("elsewhere", "hello"), ("team", "hello")]
    assert state_of(found).phase.value == "Running"
    assert describe("hello", "elsewhere", found, NOW).phase.value == "Failed"
    assert describe("none", "team", found, NOW) is None


def test_the_newest_run_counts() -> None:
    old = launcher("Failed", ended("launcher", 1), run="00000000", ago=500)
    found = objects(
        job(condition("Failed"), run="00000000", ago=500),
        old,
        job(),
        *TRAINS,
        worker(0),
        worker(1),
        workers_set(),
    )
    assert (state_of(found).phase.value, state_of(found).run) == ("Running", "1a2b3c4d")


def test_numbers_of_a_running_job() -> None:
    state = state_of(healthy())
    assert (state.workers, state.workers_ready, state.accelerator, state.accelerators) == (
        2,
        2,
        "nvidia.com/gpu",
        1,
    )
    assert (state.age, state.duration, state.ended) == (60, 60, None)
    assert "2 workers × 1 nvidia.com/gpu" in render.tree(state)


def test_the_clock_stops_with_the_job() -> None:
    state = state_of(succeeded())
    assert (state.duration, state.age, state.exit_code) == (40, 60, 0)
    assert state.parts[1].state == "released"


def test_what_a_failure_tells() -> None:
    state = state_of(failed())
    assert (state.exit_code, state.host) == (3, "hello-worker-1")
    assert "ValueError: loss is nan" in "\n".join(render.failure(state))
    told = state.to_json()
    assert told["lastLines"][-1] == "ValueError: loss is nan"
    assert told["reasons"][0]["cause"] == "RankFailed"


def test_the_same_cause_on_many_workers_is_said_once() -> None:
    pods = [
        worker(i, "Pending", node="", conditions=unscheduled("1 Insufficient nvidia.com/gpu"))
        for i in range(100)
    ]
    state = state_of(objects(job(workers=100), workers_set(100), *STARTS, *pods))
    assert [reason.where for reason in state.reasons] == ["pod/hello-worker-0 and 99 more"]


def test_what_may_not_be_read_is_said() -> None:
    found = objects(job(claim="x"), workers_set(0), denied=["claims", "events"])
    assert state_of(found).reasons == []
    assert "you may not read claims, events" in render.tree(state_of(found))


def test_events_are_asked_for_only_while_something_is_waited_for() -> None:
    assert not unsettled(healthy())
    assert not unsettled(succeeded())
    assert unsettled(objects(job(), workers_set(0)))
    assert unsettled(objects(job(), workers_set(2), *TRAINS, worker(0)))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "exit code 1"),
        (137, "SIGKILL, often out of memory"),
        (-9, "SIGKILL"),
        (247, "SIGKILL"),
        (249, "SIGBUS"),
        (139, "SIGSEGV"),
        (143, "SIGTERM"),
        (127, "command not found"),
        (126, "cannot be executed"),
        (255, "ssh lost"),
    ],
)
def test_exit_codes_in_words(code: int, words: str) -> None:
    assert words in exit_meaning(code)


def test_no_remedy_is_better_than_a_wrong_one() -> None:
    assert remedy("something that nobody has seen before") == ""


@pytest.mark.parametrize(
    ("found", "done"),
    [
        (objects(job(), workers_set(0)), []),
        (
            objects(
                job(),
                workers_set(),
                *STARTS,
                worker(0),
                worker(1, "Pending", node="", conditions=unscheduled("x")),
            ),
            [],
        ),
        (
            objects(job(), workers_set(), *STARTS, worker(0), worker(1, "Pending", waiting("worker", "x"))),
            ["schedule"],
        ),
        (healthy(), ["schedule", "pull"]),
        (succeeded(), ["schedule", "pull", "connect", "train"]),
    ],
)
def test_phases_of_a_start(found: Objects, done: list[str]) -> None:
    assert [step.name for step in steps(state_of(found), training=False) if step.done] == done


def test_the_list() -> None:
    text = render.jobs([state_of(healthy()), state_of(succeeded())])
    assert text.splitlines()[0].split() == [
        "NAME",
        "NAMESPACE",
        "STATE",
        "WORKERS",
        "RESTARTS",
        "ACCELERATORS",
        "AGE",
        "DURATION",
    ]
    assert text.splitlines()[1].split() == [
        "hello",
        "team",
        "Running",
        "2/2",
        "0",
        "2",
        "nvidia.com/gpu",
        "1m",
        "1m",
    ]
    assert text.splitlines()[2].split() == ["hello", "team", "Succeeded", "2", "0", "-", "1m", "40s"]
