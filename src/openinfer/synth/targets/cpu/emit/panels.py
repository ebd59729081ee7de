"""Panels of columns in C: copied next to each other, or, where they are stored as integers, made floats."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from openinfer.loops.affine import Affine, affine, position, variables
from openinfer.loops.build import flat
from openinfer.loops.dim import Dim, is_same, is_symbolic
from openinfer.loops.ir import (
    INDEX,
    Buffer,
    Compare,
    Const,
    Contraction,
    Load,
    Scalar,
    Select,
    Var,
)
from openinfer.loops.used import used_variables
from openinfer.synth.targets.cpu.emit.tiles import SHIFT, Transpose
from openinfer.synth.targets.cpu.product import Axis, Product, as_one
from openinfer.synth.targets.cpu.quantized import Integers, integers_of
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.cpu.window import conditions
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter, size_text

PAD = "    "
PANEL, TILE_ROW, BLOCK = Var("n0"), Var("m0"), Var("m1")
ROW, COLUMN = Var("row"), Var("column")


class PanelPrinter:
    """The lines of a contraction, and how it comes to the panels that it reads."""

    def __init__(self, one: Contraction, tile: CpuTile, product: Product, scalars: ScalarPrinter, parts: int) -> None:
        self._parts = parts
        self._one = one
        self._tile = tile
        self._product = product
        self._scalars = scalars
        self._kind = scalars.dialect.type_of(one.accumulator)
        self._lines: list[str] = []
        self._depth = 0
        names = [var for axis in (product.outside, product.rows, product.columns, product.inner) for var in axis.vars]
        own = (PANEL, TILE_ROW, BLOCK, ROW, COLUMN)
        scalars.positions |= {var.name for var in (*names, *own)}

    # --- text -----------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._lines.append(PAD * self._depth + text)

    def _open(self, text: str) -> None:
        self._say(f"{text} {{")
        self._depth += 1

    def _close(self, count: int = 1) -> None:
        for _ in range(count):
            self._depth -= 1
            self._say("}")

    def _place(self, place: Affine | Scalar) -> str:
        """A position as text."""
        scalar = place.scalar() if isinstance(place, Affine) else place
        return self._scalars.offset(Buffer("", self._one.accumulator, (1,), strides=(1,)), (scalar,))

    # --- copies ---------------------------------------------------------------------------------------------------

    def _copied_panel(self, right: Buffer, first: Scalar, columns: str, width: int) -> None:
        """The columns of a panel next to each other, one row for each inner index; missing columns are 0."""
        product, axis = self._product, self._product.columns
        along = self._place_along()
        if along is not None:
            self._turned_panel(right, first, columns, along)
            return
        target, last = self._scalars.text(flat(product.inner.vars, product.inner.extents)), axis.vars[-1]
        value: Scalar = product.right.value
        valid: list[Scalar] = []
        if self._one.valid is not None:
            match value:
                case Select(condition, then, _):
                    value, valid = then, conditions(condition)
                case _:
                    pass
        if len(axis.vars) == 1:
            start, run = first, columns
        else:
            # A run of columns that differ in the last index only: what the others decide is decided once for all.
            start, run = Var("start"), "run"
            self._open(f"for (int64_t from = 0, run; from < {columns}; from += run)")
            extent = number(axis.extents[-1])
            self._say(f"const int64_t start = ({self._scalars.text(first)} + from) % {extent};")
            outer_axis = Axis(axis.vars[:-1], axis.extents[:-1])
            self._unflatten(outer_axis, Var("from") + first, used_variables(value, *valid), f" / {extent}")
            self._say(f"run = {extent} - start < {columns} - from ? {extent} - start : {columns} - from;")
            self._scalars.positions.add("start")
        # Where a run meets the edges of what is read depends on few of the inner indices: those are outermost.
        used = variables(*valid)
        pairs = list(zip(product.inner.vars, product.inner.extents, strict=True))
        outer = [pair for pair in pairs if pair[0].name in used]
        for var, extent_ in outer:
            self._open(loop(var.name, extent_))
        bounds, inside = self._bounds(valid, last, start, run)
        for var, extent_ in (pair for pair in pairs if pair not in outer):
            self._open(loop(var.name, extent_))
        behind = " + from" * (len(axis.vars) > 1)
        self._say(f"{self._scalars.dialect.type_of(right.dtype)} *to = {right.name} + {target} * {width}{behind};")
        if bounds:
            self._say("for (int64_t column = 0; column < begin; ++column) to[column] = 0;")
        low, high = bounds or ("0", run)
        self._open(f"for (int64_t column = {low}; column < {high}; ++column)")
        self._say(f"const int64_t {last.name} = {self._scalars.text(start + COLUMN)};")
        text = self._scalars.text(value)
        if inside is not None:
            text = f"{self._scalars.text(inside)} ? {text} : 0"
        self._say(f"to[column] = {text};")
        self._close()
        rest = "end" if bounds else run
        until = str(width) if len(axis.vars) == 1 else run
        if rest != until:
            self._say(f"for (int64_t column = {rest}; column < {until}; ++column) to[column] = 0;")
        self._close(len(pairs) + (len(axis.vars) > 1))
        if len(axis.vars) > 1:
            self._zero_rest(right, columns, width)

    def _place_along(self) -> Affine | None:
        """Where what is copied lies, if that is along the sums, in the order of the inner indices, and all counts."""
        one, buffer = self._one, self._product.right.buffer
        place = position(buffer, one.index_of(buffer))
        inner, columns = self._product.inner, self._product.columns
        if place is None or one.valid is not None or not inner.vars or len(columns.vars) != 1:
            return None
        is_along = is_same(place.step(inner.vars[-1]), 1) and not is_same(place.step(columns.vars[0]), 1)
        return place if is_along else None

    def _turned_panel(self, right: Buffer, first: Scalar, columns: str, along: Affine) -> None:
        """A panel copied column by column, so that it is read in order; in squares, where elements are as they lie."""
        product, width = self._product, self._tile.columns
        depth, squares = product.inner.extent, 0
        is_plain = isinstance(product.right.value, Load) and product.right.buffer.dtype is self._one.accumulator
        if is_plain and len(product.inner.vars) == 1 and not is_symbolic(depth):
            squares = depth // self._tile.lanes * self._tile.lanes
        if squares:
            self._squares(right, first, columns, along, squares)
        self._turned(right, first, ("whole" if squares else "0", columns), 0)
        if squares and squares < depth:
            self._turned(right, first, ("0", "whole"), squares)
        self._zero_rest(right, columns, width)

    def _squares(self, right: Buffer, first: Scalar, columns: str, along: Affine, depth: int) -> None:
        """The squares of so many inner indices, and of the columns that are ``whole``."""
        product, last, lanes, width = self._product, self._product.columns.vars[0], self._tile.lanes, self._tile.columns
        name = self._scalars.need(Transpose(self._one.accumulator.name, lanes))
        begin = self._place(moved(along, product.columns, last, product.inner))
        self._say(f"const int64_t whole = {columns} / {lanes} * {lanes};")
        self._open(f"for (int64_t column = 0; column < whole; column += {lanes})")
        self._say(f"const int64_t {last.name} = {self._scalars.text(first + COLUMN)};")
        self._open(f"for (int64_t k = 0; k < {depth}; k += {lanes})")
        source = f"{product.right.buffer.name} + {begin} + k, {number(along.step(last))}"
        self._say(f"{name}({source}, {right.name} + k * {width} + column, {width});")
        self._close(2)

    def _turned(self, right: Buffer, first: Scalar, columns: tuple[str, str], inside: int) -> None:
        """Columns one by one, from an inner index on."""
        product, last = self._product, self._product.columns.vars[0]
        self._open(f"for (int64_t column = {columns[0]}; column < {columns[1]}; ++column)")
        self._say(f"const int64_t {last.name} = {self._scalars.text(first + COLUMN)};")
        for var, extent in zip(product.inner.vars, product.inner.extents, strict=True):
            self._open(f"for (int64_t {var.name} = {inside}; {var.name} < {number(extent)}; ++{var.name})")
        target = self._scalars.text(flat(product.inner.vars, product.inner.extents))
        self._say(
            f"{right.name}[{target} * {self._tile.columns} + column] = {self._scalars.text(product.right.value)};"
        )
        self._close(1 + len(product.inner.vars))

    def _bounds(
        self, valid: Sequence[Scalar], last: Var, start: Scalar, run: str
    ) -> tuple[tuple[str, str] | None, Scalar | None]:
        """The columns of a run between which all terms count, as text, and what must be asked for each of them."""
        outside = [one for one in valid if last.name not in variables(one)]
        edges = {one: _edge(one, last, start) for one in valid if one not in outside}
        asked = [one for one, edge in edges.items() if edge is None]
        if len(asked) == len(valid):
            return None, reduce(and_, asked) if asked else None
        begin, end = "0", run
        for one, edge in edges.items():
            if edge is not None:
                before = f"{self._scalars.need('oi_negatives')}({self._scalars.bare(edge[0])}, {edge[1]})"
                name = self._scalars.need("oi_min_i64")
                assert isinstance(one, Compare)
                begin, end = (
                    (f"{name}({before}, {run})", end) if one.op == "ge" else (begin, f"{name}({before}, {run})")
                )
        if outside:
            end = f"{self._scalars.text(reduce(and_, outside))} ? {end} : 0"
        self._say("/* From begin to end, the window lies on the input. */")
        self._say(f"const int64_t begin = {begin};")
        if begin == "0":
            self._say(f"const int64_t end = {end};")
        else:
            self._say(f"const int64_t end = {self._scalars.need('oi_max_i64')}(begin, {end});")
        return ("begin", "end"), reduce(and_, asked) if asked else None

    def _zero_rest(self, right: Buffer, columns: str, width: int) -> None:
        """Zeros in the columns that the last panel lacks."""
        extent = self._product.columns.extent
        if is_symbolic(extent) or extent % width:
            self._open(f"for (int64_t k = 0; columns < {width} && k < {number(self._product.inner.extent)}; ++k)")
            self._say(f"for (int64_t column = {columns}; column < {width}; ++column)")
            self._say(f"{PAD}{right.name}[k * {width} + column] = 0;")
            self._close()

    def _inner_loops(self) -> None:
        for var, extent in zip(self._product.inner.vars, self._product.inner.extents, strict=True):
            self._open(loop(var.name, extent))

    def _unflatten(self, axis: Axis, flat: Scalar, used: set[str], divided: str = "") -> None:
        """The indices of an axis that are used, from its position as one number."""
        text = f"({self._scalars.text(flat)}){divided}"
        for one in range(len(axis.vars) - 1, -1, -1):
            extent = number(axis.extents[one])
            value = text if one == 0 else f"{text} % {extent}"
            if axis.vars[one].name in used:
                self._say(f"const int64_t {axis.vars[one].name} = {value};")
            text = f"{text} / {extent}"

    # --- integers -------------------------------------------------------------------------------------------------

    def _panel(self, panel: str) -> tuple[str, str]:
        """A panel that is stored as such; one of integers may be made floats for all rows, or as it is used."""
        tile, integers = self._tile, self._integers
        if integers is None:
            return panel, str(tile.columns)
        pointer, _, place = panel.partition(" + ")
        is_half = self._product.right.buffer.dtype.bits < 8
        if is_half and place:
            panel = f"{pointer} + ({place}) / 2"
        row = tile.columns // 2 if is_half else tile.columns
        if self._has_zero:
            zero = Const(0, self._one.accumulator) if integers.zero is None else integers.zero
            value = as_one(zero, self._product.columns, PANEL + COLUMN)
            shift = (8 if self._is_shifted else 0) + (SHIFT if is_half and tile.right is None else 0)
            text = self._scalars.text(value) + (f" + {float(shift)}f" if shift else "")
            if shift >= SHIFT:
                self._say("/* Integers of 4 bits are loaded as 2^23 and so much: see oi_load. */")
            self._say(f"{self._kind} zero[{tile.columns}] = {{0}};")
            self._say(f"for (int64_t column = 0; column < columns; ++column) zero[column] = {text};")
        if tile.right is None:
            return panel, str(row)
        self._say(f"const {self._scalars.dialect.stored_type(self._product.right.buffer.dtype)} *panel = {panel};")
        self._open(f"for (int64_t k = 0; k < {number(self._product.inner.extent)}; ++k, panel += {row})")
        self._say(f"{self._kind} *to = {tile.right.name} + k * {tile.columns};")
        less = [f" - zero[{at}]" if self._has_zero else "" for at in ("column", "column + half")]
        if not is_half:
            self._open(f"for (int64_t column = 0; column < {tile.columns}; ++column)")
            self._say(f"to[column] = ({self._kind})panel[column]{less[0]};")
        else:
            flip = " ^ 8" * self._is_shifted
            self._open(f"for (int64_t first = 0; first < {tile.columns}; first += {2 * tile.lanes})")
            self._open(f"for (int64_t column = first; column < first + {tile.lanes}; ++column)")
            self._say(f"enum {{ half = {tile.lanes} }};")
            self._say("const uint8_t byte = panel[column - first / 2];")
            self._say(f"to[column] = ({self._kind})((byte & 15){flip}){less[0]};")
            self._say(f"to[column + half] = ({self._kind})((byte >> 4){flip}){less[1]};")
            self._close()
        self._close(2)
        return tile.right.name, str(tile.columns)

    @property
    def _integers(self) -> Integers | None:
        return integers_of(self._one, self._product.right.buffer) if self._tile.has_panels else None

    @property
    def _is_shifted(self) -> bool:
        """Whether integers are read as 8 more than they are."""
        return self._product.right.buffer.dtype.name == "i4"

    @property
    def _has_zero(self) -> bool:
        """Whether something is subtracted from the integers as they are read."""
        is_half = self._product.right.buffer.dtype.bits < 8
        return self._integers is not None and (self._integers.zero is not None or is_half)


# --- text -------------------------------------------------------------------------------------------------------------


def loop(name: str, extent: int) -> str:
    """The head of a loop."""
    return f"for (int64_t {name} = 0; {name} < {number(extent)}; ++{name})"


def number(value: int) -> str:
    """An extent as text."""
    return size_text(value.expr) if isinstance(value, Dim) else str(value)


def offset_from(pointer: str, place: str) -> str:
    """A pointer to a place."""
    return pointer if place == "0" else f"{pointer} + {place}"


def moved(place: Affine, axis: Axis, first: Var, inner: Axis) -> Affine:
    """The place of the first element of a tile: an axis stands at a position, inner indices at 0."""
    gone = {var.name for var in (*axis.vars, *inner.vars)}
    steps = {name: step for name, step in place.steps.items() if name not in gone}
    return Affine(place.first, steps if axis.last is None else {**steps, first.name: place.step(axis.last)})


def _edge(condition: Scalar, last: Var, start: Scalar) -> tuple[Scalar, int] | None:
    """A comparison of positions as a distance at the first column, and how much it grows with each; None for others."""
    if not isinstance(condition, Compare) or condition.op not in ("ge", "lt"):
        return None
    found = affine(condition.left - condition.right)
    step = 0 if found is None else found.step(last)
    if found is None or is_symbolic(step) or step < 1:
        return None
    rest = Affine(found.first, {name: one for name, one in found.steps.items() if name != last.name})
    return rest.scalar() + start * Const(step, INDEX), step
