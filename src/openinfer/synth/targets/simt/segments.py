"""Splits a kernel into launches: what each of them does, and what it leaves in memory for later ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import cast
from openinfer.loops.ir import (
    INDEX,
    Buffer,
    Const,
    Contraction,
    For,
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
    Structure,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements

_I64 = DTYPES["i64"]


def free_name(hint: str, taken: Iterable[str]) -> str:
    """An unused name, based on ``hint``."""
    known, name, number = set(taken), hint, 1
    while name in known:
        number += 1
        name = f"{hint}{number}"
    return name


@dataclass(frozen=True)
class LaunchPart:
    """The statements of one launch."""

    body: Statements
    is_parallel: bool
    kept: tuple[Buffer, ...] = ()
    """Buffers in which it leaves values for later launches."""


def is_threads(statement: Statement) -> bool:
    """Whether iterations can be threads: their count must be known without running code on the device."""
    if isinstance(statement, Contraction | Structure):
        return True  # kept by the schedule
    return isinstance(statement, For) and statement.kind is LoopKind.PARALLEL and isinstance(statement.extent, Const)


def segments_of(body: Sequence[Statement]) -> Iterator[LaunchPart]:
    """Splits statements into launches: parallel loops, and what is between them."""
    serial: list[Statement] = []
    for statement in body:
        if not is_threads(statement):
            serial.append(statement)
            continue
        if serial:
            yield LaunchPart(tuple(serial), is_parallel=False)
            serial = []
        yield LaunchPart((statement,), is_parallel=True)
    if serial:
        yield LaunchPart(tuple(serial), is_parallel=False)


def handed_on(segments: Sequence[LaunchPart], taken: set[str]) -> list[LaunchPart]:
    """Makes segments self-contained: cheap values are recomputed, all others are passed through memory."""
    cheap = _cheap(segments)
    kept: dict[ScalarVar, Buffer] = {}
    found: list[LaunchPart] = []
    for place, segment in enumerate(segments):
        body = tuple(one for one in segment.body if not (isinstance(one, Let) and one.var in cheap))
        later = set[ScalarVar]().union(*(_used(cheap, one.body) for one in segments[place + 1 :]))
        before = tuple(_prologue(_used(cheap, body), cheap, kept, assigned_in(body)))
        left = _left(body, later, kept, taken)
        after = [Store(buffer, (), _in_memory(var)) for var, buffer in left.items()]
        if not body:
            continue
        kept |= left
        found.append(replace(segment, body=(*before, *body, *after), kept=tuple(left.values())))
    return found


def _cheap(segments: Sequence[LaunchPart]) -> dict[ScalarVar, Let]:
    """Values that any launch may recompute: loop-free, from memory that is never written and other such values."""
    everything = tuple(one for segment in segments for one in segment.body)
    written = {one.buffer for one in walk(everything) if isinstance(one, Store)}
    written |= {one.out for one in walk(everything) if isinstance(one, Contraction)}
    written |= {out.buffer for one in walk(everything) if isinstance(one, Structure) for out in one.results}
    assigned = assigned_in(everything) | {one.var for one in everything if isinstance(one, Local)}
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


def assigned_in(body: Statements) -> set[Scalar]:
    """The variables that statements reassign."""
    return {one.var for one in walk(body) if isinstance(one, SetLocal)}


def _used(cheap: Mapping[ScalarVar, Let], body: Statements) -> set[ScalarVar]:
    """The variables that statements use, including those that cheap values depend on."""
    open_ones = [part for one in walk(body) for value in scalars(one) for part in visit(value)]
    open_ones += assigned_in(body)
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
    """The variables that statements define or reassign for later ones, with the buffers that hold them."""
    defined = [one.var for one in body if isinstance(one, Let | Local)]
    changed = [var for var in kept if var in assigned_in(body)]
    found: dict[ScalarVar, Buffer] = {}
    for var in (*defined, *changed):
        if var in later:
            name = free_name(f"kept_{var.name}", taken)
            found[var] = kept.get(var) or Buffer(name, _memory_type(var.dtype), (), Space.SCRATCH)
            taken.add(found[var].name)
    return found


def _memory_type(dtype: DType) -> DType:
    return _I64 if dtype is INDEX else dtype


def _in_memory(var: ScalarVar) -> Scalar:
    return cast(var, _memory_type(var.dtype))
