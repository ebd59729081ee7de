"""The command line without a new process for every call: the same ``main``, with its streams caught."""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

from openinfer.cli import main


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


def openinfer(*arguments: str) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with mock.patch("sys.argv", ["openinfer", *arguments]), redirect_stdout(out), redirect_stderr(err):
        try:
            status = main()
        except SystemExit as leaving:
            status = int(leaving.code or 0)
    return Done(status, out.getvalue(), err.getvalue())
