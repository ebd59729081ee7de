"""What kernels mean: a plain interpreter on NumPy arrays, for tests. Slow, strict and meant to be read.

Memory is an array of stored elements for each buffer, in the order of its strides. Values are NumPy scalars of the
compute type. Where the IR promises that something does not happen (a position outside of a buffer, an element that was
never written, a cast out of range, an iteration of a parallel loop that touches what another one has written), the
interpreter refuses; both sides of a selection are computed, as a target may.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.loops.dim import at
from openinfer.loops.ir import (
    ACCUMULATOR,
    Alloc,
    Axis,
    Binary,
    Bits,
    Buffer,
    Cast,
    Compare,
    Const,
    Contraction,
    Fail,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    LoopKind,
    Math,
    Result,
    Round,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Statement,
    Store,
    Structure,
    Unary,
    While,
)
from openinfer.loops.meanings import meant
from openinfer.loops.text import scalar_text

NumpyScalar: TypeAlias = Any
"""A NumPy scalar of a compute type."""
IterationOrder: TypeAlias = Callable[[range], Iterable[int]]
"""In which order the iterations of a parallel loop run: any gives the same result."""


Turn: TypeAlias = tuple[tuple[int, int], ...]
"""The running iterations of parallel loops, outermost first: the number of the loop's execution, and the index."""


class KernelFailedError(Exception):
    """A kernel ended with a ``Fail``; the message is its reason."""


class UndefinedError(Exception):
    """A kernel did something undefined; the message says what."""


