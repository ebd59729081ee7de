"""Panels of columns in C, copied so that they are contiguous."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from openinfer.loops.affine import Affine, affine, position, variables
from openinfer.loops.build import flat
from openinfer.loops.dim import is_same, is_symbolic
from openinfer.loops.ir import INDEX, Buffer, Cast, Compare, Const, Load, Scalar, ScalarVar, Select
from openinfer.loops.rewrite import replaced
from openinfer.loops.used import used_variables
from openinfer.synth.targets.cpu.emit.tiling import (
    COLUMN,
    PAD,
    RUN,
    START,
    Tiling,
    clear,
    loop,
    moved,
    number,
    offset_from,
)
from openinfer.synth.targets.cpu.emit.transposes import Transpose
from openinfer.synth.targets.cpu.product import FusedAxis, Product, as_one
from openinfer.synth.targets.cpu.window import conditions
from openinfer.synth.targets.cstyle.code import ExprText, chosen


def copied_panel(tiling: Tiling, right: Buffer) -> None:
    """Copies the columns of a panel, one contiguous row per inner index; missing columns are 0."""
    product, along = tiling.product, _place_along(tiling)
    first, columns, width = tiling.panel, tiling.width, tiling.tile.columns
    if along is not None:
        _transposed_panel(tiling, right, along)
        return
    target = tiling.scalars.operand(flat(product.inner.vars, product.inner.extents))
    axis, value = _contiguous_columns(product)
    last = axis.vars[-1]
    valid: list[Scalar] = []
    if tiling.one.valid is not None:
        match value:
            case Select(condition, then, _):
                value, valid = then, conditions(condition)
            case _:
                pass
    if len(axis.vars) == 1:
        start, run = first, str(columns)
    else:
        # A run of columns differs only in the last index: what depends on the others is computed once per run.
        start, run = START, "run"
        tiling.open(f"for ({tiling.index} from = 0, run; from < {columns}; from += run)")
        extent = number(axis.extents[-1])
        tiling.say(f"const {tiling.index} start = {tiling.scalars.operand(first + RUN)} % {extent};")
        outer_axis = FusedAxis(axis.vars[:-1], axis.extents[:-1])
        tiling.unflatten(outer_axis, first + RUN, used_variables(value, *valid), f" / {extent}")
        tiling.say(f"run = {extent} - start < {columns} - from ? {extent} - start : {columns} - from;")
    # The bounds of a run depend on few of the inner indices: those are outermost.
    used = variables(*valid)
    pairs = list(zip(product.inner.vars, product.inner.extents, strict=True))
    outer = [pair for pair in pairs if pair[0].name in used]
    for var, extent_ in outer:
        tiling.open(loop(tiling.index, var.name, extent_))
    bounds, inside = _bounds(tiling, valid, last, start, run)
    for var, extent_ in (pair for pair in pairs if pair not in outer):
        tiling.open(loop(tiling.index, var.name, extent_))
    behind = " + from" * (len(axis.vars) > 1)
    tiling.say(f"{tiling.type_of(right.dtype)} *to = {right.name} + {target} * {width}{behind};")
    if bounds:
        clear(tiling, "to", "column", 0, "begin")
    low, high = bounds or ("0", run)
    tiling.open(f"for ({tiling.index} column = {low}; column < {high}; ++column)")
    tiling.say(f"to[column] = {_element(tiling, value, inside, {last: tiling.defined(last, start + COLUMN)}, right)};")
    tiling.close()
    whole, until = (columns, width) if len(axis.vars) == 1 else (run, run)
    rest = "end" if bounds else whole
    if rest != until:
        clear(tiling, "to", "column", rest, until)
    tiling.close(len(pairs) + (len(axis.vars) > 1))
    if len(axis.vars) > 1:
        _zero_rest(tiling, right)


def _element(
    tiling: Tiling, value: Scalar, inside: Scalar | None, places: Mapping[Scalar, Scalar], right: Buffer
) -> str:
    """An element of a copied panel, or 0 where a condition does not hold."""
    code = tiling.scalars.code(stored(replaced(value, places), right))
    return (
        code.text if inside is None else chosen(tiling.scalars.code(replaced(inside, places)), code, ExprText("0")).text
    )


def _contiguous_columns(product: Product) -> tuple[FusedAxis, Scalar]:
    """The columns as an axis, with a single index if they are contiguous, and their value over it."""
    axis, value = product.columns, product.right.value
    if product.right.place is None and not _runs_on(axis, value):
        return axis, value
    return FusedAxis(axis.vars[-1:], (axis.extent,)), as_one(value, axis, axis.vars[-1])


def _runs_on(axis: FusedAxis, value: Scalar) -> bool:
    """Whether the rows that are read are contiguous, as in planes if windows are single positions."""
    read = value.operand if isinstance(value, Cast) else value
    if not isinstance(read, Load) or not axis.vars or any(map(is_symbolic, axis.extents)):
        return False
    place = position(read.buffer, read.index)
    steps = () if place is None else tuple(place.stride(var) for var in axis.vars)
    pairs = zip(steps, steps[1:], axis.extents[1:], strict=False)
    return bool(steps) and all(is_same(slow, fast * extent) for slow, fast, extent in pairs)


def _place_along(tiling: Tiling) -> Affine | None:
    """The position of the copied factor, if it is contiguous along the innermost index and all terms are valid."""
    one, buffer = tiling.one, tiling.product.right.buffer
    place = position(buffer, one.index_of(buffer))
    inner, columns = tiling.product.inner, tiling.product.columns
    if place is None or one.valid is not None or not inner.vars or len(columns.vars) != 1:
        return None
    is_along = is_same(place.stride(inner.vars[-1]), 1) and not is_same(place.stride(columns.vars[0]), 1)
    return place if is_along else None


def _transposed_panel(tiling: Tiling, right: Buffer, along: Affine) -> None:
    """A panel copied column by column, so that it is read in order; in square blocks, if there is no conversion."""
    product, columns, lanes = tiling.product, tiling.width, tiling.tile.lanes
    depth, squares = product.inner.extent, 0
    whole: int | str = 0
    is_plain = isinstance(product.right.value, Load) and product.right.buffer.dtype is tiling.one.accumulator
    if is_plain and len(product.inner.vars) == 1 and not is_symbolic(depth):
        squares = depth // lanes * lanes
        if squares:
            whole = columns // lanes * lanes if isinstance(columns, int) else "whole"
    if isinstance(whole, str):
        tiling.say(f"const {tiling.index} whole = {columns} / {lanes} * {lanes};")
    if whole != 0:
        _squares(tiling, right, whole, along, squares)
    _transposed(tiling, right, (whole, columns), 0)
    if squares and squares < depth:
        _transposed(tiling, right, (0, whole), squares)
    _zero_rest(tiling, right)


def _squares(tiling: Tiling, right: Buffer, whole: int | str, along: Affine, depth: int) -> None:
    """The square blocks of the first ``depth`` inner indices and the first ``whole`` columns."""
    product, last, lanes, width = tiling.product, tiling.product.columns.vars[0], tiling.tile.lanes, tiling.tile.columns
    name = tiling.scalars.need(Transpose(tiling.one.accumulator.name, lanes))
    target, before, column = right.name, tiling.depth, tiling.panel
    if whole != lanes:
        tiling.open(f"for ({tiling.index} column = 0; column < {whole}; column += {lanes})")
        column = tiling.defined(last, tiling.panel + COLUMN)
        target = f"{target} + column"
    begin = tiling.place(moved(along, product.columns, column, product.inner))
    source = offset_from(product.right.buffer.name, begin)
    if depth > lanes:
        tiling.open(f"for ({tiling.index} k = 0; k < {depth}; k += {lanes})")
        source, target = f"{source} + k", f"{target} + k * {width}"
    tiling.say(f"{name}({source}, {number(along.stride(last))}, {target}, {width});")
    tiling.close(tiling.depth - before)


def _transposed(tiling: Tiling, right: Buffer, columns: tuple[int | str, int | str], inside: int) -> None:
    """Columns one by one, from an inner index on."""
    if columns[0] == columns[1]:
        return
    product, last = tiling.product, tiling.product.columns.vars[0]
    tiling.open(f"for ({tiling.index} column = {columns[0]}; column < {columns[1]}; ++column)")
    value = replaced(product.right.value, {last: tiling.defined(last, tiling.panel + COLUMN)})
    before, place = tiling.depth, flat(product.inner.vars, product.inner.extents)
    for var, extent in zip(product.inner.vars, product.inner.extents, strict=True):
        if not is_symbolic(extent) and extent == inside + 1:
            place, value = (replaced(one, {var: Const(inside, INDEX)}) for one in (place, value))
        else:
            tiling.open(f"for ({tiling.index} {var.name} = {inside}; {var.name} < {number(extent)}; ++{var.name})")
    width = tiling.tile.columns
    target = place.value * width if isinstance(place, Const) else f"{tiling.scalars.operand(place)} * {width}"
    tiling.say(f"{right.name}[{target} + column] = {tiling.scalars.text(stored(value, right))};")
    tiling.close(1 + tiling.depth - before)


def stored(value: Scalar, to: Buffer) -> Scalar:
    """What a copy stores: it is not converted to the type of the accumulator and back."""
    return value.operand if isinstance(value, Cast) and value.operand.dtype is to.dtype else value


def _bounds(
    tiling: Tiling, valid: Sequence[Scalar], last: ScalarVar, start: Scalar, run: str
) -> tuple[tuple[str, str] | None, Scalar | None]:
    """The range of columns of a run with all terms valid, as text, and the condition left to check for each."""
    outside = [one for one in valid if last.name not in variables(one)]
    edges = {one: _edge(one, last, start) for one in valid if one not in outside}
    asked = [one for one, edge in edges.items() if edge is None]
    if len(asked) == len(valid):
        return None, reduce(and_, asked) if asked else None
    begin, end = "0", run
    for one, edge in edges.items():
        if edge is not None:
            before = f"{tiling.scalars.need('oi_negatives')}({tiling.scalars.text(edge[0])}, {edge[1]})"
            name = tiling.scalars.need("oi_min_i64")
            assert isinstance(one, Compare)
            begin, end = (f"{name}({before}, {run})", end) if one.op == "ge" else (begin, f"{name}({before}, {run})")
    if outside:
        end = f"{tiling.scalars.text(reduce(and_, outside))} ? {end} : 0"
    tiling.say("/* From begin to end, the window is inside the input. */")
    tiling.say(f"const {tiling.index} begin = {begin};")
    if begin == "0":
        tiling.say(f"const {tiling.index} end = {end};")
    else:
        tiling.say(f"const {tiling.index} end = {tiling.scalars.need('oi_max_i64')}(begin, {end});")
    return ("begin", "end"), reduce(and_, asked) if asked else None


def _zero_rest(tiling: Tiling, right: Buffer) -> None:
    """Zeros in the missing columns of the last panel."""
    width = tiling.tile.columns
    if tiling.width == width:
        return
    is_last = "" if tiling.is_one_panel else f"columns < {width} && "
    tiling.open(f"for ({tiling.index} k = 0; {is_last}k < {number(tiling.product.inner.extent)}; ++k)")
    if tiling.width == width - 1:
        tiling.say(f"{right.name}[k * {width} + {tiling.width}] = 0;")
    else:
        tiling.say(f"for ({tiling.index} column = {tiling.width}; column < {width}; ++column)")
        tiling.say(f"{PAD}{right.name}[k * {width} + column] = 0;")
    tiling.close()


def _edge(condition: Scalar, last: ScalarVar, start: Scalar) -> tuple[Scalar, int] | None:
    """A comparison of positions as a distance at the first column, and its growth per column; None for others."""
    if not isinstance(condition, Compare) or condition.op not in ("ge", "lt"):
        return None
    found = affine(condition.left - condition.right)
    step = 0 if found is None else found.stride(last)
    if found is None or is_symbolic(step) or step < 1:
        return None
    rest = Affine(found.first, {name: one for name, one in found.strides.items() if name != last.name})
    return rest.scalar() + start * Const(step, INDEX), step
