"""Inspects a suspended step: its position, its variables, and what the next node writes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from openinfer.check.bound import BoundGraph, BoundVar, FromPattern
from openinfer.check.indices import spelled
from openinfer.check.inserted import accepted_array
from openinfer.check.sizes import SizeError
from openinfer.errors import Code, Diagnostic, ExecutionError, counted, nearest
from openinfer.ir import Access, Index, MemoryKind, Node, Single, Slice
from openinfer.ir.expr import Expr, evaluate
from openinfer.ir.operand_text import parse_access
from openinfer.ops import Array, OpError
from openinfer.sim.memory import MemoryKey, Overlay, Values
from openinfer.sim.operands import index_array
from openinfer.sim.tables import Chosen, TableStorage, selected
from openinfer.sim.task import Frame, Task

T = TypeVar("T")
Cells = tuple[int | slice, ...]
"""Indices as NumPy takes them."""
NO_INPUTS: Mapping[str, Array] = {}


@dataclass(frozen=True)
class Variables:
    """The variables of a graph as one task sees them; ``inputs`` are those waiting for the next step."""

    bound: BoundGraph
    values: Values | Overlay
    tables: Mapping[str, TableStorage]
    indices: Mapping[str, int]
    inputs: Mapping[str, Array]

    def read(self, access: Access) -> Array:
        """A variable or part of it; omitted indices select everything. Do not modify it."""
        if access == Access(access.base) and access.base in self.indices and access.base not in self.bound.vars:
            return index_array(self.indices[access.base])
        variable = self.variable(access.base)
        if variable.is_table:
            return self.tables[access.base].read(self.chosen(access, variable))
        key = self.key(access)
        if isinstance(key, tuple):
            return self.values[key]
        array = self.inputs[key] if key in self.inputs else self.values[key]
        return _part(array, self.cells(access, array.shape))

    def chosen(self, access: Access, variable: BoundVar) -> tuple[Chosen, ...]:
        """The evaluated indices of a table access; omitted ones select everything."""
        assert variable.decl is not None
        wanted = len(variable.decl.table_indices)
        _require_indices(access, wanted)
        whole = [Slice()] * (wanted - len(access.indices)) if access.indices else []
        return tuple(self._chosen(index) for index in (*access.indices, *whole))

    def key(self, access: Access) -> MemoryKey:
        """The memory key of an access that is not to a table."""
        origin, decl = self.variable(access.base).origin, self.variable(access.base).decl
        if not isinstance(origin, FromPattern):
            return access.base
        assert decl is not None
        singles = [self.integer(index.value) for index in access.indices if isinstance(index, Single)]
        if not len(singles) == len(access.indices) == len(decl.table_indices):
            example = f"{access.base}[{', '.join(decl.table_indices)}]"
            raise OpError(Code.BAD_INDEXING, f"{access.base!r} names one tensor at a time, as in {example}")
        entry = spelled(origin.pattern, dict(zip(decl.table_indices, singles, strict=True)))
        model = self.bound.model
        if model is None or entry not in model.tensors:
            advice = nearest(entry, model.tensors) if model is not None else None
            message = f"{access} is the model tensor {entry!r}, which does not exist"
            raise OpError(Code.UNKNOWN_LINK, message, None, advice)
        return (access.base, entry)

    def cells(self, access: Access, shape: Sequence[int]) -> Cells:
        """The cells that an access selects from an array of this shape; single indices must be in range."""
        _require_indices(access, len(shape))
        found: list[int | slice] = []
        for axis, (index, extent) in enumerate(zip(access.indices, shape, strict=False)):
            one = selected(self._chosen(index), extent)
            if isinstance(one, int) and one >= extent:
                message = f"the index {one} of {access.base!r} is outside axis {axis}, which has {extent}"
                raise OpError(Code.INDEX_OUT_OF_RANGE, message)
            found.append(one if isinstance(one, int) else slice(*one))
        return tuple(found)

    def variable(self, name: str) -> BoundVar:
        """A variable by name."""
        if name not in self.bound.vars:
            advice = nearest(str(name), self.bound.vars)
            raise OpError(Code.UNKNOWN_VARIABLE, f"there is no variable {name!r}", None, advice)
        return self.bound.vars[name]

    def _chosen(self, index: Index) -> Chosen:
        if isinstance(index, Single):
            return self.integer(index.value)
        start, end = (None if one is None else self.integer(one) for one in (index.start, index.end))
        return (start, end)

    def integer(self, expr: Expr) -> int:
        """The value of an index expression: names are loop indices, then scalar variables, then sizes."""
        try:
            return evaluate(expr, self._lookup)
        except ZeroDivisionError:
            raise OpError(Code.BAD_VALUE, f"the index '{expr}' divides by zero") from None

    def _lookup(self, name: str) -> int:
        if name in self.indices:
            return self.indices[name]
        if name not in self.bound.vars:
            return self.values.sizes.lookup(name)
        value = self.read(Access(name))
        if value.ndim or self.bound.vars[name].dtype.kind not in ("int", "uint"):
            raise OpError(Code.BAD_INDEXING, f"{name!r} is not an integer and cannot be an index")
        return int(value)


def _part(array: Array, cells: Cells) -> Array:
    return array[(*cells, ...)] if cells else array  # the dots keep a scalar an array


def _require_indices(access: Access, most: int) -> None:
    if len(access.indices) > most:
        message = f"{access.base!r} has {counted(most, 'index')}, but {len(access.indices)} are given"
        raise OpError(Code.BAD_INDEXING, message)


# --- the execution point ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExecutionPoint:
    """The position of execution: the next node, what encloses it, and the variables at that moment.

    ``frames`` are the active branches and calls, outermost first, followed by the next node; between steps there are
    none. ``node`` is None when all nodes of a step have been executed.
    """

    node: Node | None
    variables: Variables
    task: Task | None = None
    frames: tuple[Frame, ...] = ()

    @property
    def thread(self) -> str:
        """The block whose task continues here."""
        return self.task.block if self.task is not None else "entry"

    @property
    def indices(self) -> Mapping[str, int]:
        """The loop indices at the node."""
        return self.variables.indices

    def read(self, access: Access | str) -> Array:
        """A variable or part of it (``h``, ``h[0]``, ``K[l, 0..3]``), as its task sees it. Do not modify it."""
        return reported(lambda: self.variables.read(self.seen(parsed(access))))

    def seen(self, access: Access) -> Access:
        """An access with the graph-wide name of a variable that is private to the current block."""
        block = self.frames[-1].block if self.frames else "entry"
        own = f"{block}.{access.base}"
        is_own = access.base not in self.variables.bound.vars and access.base not in self.indices
        return replace(access, base=own) if is_own and own in self.variables.bound.vars else access

    def is_at_hand(self, name: str) -> bool:
        """Whether a variable already has a value, so that reading it loads or creates nothing."""
        return name in self.variables.inputs or name in self.variables.values

    def set(self, name: str, value: Any) -> None:
        """Set a volatile variable; the step continues with the new value."""
        if self.task is None:
            raise wrong_moment("no step is in progress", "begin_step() begins one")
        edit(self.task, name, value)


def inside(task: Task) -> ExecutionPoint:
    """The execution point of a task."""
    frames, step = task.frames, task.step
    variables = Variables(step.bound, task.values, step.tables, frames[-1].indices if frames else {}, NO_INPUTS)
    return ExecutionPoint(frames[-1].node if frames else None, variables, task, frames)


def parsed(access: Access | str) -> Access:
    """Parse an access in the syntax of the language."""
    if isinstance(access, Access):
        return access
    try:
        return access_in(str(access))
    except ValueError as error:
        raise OpError(Code.BAD_INDEXING, f"{access!r:.80} is not a variable or a slice of one: {error}") from error


_OF_BLOCK = re.compile(r"\s*((?:[A-Za-z_]\w*\.(?:\d+\.)?))(?=[A-Za-z_])")


def access_in(text: str) -> Access:
    """Parse an access; variables of blocks are written with the block's name: ``layer.h[0, ]``."""
    block = _OF_BLOCK.match(text)
    if block is None:
        return parse_access(text)
    found = parse_access(text[block.end() :])
    return replace(found, base=f"{block[1]}{found.base}")


