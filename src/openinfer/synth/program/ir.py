"""The program IR: a graph as kernels and values. Fusion, scheduling, placement and targets work on it.

Everything here is frozen: a pass returns a new program, which shares what did not change with the old one. Values and
tables have identity; operands and steps compare by value.

Every write of a variable makes a new value. At control flow joins, and for memory that outlives the step, a variable
has a *home*, and moves bring its value there; placement eliminates most moves by giving both the same memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from operator import is_
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.dtypes import DType
from openinfer.errors import Code
from openinfer.ir import Index
from openinfer.ir.expr import LEAST_INDEX, MOST_INDEX, Expr
from openinfer.loops.dim import most_elements
from openinfer.loops.ir import Buffer, Kernel
from openinfer.synth.program.packing import Packing
from openinfer.tensor import Tensor

FOLDED = "folded"


class Storage(StrEnum):
    """The kind of memory that a value lives in."""

    ARENA = "arena"
    """Memory of one step; the planner decides where."""
    INPUT = "input"
    """The caller's input, which no kernel writes."""
    STATE = "state"
    """Memory that outlives the step, at a fixed offset."""
    WEIGHTS = "weights"
    """The model's data."""
    ARGUMENT = "argument"
    """A block's argument, which no kernel writes: the caller passes its address."""
    RESULT = "result"
    """A block's result: the caller passes its address."""

    @property
    def is_read_only(self) -> bool:
        """Whether steps must not write there."""
        return self in (Storage.INPUT, Storage.WEIGHTS, Storage.ARGUMENT)


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in memory. ``shape`` may be symbolic."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    storage: Storage = Storage.ARENA
    variable: str | None = None
    is_home: bool = False

    @property
    def nbytes(self) -> int:
        """The most bytes the value takes."""
        return self.dtype.nbytes(most_elements(self.shape))

    @property
    def is_empty(self) -> bool:
        """Whether it has no elements, whatever the sizes are."""
        return any(type(extent) is int and extent == 0 for extent in self.shape)

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.name}{list(self.shape)}"


@dataclass(frozen=True)
class Weight:
    """A tensor of the model as an operand: a fixed one, or one of a family that indices select at run time."""

    names: tuple[str, ...]
    """The model tensors, in row-major order of the indices."""
    dtype: DType
    shape: tuple[int, ...]
    index: tuple[Expr, ...] = ()
    extents: tuple[int, ...] = ()
    """The number of values of each index."""
    firsts: tuple[int, ...] = ()
    """The smallest value of each index."""
    part: str = "data"
    """``data``; ``scale`` or ``zero`` for the tensors' quantization; ``folded`` for a constant-folded result."""
    packing: Packing | None = None
    """The element order, if it differs from the tensors'; ``shape`` then is the packed shape."""
    can_miss: bool = field(default=False, compare=False)
    """Whether the indices may select a tensor that does not exist: a step that reads it then fails."""

    def __hash__(self) -> int:
        # Not all names: there can be thousands, and operands are hashed all the time.
        return hash((self.names[0], len(self.names), self.shape, self.index, self.part, self.packing))


@dataclass(frozen=True, eq=False)
class Table:
    """The storage of a persistent table: growing axes first, with their bounds (None: unbounded)."""

    variable: BoundVar
    bounds: tuple[int | None, ...]
    entry: tuple[int, ...]
    keys: int
    """The number of growing axes that select matrices; the rest are the matrix's own (auto-dim)."""


@dataclass(frozen=True, eq=False)
class Family:
    """A prefix table whose entries the graph writes: a step works on its own copies until it ends."""

    entries: Weight
    """The model's tensors."""
    slots: tuple[int, ...]
    """For each tensor, the position of its entry among the step's own; -1 for entries that nothing writes."""
    own: Value
    """The bytes of the step's own entries."""
    written: Value
    """Which of its own entries the step has written, as flags; these override the model's tensors."""

    @cached_property
    def has_gaps(self) -> bool:
        """Whether there are entries that nothing writes."""
        return -1 in self.slots


StepOperand: TypeAlias = Value | Weight


class KernelSchedule(Protocol):
    """A target's decisions about how a kernel runs, beyond what its loops say."""

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """The scratch buffers, which replace the kernel's own."""


@dataclass(frozen=True)
class KernelStep:
    """One call of a kernel."""

    kernel: Kernel
    inputs: tuple[StepOperand, ...]
    outputs: tuple[Value, ...]
    node: int
    scratch: tuple[Value, ...] = ()
    scalars: tuple[Value, ...] = ()
    """The variables that its indices read."""
    nodes: tuple[int, ...] = ()
    """The nodes it computes, if it was fused from several."""
    is_initial: bool = False
    """Whether it sets a variable's initial value, which exists even while its sizes are unknown."""
    parts: int = 1
    """The number of slices that run in parallel, each with its own scratch memory."""
    schedule: KernelSchedule | None = None


