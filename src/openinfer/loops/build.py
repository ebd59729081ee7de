"""A builder for kernels: lowerings written with it read like the loops that they emit."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.dim import span
from openinfer.loops.ir import (
    INDEX,
    Alloc,
    Bits,
    Buffer,
    Cast,
    Const,
    Fail,
    For,
    If,
    Let,
    Load,
    Local,
    LoopKind,
    Math,
    Round,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Space,
    Statement,
    Store,
    Unary,
    While,
    as_scalar,
    binary,
)

Position = Scalar | int
Coordinates = tuple[Position, ...]
"""The coordinates of an element: a position along each axis."""


def index(value: Position) -> Scalar:
    """A position as an expression; an integer (which may be a ``Dim``) becomes a constant."""
    return as_scalar(value, INDEX)


def stored_position(most: int) -> DType:
    """The dtype that memory holds positions in, from 0 to ``most``, which may be a ``Dim``.

    >>> stored_position(100), stored_position(2**31)
    (<dtype i32>, <dtype i64>)
    """
    return DTYPES["i32" if span(most)[1] < 2**31 else "i64"]


class Builder:
    """Collects the statements of a kernel, or of a fragment of one.

    For a fragment, ``bound`` and ``allocated`` are the numbers of variables and buffers before it, where its own
    numbering starts; names in ``taken`` are skipped.
    """

    def __init__(
        self,
        taken: Collection[str] = (),
        bound: int = 0,
        allocated: int = 0,
        short: Collection[tuple[str, str]] = (),
    ) -> None:
        self._bodies: list[list[Statement]] = [[]]
        self._taken = taken
        self._count = bound
        self._own: list[Alloc] = []
        """Memory allocated at the top level of the kernel, visible to all of its statements."""
        self._allocated = allocated
        self._notes: dict[str, None] = {}
        self._summary = ""
        self.short = short
        """The functions that a target has for results of few bits, by name and the dtype of the result."""

    @property
    def body(self) -> tuple[Statement, ...]:
        """The statements so far."""
        assert len(self._bodies) == 1
        return (*self._own, *self._bodies[0])

    @property
    def notes(self) -> tuple[str, ...]:
        """Descriptions of the algorithms that the statements implement."""
        return tuple(self._notes)

    @property
    def summary(self) -> str:
        """What the statements compute, if the description of their op does not say it."""
        return self._summary

    def summarize(self, text: str) -> None:
        """Describe what the statements compute, where parameters make it another formula than that of the op."""
        self._summary = text

    def note(self, algorithm: str) -> None:
        """Describe an algorithm that the statements implement and their ops do not name."""
        self._notes[algorithm] = None

    def add(self, statement: Statement) -> None:
        """Append a statement to the innermost open body."""
        self._bodies[-1].append(statement)

    def fresh(self, hint: str, dtype: DType = INDEX) -> ScalarVar:
        """A variable with an unused name."""
        self._count += 1
        while f"{hint}{self._count}" in self._taken:
            self._count += 1
        return ScalarVar(f"{hint}{self._count}", dtype, hint)

    # --- control flow ---------------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, extent: Position, kind: LoopKind = LoopKind.SERIAL, hint: str = "i") -> Iterator[ScalarVar]:
        """A loop from 0 up to, and excluding, an extent."""
        variable = self.fresh(hint)
        self._bodies.append([])
        yield variable
        self.add(For(variable, index(extent), tuple(self._bodies.pop()), kind))

    @contextmanager
    def loops(self, extents: Sequence[Position], kind: LoopKind = LoopKind.SERIAL) -> Iterator[tuple[ScalarVar, ...]]:
        """Nested loops of one kind, the first outermost."""
        variables = tuple(self.fresh("i") for _ in extents)
        self._bodies.append([])
        yield variables
        body = tuple(self._bodies.pop())
        for variable, extent in zip(reversed(variables), reversed(extents), strict=True):
            body = (For(variable, index(extent), body, kind),)
        for statement in body:
            self.add(statement)

    @contextmanager
    def when(self, cond: Scalar) -> Iterator[None]:
        """Statements that run if a condition holds."""
        self._bodies.append([])
        yield
        self.add(If(cond, tuple(self._bodies.pop())))

    @contextmanager
    def repeat_while(self, cond: Scalar) -> Iterator[None]:
        """Statements that run while a condition holds."""
        self._bodies.append([])
        yield
        self.add(While(cond, tuple(self._bodies.pop())))

    def fail(self, cond: Scalar, reason: str) -> None:
        """Fail with a reason if a condition holds."""
        self.add(If(cond, (Fail(reason),)))

    # --- values ---------------------------------------------------------------------------------------------------

    def let(self, value: Scalar, hint: str = "v") -> Scalar:
        """Name a value that is used more than once."""
        if isinstance(value, ScalarVar | Const):
            return value
        variable = self.fresh(hint, value.dtype)
        self.add(Let(variable, value))
        return variable

    def local(self, value: Scalar | float, dtype: DType, hint: str = "s") -> ScalarVar:
        """Declare a mutable variable with an initial value."""
        variable = self.fresh(hint, dtype)
        self.add(Local(variable, as_scalar(value, dtype)))
        return variable

    def assign(self, variable: ScalarVar, value: Scalar | float) -> None:
        """Assign a new value to a local variable."""
        self.add(SetLocal(variable, as_scalar(value, variable.dtype)))

    def store(self, buffer: Buffer, where: Sequence[Position], value: Scalar) -> None:
        """Store a value in an element."""
        self.add(Store(buffer, tuple(index(one) for one in where), value))

    def buffer(self, dtype: DType, shape: Sequence[int], hint: str = "scratch") -> Buffer:
        """Scratch memory, private to each iteration of the innermost open loop; outside of loops, to the kernel."""
        while f"{hint}{self._allocated}" in self._taken:
            self._allocated += 1
        made = Buffer(f"{hint}{self._allocated}", dtype, tuple(shape), Space.SCRATCH)
        self._allocated += 1
        (self._own if len(self._bodies) == 1 else self._bodies[-1]).append(Alloc(made))
        return made


def load(buffer: Buffer, *where: Position) -> Load:
    """Load an element of a buffer."""
    return Load(buffer, tuple(index(one) for one in where))


def const(value: float, dtype: DType) -> Const:
    """A constant of a type."""
    return Const(value, dtype)


def cast(value: Scalar, dtype: DType) -> Scalar:
    """A value converted to another compute type, unless it already has it."""
    return value if value.dtype is dtype else Cast(value, dtype)


def bits(value: Scalar, dtype: DType) -> Scalar:
    """The bits of a value, reinterpreted as another type."""
    return Bits(value, dtype)


def rounded(value: Scalar, storage: DType) -> Scalar:
    """A value as if stored and loaded again; the value itself if that changes nothing."""
    return value if storage is value.dtype else Round(value, storage)


def select(cond: Scalar, then: Scalar | float, otherwise: Scalar | float) -> Scalar:
    """One of two values, chosen by a condition."""
    dtype = then.dtype if isinstance(then, Scalar) else otherwise.dtype if isinstance(otherwise, Scalar) else INDEX
    return Select(cond, as_scalar(then, dtype), as_scalar(otherwise, dtype))


def unary(op: Any, value: Scalar) -> Scalar:
    """A unary operation."""
    return Unary(op, value)


def pair(op: Any, left: Scalar, right: Scalar | float) -> Scalar:
    """A binary operation on values of one type."""
    return binary(op, left, as_scalar(right, left.dtype))


def math(function: str, *args: Scalar) -> Scalar:
    """A call of a named function."""
    return Math(function, args)


def flat(where: Sequence[Position], shape: Sequence[int]) -> Scalar:
    """The linear index of coordinates in a row-major array."""
    total: Scalar = index(0)
    for one, extent in zip(where, shape, strict=True):
        total = total * index(extent) + index(one)
    return total


def unflat(position: Position, shape: Sequence[int]) -> tuple[Scalar, ...]:
    """The coordinates of a linear index in a row-major array."""
    rest = index(position)
    found: list[Scalar] = []
    for axis in range(len(shape) - 1, -1, -1):
        if axis and type(shape[axis]) is int and shape[axis] == 1:
            found.append(index(0))
            continue
        found.append(rest if axis == 0 else rest % index(shape[axis]))
        rest = rest // index(shape[axis])
    return tuple(reversed(found))


def broadcast_index(where: Sequence[Position], shape: Sequence[int]) -> tuple[Position, ...]:
    """The coordinates, in an operand of this shape, of the element that broadcasts to coordinates in the result.

    A dynamic extent of at most 1 broadcasts too: where it is 1, its only index is 0; where it is 0, it has no elements.
    """
    own = list(where)[len(where) - len(shape) :]
    return tuple(0 if extent == 1 and span(extent)[1] == 1 else one for one, extent in zip(own, shape, strict=True))
