"""How the threads of a device divide attention of few queries: groups, subgroups, and accesses of each thread."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from openinfer.dtypes import DTYPES
from openinfer.loops.build import cast
from openinfer.loops.dim import is_symbolic, span
from openinfer.loops.ir import Attend, Axis, Element, For, Scalar, ScalarVar, SetLocal, Statement
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.threads import int_extent, nest
from openinfer.synth.targets.simt.wide import WideLoop

_F32 = DTYPES["f32"]
_MOST_QUERIES = 8
_MOST_PARTS = 64
_MOST_ACCESSES = 8
"""Of a thread for its columns of a value, which it has the means of in registers, for each query."""
_THREADS = 512
"""Threads of a group, where the device allows as many: then a block of keys is loaded by one access of each."""


@dataclass(frozen=True)
class AttentionPlan:
    """An attention that has this form, and how its threads divide it."""

    one: Attend
    loops: tuple[For, ...]
    """Those over heads of keys."""
    depth: int
    """Elements of a key in an access."""
    width: int
    """Elements of a value in an access."""
    parts: int
    machine: SimtMachine
    """With as many threads of a group as this form has."""

    @property
    def lanes(self) -> int:
        """Threads that load a value together: neighbours in a subgroup, as many as there are accesses, if they fit."""
        return min(self.machine.subgroup, self.one.column.extent // self.width)

    @property
    def accesses(self) -> int:
        """Accesses of a thread for its columns of a value."""
        return self.one.column.extent // (self.lanes * self.width)

    @property
    def keys(self) -> int:
        """Keys whose values a subgroup loads at once."""
        return self.machine.subgroup // self.lanes

    @property
    def team(self) -> int:
        """Threads that load a key together."""
        chunks = self.one.depth.extent // self.depth
        return min(self.machine.subgroup, chunks & -chunks)

    @property
    def block(self) -> int:
        """Keys of a block: as many as a group loads at once, or a few times that."""
        values = self.machine.group // self.machine.subgroup * self.keys
        return values * -(-self.machine.group // self.team // values)

    @property
    def shared_bytes(self) -> int:
        """Memory that the threads of a group share."""
        subgroups = self.machine.group // self.machine.subgroup
        return 4 * self.queries * (self.block + 2 + subgroups * self.one.column.extent)

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the loops over heads of keys."""
        return tuple(int_extent(one.extent) for one in self.loops)

    @property
    def queries(self) -> int:
        """That share a head of keys."""
        return self.one.head.extent * self.one.row.extent


def attention_plan(whole: Statement, machine: SimtMachine) -> AttentionPlan | None:
    """How a statement that is attention of few queries is divided; None if it is something else, or does not fit."""
    if not machine.subgroup:
        return None
    loops = tuple(nest(whole))
    body = loops[-1].body if loops else (whole,)
    if len(body) != 1 or not isinstance(body[0], Attend):
        return None
    one, extents = body[0], [int_extent(each.extent) for each in loops]
    known = (*extents, one.head.extent, one.row.extent, one.depth.extent, one.column.extent)
    if one.accumulator is not _F32 or any(map(is_symbolic, known)) or one.values.value is not None:
        return None
    queries = one.head.extent * one.row.extent
    depth, width = (access_width(element.scalar, axis.index, axis.extent, machine) for element, axis in _sides(one))
    accesses, most = one.column.extent // width, span(one.key.extent)[1]
    if not 0 < queries <= _MOST_QUERIES or prod(extents) == 0 or most == 0:
        return None
    if depth == 1 or width == 1 or accesses & (accesses - 1):
        return None
    plan = _fitting(AttentionPlan(one, loops, depth, width, 1, machine))
    if plan is None or plan.accesses > _MOST_ACCESSES:
        return None
    parts = max(1, min(machine.units // prod(extents), -(-most // plan.block), _MOST_PARTS))
    return replace(plan, parts=parts) if prod(extents) * parts <= machine.most_groups else None


def _fitting(plan: AttentionPlan) -> AttentionPlan | None:
    """With the largest group whose memory a device has: each query needs a subgroup of it."""
    machine = plan.machine
    group = min(_THREADS, max(machine.group, machine.largest_group))
    while group >= plan.queries * machine.subgroup:
        found = replace(plan, machine=replace(machine, group=group))
        if found.shared_bytes <= machine.shared_bytes:
            return found
        group //= 2
    return None


def _sides(one: Attend) -> Iterator[tuple[Element, Axis]]:
    yield one.keys, one.depth
    yield one.values, one.column


def access_width(value: Scalar, along: ScalarVar, extent: int, machine: SimtMachine) -> int:
    """Elements of a value in an access along an index."""
    total = ScalarVar(" total", _F32)
    return WideLoop(along, (SetLocal(total, total + cast(value, _F32)),), machine.unaligned).width(extent)
