"""The semantics of kernels: a plain interpreter on NumPy arrays, for tests. Slow, strict and meant to be read.

The memory of a buffer is an array of stored elements, in the order of its strides. Values are NumPy scalars of the
compute type. Where the IR promises that something does not happen (an index out of range, a read of an element that was
never written, a cast out of range, an iteration of a parallel loop touching what another one wrote), the interpreter
raises an error. It computes both sides of a selection, as a target may.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from openinfer.dtypes import Array
from openinfer.dtypes.packing import pack
from openinfer.loops.arithmetic import (
    COMPARISONS,
    NumpyScalar,
    UndefinedError,
    binary,
    bits_of,
    converted,
    loaded,
    named,
    stored,
    unary,
)
from openinfer.loops.dim import at
from openinfer.loops.ir import (
    ACCUMULATOR,
    Alloc,
    Axis,
    Binary,
    Bind,
    Bits,
    Buffer,
    Cast,
    Combine,
    Compare,
    Const,
    Contraction,
    Exchange,
    Fail,
    For,
    GroupBarrier,
    If,
    Kernel,
    Leave,
    Let,
    Load,
    Local,
    LoopKind,
    Math,
    Ready,
    Result,
    Round,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Statement,
    Store,
    Structure,
    TileStep,
    Unary,
    Unfailed,
    While,
    WideLoad,
    WideStore,
)
from openinfer.loops.lanes import is_in_team, run_group, run_team, waits
from openinfer.loops.meanings import meant
from openinfer.loops.text import scalar_text

__all__ = ["IterationOrder", "KernelFailedError", "UndefinedError", "interpret", "interpret_in_turn"]

IterationOrder: TypeAlias = Callable[[range], Iterable[int]]
"""The order in which the iterations of a parallel loop run; any order gives the same result."""


Iteration: TypeAlias = tuple[tuple[int, int], ...]
"""The current iterations of parallel loops, outermost first: the number of the loop's execution, and the index."""


class KernelFailedError(Exception):
    """A kernel ended with a ``Fail``; the message is its reason."""


def interpret(
    kernel: Kernel,
    arrays: Sequence[Array],
    sizes: Mapping[str, int] | None = None,
    order: IterationOrder = iter,
) -> tuple[Array, ...]:
    """The outputs of a kernel, for inputs given as arrays of their dtypes.

    ``sizes`` are the values of the dynamic sizes. The array of a buffer with strides is its memory, flat.

    >>> from openinfer.dtypes import dtype_of
    >>> x, y = Buffer("x", dtype_of("u8"), ()), Buffer("y", dtype_of("u8"), ())
    >>> interpret(Kernel("k", (x,), (y,), (Store(y, (), Load(x, ()) + 1),)), [np.array(255)])
    (array(0, dtype=uint8),)
    """
    return interpret_in_turn((kernel,), kernel.inputs, kernel.outputs, arrays, sizes, order)


def interpret_in_turn(
    kernels: Sequence[Kernel],
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    arrays: Sequence[Array],
    sizes: Mapping[str, int] | None = None,
    order: IterationOrder = iter,
    scratch: Sequence[Buffer] = (),
) -> tuple[Array, ...]:
    """The outputs of kernels that run in sequence and share memory; buffers are identified by name."""
    run = _KernelRun(Kernel("all", tuple(inputs), (*outputs, *scratch), ()), arrays, sizes or {}, order)
    with np.errstate(all="ignore"):
        for kernel in kernels:
            run.body(kernel.body)
    return tuple(run.result(buffer) for buffer in outputs)


class _BufferMemory:
    """The elements of one buffer, and which of them have been written."""

    def __init__(self, buffer: Buffer, sizes: Mapping[str, int], array: Array | None) -> None:
        self.buffer = buffer
        self.shape = tuple(at(extent, sizes) for extent in buffer.shape)
        self.strides = tuple(at(stride, sizes) for stride in buffer.actual_strides)
        last = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        count = 0 if 0 in self.shape else last + 1
        self.writers: dict[int, Iteration] = {}
        if array is None:
            self.elements = np.zeros(count, buffer.dtype.array)
            self.is_written = np.zeros(count, np.bool_)
        else:
            self.elements = np.array(array, buffer.dtype.array, order="C").reshape(-1)
            self.is_written = np.ones(self.elements.size, np.bool_)
            assert self.elements.size >= count, f"'{buffer.name}' has {count} elements, not {self.elements.size}"

    def offset(self, index: Sequence[NumpyScalar]) -> int:
        shape, strides = self.shape, self.strides
        if len(index) == 1 and len(shape) > 1:
            # One of several kernels may count contiguous elements along a single axis.
            shape, strides = (self.elements.size,), (1,)
        for place, extent in zip(index, shape, strict=True):
            if not 0 <= place < extent:
                message = f"[{', '.join(map(str, index))}] is outside of '{self.buffer.name}' {list(shape)}"
                raise UndefinedError(message)
        return sum(int(place) * stride for place, stride in zip(index, strides, strict=True))

    def touch(self, offset: int, iteration: Iteration) -> None:
        """Raise an error if another iteration of a parallel loop, which may run concurrently, wrote the element."""
        for (run, place), (own_run, own_place) in zip(self.writers.get(offset, ()), iteration, strict=False):
            if run != own_run:
                return
            if place != own_place:
                both = f"iterations {place} and {own_place} of a parallel loop"
                message = f"{both} touch element {offset} of '{self.buffer.name}'"
                raise UndefinedError(message)


