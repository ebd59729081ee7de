"""The program under construction: its steps and values, and the dynamic sizes known after each step."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from openinfer.check.bound import BoundVar
from openinfer.dtypes import DType
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir import MemoryKind, Node
from openinfer.ir.expr import Expr, quotients
from openinfer.loops.build import Builder
from openinfer.loops.dim import Dim, expr_of, is_same, sizes_in
from openinfer.loops.ir import Buffer, Const, Kernel, LoopKind
from openinfer.synth.lower.place import LoweringPlace
from openinfer.synth.lower.shapes import Shapes, with_room
from openinfer.synth.program.ir import (
    Action,
    BindSize,
    KernelStep,
    Move,
    PartStep,
    RequireSize,
    Step,
    StepOperand,
    Steps,
    Storage,
    TableStep,
    Value,
)


@dataclass
class _Known:
    """Facts that hold wherever the next step runs."""

    sizes: set[str] = field(default_factory=set)
    """The dynamic sizes that have values."""
    dimensions: set[Expr] = field(default_factory=set)
    """Dimensions that have been checked to be valid."""


class Emission:
    """Appends steps, and makes the values they use."""

    def __init__(self, shapes: Shapes, place: LoweringPlace) -> None:
        self.shapes = shapes
        self.place = place
        self._steps: list[Step] = []
        self._known = _Known()
        self._count = 0

    # --- steps ----------------------------------------------------------------------------------------------------

    def begin(self, known: Iterable[str]) -> None:
        """Begin a block in which these dynamic sizes have values."""
        self._known = _Known(set(known))

    def emit(self, step: Step) -> None:
        """Append a step."""
        self._steps.append(step)
        self._known.sizes |= _settled_by(step)

    def move(self, src: StepOperand, dst: Value, node: int) -> None:
        """Append a move unless it is a no-op."""
        if src is not dst:
            self.emit(Move(src, dst, node))

    def taken(self) -> Steps:
        """Take all steps so far."""
        steps, self._steps = self._steps, []
        return tuple(steps)

    @property
    def count(self) -> int:
        """The number of steps so far."""
        return len(self._steps)

    def rename_sizes(self, names: Mapping[str, str], first: int) -> Mapping[Value, Value]:
        """Rename the sizes in slices that are read from step ``first`` on; returns the new values by the old ones."""
        found: dict[Value, Value] = {}
        for place in range(first, len(self._steps)):
            step = self._steps[place]
            if isinstance(step, TableStep | PartStep) and isinstance(step.value, Value):
                value = replace(step.value, shape=self.shapes.renamed(step.value.shape, names))
                self._steps[place], found[step.value] = replace(step, value=value), value
        self._known.sizes |= set(names.values())
        return found

    @contextmanager
    def body(self) -> Iterator[list[Step]]:
        """Collect the steps of a loop's body in a list of their own; facts learned inside do not hold outside."""
        outer, self._steps = self._steps, []
        known = _Known(set(self._known.sizes), set(self._known.dimensions))
        yield self._steps
        self._steps, self._known = outer, known

    # --- values ---------------------------------------------------------------------------------------------------

    def value(self, hint: str, dtype: DType, shape: Sequence[int], storage: Storage = Storage.ARENA) -> Value:
        """A new value; ``hint`` is the variable it belongs to."""
        self._count += 1
        return Value(f"t{self._count}", dtype, with_room(tuple(shape)), storage, hint)

    def home(self, hint: str, dtype: DType, shape: Sequence[int], storage: Storage = Storage.ARENA) -> Value:
        """A new value that may be written several times."""
        return replace(self.value(hint, dtype, shape, storage), is_home=True)

    def filled(self, variable: BoundVar, number: float, node: int) -> Value:
        """A new value of a variable, with all elements equal."""
        value = self.value(variable.name, variable.dtype, self.shapes.of(variable))
        self.emit(fill_step(value, number, node))
        return value

    # --- sizes ----------------------------------------------------------------------------------------------------

    def require_known(self, extents: Iterable[int]) -> None:
        """The node reads dynamic sizes: it fails if no value before it has bound them."""
        for size in sorted({name for extent in extents for name in sizes_in(extent)} - self._known.sizes):
            self.emit(RequireSize(self.shapes.size(size), 0, self.place.node))

    def require_shape(self, variable: BoundVar) -> None:
        """The node accesses a variable: it fails if the sizes give one of its dimensions no value.

        Inferred dimensions need not divide evenly: the op's shape rule rounds as it likes.
        """
        is_input = variable.kind is MemoryKind.DYNAMIC
        if not variable.is_dynamic or variable.dims is None or variable.is_table or is_input:
            return
        for extent in self.shapes.of(variable):
            can_fail = isinstance(extent, Dim) and (extent.span[0] < 0 or any(True for _ in quotients(extent.expr)))
            if can_fail and expr_of(extent) not in self._known.dimensions:
                self.emit(RequireSize(extent, 0, self.place.node))
                self._known.dimensions.add(expr_of(extent))

    def bind_sizes(self, declared: Sequence[int], found: Sequence[int], node: Node, *, is_exact: bool) -> None:
        """Bind the declared extents of a variable to those of its new value; identical ones need no step.

        Extents with a single size come first: they may bind sizes that sums or products then use.
        """
        for extent, own in sorted(zip(declared, found, strict=True), key=lambda pair: len(sizes_in(pair[0])) > 1):
            if not is_same(extent, own) or sizes_in(extent) - sizes_in(own):
                self.emit(BindSize(extent, own, node.index, is_exact))


def _settled_by(step: Step) -> set[str]:
    """The dynamic sizes that are bound once a step has run: it binds them, or fails without them."""
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
    """The dynamic sizes that a step may bind."""
    is_read = isinstance(step, TableStep | PartStep) and step.action is Action.READ
    return _settled_by(step) if is_read or isinstance(step, BindSize) else set()


def fill_step(value: Value, number: float, node: int) -> KernelStep:
    """A kernel that sets all elements to ``number``; for t1, which has no zero, a 0 means its initial value -1."""
    out = Buffer("y", value.dtype, value.shape)
    builder = Builder()
    element = number if number != 0 or value.dtype.has_zero else value.dtype.initial
    with builder.loops(value.shape, LoopKind.PARALLEL) as where:
        builder.store(out, where, Const(element, value.dtype.compute))
    kernel = Kernel("fill", (), (out,), builder.body, (f"The initial value, `y = {number}`.",))
    return KernelStep(kernel, (), (value,), node, is_initial=True)


def refused(node: Node, message: str, advice: str | None = None) -> GraphError:
    """The error for a node that no target can compile."""
    return GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, node.span, advice))
