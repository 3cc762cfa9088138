"""`dsjob down`: uninstall jobs, wait until their pods are gone, and say what stays."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dsjob import cluster, helm, output, preflight
from dsjob.errors import DsjobError, ExitCode
from dsjob.kube import INSTANCE, NAME, label, meta
from dsjob.model import Objects
from dsjob.parts import mounted_claims
from dsjob.target import Target


def down(names: Sequence[str], target: Target, timeout: float, verbose: bool = False) -> ExitCode:
    """Remove each job, also if another one fails; return the code of the first failure."""
    api = cluster.connect(target)
    tool = helm.connect(target, api.namespace)
    output.note(f"context {api.context}, namespace {api.namespace}")
    code = ExitCode.OK
    for name in dict.fromkeys(names):
        try:
            _remove(name, api, tool, timeout)
        except DsjobError as error:
            output.failure(error, verbose)
            code = code or error.code
    return code


def _remove(name: str, api: cluster.Cluster, tool: helm.Helm, timeout: float) -> None:
    release, live = tool.release(name), api.objects(name)
    if release is None and not (live.jobs or live.statefulsets or live.deployments or live.pods):
        raise DsjobError(
            f"there is no job `{name}` in namespace `{api.namespace}`",
            ExitCode.NOT_FOUND,
            hint="`dsjob list -A` shows the jobs of all namespaces",
        )
    if release is None and not (live.jobs or live.statefulsets or live.deployments):
        output.note(f"{name}: its pods are already ending")
    elif release is None:
        maker = preflight.made_by((*live.jobs, *live.statefulsets, *live.deployments)[0])
        kinds = "all,cm,secret,role,rolebinding,sa,lease"
        way = f"kubectl delete {kinds} -n {api.namespace} -l {INSTANCE}={name},{NAME}=deepspeed-job"
        if "Argo CD" in maker:
            way = "remove the application there"
        raise DsjobError(
            f"the job `{name}` was made by {maker}, so Helm cannot remove it", ExitCode.PREFLIGHT, hint=way
        )
    began = time.monotonic()
    if release:
        preflight.ownership(name, api.namespace, release, live)
        tool.uninstall(name)
    while pods := [pod["metadata"]["name"] for pod in api.objects(name).pods]:
        if time.monotonic() - began > timeout:
            raise DsjobError(
                f"{name} is uninstalled, but after {output.span(timeout)} pods are left: {', '.join(pods)}",
                ExitCode.TIMEOUT,
                hint="their node may be gone: kubectl get pods -o wide",
            )
        time.sleep(0.5)
    output.say(f"{name}: removed, its pods are gone after {output.span(time.monotonic() - began)}")
    _say_what_stays(name, api.namespace, live)


def _say_what_stays(name: str, namespace: str, live: Objects) -> None:
    """Claims outlive a job: those that the chart made, and those that the job only used."""
    own = [meta(one)["name"] for one in live.claims if label(one, INSTANCE) == name and label(one, NAME)]
    owners = (*live.jobs, *live.statefulsets, *live.deployments)
    for claim in mounted_claims(owners):
        if claim not in own:
            output.say(f"{name}: the claim {claim}, which it used, stays as it is")
    if own:
        output.say(
            f"{name}: {', '.join(own)} stays, with the data; to delete it: "
            f"kubectl delete pvc -n {namespace} {' '.join(own)}"
        )
