"""Attention as loops: scores, their softmax, the weighted mean of the values.

Both products are contractions over scratch memory that holds the scores of a block of queries. A score of -inf masks
its key, whatever the value is. Multiplying an infinite or NaN value by 0 would not mask it, so values are checked
first.
"""

from collections.abc import Mapping
from math import inf

from openinfer.loops.build import Builder, cast, const, index, load, math, pair, select
from openinfer.loops.dim import is_same, is_symbolic
from openinfer.loops.ir import Attend, Buffer, Contraction, Element, Scalar, ScalarVar
from openinfer.loops.rewrite import replaced

HIDDEN = -1.0
"""Marks a hidden key in a row of weights; all other weights are nonnegative or NaN."""
_SCORES = 1 << 16
"""The most scores in memory at a time, unless one query of every head needs more."""
_DYNAMIC_SCORES = 1 << 18
"""The limit for a dynamic number of queries, which cannot be split into blocks of a fixed size."""

Substitution = Mapping[Scalar, Scalar]
"""The expressions that replace the variables of the structure."""


def attended(one: Attend, builder: Builder) -> None:
    """Scores, then weights, then means, one block of queries at a time."""
    _Loops(one, builder).run()


class _Loops:
    """The loops of one attention, with their scratch memory."""

    def __init__(self, one: Attend, builder: Builder) -> None:
        self._one = one
        self._builder = builder
        self._dtype = one.accumulator
        self._heads, self._keys, self._columns = one.head.extent, one.key.extent, one.column.extent
        self._block = self._block_rows()
        self._scores = builder.buffer(self._dtype, (self._heads, self._block, self._keys), "scores")
        self._means = builder.buffer(self._dtype, (self._heads, self._block, self._columns), "means")

    def _block_rows(self) -> int:
        """The number of queries per block: all of them, or about the same number in every block."""
        rows = self._one.row.extent
        each = max(int(self._heads) * int(self._keys), 1)
        if is_symbolic(rows):
            return rows if int(rows) * each <= _DYNAMIC_SCORES else 1
        most = max(_SCORES // each, 1)
        if rows <= most:
            return rows
        blocks = -(-rows // most)
        return -(-rows // blocks)

    def run(self) -> None:
        rows, block = self._one.row.extent, self._block
        count = "all queries" if is_same(block, rows) else f"blocks of {block} quer{'y' if block == 1 else 'ies'}"
        self._builder.note(f"Scores, their softmax, then the weighted mean of the values, for {count} at a time.")
        finite = self._finite()
        if is_same(block, rows):
            self._rows(index(0), finite)
            return
        blocks = rows if block == 1 else -(-rows // block)
        with self._builder.loop(blocks, hint="block") as number:
            # The last block starts early enough to be a full one, so a few queries are computed twice.
            first = number * index(block)
            start = self._builder.let(first if block == 1 else pair("min", first, index(rows - block)), "start")
            self._rows(start, finite)

    def _rows(self, start: Scalar, finite: Scalar) -> None:
        one, builder = self._one, self._builder
        self._scored(start)
        self._weighed(finite)
        self._mixed(finite)
        with builder.loops((self._heads, self._block, self._columns)) as (head, row, column):
            parts = self._parts(head=head, row=start + row, column=column)
            parts[one.total] = load(self._means, head, row, column)
            place = tuple(replaced(position, parts) for position in one.out.index)
            builder.store(one.out.buffer, place, replaced(one.out.value, parts))

    def _parts(self, **positions: Scalar) -> dict[Scalar, Scalar]:
        """Positions to substitute for the indices of the named axes."""
        return {getattr(self._one, name).index: position for name, position in positions.items()}

    def _value(self, key: Scalar, column: Scalar) -> Scalar:
        return cast(replaced(self._one.values.scalar, self._parts(key=key, column=column)), self._dtype)

    def _finite(self) -> Scalar:
        """Whether all values are finite, so that all their products with 0 are 0."""
        builder = self._builder
        total = builder.local(0, self._dtype, "zeros")
        with builder.loop(self._keys, hint="j") as key, builder.loop(self._columns, hint="e") as column:
            builder.assign(total, total + self._value(key, column) * 0.0)
        return builder.let(total.eq(0.0), "finite")

    def _contract(
        self,
        out: Buffer,
        free: tuple[ScalarVar, ...],
        inner: tuple[ScalarVar, int],
        factors: tuple[Element, Element],
        made: Scalar,
    ) -> None:
        """Sum the products of two factors along one index."""
        a, b = factors
        var, extent = inner
        self._builder.add(
            Contraction(
                out=out,
                a=a.buffer,
                b=b.buffer,
                free=free,
                extents=out.shape,
                bound=(var,),
                reduced=(extent,),
                out_index=free,
                a_index=a.index,
                b_index=b.index,
                accumulator=self._dtype,
                epilogue=made,
                a_value=a.value,
                b_value=b.value,
            )
        )

    # --- scores ---------------------------------------------------------------------------------------------------

    def _scored(self, start: Scalar) -> None:
        one, builder = self._one, self._builder
        free = head, row, key = tuple(builder.fresh("i") for _ in range(3))
        inner = builder.fresh("k")
        parts = self._parts(head=head, row=start + row, key=key, depth=inner)
        score = replaced(self._visible(), parts)
        factors = _placed(one.queries, parts), _placed(one.keys, parts)
        self._contract(self._scores, free, (inner, one.depth.extent), factors, score)

    def _visible(self) -> Scalar:
        """The score, or -inf where the query does not see the key."""
        one, score = self._one, self._one.score
        if one.until is not None:
            score = select(one.key.index <= one.until, score, -inf)
        if one.after is not None:
            score = select(one.after < one.key.index, score, -inf)
        return score

    # --- weights --------------------------------------------------------------------------------------------------

    def _weighed(self, finite: Scalar) -> None:
        """Replace the scores by softmax weights, in place."""
        builder, scores, dtype = self._builder, self._scores, self._dtype
        with builder.loops((self._heads, self._block)) as row:
            top = builder.local(-inf, dtype, "top")
            with builder.loop(self._keys, hint="j") as key:
                score = builder.let(load(scores, *row, key), "score")
                # NaN never becomes the maximum, but it makes the sum NaN, and so the row.
                builder.assign(top, select(score > top, score, top))
            shift = builder.let(select(top.eq(-inf), 0.0, top), "shift")
            total = builder.local(0, dtype, "total")
            with builder.loop(self._keys, hint="j") as key:
                score = builder.let(load(scores, *row, key), "score")
                weight = builder.let(math("exp", score - shift), "weight")
                # exp(-inf) is 0, so hidden keys do not change the sum.
                builder.assign(total, total + weight)
                builder.store(scores, (*row, key), select(score.eq(-inf), HIDDEN, weight))
            hidden = builder.let(select(finite, const(0, dtype), HIDDEN), "hidden")
            with builder.loop(self._keys, hint="j") as key:
                weight = builder.let(load(scores, *row, key), "weight")
                # Divide here and not at the end, so that a sum of large values stays finite.
                builder.store(scores, (*row, key), select(weight < 0.0, hidden, weight / total))

    # --- means ----------------------------------------------------------------------------------------------------

    def _mixed(self, finite: Scalar) -> None:
        """The mean of the values: a contraction if all values are finite, otherwise a loop over the visible keys."""
        one, builder = self._one, self._builder
        free = head, row, column = tuple(builder.fresh("i") for _ in range(3))
        key = builder.fresh("k")
        with builder.when(finite):
            weights = Element(self._scores, (head, row, key))
            values = _placed(one.values, self._parts(key=key, column=column))
            self._contract(self._means, free, (key, self._keys), (weights, values), one.total)
        with builder.when(~finite), builder.loops((self._heads, self._block, self._columns)) as where:
            total = builder.local(0, self._dtype, "mean")
            with builder.loop(self._keys, hint="j") as visible:
                weight = builder.let(load(self._scores, *where[:2], visible), "weight")
                with builder.when(~(weight < 0.0)):
                    builder.assign(total, total + weight * self._value(visible, where[2]))
            builder.store(self._means, where, total)


def _placed(element: Element, parts: Substitution) -> Element:
    """An element with positions substituted for its indices."""
    place = tuple(replaced(one, parts) for one in element.index)
    return Element(element.buffer, place, None if element.value is None else replaced(element.value, parts))
