"""Which cluster and namespace a command works on, as given on the command line."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """Options that every verb shares. Empty means: what the kubeconfig says."""

    namespace: str = ""
    context: str = ""
    kubeconfig: Path | None = None

    def options(self) -> str:
        """The same target as options for a command that we tell the user to run."""
        parts = [f" -n {self.namespace}" if self.namespace else ""]
        parts.append(f" --context {self.context}" if self.context else "")
        parts.append(f" --kubeconfig {self.kubeconfig}" if self.kubeconfig else "")
        return "".join(parts)