def reported(look: Callable[[], T]) -> T:
    """The result of reading variables, with errors converted to ``ExecutionError``."""
    try:
        return look()
    except (OpError, SizeError) as error:
        raise ExecutionError(Diagnostic(error.code, error.message, None, error.advice)) from error
    except MemoryError as error:
        raise ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, "there is not enough memory to show this")) from error


def edit(task: Task, name: str, value: Any) -> None:
    """Set a volatile variable of a suspended step, as seen by a task."""
    variable = reported(lambda: inside(task).variables.variable(name))
    if task.step.is_over:
        raise wrong_moment("the step of this node has ended", None)
    require_editable(variable)
    array = accepted_array(name, value, variable.dtype)
    reported(lambda: task.sizes.agree(variable, array.shape, "the value"))
    task.values[name] = array


def require_editable(variable: BoundVar) -> None:
    """Refuse variables that are not volatile: other kinds are not for a single step to change."""
    is_pattern = isinstance(variable.origin, FromPattern)
    if variable.kind not in (MemoryKind.VOLATILE, MemoryKind.DYNAMIC) or is_pattern:
        kind = "a prefix table" if is_pattern else variable.kind.value
        message = f"{variable.name!r} is {kind}; only volatile variables can be edited"
        raise ExecutionError(Diagnostic(Code.NOT_WRITABLE, message))


