"""The kubeconfig: which cluster, and as whom."""

from __future__ import annotations

from typing import Any

from dsjob.errors import DsjobError, ExitCode
from dsjob.kube import Object
from dsjob.target import Target


def load(target: Target) -> tuple[Object, Any]:
    """The chosen context of the kubeconfig, and the client's settings for it."""
    from kubernetes import client, config

    file = str(target.kubeconfig) if target.kubeconfig else None
    hint = "give one by --kubeconfig or KUBECONFIG, or log in to your cluster"
    if target.kubeconfig and not target.kubeconfig.is_file():
        raise DsjobError(f"there is no kubeconfig {file}", ExitCode.CLUSTER, hint=hint)
    try:
        contexts, chosen = config.list_kube_config_contexts(config_file=file)
        if target.context:
            chosen = next((one for one in contexts if one["name"] == target.context), None)
            if chosen is None:
                known = "it has: " + ", ".join(one["name"] for one in contexts)
                raise DsjobError(
                    f"the kubeconfig has no context `{target.context}`", ExitCode.CLUSTER, hint=known
                )
        settings = client.Configuration()
        config.load_kube_config(file, chosen["name"], client_configuration=settings)
    except config.ConfigException as error:
        text = str(error).removeprefix("Invalid kube-config file. ").rstrip(".")
        raise DsjobError(f"no usable kubeconfig: {text}", ExitCode.CLUSTER, hint=hint) from error
    except DsjobError:
        raise
    except Exception as error:  # the library checks little of the file's form
        raise DsjobError(
            f"the kubeconfig {file or ''} cannot be read", ExitCode.CLUSTER, hint=hint, detail=repr(error)
        ) from error
    return chosen, settings
