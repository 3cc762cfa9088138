"""The command line. Each verb reads its options, calls one function, and prints what that returns.

Verbs that act on a job that is there are in `control`.
"""

from __future__ import annotations

import io
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dsjob import control, options, output
from dsjob.errors import DsjobError, ExitCode
from dsjob.options import (
    Context,
    Files,
    Format,
    Kubeconfig,
    MoreFiles,
    Name,
    Namespace,
    Output,
    Verbose,
)
from dsjob.target import Target


class Group(TyperGroup):
    """The one place where errors become messages and exit codes."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; no traceback reaches the user."""
        try:
            return super().invoke(ctx)
        except DsjobError as error:
            output.failure(error, options.verbose)
            raise typer.Exit(error.code) from error
        except (KeyboardInterrupt, typer.Abort) as error:
            output.note("interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from error
        except (typer.Exit, typer.TyperException, BrokenPipeError):
            raise  # typer's own: usage errors, the end of a pipe
        except Exception as error:
            hint = "this is a mistake in dsjob; please report it with what -v shows"
            known = DsjobError(f"{type(error).__name__}: {error}", ExitCode.CLUSTER, hint=hint)
            known.detail = "".join(traceback.format_exception(error))
            output.failure(known, options.verbose)
            raise typer.Exit(known.code) from error


app = typer.Typer(
    cls=Group,
    name="dsjob",
    help="Run DeepSpeed training on Kubernetes from one values file.\n\nExample: dsjob up my-job.yaml",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def validate(
    files: Files = [],  # noqa: B006
    more: MoreFiles = [],  # noqa: B006
    form: Output = Format.text,
    verbose: Verbose = False,
) -> None:
    """Find every error of a values file. Nothing is asked of the cluster.

    Example: dsjob validate my-job.yaml
    """
    from dsjob.validate import check

    problems = check([*files, *more]).problems
    if form is Format.json:
        output.say_json({"problems": [problem.to_json() for problem in problems]})
        raise typer.Exit(ExitCode.INVALID if problems else ExitCode.OK)
    _stop_at(problems)
    output.say(f"{', '.join(map(str, [*files, *more]))}: valid")


@app.command()
def up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Values file of the job.")],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the job.", show_default="the file's name")
    ] = "",
    more: MoreFiles = [],  # noqa: B006
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before a run that is under way is ended.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once the job is sent.")] = False,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Run a job: check it, send it, and follow it to its end. Ctrl-C leaves it running.

    Example: dsjob up my-job.yaml
    """
    from dsjob import up as verb

    verb.check_name(name)
    request = verb.Request([file, *more], name, Target(namespace, context, kubeconfig), yes, detach)
    try:
        raise typer.Exit(verb.up(request, typer.confirm))
    except verb.Invalid as invalid:
        _stop_at(invalid.problems)


@app.command()
def status(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the job.", show_default="all jobs")
    ] = "",
    form: Output = Format.text,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Say how a job is, and why: launcher, workers, volumes, TensorBoard, with what helps.

    Example: dsjob status my-job
    """
    from dsjob import look, render

    target = Target(namespace, context, kubeconfig)
    if not name:
        _show_list(look.jobs(target), form)
        return
    state = look.job(target, name)
    if form is Format.json:
        output.say_json(state.to_json())
    else:
        output.say(render.tree(state))


@app.command("list")
def list_jobs(
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Jobs of all namespaces.")
    ] = False,
    form: Output = Format.text,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """List the jobs of a namespace, whoever made them.

    Example: dsjob list -A
    """
    from dsjob import look

    _show_list(look.jobs(Target(namespace, context, kubeconfig), everywhere), form)


@app.command()
def logs(
    name: Name,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on to the job's end; exit with its code.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, help="Only the last lines.", show_default="all")
    ] = None,
    worker: Annotated[
        int | None, typer.Option("--worker", min=0, help="A worker's log.", show_default="the run's")
    ] = None,
    container: Annotated[
        str, typer.Option("--container", "-c", help="Another container.", show_default="the main one")
    ] = "",
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Print a log: the launcher's has what all ranks print. In mode direct each worker has its own, and worker 0's is shown.

    Example: dsjob logs my-job -f
    """
    from dsjob import look

    raise typer.Exit(look.logs(Target(namespace, context, kubeconfig), name, follow, tail, worker, container))


@app.command()
def tensorboard(
    name: Name,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", min=1, max=65535, help="Port of this machine.", show_default="6006, or a free one"
        ),
    ] = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Show a job's TensorBoard on a port of this machine, until Ctrl-C.

    Example: dsjob tensorboard my-job
    """
    from dsjob import cluster, forward

    try:
        forward.tensorboard(cluster.connect(Target(namespace, context, kubeconfig)), name, port)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.OK) from None


app.command("exec")(control.exec_)
for change in (control.scale, control.suspend, control.resume, control.down):
    app.command()(change)


@app.command()
def version(
    form: Output = Format.text,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,
) -> None:
    """Say which versions of dsjob, chart, helm and Kubernetes are in use.

    Example: dsjob version
    """
    from dsjob import look

    found = look.versions(Target("", context, kubeconfig))
    if form is Format.json:
        output.say_json(found)
    else:
        output.say("\n".join(f"{what:<11} {text}" for what, text in found.items()))


def _stop_at(problems: list[Any]) -> None:
    """Show what is wrong with the values, and exit."""
    if problems:
        output.problems(problems)
        output.note(output.count(len(problems), "error"))
        raise typer.Exit(ExitCode.INVALID)


def _show_list(states: list[Any], form: Format) -> None:
    from dsjob import render

    if form is Format.json:
        output.say_json({"jobs": [state.to_json() for state in states]})
    elif states:
        output.say(render.jobs(states))
    else:
        output.note("no jobs here; `dsjob list -A` looks in all namespaces")


def main() -> None:
    """Entry point of the program."""
    for stream in (sys.stdout, sys.stderr):  # a mark that the terminal cannot show is no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # The Kubernetes client has certificates in temporary files, which only a regular exit removes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