def interpret(
    kernel: Kernel,
    arrays: Sequence[Array],
    sizes: Mapping[str, int] | None = None,
    order: IterationOrder = iter,
) -> tuple[Array, ...]:
    """The outputs of a kernel for inputs in the arrays of their dtypes.

    ``sizes`` are the values of the dynamic sizes. An array for a buffer with strides is its memory, flat.

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
    """The outputs of kernels that run one after the other and share memory: their buffers are known by their names."""
    run = _Run(Kernel("all", tuple(inputs), (*outputs, *scratch), ()), arrays, sizes or {}, order)
    with np.errstate(all="ignore"):
        for kernel in kernels:
            run.body(kernel.body)
    return tuple(run.result(buffer) for buffer in outputs)


class _Memory:
    """The elements of one buffer, and which of them have a value."""

    def __init__(self, buffer: Buffer, sizes: Mapping[str, int], array: Array | None) -> None:
        self.buffer = buffer
        self.shape = tuple(at(extent, sizes) for extent in buffer.shape)
        self.steps = tuple(at(step, sizes) for step in buffer.steps)
        last = sum((extent - 1) * step for extent, step in zip(self.shape, self.steps, strict=True))
        count = 0 if 0 in self.shape else last + 1
        self.writers: dict[int, Turn] = {}
        if array is None:
            self.elements = np.zeros(count, buffer.dtype.array)
            self.is_written = np.zeros(count, np.bool_)
        else:
            self.elements = np.array(array, buffer.dtype.array, order="C").reshape(-1)
            self.is_written = np.ones(self.elements.size, np.bool_)
            assert self.elements.size >= count, f"'{buffer.name}' has {count} elements, not {self.elements.size}"

    def offset(self, index: Sequence[NumpyScalar]) -> int:
        for place, extent in zip(index, self.shape, strict=True):
            if not 0 <= place < extent:
                message = f"[{', '.join(map(str, index))}] is outside of '{self.buffer.name}' {list(self.shape)}"
                raise UndefinedError(message)
        return sum(int(place) * step for place, step in zip(index, self.steps, strict=True))

    def touch(self, offset: int, turn: Turn) -> None:
        """Refuse if another iteration of a parallel loop, which may run at the same time, has written an element."""
        for (run, place), (own_run, own_place) in zip(self.writers.get(offset, ()), turn, strict=False):
            if run != own_run:
                return
            if place != own_place:
                both = f"iterations {place} and {own_place} of a parallel loop"
                message = f"{both} touch element {offset} of '{self.buffer.name}'"
                raise UndefinedError(message)


class _Run:
    """One execution: the memory of each buffer, and the values of the variables."""

    def __init__(
        self, kernel: Kernel, arrays: Sequence[Array], sizes: Mapping[str, int], order: IterationOrder
    ) -> None:
        self._sizes = sizes
        self._order = order
        self._variables: dict[str, NumpyScalar] = {}
        self._turn: Turn = ()
        self._runs = 0
        self._memory = {
            buffer.name: _Memory(buffer, sizes, array) for buffer, array in zip(kernel.inputs, arrays, strict=True)
        }
        for buffer in kernel.outputs:
            self._memory[buffer.name] = _Memory(buffer, sizes, None)

    def result(self, buffer: Buffer) -> Array:
        memory = self._memory[buffer.name]
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
            case For(index, extent, body, kind):
                count = range(max(int(self.value(extent)), 0))
                turns = self._turns(self._order(count)) if kind is LoopKind.PARALLEL else count
                for place in turns:
                    self._variables[index.name] = np.int64(place)
                    self.body(body)
            case While(cond, body):
                while self.value(cond):
                    self.body(body)
            case If(cond, then, otherwise):
                self.body(then if self.value(cond) else otherwise)
            case Let(var, value) | Local(var, value) | SetLocal(var, value):
                self._variables[var.name] = self.value(value)
            case Store(buffer, index, value):
                self._store(buffer, index, self.value(value))
            case Alloc(buffer):
                self._memory[buffer.name] = _Memory(buffer, self._sizes, None)
            case Fail(reason):
                raise KernelFailedError(reason)
            case Contraction():
                self._contract(statement)
            case Structure():
                meant(statement, self)

    def _turns(self, places: Iterable[int]) -> Iterator[int]:
        """The iterations of a parallel loop, each marked as one while it runs."""
        outside = self._turn
        self._runs += 1
        run = self._runs
        for place in places:
            self._turn = (*outside, (run, place))
            yield place
        self._turn = outside

    def _store(self, buffer: Buffer, index: tuple[Scalar, ...], value: NumpyScalar) -> None:
        memory = self._memory[buffer.name]
        offset = memory.offset([self.value(one) for one in index])
        memory.touch(offset, self._turn)
        memory.elements[offset] = stored(value, buffer.dtype)
        memory.is_written[offset] = True
        memory.writers[offset] = self._turn

    def set(self, var: ScalarVar, value: NumpyScalar) -> None:
        """Give a variable a value."""
        self._variables[var.name] = value

    def extent(self, axis: Axis) -> int:
        """How far an index runs, at the sizes of this execution."""
        return at(axis.extent, self._sizes)

    def write(self, one: Result) -> None:
        """Write a result of a structure, where its variables have values."""
        self._store(one.buffer, one.index, self.value(one.value))

    def _contract(self, one: Contraction) -> None:
        """The generic meaning: a loop for each index, a product in the accumulator's type for each term."""
        total: NumpyScalar = converted(0, one.accumulator)
        free = tuple(self._places(one.free, one.extents))
        for number in self._turns(range(len(free))):
            self._variables.update(free[number])
            total = converted(0, one.accumulator)
            for bound in self._places(one.bound, one.reduced):
                self._variables.update(bound)
                if one.valid is None or self.value(one.valid):
                    a, b = (converted(self.value(factor), one.accumulator) for factor in one.factors)
                    product = binary("mul", a, b, one.accumulator)
                    total = binary("add", total, product, one.accumulator)
            self._variables[ACCUMULATOR] = total
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
                return self._variables[name]
            case Load(buffer, index):
                return self._load(buffer, index)
            case Unary(op, operand):
                return unary(op, self.value(operand), operand.dtype)
            case Binary(op, left, right):
                return binary(op, self.value(left), self.value(right), left.dtype)
            case Compare(op, left, right):
                return np.bool_(_COMPARISONS[op](self.value(left), self.value(right)))
            case Select(cond, then, otherwise):
                both = self.value(then), self.value(otherwise)
                return both[0] if self.value(cond) else both[1]
            case Cast(operand, dtype):
                return converted(self.value(operand), dtype)
            case Bits():
                return _bits(self.value(scalar.operand), scalar)
            case Round(operand, storage):
                return loaded(stored(self.value(operand), storage), storage)
            case Math(function, args):
                return named(function, [self.value(one) for one in args], scalar.dtype)
            case _:
                raise TypeError(scalar_text(scalar))

    def _load(self, buffer: Buffer, index: tuple[Scalar, ...]) -> NumpyScalar:
        memory = self._memory[buffer.name]
        offset = memory.offset([self.value(one) for one in index])
        if not memory.is_written[offset]:
            message = f"element {offset} of '{buffer.name}' is read before it is written"
            raise UndefinedError(message)
        memory.touch(offset, self._turn)
        return loaded(memory.elements[offset], buffer.dtype)


