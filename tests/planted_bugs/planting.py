"""Runs tests against copies of the sources in which something is changed, each in a process of its own.

The processes are forks of one that has what takes long to import, but nothing of OpenInfer: that comes from the copy,
whose unchanged files are compiled once. A compiled file is only used for the very same text, whatever the clock says.
"""

import compileall
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue
from signal import SIGKILL, Signals
from threading import Lock

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "openinfer"
QUIET = (
    "-x",
    "-q",
    "--no-header",
    "--tb=line",
    "-W",
    "ignore:Module already imported:pytest.PytestAssertRewriteWarning",
)
OPTIONS = (*QUIET, "-p", "no:cacheprovider", "-p", "no:xdist")
_PARTS_OF_PYTEST = ("assertion.rewrite", "capture", "doctest", "fixtures", "python", "terminal")
SHARED = (
    "numpy", "pytest", "pydantic", "lark", "hypothesis", "hypothesis.extra.numpy", "hypothesis.stateful",
    "_hypothesis_pytestplugin", *(f"_pytest.{name}" for name in _PARTS_OF_PYTEST),
)  # fmt: skip
"""What the tests import and no bug is planted in."""
TIMEOUT = 600
PASSED, FAILED = 0, 1
_NOT_RUN = 70


@dataclass(frozen=True)
class Outcome:
    """How a run of tests ended: pytest's status, minus the signal that ended it, or another one if it was not even run;
    and what was printed."""

    status: int
    text: str

    @property
    def noticed(self) -> list[str]:
        """The tests that failed."""
        lines = [line for line in self.text.splitlines() if line.startswith("FAILED ")]
        return [line.removeprefix("FAILED ").partition(" - ")[0].rpartition("::")[2] for line in lines]

    @property
    def crash(self) -> str:
        """The signal that ended the tests, as a trap in checked code does; empty if there was none, or a timeout."""
        return "" if self.status >= 0 or -self.status == SIGKILL else Signals(-self.status).name


class Copies:
    """Copies of the sources that are lent, one for each process that runs at the same time."""

    def __init__(self, folder: Path, count: int) -> None:
        self._copies: SimpleQueue[Path] = SimpleQueue()
        self._lock = Lock()
        """Whoever starts a process also asks after those of others: two threads that ask at once spoil the answer."""
        self._processes = get_context("forkserver")
        self._processes.set_forkserver_preload(list(SHARED))
        first = folder / "0" / "src"
        shutil.copytree(ROOT / "src", first, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        compileall.compile_dir(first, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        for number in range(1, count):
            shutil.copytree(first, folder / str(number) / "src")
        for number in range(count):
            self._copies.put(folder / str(number) / "src")

    @contextmanager
    def borrowed(self) -> Iterator[Path]:
        """A copy that nobody else has in the meantime."""
        source = self._copies.get()
        try:
            yield source
        finally:
            self._copies.put(source)

    def run(self, source: Path, tests: str, expression: str) -> Outcome:
        """Run tests against a copy; the process itself makes sure that it is the copy."""
        printed = source.parent / "printed.txt"
        process = self._processes.Process(target=_run, args=(str(source), str(printed), tests, expression))
        with self._lock:
            process.start()
        is_over = wait([process.sentinel], TIMEOUT)
        with self._lock:
            if not is_over:
                process.kill()
            process.join()
        status = process.exitcode
        return Outcome(_NOT_RUN if status is None else status, printed.read_text(encoding="utf-8", errors="replace"))


def _run(source: str, printed: str, tests: str, expression: str) -> None:
    """In a process of its own: run the tests and exit with pytest's status."""
    descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(ROOT)
    os.environ |= {"PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    sys.path[:] = [source, *(path for path in sys.path if Path(path or ".").resolve() != ROOT / "src")]
    # Folders of its own: two runs that clear away those of earlier ones at the same time disturb each other.
    temporary = str(Path(printed).with_name("temporary"))
    status = _tested(source, [*OPTIONS, f"--basetemp={temporary}", tests, "-k", expression])
    sys.stdout.flush()
    sys.exit(status)


def _tested(source: str, arguments: list[str]) -> int:
    import pytest  # (the process that forks has it; the one that plants does not need it)

    if PACKAGE in sys.modules:
        print(f"NOT RUN: {PACKAGE} was imported before")
        return _NOT_RUN
    try:
        package = __import__(PACKAGE)
    except BaseException as error:  # noqa: BLE001  (a bug that is planted may do anything)
        print(f"NOT RUN: {error!r}")
        return _NOT_RUN
    if not str(package.__file__).startswith(source):
        print(f"NOT RUN: {package.__file__} is not the copy")
        return _NOT_RUN
    return int(pytest.main(arguments))
