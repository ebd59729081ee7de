"""How attention with many queries is divided on matrix units: queries among teams of 128 threads, keys into blocks."""

from dataclasses import dataclass
from math import prod

from openinfer.dtypes import DTYPES
from openinfer.loops.affine import affine, position
from openinfer.loops.dim import is_multiple, is_symbolic, span
from openinfer.loops.ir import Attend, Axis, Element, For
from openinfer.loops.rewrite import Statements
from openinfer.loops.tile_steps import TILE_BYTES, TILE_ROWS, TILE_THREADS
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.threads import int_extent, nest

_F32 = DTYPES["f32"]
_KINDS = frozenset({"bf16"})
"""Elements whose products units add up in f32, and two of which are nearly an f32."""
PIECE = 16
"""Bytes per copy."""
STAGES = 2
"""Blocks of keys and values in shared memory: one that is used, and one that is on its way."""
_KEYS = 64
"""Keys per block."""
_STEP = 16
"""Keys and columns that units multiply at once."""
_SIZES = ((2, 1), (1, 2), (1, 1))
"""Teams and shares of a group: the fewer groups there are, the more threads work on a query."""
_MOST_COLUMNS = 128
"""Means of a query: each thread keeps a quarter of those of two queries in registers."""


@dataclass(frozen=True)
class TilePlan:
    """An attention, and the sizes of its blocks."""

    one: Attend
    loops: tuple[For, ...]
    """The loops over heads of keys."""
    machine: SimtMachine
    teams: int
    """How often 64 queries."""
    shares: int
    """How many teams have the same queries, each with a share of the keys."""

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the loops over heads of keys."""
        return tuple(int_extent(one.extent) for one in self.loops)

    @property
    def threads(self) -> int:
        """Threads per group."""
        return self.teams * self.shares * TILE_THREADS

    @property
    def queries(self) -> int:
        """Queries per block."""
        return self.teams * TILE_ROWS

    @property
    def keys(self) -> int:
        """Keys of a share of a block."""
        return min(_KEYS, _rounded_up(span(self.one.key.extent)[1], _STEP))

    @property
    def block(self) -> int:
        """Keys per block."""
        return self.keys * self.shares

    @property
    def blocks(self) -> int:
        """Blocks of queries per head."""
        return -(-self.one.row.extent // self.queries)

    @property
    def groups(self) -> int:
        """Groups of the launch."""
        return prod(self.extents) * self.one.head.extent * self.blocks

    @property
    def deep(self) -> int:
        """Elements in a row of a tile."""
        return TILE_BYTES * 8 // self.one.keys.buffer.dtype.bits

    @property
    def depths(self) -> int:
        """Tiles that a query or a key takes."""
        return -(-self.one.depth.extent // self.deep)

    @property
    def widths(self) -> tuple[int, ...]:
        """The columns of each tile that a value takes."""
        columns = _rounded_up(self.one.column.extent, _STEP)
        return tuple(min(self.deep, columns - first) for first in range(0, columns, self.deep))

    @property
    def shared_bytes(self) -> int:
        """Shared memory per group."""
        rows = self.queries * self.depths + STAGES * self.block * (self.depths + len(self.widths))
        return rows * TILE_BYTES + 4 * prod(self.handed_on)

    @property
    def handed_on(self) -> tuple[int, int]:
        """Numbers that go from one share to the other: how many of each thread, and the threads."""
        count = 4 + sum(self.widths) // 2
        return (count, self.teams * TILE_THREADS) if self.shares > 1 else (0, 0)

    @property
    def has_work(self) -> bool:
        """Whether all units have a group; if it takes shares for that, whether there are enough keys for them."""
        if self.shares == 1:
            return self.groups >= self.machine.units
        return span(self.one.key.extent)[1] > 2 * _KEYS and self.groups < 2 * self.machine.units


def _rounded_up(count: int, step: int) -> int:
    return -(-count // step) * step


def tile_plan(body: Statements, machine: SimtMachine) -> TilePlan | None:
    """The plan for statements that are attention which suits matrix units; None if they are something else."""
    loops = tuple(nest(body[0])) if len(body) == 1 else ()
    inner = loops[-1].body if loops else body
    if not machine.has_matrix_units or len(inner) != 1 or not isinstance(inner[0], Attend):
        return None
    one = inner[0]
    known = (*(int_extent(each.extent) for each in loops), *(each.extent for each in _static(one)))
    if any(map(is_symbolic, known)) or 0 in known or one.row.extent < machine.least_block:
        return None
    if not _is_for_units(one, machine) or span(one.key.extent)[1] < machine.least_block:
        return None
    found = [TilePlan(one, loops, machine, *sizes) for sizes in _SIZES]
    fitting = [each for each in found if each.shared_bytes <= machine.most_shared_bytes]
    fitting = [each for each in fitting if each.groups <= machine.most_groups]
    return next((each for each in fitting if each.has_work), fitting[-1] if fitting else None)


def _static(one: Attend) -> tuple[Axis, ...]:
    return one.head, one.depth, one.column


def _is_for_units(one: Attend, machine: SimtMachine) -> bool:
    """Whether units can multiply the elements of an attention, and copies bring them into tiles."""
    sides = ((one.queries, one.depth), (one.keys, one.depth), (one.values, one.column))
    kinds = {element.buffer.dtype.name for element, _ in sides}
    if len(kinds) > 1 or not kinds <= _KINDS or one.accumulator is not _F32:
        return False
    out = one.out.buffer.dtype
    if out.kind != "float" or out.bits > 16 or one.column.extent > _MOST_COLUMNS:
        return False
    return all(element.value is None and _has_pieces(element, along, machine) for element, along in sides)


def _has_pieces(element: Element, along: Axis, machine: SimtMachine) -> bool:
    """Whether every 16 bytes of a row are adjacent in memory, and aligned."""
    each = PIECE * 8 // element.buffer.dtype.bits
    found = position(element.buffer, element.index)
    last = affine(element.index[-1]) if element.index else None
    if found is None or last is None or element.buffer.name in machine.unaligned or along.extent % each:
        return False
    others = [found.first, *(step for name, step in found.strides.items() if name != along.index.name)]
    is_aligned = all(is_multiple(step, each) for step in others)
    return is_aligned and found.stride(along.index) == 1 and last.stride(along.index) == 1
