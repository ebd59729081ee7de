"""The memory that an instance of compiled code works in: this process's own, or a device's."""

import ctypes
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from openinfer.errors import Code, Diagnostic, ExecutionError, nearest
from openinfer.ops import Array
from openinfer.synth.run.library import Instance
from openinfer.synth.run.mapped_weights import mapped_weights
from openinfer.synth.run.table_memory import borrowed
from openinfer.synth.targets.project import RunnableProject


@dataclass(frozen=True)
class SharedMemory:
    """Memory that an instance is given instead of its own: read-only weights, and the state of another instance."""

    weights: Array | None = None
    state: Array | None = None


OWN_MEMORY = SharedMemory()
"""No shared memory."""


class WeightMemory(StrEnum):
    """Where the weights of a module are: in memory of its own, or in a memory-mapped file."""

    HELD = "held"
    MAPPED = "mapped"


def weight_memory(name: WeightMemory | str) -> WeightMemory:
    """The kind with this name."""
    try:
        return WeightMemory(name)
    except ValueError:
        message = f"weights are 'held' or 'mapped', not {name!r}"
        raise ExecutionError(Diagnostic(Code.BAD_PARAMETER, message, None, nearest(str(name), WeightMemory))) from None


def given_weights(project: RunnableProject, kind: WeightMemory) -> SharedMemory:
    """The weights that a new module shares, if it does not hold its own."""
    if kind is WeightMemory.HELD or not project.placed.weights.size:
        return OWN_MEMORY
    return SharedMemory(mapped_weights(project))


class _Asked:
    """Memory allocated by the code, and released when it is no longer referenced."""

    def __init__(self, instance: Instance, nbytes: int) -> None:
        ask, self._release = instance.function("memory"), instance.function("release")
        ask.restype, ask.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self._release.restype, self._release.argtypes = None, [ctypes.c_void_p]
        self.pointer: int | None = ask(nbytes)
        if self.pointer is None:
            raise no_memory(nbytes)

    def __del__(self) -> None:
        if getattr(self, "pointer", None) is not None:
            self._release(self.pointer)


def initialised(
    project: RunnableProject, instance: Instance, shared: SharedMemory = OWN_MEMORY
) -> tuple[Array, Array, Array]:
    """The arena, the state and the weights of an instance, which is initialized with them."""
    placed, nbytes = project.placed, project.placed.weights.size
    alignment, sizes = placed.rules.alignment, (placed.arena_bytes, placed.state_bytes)
    weights = _loaded(project) if shared.weights is None else shared.weights
    last = _address(weights), ctypes.c_size_t(nbytes)
    if not placed.rules.on_device:
        arena = _aligned(sizes[0], alignment)
        state = _aligned(sizes[1], alignment) if shared.state is None else shared.state
        first = (_address(arena), ctypes.c_size_t(sizes[0]), _address(state), ctypes.c_size_t(sizes[1]))
        instance.call("init", *first, *last)
        return arena, state, weights
    asked = [_Asked(instance, nbytes) if nbytes else None for nbytes in sizes]
    given = [None if one is None else ctypes.c_void_p(one.pointer) for one in asked]
    instance.call("init", given[0], ctypes.c_size_t(sizes[0]), given[1], ctypes.c_size_t(sizes[1]), *last)
    context = instance.context
    places = (context.arena, context.state)
    arena, state = (borrowed(at or 0, nbytes, own) for at, nbytes, own in zip(places, sizes, asked, strict=True))
    return arena, state, borrowed(context.weights or 0, nbytes)


def _loaded(project: RunnableProject) -> Array:
    """The weights of a project, copied to memory of their own."""
    blob = project.blob
    weights = _aligned(max(len(blob), 1), project.placed.rules.alignment)
    weights[: len(blob)] = np.frombuffer(blob, np.uint8)
    return weights


def no_memory(nbytes: int) -> ExecutionError:
    """The error for too little memory to run code in."""
    message = f"cannot allocate {nbytes:,} bytes to run the code in"
    advice = "plan.facts()['memory'] says what fills the arena; reduce the sizes"
    return ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, message, None, advice))


def _aligned(nbytes: int, alignment: int) -> Array:
    """Zeroed memory that starts at a multiple of the alignment."""
    try:
        raw = np.zeros(nbytes + alignment, np.uint8)
    except (MemoryError, ValueError) as error:
        raise no_memory(nbytes) from error
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]


def _address(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
