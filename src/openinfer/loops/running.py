"""Running totals, updated term by term, as variables of a kernel."""

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import Builder, cast, index, pair, select, unary
from openinfer.loops.dim import most_elements
from openinfer.loops.ir import Scalar

F64 = DTYPES["f64"]

_BLOCK = 256
"""The maximum number of terms per 32-bit accumulator."""


class RunningSum:
    """A sum whose value is needed after every term.

    A long f32 sum has an accumulator for the terms of a block, one for the blocks of a block of blocks, and so on: a
    single one would lose small terms.
    """

    def __init__(self, builder: Builder, dtype: DType, extent: int) -> None:
        self._builder = builder
        count = most_elements((extent,)) if dtype.name == "f32" else 1
        self._levels = [builder.local(0, dtype)]
        if count > _BLOCK:
            builder.note(f"Running sums have an accumulator for every {_BLOCK} terms, and one for their sums.")
        while count > _BLOCK:
            self._levels.append(builder.local(0, dtype))
            count = -(-count // _BLOCK)

    def begin(self, step: Scalar) -> None:
        """Before the term of a step: pass on the sum of a full block."""
        self._hand_on(step, 1)

    def _hand_on(self, step: Scalar, level: int) -> None:
        if level == len(self._levels):
            return
        builder, (inner, outer) = self._builder, self._levels[level - 1 : level + 1]
        with builder.when(pair("rem", step, index(_BLOCK**level)).eq(0)):
            builder.assign(outer, outer + inner)
            builder.assign(inner, 0)
            self._hand_on(step, level + 1)

    def take(self, term: Scalar) -> None:
        """Add a term."""
        self._builder.assign(self._levels[0], self._levels[0] + term)

    @property
    def value(self) -> Scalar:
        """The sum of the terms so far."""
        found: Scalar = self._levels[0]
        for level in self._levels[1:]:
            found = level + found
        return found


class RunningProduct:
    """A running product; floats use f64, since partial products may leave the range long before the final one does."""

    def __init__(self, builder: Builder, dtype: DType) -> None:
        self._builder = builder
        self._is_float = dtype.kind == "float"
        self._type = F64 if self._is_float else dtype
        self._dtype = dtype
        self._total = builder.local(1, self._type)
        # NaN once a factor was infinite or NaN, since 0 times it is NaN.
        self._odd = builder.local(0, F64) if self._is_float else None

    def begin(self, step: Scalar) -> None:
        """Before the factor of a step: nothing to do."""

    def take(self, value: Scalar) -> None:
        """Multiply by a factor."""
        factor = self._builder.let(cast(value, self._type))
        self._builder.assign(self._total, self._total * factor)
        if self._odd is not None:
            self._builder.assign(self._odd, self._odd + factor * 0)

    @property
    def value(self) -> Scalar:
        """The product so far. For finite factors it is a number: 0 times an overflow is 0."""
        if self._odd is None:
            return self._total
        lost = unary("isnan", self._total) & ~unary("isnan", self._odd)
        return cast(select(lost, 0, self._total), self._dtype)
