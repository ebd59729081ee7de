"""Contractions without tiles, in C: sums side by side, which a compiler can make vectors of."""

from openinfer.loops.affine import position, variables
from openinfer.loops.build import cast
from openinfer.loops.cse import named
from openinfer.loops.dim import is_same, most_elements
from openinfer.loops.ir import ACCUMULATOR, Binary, Contraction, Scalar, Var
from openinfer.synth.targets.cpu.blocked import BLOCK as TERMS
from openinfer.synth.targets.cpu.emit.tiling import COLUMN, PAD, PANEL, least, loop, number
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter

_WIDTH = 64
"""So many sums are computed next to each other where there are no tiles."""
_MOST_TERMS = 4 * TERMS
"""The most terms that such a sum takes in at once."""


def side_by_side(one: Contraction, scalars: ScalarPrinter) -> list[str] | None:
    """A contraction as sums next to each other, which a compiler can make vectors of; None where they would not lie so.

    The index that runs fastest in the result is the innermost loop: no sum changes its order.
    """
    last = _fastest(one)
    if last is None:
        return None
    kind, index = scalars.dialect.type_of(one.accumulator), scalars.dialect.index
    extent = one.extents[one.free.index(last)]
    scalars.positions |= {var.name for var in (*one.free, *one.bound, PANEL, COLUMN)}
    outer = [pair for pair in zip(one.free, one.extents, strict=True) if pair[0] != last]
    heads = [loop(index, var.name, count) for var, count in outer]
    lines = [PAD * depth + f"{head} {{" for depth, head in enumerate(heads)]
    left, right = (cast(factor, one.accumulator) for factor in one.factors)
    is_long = one.accumulator.name == "f32" and most_elements(one.reduced) > _MOST_TERMS
    total = Var("part[column]" if is_long else "sums[column]", one.accumulator)
    term = f"{total.name} = {scalars.text(Binary('add', total, Binary('mul', left, right)))};"
    inner = _inner_loops(one, _column_loop(last, one.valid, term, scalars), index, kind if is_long else None)
    lets, value = named(one.epilogue, "v")
    body = [
        f"for ({index} n0 = 0; n0 < {number(extent)}; n0 += {_WIDTH}) {{",
        f"{PAD}const {index} columns = {least(number(extent), 'n0', _WIDTH)};",
        f"{PAD}{kind} sums[{_WIDTH}] = {{0}};",
        *(PAD + line for line in inner),
        f"{PAD}for ({index} column = 0; column < columns; ++column) {{",
        f"{PAD * 2}{_at_column(index, last)}",
        f"{PAD * 2}const {kind} {ACCUMULATOR} = sums[column];",
        *(PAD * 2 + scalars.constant(let) for let in lets),
        PAD * 2 + scalars.store(one.out, scalars.offset(one.out, one.out_index), value),
        f"{PAD}}}",
        "}",
    ]
    lines += [PAD * len(heads) + line for line in body]
    return [*lines, *(PAD * depth + "}" for depth in reversed(range(len(heads))))]


def _inner_loops(one: Contraction, terms: list[str], index: str, kind: str | None) -> list[str]:
    """The loops over what is summed; with a kind, in partial sums of it: of a block, or of each outermost index."""
    heads = [loop(index, var.name, count) for var, count in zip(one.bound, one.reduced, strict=True)]
    if kind is not None and len(heads) == 1:
        (var,), (count,) = one.bound, one.reduced
        heads = [
            f"for ({index} k0 = 0; k0 < {number(count)}; k0 += {TERMS})",
            f"for ({index} {var.name} = k0; {var.name} < k0 + {TERMS} && {var.name} < {number(count)}; ++{var.name})",
        ]
    inside = [
        *(PAD * depth + f"{head} {{" for depth, head in enumerate(heads[1:])),
        *(PAD * (len(heads) - 1) + line for line in terms),
        *(PAD * depth + "}" for depth in reversed(range(len(heads) - 1))),
    ]
    if kind is not None:
        join = f"for ({index} column = 0; column < columns; ++column) sums[column] += part[column];"
        inside = [f"{kind} part[{_WIDTH}] = {{0}};", *inside, join]
    return [
        *([f"{heads[0]} {{"] if heads else []),
        *(PAD * bool(heads) + line for line in inside),
        *["}"] * bool(heads),
    ]


def _column_loop(last: Var, valid: Scalar | None, term: str, scalars: ScalarPrinter) -> list[str]:
    """The loop over the sums, which adds a term to each that counts."""
    index = scalars.dialect.index
    head, at_column = f"for ({index} column = 0; column < columns; ++column) {{", _at_column(index, last)
    if valid is None:
        return [head, f"{PAD}{at_column}", f"{PAD}{term}", "}"]
    if last.name not in variables(valid):
        inner = [head, f"{PAD}{at_column}", f"{PAD}{term}", "}"]
        return [f"if ({scalars.text(valid)}) {{", *(PAD + line for line in inner), "}"]
    return [head, f"{PAD}{at_column}", f"{PAD}if ({scalars.text(valid)}) {term}", "}"]


def _at_column(index: str, last: Var) -> str:
    return f"const {index} {last.name} = n0 + column;"


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
