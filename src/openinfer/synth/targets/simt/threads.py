"""A launch as a loop over threads, each of which runs one iteration, or several in a loop."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from openinfer.loops.build import index, unflat
from openinfer.loops.dim import is_symbolic, most_elements
from openinfer.loops.ir import (
    Alloc,
    Bind,
    Buffer,
    Const,
    For,
    GroupBarrier,
    Kernel,
    Let,
    Load,
    LoopKind,
    Scalar,
    ScalarVar,
    Space,
    Statement,
    Store,
    TileStep,
    WideLoad,
    WideStore,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements, changed_statements, map_statements
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.segments import LaunchPart, is_threads

THREAD = "thread"
"""The index of the loop over threads."""
_INSIDE = (Space.OWN, Space.GROUP)
"""Memory that is not passed to a launch."""


class ThreadLoop:
    """A segment as a loop over threads."""

    def __init__(self, segment: LaunchPart, machine: SimtMachine, name: str, prefix: str) -> None:
        self._machine = machine
        self._thread = ScalarVar(name)
        self._prefix = prefix
        self.memory: list[Buffer] = []
        """Private arrays of threads that live in memory."""
        *before, last = segment.body
        loops = tuple(nest(last)) if segment.is_parallel else ()
        inner = loops[-1].body if loops else segment.body
        total: int = 1
        for one in loops:
            assert isinstance(one.extent, Const)
            total = total * int_extent(one.extent)
        self.count = total
        indices = tuple(one.index for one in loops)
        extents = tuple(int_extent(one.extent) for one in loops)
        # Every thread computes what comes before a parallel loop.
        self.body = self._threads(tuple(before) if loops else (), indices, extents, inner)

    def _threads(
        self, before: Statements, indices: Sequence[ScalarVar], extents: Sequence[int], inner: Statements
    ) -> Statements:
        private = [one.buffer for one in walk((*before, *inner)) if isinstance(one, Alloc)]
        large = [one for one in private if not self._is_kept(one)]
        limit = self._machine.in_flight if large else self._machine.most_threads
        total, most = self.count, most_elements((self.count,))
        if most <= limit:
            lets = lets_of(indices, unflat(self._thread, extents))
            body: Statements = (*before, *lets, *inner)
        else:
            self.count, turn, flat = limit, ScalarVar(f"{self._thread.name}_turn"), ScalarVar(f"{self._thread.name}_at")
            turns = (index(total) - self._thread + (limit - 1)) // limit
            lets = (Let(flat, turn * limit + self._thread), *lets_of(indices, unflat(flat, extents)))
            body = (*before, For(turn, turns, (*lets, *inner)))
        body = self._with_memory(body, private, large, min(most, limit))
        return (For(self._thread, index(self.count), body, LoopKind.PARALLEL, Bind.THREAD),)

    def _is_kept(self, buffer: Buffer) -> bool:
        """Whether a private array lives in registers; packed elements cannot, as stores to them are atomic."""
        is_small = most_elements(buffer.shape) <= self._machine.own_elements and not any(map(is_symbolic, buffer.shape))
        return is_small and not buffer.dtype.is_packed

    def _with_memory(
        self, body: Statements, private: Sequence[Buffer], large: Sequence[Buffer], threads: int
    ) -> Statements:
        """Places private arrays: in registers, or in a row per thread of memory that all threads share."""
        own = {
            one: replace(one, name=f"{self._prefix}{one.name}", space=Space.OWN) for one in private if one not in large
        }
        rows = {
            one: replace(one, name=f"{self._prefix}{one.name}", shape=(threads, *one.shape), space=Space.SCRATCH)
            for one in large
        }
        self.memory = [*rows.values()]

        def place(buffer: Buffer, where: tuple[Scalar, ...]) -> tuple[Buffer, tuple[Scalar, ...]]:
            if buffer in rows:
                return rows[buffer], (self._thread, *where)
            return own.get(buffer, buffer), where

        def loaded(value: Scalar) -> Scalar | None:
            return Load(*place(value.buffer, value.index)) if isinstance(value, Load) else None

        def stored(one: Statement) -> Statements:
            match one:
                case Store(buffer, where, value):
                    return (Store(*place(buffer, where), value),)
                case Alloc(buffer):
                    return (Alloc(own[buffer]),) if buffer in own else ()
                case _:
                    return (one,)

        return changed_statements(map_statements(body, stored), loaded)


def int_extent(extent: Scalar) -> int:
    """The extent of a loop over threads: a number, or a ``Dim``."""
    assert isinstance(extent, Const)
    assert isinstance(extent.value, int)
    return extent.value


def nest(loop: Statement) -> Iterator[For]:
    """A perfect nest of parallel loops, the outermost first."""
    while isinstance(loop, For) and is_threads(loop):
        yield loop
        if len(loop.body) != 1:
            return
        loop = loop.body[0]


def lets_of(indices: Sequence[ScalarVar], places: Sequence[Scalar]) -> Statements:
    """Defines indices as positions along axes."""
    return tuple(Let(var, place) for var, place in zip(indices, places, strict=True))


def launch_kernel(kernel: Kernel, body: Statements, memory: Mapping[str, Buffer]) -> Kernel:
    """A launch as a kernel: buffers that it writes are outputs, buffers that it only reads are inputs."""
    stores = (one.buffer for one in walk(body) if isinstance(one, Store | WideStore))
    values = (part for one in walk(body) for value in scalars(one) for part in visit(value))
    loads = [part.buffer for part in values if isinstance(part, Load)]
    loads += [one.buffer for one in walk(body) if isinstance(one, WideLoad)]
    steps = [one for one in walk(body) if isinstance(one, TileStep)]
    loads += [one for step in steps for one in step.reads]
    written, read = ({one.name for one in found if one.space not in _INSIDE} for found in (stores, loads))
    outputs = tuple(one for name, one in memory.items() if name in written)
    inputs = tuple(one for name, one in memory.items() if name in read - written)
    if not read & written:
        # Threads communicate through shared memory only.
        body = map_statements(body, lambda one: (_within(one),))
    return replace(kernel, inputs=inputs, outputs=outputs, body=body)


def _within(one: Statement) -> Statement:
    return GroupBarrier(is_shared=True) if isinstance(one, GroupBarrier) else one
