"""Hooks that must be loaded by the process that prints the summary, whichever folder is tested."""

import os
import signal

from tests.oinf.conftest import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]

# A shell that starts the tests in the background ignores Ctrl-C for them and for all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Generated code has no warnings: neither of the tests' own builds nor of the commands that they start.
os.environ["OPENINFER_CFLAGS"] = "-Werror"
