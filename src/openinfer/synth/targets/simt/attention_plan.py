"""How attention is divided: with few queries into groups, subgroups and accesses; with many, the keys of a block."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from openinfer.dtypes import DTYPES
from openinfer.loops.affine import affine
from openinfer.loops.build import cast, index, pair
from openinfer.loops.dim import is_symbolic, span
from openinfer.loops.ir import Attend, Axis, Element, For, LoopKind, Scalar, ScalarVar, SetLocal, Statement, Store
from openinfer.loops.rewrite import replaced, variables_of
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.segments import free_name
from openinfer.synth.targets.simt.threads import int_extent, nest
from openinfer.synth.targets.simt.wide import WideLoop

_F32 = DTYPES["f32"]
_MOST_QUERIES = 8
_MOST_PARTS = 64
_MOST_ACCESSES = 8
"""Accesses of a thread per value: it keeps the means of these columns in registers, for each query."""
_LEAST_PARTS = 4
"""Parts of the keys at least, if there are units for them."""
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
    turns: int = 1
    """Accesses of a thread to the keys of a block."""

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
        return self.turns * values * -(-self.machine.group // self.team // values)

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
    plan = _with_fewer_queries(plan, {var.name for var in variables_of((whole,))})
    count = prod(plan.extents)
    parts = max(1, min(machine.units // count, -(-most // plan.block), _MOST_PARTS))
    return replace(plan, parts=parts) if count * parts <= machine.most_groups else None


def _with_fewer_queries(plan: AttentionPlan, taken: set[str]) -> AttentionPlan:
    """The plan with fewer of the queries that share keys in a group, as long as units are left to have the others.

    Each group of the product that follows reads the means of all parts, and there are fewer then.
    """
    one, machine = plan.one, plan.machine
    count, most = prod(plan.extents), span(one.key.extent)[1]
    split = 1
    while (
        one.head.extent % (2 * split) == 0
        and machine.units // (2 * split * count) >= _LEAST_PARTS
        and -(-most // (2 * split * plan.block)) >= _LEAST_PARTS
    ):
        split *= 2
    if split == 1:
        return plan
    inside = one.head.extent // split
    outer = ScalarVar(free_name("heads", taken), one.head.index.dtype)
    known: dict[Scalar, Scalar] = {one.head.index: outer * inside + one.head.index}
    own = one.with_parts(lambda value: replaced(value, known))
    own = replace(own, head=replace(one.head, extent=inside))
    loop = For(outer, index(split), (own,), LoopKind.PARALLEL)
    return replace(plan, one=own, loops=(*plan.loops, loop), turns=split)


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


def seen_blocks(one: Attend, top: Scalar, queries: int, keys: int) -> tuple[Scalar, Scalar]:
    """The first block of keys that any query of a block sees, and the number of blocks from there to the last."""
    last = pair("min", top + (queries - 1), index(one.row.extent - 1))
    end, first = index(one.key.extent), index(0)
    if one.until is not None and rises(one, one.until):
        seen = replaced(one.until, {one.row.index: last}) + 1
        end = pair("max", pair("min", end, seen), index(0))
    if one.after is not None and rises(one, one.after):
        hidden = replaced(one.after, {one.row.index: top}) + 1
        first = pair("max", hidden, index(0)) // keys
    return first, pair("max", (end + (keys - 1)) // keys - first, index(0))


def rises(one: Attend, border: Scalar) -> bool:
    """Whether a bound is affine in the query index and does not decrease with it."""
    found = affine(border)
    return found is not None and set(found.strides) <= {one.row.index.name} and found.stride(one.row.index) >= 0


def sees(one: Attend, known: Mapping[Scalar, Scalar]) -> Scalar:
    """Whether a query sees a key, by all but its score."""
    key = known[one.key.index]
    test = key < index(one.key.extent)
    if one.until is not None:
        test = test & (key <= replaced(one.until, known))
    if one.after is not None:
        test = test & (replaced(one.after, known) < key)
    return test


def mean_stored(one: Attend, where: tuple[Scalar, Scalar, Scalar], mean: Scalar) -> Store:
    """Stores the mean of a head, a query and a column."""
    parts: dict[Scalar, Scalar] = dict(zip((one.head.index, one.row.index, one.column.index), where, strict=True))
    parts[one.total] = mean
    place = tuple(replaced(part, parts) for part in one.out.index)
    return Store(one.out.buffer, place, replaced(one.out.value, parts))
