"""The cost of a kernel: its arithmetic, and the memory it must at least access. Derived from its loops alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from openinfer.loops.dim import Dim, at
from openinfer.loops.expand import plain
from openinfer.loops.ir import (
    INDEX,
    Binary,
    Buffer,
    Cast,
    Compare,
    Const,
    Contraction,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Math,
    Scalar,
    SetLocal,
    Statement,
    Store,
    Unary,
    While,
    children,
    scalars,
    visit,
)

SizeValues = Mapping[str, int]


@dataclass(frozen=True)
class Cost:
    """The cost of one kernel call, at the bounds of dynamic sizes or at given values.

    ``operations`` counts arithmetic, comparisons and functions on values (``exp`` is one, ``fma`` is two), not index
    arithmetic. ``read`` and ``written`` count the bytes of every element once, however often it is accessed: the least
    a kernel can move. A loop whose trip count depends on data counts as one iteration.
    """

    operations: int
    read: int
    written: int

    @property
    def nbytes(self) -> int:
        """All bytes that are moved."""
        return self.read + self.written

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.operations / self.nbytes if self.nbytes else 0.0

    def times(self, calls: int) -> "Cost":
        """The cost of several calls.

        >>> Cost(10, 4, 2).times(3)
        Cost(operations=30, read=12, written=6)
        """
        return Cost(self.operations * calls, self.read * calls, self.written * calls)


def cost_of(kernel: Kernel, sizes: SizeValues | None = None) -> Cost:
    """The cost of one call, at the bounds of dynamic sizes or at ``sizes``, which must then name all of them."""
    kernel = plain(kernel)
    inputs = {buffer.name for buffer in kernel.inputs}
    outputs = {buffer.name for buffer in kernel.outputs}
    touched: dict[tuple[Buffer, bool], int] = {}
    operations = 0
    for statement, rounds in _executions(kernel.body, 1, sizes):
        operations += rounds * _operations(statement, sizes)
        for buffer, is_store, times in _accesses(statement, sizes):
            key = (buffer, is_store)
            touched[key] = touched.get(key, 0) + rounds * times
    moved = {key: min(_nbytes(key[0], sizes), key[0].dtype.nbytes(times)) for key, times in touched.items()}
    read = sum(count for (buffer, is_store), count in moved.items() if not is_store and buffer.name in inputs)
    written = sum(count for (buffer, is_store), count in moved.items() if is_store and buffer.name in outputs)
    return Cost(operations, read, written)


def _extent(extent: float, sizes: SizeValues | None) -> int:
    return max(at(extent, sizes), 0) if sizes is not None and isinstance(extent, Dim) else int(extent)


def _executions(body: tuple[Statement, ...], rounds: int, sizes: SizeValues | None) -> Iterator[tuple[Statement, int]]:
    """Statements, and how often each is executed."""
    for statement in body:
        yield statement, rounds
        match statement:
            case For(extent=extent, body=inner):
                times = _extent(extent.value, sizes) if isinstance(extent, Const) else 1
                yield from _executions(inner, rounds * times, sizes)
            case While(body=inner):
                yield from _executions(inner, rounds, sizes)
            case If(then=then, otherwise=otherwise):
                yield from _executions(then, rounds, sizes)
                yield from _executions(otherwise, rounds, sizes)


def _products(statement: Contraction, sizes: SizeValues | None) -> tuple[int, int]:
    """The number of sums a contraction computes, and the number of terms of each."""
    sums = terms = 1
    for extent in statement.extents:
        sums *= _extent(extent, sizes)
    for extent in statement.reduced:
        terms *= _extent(extent, sizes)
    return sums, terms


def _operations(statement: Statement, sizes: SizeValues | None) -> int:
    match statement:
        case Contraction():
            sums, terms = _products(statement, sizes)
            is_ready = statement.template is not None and statement.template.prepares_factors
            each = 2 + (0 if is_ready else sum(_arithmetic(factor) for factor in statement.factors))
            return sums * terms * each + sums * _arithmetic(statement.epilogue)
        case Let(value=value) | Local(value=value) | SetLocal(value=value) | Store(value=value):
            return _arithmetic(value)
        case If(cond=cond) | While(cond=cond):
            return _arithmetic(cond)
        case _:
            return 0


def _arithmetic(value: Scalar) -> int:
    """Operations of an expression, excluding those on positions, and what becomes a position."""
    found = 0
    stack = [value]
    while stack:
        one = stack.pop()
        match one:
            case Load():
                continue
            case Cast(dtype=dtype) if dtype is INDEX:
                continue
            case Math(function=function):
                found += 2 if function == "fma" else 1
            case Unary(operand=operand) | Compare(left=operand) | Binary(left=operand):
                found += operand.dtype is not INDEX
        stack.extend(children(one))
    return found


def _accesses(statement: Statement, sizes: SizeValues | None) -> Iterator[tuple[Buffer, bool, int]]:
    """The buffers that one execution accesses, whether it writes them, and the number of elements."""
    times = 1
    if isinstance(statement, Contraction):
        sums, terms = _products(statement, sizes)
        times = sums * terms
        yield statement.out, True, sums
    elif isinstance(statement, Store):
        yield statement.buffer, True, 1
    for value in scalars(statement):
        for one in visit(value):
            if isinstance(one, Load):
                yield one.buffer, False, times


def _nbytes(buffer: Buffer, sizes: SizeValues | None) -> int:
    count = 1
    for extent in buffer.shape:
        count *= _extent(extent, sizes)
    return buffer.dtype.nbytes(count)