@dataclass(frozen=True)
class Move:
    """Copies a value to another; free if both share memory."""

    src: StepOperand
    dst: Value
    node: int
    scalars: tuple[Value, ...] = ()


@dataclass(frozen=True)
class LoopStep:
    """A loop of the graph."""

    index: str
    start: Expr
    end: Expr
    body: tuple["Step", ...]
    node: int
    name: str = ""
    scalars: tuple[Value, ...] = ()


@dataclass(frozen=True)
class BranchStep:
    """Runs one of two blocks, or none; without a condition, the first."""

    cond: Value | None
    then_block: str
    else_block: str | None
    node: int


@dataclass(frozen=True)
class CallStep:
    """Runs a block: a consumer whose awaited variables have all been yielded, or a block with parameters."""

    block: str
    node: int
    sizes: tuple[str, ...] = ()
    """The dynamic sizes that a consumer may bind: they are private to it until entry awaits it."""
    args: tuple[StepOperand, ...] = ()
    """The block's arguments, in the order of its parameters."""
    integers: tuple[Expr, ...] = ()
    """The values of the block's indices."""
    results: tuple[Value, ...] = ()
    """The values that receive the block's results."""
    scalars: tuple[Value, ...] = ()
    """The variables that the integers and the arguments' indices read."""


@dataclass(frozen=True)
class BlockIndex:
    """An integer parameter of a block, with its range."""

    name: str
    least: int = LEAST_INDEX
    most: int = MOST_INDEX
    tensor: str = ""
    """The block's parameter whose model tensor it selects, if it does; the graph has no name for it."""

    @property
    def is_chosen(self) -> bool:
        """Whether it selects a model tensor."""
        return self.tensor != ""


@dataclass(frozen=True)
class BlockParams:
    """The parameters and results of a block, in the order of a ``CallStep``."""

    args: tuple[Value, ...] = ()
    indices: tuple[BlockIndex, ...] = ()
    results: tuple[Value, ...] = ()


@dataclass(frozen=True)
class JoinSizes:
    """Entry awaits a consumer, or ends: sizes that both have bound must agree, and become entry's."""

    block: str
    node: int


@dataclass(frozen=True)
class Fence:
    """Nothing moves or fuses across it: a barrier, or the transfer of variables to a consumer."""

    node: int


@dataclass(frozen=True)
class BindSize:
    """A declared variable's extent must equal a value's; a dynamic size that is not bound yet is bound from it."""

    declared: int
    found: int
    node: int
    is_exact: bool = True
    """Whether divisions in the extent must have no remainder; those made by a shape rule may have one."""


@dataclass(frozen=True)
class RequireSize:
    """A dynamic size must be at least ``least`` and none of ``excluded``: the op has no result for other sizes."""

    size: int
    least: int
    node: int
    excluded: tuple[int, ...] = ()
    code: Code = Code.SHAPE_MISMATCH
    """The error code of the op."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of two expressions over dynamic sizes."""

    op: Literal["==", "!=", "<", ">="]
    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"

    @property
    def opposite(self) -> "Comparison":
        """The negated comparison."""
        others: dict[str, Literal["==", "!=", "<", ">="]] = {"==": "!=", "!=": "==", "<": ">=", ">=": "<"}
        return Comparison(others[self.op], self.left, self.right)


@dataclass(frozen=True)
class RefuseSizes:
    """Sizes for which all comparisons hold are an error: an op requires a relation between them."""

    refused: tuple[Comparison, ...]
    node: int
    code: Code
    """The error code of the op."""


class Action(StrEnum):
    """An access to a slice of a tensor, a table, or an entry of a prefix table."""

    READ = "read"
    WRITE = "write"
    RESET = "reset"
    CHECK = "check"
    """A dead read that is kept for its bounds check."""

    @property
    def is_change(self) -> bool:
        """Whether it modifies memory."""
        return self in (Action.WRITE, Action.RESET)


@dataclass(frozen=True)
class PartStep:
    """Reads, writes or resets a slice of a plain tensor. Writes and resets operate on a copy made just before."""

    action: Action
    whole: StepOperand
    indices: tuple[Index, ...]
    value: StepOperand | None
    """The value read or written; for a reset the model's tensor, or None to fill with ``initial``."""
    node: int
    scalars: tuple[Value, ...] = ()
    initial: float = 0
    is_exact: bool = False
    """Whether the read value has declared extents: divisions in these must have no remainder."""


