"""Options that several verbs share."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

verbose = False  # whether errors come with the raw text of helm and the cluster


def _set_verbose(value: bool) -> bool:
    global verbose
    verbose = value
    return value


class Format(str, Enum):
    """Forms of output."""

    text = "text"
    json = "json"


Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace of the job.", show_default="the context's")
]
Context = Annotated[
    str, typer.Option("--context", help="Context of the kubeconfig.", show_default="the current one")
]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Path of the kubeconfig.", show_default="$KUBECONFIG")
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show the raw text of helm and the cluster.", callback=_set_verbose),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]
Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="Values files; later ones win.")]
MoreFiles = Annotated[
    list[Path], typer.Option("--values", "-f", help="One more values file.", show_default=False)
]


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the job.")]
