"""Assigns every value an offset in the arena; values that are never live together may share memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from openinfer.loops.dim import is_same, is_same_shape
from openinfer.loops.ir import Buffer, For, Kernel, Load, ScalarVar, Statement, Store, scalars, visit, walk
from openinfer.synth.memory.arena import Request, placed
from openinfer.synth.memory.views import views_of
from openinfer.synth.program.interval_set import IntervalSet
from openinfer.synth.program.ir import KernelStep, Move, Program, Storage, Value
from openinfer.synth.program.liveness import Lives, lives_of

# --- aliasing ---------------------------------------------------------------------------------------------------------


class Classes:
    """Aliasing values: a union-find with the positions each class occupies."""

    def __init__(self, lives: Lives, shared: Iterable[Value] = ()) -> None:
        self._parent: dict[Value, Value] = {}
        self._shared = set(shared)
        """Representatives of classes with a value that several blocks access: they cannot be caller-provided memory."""
        self._occupied = dict(lives.occupied)

    def root(self, value: Value) -> Value:
        """The representative of a value's class."""
        found = value
        while found in self._parent:
            found = self._parent[found]
        while value is not found:
            self._parent[value], value = found, self._parent[value]
        return found

    def occupied(self, value: Value) -> IntervalSet:
        """The positions that a class occupies."""
        return self._occupied.setdefault(self.root(value), IntervalSet())

    def join(self, one: Value, other: Value, forgiven: int | None) -> bool:
        """Let two values share memory, unless both are live at some position other than ``forgiven``."""
        a, b = self.root(one), self.root(other)
        if a is b:
            return True
        if a.storage is not Storage.ARENA and b.storage is not Storage.ARENA:
            return False
        if Storage.RESULT in (a.storage, b.storage) and not self._shared.isdisjoint((a, b)):
            return False
        if self.occupied(a).overlaps(self.occupied(b), forgiven):
            return False
        keep, gone = (
            (a, b)
            if b.storage is Storage.ARENA and (a.storage is not Storage.ARENA or a.nbytes >= b.nbytes)
            else (b, a)
        )
        if keep.storage is not Storage.ARENA and gone.nbytes > keep.nbytes:
            return False
        few, many = sorted((self.occupied(a), self.occupied(b)), key=len)
        self._occupied[keep] = many.union(few)
        self._parent[gone] = keep
        if gone in self._shared:
            self._shared.add(keep)
        return True


def classes_of(lives: Lives, views: frozenset[Value] = frozenset(), shared: Iterable[Value] = ()) -> Classes:
    """Aliases the operands of moves, and of kernels that can work in place."""
    classes = Classes(lives, shared)
    for position, step in enumerate(lives.steps):
        after = lives.alive_after[position]
        if (
            isinstance(step, Move)
            and isinstance(step.src, Value)
            and step.src not in views
            and not step.src.storage.is_read_only
        ):
            forgiven = position if step.src not in after else None
            same = step.src.dtype is step.dst.dtype
            if same:
                classes.join(step.src, step.dst, forgiven)
        elif isinstance(step, KernelStep) and len(step.outputs) == 1:
            candidates = in_place_inputs(step.kernel)
            for number in candidates:
                operand = step.inputs[number]
                if (
                    not isinstance(operand, Value)
                    or operand.storage.is_read_only
                    or operand in after
                    or operand in views
                ):
                    continue
                # The kernel may read the same memory through several inputs, some of which are not safe in place.
                if not _occurrences(step, operand, classes) <= set(candidates):
                    continue
                if classes.join(operand, step.outputs[0], position):
                    break
    return classes


def _occurrences(step: KernelStep, operand: Value, classes: Classes) -> set[int]:
    """The inputs of a kernel that alias an operand."""
    root = classes.root(operand)
    return {number for number, one in enumerate(step.inputs) if isinstance(one, Value) and classes.root(one) is root}


def _reads(statement: Statement, buffer: Buffer) -> bool:
    parts = (part for value in scalars(statement) for part in visit(value))
    return any(isinstance(part, Load) and part.buffer == buffer for part in parts)


def in_place_inputs(kernel: Kernel) -> list[int]:
    """The inputs that the single output may overwrite: read only where the same element is then written."""
    stores = [statement for statement in walk(kernel.body) if isinstance(statement, Store)]
    (out,) = kernel.outputs
    if len([store for store in stores if store.buffer == out]) != 1 or kernel.scratch:
        return []
    where = next(store.index for store in stores if store.buffer == out)
    loops = {statement.index for statement in walk(kernel.body) if isinstance(statement, For)}
    moving = [one for one, extent in zip(where, out.shape, strict=True) if not is_same(extent, 1) or one in loops]
    if not all(isinstance(one, ScalarVar) and one in loops for one in moving) or len(set(moving)) < len(moving):
        return []
    statements = list(walk(kernel.body))
    behind = statements[statements.index(next(store for store in stores if store.buffer == out)) + 1 :]
    found = []
    for number, buffer in enumerate(kernel.inputs):
        if any(_reads(statement, buffer) for statement in behind):
            continue  # An exclusive sum stores an element before it reads the operand's.
        loads = [
            one
            for statement in walk(kernel.body)
            for value in scalars(statement)
            for one in visit(value)
            if isinstance(one, Load) and one.buffer == buffer
        ]
        is_like = buffer.dtype is out.dtype and is_same_shape(buffer.shape, out.shape)
        is_like = is_like and is_same_shape(buffer.actual_strides, out.actual_strides)
        if loads and is_like and all(one.index == where for one in loads):
            found.append(number)
    return found


@dataclass(frozen=True)
class MemoryPlan:
    """The memory placement of every value of a program."""

    classes: Classes
    offsets: Mapping[Value, int]
    peak: int
    lower_bound: int
    alignment: int
    views: frozenset[Value] = frozenset()
    """The values that are slices of tables, and need no memory."""

    @property
    def gap(self) -> int:
        """The number of bytes by which the arena exceeds its lower bound."""
        return self.peak - self.lower_bound

    def offset(self, value: Value) -> int:
        """The offset of a value in the arena."""
        return self.offsets[self.classes.root(value)]

    def is_same(self, one: Value, other: Value) -> bool:
        """Whether two values share memory."""
        return self.classes.root(one) is self.classes.root(other)


def plan_memory(program: Program, alignment: int) -> MemoryPlan:
    """The memory plan of a program."""
    lives = lives_of(program)
    views = views_of(program, lives)
    own = program.bound.locals if program.params else frozenset()
    shared = {value for value in lives.occupied if value.is_home and value.variable not in own}
    classes = classes_of(lives, views, shared if program.params else ())
    roots = {classes.root(value) for value in lives.occupied.keys() - views}
    # Sets are unordered, and the same program must give the same plan.
    ordered = sorted(roots, key=lambda value: (classes.occupied(value).order, len(value.name), value.name))
    arena = [value for value in ordered if value.storage is Storage.ARENA]
    requests = [Request(max(value.nbytes, 1), tuple(classes.occupied(value)), value.name) for value in arena]
    placement = placed(requests, alignment)
    offsets = dict(zip(arena, placement.offsets, strict=True))
    return MemoryPlan(classes, offsets, placement.peak, placement.lower_bound, alignment, views)
