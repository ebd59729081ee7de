"""Workers, as seen by the process that starts them: their modules can be lost, and come back without their states."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.ops import Array
from openinfer.workers.framing import NamedArrays, WorkerMessage, heard_error, received, send
from openinfer.workers.recipe import Recipe

_GRACE = 10.0
"""Seconds that a worker has to end when it is closed."""
_BEGINNINGS = ("reset", "load")
"""Commands that give a module a state, whatever it had before."""


def worker_lost(status: int | None) -> ExecutionError:
    """The error of a call whose worker has ended."""
    how = "" if status is None else f" (signal {-status})" if status < 0 else f" (status {status})"
    message = f"the process that ran the step has ended{how}"
    advice = "send it again: another process takes its place, with the state that was saved last"
    return ExecutionError(Diagnostic(Code.WORKER_LOST, message, None, advice))


class Worker:
    """A process with modules of one recipe; a lost process is restarted by the next call."""

    def __init__(self, recipe: Recipe, after_loss: Callable[[int], None] = lambda _pid: None) -> None:
        self._recipe = recipe
        self._after_loss = after_loss
        self._calls = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._is_closed = False
        self.generation = 0
        """The number of processes so far: modules of earlier ones are gone."""
        self.memory_bytes = 0
        """The memory of a module: its state and the working memory of a step."""
        self.has_states = False
        """Whether modules have persistent memory, which is lost with the process."""
        self._start()

    @property
    def pid(self) -> int | None:
        """The id of the process, while there is one."""
        return None if self._process is None else self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def ready(self) -> None:
        """Wait until the recipe is built; an error if that fails."""
        with self._calls:
            self._require_process()

    def _start(self) -> None:
        """Start a process and send it the recipe to build, without waiting for it."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            command = [sys.executable, "-m", "openinfer.workers.child", str(descriptor)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(descriptor,))  # noqa: S603
        self._connection = Connection(ours.detach())
        self.generation += 1
        self._is_built = False
        with suppress(OSError):  # if the process is already gone, receiving its answer fails
            send(self._connection, {"do": "build", "recipe": self._recipe.facts()})

    def _require_process(self) -> None:
        if self._is_closed:
            raise ExecutionError(Diagnostic(Code.WORKER_LOST, "the worker is closed"))
        if not self.is_alive:
            self._end()
            self._start()
        if not self._is_built:
            facts = self._receive()[0]
            self.memory_bytes, self.has_states = int(facts["memory_bytes"]), bool(facts["has_states"])
            self._is_built = True

    def ask(self, message: WorkerMessage, tensors: NamedArrays | None = None, generation: int | None = None) -> Any:
        """Send a message; returns the answer and its tensors.

        An error if the process ends meanwhile, or has ended before, that is, is not of the given ``generation``.
        """
        with self._calls:
            if generation is not None and (generation != self.generation or not self.is_alive):
                raise worker_lost(None if self._process is None else self._process.poll())
            self._require_process()
            assert self._connection is not None
            try:
                send(self._connection, message, tensors)
            except OSError:
                raise self._lost() from None
            return self._receive()

    def _receive(self) -> tuple[WorkerMessage, dict[str, Array]]:
        assert self._connection is not None
        try:
            answer, tensors = received(self._connection)
        except (EOFError, OSError):
            raise self._lost() from None
        if "error" in answer:
            raise heard_error(answer["error"])
        return answer, tensors

    def _lost(self) -> ExecutionError:
        process = self._process
        status = self._end()
        if process is not None:
            self._after_loss(process.pid)
        return worker_lost(status)

    def _end(self) -> int | None:
        """End the process, if it has not ended by itself; returns its exit status."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is None:
            return None
        try:
            self._process.wait(0.2)  # it may already be exiting by itself
        except subprocess.TimeoutExpired:
            self._process.kill()
        status = self._process.wait()
        self._process = None
        return status

    def interrupt(self) -> None:
        """End the running step, at the next iteration of one of the graph's loops."""
        if self._process is not None and self._is_built:
            with suppress(OSError):
                self._process.send_signal(signal.SIGUSR1)

    def close(self) -> None:
        """End the process once it has answered the pending call."""
        self._is_closed = True
        if not self._calls.acquire(timeout=_GRACE) and self._process is not None:
            self._process.kill()
            self._calls.acquire()
        self._end()
        self._calls.release()


class WorkerGroup:
    """Workers of the same recipe, which get modules in round-robin order."""

    def __init__(self, recipe: Recipe, size: int, after_loss: Callable[[int], None] = lambda _pid: None) -> None:
        self.workers = [Worker(recipe, after_loss) for _ in range(size)]
        self._turns = count()
        try:
            for worker in self.workers:
                worker.ready()
        except BaseException:
            self.close()
            raise

    def module(self) -> "WorkerModule":
        """Another module, on the next worker."""
        return WorkerModule(self, self.workers[next(self._turns) % len(self.workers)])

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.close()


class WorkerModule:
    """A module of a worker, with the interface of a compiled one.

    If its process ends, the pending call fails with E910. The next call starts another process; a module with
    persistent memory must be reset or given a state first.
    """

    def __init__(self, group: WorkerGroup, worker: Worker) -> None:
        self._group, self._worker = group, worker
        self._generation, self._id = -1, 0
        self._make()

    def _make(self) -> None:
        self._id = int(self._worker.ask({"do": "another"})[0]["module"])
        self._generation = self._worker.generation

    @property
    def is_lost(self) -> bool:
        """Whether the process that held its state has ended."""
        return self._generation != self._worker.generation or not self._worker.is_alive

    @property
    def memory_bytes(self) -> int:
        """The memory of a module: its state and the working memory of a step."""
        return self._worker.memory_bytes

    def another(self) -> "WorkerModule":
        """Another module of the same recipe."""
        return self._group.module()

    def _ask(self, command: Mapping[str, Any], tensors: NamedArrays | None = None) -> dict[str, Array]:
        if self.is_lost:
            if self._worker.has_states and command["do"] not in _BEGINNINGS:
                raise worker_lost(None)
            self._make()
        message = {**command, "module": self._id}
        found: dict[str, Array] = self._worker.ask(message, tensors, self._generation)[1]
        return found

    def __call__(self, inputs: NamedArrays) -> dict[str, Array]:
        """Run a step and return its outputs."""
        return self._ask({"do": "step"}, inputs)

    def reset(self) -> None:
        """Reset persistent memory to its initial values."""
        self._ask({"do": "reset"})

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write persistent memory to a file."""
        self._ask({"do": "save", "path": os.fspath(path)})

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Restore persistent memory from a file."""
        self._ask({"do": "load", "path": os.fspath(path)})

    def interrupt(self) -> None:
        """End the step that its worker is running; a worker runs one step at a time."""
        self._worker.interrupt()
