"""Contractions in C as loops over tiles.

Columns are taken a panel at a time, rows a tile at a time; a function of the support code computes the sums of a tile,
and the epilogue makes results of them where they are stored. Factors that cannot be read where they lie are copied into
scratch memory first: a panel of columns, or a block of rows. What falls outside a window is copied as 0.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Literal

from openinfer.loops.affine import Affine, affine, is_same, position, variables
from openinfer.loops.build import cast
from openinfer.loops.common import named
from openinfer.loops.dim import Dim, is_symbolic
from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Binary,
    Buffer,
    Compare,
    Const,
    Contraction,
    Let,
    Scalar,
    Select,
    Tile,
    Var,
)
from openinfer.loops.product import Axis, Product, as_one, product_of
from openinfer.loops.quantized import Integers, integers_of
from openinfer.synth.c.scalars import ScalarPrinter, share, size_text
from openinfer.synth.c.tiles import SHIFT, tile_name
from openinfer.synth.c.types import scalar_type, stored_type
from openinfer.synth.schedule import row_sizes

PAD = "    "
_PANEL, _TILE_ROW, _BLOCK = Var("n0"), Var("m0"), Var("m1")
_ROW, _COLUMN = Var("row"), Var("column")


def tiled(one: Contraction, tile: Tile, scalars: ScalarPrinter, parts: int) -> list[str]:
    """The lines of a contraction that has a tile, in a kernel of so many parts."""
    product = product_of(one, lambda _: tile.has_panels)
    assert product is not None
    return _Printer(one, tile, product, scalars, parts).run()


class _Printer:
    def __init__(self, one: Contraction, tile: Tile, product: Product, scalars: ScalarPrinter, parts: int) -> None:
        self._parts = parts
        self._one = one
        self._tile = tile
        self._product = product
        self._scalars = scalars
        self._kind = scalar_type(one.accumulator)
        self._lines: list[str] = []
        self._depth = 0
        names = [var for axis in (product.outside, product.rows, product.columns, product.inner) for var in axis.vars]
        own = (_PANEL, _TILE_ROW, _BLOCK, _ROW, _COLUMN)
        scalars.positions |= {var.name for var in (*names, *own)}

    def run(self) -> list[str]:
        product = self._product
        self._say(
            f"/* In tiles of {self._tile.rows} row{'s' * (self._tile.rows > 1)} and {self._tile.columns} columns:"
            f" {_number(product.rows.extent)} x {_number(product.inner.extent)}"
            f" times {_number(product.inner.extent)} x {_number(product.columns.extent)}. */"
        )
        for var, extent in zip(product.outside.vars, product.outside.extents, strict=True):
            self._open(_loop(var.name, extent))
        if self._tile.left is not None:
            self._blocks(self._tile.left)
        else:
            self._panels(product.rows.extent)
        while self._depth:
            self._close()
        return self._lines

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

    # --- loops ----------------------------------------------------------------------------------------------------

    def _blocks(self, left: Buffer) -> None:
        """Blocks of rows, copied so that each row lies in one piece."""
        block = self._tile.block
        first, last = self._range("rows")
        self._open(f"for (int64_t m1 = {first}; m1 < {last}; m1 += {block})")
        self._say(f"const int64_t height = {_least(last, 'm1', block)};")
        self._open("for (int64_t row = 0; row < height; ++row)")
        self._unflatten(self._product.rows, _BLOCK + _ROW)
        self._say(f"{self._kind} *to = {left.name} + row * {_number(left.shape[-1])};")
        self._inner_loops()
        place = self._place(_flat(self._product.inner))
        self._say(f"to[{place}] = {self._scalars.text(self._product.left.value)};")
        self._close(1 + len(self._product.inner.vars))
        self._panels(None)
        self._close()

    def _panels(self, rows: int | None) -> None:
        """Panels of columns, and in each the tiles of all rows, or of the block."""
        tile, columns = self._tile, self._product.columns.extent
        start, end = self._range("columns")
        self._open(f"for (int64_t n0 = {start}; n0 < {end}; n0 += {tile.columns})")
        if is_symbolic(columns) or columns % tile.columns:
            self._say(f"const int64_t columns = {_least(_number(columns), 'n0', tile.columns)};")
        else:
            self._say(f"enum {{ columns = {tile.columns} }};")
        right, step = self._right()
        sizes = self._heights()
        if not self._is_row:
            self._open_tiles(sizes, *(("0", "height") if rows is None else self._range("rows")))
        self._say(f"{self._kind} tile[{tile.rows * tile.columns}];")
        self._calls(sizes, right, step)
        self._results(_TILE_ROW + _ROW if rows is not None else _BLOCK + _TILE_ROW + _ROW)
        self._close(1 if self._is_row else 2)

    @property
    def _is_row(self) -> bool:
        """Whether there is a single row: then nothing is said about rows."""
        return not self._product.rows.vars and self._tile.left is None

    def _open_tiles(self, sizes: Sequence[int], first: str, count: str) -> None:
        if len(sizes) == 1:
            self._open(f"for (int64_t m0 = {first}; m0 < {count}; m0 += {sizes[0]})")
            self._say(f"enum {{ rows = {sizes[0]} }};")
            return
        self._open(f"for (int64_t m0 = {first}, rows; m0 < {count}; m0 += rows)")
        self._say(f"rows = {_chosen(sizes, count)};")

    def _range(self, what: Literal["rows", "columns"]) -> tuple[str, str]:
        """Where a part's rows or columns begin and end: it has a share of the tiles."""
        axis, each = (
            (self._product.rows, self._tile.rows) if what == "rows" else (self._product.columns, self._tile.columns)
        )
        if self._tile.divided != what:
            return "0", _number(axis.extent)
        if is_symbolic(axis.extent):
            first, last = share(f"((({_number(axis.extent)}) + {each - 1}) / {each})", self._parts)
        else:
            first, last = share(str(-(-axis.extent // each)), self._parts)
        end = f"{last} * {each}"
        # The last tile of all may have fewer rows; columns are counted where a panel begins.
        is_whole = what == "columns" or (not is_symbolic(axis.extent) and axis.extent % each == 0)
        return f"{first} * {each}", end if is_whole else f"(part == {self._parts - 1} ? {_number(axis.extent)} : {end})"

    def _heights(self) -> tuple[int, ...]:
        return row_sizes(self._product.rows.extent, self._tile.rows)

    # --- factors --------------------------------------------------------------------------------------------------

    def _right(self) -> tuple[str, str]:
        """Where a panel starts and how far apart its rows are; a panel that must be copied is."""
        tile, product = self._tile, self._product
        depth, factor = product.inner.extent, product.right
        if tile.has_panels:
            index = self._one.a_index if factor.buffer == self._one.a else self._one.b_index
            steps = zip(index[:-3], factor.buffer.steps[:-3], strict=True)
            place: Scalar = _PANEL * Const(depth, INDEX)
            for one, step in steps:
                place = place + one * Const(step, INDEX)
            return self._panel(_from(factor.buffer.name, self._place(place)))
        if not tile.is_direct:
            assert tile.right is not None
            self._copied_panel(tile.right, _PANEL, "columns", tile.columns)
            return tile.right.name, str(tile.columns)
        panel, apart = _from(factor.buffer.name, self._panel_place()), _number(factor.step(product.inner))
        if tile.right is None:
            return panel, apart
        self._say(f"const {self._kind} *panel = {panel};")
        self._say(f"int64_t step = {apart};")
        self._open(f"if (columns < {tile.columns})")
        self._copied_panel(tile.right, _PANEL, "columns", tile.columns)
        self._say(f"panel = {tile.right.name};")
        self._say(f"step = {tile.columns};")
        self._close()
        return "panel", "step"

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
            value = as_one(zero, self._product.columns, _PANEL + _COLUMN)
            shift = (8 if self._is_shifted else 0) + (SHIFT if is_half and tile.right is None else 0)
            text = self._scalars.text(value) + (f" + {float(shift)}f" if shift else "")
            self._say(f"{self._kind} zero[{tile.columns}] = {{0}};")
            self._say(f"for (int64_t column = 0; column < columns; ++column) zero[column] = {text};")
        if tile.right is None:
            return panel, str(row)
        self._say(f"const {stored_type(self._product.right.buffer.dtype)} *panel = {panel};")
        self._open(f"for (int64_t k = 0; k < {_number(self._product.inner.extent)}; ++k, panel += {row})")
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

    def _panel_place(self) -> str:
        place = self._product.right.place
        assert place is not None
        return self._place(_moved(place, self._product.columns, _PANEL, self._product.inner))

    def _copied_panel(self, right: Buffer, first: Scalar, columns: str, width: int) -> None:
        """The columns of a panel next to each other, one row for each inner index; missing columns are 0."""
        product, axis = self._product, self._product.columns
        target = self._scalars.text(_flat(product.inner))
        last = axis.vars[-1]
        value: Scalar = product.right.value
        valid: list[Scalar] = []
        if self._one.valid is not None:
            match value:
                case Select(condition, then, _):
                    value, valid = then, _parts(condition)
                case _:
                    pass
        if len(axis.vars) == 1:
            start, run = first, columns
        else:
            # A run of columns that differ in the last index only: what the others decide is decided once for all.
            start, run = Var("start"), "run"
            self._open(f"for (int64_t from = 0, run; from < {columns}; from += run)")
            extent = _number(axis.extents[-1])
            self._say(f"const int64_t start = ({self._scalars.text(first)} + from) % {extent};")
            self._unflatten(Axis(axis.vars[:-1], axis.extents[:-1]), Var("from") + first, f" / {extent}")
            self._say(f"run = {extent} - start < {columns} - from ? {extent} - start : {columns} - from;")
            self._scalars.positions.add("start")
        # Where a run meets the edges of what is read depends on few of the inner indices: those are outermost.
        used = variables(*valid)
        pairs = list(zip(product.inner.vars, product.inner.extents, strict=True))
        outer = [pair for pair in pairs if pair[0].name in used]
        for var, extent_ in outer:
            self._open(_loop(var.name, extent_))
        bounds, inside = self._bounds(valid, last, start, run)
        for var, extent_ in (pair for pair in pairs if pair not in outer):
            self._open(_loop(var.name, extent_))
        self._say(f"{self._kind} *to = {right.name} + {target} * {width}{' + from' if len(axis.vars) > 1 else ''};")
        if bounds:
            self._say("for (int64_t column = 0; column < begin; ++column) to[column] = 0;")
        low, high = bounds or ("0", run)
        self._open(f"for (int64_t column = {low}; column < {high}; ++column)")
        self._say(f"const int64_t {last.name} = {self._scalars.text(start + _COLUMN)};")
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
        if len(axis.vars) > 1 and (is_symbolic(axis.extent) or axis.extent % width):
            self._open(f"for (int64_t k = 0; columns < {width} && k < {_number(product.inner.extent)}; ++k)")
            self._say(f"for (int64_t column = {columns}; column < {width}; ++column)")
            self._say(f"{PAD}{right.name}[k * {width} + column] = 0;")
            self._close()

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
        self._say(f"const int64_t begin = {begin};")
        if begin == "0":
            self._say(f"const int64_t end = {end};")
        else:
            self._say(f"const int64_t end = {self._scalars.need('oi_max_i64')}(begin, {end});")
        return ("begin", "end"), reduce(and_, asked) if asked else None

    def _inner_loops(self) -> None:
        for var, extent in zip(self._product.inner.vars, self._product.inner.extents, strict=True):
            self._open(_loop(var.name, extent))

    def _unflatten(self, axis: Axis, flat: Scalar, divided: str = "") -> None:
        """The indices of an axis from its position as one number."""
        text = f"({self._scalars.text(flat)}){divided}"
        for number in range(len(axis.vars) - 1, -1, -1):
            extent = _number(axis.extents[number])
            value = text if number == 0 else f"{text} % {extent}"
            self._say(f"const int64_t {axis.vars[number].name} = {value};")
            text = f"{text} / {extent}"

    # --- tiles ----------------------------------------------------------------------------------------------------

    def _calls(self, sizes: Sequence[int], right: str, step: str) -> None:
        """The call that computes the sums of a tile: one for each size that occurs."""
        tile, product = self._tile, self._product
        if tile.left is not None:
            stride = _number(tile.left.shape[-1])
            left = f"{tile.left.name} + m0 * {stride}, {stride}, 1"
        else:
            assert product.left.place is not None
            place = self._place(_moved(product.left.place, product.rows, _TILE_ROW, product.inner))
            left = f"{_from(product.left.buffer.name, place)}, {_number(product.left.step(product.rows))}"
            left += f", {_number(product.left.step(product.inner))}"
        widths = self._widths()
        has_zero = self._has_zero and tile.right is None
        is_stored = self._integers is not None and tile.right is None
        stored = product.right.buffer.dtype.name if is_stored else None
        points = "zero, " * has_zero
        cases = [(rows, vectors) for vectors in widths for rows in sizes]
        for number, (rows, vectors) in enumerate(cases):
            name = self._scalars.need(
                tile_name(self._one.accumulator.name, tile.lanes, rows, vectors, stored, has_zero=has_zero)
            )
            tests = [f"rows == {rows}"] if len(sizes) > 1 else []
            tests += [f"columns > {(vectors - 1) * tile.lanes}"] if len(widths) > 1 else []
            head = "" if number == len(cases) - 1 else f"if ({' && '.join(tests)}) "
            other = "else " if number else ""
            depth = _number(product.inner.extent)
            self._say(f"{other}{head}{name}({depth}, {left}, {right}, {step}, {points}tile, {tile.columns});")

    def _widths(self) -> list[int]:
        """How many vectors a panel may have, the most first."""
        tile, columns = self._tile, self._product.columns.extent
        most = tile.columns // tile.lanes
        if is_symbolic(columns):
            return list(range(most, 0, -1))
        rest = -(-(columns % tile.columns) // tile.lanes)
        if self._integers is not None and self._product.right.buffer.dtype.bits < 8:
            rest += rest % 2
        return [most] if rest == 0 else [rest] if columns < tile.columns else sorted({most, rest}, reverse=True)

    def _results(self, row: Scalar) -> None:
        """The epilogue for every element of a tile."""
        one, product = self._one, self._product

        def at_place(value: Scalar) -> Scalar:
            return as_one(as_one(value, product.rows, row_var), product.columns, _PANEL + _COLUMN)

        row_var = product.rows.last or Var("row")
        if not self._is_row:
            self._open("for (int64_t row = 0; row < rows; ++row)")
        index = tuple(at_place(part) for part in one.out_index)
        epilogue = at_place(one.epilogue)
        if product.rows.last is not None:
            self._say(f"const int64_t {row_var.name} = {self._scalars.text(row)};")
        self._open("for (int64_t column = 0; column < columns; ++column)")
        place = "column" if self._is_row else f"row * {self._tile.columns} + column"
        self._say(f"const {self._kind} {ACCUMULATOR} = tile[{place}];")
        lets, value = named(epilogue, "v")
        for let in lets:
            self._say(_let(let, self._scalars))
        self._say(self._scalars.store(one.out, self._scalars.offset(one.out, index), value))
        self._close(1 if self._is_row else 2)


# --- without tiles ----------------------------------------------------------------------------------------------------

_WIDTH = 64
"""So many sums are computed next to each other where there are no tiles."""


def side_by_side(one: Contraction, scalars: ScalarPrinter) -> list[str] | None:
    """A contraction as sums next to each other, which a compiler can make vectors of; None where they would not lie so.

    The index that runs fastest in the result is the innermost loop: no sum changes its order.
    """
    last = _fastest(one)
    if last is None:
        return None
    kind = scalar_type(one.accumulator)
    extent = one.extents[one.free.index(last)]
    scalars.positions |= {var.name for var in (*one.free, *one.bound, _PANEL, _COLUMN)}
    outer = [pair for pair in zip(one.free, one.extents, strict=True) if pair[0] != last]
    heads = [_loop(var.name, count) for var, count in outer]
    lines = [PAD * depth + f"{head} {{" for depth, head in enumerate(heads)]
    at_column = f"const int64_t {last.name} = n0 + column;"
    left, right = (cast(factor, one.accumulator) for factor in one.factors)
    total = Var("sums[column]", one.accumulator)
    term = f"sums[column] = {scalars.text(Binary('add', total, Binary('mul', left, right)))};"
    inner = [_loop(var.name, count) for var, count in zip(one.bound, one.reduced, strict=True)]
    lets, value = named(one.epilogue, "v")
    body = [
        f"for (int64_t n0 = 0; n0 < {_number(extent)}; n0 += {_WIDTH}) {{",
        f"{PAD}const int64_t columns = {_least(_number(extent), 'n0', _WIDTH)};",
        f"{PAD}{kind} sums[{_WIDTH}] = {{0}};",
        *(PAD * (depth + 1) + f"{head} {{" for depth, head in enumerate(inner)),
        *(PAD * (len(inner) + 1) + line for line in _column_loop(at_column, one.valid, term, scalars)),
        *(PAD * (depth + 1) + "}" for depth in reversed(range(len(inner)))),
        f"{PAD}for (int64_t column = 0; column < columns; ++column) {{",
        f"{PAD * 2}{at_column}",
        f"{PAD * 2}const {kind} {ACCUMULATOR} = sums[column];",
        *(PAD * 2 + _let(let, scalars) for let in lets),
        PAD * 2 + scalars.store(one.out, scalars.offset(one.out, one.out_index), value),
        f"{PAD}}}",
        "}",
    ]
    lines += [PAD * len(heads) + line for line in body]
    return [*lines, *(PAD * depth + "}" for depth in reversed(range(len(heads))))]


def _column_loop(at_column: str, valid: Scalar | None, term: str, scalars: ScalarPrinter) -> list[str]:
    head = "for (int64_t column = 0; column < columns; ++column) {"
    if valid is None:
        return [head, f"{PAD}{at_column}", f"{PAD}{term}", "}"]
    name = at_column.split()[2]
    if name not in variables(valid):
        inner = [head, f"{PAD}{at_column}", f"{PAD}{term}", "}"]
        return [f"if ({scalars.bare(valid)}) {{", *(PAD + line for line in inner), "}"]
    return [head, f"{PAD}{at_column}", f"{PAD}if ({scalars.bare(valid)}) {term}", "}"]


def _fastest(one: Contraction) -> Var | None:
    """The free index along which results lie next to each other, if those of a factor do too."""
    out = position(one.out, one.out_index)
    places = [position(one.a, one.a_index), position(one.b, one.b_index)]
    if out is None or None in places or one.accumulator.kind == "bool" or one.out.dtype.is_packed:
        return None
    unit = [var for var in one.free if is_same(out.step(var), 1)]
    if len(unit) != 1 or not any(place is not None and is_same(place.step(unit[0]), 1) for place in places):
        return None
    return unit[0]


# --- text -------------------------------------------------------------------------------------------------------------


def _let(let: Let, scalars: ScalarPrinter) -> str:
    return f"const {scalar_type(let.var.dtype)} {let.var.name} = {scalars.text(let.value)};"


def _loop(name: str, extent: int) -> str:
    return f"for (int64_t {name} = 0; {name} < {_number(extent)}; ++{name})"


def _number(value: int) -> str:
    return size_text(value.expr) if isinstance(value, Dim) else str(value)


def _from(pointer: str, place: str) -> str:
    return pointer if place == "0" else f"{pointer} + {place}"


def _least(end: str, first: str, most: int) -> str:
    left = f"{end} - {first}"
    return f"{left} < {most} ? {left} : {most}"


def _chosen(sizes: Sequence[int], count: str) -> str:
    """The height of the next tile."""
    text = str(sizes[-1])
    for size in reversed(sizes[:-1]):
        text = f"{count} - m0 >= {size} ? {size} : {text}"
    return text


def _flat(axis: Axis) -> Scalar:
    total: Scalar = Const(0, INDEX)
    for var, extent in zip(axis.vars, axis.extents, strict=True):
        total = total * Const(extent, INDEX) + var
    return total


def _moved(place: Affine, axis: Axis, first: Var, inner: Axis) -> Affine:
    """The place of the first element of a tile: an axis stands at a position, inner indices at 0."""
    gone = {var.name for var in (*axis.vars, *inner.vars)}
    steps = {name: step for name, step in place.steps.items() if name not in gone}
    return Affine(place.first, steps if axis.last is None else {**steps, first.name: place.step(axis.last)})


def _parts(condition: Scalar) -> list[Scalar]:
    """Conditions that must all be true."""
    match condition:
        case Binary("and", left, right):
            return [*_parts(left), *_parts(right)]
        case _:
            return [condition]


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
