"""`python -m dsjob`."""

from dsjob.cli import main

main()
