"""Structured statements: what is computed, not with which loops.

Like contractions, they are defined by index maps and expressions. ``openinfer.loops.expand`` has the plain loops of
each, for targets without a template of their own.
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
"""The names by which results of an order refer to the key of a rank and to its original position."""


@dataclass(frozen=True)
class Axis:
    """An index of a structure, which runs from 0 to its extent."""

    index: ScalarVar
    extent: int


@dataclass(frozen=True)
class Element:
    """An element read through an index map; ``value`` is an expression over it, or None for the element itself."""

    buffer: Buffer
    index: tuple[Scalar, ...]
    value: Scalar | None = None

    @property
    def scalar(self) -> Scalar:
        """The value in its own type."""
        return Load(self.buffer, self.index) if self.value is None else self.value


@dataclass(frozen=True)
class Result:
    """An element to write, and its value, which is rounded or wrapped to the buffer's dtype."""

    buffer: Buffer
    index: tuple[Scalar, ...]
    value: Scalar


@dataclass(frozen=True)
class Use:
    """An expression of a structure, the variables that the structure binds for it, and the type it must have."""

    value: Scalar
    variables: tuple[ScalarVar, ...]
    dtype: DType
    what: str


@dataclass(frozen=True)
class Structure(ABC):
    """A structured statement. Fields are axes, elements, results, expressions, or plain attributes."""

    called: ClassVar[str]
    """Its name in messages."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes whose indices it binds."""
        return tuple(part for part in self._parts() if isinstance(part, Axis))

    @property
    def elements(self) -> tuple[Element, ...]:
        """What it reads through index maps, where no expression can replace the element."""
        return tuple(part for part in self._parts() if isinstance(part, Element))

    @property
    def results(self) -> tuple[Result, ...]:
        """What it writes."""
        return tuple(part for part in self._parts() if isinstance(part, Result))

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """All of its expressions; those of results come last."""
        own = [part for part in self._parts() if isinstance(part, Scalar)]
        made = [one for result in self.results for one in (*result.index, result.value)]
        return (*own, *(element.scalar for element in self.elements), *made)

    @property
    @abstractmethod
    def result_variables(self) -> tuple[ScalarVar, ...]:
        """The variables over which indices and values of results are expressions."""

    @abstractmethod
    def uses(self) -> Iterator[Use]:
        """Its expressions, except those of results, with their constraints."""

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
        """A copy with its expressions, the buffers of elements and results, and its indices changed."""

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

    def with_results(self, change: Callable[[Result], Result]) -> Self:
        """A copy with its results changed."""

        def made(part: Any) -> Any:
            match part:
                case Result():
                    return change(part)
                case tuple():
                    return tuple(map(made, part))
                case _:
                    return part

        return replace(self, **{field.name: made(getattr(self, field.name)) for field in fields(self)})

    def with_elements(self, change: Callable[[Element], Element]) -> Self:
        """A copy with its elements changed."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(one) for name, one in own.items() if isinstance(one, Element)})


# --- scans ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scan(Structure):
    """Running totals along an axis: each position gets the total of the terms from one end up to it.

    ``term`` is over the position, ``out`` over the position and ``ACCUMULATOR``, the total there. Float sums may be
    reassociated. A product of finite floats is a number: if a partial product is infinite and another factor is 0, it
    is 0. No term reads what is written.
    """

    called = "a scan"

    axis: Axis
    op: Literal["add", "mul"]
    accumulator: DType
    term: Scalar
    out: Result
    is_exclusive: bool = False
    """Whether the total at a position excludes its own term."""
    is_reversed: bool = False
    """Whether it runs from the last position to the first."""

    @property
    def total(self) -> ScalarVar:
        """The variable for the total in the result."""
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


# --- ordering ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Order(Structure):
    """The first elements in key order; elements with equal keys keep their relative order.

    ``key`` is over the position along ``axis``. ``outs`` are over ``rank``, whose extent is at most that of ``axis``,
    over ``RANKED``, the key at that rank, and over ``ORIGIN``, its original position (i64). NaN is larger than all
    numbers. No key reads what is written.
    """

    called = "an order"

    axis: Axis
    rank: Axis
    key: Scalar
    outs: tuple[Result, ...]
    is_descending: bool = False
    """Whether the largest key comes first."""

    @property
    def ranked(self) -> ScalarVar:
        """The variable for the key of a rank in results."""
        return ScalarVar(RANKED, self.key.dtype)

    @property
    def origin(self) -> ScalarVar:
        """The variable for the original position in results."""
        return ScalarVar(ORIGIN, DTYPES["i64"])

    @property
    def result_variables(self) -> tuple[ScalarVar, ...]:
        """The rank, its key and its original position."""
        return self.rank.index, self.ranked, self.origin

    def uses(self) -> Iterator[Use]:
        """The key."""
        yield Use(self.key, (self.axis.index,), self.key.dtype.compute, "a key")


# --- attention --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attend(Structure):
    """Attention of the query heads that share a key head: means of values, weighted by a softmax of scores.

    ``queries`` are over ``head``, ``row`` and ``depth``, ``keys`` over ``key`` and ``depth``, ``values`` over ``key``
    and ``column``. The score of a query and a key is over ``ACCUMULATOR``, their product summed along the depth, and
    over their indices; it includes scale and mask. Keys after ``until``, and keys up to and including ``after``, are
    hidden; both are expressions over ``row``. Keys with a score of -inf are hidden, too. Hidden keys take no part,
    whatever their values. Weights are ``exp(score - largest score)``, divided by their sum. ``out`` is over
    ``ACCUMULATOR``, the mean, ``head``, ``row`` and ``column``; the mean of no values is 0. Nothing that is read is
    written.
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
    """The type in which products and weights are summed."""
    score: Scalar
    out: Result
    until: Scalar | None = None
    """The last key that a query sees; None if nothing limits it."""
    after: Scalar | None = None
    """The key before the first one that a query sees; None if it sees all from the start."""

    @property
    def total(self) -> ScalarVar:
        """The variable for a sum in the score and the result."""
        return ScalarVar(ACCUMULATOR, self.accumulator)

    @property
    def result_variables(self) -> tuple[ScalarVar, ...]:
        """The indices of the mean, and the mean."""
        return self.head.index, self.row.index, self.column.index, self.total

    def uses(self) -> Iterator[Use]:
        """Factors, the score, and the limits of visible keys."""
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
                yield Use(border, (row,), INDEX, "a bound of visible keys")