# --- between stored and computed --------------------------------------------------------------------------------------


def loaded(element: NumpyScalar, dtype: DType) -> NumpyScalar:
    """A stored element in the type it is computed with."""
    return np.asarray(element).astype(dtype.compute.array)[()]


def stored(value: NumpyScalar, dtype: DType) -> NumpyScalar:
    """A value of the compute type as an element: floats are rounded to nearest even, integers wrap."""
    if dtype.kind == "float":
        return np.asarray(value).astype(dtype.array)[()]
    if dtype.values is not None and value not in dtype.values:
        message = f"{value} is stored as {dtype}"
        raise UndefinedError(message)
    if dtype.kind == "bool" or dtype.values is not None:
        return np.asarray(value).astype(dtype.array)[()]
    return np.asarray(_wrapped(int(value), dtype)).astype(dtype.array)[()]


def converted(value: NumpyScalar, dtype: DType) -> NumpyScalar:
    """A number in a compute type: integers wrap, floats are rounded, a float to an integer must be in range."""
    if dtype.kind == "bool":
        return np.bool_(value != 0)
    if dtype.kind == "float":
        # A Python float is an f64 and a Python int, of a constant, is exact in it or in the integers of 64 bits.
        return np.asarray(value).astype(dtype.array)[()]
    is_number = isinstance(value, int | np.integer | np.bool_) or math.isfinite(value)
    is_float = isinstance(value, float | np.floating)
    if not is_number or (is_float and not dtype.minimum <= int(value) <= dtype.maximum):
        message = f"{value} is cast to {dtype}"
        raise UndefinedError(message)
    return _integer(int(value), dtype)


def _wrapped(number: int, dtype: DType) -> int:
    """An integer modulo the width of a dtype."""
    code = number & ((1 << dtype.bits) - 1)
    return code - (1 << dtype.bits) if dtype.kind == "int" and code >> (dtype.bits - 1) else code


def _integer(number: int, dtype: DType) -> NumpyScalar:
    return dtype.array.type(_wrapped(number, dtype))


def _bits(value: NumpyScalar, scalar: Bits) -> NumpyScalar:
    target, storage = scalar.type, scalar.storage
    if storage is None:
        return np.asarray(value).view(target.array)[()]
    if target.kind == "float":
        return np.asarray(value).view(storage.array).astype(target.array)[()]
    return np.asarray(value).astype(storage.array).view(target.array)[()]


# --- arithmetic -------------------------------------------------------------------------------------------------------

