"""The process of a worker, ``python -m openinfer.workers.child DESCRIPTOR``: builds a recipe and executes commands.

It ends when the process that started it is gone, even during a step. A signal (SIGUSR1) interrupts the running step.
"""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from openinfer.check.results import Outputs
from openinfer.errors import Code, Diagnostic, ExecutionError, OpenInferError
from openinfer.ir import MemoryKind
from openinfer.ops import Array
from openinfer.synth.run.module import CompiledModule
from openinfer.workers.framing import NamedArrays, WorkerMessage, received, send, told_error
from openinfer.workers.recipe import Recipe

WorkerAnswer = tuple[WorkerMessage, NamedArrays]


class Modules:
    """The modules of a worker: the first one, and others that share its weights but have their own state."""

    def __init__(self) -> None:
        self._modules: dict[int, CompiledModule] = {}
        self._made = 0
        self._first: CompiledModule | None = None
        self._running: CompiledModule | None = None
        self._commands: dict[str, Callable[[WorkerMessage, NamedArrays], WorkerAnswer]] = {
            "build": self._build,
            "another": self._another,
            "step": self._step,
            "reset": self._reset,
            "save": self._save,
            "load": self._load,
            "forget": self._forget,
        }

    def done(self, message: WorkerMessage, tensors: NamedArrays) -> WorkerAnswer:
        """Execute the command of a message."""
        return self._commands[message["do"]](message, tensors)

    def interrupt(self) -> None:
        """End the running step, if any."""
        if self._running is not None:
            self._running.interrupt()

    def _build(self, message: WorkerMessage, _tensors: NamedArrays) -> WorkerAnswer:
        recipe = Recipe.of(message["recipe"])
        self._first = recipe.built(recipe.plan(recipe.opened()))
        kinds = {one.kind for one in self._first.bound.vars.values()}
        return {"memory_bytes": self._first.memory_bytes, "has_states": MemoryKind.PERSISTENT in kinds}, {}

    def _another(self, _message: WorkerMessage, _tensors: NamedArrays) -> WorkerAnswer:
        assert self._first is not None
        self._made += 1
        self._modules[self._made] = self._first.another() if self._modules else self._first
        return {"module": self._made}, {}

    def _step(self, message: WorkerMessage, tensors: NamedArrays) -> WorkerAnswer:
        module = self._running = self._modules[message["module"]]
        try:
            found = module(tensors)
        finally:
            self._running = None
        return {}, dict(found.items()) if isinstance(found, Outputs) else {module.bound.output_names[0]: found}

    def _reset(self, message: WorkerMessage, _tensors: NamedArrays) -> WorkerAnswer:
        self._modules[message["module"]].reset()
        return {}, {}

    def _save(self, message: WorkerMessage, _tensors: NamedArrays) -> WorkerAnswer:
        self._modules[message["module"]].save_state(message["path"])
        return {}, {}

    def _load(self, message: WorkerMessage, _tensors: NamedArrays) -> WorkerAnswer:
        self._modules[message["module"]].load_state(message["path"])
        return {}, {}

    def _forget(self, message: WorkerMessage, _tensors: NamedArrays) -> WorkerAnswer:
        self._modules.pop(message["module"], None)
        return {}, {}


def work(connection: "Connection[Any, Any]", modules: Modules) -> None:
    """Answer messages until the other side is gone."""
    while True:
        try:
            message, tensors = received(connection)
        except (EOFError, OSError):
            return
        answer, found = _answered(modules, message, tensors)
        try:
            send(connection, answer, found)
        except OSError:
            return


def _answered(modules: Modules, message: WorkerMessage, tensors: NamedArrays) -> tuple[WorkerMessage, dict[str, Array]]:
    try:
        answer, found = modules.done(message, tensors)
    except OpenInferError as error:
        return {"error": told_error(error)}, {}
    except MemoryError:
        full = ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, "there is not enough memory for the step"))
        return {"error": told_error(full)}, {}
    return answer, dict(found)


def _end_with(descriptor: int) -> None:
    """End this process when the other end of a socket closes: a step may be endless, and nothing reads its result."""
    watched = select.poll()
    watched.register(descriptor, 0)  # hang-ups are reported even with an empty event mask
    watched.poll()
    os._exit(0)


def main() -> None:
    """Serve the process that holds the other end of the descriptor."""
    modules = Modules()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process, which ends this one
    signal.signal(signal.SIGUSR1, lambda _number, _frame: modules.interrupt())
    descriptor = int(sys.argv[1])
    threading.Thread(target=_end_with, args=(descriptor,), daemon=True).start()
    with Connection(descriptor) as connection:
        work(connection, modules)


if __name__ == "__main__":
    main()
