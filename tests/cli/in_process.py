"""The command line without a new process for every call: the same ``main``, with its streams caught."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

from openinfer.cli import main


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


def openinfer(*arguments: str, text: str | None = None) -> Done:
    """What a command does; with a text, that is its standard input."""
    caught = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(one, "utf-8", write_through=True) for one in caught)
    stdin = sys.stdin if text is None else io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8")
    given = mock.patch.multiple("sys", argv=["openinfer", *arguments], stdin=stdin)
    with given, redirect_stdout(out), redirect_stderr(err):
        try:
            status = main()
        except SystemExit as leaving:
            status = int(leaving.code or 0)
    return Done(status, *(one.getvalue().decode() for one in caught))