def wrong_moment(message: str, advice: str | None) -> ExecutionError:
    """An error for a call that is not possible now."""
    return ExecutionError(Diagnostic(Code.WRONG_MOMENT, message, None, advice))


# --- what a node writes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Write:
    """A pending write of a node, with the previous value.

    Arrays are never modified in place, so keeping the previous one costs nothing; of a table, only the part is copied.
    """

    access: Access
    key: MemoryKey
    before: Array | None
    """None if the variable had no value in this step yet, and so its initial one."""
    cells: Cells = ()
    chosen: tuple[Chosen, ...] | None = None
    """The indices of a table; None for other variables."""
    extents: tuple[int, ...] = ()

    def after(self, task: Task) -> Array | None:
        """What was written; None for a temporary whose shape is not known yet."""
        if self.chosen is not None:
            return task.tables[self.access.base].read(self.chosen)
        try:
            return _part(task.values[self.key], self.cells)
        except OpError:
            return None

    def is_change(self, task: Task) -> bool:
        """Whether the node changed the value."""
        if self.chosen is not None:
            same_extents = task.tables[self.access.base].shape_of(()) == self.extents
            return not same_extents or not same_bits(self.before, self.after(task))
        before = self._initial(task) if self.before is None else self.before
        return not same_bits(before, self.after(task))

    def _initial(self, task: Task) -> Array | None:
        try:
            return task.step.values.initial(self.key, task.sizes)
        except OpError:
            return None


def pending_writes(task: Task) -> tuple[Write, ...]:
    """What a task's next node is going to write. Errors are left for the node to report."""
    if task.is_done:
        return ()
    instruction, indices, _ = task.upcoming()
    variables = Variables(task.step.bound, task.values, task.tables, indices, NO_INPUTS)
    found = []
    for access in instruction.writes:
        try:
            found.append(_pending(variables, access))
        except (OpError, SizeError, MemoryError):
            continue
    return tuple(found)


def _pending(variables: Variables, access: Access) -> Write:
    variable = variables.variable(access.base)
    if variable.is_table:
        table, chosen = variables.tables[access.base], variables.chosen(access, variable)
        return Write(access, access.base, table.read(chosen), chosen=chosen, extents=table.shape_of(()))
    key = variables.key(access)
    if isinstance(key, str) and access.indices:
        cells = variables.cells(access, variables.values[key].shape)
        return Write(access, key, _part(variables.values[key], cells), cells)
    if key not in variables.values:
        return Write(access, key, None)
    return Write(access, key, variables.values[key])


def same_bits(first: Array | None, second: Array | None) -> bool:
    """Whether two arrays are equal bit by bit: NaN equals itself, and -0.0 differs from 0.0."""
    if first is second:
        return True
    if first is None or second is None:
        return False
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    one, other = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (first, second))
    return bool(np.array_equal(one, other))
