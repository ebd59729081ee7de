"""A worker seen from outside: started, asked, and watched while it should sleep."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.cpu.peers import PEERS, ROOT

PEER_ENVIRONMENT = {
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",  # beyond that, oneDNN crashes on some machines
}
TORCH_ENVIRONMENT = {
    "TORCHINDUCTOR_FREEZING": "1",  # weights are constants, which may be stored in another order
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of compilers that outlives the compilation
}


class EngineError(Exception):
    """An engine that is missing, or has ended; the message says why."""


class MissingEngineError(EngineError):
    """An engine that is not installed."""


class UnableEngineError(EngineError):
    """An engine that cannot run a model."""


def environment(engine: str, folder: Path, threads: int) -> dict[str, str]:
    """The variables that a worker gets: this process's, and the engine's own."""
    if engine == "ours":
        return {**os.environ}
    own = {**TORCH_ENVIRONMENT, "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")} if engine == "torch" else {}
    return {**PEERS[engine].environment(), **PEER_ENVIRONMENT, "OMP_NUM_THREADS": str(threads), **own}


def interpreter_of(engine: str) -> str:
    """The Python that has an engine."""
    peer = PEERS[engine]
    if not peer.has_environment:
        return sys.executable
    if not peer.python.exists():
        raise MissingEngineError(f"not installed: python -m bench.cpu.install {engine}")
    return str(peer.python)


def parsed(line: str) -> dict[str, Any]:
    """An answer; an engine that cannot run a model says so instead."""
    found: dict[str, Any] = json.loads(line)
    if "cannot" in found:
        raise UnableEngineError(found["cannot"])
    return found


class Worker:
    """The process of an engine, until it is told to ``end``."""

    def __init__(self, engine: str, model: str, folder: Path, threads: int) -> None:
        self.engine = engine
        self._log = folder / f"{engine}.log"
        program = [interpreter_of(engine), "-m", "bench.cpu.worker"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*program, engine, model, str(folder), str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=environment(engine, folder, threads),
            )

    def wait_until_ready(self) -> None:
        """Return when the engine is imported."""
        first = self._answer()
        if "missing" in first:
            raise MissingEngineError(f"not installed: {first['missing']}")

    def end(self) -> None:
        """Close the pipes, upon which the worker ends, and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return parsed(line)

    def _ended(self) -> EngineError:
        status = self._process.wait()
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = lines[-1][:300] if lines else "and said nothing"
        kind = UnableEngineError if "CannotError" in said else EngineError
        return kind(f"ended with status {status}: {said}")

    def cpu_seconds(self) -> float:
        """Processor time of all its threads so far."""
        return sum(int(text.split()[0]) for text in self._of_threads("schedstat")) / 1e9

    def is_asleep(self) -> bool:
        """Whether no thread of it runs, or would if there were a processor for it."""
        return not any(text.rpartition(")")[2].split()[0] == "R" for text in self._of_threads("stat"))

    def _of_threads(self, name: str) -> Iterator[str]:
        """What the system says of each thread; those that end meanwhile are left out."""
        for task in Path(f"/proc/{self._process.pid}/task").glob(f"*/{name}"):
            with suppress(FileNotFoundError, ProcessLookupError):
                yield task.read_text(encoding="utf-8", errors="replace")
