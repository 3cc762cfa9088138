"""What a pod tells of why it does not run. The pods are as Kubernetes 1.34 writes them."""

import pytest
from obstacle import obstacle_of


def condition(kind, status, **more):
    return {"type": kind, "status": status, **more}


SCHEDULED = [condition("PodScheduled", "True")]


def container(name="worker", last=None, **state):
    return {"name": name, "state": state, "lastState": {"terminated": last} if last else {}}


def pod(phase="Pending", conditions=SCHEDULED, containers=(), init=(), **more):
    status = {"phase": phase, "conditions": conditions, **more}
    if containers:
        status["containerStatuses"] = list(containers)
    if init:
        status["initContainerStatuses"] = list(init)
    return {"metadata": {"name": "job-worker-0"}, "status": status}


def test_a_pod_that_fits_on_no_node_says_what_the_scheduler_says():
    text = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    found = pod(conditions=[condition("PodScheduled", "False", reason="Unschedulable", message=text)])
    assert obstacle_of(found) == f"not scheduled: {text}"


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError"])
def test_a_container_that_cannot_be_made_says_why(reason):
    text = 'Back-off pulling image "example/image:v1": not found'
    found = pod(containers=[container(waiting={"reason": reason, "message": text})])
    assert obstacle_of(found) == f"{reason}: {text}"


def test_a_reason_without_a_message_is_told_alone():
    assert obstacle_of(pod(containers=[container(waiting={"reason": "ErrImagePull"})])) == "ErrImagePull"


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_a_container_that_is_being_made(reason):
    found = pod(containers=[container(waiting={"reason": reason})])
    assert obstacle_of(found) == "its image is pulled, or its volumes are mounted"


def test_a_pod_that_fetches_its_code_says_so():
    waits = container(waiting={"reason": "PodInitializing"})
    found = pod(init=[container("code", running={})], containers=[waits])
    assert obstacle_of(found) == "it fetches the code"


def test_code_that_cannot_be_had_is_told_as_the_fetching_container_tells_it():
    told = {"exitCode": 1, "message": "there is no commit 1 in x"}
    found = pod(
        init=[container("code", terminated=told)],
        containers=[container(waiting={"reason": "PodInitializing"})],
    )
    assert obstacle_of(found) == "its container code ended: there is no commit 1 in x"


ENDED = {"exitCode": 1, "reason": "Error", "message": "the image of the worker lacks sshd\n"}


@pytest.mark.parametrize(
    "status",
    [
        container(terminated=ENDED),
        container(last=ENDED, waiting={"reason": "CrashLoopBackOff", "message": "back-off 10s restarting"}),
    ],
)
def test_a_container_that_ended_says_its_last_words(status):
    assert obstacle_of(pod("Running", containers=[status])) == (
        "its container worker ended: the image of the worker lacks sshd"
    )


def test_a_container_that_ended_without_a_word_has_a_reason_and_a_code():
    found = pod(containers=[container(terminated={"exitCode": 137, "reason": "OOMKilled"})])
    assert obstacle_of(found) == "its container worker ended: OOMKilled, exit code 137"


def test_a_container_that_is_not_ours_is_named():
    found = pod(
        containers=[container(waiting={"reason": "PodInitializing"})],
        init=[container("mesh-init", terminated={"exitCode": 2, "reason": "Error"})],
    )
    assert obstacle_of(found) == "its container mesh-init ended: Error, exit code 2"


def test_an_init_container_that_has_done_its_work_is_none():
    found = pod(
        containers=[container(waiting={"reason": "ErrImagePull"})],
        init=[container("init", terminated={"exitCode": 0, "reason": "Completed"})],
    )
    assert obstacle_of(found) == "ErrImagePull"


@pytest.mark.parametrize(
    "containers",
    [
        (),
        (
            container(
                terminated={
                    "exitCode": 137,
                    "reason": "ContainerStatusUnknown",
                    "message": "could not be located",
                }
            ),
        ),
    ],
)
def test_an_evicted_pod_says_so_rather_than_how_its_container_ended(containers):
    text = "The node was low on resource: memory."
    found = pod("Failed", containers=containers, reason="Evicted", message=text)
    assert obstacle_of(found) == f"Evicted: {text}"


@pytest.mark.parametrize("found", [{}, {"status": {}}, {"status": {"phase": "Pending"}}, pod(conditions=[])])
def test_a_pod_of_which_nothing_is_known_waits(found):
    assert obstacle_of(found) == "its pod waits for a node"


def test_a_pod_that_runs_has_no_obstacle():
    found = pod("Running", containers=[container(running={"startedAt": "2026-12-01T12:00:00Z"})])
    assert obstacle_of(found) == ""


def test_a_long_message_is_cut():
    found = pod(containers=[container(waiting={"reason": "ErrImagePull", "message": "x" * 5000})])
    assert len(obstacle_of(found)) == 300
