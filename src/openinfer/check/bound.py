"""A graph bound to a model and sizes: every variable linked, every node typed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from openinfer.check.reach import Effects, Reached
from openinfer.dtypes import DType
from openinfer.errors import Diagnostic, counted
from openinfer.ir import Access, Graph, MemoryKind, Operand, Return, VarDecl
from openinfer.ir.expr import Expr
from openinfer.ir.values import InitValue
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.quant import QuantParams
from openinfer.ops import Call, OpRecord, Shape, TensorType


@dataclass(frozen=True, slots=True)
class FromModel:
    """The value is a tensor or a metadata entry of the model."""

    name: str


@dataclass(frozen=True, slots=True)
class FromInit:
    """Every element has the declared initial value, or zero if it is None."""

    value: InitValue | None


@dataclass(frozen=True, slots=True)
class FromCaller:
    """The caller inserts the value."""


@dataclass(frozen=True, slots=True)
class FromPattern:
    """Each entry is the model tensor whose name the pattern gives."""

    pattern: str


Origin = FromModel | FromInit | FromCaller | FromPattern


@dataclass(frozen=True)
class BoundVar:
    """A variable, declared or temporary, with its type and the origin of its value.

    ``shape`` is that of the variable, or of one entry of a table, with dynamic sizes at their bounds. ``dims`` is None
    for ``t = op``, whose dimensions are not declared: its ``shape`` is symbolic in the dynamic sizes, as in
    ``loops.dim``. ``fixed`` bounds the indices of a table.
    """

    name: str
    kind: MemoryKind
    dtype: DType
    dims: tuple[Expr, ...] | None
    shape: Shape
    origin: Origin
    decl: VarDecl | None = None
    quant: QuantParams | None = None
    fixed: Mapping[str, int] = field(default_factory=dict)
    is_dynamic: bool = False
    """Whether a dynamic size occurs in the dimensions."""

    @property
    def is_temporary(self) -> bool:
        """Whether the variable is assigned in a block, rather than declared in a section."""
        return self.decl is None

    @property
    def is_table(self) -> bool:
        """Whether the variable is a cache table or an auto-dim matrix, which have their own storage."""
        return self.decl is not None and (self.decl.table or bool(self.decl.auto_dim))

    @property
    def type(self) -> TensorType:
        """The type, with dimensions as in the source."""
        return TensorType(self.dtype, self.shape, self.quant, tuple(map(str, self.dims or ())))


@dataclass(frozen=True)
class BoundOp:
    """An op node with its record, its operands in the record's order, and its call at the bounds of dynamic sizes.

    ``call`` is None if the length of an operand is known only at run time. ``is_dynamic`` says that shapes or
    parameters may differ from step to step.
    """

    record: OpRecord
    operands: tuple[Operand | None, ...]
    stored: tuple[DType | None, ...]
    """The dtypes that the operands are stored in, whatever the call treats them as."""
    call: Call | None
    is_dynamic: bool


@dataclass(frozen=True)
class BoundGraph:
    """A graph bound to its model. ``sizes`` are resolved; ``bounds`` are the maximum values of dynamic sizes."""

    graph: Graph
    """The graph, where a block with parameters has one copy for each combination of types it is called with."""
    source: Graph
    """The graph as given."""
    origins: Mapping[int, int]
    """For each node of a copied block, the index of the node in the source; keyed by node index."""
    model: ModelLoader | None
    sizes: Mapping[str, int]
    bounds: Mapping[str, int]
    vars: Mapping[str, BoundVar]
    ops: Mapping[int, BoundOp]
    effects: Mapping[int, Effects]
    """The effects of each node itself."""
    reached: Reached
    """The effects of each block, including all blocks that it runs."""
    constants: Mapping[str, Any]
    """The values of scalar constants used in parameters, indices and loop bounds."""
    warnings: tuple[Diagnostic, ...] = ()

    def __repr__(self) -> str:
        model = "without a model" if self.model is None else f"with {self.model.path!r}"
        return f"<BoundGraph {model}: {interface(self)}; {counted(self.graph.node_count, 'node')}>"

    @property
    def output_names(self) -> list[str]:
        """The names that entry returns; if there are none, all declared variables that a step writes and discards."""
        last = self.graph.blocks["entry"].nodes[-1].kind
        if isinstance(last, Return) and last.vars:
            return list(dict.fromkeys(last.vars))
        written = frozenset[str]().union(*(effects.writes for effects in self.effects.values()))
        return [
            name
            for name, variable in self.vars.items()
            if name in written
            and variable.kind in (MemoryKind.VOLATILE, MemoryKind.DYNAMIC)
            and not variable.is_temporary
            and not isinstance(variable.origin, FromPattern)
        ]

    @cached_property
    def locals(self) -> frozenset[str]:
        """The variables of blocks that are called; each task has its own."""
        return frozenset[str]().union(*(block.locals for block in self.graph.blocks.values()))

    def is_index(self, operand: Operand | None) -> bool:
        """Whether an operand is the index of a loop: a name that is not a variable."""
        return isinstance(operand, Access) and operand.base not in self.vars


def interface(bound: BoundGraph) -> str:
    """The inputs and outputs of a step, for reprs."""
    inputs = [f"{name}: {one.type}" for name, one in bound.vars.items() if one.kind is MemoryKind.DYNAMIC]
    outputs = [f"{name}: {bound.vars[name].type}" for name in bound.output_names]
    return f"{', '.join(inputs) or 'nothing'} -> {', '.join(outputs) or 'nothing'}"
