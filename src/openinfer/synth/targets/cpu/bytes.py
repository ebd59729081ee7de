"""Contractions of bytes in tiles: factors in groups of four, which one instruction multiplies and adds.

Rows are contiguous, each padded to whole groups; for each group, a panel has four bytes of every column. Weights are
stored this way, other factors are copied. If the instruction takes a u8 and an i8 but both factors have the same dtype,
the rows are flipped: ``(a + 128) * b`` is ``128 * b`` more than ``a * b``, and the sum of that is the same for all
rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from openinfer.dtypes import DType
from openinfer.loops.affine import Affine, position
from openinfer.loops.build import flat
from openinfer.loops.dim import is_same
from openinfer.loops.ir import INDEX, Buffer, Const, Contraction, Load, Scalar, Space
from openinfer.synth.program.packing import Packing
from openinfer.synth.targets.cpu.byte_products import FLIP, GROUP, flipped, groups
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cpu.packing import in_panels
from openinfer.synth.targets.cpu.product import FusedAxis, Product
from openinfer.synth.targets.cpu.tile import CpuTile, tile_of

_PAGE, _LINE = 4096, 64
"""Page stride (L1 set conflicts) and line size, in bytes."""


@dataclass(frozen=True)
class Grouped:
    """A contraction with its tile, its packed weights by the names of inputs, and its scratch memory."""

    contraction: Contraction
    packings: Mapping[str, Packing] = field(default_factory=dict)
    panels: Mapping[str, Buffer] = field(default_factory=dict)
    scratch: tuple[Buffer, ...] = ()

    @property
    def tile(self) -> CpuTile:
        """The tile of the contraction."""
        tile = tile_of(self.contraction)
        assert tile is not None
        return tile

    def with_tile(self, tile: CpuTile, *memory: Buffer) -> "Grouped":
        """The same with another tile and additional memory."""
        return replace(self, contraction=replace(self.contraction, template=tile), scratch=(*self.scratch, *memory))


def grouped(
    one: Contraction,
    product: Product,
    tile: CpuTile,
    target: CpuMachine,
    is_packable: Callable[[Buffer], bool],
    taken: int,
) -> Grouped:
    """The contraction in tiles of that size; ``taken`` counts the scratch buffers that already have names."""
    is_flipped = target.dot and len({value.dtype for value in one.factors}) == 1
    found = Grouped(replace(one, template=replace(tile, is_flipped=is_flipped)))
    if is_packable(product.right.buffer):
        found = _with_panels(found, product)
    else:
        found = _with_copied_panel(found, product, taken)
    if is_packable(product.left.buffer):
        return _with_packed_rows(found, product)
    return _with_copied_rows(found, product, target, taken + len(found.scratch))


def reads_along(one: Contraction, product: Product) -> bool:
    """Whether the factor with the columns is contiguous along the sum, and all terms are valid."""
    place = _place(one, product.right.buffer)
    last = product.inner.last
    return one.valid is None and place is not None and last is not None and is_same(place.stride(last), 1)


def _place(one: Contraction, buffer: Buffer) -> Affine | None:
    return position(buffer, one.index_of(buffer))


# --- weights ----------------------------------------------------------------------------------------------------------


def _with_panels(found: Grouped, product: Product) -> Grouped:
    one, buffer, width = found.contraction, product.right.buffer, found.tile.columns
    place = _place(one, buffer)
    assert place is not None
    outside = product.outside.used_by(place)
    packing = in_panels(
        place.first,
        outside.strides(place),
        product.inner.strides(place),
        product.columns.strides(place),
        width,
        group=GROUP,
    )
    column, depth = (flat(axis.vars, axis.extents) for axis in (product.columns, product.inner))
    group, whole = Const(GROUP, INDEX), Const(width, INDEX)
    where = (*outside.vars, column // whole, depth // group, column % whole * group + depth % group)
    return _packed(found, buffer, packing, where).with_tile(replace(found.tile, has_panels=True))


def _with_packed_rows(found: Grouped, product: Product) -> Grouped:
    one, buffer = found.contraction, product.left.buffer
    place = _place(one, buffer)
    assert place is not None
    outside = product.outside.used_by(place)
    lead = FusedAxis((*outside.vars, *product.rows.vars), (*outside.extents, *product.rows.extents))
    rows = in_panels(place.first, lead.strides(place), (), product.inner.strides(place), _stride(product.inner))
    words = "in rows padded to groups of four" + ", with the top bit of each byte flipped" * found.tile.is_flipped
    packing = replace(rows, flip=found.tile.is_flipped, words=words)
    zero = Const(0, INDEX)
    where = (*lead.vars, zero, zero, flat(product.inner.vars, product.inner.extents))
    return _packed(found, buffer, packing, where)


def _packed(found: Grouped, buffer: Buffer, packing: Packing, where: tuple[Scalar, ...]) -> Grouped:
    """The contraction with a packed factor: its elements are elsewhere, and may be flipped."""
    one = found.contraction
    panels = Buffer(buffer.name, buffer.dtype, packing.shape, buffer.space)
    element = Load(panels, where)
    value = element ^ Const(FLIP if buffer.dtype.name == "u8" else -FLIP, buffer.dtype) if packing.flip else None
    return replace(
        found,
        contraction=one.with_factor(buffer, panels, where, value),
        packings={**found.packings, buffer.name: packing},
        panels={**found.panels, buffer.name: panels},
    )


# --- copies -----------------------------------------------------------------------------------------------------------


def _with_copied_panel(found: Grouped, product: Product, taken: int) -> Grouped:
    """Memory for a panel and, unless columns are copied one by one, for its rows before they are grouped."""
    one, tile = found.contraction, found.tile
    dtype, count = _dtype(one, product.right.buffer), groups(product.inner.extent)
    right = Buffer(f"pack{taken}", dtype, (count, tile.columns * GROUP), Space.SCRATCH)
    if reads_along(one, product):
        return found.with_tile(replace(tile, right=right), right)
    lines = Buffer(f"pack{taken + 1}", dtype, (count * GROUP, tile.columns), Space.SCRATCH)
    return found.with_tile(replace(tile, right=right, lines=lines), right, lines)


def _with_copied_rows(found: Grouped, product: Product, target: CpuMachine, taken: int) -> Grouped:
    """Memory for rows: for all of them, or for as many as fit in half of the L2 cache."""
    tile, dtype = found.tile, _dtype(found.contraction, product.left.buffer)
    length = _stride(product.inner)
    tiles = max(1, min(target.l2 // 2 // length // tile.rows, -(-int(product.rows.extent) // tile.rows)))
    block = tiles * tile.rows
    left = Buffer(f"pack{taken}", flipped(dtype) if tile.is_flipped else dtype, (block, length), Space.SCRATCH)
    return found.with_tile(replace(tile, left=left, block=block), left)


def _stride(inner: FusedAxis) -> int:
    """The bytes of a row: whole groups, padded if rows would evict each other from the L1 cache."""
    length = groups(inner.extent) * GROUP
    return length + _LINE if length % _PAGE == 0 else length


def _dtype(one: Contraction, buffer: Buffer) -> DType:
    """The type of a factor, i8 or u8."""
    return one.factors[0 if buffer == one.a else 1].dtype
