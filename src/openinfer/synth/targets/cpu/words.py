"""Contractions of bytes on processors that multiply two pairs of values at a time: a Cortex-M.

``SMLAD`` multiplies two pairs of 16-bit values and adds both products. The weight factor stays in bytes, packed in
groups of four, which ``SXTB16`` unpacks into two pairs; the other factor is copied as 16-bit values in the order of the
pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from openinfer.dtypes import DTYPES
from openinfer.loops.affine import position
from openinfer.loops.build import flat
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import INDEX, Buffer, Const, Contraction, Space
from openinfer.synth.program.packing import Packing
from openinfer.synth.targets.cpu.byte_products import GROUP, groups
from openinfer.synth.targets.cpu.packing import crossed, in_panels
from openinfer.synth.targets.cpu.product import FusedAxis, Product
from openinfer.synth.targets.cpu.tile import CpuTile

_SQUARE = 2
"""Rows and columns of a tile: their accumulators and factors fill the registers."""
_COLUMNS = 4
"""Columns of a tile of one row."""


@dataclass(frozen=True)
class Worded:
    """A contraction in word tiles: the packing of its weight, and the memory for a copy of the other factor."""

    contraction: Contraction
    name: str
    packing: Packing
    panels: Buffer
    scratch: Buffer


def worded(one: Contraction, product: Product, is_packable: Callable[[Buffer], bool], taken: int) -> Worded | None:
    """The contraction in word tiles; None if no factor can be packed, or if copied values would be used only once."""
    depth = groups(product.inner.extent)
    if is_packable(product.right.buffer):
        is_one = not is_symbolic(product.rows.extent) and product.rows.extent < _SQUARE
        rows, columns = (1, _COLUMNS) if is_one else (_SQUARE, _SQUARE)
        tile = CpuTile(rows, columns, 1, block=rows, has_panels=True, widened="rows")
        wide = Buffer(f"pack{taken}", DTYPES["i16"], (rows, depth * GROUP), Space.SCRATCH)
        return _packed(one, product, replace(tile, left=wide), wide)
    if is_packable(product.left.buffer) and product.rows.extent >= _SQUARE:
        tile = CpuTile(_SQUARE, _SQUARE, 1, widened="columns")
        wide = Buffer(f"pack{taken}", DTYPES["i16"], (_SQUARE, depth * GROUP), Space.SCRATCH)
        return _packed(one, product, replace(tile, right=wide), wide)
    return None


def _packed(one: Contraction, product: Product, tile: CpuTile, wide: Buffer) -> Worded:
    """Packs the factor that is not widened in panels of its rows or columns, four products of each contiguous."""
    is_right = tile.widened == "rows"
    factor, axis, width = (
        (product.right, product.columns, tile.columns) if is_right else (product.left, product.rows, tile.rows)
    )
    place = position(factor.buffer, one.index_of(factor.buffer))
    assert place is not None
    outside: FusedAxis = product.outside.used_by(place)
    plain = in_panels(
        place.first,
        outside.strides(place),
        product.inner.strides(place),
        axis.strides(place),
        width,
        group=GROUP,
    )
    packing = crossed(plain)
    panels = Buffer(factor.buffer.name, factor.buffer.dtype, packing.shape, factor.buffer.space)
    member, depth = (flat(own.vars, own.extents) for own in (axis, product.inner))
    group, whole, two = (Const(number, INDEX) for number in (GROUP, width, 2))
    inside = member % whole * group + depth % two * two + depth % group // two
    where = (*outside.vars, member // whole, depth // group, inside)
    found = one.with_factor(factor.buffer, panels, where, None)
    return Worded(replace(found, template=tile), factor.buffer.name, packing, panels, wide)