@dataclass(frozen=True)
class TableStep:
    """Reads, writes or resets a slice of a table. Indices are as written in the graph."""

    action: Action
    table: Table
    indices: tuple[Index, ...]
    value: Value | None
    node: int
    scalars: tuple[Value, ...] = ()
    is_exact: bool = False
    """Whether the read value has declared extents: divisions in these must have no remainder."""


@dataclass(frozen=True)
class EntryStep:
    """Reads or writes an entry of a prefix table that the graph writes."""

    action: Action
    family: Family
    index: tuple[Expr, ...]
    value: Value
    node: int
    scalars: tuple[Value, ...] = ()


@dataclass(frozen=True)
class WeightCheck:
    """Checks that the indices of a weight select an existing tensor: what remains of a read whose result is dead."""

    weight: Weight
    node: int
    scalars: tuple[Value, ...] = ()


@dataclass(frozen=True)
class IntegerStep:
    """Stores an integer known only at run time: a loop index, or an index expression."""

    expr: Expr
    value: Value
    """An i64."""
    node: int
    scalars: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Mark:
    """Tells a trace that a node has been executed, and which values it wrote. It computes nothing."""

    node: int
    values: tuple[StepOperand, ...] = ()
    is_return: bool = False
    """Whether it is the second mark of a call, after the block has run."""


Step: TypeAlias = (
    KernelStep
    | Move
    | LoopStep
    | BranchStep
    | CallStep
    | JoinSizes
    | BindSize
    | RequireSize
    | RefuseSizes
    | TableStep
    | PartStep
    | EntryStep
    | WeightCheck
    | IntegerStep
    | Fence
    | Mark
)


Steps: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Program:
    """A graph lowered to kernels and values; its semantics are fully resolved."""

    bound: BoundGraph
    blocks: Mapping[str, Steps]
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    homes: Mapping[str, Value]
    tables: Mapping[str, Table]
    sizes: Mapping[str, int]
    """Dynamic sizes with their bounds, including lengths of unnamed slices."""
    keeps_marked: bool = False
    """Whether values stay alive until their marks, so that a trace can read all of them."""
    params: Mapping[str, BlockParams] = field(default_factory=dict)
    """The signatures of blocks with parameters."""
    folded: Mapping[str, Tensor] = field(default_factory=dict)
    """Constant-folded results by name; weights with the part ``folded`` refer to these."""

    def __post_init__(self) -> None:
        for name in ("blocks", "inputs", "outputs", "homes", "tables", "sizes", "params", "folded"):
            # Copied, so that whoever built the mappings cannot change the program.
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def is_named(self, size: str) -> bool:
        """Whether a dynamic size is declared by the graph; all others are slice lengths, each belonging to one node."""
        return size in self.bound.bounds

    def steps(self) -> Iterator[Step]:
        """All steps, block by block, each loop before its body."""
        for steps in self.blocks.values():
            yield from steps_in(steps)

    def map_steps(self, change: Callable[[Step], Iterable[Step]]) -> "Program":
        """The program with each step replaced by what ``change`` returns for it.

        A loop is passed with its body already changed; a step that is returned unchanged stays the same object.
        """
        return replace(self, blocks={name: map_steps(steps, change) for name, steps in self.blocks.items()})

    def map_kernels(self, change: Callable[[KernelStep], Iterable[Step]]) -> "Program":
        """The program with each kernel call replaced by what ``change`` returns for it."""
        return self.map_steps(lambda step: change(step) if isinstance(step, KernelStep) else (step,))


def steps_in(steps: Iterable[Step]) -> Iterator[Step]:
    """Steps and those inside loops, each loop before its body."""
    todo = [iter(steps)]
    while todo:
        for step in todo[-1]:
            yield step
            if isinstance(step, LoopStep):
                todo.append(iter(step.body))
                break
        else:
            todo.pop()


def map_steps(steps: Steps, change: Callable[[Step], Iterable[Step]]) -> Steps:
    """Replaces each step, including those inside loops, by what ``change`` returns; loop bodies are changed first."""
    found: list[Step] = []
    for step in steps:
        found += change(with_body(step, map_steps(step.body, change)) if isinstance(step, LoopStep) else step)
    return tuple(found)


def with_body(loop: LoopStep, body: Steps) -> LoopStep:
    """The loop with another body; the same object if the steps are identical."""
    is_same = len(body) == len(loop.body) and all(map(is_, body, loop.body))
    return loop if is_same else replace(loop, body=body)
