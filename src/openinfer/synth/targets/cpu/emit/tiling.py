"""The state of a tiled contraction while its C is written: what is computed, how, and the lines so far."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from openinfer.dtypes import DType
from openinfer.loops.affine import Affine
from openinfer.loops.build import flat
from openinfer.loops.cse import named
from openinfer.loops.dim import Dim, is_symbolic, most_elements, span
from openinfer.loops.ir import ACCUMULATOR, INDEX, Buffer, Const, Contraction, Scalar, ScalarVar
from openinfer.synth.targets.cpu.product import FusedAxis, Product, tiled_product
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.cstyle.code import ExprText, Rank
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter, size_code
from openinfer.synth.targets.cstyle.widths import is_small

PAD = "    "
PANEL, TILE_ROW, BLOCK = ScalarVar("n0"), ScalarVar("m0"), ScalarVar("m1")
ROW, COLUMN = ScalarVar("row"), ScalarVar("column")
_ZERO = Const(0, INDEX)
RUN, START = ScalarVar("from"), ScalarVar("start")
_FEW = 1 << 12
"""An upper bound on every count within one tile."""


@dataclass
class Tiling:
    """A contraction with its tile, its product, its kernel's part count, and its lines with the depth of the next."""

    one: Contraction
    tile: CpuTile
    product: Product
    scalars: ScalarPrinter
    parts: int
    index: str
    """The C type of a position."""
    lines: list[str] = field(default_factory=list)
    depth: int = 0

    @classmethod
    def of(cls, one: Contraction, tile: CpuTile, scalars: ScalarPrinter, parts: int) -> "Tiling":
        """The tiling of a contraction; registers the ranges of its indices."""
        product = tiled_product(one, tile)
        names = [var for axis in (product.outside, product.rows, product.columns, product.inner) for var in axis.vars]
        buffers = [one.out, one.a, one.b, *tile.memory]
        extents = [axis.extent for axis in (product.outside, product.rows, product.columns, product.inner)]
        counts = [tile.block, *(span(one)[1] for one in extents), *(most_elements(one.shape) for one in buffers)]
        index = counted(scalars, (*names, PANEL, TILE_ROW, BLOCK, ROW, COLUMN, RUN, START), counts)
        return cls(one, tile, product, scalars, parts, index)

    @property
    def panel(self) -> Scalar:
        """The first column of a panel."""
        return _ZERO if self.is_one_panel else PANEL

    @property
    def tile_row(self) -> Scalar:
        """The first row of a tile, relative to its block if there are blocks."""
        return _ZERO if self.is_one_tile else TILE_ROW

    @property
    def block_row(self) -> Scalar:
        """The first row of a block."""
        return _ZERO if self.is_one_block else BLOCK

    @property
    def is_one_panel(self) -> bool:
        """Whether a single panel covers all columns."""
        return self.tile.divided != "columns" and _is_within(self.product.columns.extent, self.tile.columns)

    @property
    def is_one_block(self) -> bool:
        """Whether a single block covers all rows, or there are no blocks."""
        if self.tile.left is None or self.tile.is_left_converted:
            return True
        return self.tile.divided != "rows" and _is_within(self.product.rows.extent, self.tile.block)

    @property
    def is_one_tile(self) -> bool:
        """Whether a single tile covers all rows."""
        is_divided = self.tile.divided == "rows" or not self.is_one_block
        return not is_divided and _is_within(self.product.rows.extent, self.tile.rows)

    @property
    def width(self) -> int | str:
        """The number of columns in a panel, or the variable of the generated code for it if panels differ."""
        columns, width = self.product.columns.extent, self.tile.columns
        if self.is_one_panel:
            return columns
        return "columns" if is_symbolic(columns) or columns % width else width

    @property
    def kind(self) -> str:
        """The C type of an accumulator."""
        return self.type_of(self.one.accumulator)

    def type_of(self, dtype: DType) -> str:
        """The C type of a dtype."""
        return self.scalars.dialect.type_of(dtype)

    def say(self, text: str) -> None:
        """Appends a line."""
        self.lines.append(PAD * self.depth + text)

    def open(self, text: str) -> None:
        """Appends a line that opens a block."""
        self.say(f"{text} {{")
        self.depth += 1

    def scope(self) -> None:
        """Opens a bare block."""
        self.say("{")
        self.depth += 1

    def close(self, count: int = 1) -> None:
        """Closes ``count`` blocks."""
        for _ in range(count):
            self.depth -= 1
            self.say("}")

    def place(self, place: Affine | Scalar) -> ExprText:
        """The code of a position."""
        return self.scalars.position(place.scalar() if isinstance(place, Affine) else place)

    def row_of(self, block: Buffer) -> str:
        """The address of the first row of a tile in a block of copied rows."""
        if self.tile.is_left_converted:
            return block.name
        return offset_from(block.name, self.place(self.tile_row * Const(block.shape[-1], INDEX)))

    def inner_loops(self) -> None:
        """Opens the loops over all inner indices."""
        for var, extent in zip(self.product.inner.vars, self.product.inner.extents, strict=True):
            self.open(loop(self.index, var.name, extent))

    def defined(self, var: ScalarVar, place: Scalar) -> Scalar:
        """What an index is at a position: the position if it is a variable, else the index, which is defined here."""
        if isinstance(place, ScalarVar):
            return place
        self.say(f"const {self.index} {var.name} = {self.scalars.text(place)};")
        return var

    def unflatten(self, axis: FusedAxis, place: Scalar, used: set[str], divided: str = "") -> None:
        """Defines the used indices of an axis from its linear position."""
        text = f"{self.scalars.operand(place)}{divided}" if divided or len(axis.vars) > 1 else self.place(place).text
        for one in range(len(axis.vars) - 1, -1, -1):
            extent = number(axis.extents[one])
            value = text if one == 0 else f"{text} % {extent}"
            if axis.vars[one].name in used:
                self.say(f"const {self.index} {axis.vars[one].name} = {value};")
            text = f"{text} / {extent}"

    def shared(self, value: Scalar) -> Scalar:
        """A value over names for what it would compute more than once; the names are defined right here."""
        lets, rest = named(value)
        for let in lets:
            self.say(self.scalars.constant(let))
        return rest

    def copied_row(self, value: Scalar, text: Callable[[Scalar], str]) -> None:
        """Writes a row of a block to ``to``: an element for each inner index, as ``text`` spells it."""
        self.inner_loops()
        element = text(self.shared(value))
        place = self.place(flat(self.product.inner.vars, self.product.inner.extents))
        self.say(f"to[{place.text}] = {element};")
        self.close(len(self.product.inner.vars))

    def stored_place(self, depth: int) -> ExprText:
        """The start of a stored panel, each of which has ``depth`` elements of every column."""
        buffer = self.product.right.buffer
        return self.panel_place(buffer, self.one.index_of(buffer), depth)

    def panel_place(self, buffer: Buffer, index: Sequence[Scalar], depth: int) -> ExprText:
        """The start of a panel of a buffer in panels, each of which has ``depth`` elements of every column."""
        return self._in_panels(self.panel, buffer, index, depth)

    def tile_place(self, buffer: Buffer, index: Sequence[Scalar], depth: int) -> ExprText:
        """The same where each panel has the rows of a tile."""
        return self._in_panels(self.tile_row, buffer, index, depth)

    def _in_panels(self, first: Scalar, buffer: Buffer, index: Sequence[Scalar], depth: int) -> ExprText:
        place = first * Const(depth, INDEX)
        for one, step in zip(index[:-3], buffer.actual_strides[:-3], strict=True):
            place = place + one * Const(step, INDEX)
        return self.place(place)


