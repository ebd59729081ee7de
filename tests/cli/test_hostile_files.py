"""Whatever a path leads to, a command ends with a coded error: no traceback, no waiting, nothing overwritten."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.cli.in_process import openinfer

from openinfer.cli import main
from openinfer.oinf import save_file

GRAPH = """
dynamic { x: f32[4]; } persistent { n: i32; } volatile { y: f32[4]; }
block entry { op exp(x) >> y; cache.increment n; return y; }
"""


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)


KINDS: dict[str, Callable[[Path], Any]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a broken link": lambda path: path.symlink_to("/nowhere/at/all"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "a socket": make_socket,
    "memory of a process": lambda path: path.symlink_to("/proc/self/mem"),
    "empty": Path.touch,
    "random bytes": lambda path: path.write_bytes(np.random.default_rng(1).bytes(3000)),
}
NAMES = {
    "missing": "missing",
    "under a file": "g.oig/x",
    "too long": "x" * 300,
    "not UTF-8": "a\udcff",
}
READ: dict[str, tuple[str, ...]] = {
    ".oig": ("check @", "run @", "step @", "trace @", "synth @", "bench @", "fmt @", "draw @", "graph to-json @"),
    ".json": (
        *("graph from-json @", "trace-diff @ @", "devices @", "synth g.oig --device @", "synth g.oig --tuned @"),
        "check @",
    ),
    ".oinf": (
        *("check g.oig --model @", "run g.oig --model @", "synth g.oig --model @", "bench g.oig --model @"),
        *("run g.oig -i x=ones --load-state @", "trace g.oig -i x=ones --load-state @"),
        *("inspect @", "inspect m.oinf --diff @", "verify @", "pack @ -o o.oinf"),
    ),
    ".npy": ("run g.oig -i x=@@", "run g.oig -i x=@@[]", "synth g.oig -o out -i x=@@"),
    ".npz": ("run g.oig -i x=@@", "pack @ -o o.oinf"),
    ".safetensors": ("pack @ -o o.oinf",),
    ".safetensors.index.json": ("pack @ -o o.oinf",),
}
WRITTEN: dict[str, tuple[str, ...]] = {
    ".npy": ("run g.oig -i x=ones -o y=@@",),
    ".npz": ("run g.oig -i x=ones -o y=@@",),
    ".oinf": ("run g.oig -i x=ones --save-state @", "pack m.oinf -o @"),
    ".json": ("trace g.oig -i x=ones -o @", "graph to-json g.oig -o @", "graph schema -o @"),
    ".dot": ("draw g.oig -o @",),
    "": ("synth g.oig --no-selftest -o @", "demo -o @"),
}
UNWRITABLE = ("a pipe", "a folder", "a device without end", "a link to itself", "under a file", "too long")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("g.oig").write_text(GRAPH)
    save_file("m.oinf", {"w": np.ones(4, np.float32)})
    np.save("x.npy", np.ones(4, np.float32))
    before = signal.signal(signal.SIGALRM, waited)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def waited(*_: object) -> None:
    pytest.fail("the command waits for something that never comes")


def refused(command: str, path: str) -> None:
    arguments = [part.replace("@@", f"@{path}") if "@@" in part else part for part in command.split()]
    signal.alarm(60)
    found = openinfer(*(path if part == "@" else part for part in arguments))
    signal.alarm(0)
    assert found.status in (1, 2), f"{command}: {found}"
    assert "error[E" in found.err or "Invalid value" in found.err, f"{command}: {found}"


@pytest.mark.parametrize("kind", [*KINDS, *NAMES])
def test_what_is_no_file_of_that_kind_is_refused(kind: str) -> None:
    for ending, commands in READ.items():
        path = NAMES.get(kind, "bad") + ending
        if kind in KINDS:
            KINDS[kind](Path(path))
        for command in commands if kind in ("a pipe", "a folder") else commands[:1]:
            refused(command, path)


@pytest.mark.parametrize("kind", UNWRITABLE)
def test_what_is_no_place_for_a_file_is_refused(kind: str) -> None:
    for ending, commands in WRITTEN.items():
        path = NAMES.get(kind, "bad") + ending
        if kind in KINDS and (ending or kind != "a folder"):
            KINDS[kind](Path(path))
        for command in commands:
            if ending or kind != "a folder":
                refused(command, path)
    assert not Path("/dev/zero").is_file()


# --- standard streams -------------------------------------------------------------------------------------------------


def run_into(descriptor: int, *arguments: str) -> tuple[int, str]:
    """The exit status, and what was said on standard error, of a command whose output goes somewhere."""
    errors, stream = io.StringIO(), os.fdopen(descriptor, "w", encoding="utf-8")
    with mock.patch("sys.argv", ["openinfer", *arguments]), redirect_stdout(stream), redirect_stderr(errors):
        try:
            status = main()
        except SystemExit as leaving:
            status = int(leaving.code or 0)
    with suppress(BrokenPipeError):
        stream.close()
    return status, errors.getvalue()


COMMANDS = [
    ("ops",),
    ("ops", "--json"),
    ("--help",),
    ("verify", "m.oinf"),
    ("inspect", "m.oinf"),
    ("graph", "to-json", "g.oig"),
    ("run", "g.oig", "-i", "x=ones"),
    ("explain", "E101"),
    ("devices",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_output_that_is_full_is_a_coded_error(command: tuple[str, ...]) -> None:
    status, errors = run_into(os.open("/dev/full", os.O_WRONLY), *command)
    assert status == 1
    assert "error[E731]: cannot write to standard output: No space left on device" in errors


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_output_that_nobody_reads_ends_the_command_quietly(command: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    _, errors = run_into(writing, *command)
    assert errors == ""


def test_closed_streams_lead_nowhere() -> None:
    """Else the first file that is opened would be standard output, and be written to."""
    command = f"{sys.executable} -m openinfer pack m.oinf -o o.oinf <&- >&-"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert Path("o.oinf").read_bytes() == Path("m.oinf").read_bytes()


def test_standard_input_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openinfer.lang.source.MAX_SOURCE_BYTES", 1000)
    with open("/dev/zero", encoding="utf-8") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        found = openinfer("check", "-")
    assert (found.status, "error[E112]" in found.err) == (1, True)


# --- documents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["x[", "x[0]", "[", "constrained-str", "function-wrap[f()]", "", "é", "a/b"])
@pytest.mark.parametrize("option", ["--tuned", "--device"])
def test_a_key_of_any_spelling_is_told_of(key: str, option: str) -> None:
    document = {"schema": "openinfer.tuned", "version": 1, "records": [], key: 1}
    if option == "--device":
        document = {"device": {"type": "cpu", "name": {key: 1}}}
    Path("d.json").write_text(json.dumps(document))
    found = openinfer("synth", "g.oig", option, "d.json")
    assert found.status == 1
    assert "error[E80" in found.err
    assert option == "--device" or f"the key {key!r} is unknown" in found.err
