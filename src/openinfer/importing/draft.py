"""A graph on its way from another format to text: ops of the language on values that have types but no names yet.

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
    """A tensor that exists when the graph runs.

    ``hint`` is what the file calls it, which is known only after the value: the one thing here that is set later.
    """

    dtype: DType
    shape: Shape
    hint: str = ""

    @property
    def type(self) -> TensorType:
        """Its type as ops take it."""
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True, eq=False)
class QuantizedCodes:
    """What real numbers were dequantized from: codes of i8 less their zero point, and a scale, or one along an axis."""

    values: Array
    scale: Array
    axis: int
    hint: str


@dataclass(frozen=True, eq=False)
class KnownTensor:
    """A tensor that is known while importing: a weight, or what was computed from weights and sizes.

    An array of objects holds integers that depend on dynamic sizes, as ``int`` and ``Dim``.
    """

    dtype: DType
    array: Array
    hint: str = ""
    codes: QuantizedCodes | None = None
    """What its elements were dequantized from, so that products can take that."""

    @property
    def shape(self) -> Shape:
        """Its shape."""
        return self.array.shape

    @property
    def type(self) -> TensorType:
        """Its type as ops take it."""
        return TensorType(self.dtype, self.shape)

    @property
    def has_sizes(self) -> bool:
        """Whether elements depend on dynamic sizes."""
        return self.array.dtype == object


@dataclass(frozen=True, eq=False)
class DraftPart:
    """What brackets choose from a value."""

    base: DraftValue
    indices: tuple[Index, ...]
    shape: Shape

    @property
    def dtype(self) -> DType:
        """The dtype of the whole."""
        return self.base.dtype

    @property
    def type(self) -> TensorType:
        """Its type as ops take it."""
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True)
class IndexOperand:
    """The index of a loop around, an i64 scalar."""

    name: str
    dtype: DType = I64
    shape: Shape = ()

    @property
    def type(self) -> TensorType:
        """Its type as ops take it."""
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True, eq=False)
class DraftFamily:
    """Known tensors of one type, of which the index of a loop chooses one."""

    members: tuple[KnownTensor, ...]
    index: str

    @property
    def dtype(self) -> DType:
        """The dtype of each."""
        return self.members[0].dtype

    @property
    def shape(self) -> Shape:
        """The shape of each."""
        return self.members[0].shape

    @property
    def type(self) -> TensorType:
        """Its type as ops take it."""
        return TensorType(self.dtype, self.shape)


DraftOperand = DraftValue | KnownTensor | DraftPart | IndexOperand | DraftFamily
DraftParam = Any
"""What an op takes as a parameter: numbers, strings, dtypes, tuples; integers may be ``Dim``."""


@dataclass(frozen=True)
class NodeOrigin:
    """Where a step came from: the node's name, what it computes and its type."""

    node: str = ""
    kind: str = ""


@dataclass(frozen=True)
class DraftOp:
    """A computation. ``declares`` says whether the outputs are new, or variables that exist already."""

    op: str
    inputs: tuple[DraftOperand | None, ...]
    params: tuple[tuple[str, DraftParam], ...]
    outputs: tuple["DraftValue | DraftPart", ...]
    origin: NodeOrigin = field(default_factory=NodeOrigin, compare=False)
    declares: bool = True


@dataclass(frozen=True)
class DraftDeclare:
    """A variable that is written later, zero until then."""

    value: DraftValue


@dataclass(frozen=True)
class DraftCopy:
    """A value copied into a variable, or into a part of one."""

    src: DraftOperand
    dst: DraftValue | DraftPart
    origin: NodeOrigin = field(default_factory=NodeOrigin, compare=False)


@dataclass(frozen=True)
class DraftLoop:
    """A body that runs for each index from 0 up to ``count``, which may be a scalar that the graph computes."""

    name: str
    index: str
    count: int | DraftValue
    body: tuple["DraftStep", ...]
    origin: NodeOrigin = field(default_factory=NodeOrigin, compare=False)
    comment: str = ""
    """Where the loop came from, for readers."""


@dataclass(frozen=True)
class DraftBranch:
    """One of two bodies, by a scalar bool. Neither declares anything."""

    cond: DraftValue
    then_body: tuple["DraftStep", ...]
    else_body: tuple["DraftStep", ...]
    origin: NodeOrigin = field(default_factory=NodeOrigin, compare=False)
    words: tuple[str, str] = ("then", "otherwise")
    """What the blocks are called."""


@dataclass(frozen=True, eq=False)
class DraftCounter:
    """A persistent integer: how many entries tables have."""

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
    """How many of them there are, where an index chooses one."""


@dataclass(frozen=True)
class DraftStore:
    """A persistent variable, or a part of one, gets its value for the next step."""

    src: DraftOperand
    state: DraftValue | DraftPart


@dataclass(frozen=True)
class DraftWrite:
    """Entries written behind those that a table has."""

    src: DraftOperand
    table: DraftTable
    added: int
    layer: str = ""
    """The loop index that chooses the layer of the table, or its number."""


@dataclass(frozen=True)
class DraftRead:
    """The entries that a table has, and those that this step has added."""

    table: DraftTable
    dst: DraftValue
    added: int
    layer: str = ""
    """The loop index that chooses the layer of the table."""


@dataclass(frozen=True)
class DraftCount:
    """The number of entries after this step."""

    counter: DraftCounter
    added: int


DraftStep = (
    DraftOp | DraftDeclare | DraftCopy | DraftLoop | DraftBranch | DraftStore | DraftWrite | DraftRead | DraftCount
)


@dataclass(frozen=True)
class DraftState:
    """What stays between steps: the names of the input and the output that it was, and what stands for it."""

    given: str
    result: str
    memory: DraftValue | DraftTable
    initial: KnownTensor | None = None
    """What it is at the start, if not zero."""


@dataclass(frozen=True)
class Port:
    """An input or output of the model: its name in the file, and what stands for it."""

    name: str
    operand: DraftOperand


@dataclass(frozen=True)
class Draft:
    """A whole graph: what comes in, what happens, what comes out."""

    name: str
    inputs: tuple[Port, ...]
    steps: tuple[DraftStep, ...]
    outputs: tuple[Port, ...]
    sizes: tuple[tuple[str, int], ...]
    """The dynamic sizes and their bounds."""
    states: tuple[DraftState, ...] = ()
    comment: str = ""
    """Where the graph came from, for readers."""


def known(array: Any, dtype: DType | None = None, hint: str = "") -> KnownTensor:
    """A known tensor; integers without a dtype are i64, and objects become plain integers where no size is left."""
    if isinstance(array, Dim):  # in which NumPy would see a plain integer
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
    """All steps, heads before bodies."""
    for step in steps:
        yield step
        if isinstance(step, DraftLoop):
            yield from walk(step.body)
        elif isinstance(step, DraftBranch):
            yield from walk(step.then_body)
            yield from walk(step.else_body)


def operands(step: DraftStep) -> tuple[DraftOperand, ...]:
    """What a step reads itself, without its body."""
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
    """The value that an operand is, or is a part of."""
    return operand.base if isinstance(operand, DraftPart) else operand