class _KernelRun:
    """One execution: the memory of the buffers and the values of the variables."""

    def __init__(
        self, kernel: Kernel, arrays: Sequence[Array], sizes: Mapping[str, int], order: IterationOrder
    ) -> None:
        self._sizes = sizes
        self.order = order
        self.variables: dict[str, NumpyScalar] = {}
        self.iteration: Iteration = ()
        self.runs = 0
        self.memory = {
            buffer.name: _BufferMemory(buffer, sizes, array)
            for buffer, array in zip(kernel.inputs, arrays, strict=True)
        }
        for buffer in kernel.outputs:
            self.memory[buffer.name] = _BufferMemory(buffer, sizes, None)

    def result(self, buffer: Buffer) -> Array:
        memory = self.memory[buffer.name]
        if not memory.is_written.all() and buffer.strides is None:
            message = f"element {int(np.argmin(memory.is_written))} of '{buffer.name}' was never written"
            raise UndefinedError(message)
        return memory.elements.reshape(memory.shape) if buffer.strides is None else memory.elements

    # --- statements -----------------------------------------------------------------------------------------------

    def body(self, statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        match statement:
            case For(bind=Bind.THREAD) if waits(statement):
                run_group(self, statement)
            case For(bind=Bind.GROUP) if is_in_team(statement):
                run_team(self, statement)
            case For(index, extent, body, kind):
                count = range(max(int(self.value(extent)), 0))
                iterations = self._iterations(self.order(count)) if kind is LoopKind.PARALLEL else count
                for place in iterations:
                    self.variables[index.name] = np.int64(place)
                    self.body(body)
            case While(cond, body):
                while self.value(cond):
                    self.body(body)
            case If(cond, then, otherwise):
                self.body(then if self.value(cond) else otherwise)
            case Let(var, value) | Local(var, value) | SetLocal(var, value):
                self.variables[var.name] = self.value(value)
            case Store(buffer, index, value):
                self._store(buffer, index, self.value(value))
            case Alloc(buffer):
                self.memory[buffer.name] = _BufferMemory(buffer, self._sizes, None)
            case Fail(reason):
                raise KernelFailedError(reason)
            case Contraction():
                self._contract(statement)
            case Structure():
                meant(statement, self)
            case WideLoad() | WideStore():
                self._wide(statement)
            case TileStep():
                statement.run(self)
            case Ready() | Unfailed() | Leave():
                pass
            case GroupBarrier() | Combine() | Exchange():
                message = "threads wait for each other outside of a group"
                raise UndefinedError(message)

    def _iterations(self, places: Iterable[int]) -> Iterator[int]:
        """The iterations of a parallel loop, each registered as the current one while it runs."""
        outside = self.iteration
        self.runs += 1
        run = self.runs
        for place in places:
            self.iteration = (*outside, (run, place))
            yield place
        self.iteration = outside

    def _store(self, buffer: Buffer, index: tuple[Scalar, ...], value: NumpyScalar) -> None:
        memory = self.memory[buffer.name]
        self._write(memory, memory.offset([self.value(one) for one in index]), value)

    def _write(self, memory: "_BufferMemory", offset: int, value: NumpyScalar) -> None:
        memory.touch(offset, self.iteration)
        memory.elements[offset] = stored(value, memory.buffer.dtype)
        memory.is_written[offset] = True
        memory.writers[offset] = self.iteration

    def element(self, buffer: Buffer, where: tuple[int, ...]) -> NumpyScalar:
        """The value of an element."""
        memory = self.memory[buffer.name]
        return self._read(memory, memory.offset(where))

    def elements(self, buffer: Buffer, where: tuple[int, ...], count: int) -> Array:
        """Adjacent elements, as stored in memory."""
        memory = self.memory[buffer.name]
        first = memory.offset(where)
        own = slice(first, first + count)
        if not memory.is_written[own].all():
            self._read(memory, first + int(np.argmin(memory.is_written[own])))
        for place in range(first, first + count):
            memory.touch(place, self.iteration)
        return memory.elements[own]

    def put(self, buffer: Buffer, where: tuple[int, ...], value: NumpyScalar) -> None:
        """Store a value in an element."""
        memory = self.memory[buffer.name]
        self._write(memory, memory.offset(where), value)

    def set(self, var: ScalarVar, value: NumpyScalar) -> None:
        """Set a variable."""
        self.variables[var.name] = value

    def extent(self, axis: Axis) -> int:
        """The extent of an axis at the sizes of this execution."""
        return at(axis.extent, self._sizes)

    def write(self, one: Result) -> None:
        """Write a result of a structure, whose variables have been set."""
        self._store(one.buffer, one.index, self.value(one.value))

    def _contract(self, one: Contraction) -> None:
        """The generic definition: a loop for each index, a product in the accumulator's type for each term."""
        total: NumpyScalar = converted(0, one.accumulator)
        free = tuple(self._places(one.free, one.extents))
        for number in self._iterations(range(len(free))):
            self.variables.update(free[number])
            total = converted(0, one.accumulator)
            for bound in self._places(one.bound, one.reduced):
                self.variables.update(bound)
                if one.valid is None or self.value(one.valid):
                    a, b = (converted(self.value(factor), one.accumulator) for factor in one.factors)
                    product = binary("mul", a, b, one.accumulator)
                    total = binary("add", total, product, one.accumulator)
            self.variables[ACCUMULATOR] = total
            self._store(one.out, one.out_index, self.value(one.epilogue))

    def _places(self, names: tuple[ScalarVar, ...], extents: tuple[int, ...]) -> Iterable[dict[str, NumpyScalar]]:
        for place in np.ndindex(*(at(extent, self._sizes) for extent in extents)):
            yield {var.name: np.int64(index) for var, index in zip(names, place, strict=True)}

    # --- expressions ----------------------------------------------------------------------------------------------

    def value(self, scalar: Scalar) -> NumpyScalar:
        match scalar:
            case Const(number, dtype):
                return converted(at(number, self._sizes) if isinstance(number, int) else number, dtype)
            case ScalarVar(name):
                return self.variables[name]
            case Load(buffer, index):
                return self._load(buffer, index)
            case Unary(op, operand):
                return unary(op, self.value(operand), operand.dtype)
            case Binary(op, left, right):
                return binary(op, self.value(left), self.value(right), left.dtype)
            case Compare(op, left, right):
                return np.bool_(COMPARISONS[op](self.value(left), self.value(right)))
            case Select(cond, then, otherwise):
                both = self.value(then), self.value(otherwise)
                return both[0] if self.value(cond) else both[1]
            case Cast(operand, dtype):
                return converted(self.value(operand), dtype)
            case Bits():
                return bits_of(self.value(scalar.operand), scalar)
            case Round(operand, storage):
                return loaded(stored(self.value(operand), storage), storage)
            case Math(function, args):
                return named(function, [self.value(one) for one in args], scalar.dtype)
            case _:
                raise TypeError(scalar_text(scalar))

    def _load(self, buffer: Buffer, index: tuple[Scalar, ...]) -> NumpyScalar:
        memory = self.memory[buffer.name]
        return self._read(memory, memory.offset([self.value(one) for one in index]))

    def _read(self, memory: "_BufferMemory", offset: int) -> NumpyScalar:
        if not memory.is_written[offset]:
            message = f"element {offset} of '{memory.buffer.name}' is read before it is written"
            raise UndefinedError(message)
        memory.touch(offset, self.iteration)
        return loaded(memory.elements[offset], memory.buffer.dtype)

    def _wide(self, one: WideLoad | WideStore) -> None:
        """Adjacent elements in one access; the offset of the first is a multiple of their count."""
        memory = self.memory[one.buffer.name]
        first = memory.offset([self.value(place) for place in one.index])
        count = one.count
        if first % count or first + count > memory.elements.size:
            message = f"{count} elements of '{one.buffer.name}' in one access from {first} on"
            raise UndefinedError(message)
        if isinstance(one, WideLoad):
            values = [self._read(memory, first + place) for place in range(count)]
            if one.has_words:
                elements, dtype = memory.elements[first : first + count], memory.buffer.dtype
                values = [*(pack(elements, dtype) if dtype.is_packed else elements).view(np.uint32)]
            self.variables |= {var.name: value for var, value in zip(one.variables, values, strict=True)}
        else:
            values = [self.value(value) for value in one.values]
            if one.has_words:
                codes = np.array(values, np.uint32).view(memory.elements.dtype)
                values = [loaded(code, memory.buffer.dtype) for code in codes]
            for place, value in enumerate(values):
                self._write(memory, first + place, value)
