"""Attention of one query after the other, by a subgroup: for queries whose means are not finite on matrix units.

A thread computes the scores of every 32nd key, three times over: for the largest, for the sum of weights, and for the
weights themselves. These go from the thread that has them to all others, each of which has some columns of the mean.
"""

from collections.abc import Callable, Iterator
from math import inf

from openinfer.dtypes import DTYPES
from openinfer.loops.build import cast, const, index, math, select
from openinfer.loops.expand_attend import HIDDEN
from openinfer.loops.ir import Attend, Combine, For, If, Let, Local, Scalar, ScalarVar, SetLocal, Statement
from openinfer.loops.rewrite import Statements, replaced
from openinfer.synth.targets.simt.attention_plan import mean_stored, sees
from openinfer.synth.targets.simt.wide import FreshNames

_F32 = DTYPES["f32"]
_Use = Callable[[ScalarVar, ScalarVar], Statements]
"""What is done with a key and its score."""


def single_queries(one: Attend, names: FreshNames, place: tuple[Scalar, Scalar, Scalar], size: tuple[int, int]) -> For:
    """The loop over some queries.

    ``place`` is the thread in its subgroup, the head, and the first query; ``size`` the number of queries, and that of
    threads in a subgroup.
    """
    return _SingleQueries(one, names, place, size).loop()


class _SingleQueries:
    def __init__(
        self, one: Attend, names: FreshNames, place: tuple[Scalar, Scalar, Scalar], size: tuple[int, int]
    ) -> None:
        self._one, self._names = one, names
        self._thread, self._head, self._first = place
        self._count, self._width = size
        self._row = names.var("row")

    def _var(self, name: str) -> ScalarVar:
        return self._names.var(name, _F32)

    def loop(self) -> For:
        """A query per iteration."""
        number = self._names.var("number")
        inside = (If(self._row < self._one.row.extent, tuple(self._query())),)
        return For(number, index(self._count), (Let(self._row, self._first + number), *inside))

    def _query(self) -> Iterator[Statement]:
        one, columns = self._one, -(-self._one.column.extent // self._width)
        largest, total, shift = self._var("largest"), self._var("total"), self._var("shift")
        yield Local(largest, const(-inf, _F32))
        yield self._over_keys(lambda _key, score: (SetLocal(largest, select(score > largest, score, largest)),))
        yield self._joined(largest, lambda a, b: select(b > a, b, a))
        yield Let(shift, select(largest.eq(-inf), 0.0, largest))
        yield Local(total, const(0, _F32))
        yield self._over_keys(lambda _key, score: (SetLocal(total, total + math("exp", score - shift)),))
        yield self._joined(total, lambda a, b: a + b)
        means = [self._var("mean") for _ in range(columns)]
        yield from (Local(mean, const(0, _F32)) for mean in means)
        yield self._over_keys(lambda key, score: self._added(key, score, (shift, total), means))
        for number, mean in enumerate(means):
            column = self._names.var("column")
            yield Let(column, self._thread + number * self._width)
            yield If(column < one.column.extent, (mean_stored(one, (self._head, self._row, column), mean),))

    def _over_keys(self, use: _Use) -> For:
        """Uses every key of this thread, and its score: -inf if the query does not see it."""
        one, names = self._one, self._names
        turn, key, score, total = names.var("turn"), names.var("key"), self._var("score"), self._var("sum")
        depth = names.var("depth")
        known: dict[Scalar, Scalar] = {
            one.head.index: self._head,
            one.row.index: self._row,
            one.key.index: key,
            one.depth.index: depth,
            one.total: total,
        }
        query, other = (cast(replaced(element.scalar, known), _F32) for element in (one.queries, one.keys))
        scored = (
            Local(total, const(0, _F32)),
            For(depth, index(one.depth.extent), (SetLocal(total, total + query * other),)),
            SetLocal(score, replaced(one.score, known)),
        )
        body = (
            Let(key, turn * self._width + self._thread),
            Local(score, const(-inf, _F32)),
            If(sees(one, known), scored),
            *use(key, score),
        )
        return For(turn, index(one.key.extent + (self._width - 1)) // self._width, body)

    def _joined(self, var: ScalarVar, join: Callable[[Scalar, Scalar], Scalar]) -> Statement:
        other = self._var("other")
        return Combine((var,), (other,), (join(var, other),), self._width)

    def _added(
        self, key: ScalarVar, score: ScalarVar, scale: tuple[ScalarVar, ScalarVar], means: list[ScalarVar]
    ) -> Statements:
        """Adds the values of 32 keys, one for each thread, unless the query does not see them."""
        one, names = self._one, self._names
        shift, total = scale
        weight, given, owner = self._var("weight"), self._var("given"), names.var("owner")
        seen = names.var("seen")
        sums: list[Statement] = []
        for number, mean in enumerate(means):
            column = names.var("column")
            value = cast(replaced(one.values.scalar, {one.key.index: seen, one.column.index: column}), _F32)
            sums.append(Let(column, self._thread + number * self._width))
            sums.append(If(column < one.column.extent, (SetLocal(mean, mean + given * value),)))
        body = (
            Local(given, select(self._thread.eq(owner), weight, 0.0)),
            self._joined(given, lambda a, b: a + b),
            If(~(given < 0.0), (Let(seen, key - self._thread + owner), *sums)),
        )
        return (
            Let(weight, select(score.eq(-inf), HIDDEN, math("exp", score - shift) / total)),
            For(owner, index(self._width), body),
        )
