"""Contractions without tiles, in C: contiguous accumulators, which a compiler can vectorize."""

from collections.abc import Sequence

from openinfer.loops.affine import position, variables
from openinfer.loops.blocked import BLOCK as TERMS
from openinfer.loops.build import cast
from openinfer.loops.cse import named
from openinfer.loops.dim import is_same, is_symbolic, most_elements, span
from openinfer.loops.ir import Binary, Contraction, Load, ScalarVar
from openinfer.synth.targets.cpu.emit.tiling import COLUMN, PAD, PANEL, counted, least, loop, number, of_sum
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter

_WIDTH = 64
"""The most accumulators of a block, without tiles."""
_MOST_TERMS = 4 * TERMS
"""The most terms that such an accumulator takes."""


def side_by_side(one: Contraction, scalars: ScalarPrinter) -> list[str] | None:
    """A contraction with contiguous accumulators, which compilers vectorize; None if they would not be contiguous.

    The fastest index of the result becomes the innermost loop: no sum changes its order.
    """
    last = _fastest(one)
    return None if last is None else _SideBySide(one, last, scalars).lines()


class _SideBySide:
    """The loops over accumulators along one index; if all of them fit in a block, the index itself counts them."""

    def __init__(self, one: Contraction, last: ScalarVar, scalars: ScalarPrinter) -> None:
        self._one, self._last, self._scalars = one, last, scalars
        self._kind = scalars.dialect.type_of(one.accumulator)
        self._extent = one.extents[one.free.index(last)]
        most = span(self._extent)[1]
        self._is_split = most > _WIDTH
        self._width = min(max(most, 1), _WIDTH)
        self._is_long = one.accumulator.name == "f32" and most_elements(one.reduced) > _MOST_TERMS
        extents = [span(extent)[1] for extent in (*one.extents, *one.reduced)]
        self._index = counted(scalars, (*one.free, *one.bound, PANEL, COLUMN), extents)

    def lines(self) -> list[str]:
        """All loops, outermost first."""
        pairs = zip(self._one.free, self._one.extents, strict=True)
        heads = [loop(self._index, var.name, count) for var, count in pairs if var != self._last]
        return _nested(heads, self._split([*self._sums(), *self._results()]))

    def _split(self, body: list[str]) -> list[str]:
        """The loop over blocks of accumulators, if there are several, and the size of each unless all are full."""
        if not self._is_split:
            return body if self._has_scope else ["{", *(PAD + line for line in body), "}"]
        if not self._is_even:
            body = [f"const {self._index} columns = {least(number(self._extent), 'n0', _WIDTH)};", *body]
        return _nested([f"for ({self._index} n0 = 0; n0 < {number(self._extent)}; n0 += {_WIDTH})"], body)

    @property
    def _has_scope(self) -> bool:
        """Whether a loop around the sums gives them a scope."""
        return len(self._one.free) > 1

    @property
    def _is_even(self) -> bool:
        return not is_symbolic(self._extent) and self._extent % _WIDTH == 0

    @property
    def _place(self) -> str:
        """The index of an accumulator."""
        return "column" if self._is_split else self._last.name

    @property
    def _over_columns(self) -> str:
        """The head of a loop over the accumulators."""
        if not self._is_split:
            return loop(self._index, self._last.name, self._extent)
        return f"for ({self._index} column = 0; column < {_WIDTH if self._is_even else 'columns'}; ++column)"

    def _columns(self, *body: str) -> list[str]:
        """A loop over the accumulators that defines the index along them."""
        if not self._is_split:
            return _nested([self._over_columns], body)
        return _nested([self._over_columns], [f"const {self._index} {self._last.name} = n0 + column;", *body])

    def _sums(self) -> list[str]:
        """The accumulators, and the loops over their terms; long sums are sums of partial sums."""
        sums = [*self._assumed(), f"{self._kind} sums[{self._width}] = {{0}};"]
        heads = [
            loop(self._index, var.name, count) for var, count in zip(self._one.bound, self._one.reduced, strict=True)
        ]
        if not self._is_long:
            return [*sums, *_nested(heads, self._terms("sums"))]
        if len(heads) == 1:
            (var,), (count,) = self._one.bound, self._one.reduced
            name = var.name
            heads = [
                f"for ({self._index} k0 = 0; k0 < {number(count)}; k0 += {TERMS})",
                f"for ({self._index} {name} = k0; {name} < k0 + {TERMS} && {name} < {number(count)}; ++{name})",
            ]
        part = f"{self._kind} part[{self._width}] = {{0}};"
        join = f"{self._over_columns} sums[{self._place}] += part[{self._place}];"
        return [*sums, *_nested(heads[:1], [part, *_nested(heads[1:], self._terms("part")), join])]

    def _assumed(self) -> list[str]:
        """That a dynamic extent is at most the number of accumulators."""
        if self._is_split or not is_symbolic(self._extent):
            return []
        return [f"{self._scalars.need('oi_assume')}({number(self._extent)} <= {self._width});"]

    def _terms(self, sums: str) -> list[str]:
        """The loop over the accumulators, which adds a term to each if it is valid."""
        left, right = (cast(factor, self._one.accumulator) for factor in self._one.factors)
        total, valid = ScalarVar(f"{sums}[{self._place}]", self._one.accumulator), self._one.valid
        term = f"{total.name} = {self._scalars.text(Binary('add', total, Binary('mul', left, right)))};"
        if valid is None:
            return self._columns(term)
        condition = f"if ({self._scalars.text(valid)})"
        if self._last.name not in variables(valid):
            return _nested([condition], self._columns(term))
        return self._columns(*_nested([condition], [term]))

    def _results(self) -> list[str]:
        """Computes the results from the sums, and stores them."""
        one, scalars = self._one, self._scalars
        sums, epilogue = of_sum(one.epilogue, one.accumulator, self._kind, f"sums[{self._place}]")
        lets, value = named(epilogue, *one.out_index, Load(one.out, ()))
        return self._columns(
            *sums,
            *map(scalars.constant, lets),
            scalars.store(one.out, scalars.offset(one.out, one.out_index), value),
        )


def _nested(heads: Sequence[str], body: Sequence[str]) -> list[str]:
    """Lines inside loops or conditions."""
    lines = [*body]
    for head in reversed(heads):
        lines = [f"{head} {{", *(PAD + line for line in lines), "}"]
    return lines


def _fastest(one: Contraction) -> ScalarVar | None:
    """The free index along which results are contiguous, if some factor is contiguous along it, too."""
    out = position(one.out, one.out_index)
    places = [position(one.a, one.a_index), position(one.b, one.b_index)]
    if out is None or None in places or one.accumulator.kind == "bool" or one.out.dtype.is_packed:
        return None
    unit = [var for var in one.free if is_same(out.stride(var), 1)]
    if len(unit) != 1 or not any(place is not None and is_same(place.stride(unit[0]), 1) for place in places):
        return None
    return unit[0]
