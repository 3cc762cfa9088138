"""The programs that run in pods, imported as the pods do: from their folder, with nothing but Python's standard library."""

import signal
import sys
from pathlib import Path

FILES = Path(__file__).parents[3] / "charts" / "deepspeed-job" / "files"
sys.dont_write_bytecode = True
sys.path.insert(0, str(FILES))

# The programs set a handler for SIGTERM when they are imported, which is not for us.
import early  # noqa: E402, F401

signal.signal(signal.SIGTERM, signal.SIG_DFL)
