"""The schedule that is always right: outermost parallel loops become threads, all else is serial in each of them.

A statement at the top of a kernel that is a parallel loop is a launch of its own; statements between such loops are a
launch of one thread. Values that are cheap are computed again by every launch that uses them, all others are handed on
in memory. So a launch that relies on what an earlier one wrote, or checked, comes after it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import cast, index, unflat
from openinfer.loops.dim import is_symbolic, most_elements
from openinfer.loops.expand import expanded
from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Alloc,
    Bind,
    Buffer,
    Const,
    Contraction,
    For,
    Kernel,
    Let,
    Load,
    Local,
    LoopKind,
    Scalar,
    ScalarVar,
    SetLocal,
    Space,
    Statement,
    Store,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements, changed_statements, map_statements, renamed, straightened, variables_of
from openinfer.synth.targets.simt.launches import Launch, Launches
from openinfer.synth.targets.simt.machine import SimtMachine

_I64 = DTYPES["i64"]
THREAD = "thread"
"""The index of the loop over threads."""


def baseline(kernel: Kernel, machine: SimtMachine) -> Launches:
    """A kernel without structures as launches."""
    body = straightened(_without_contractions(kernel))
    given = (*kernel.inputs, *kernel.outputs)
    shared = tuple(one.buffer for one in body if isinstance(one, Alloc))
    taken = {one.name for one in (*given, *kernel.scratch)} | {var.name for var in variables_of(body)}
    segments = _handed_on([*_segments([one for one in body if not isinstance(one, Alloc)])], taken)
    found: list[Launch] = []
    scratch = [*shared, *(buffer for one in segments for buffer in one.kept)]
    can_fail = False
    for number, segment in enumerate(segments):
        threads = _Threads(segment, machine, _free_name(THREAD, taken), f"own{number}_")
        scratch += threads.memory
        memory = {one.name: one for one in (*given, *scratch)}
        name = kernel.name if len(segments) == 1 else f"{kernel.name}_{number + 1}"
        made = _kernel(replace(kernel, name=name), threads.body, memory)
        found.append(Launch(made, threads.count, can_fail))
        can_fail = can_fail or made.can_fail
    return Launches(kernel, tuple(found), tuple(dict.fromkeys(scratch)))


def _without_contractions(kernel: Kernel) -> Statements:
    """Contractions as loops; each has a name of its own for its sum, so that two may stand in one scope."""
    taken = {var.name for var in variables_of(kernel.body)}
    taken |= {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}

    def own(statement: Statement) -> Statements:
        if not isinstance(statement, Contraction):
            return (statement,)
        name = _free_name(ACCUMULATOR, taken)
        taken.add(name)
        return renamed(expanded(statement), {ACCUMULATOR: ScalarVar(name, statement.accumulator)})

    return map_statements(kernel.body, own)


def _free_name(hint: str, taken: Iterable[str]) -> str:
    known, name, number = set(taken), hint, 1
    while name in known:
        number += 1
        name = f"{hint}{number}"
    return name


# --- segments: what one launch does -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Segment:
    body: Statements
    is_parallel: bool
    kept: tuple[Buffer, ...] = ()
    """Memory in which it leaves values for later ones."""


def _is_threads(statement: Statement) -> bool:
    """Whether iterations can be threads: how many there are must be known without running code on the device."""
    return isinstance(statement, For) and statement.kind is LoopKind.PARALLEL and isinstance(statement.extent, Const)


def _segments(body: Sequence[Statement]) -> Iterator[_Segment]:
    serial: list[Statement] = []
    for statement in body:
        if not _is_threads(statement):
            serial.append(statement)
            continue
        if serial:
            yield _Segment(tuple(serial), is_parallel=False)
            serial = []
        yield _Segment((statement,), is_parallel=True)
    if serial:
        yield _Segment(tuple(serial), is_parallel=False)


def _handed_on(segments: Sequence[_Segment], taken: set[str]) -> list[_Segment]:
    """Segments that have all they use: cheap values computed again, others left in memory by those before."""
    cheap = _cheap(segments)
    kept: dict[ScalarVar, Buffer] = {}
    found: list[_Segment] = []
    for place, segment in enumerate(segments):
        body = tuple(one for one in segment.body if not (isinstance(one, Let) and one.var in cheap))
        later = set[ScalarVar]().union(*(_used(cheap, one.body) for one in segments[place + 1 :]))
        before = tuple(_prologue(_used(cheap, body), cheap, kept, _assigned(body)))
        left = _left(body, later, kept, taken)
        after = [Store(buffer, (), _in_memory(var)) for var, buffer in left.items()]
        if not body:
            continue
        kept |= left
        found.append(replace(segment, body=(*before, *body, *after), kept=tuple(left.values())))
    return found


def _cheap(segments: Sequence[_Segment]) -> dict[ScalarVar, Let]:
    """Values that any launch may compute for itself: without loops, of memory that stays as it is, of such values."""
    everything = tuple(one for segment in segments for one in segment.body)
    written = {one.buffer for one in walk(everything) if isinstance(one, Store)}
    assigned = _assigned(everything) | {one.var for one in everything if isinstance(one, Local)}
    found: dict[ScalarVar, Let] = {}
    tops = {var for one in everything for var in ([one.var] if isinstance(one, Let | Local) else [])}
    for one in everything:
        if not isinstance(one, Let):
            continue
        parts = [*visit(one.value)]
        stays = not any(isinstance(part, Load) and part.buffer in written for part in parts)
        if stays and not any(part in assigned or (part in tops and part not in found) for part in parts):
            found[one.var] = one
    return found


def _assigned(body: Statements) -> set[Scalar]:
    return {one.var for one in walk(body) if isinstance(one, SetLocal)}


def _used(cheap: Mapping[ScalarVar, Let], body: Statements) -> set[ScalarVar]:
    """The variables that statements use, and those of which cheap ones are computed."""
    open_ones = [part for one in walk(body) for value in scalars(one) for part in visit(value)]
    open_ones += _assigned(body)
    found: set[ScalarVar] = set()
    while open_ones:
        part = open_ones.pop()
        if isinstance(part, ScalarVar) and part not in found:
            found.add(part)
            if part in cheap:
                open_ones += visit(cheap[part].value)
    return found


def _prologue(
    used: set[ScalarVar], cheap: Mapping[ScalarVar, Let], kept: Mapping[ScalarVar, Buffer], assigned: set[Scalar]
) -> Iterator[Statement]:
    for var, buffer in kept.items():
        if var in used:
            value = cast(Load(buffer, ()), var.dtype)
            yield Local(var, value) if var in assigned else Let(var, value)
    yield from (let for var, let in cheap.items() if var in used)


def _left(
    body: Statements, later: set[ScalarVar], kept: Mapping[ScalarVar, Buffer], taken: set[str]
) -> dict[ScalarVar, Buffer]:
    """The variables that statements define or change and later ones use, and where they are left."""
    defined = [one.var for one in body if isinstance(one, Let | Local)]
    changed = [var for var in kept if var in _assigned(body)]
    found: dict[ScalarVar, Buffer] = {}
    for var in (*defined, *changed):
        if var in later:
            name = _free_name(f"kept_{var.name}", taken)
            found[var] = kept.get(var) or Buffer(name, _memory_type(var.dtype), (), Space.SCRATCH)
            taken.add(found[var].name)
    return found


def _memory_type(dtype: DType) -> DType:
    return _I64 if dtype is INDEX else dtype


def _in_memory(var: ScalarVar) -> Scalar:
    return cast(var, _memory_type(var.dtype))


# --- threads ----------------------------------------------------------------------------------------------------------


class _Threads:
    """A segment as a loop over threads."""

    def __init__(self, segment: _Segment, machine: SimtMachine, name: str, prefix: str) -> None:
        self._machine = machine
        self._thread = ScalarVar(name)
        self._prefix = prefix
        self.memory: list[Buffer] = []
        """What threads have for themselves, in memory."""
        *before, last = segment.body
        loops = tuple(_nest(last)) if segment.is_parallel else ()
        inner = loops[-1].body if loops else segment.body
        total: int = 1
        for one in loops:
            assert isinstance(one.extent, Const)
            total = total * int_extent(one.extent)
        self.count = total
        indices = tuple(one.index for one in loops)
        extents = tuple(int_extent(one.extent) for one in loops)
        # What comes before a parallel loop is computed by every thread.
        self.body = self._threads(tuple(before) if loops else (), indices, extents, inner)

    def _threads(
        self, before: Statements, indices: Sequence[ScalarVar], extents: Sequence[int], inner: Statements
    ) -> Statements:
        private = [one.buffer for one in walk((*before, *inner)) if isinstance(one, Alloc)]
        large = [one for one in private if not self._is_kept(one)]
        limit = self._machine.in_flight if large else self._machine.most_threads
        total, most = self.count, most_elements((self.count,))
        if most <= limit:
            lets = _lets(indices, unflat(self._thread, extents))
            body: Statements = (*before, *lets, *inner)
        else:
            self.count, turn, flat = limit, ScalarVar(f"{self._thread.name}_turn"), ScalarVar(f"{self._thread.name}_at")
            turns = (index(total) - self._thread + (limit - 1)) // limit
            lets = (Let(flat, turn * limit + self._thread), *_lets(indices, unflat(flat, extents)))
            body = (*before, For(turn, turns, (*lets, *inner)))
        body = self._with_memory(body, private, large, min(most, limit))
        return (For(self._thread, index(self.count), body, LoopKind.PARALLEL, Bind.THREAD),)

    def _is_kept(self, buffer: Buffer) -> bool:
        """Whether a thread keeps memory in registers: elements that share a word would be changed by atomics."""
        is_small = most_elements(buffer.shape) <= self._machine.own_elements and not any(map(is_symbolic, buffer.shape))
        return is_small and not buffer.dtype.is_packed

    def _with_memory(
        self, body: Statements, private: Sequence[Buffer], large: Sequence[Buffer], threads: int
    ) -> Statements:
        """A thread's memory where it lies: in registers, or in a row of memory that all threads share."""
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
    """The extent of a loop of threads: a number, or a ``Dim``."""
    assert isinstance(extent, Const)
    assert isinstance(extent.value, int)
    return extent.value


def _nest(loop: Statement) -> Iterator[For]:
    """Parallel loops with nothing between them, the outermost first."""
    while isinstance(loop, For) and _is_threads(loop):
        yield loop
        if len(loop.body) != 1:
            return
        loop = loop.body[0]


def _lets(indices: Sequence[ScalarVar], places: Sequence[Scalar]) -> Statements:
    return tuple(Let(var, place) for var, place in zip(indices, places, strict=True))


def _kernel(kernel: Kernel, body: Statements, memory: Mapping[str, Buffer]) -> Kernel:
    """A launch as a kernel: what it writes are its outputs, what it only reads are its inputs."""
    written = {one.buffer.name for one in walk(body) if isinstance(one, Store) and one.buffer.space is not Space.OWN}
    values = (part for one in walk(body) for value in scalars(one) for part in visit(value))
    read = {part.buffer.name for part in values if isinstance(part, Load) and part.buffer.space is not Space.OWN}
    outputs = tuple(one for name, one in memory.items() if name in written)
    inputs = tuple(one for name, one in memory.items() if name in read - written)
    return replace(kernel, inputs=inputs, outputs=outputs, body=body)
