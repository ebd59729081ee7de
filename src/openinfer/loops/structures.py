"""Structured statements: what is computed, not by which loops.

Each says what it means in index maps and expressions, as a contraction does. ``openinfer.loops.expand`` has the plain
loops of each, for targets without a template of their own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

from openinfer.dtypes import DTYPES, INDEX, DType
from openinfer.loops.scalar import Buffer, Load, Scalar, ScalarVar

ACCUMULATOR = "acc"
"""The name of the accumulator in an epilogue."""
RANKED, ORIGIN = "ranked", "origin"
"""The names that the results of an order have for the key of a rank, and for its original position."""


@dataclass(frozen=True)
class Axis:
    """An index of a structure, and how far it runs from 0."""

    index: ScalarVar
    extent: int


@dataclass(frozen=True)
class Element:
    """An element that is read by an index map; ``value`` is an expression over it, or None for the element itself."""

    buffer: Buffer
    index: tuple[Scalar, ...]
    value: Scalar | None = None

    @property
    def scalar(self) -> Scalar:
        """The value in its own type."""
        return Load(self.buffer, self.index) if self.value is None else self.value


@dataclass(frozen=True)
class Result:
    """What is written: an element of a buffer, and the value that is rounded or wrapped to its dtype."""

    buffer: Buffer
    index: tuple[Scalar, ...]
    value: Scalar


@dataclass(frozen=True)
class Use:
    """An expression of a structure: the variables that the structure itself has for it, and the type it must have."""

    value: Scalar
    variables: tuple[ScalarVar, ...]
    dtype: DType
    what: str


@dataclass(frozen=True)
class Structure(ABC):
    """A structured statement. Fields are axes, elements, results, expressions, or plain facts."""

    called: ClassVar[str]
    """What messages call it."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The indices that it binds."""
        return tuple(part for part in self._parts() if isinstance(part, Axis))

    @property
    def elements(self) -> tuple[Element, ...]:
        """What it reads by index maps, which no expression can stand for."""
        return tuple(part for part in self._parts() if isinstance(part, Element))

    @property
    def results(self) -> tuple[Result, ...]:
        """What it writes."""
        return tuple(part for part in self._parts() if isinstance(part, Result))

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """All its expressions; those of results last."""
        own = [part for part in self._parts() if isinstance(part, Scalar)]
        made = [one for result in self.results for one in (*result.index, result.value)]
        return (*own, *(element.scalar for element in self.elements), *made)

    @property
    @abstractmethod
    def result_variables(self) -> tuple[ScalarVar, ...]:
        """The variables that indices and values of results are expressions over."""

    @abstractmethod
    def uses(self) -> Iterator[Use]:
        """Its expressions but for those of results, and what each may be."""

    def _parts(self) -> Iterator[Any]:
        for field in fields(self):
            value = getattr(self, field.name)
            yield from value if isinstance(value, tuple) else (value,)

    def with_parts(
        self,
        apply: Callable[[Scalar], Scalar] = lambda value: value,
        swap: Callable[[Buffer], Buffer] = lambda buffer: buffer,
        bind: Callable[[ScalarVar], ScalarVar] = lambda var: var,
    ) -> Self:
        """The same with its expressions, the buffers of elements and results, and its indices changed."""

        def made(part: Any) -> Any:
            match part:
                case Axis():
                    return replace(part, index=bind(part.index))
                case Result(buffer, index, value):
                    return Result(swap(buffer), tuple(map(apply, index)), apply(value))
                case Element(buffer, index, value):
                    return Element(swap(buffer), tuple(map(apply, index)), None if value is None else apply(value))
                case Scalar():
                    return apply(part)
                case tuple():
                    return tuple(map(made, part))
                case _:
                    return part

        return replace(self, **{field.name: made(getattr(self, field.name)) for field in fields(self)})

    def with_elements(self, change: Callable[[Element], Element]) -> Self:
        """The same with other elements."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(one) for name, one in own.items() if isinstance(one, Element)})


# --- running totals ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scan(Structure):
    """Running totals along an axis: at each position, what the terms from one end up to there come to.

    ``term`` is over the position, ``out`` over it and ``ACCUMULATOR``, the total there. Sums of floats may be taken in
    any order. A product of finite floats is a number: if some partial product is infinite and another factor 0, it is
    0. No term reads what is written.
    """

    called = "a scan"

    axis: Axis
    op: Literal["add", "mul"]
    accumulator: DType
    term: Scalar
    out: Result
    is_exclusive: bool = False
    """Whether the term at a position is not part of the total there."""
    is_reversed: bool = False
    """Whether it runs from the last position to the first."""

    @property
    def total(self) -> ScalarVar:
        """The total, as its result calls it."""
        return ScalarVar(ACCUMULATOR, self.accumulator)

    @property
    def initial(self) -> int:
        """The total of no terms."""
        return 0 if self.op == "add" else 1

    @property
    def result_variables(self) -> tuple[ScalarVar, ...]:
        """The position and the total."""
        return self.axis.index, self.total

    def uses(self) -> Iterator[Use]:
        """The term."""
        yield Use(self.term, (self.axis.index,), self.accumulator, "a term of a scan")


# --- elements in order ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Order(Structure):
    """The first elements in the order of their keys; those with equal keys stay in the order in which they are.

    ``key`` is over the position along ``axis``. ``outs`` are over ``rank``, whose extent is at most that of the axis,
    over ``RANKED``, the key of that rank, and over ``ORIGIN``, the position (i64) at which it is. NaN is larger than
    all numbers. No key reads what is written.
    """

    called = "an order"

    axis: Axis
    rank: Axis
    key: Scalar
    outs: tuple[Result, ...]
    is_descending: bool = False
    """Whether the largest comes first."""

    @property
    def ranked(self) -> ScalarVar:
        """The key of a rank, as results call it."""
        return ScalarVar(RANKED, self.key.dtype)

    @property
    def origin(self) -> ScalarVar:
        """Where an element stood, as results call it."""
        return ScalarVar(ORIGIN, DTYPES["i64"])

    @property
    def result_variables(self) -> tuple[ScalarVar, ...]:
        """The rank, and what has it."""
        return self.rank.index, self.ranked, self.origin

    def uses(self) -> Iterator[Use]:
        """The key."""
        yield Use(self.key, (self.axis.index,), self.key.dtype.compute, "a key")


# --- attention --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attend(Structure):
    """Attention of the heads of queries that share a head of keys: means of values, weighed by a softmax of scores.

    ``queries`` are over ``head``, ``row`` and ``depth``, ``keys`` over ``key`` and ``depth``, ``values`` over ``key``
    and ``column``. The score of a query and a key is over ``ACCUMULATOR``, their product summed along the depth, and
    over their indices; scale and mask are in it. Keys behind ``until`` and up to ``after``, expressions over ``row``,
    are hidden; so are those whose score is -inf: whatever their values are, they take no part. Weights are shares of
    the sum of ``exp(score - largest score)``. ``out`` is over ``ACCUMULATOR``, the mean, ``head``, ``row`` and
    ``column``; the mean of no values is 0. Nothing that is read is written.
    """

    called = "an attention"

    head: Axis
    row: Axis
    key: Axis
    depth: Axis
    column: Axis
    queries: Element
    keys: Element
    values: Element
    accumulator: DType
    """In what products and weights are added up."""
    score: Scalar
    out: Result
    until: Scalar | None = None
    """The last key that a query sees; None where it is the last one."""
    after: Scalar | None = None
    """The key before the first that a query sees; None where there is none."""

    @property
    def total(self) -> ScalarVar:
        """A sum, as the score and the result call it."""
        return ScalarVar(ACCUMULATOR, self.accumulator)

    @property
    def result_variables(self) -> tuple[ScalarVar, ...]:
        """Where the mean is, and the mean."""
        return self.head.index, self.row.index, self.column.index, self.total

    def uses(self) -> Iterator[Use]:
        """Factors, scores and borders."""
        head, row, key, depth, column = (axis.index for axis in self.axes)
        for what, element, seen in (
            ("a query", self.queries, (head, row, depth)),
            ("a key", self.keys, (key, depth)),
            ("a value", self.values, (key, column)),
        ):
            yield Use(element.scalar, seen, element.scalar.dtype, what)
        yield Use(self.score, (head, row, key, self.total), self.accumulator, "a score")
        for border in (self.until, self.after):
            if border is not None:
                yield Use(border, (row,), INDEX, "a border of visible keys")
