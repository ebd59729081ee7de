"""A graph as kernels and values: what fusion, scheduling, placement and targets work on.

Everything here is frozen: a pass returns another program, and shares with the one it was given what it did not change.
Values and tables are themselves, whatever they look like; operands and steps are what they say.

Every write of a variable makes a new value. Where control flow joins, and for memory that outlives the step, a variable
has a *home*, and moves bring its value there; placement makes most moves vanish by giving both the same memory.
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
    """What a block is called with, which no kernel writes: the caller says where it is."""
    RESULT = "result"
    """What a block returns: the caller says where to."""

    @property
    def is_read_only(self) -> bool:
        """Whether no step may write there."""
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

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.name}{list(self.shape)}"


@dataclass(frozen=True)
class Weight:
    """A tensor of the model as an operand: one, or one of a family that indices choose while running."""

    names: tuple[str, ...]
    """The model tensors, in row-major order of the indices."""
    dtype: DType
    shape: tuple[int, ...]
    index: tuple[Expr, ...] = ()
    extents: tuple[int, ...] = ()
    """How many values each index has."""
    firsts: tuple[int, ...] = ()
    """The smallest value of each index."""
    part: str = "data"
    """``data``; ``scale`` and ``zero`` for the quantization of the tensors; ``folded`` for one of the program's own."""
    packing: Packing | None = None
    """The order of the elements, where it is not that of the tensors; ``shape`` then is the packed one."""
    can_miss: bool = field(default=False, compare=False)
    """Whether the indices may name no tensor: a step that reads it there fails."""

    def __hash__(self) -> int:
        # Not all names: there can be thousands, and operands are looked up all the time.
        return hash((self.names[0], len(self.names), self.shape, self.index, self.part, self.packing))


@dataclass(frozen=True, eq=False)
class Table:
    """The storage of a persistent table: growing axes first, with their bounds (None: it can always grow)."""

    variable: BoundVar
    bounds: tuple[int | None, ...]
    entry: tuple[int, ...]
    keys: int
    """How many of the growing axes choose matrices; the rest are the matrix's own (auto-dim)."""


@dataclass(frozen=True, eq=False)
class Family:
    """A prefix table whose entries the graph writes: until it ends, a step has entries of its own."""

    entries: Weight
    """The model's tensors."""
    slots: tuple[int, ...]
    """For each of them its position among the step's own; -1 for those that nothing writes."""
    own: Value
    """The bytes of the step's own entries."""
    written: Value
    """Whether the step has written its own entry, in which case it is the one that counts."""

    @cached_property
    def has_gaps(self) -> bool:
        """Whether there are entries that nothing writes."""
        return -1 in self.slots


StepOperand: TypeAlias = Value | Weight


class KernelSchedule(Protocol):
    """What a target has decided about how a kernel runs, where that is more than its loops say."""

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """The memory that it works in, in place of the kernel's own."""


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
    """The nodes it computes, where it was made of several."""
    is_initial: bool = False
    """Whether it gives a variable its initial value, which it has also while its sizes are unknown."""
    parts: int = 1
    """In how many parts it runs at the same time, each with scratch memory of its own."""
    schedule: KernelSchedule | None = None


@dataclass(frozen=True)
class Move:
    """A value becomes another's: a copy unless both have the same memory."""

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
    """Runs a block: a consumer that has been given what it awaits, or a block with parameters."""

    block: str
    node: int
    sizes: tuple[str, ...] = ()
    """The dynamic sizes that a consumer may bind: they are its own until entry awaits it."""
    args: tuple[StepOperand, ...] = ()
    """What the parameters of the block are, one by one."""
    integers: tuple[Expr, ...] = ()
    """The values of its indices."""
    results: tuple[Value, ...] = ()
    """What its results become."""
    scalars: tuple[Value, ...] = ()
    """The variables that the integers, and the indices of arguments, read."""


@dataclass(frozen=True)
class BlockIndex:
    """An integer that a block is called with, and what it can be."""

    name: str
    least: int = LEAST_INDEX
    most: int = MOST_INDEX
    is_chosen: bool = False
    """Whether it says which of several tensors of the model an argument is; the graph has no name for it."""


@dataclass(frozen=True)
class BlockParams:
    """What a block is called with, and where it returns its results; both in the order of a ``CallStep``."""

    args: tuple[Value, ...] = ()
    indices: tuple[BlockIndex, ...] = ()
    results: tuple[Value, ...] = ()


@dataclass(frozen=True)
class JoinSizes:
    """Entry awaits a consumer, or ends: what they have bound must agree, and is entry's from now on."""

    block: str
    node: int


@dataclass(frozen=True)
class Fence:
    """Nothing moves or fuses across it: a barrier, or a hand-over of variables."""

    node: int


