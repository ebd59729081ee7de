"""How attention with few queries is divided: into groups, subgroups, and the accesses of each thread."""

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
"""Accesses of a thread per value: it keeps the means of these columns in registers, for each query."""
_THREADS = 512
"""Threads per group, if the device allows that many: then one access of each loads a block of keys."""


@dataclass(frozen=True)
class AttentionPlan:
    """An attention in this form, and how it is divided among threads."""

    one: Attend
    loops: tuple[For, ...]
    """The loops over heads of keys."""
    depth: int
    """Elements of a key per access."""
    width: int
    """Elements of a value per access."""
    parts: int
    machine: SimtMachine
    """With the group size of this form."""

    @property
    def lanes(self) -> int:
        """Adjacent threads that load a value together: one per access, if a subgroup has that many."""
        return min(self.machine.subgroup, self.one.column.extent // self.width)

    @property
    def accesses(self) -> int:
        """Accesses of a thread per value."""
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
        """Keys per block: as many as a group loads at once, or a small multiple."""
        values = self.machine.group // self.machine.subgroup * self.keys
        return values * -(-self.machine.group // self.team // values)

    @property
    def shared_bytes(self) -> int:
        """Shared memory per group."""
        subgroups = self.machine.group // self.machine.subgroup
        return 4 * self.queries * (self.block + 2 + subgroups * self.one.column.extent)

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the loops over heads of keys."""
        return tuple(int_extent(one.extent) for one in self.loops)

    @property
    def queries(self) -> int:
        """The number of queries that share a head of keys."""
        return self.one.head.extent * self.one.row.extent


def attention_plan(whole: Statement, machine: SimtMachine) -> AttentionPlan | None:
    """The plan for a statement that is attention with few queries; None if it is something else, or does not fit."""
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
    """The plan with the largest group whose shared memory fits; each query needs a subgroup."""
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
    """Elements of a value per access along an index."""
    total = ScalarVar(" total", _F32)
    return WideLoop(along, (SetLocal(total, total + cast(value, _F32)),), machine.unaligned).width(extent)