_COMPARISONS: dict[str, Callable[[NumpyScalar, NumpyScalar], NumpyScalar]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def unary(op: str, value: NumpyScalar, dtype: DType) -> NumpyScalar:
    """An operation on one value of a dtype."""
    match op:
        case "not" if dtype.kind == "bool":
            return np.bool_(not value)
        case "not":
            return _integer(~int(value), dtype)
        case "neg":
            return -value if dtype.kind == "float" else _integer(-int(value), dtype)
        case "abs":
            return abs(value) if dtype.kind == "float" else _integer(abs(int(value)), dtype)
        case "popcount":
            return _integer((int(value) & ((1 << dtype.bits) - 1)).bit_count(), dtype)
        case "sqrt" | "floor" | "ceil" | "rint" | "trunc" | "isnan" | "isinf" | "signbit":
            return getattr(np, op)(value)
        case _:
            raise TypeError(op)


def binary(op: str, a: NumpyScalar, b: NumpyScalar, dtype: DType) -> NumpyScalar:
    """An operation on two values of a dtype."""
    if dtype.kind == "float":
        return _float_binary(op, a, b)
    if dtype.kind == "bool":
        return np.bool_(_BIT_OPS[op](bool(a), bool(b)))
    return _integer(_integer_binary(op, int(a), int(b), dtype), dtype)


_BIT_OPS: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def _float_binary(op: str, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div":
            return a / b
        case "rem":
            return np.fmod(a, b)
        case "copysign" | "nextafter":
            return getattr(np, op)(a, b)
        case "min" | "max":
            if np.isnan(a) or np.isnan(b):
                return a if np.isnan(a) else b
            # -0 is smaller than +0.
            first, second = ((value, not np.signbit(value)) for value in (a, b))
            return (min if op == "min" else max)(first, second)[0]
        case _:
            raise TypeError(op)


def _integer_binary(op: str, a: int, b: int, dtype: DType) -> int:
    """The exact result, which then wraps."""
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div" | "rem":
            if b == 0:
                raise UndefinedError("an integer is divided by zero")
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return quotient if op == "div" else a - quotient * b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "shl" | "shr":
            if b < 0:
                message = f"a shift by {b}"
                raise UndefinedError(message)
            # All bits are gone from the width on; a negative number shifts to -1.
            return a << min(b, dtype.bits) if op == "shl" else a >> min(b, dtype.bits)
        case _:
            return _BIT_OPS[op](a, b)


# --- named functions --------------------------------------------------------------------------------------------------

_NUMPY_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "pow": "power"}
_NUMPY_NAMES |= {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}


def named(function: str, args: Sequence[NumpyScalar], dtype: DType) -> NumpyScalar:
    """A function of floats, computed in the next wider type and rounded once."""
    if function == "fma":
        a, b, c = args
        return _fused(a, b, c, dtype)
    if function in ("erf", "erfc"):
        return dtype.array.type(getattr(math, function)(float(args[0])))
    if function == "gelu":
        return dtype.array.type(_gelu(float(args[0])))
    wide = np.float64 if dtype.name == "f32" else np.longdouble
    own = getattr(np, _NUMPY_NAMES.get(function, function))
    return dtype.array.type(own(*(wide(one) for one in args)))


def _gelu(x: float) -> float:
    """``x / 2 * erfc(-x / sqrt(2))``; what the quotient loses when it is rounded is counted by the derivative."""
    exact = -np.longdouble(x) * np.sqrt(np.longdouble(0.5))
    y = float(exact)
    lost = float(exact - y) if abs(y) < 30 else 0.0
    return x / 2 * (math.erfc(y) - 2 / math.sqrt(math.pi) * math.exp(-min(y * y, 900)) * lost)


def _fused(a: NumpyScalar, b: NumpyScalar, c: NumpyScalar, dtype: DType) -> NumpyScalar:
    """``a * b + c``, rounded once."""
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        # An infinity or NaN is the same however it is rounded; a product of finite numbers must not become one.
        return a * b + c if not (np.isfinite(a) and np.isfinite(b)) else c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return a * b + c
    return _rounded(exact, dtype)


def _rounded(exact: Fraction, dtype: DType) -> NumpyScalar:
    """The nearest float. Through f64 rounded to odd, so that the second rounding sees what was cut off."""
    try:
        near = np.float64(float(exact))
    except OverflowError:
        return dtype.array.type(math.copysign(math.inf, exact))
    if dtype.name == "f64" or Fraction(float(near)) == exact:
        return dtype.array.type(near)
    if not near.view(np.int64) & 1:
        near = np.nextafter(near, np.float64(math.inf if exact > Fraction(float(near)) else -math.inf))
    return dtype.array.type(near)
