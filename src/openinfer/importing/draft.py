"""A graph in transit from another format to text: ops of the language on values with types but without names.

Values are compared by identity. Extents are integers, or ``Dim`` over dynamic sizes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openinfer.dtypes import DTYPES, Array, DType
from openinfer.ir.operand import Index
from openinfer.loops.dim import Dim
from openinfer.ops.types import Shape, TensorType

I64 = DTYPES["i64"]


@dataclass(eq=False)
class DraftValue:
    """A tensor that exists at run time.

    ``hint`` is its name in the file. That is known only after the value, so it is the one field that is set later.
    """

    dtype: DType
    shape: Shape
    hint: str = ""

    @property
    def type(self) -> TensorType:
        """The type as ops take it."""
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True, eq=False)
class QuantizedCodes:
    """What real numbers were dequantized from: i8 codes minus their zero point, and one scale or one per slice."""

    values: Array
    scale: Array
    axis: int
    hint: str


@dataclass(frozen=True, eq=False)
class KnownTensor:
    """A tensor known at import: a weight, or a value computed from weights and sizes.

    An array of objects holds integers that depend on dynamic sizes, as ``int`` and ``Dim``.
    """

    dtype: DType
    array: Array
    hint: str = ""
    codes: QuantizedCodes | None = None
    """What the elements were dequantized from, so that products can use the codes."""

    @property
    def shape(self) -> Shape:
        """The shape."""
        return self.array.shape

    @property
    def type(self) -> TensorType:
        """The type as ops take it."""
        return TensorType(self.dtype, self.shape)

    @property
    def has_sizes(self) -> bool:
        """Whether any element depends on dynamic sizes."""
        return self.array.dtype == object


@dataclass(frozen=True, eq=False)
class DraftPart:
    """The part of a value that indices in brackets select."""

    base: DraftValue
    indices: tuple[Index, ...]
    shape: Shape

    @property
    def dtype(self) -> DType:
        """The dtype of the whole."""
        return self.base.dtype

    @property
    def type(self) -> TensorType:
        """The type as ops take it."""
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True)
class IndexOperand:
    """The index of an enclosing loop, an i64 scalar."""

    name: str
    dtype: DType = I64
    shape: Shape = ()

    @property
    def type(self) -> TensorType:
        """The type as ops take it."""
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True, eq=False)
class DraftFamily:
    """Known tensors of one type, of which a loop index selects one."""

    members: tuple[KnownTensor, ...]
    index: str

    @property
    def dtype(self) -> DType:
        """The dtype of each member."""
        return self.members[0].dtype

    @property
    def shape(self) -> Shape:
        """The shape of each member."""
        return self.members[0].shape

    @property
    def type(self) -> TensorType:
        """The type as ops take it."""
        return TensorType(self.dtype, self.shape)


DraftOperand = DraftValue | KnownTensor | DraftPart | IndexOperand | DraftFamily
DraftParam = Any
"""A parameter of an op: a number, string, dtype or tuple; integers may be ``Dim``."""


@dataclass(frozen=True)
class NodeOrigin:
    """Where a step came from: the name and the type of the node."""

    node: str = ""
    kind: str = ""


@dataclass(frozen=True)
class DraftOp:
    """A computation. ``declares`` says whether it declares its outputs or writes existing variables."""

    op: str
    inputs: tuple[DraftOperand | None, ...]
    params: tuple[tuple[str, DraftParam], ...]
    outputs: tuple["DraftValue | DraftPart", ...]
    origin: NodeOrigin = field(default_factory=NodeOrigin, compare=False)
    declares: bool = True


@dataclass(frozen=True)
class DraftDeclare:
    """Declares a variable that is written later and is zero until then."""

    value: DraftValue


@dataclass(frozen=True)
class DraftCopy:
    """Copies a value into a variable or a part of one."""

    src: DraftOperand
    dst: DraftValue | DraftPart
    origin: NodeOrigin = field(default_factory=NodeOrigin, compare=False)


@dataclass(frozen=True)
class DraftLoop:
    """Runs a body for each index from 0 up to ``count``, which may be a scalar that the graph computes."""

    name: str
    index: str
    count: int | DraftValue
    body: tuple["DraftStep", ...]
    origin: NodeOrigin = field(default_factory=NodeOrigin, compare=False)
    comment: str = ""
    """Where the loop came from, for readers."""


@dataclass(frozen=True)
class DraftBranch:
    """Runs one of two bodies, selected by a scalar bool. Neither declares anything."""

    cond: DraftValue
    then_body: tuple["DraftStep", ...]
    else_body: tuple["DraftStep", ...]
    origin: NodeOrigin = field(default_factory=NodeOrigin, compare=False)
    words: tuple[str, str] = ("then", "otherwise")
    """The names of the blocks."""


@dataclass(frozen=True, eq=False)
class DraftCounter:
    """A persistent integer: the number of entries in its tables."""

    hint: str


@dataclass(frozen=True, eq=False)
class DraftTable:
    """Persistent memory that grows entry by entry, up to a bound."""

    hint: str
    dtype: DType
    entry: Shape
    bound: int
    counter: DraftCounter
    layers: int = 0
    """The number of layers, if an index selects one."""


@dataclass(frozen=True)
class DraftStore:
    """Stores the value that a persistent variable, or a part of one, has in the next step."""

    src: DraftOperand
    state: DraftValue | DraftPart


@dataclass(frozen=True)
class DraftWrite:
    """Appends entries to a table."""

    src: DraftOperand
    table: DraftTable
    added: int
    layer: str = ""
    """The loop index that selects the layer of the table, or the number of the layer."""


@dataclass(frozen=True)
class DraftRead:
    """Reads the entries of a table, including those added in this step."""

    table: DraftTable
    dst: DraftValue
    added: int
    layer: str = ""
    """The loop index that selects the layer of the table."""


@dataclass(frozen=True)
class DraftCount:
    """Updates the number of entries at the end of a step."""

    counter: DraftCounter
    added: int


DraftStep = (
    DraftOp | DraftDeclare | DraftCopy | DraftLoop | DraftBranch | DraftStore | DraftWrite | DraftRead | DraftCount
)


@dataclass(frozen=True)
class DraftState:
    """State that persists between steps: the names of its former input and output, and the memory behind them."""

    given: str
    result: str
    memory: DraftValue | DraftTable
    initial: KnownTensor | None = None
    """The initial value, if not zero."""


@dataclass(frozen=True)
class Port:
    """An input or output of the model: its name in the file and its operand."""

    name: str
    operand: DraftOperand


@dataclass(frozen=True)
class Draft:
    """A whole graph: its inputs, steps and outputs."""

    name: str
    inputs: tuple[Port, ...]
    steps: tuple[DraftStep, ...]
    outputs: tuple[Port, ...]
    sizes: tuple[tuple[str, int], ...]
    """The dynamic sizes with their bounds."""
    states: tuple[DraftState, ...] = ()
    comment: str = ""
    """Where the graph came from, for readers."""


def known(array: Any, dtype: DType | None = None, hint: str = "") -> KnownTensor:
    """A known tensor. Integers without a dtype are i64; objects become plain integers if no size is among them."""
    if isinstance(array, Dim):  # NumPy would see a plain integer
        size = np.empty((), object)
        size[()] = array
        return KnownTensor(dtype or I64, size, hint)
    found = np.asarray(array)
    if found.dtype == object:
        if any(isinstance(one, Dim) for one in found.reshape(-1)):
            return KnownTensor(dtype or I64, found, hint)
        found = found.astype((dtype or I64).array)
    if dtype is None:
        from openinfer.dtypes import from_numpy_dtype

        dtype = from_numpy_dtype(found.dtype)
        assert dtype is not None, found.dtype
    return KnownTensor(dtype, found if found.dtype == dtype.array else found.astype(dtype.array), hint)


def extents(values: Any) -> KnownTensor:
    """A one-dimensional i64 tensor of extents."""
    found = np.empty(len(values), object)
    found[:] = list(values)
    return known(found, I64)


def extent(value: int) -> KnownTensor:
    """An i64 scalar that may depend on sizes."""
    found = np.empty((), object)
    found[()] = value
    return known(found, I64)


def walk(steps: tuple[DraftStep, ...]) -> Iterator[DraftStep]:
    """All steps, each before the steps of its bodies."""
    for step in steps:
        yield step
        if isinstance(step, DraftLoop):
            yield from walk(step.body)
        elif isinstance(step, DraftBranch):
            yield from walk(step.then_body)
            yield from walk(step.else_body)


def operands(step: DraftStep) -> tuple[DraftOperand, ...]:
    """The operands that a step itself reads, without those of its body."""
    match step:
        case DraftOp():
            return tuple(one for one in step.inputs if one is not None)
        case DraftCopy() | DraftStore() | DraftWrite():
            return (step.src,)
        case DraftBranch():
            return (step.cond,)
        case DraftLoop(count=DraftValue() as count):
            return (count,)
    return ()


def base_of(operand: DraftOperand) -> DraftOperand:
    """The value that an operand is or is a part of."""
    return operand.base if isinstance(operand, DraftPart) else operand
