"""Waiting for a condition, instead of sleeping for a time that is too short or too long."""

import time


def wait_for(condition, seconds=10):
    """Return what the condition returns, as soon as that is true."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.01)
    return found


def soon():
    """A deadline that a test never reaches."""
    return time.monotonic() + 10
