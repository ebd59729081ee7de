"""Contractions as matrix products: which indices are rows, which are columns, and which run outside.

Columns are contiguous in the result: they are what vectors hold. Several indices fuse into one where they are
contiguous in every buffer that is read or written in place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from openinfer.loops.affine import Affine, position, variables
from openinfer.loops.build import cast
from openinfer.loops.dim import is_same
from openinfer.loops.ir import INDEX, Buffer, Const, Contraction, Load, Scalar, ScalarVar, Select, children
from openinfer.loops.rewrite import changed, changed_statements
from openinfer.synth.targets.cpu.tile import CpuTile


@dataclass(frozen=True)
class FusedAxis:
    """Indices fused into one, the last fastest; without any, the extent is 1."""

    vars: tuple[ScalarVar, ...]
    extents: tuple[int, ...]

    @property
    def extent(self) -> int:
        """The number of positions."""
        count = 1
        for extent in self.extents:
            count = extent * count
        return count

    @property
    def last(self) -> ScalarVar | None:
        """The fastest index."""
        return self.vars[-1] if self.vars else None

    def used_by(self, place: Affine) -> "FusedAxis":
        """The indices that a position depends on."""
        pairs = [(var, extent) for var, extent in zip(self.vars, self.extents, strict=True) if place.stride(var)]
        return FusedAxis(tuple(var for var, _ in pairs), tuple(extent for _, extent in pairs))

    def strides(self, place: Affine) -> tuple[tuple[int, int], ...]:
        """The extent of each index, and its stride in a position."""
        return tuple((extent, place.stride(var)) for var, extent in zip(self.vars, self.extents, strict=True))


@dataclass(frozen=True)
class Factor:
    """One side of the product: the value the sum takes, and its position if it can be read in place."""

    buffer: Buffer
    value: Scalar
    place: Affine | None

    def step(self, axis: FusedAxis) -> int:
        """The stride along an axis."""
        assert self.place is not None
        return self.place.stride(axis.last) if axis.last is not None else 0


@dataclass(frozen=True)
class Product:
    """``result[rows, columns] = sum of left[rows, inner] * right[inner, columns]``, for each outside index."""

    outside: FusedAxis
    rows: FusedAxis
    columns: FusedAxis
    inner: FusedAxis
    left: Factor
    right: Factor


def without_single(one: Contraction) -> Contraction:
    """The contraction without single-iteration indices."""
    gone = {
        var
        for var, extent in zip((*one.free, *one.bound), (*one.extents, *one.reduced), strict=True)
        if is_same(extent, 1)
    }
    if not gone:
        return one
    (found,) = changed_statements((one,), lambda value: Const(0, INDEX) if value in gone else None)
    assert isinstance(found, Contraction)
    free = [(var, extent) for var, extent in zip(one.free, one.extents, strict=True) if var not in gone]
    bound = [(var, extent) for var, extent in zip(one.bound, one.reduced, strict=True) if var not in gone]
    return replace(
        found,
        free=tuple(var for var, _ in free),
        extents=tuple(extent for _, extent in free),
        bound=tuple(var for var, _ in bound),
        reduced=tuple(extent for _, extent in bound),
    )


def product_of(one: Contraction, is_panels: Callable[[Buffer], bool]) -> Product | None:
    """The matrix product a contraction is, or None. Columns that are or can be in panels are not read in place."""
    return _ProductFinder(one, is_panels).run()


def transposed_product_of(one: Contraction) -> Product | None:
    """The product whose columns come from the second factor although its rows are contiguous in the result.

    The first factor is read in place; its inner indices need not fuse.
    """
    return _ProductFinder(one, lambda _: True).run_windows(0)


def window_product_of(one: Contraction) -> Product | None:
    """The product whose rows are windows on the first factor, read in place: inner indices need not fuse.

    Its columns, from the second factor, are contiguous in the result.
    """
    return _ProductFinder(one, lambda _: True).run_windows(1)


def tiled_product(one: Contraction, tile: CpuTile) -> Product:
    """The product of a tiled contraction."""
    if tile.has_windows:
        found = window_product_of(one)
    else:
        found = transposed_product_of(one) if tile.is_transposed else product_of(one, lambda _: tile.has_panels)
    assert found is not None
    return found


class _ProductFinder:
    def __init__(self, one: Contraction, is_panels: Callable[[Buffer], bool]) -> None:
        self._one = one
        self._is_panels = is_panels
        self._extents = dict(zip((*one.free, *one.bound), (*one.extents, *one.reduced), strict=True))
        self._names = [variables(factor) for factor in one.factors]

    def run(self) -> Product | None:
        one = self._one
        out = position(one.out, one.out_index)
        unit = [var for var in one.free if out is not None and is_same(out.stride(var), 1)]
        if out is None or len(unit) != 1 or self._side(unit[0]) is None:
            return None
        side = self._side(unit[0])
        assert side is not None
        maps = [out, *self._epilogue_maps()]
        valid = self._valid_side(side)
        if valid is None:
            return None
        right = self._factor(side, has_valid=valid == side)
        is_loose = right.place is not None and not is_same(right.place.stride(unit[0]), 1)
        if is_loose or self._is_panels(right.buffer):
            right = replace(right, place=None)
        left = self._factor(1 - side, has_valid=valid == 1 - side)
        columns = self._grown(unit[0], side, [*maps, *([right.place] if right.place is not None else [])])
        row_maps = [*maps, *([left.place] if left.place is not None else [])]
        rows = max(
            (self._grown(var, 1 - side, row_maps) for var in reversed(one.free) if self._side(var) == 1 - side),
            key=lambda axis: int(axis.extent),
            default=FusedAxis((), ()),
        )
        rest = [var for var in one.free if var not in rows.vars and var not in columns.vars]
        return Product(
            FusedAxis(tuple(rest), tuple(self._extents[var] for var in rest)),
            rows,
            columns,
            FusedAxis(one.bound, one.reduced),
            left,
            right,
        )

    def run_windows(self, contiguous: int) -> Product | None:
        """The product with rows on the first factor; the given factor has the index contiguous in the result."""
        one = self._one
        out, place = position(one.out, one.out_index), position(one.a, one.a_index)
        columns = [var for var in one.free if self._side(var) == 1]
        unit = [var for var in one.free if out is not None and is_same(out.stride(var), 1)]
        if place is None or len(columns) != 1 or len(unit) != 1 or self._side(unit[0]) != contiguous:
            return None
        maps = [out, place, *self._epilogue_maps()]
        last = unit if contiguous == 0 else [var for var in reversed(one.free) if self._side(var) == 0]
        rows = max((self._grown(var, 0, maps) for var in last), key=lambda axis: int(axis.extent), default=None)
        if rows is None:
            return None
        rest = [var for var in one.free if var not in rows.vars and var not in columns]
        left, right = (cast(factor, one.accumulator) for factor in one.factors)
        return Product(
            FusedAxis(tuple(rest), tuple(self._extents[var] for var in rest)),
            rows,
            FusedAxis((columns[0],), (self._extents[columns[0]],)),
            FusedAxis(one.bound, one.reduced),
            Factor(one.a, left, place),
            Factor(one.b, right, None),
        )

    def _side(self, var: ScalarVar) -> int | None:
        """The only factor that depends on a free index; None if both or neither do."""
        inside = [number for number in (0, 1) if var.name in self._names[number]]
        return inside[0] if len(inside) == 1 else None

    def _valid_side(self, columns: int) -> int | None:
        """The factor that becomes 0 where a term is invalid; -1 if all are valid, None if no factor can tell."""
        if self._one.valid is None:
            return -1
        used = variables(self._one.valid) & {var.name for var in self._extents}
        buffers = (self._one.a, self._one.b)
        sides = [side for side in (columns, 1 - columns) if used <= self._names[side]]
        sides = [side for side in sides if not (side == columns and self._is_panels(buffers[side]))]
        return sides[0] if sides else None

    def _factor(self, side: int, *, has_valid: bool) -> Factor:
        one = self._one
        buffer, own = (one.a, one.a_value) if side == 0 else (one.b, one.b_value)
        index = one.a_index if side == 0 else one.b_index
        value = cast(one.factors[side], one.accumulator)
        if has_valid:
            assert one.valid is not None
            value = Select(one.valid, value, Const(0, one.accumulator))
        place = position(buffer, index)
        is_plain = own is None and buffer.dtype is one.accumulator and not has_valid
        if not is_plain or place is None or not _is_one(place, one.bound, one.reduced):
            return Factor(buffer, value, None)
        return Factor(buffer, value, place)

    def _epilogue_maps(self) -> list[Affine | None]:
        """The positions the epilogue reads; an index used in any other way gets a map that keeps it from fusing."""
        maps: list[Affine | None] = []
        stack: list[Scalar] = [self._one.epilogue]
        loose: set[str] = set()
        while stack:
            value = stack.pop()
            if isinstance(value, Load):
                found = position(value.buffer, value.index)
                if found is not None:
                    maps.append(found)
                    continue
                loose |= variables(*value.index)
            elif isinstance(value, ScalarVar):
                loose.add(value.name)
            stack.extend(children(value))
        # No other index fuses with one that alone has a stride.
        return [*maps, *(Affine(0, {name: 1}) for name in loose if any(var.name == name for var in self._one.free))]

    def _grown(self, last: ScalarVar, side: int, maps: Sequence[Affine | None]) -> FusedAxis:
        """An index, fused with the slower ones that it is contiguous with."""
        known = [one for one in maps if one is not None]
        found = [last]
        again = True
        while again:
            again = False
            for var in self._one.free:
                if var in found or self._side(var) != side:
                    continue
                first = found[0]
                if all(is_same(one.stride(var), one.stride(first) * self._extents[first]) for one in known):
                    found.insert(0, var)
                    again = True
        return FusedAxis(tuple(found), tuple(self._extents[var] for var in found))


def _is_one(place: Affine, vars_: Sequence[ScalarVar], extents: Sequence[int]) -> bool:
    """Whether indices fuse into one in a position."""
    return all(
        is_same(place.stride(outer), place.stride(inner) * extent)
        for outer, inner, extent in zip(vars_, vars_[1:], extents[1:], strict=False)
    )


def as_one(value: Scalar, axis: FusedAxis, flat: Scalar) -> Scalar:
    """An expression over a fused axis: its fastest index becomes ``flat``, the slower ones become 0."""
    places: dict[ScalarVar, Scalar] = dict.fromkeys(axis.vars, Const(0, INDEX))
    if axis.last is not None:
        places[axis.last] = flat
    return changed(value, lambda one: places.get(one) if isinstance(one, ScalarVar) else None)
