"""Rows that begin anywhere in memory, as chunks that are aligned there and the few elements before and after them.

If the length of a row is odd, the next one begins between two words. Threads could load only single elements of chunks
that begin where the row does. So chunks begin at multiples of their size in memory: where the first one is in the row
depends on the row, but how many there are does not, nor how many elements are left over.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from openinfer.loops.affine import Affine, position
from openinfer.loops.build import select
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Let, Scalar, ScalarVar, SetLocal
from openinfer.loops.rewrite import Statements, changed_statements
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.row_loops import RowItem, RowLoop, accesses
from openinfer.synth.targets.simt.wide import FreshNames, WideLoop

_WIDTHS = (16, 8, 4, 2)
_NARROW_BITS = 32
"""Rows whose aligned accesses have no more bits than that gain by others."""
_LEAST_CHUNKS = 8
"""Chunks of a row from which its other elements take little time beside them."""


@dataclass(frozen=True)
class AlignedRow:
    """Where the chunks of a row are."""

    begin: Affine
    """The position of the row in memory."""
    extent: int
    width: int
    """The elements of a chunk."""
    first: ScalarVar
    """The number of the first chunk, counted from the beginning of the memory."""

    @property
    def let(self) -> Let:
        """What sets ``first``."""
        return Let(self.first, (self.begin.scalar() + (self.width - 1)) // self.width)

    @property
    def chunks(self) -> int:
        """The chunks that are inside the row, wherever it begins."""
        common = gcd(self.width, *self.begin.strides.values())
        before = self.width - common + -self.begin.first % common
        return (self.extent - before) // self.width

    def split(self, one: RowLoop, names: FreshNames) -> RowLoop:
        """A loop over the elements of the chunks, beside one over the others."""
        (place,), inside = one.indices, self.chunks * self.width
        inner, outer = names.var(place.name), names.var(place.name)
        start = self.first * self.width - self.begin.scalar()
        # Written so that a position in memory is a multiple of the width: where the row begins cancels out.
        whole = _at(one, inner, inside, self.first * self.width + inner - self.begin.scalar())
        after = _at(one, outer, self.extent - inside, select(outer < start, outer, outer + inside))
        return replace(whole, edge=after)


def _at(one: RowLoop, var: ScalarVar, extent: int, place: Scalar) -> RowLoop:
    """A loop over some of the elements."""
    known: dict[Scalar, Scalar] = {one.indices[0]: place}
    body = changed_statements(one.body, known.get)
    updates = {each.var: each for each in body if isinstance(each, SetLocal)}
    found = tuple(replace(each, update=updates[each.var]) for each in one.reductions)
    return replace(one, indices=(var,), extents=(extent,), body=body, reductions=found)


def with_aligned_chunks(
    items: Sequence[RowItem], indices: Sequence[ScalarVar], machine: SimtMachine, names: FreshNames
) -> tuple[Statements, list[RowItem]]:
    """The items of a row, whose loops have aligned chunks if they gain by it, and what has to be known before them."""
    loops = [one for one in items if isinstance(one, RowLoop)]
    lets: list[Let] = []
    known: dict[tuple[Scalar, ...], AlignedRow] = {}
    taken = {one.shape for one in loops}
    for shape in dict.fromkeys(one.shape for one in loops):
        same = [one for one in loops if one.shape == shape]
        found = _aligned(same, {one.name for one in indices}, machine, names)
        own = set() if found is None else set(_shapes(found.split(same[0], FreshNames(set()))))
        # What stays in registers is known by the extents of its loops.
        if found is not None and not taken & own:
            known[shape] = found
            lets.append(found.let)
            taken |= own
    made = [
        known[one.shape].split(one, names) if isinstance(one, RowLoop) and one.shape in known else one for one in items
    ]
    return tuple(lets), made


def _shapes(one: RowLoop) -> Iterator[tuple[Scalar, ...]]:
    yield one.shape
    if one.edge is not None:
        yield one.edge.shape


def _aligned(loops: Sequence[RowLoop], indices: set[str], machine: SimtMachine, names: FreshNames) -> AlignedRow | None:
    """The chunks of loops of one shape; None if those that begin where the row does are as good."""
    one = loops[0]
    if len(one.extents) > 1 or is_symbolic(one.extents[0]) or any(each.scales for each in loops):
        return None
    (extent,) = one.extents
    found = [each for loop in loops for each in _contiguous(loop)]
    if not found or extent < _LEAST_CHUNKS * 2:
        return None
    usual = min(WideLoop(each.indices[-1], each.body, machine.unaligned).width(extent) for each in loops)
    if usual * min(bits for _, bits in found) > _NARROW_BITS:
        return None
    for width in _WIDTHS:
        begin = _most_common([where for where, _ in found], width)
        if begin.strides.keys() - indices or any(map(is_symbolic, (begin.first, *begin.strides.values()))):
            return None
        made = AlignedRow(begin, extent, width, ScalarVar(" first"))
        if made.chunks > 0 and _has_width(made, loops, machine):
            is_better = width > usual and made.chunks >= _LEAST_CHUNKS
            return replace(made, first=names.var("first")) if is_better else None
    return None


def _has_width(row: AlignedRow, loops: Sequence[RowLoop], machine: SimtMachine) -> bool:
    """Whether loops over such chunks access each of them at once."""
    split = [row.split(one, FreshNames(set())) for one in loops]
    widths = (WideLoop(one.indices[-1], one.body, machine.unaligned).width(one.extents[-1]) for one in split)
    return all(found == row.width for found in widths)


def _contiguous(one: RowLoop) -> Iterator[tuple[Affine, int]]:
    """Where the elements of a row begin that are contiguous in memory, and the bits of one."""
    (var,) = one.indices
    for buffer, where in accesses(one):
        found = position(buffer, where)
        if found is not None and found.stride(var) == 1 and not is_symbolic(found.stride(var)):
            rest = {name: step for name, step in found.strides.items() if name != var.name}
            yield Affine(found.first, rest), buffer.dtype.bits


def _most_common(found: Sequence[Affine], width: int) -> Affine:
    """The beginning that most accesses have, up to whole chunks."""

    def key(one: Affine) -> tuple[object, ...]:
        steps = sorted((name, step % width) for name, step in one.strides.items() if not is_symbolic(step))
        return one.first % width, *(each for each in steps if each[1])

    counts = Counter(map(key, found))
    return max(found, key=lambda one: counts[key(one)])