# --- results ----------------------------------------------------------------------------------------------------------


def of_sum(epilogue: Scalar, accumulator: DType, kind: str, place: str) -> tuple[list[str], Scalar]:
    """An epilogue over the sum at a place, and the line before it that names the sum; no name if that is all.

    >>> from openinfer.dtypes import dtype_of
    >>> f32 = dtype_of("f32")
    >>> acc = ScalarVar(ACCUMULATOR, f32)
    >>> of_sum(acc * 2.0, f32, "float", "tile[column]")[0]
    ['const float acc = tile[column];']
    >>> of_sum(acc, f32, "float", "tile[column]")[0]
    []
    """
    if epilogue == ScalarVar(ACCUMULATOR, accumulator):
        return [], ScalarVar(place, accumulator)
    return [f"const {kind} {ACCUMULATOR} = {place};"], epilogue


# --- text -------------------------------------------------------------------------------------------------------------


def _is_within(extent: int, most: int) -> bool:
    return not is_symbolic(extent) and extent <= most


def counted(scalars: ScalarPrinter, variables: Iterable[ScalarVar], counts: Iterable[int]) -> str:
    """The type of the indices of a contraction, none of which exceeds the largest of the counts.

    It is the narrower type only if that also holds the sum of any two of them: templates add no more than that.
    """
    most = max(_FEW, *counts)
    return scalars.counts(*variables, most=most if is_small(most) else 2 * most)


def loop(index: str, name: str, extent: int) -> str:
    """The head of a loop over an extent, with an index of the given type."""
    return f"for ({index} {name} = 0; {name} < {number(extent)}; ++{name})"


def clear(tiling: Tiling, target: str, name: str, first: int | str, last: int | str) -> None:
    """Sets the elements of an array to 0 from the first index to the last, exclusive; ``name`` counts them."""
    if isinstance(first, int) and last == first + 1:
        tiling.say(f"{target}[{first}] = 0;")
    else:
        tiling.say(f"for ({tiling.index} {name} = {first}; {name} < {last}; ++{name}) {target}[{name}] = 0;")


def number(value: int) -> str:
    """An extent as text that can be an operand of any operator."""
    return size_code(value.expr).atom if isinstance(value, Dim) else str(value)


def offset_from(pointer: str, place: ExprText) -> str:
    """A pointer to a position, as a single sum: an intermediate pointer could leave the buffer."""
    return pointer if place.text == "0" else f"{pointer} + {place.inside(Rank.PRODUCT)}"


def moved(place: Affine, axis: FusedAxis, first: Scalar, inner: FusedAxis) -> Affine:
    """The position of the first element of a tile: the axis is at a variable or at 0, inner indices are at 0."""
    gone = {var.name for var in (*axis.vars, *inner.vars)}
    steps = {name: step for name, step in place.strides.items() if name not in gone}
    if axis.last is None or not isinstance(first, ScalarVar):
        return Affine(place.first, steps)
    return Affine(place.first, {**steps, first.name: place.stride(axis.last)})


def least(end: str, first: str, most: int) -> str:
    """The distance from one position to another, limited to a maximum."""
    left = f"{end} - {first}"
    return f"{left} < {most} ? {left} : {most}"
