"""Variables while a graph is lowered: the value each has now, its home, and the steps emitted so far."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from openinfer.check.bound import BoundGraph, BoundVar, FromCaller, FromInit, FromModel, FromPattern
from openinfer.check.indices import Around
from openinfer.check.reach import Effects
from openinfer.check.sizes import evaluate_evenly
from openinfer.check.typing import TOO_DEEP_ADVICE
from openinfer.dtypes import DType
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir import Index, MemoryKind, Node, Single
from openinfer.ir.expr import MAX_DEPTH, Expr, Ref, TooDeepError, names, quotients
from openinfer.loops.build import Builder
from openinfer.loops.dim import Dim, expr_of, sizes_in
from openinfer.loops.ir import Buffer, Const, Kernel, LoopKind
from openinfer.synth.lower.current import CurrentValues, Homes
from openinfer.synth.program.ir import (
    Action,
    BindSize,
    KernelStep,
    Move,
    PartStep,
    RequireSize,
    Step,
    Steps,
    Storage,
    Table,
    TableStep,
    Value,
    Weight,
    WeightCheck,
)

Current = Value | Weight
_DEEPEST = MAX_DEPTH - 20
"""How deep the expression of an extent may be."""


class Values:
    """What a variable is at this point of the program. Every write makes a new value; homes are where values meet."""

    def __init__(self, bound: BoundGraph) -> None:
        self.bound = bound
        self.graph = bound.graph
        self.effects = bound.effects
        self.sizes: dict[str, int] = dict(bound.bounds)
        self.plain = {
            name
            for name, variable in bound.vars.items()
            if not variable.is_table and not isinstance(variable.origin, FromPattern)
        }
        """The variables that are single tensors."""
        self.tables = {name: table_of(variable) for name, variable in bound.vars.items() if variable.is_table}
        self.inputs: dict[str, Value] = {}
        self._places = Homes(bound.reached.bits)
        self.homes = self._places.values
        self.current = CurrentValues(self._places)
        self.steps: list[Step] = []
        self.count = 0
        self.loops: Around = ()
        self._written = frozenset[str]().union(*(self._own_effects(name).writes for name in self.graph.blocks))
        self.node = -1
        """The node that is being lowered."""
        self.known: set[str] = set()
        """The dynamic sizes that have values wherever the next step runs."""

    def _own_effects(self, block: str) -> Effects:
        """What a block does itself, not what the blocks do that it runs."""
        found = [self.effects[node.index] for node in self.graph.blocks[block].nodes]
        reads, writes = ([getattr(one, kind) for one in found] for kind in ("reads", "writes"))
        return Effects(frozenset().union(*reads), frozenset().union(*writes))

    def _value(self, hint: str, dtype: DType, shape: Sequence[int], storage: Storage = Storage.ARENA) -> Value:
        self.count += 1
        return Value(f"t{self.count}", dtype, _with_room(tuple(shape)), storage, hint)

    def _new_home(self, hint: str, dtype: DType, shape: Sequence[int], storage: Storage = Storage.ARENA) -> Value:
        return replace(self._value(hint, dtype, shape, storage), is_home=True)

    def _size(self, name: str) -> int:
        """A size: a number, or a symbol that is known when the code runs."""
        if name in self.sizes:
            return Dim(self.sizes[name], Ref(name))
        return self.bound.sizes[name]

    def _dimension(self, expr: Expr) -> int:
        return evaluate_evenly(expr, {}, self._size)

    def _shape(self, variable: BoundVar) -> tuple[int, ...]:
        if variable.dims is None:
            return variable.shape
        try:
            return _with_room(tuple(self._dimension(dim) for dim in variable.dims))
        except TooDeepError as error:
            place = None if variable.decl is None else variable.decl.span
            message = f"a dimension of {variable.name!r}: {error}"
            raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, place, TOO_DEEP_ADVICE)) from error

    def _is_written(self, name: str) -> bool:
        return name in self._written

    def _home(self, name: str) -> Value:
        """Where a variable's value is wherever control flow joins."""
        if name not in self.homes:
            variable = self.bound.vars[name]
            storage = Storage.STATE if variable.kind is MemoryKind.PERSISTENT else Storage.ARENA
            self._places.add(name, self._new_home(name, variable.dtype, self._shape(variable), storage))
        return self.homes[name]

    def _emit(self, step: Step) -> None:
        self.steps.append(step)
        self.known |= _settled_by(step)

    def _require_known(self, extents: Iterable[int]) -> None:
        """The node reads dynamic sizes: it fails in a step where none of the values before it has had them."""
        for size in sorted({name for extent in extents for name in sizes_in(extent)} - self.known):
            self._emit(RequireSize(Dim(self.sizes[size], Ref(size)), 0, self.node))

    def _require_shape(self, variable: BoundVar) -> None:
        """The node reads or writes a variable: it fails in a step whose sizes give its dimensions no values.

        Those that an op infers need not divide evenly: its shape rule rounds as it likes.
        """
        is_input = variable.kind is MemoryKind.DYNAMIC
        if not variable.is_dynamic or variable.dims is None or variable.is_table or is_input:
            return
        for extent in self._shape(variable):
            key = f"{extent!r} is a dimension"
            can_fail = isinstance(extent, Dim) and (extent.span[0] < 0 or any(True for _ in quotients(extent.expr)))
            if can_fail and key not in self.known:
                self._emit(RequireSize(extent, 0, self.node))
                self.known.add(key)

    def _take_steps(self) -> Steps:
        steps, self.steps = self.steps, []
        return tuple(steps)

    def _read(self, name: str, node: int = -1) -> Current:
        """The value a variable has now; one that nothing has written yet begins here."""
        if name not in self.current:
            self.current[name] = self.current.beginning(name) or self._initial(name, node)
        return self.current[name]

    def _initial(self, name: str, node: int) -> Current:
        variable = self.bound.vars[name]
        if variable.kind is MemoryKind.PERSISTENT:
            return self._home(name)
        match variable.origin:
            case FromCaller():
                return self.inputs[name]
            case FromModel(entry):
                return Weight((entry,), variable.dtype, variable.shape)
            case FromInit(value):
                number = 0 if value is None else value.value
                return self._filled(variable, number, node)
            case _:
                raise AssertionError(name)

    def _filled(self, variable: BoundVar, number: float, node: int) -> Value:
        value = self._value(variable.name, variable.dtype, self._shape(variable))
        self._emit(fill_step(value, number, node))
        return value

    def _as_value(self, name: str) -> Value:
        """A variable's value in memory that can be pointed at and outlives the step's work."""
        found = self._read(name)
        if isinstance(found, Value) and found.storage in (Storage.ARENA, Storage.STATE):
            return found
        copy = self._value(name, found.dtype, found.shape)
        self._emit(Move(found, copy, -1))
        return copy

    def _move(self, src: Current, dst: Value, node: int) -> None:
        if src is not dst:
            self._emit(Move(src, dst, node))

    def _bring_home(self, name: str, node: int = -1) -> None:
        self._settle(name, self._home(name), node)

    def _settle(self, name: str, home: Value, node: int) -> None:
        """Make a home hold the value of its variable."""
        value = self._read(name, node)
        if value is not home:
            self._spare(one for one in self.current.residents({home}) if one != name)
            self._move(value, home, node)
            self.current[name] = home

    def _spare(self, variables: Iterable[str]) -> None:
        """The homes that variables lie in are about to be written: they get copies of their own."""
        for name in variables:
            value = self.current[name]
            copy = self._value(name, value.dtype, value.shape)
            self._emit(Move(value, copy, -1))
            self.current[name] = copy

    def _chosen_now(self, weight: Weight, node: Node) -> Current:
        """A weight whose index reads variables that may change before it is used is copied at once."""
        scalars = self._scalars(*weight.index)
        if not scalars:
            if weight.can_miss:
                self._emit(WeightCheck(weight, node.index))
            return weight
        copy = self._value(weight.names[0], weight.dtype, weight.shape)
        self._emit(Move(weight, copy, node.index, scalars))
        return copy

    def _static(self, name: str) -> int | None:
        if any(loop.index == name for loop in self.loops):
            return None  # the index hides a size or constant of its name
        if name in self.bound.vars:
            found = self.bound.constants.get(name)
            return found if isinstance(found, int) else None
        return self.bound.sizes.get(name)

    def _scalars(self, *exprs: Expr | None) -> tuple[Value, ...]:
        """The homes of the variables that index expressions read, with their values brought there."""
        indices = {loop.index for loop in self.loops}
        found: list[Value] = []
        for expr in exprs:
            for name in () if expr is None else names(expr):
                if name in indices or name in self.bound.constants:
                    continue
                if name in self.bound.vars:
                    self._bring_home(name)
                    found.append(self._home(name))
                elif name in self.sizes:
                    self._require_known([self._size(name)])
        return tuple(found)

    def _index_scalars(self, indices: Sequence[Index]) -> tuple[Value, ...]:
        exprs: list[Expr | None] = []
        for index in indices:
            exprs += [index.value] if isinstance(index, Single) else [index.start, index.end]
        return self._scalars(*exprs)