@dataclass(frozen=True)
class BindSize:
    """An extent of a declared variable must be that of a value; a dynamic size without a value gets it from there."""

    declared: int
    found: int
    node: int
    is_exact: bool = True
    """Whether the divisions in the extent must leave nothing over; those that a shape rule makes may."""


@dataclass(frozen=True)
class RequireSize:
    """A dynamic size must be at least ``least`` and none of ``excluded``, for which an op has no result."""

    size: int
    least: int
    node: int
    excluded: tuple[int, ...] = ()
    code: Code = Code.SHAPE_MISMATCH
    """What the op says about them."""


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
    """Dynamic sizes for which all comparisons are true have no result: an op needs them to fit each other."""

    refused: tuple[Comparison, ...]
    node: int
    code: Code
    """What the op says about them."""


class Action(StrEnum):
    """What is done to a slice of a tensor, a table, or an entry of a prefix table."""

    READ = "read"
    WRITE = "write"
    RESET = "reset"
    CHECK = "check"
    """A dead read that is kept for its bounds check."""

    @property
    def is_change(self) -> bool:
        """Whether memory changes."""
        return self in (Action.WRITE, Action.RESET)


@dataclass(frozen=True)
class PartStep:
    """Reads, writes or resets a slice of a plain tensor. What is written or reset is a copy made just before."""

    action: Action
    whole: StepOperand
    indices: tuple[Index, ...]
    value: StepOperand | None
    """What is read or written; for a reset the model's tensor, or None where ``initial`` says the element."""
    node: int
    scalars: tuple[Value, ...] = ()
    initial: float = 0
    is_exact: bool = False
    """Whether what is read has declared extents: divisions in these must leave nothing over."""


@dataclass(frozen=True)
class TableStep:
    """Reads, writes or resets a slice of a table. Indices are as the graph writes them."""

    action: Action
    table: Table
    indices: tuple[Index, ...]
    value: Value | None
    node: int
    scalars: tuple[Value, ...] = ()
    is_exact: bool = False
    """Whether what is read has declared extents: divisions in these must leave nothing over."""


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
    """The indices of a weight must name a tensor: all that stays of a read whose result is dead."""

    weight: Weight
    node: int
    scalars: tuple[Value, ...] = ()


@dataclass(frozen=True)
class IntegerStep:
    """Stores an integer that only a run knows: the index of a loop, or an expression as in indices."""

    expr: Expr
    value: Value
    """An i64."""
    node: int
    scalars: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Mark:
    """A node has been executed, and these are the values it has written: what a trace says. It computes nothing."""

    node: int
    values: tuple[StepOperand, ...] = ()
    is_return: bool = False
    """Whether it is the second mark of a call, behind the block."""


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
    """A graph as kernels and values, with nothing of its meaning left open."""

    bound: BoundGraph
    blocks: Mapping[str, Steps]
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    homes: Mapping[str, Value]
    tables: Mapping[str, Table]
    sizes: Mapping[str, int]
    """Dynamic sizes with their bounds, those of unnamed slices included."""
    keeps_marked: bool = False
    """Whether values stay until their marks have been passed, so that a trace has all of them."""
    params: Mapping[str, BlockParams] = field(default_factory=dict)
    """What blocks are called with that have parameters."""
    folded: Mapping[str, Tensor] = field(default_factory=dict)
    """Results that the model alone decides, by their names; weights with the part ``folded`` are these."""

    def __post_init__(self) -> None:
        for name in ("blocks", "inputs", "outputs", "homes", "tables", "sizes", "params", "folded"):
            # Copied, so that nothing which the maker still holds can change the program.
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def is_named(self, size: str) -> bool:
        """Whether a dynamic size is one of the graph's; all others are lengths of slices, which belong to one node."""
        return size in self.bound.bounds

    def steps(self) -> Iterator[Step]:
        """All steps, block by block, each loop before its body."""
        for steps in self.blocks.values():
            yield from steps_in(steps)

    def map_steps(self, change: Callable[[Step], Iterable[Step]]) -> "Program":
        """The program with what a function puts in the place of each step, in their order.

        Of a loop it is given what has become of its body; a step that it leaves alone stays the same object.
        """
        return replace(self, blocks={name: map_steps(steps, change) for name, steps in self.blocks.items()})

    def map_kernels(self, change: Callable[[KernelStep], Iterable[Step]]) -> "Program":
        """The program with what a function puts in the place of each call of a kernel."""
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
    """Steps, those inside loops too, with what a function puts in the place of each; the body of a loop first."""
    found: list[Step] = []
    for step in steps:
        found += change(with_body(step, map_steps(step.body, change)) if isinstance(step, LoopStep) else step)
    return tuple(found)


def with_body(loop: LoopStep, body: Steps) -> LoopStep:
    """A loop with another body; itself, if that has the same steps."""
    is_same = len(body) == len(loop.body) and all(map(is_, body, loop.body))
    return loop if is_same else replace(loop, body=body)
