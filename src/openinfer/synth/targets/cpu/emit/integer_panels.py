"""Panels that are stored as integers, in C: converted to floats for all rows at once, or as they are used."""

from openinfer.loops.ir import Buffer, Const
from openinfer.synth.targets.cpu.emit.tiles import SHIFT
from openinfer.synth.targets.cpu.emit.tiling import COLUMN, Tiling, loop, number, offset_from
from openinfer.synth.targets.cpu.product import as_one
from openinfer.synth.targets.cpu.quantized import GroupScales, Integers, integers_of
from openinfer.synth.targets.cstyle.code import ExprText, joined


def integers(tiling: Tiling) -> Integers | None:
    """The integers that columns are stored as, if any."""
    return integers_of(tiling.one, tiling.product.right.buffer) if tiling.tile.has_panels else None


def is_shifted(tiling: Tiling) -> bool:
    """Whether integers are read as 8 more than their value."""
    return are_halves(tiling) and tiling.product.right.buffer.dtype.kind == "int"


def has_zero(tiling: Tiling) -> bool:
    """Whether something is subtracted from the integers as they are read."""
    found = integers(tiling)
    return found is not None and (found.zero is not None or are_halves(tiling))


def are_halves(tiling: Tiling) -> bool:
    """Whether pairs of columns share bytes."""
    return integers(tiling) is not None and tiling.product.right.buffer.dtype.is_packed


def stored_panel(tiling: Tiling, place: ExprText) -> tuple[str, str]:
    """A stored panel at a position; integers are converted to floats for all rows at once, or as they are used."""
    tile, buffer, found, is_half = tiling.tile, tiling.product.right.buffer, integers(tiling), are_halves(tiling)
    if found is None:
        return offset_from(buffer.name, place), str(tile.columns)
    is_moved = is_half and place.text != "0"
    panel = offset_from(buffer.name, joined(place, "/", ExprText("2")) if is_moved else place)
    row = tile.columns // 2 if is_half else tile.columns
    if has_zero(tiling) and found.groups is None:
        _zero_points(tiling, found)
    if tile.right is None:
        return panel, str(row)
    tiling.say(f"const {tiling.scalars.dialect.stored_type(buffer.dtype)} *panel = {panel};")
    _as_floats(tiling, tile.right, row)
    return tile.right.name, str(tile.columns)


def _zero_points(tiling: Tiling, found: Integers) -> None:
    """The values subtracted from the integers of each column."""
    tile = tiling.tile
    zero = Const(0, tiling.one.accumulator) if found.zero is None else found.zero
    value = as_one(zero, tiling.product.columns, tiling.panel + COLUMN)
    shift = (8 if is_shifted(tiling) else 0) + (SHIFT if are_halves(tiling) and tile.right is None else 0)
    text = f"{tiling.scalars.operand(value)} + {float(shift)}f" if shift else tiling.scalars.text(value)
    if shift >= SHIFT:
        tiling.say("/* 4-bit integers n are loaded as the float 2^23 + n: see oi_load_*. */")
    tiling.say(f"{tiling.kind} zero[{tile.columns}] = {{0}};")
    tiling.say(f"for ({tiling.index} column = 0; column < {tiling.width}; ++column) zero[column] = {text};")


def _as_floats(tiling: Tiling, right: Buffer, row: int) -> None:
    """Converts all integers of a panel to floats, in scratch memory; ``row`` is the size of a row in bytes."""
    tile, before, found = tiling.tile, tiling.depth, integers(tiling)
    groups = None if found is None else found.groups
    if groups is None:
        tiling.open(f"for ({tiling.index} k = 0; k < {number(tiling.product.inner.extent)}; ++k, panel += {row})")
        tiling.say(f"{tiling.kind} *to = {right.name} + k * {tile.columns};")
    else:
        _open_group(tiling, groups, right, row)

    def real(integer: str, at: str) -> str:
        """The value that an integer of a column stands for."""
        if groups is None:
            return f"{integer} - zero[{at}]" if has_zero(tiling) else integer
        moved = f"({integer} - 8.0f)" if is_shifted(tiling) else integer
        return f"{moved} * scale[{at}]{f' + offset[{at}]' if groups.offset is not None else ''}"

    if not are_halves(tiling):
        tiling.open(f"for ({tiling.index} column = 0; column < {tile.columns}; ++column)")
        tiling.say(f"to[column] = {real(f'({tiling.kind})panel[column]', 'column')};")
    else:
        flip = " ^ 8" * is_shifted(tiling)
        is_one = tile.columns == 2 * tile.lanes
        if is_one:
            tiling.open(f"for ({tiling.index} column = 0; column < {tile.lanes}; ++column)")
        else:
            tiling.open(f"for ({tiling.index} first = 0; first < {tile.columns}; first += {2 * tile.lanes})")
            tiling.open(f"for ({tiling.index} column = first; column < first + {tile.lanes}; ++column)")
        tiling.say(f"enum {{ half = {tile.lanes} }};")
        tiling.say(f"const uint8_t byte = panel[column{'' if is_one else ' - first / 2'}];")
        low, high = (f"({tiling.kind})(({code}){flip})" for code in ("byte & 15", "byte >> 4"))
        tiling.say(f"to[column] = {real(low, 'column')};")
        tiling.say(f"to[column + half] = {real(high, 'column + half')};")
    tiling.close(tiling.depth - before)


def _open_group(tiling: Tiling, groups: GroupScales, right: Buffer, row: int) -> None:
    """Opens the loops over groups and their terms; converts the scales and offsets of columns once per group."""
    tile, (group, _) = tiling.tile, tiling.product.inner.vars
    tiling.open(loop(tiling.index, group.name, tiling.product.inner.extents[0]))
    for name, load in zip(("scale", "offset"), groups.loads, strict=False):
        value = tiling.scalars.text(as_one(load, tiling.product.columns, tiling.panel + COLUMN))
        tiling.say(f"{tiling.kind} {name}[{tile.columns}];")
        tiling.say(f"for ({tiling.index} column = 0; column < {tile.columns}; ++column) {name}[column] = {value};")
    tiling.open(f"for ({tiling.index} term = 0; term < {groups.size}; ++term, panel += {row})")
    tiling.say(f"{tiling.kind} *to = {right.name} + ({group.name} * {groups.size} + term) * {tile.columns};")
