"""Imported first: the first process of a container gets no signal that it does not handle, and the other imports take a while."""

import os
import signal

signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
