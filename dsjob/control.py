"""The verbs that act on a job that is there: exec, scale, suspend, resume, down. `cli` registers them."""

from __future__ import annotations

from typing import Annotated

import typer

from dsjob.options import Context, Kubeconfig, Name, Namespace, Verbose
from dsjob.target import Target


def exec_(
    name: Name,
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="The command; all that follows -- is its own."),
    ],
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Run a command in an interactive job (`run.interactive`), as if it were the job's own. Exits with its code.

    Example: dsjob exec my-job -- deepspeed train.py --epochs 1
    """
    from dsjob.execute import execute

    raise typer.Exit(execute(Target(namespace, context, kubeconfig), name, command))


def scale(
    name: Name,
    count: Annotated[int, typer.Argument(metavar="COUNT", help="Number of workers.", min=1)],
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Change the number of workers of an elastic job (`elastic`) while it runs.

    Example: dsjob scale my-job 4
    """
    from dsjob import elastic

    raise typer.Exit(elastic.scale(Target(namespace, context, kubeconfig), name, count))


def suspend(
    name: Name,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Free the devices of a job for a while. `dsjob resume` starts it again, from its last checkpoint.

    Example: dsjob suspend my-job
    """
    from dsjob import suspend as verb

    raise typer.Exit(verb.suspend(Target(namespace, context, kubeconfig), name))


def resume(
    name: Name,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Let a suspended job go on.

    Example: dsjob resume my-job
    """
    from dsjob import suspend as verb

    raise typer.Exit(verb.resume(Target(namespace, context, kubeconfig), name))


def down(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of jobs.")],
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait for the pods to go.")
    ] = 120,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Remove jobs and wait until their pods are gone. Claims and their data stay.

    Example: dsjob down my-job
    """
    from dsjob import down as verb

    raise typer.Exit(verb.down(names, Target(namespace, context, kubeconfig), timeout, verbose))