def _with_room(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape whose extents passes can compute with: what they make of them is deeper."""
    if any(expr_of(extent).depth > _DEEPEST for extent in shape):
        message = f"the extent is an expression of more than {_DEEPEST} operators inside each other"
        raise TooDeepError(message)
    return shape


def _settled_by(step: Step) -> set[str]:
    """The dynamic sizes that have values when a step has run: it gets them from there, or fails without them."""
    match step:
        case KernelStep() if step.inputs:
            shapes: list[tuple[int, ...]] = [one.shape for one in (*step.inputs, *step.outputs)]
        case TableStep(value=Value() as value) | PartStep(value=Value() as value):
            shapes = [value.shape]
        case BindSize():
            shapes = [(step.declared, step.found)]
        case RequireSize():
            shapes = [(step.size,)]
        case _:
            return set()
    return {name for shape in shapes for extent in shape for name in sizes_in(extent)}


def bound_by(step: Step) -> set[str]:
    """The dynamic sizes that may get values from a step."""
    is_read = isinstance(step, TableStep | PartStep) and step.action is Action.READ
    return _settled_by(step) if is_read or isinstance(step, BindSize) else set()


def fill_step(value: Value, number: float, node: int) -> KernelStep:
    """Every element the same. All bits zero means -1 for t1, which has no zero."""
    out = Buffer("y", value.dtype, value.shape)
    builder = Builder()
    element = -1 if value.dtype.name == "t1" and number == 0 else number
    with builder.loops(value.shape, LoopKind.PARALLEL) as where:
        builder.store(out, where, Const(element, value.dtype.compute))
    kernel = Kernel("fill", (), (out,), builder.body, (f"`y = {number}`",))
    return KernelStep(kernel, (), (value,), node, is_initial=True)


def table_of(variable: BoundVar) -> Table:
    """The storage of a variable that is a table."""
    decl = variable.decl
    assert decl is not None
    keys = [index for index in decl.table_indices if index not in decl.auto_dim]
    bounds: list[int | None] = [variable.fixed.get(index) for index in keys]
    for axis, index in enumerate(decl.auto_dim):
        bounds.append(None if index not in variable.fixed else variable.shape[axis] + variable.fixed[index])
    return Table(variable, tuple(bounds), variable.shape[len(decl.auto_dim) :], len(keys))


def refused(node: Node, message: str, advice: str | None = None) -> GraphError:
    """The error for a node that no target can be given code for."""
    return GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, node.span, advice))
