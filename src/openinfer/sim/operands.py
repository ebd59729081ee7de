"""Compiles operands to functions that read, write, reset or evaluate what an access or expression names."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from openinfer.check.access import part_quant
from openinfer.check.bound import BoundGraph, BoundVar, FromPattern
from openinfer.check.indices import spelled
from openinfer.check.literals import literal_value
from openinfer.dtypes import DType
from openinfer.errors import Code, nearest
from openinfer.ir import Access, Index, Literal, ModelRef, Operand, Single
from openinfer.ir.expr import LEAST_INDEX, MOST_INDEX, Expr, Num, Ref, evaluate_checked, names
from openinfer.oinf.quant import QuantParams
from openinfer.ops import Array, OpError, Shape, TensorType
from openinfer.sim.lengths import StatedLengths
from openinfer.sim.memory import initial_array
from openinfer.sim.tables import Chosen, selected

if TYPE_CHECKING:
    from openinfer.sim.task import Task

ReadArray = Callable[["Task"], Array]
WriteArray = Callable[["Task", Array], None]
ReadInteger = Callable[["Task"], int]
Quant = Callable[["Task"], QuantParams | None]
Judge = Callable[["Task", Shape], None]
TaskAction = Callable[["Task"], None]


class CompiledOperands:
    """Compiles the operands of one bound graph."""

    def __init__(self, bound: BoundGraph) -> None:
        self._bound = bound

    # --- integers -------------------------------------------------------------------------------------------------

    def integer(self, expr: Expr) -> ReadInteger:
        """Compile an index expression: names are loop indices, then scalar variables, then sizes."""
        if isinstance(expr, Num) and LEAST_INDEX <= expr.value <= MOST_INDEX:
            value = expr.value
            return lambda _task: value
        if isinstance(expr, Ref) and not self._can_be_long(expr.name):
            return self._name(expr.name)
        found = {name: self._name(name) for name in names(expr)}

        def computed(task: "Task") -> int:
            try:
                return evaluate_checked(expr, lambda name: found[name](task))
            except ZeroDivisionError:
                raise OpError(Code.BAD_VALUE, f"the index '{expr}' divides by zero") from None
            except OverflowError as error:
                message = f"the index '{expr}' needs more than 64 bits: {error}"
                raise OpError(Code.INDEX_OUT_OF_RANGE, message) from None

        return computed

    def _can_be_long(self, name: str) -> bool:
        """Whether a scalar may exceed the range of indices: a u64 of more than 63 bits."""
        variable = self._bound.vars.get(name)
        return variable is not None and variable.dtype.name == "u64"

    def _name(self, name: str) -> ReadInteger:
        variable = self._bound.vars.get(name)

        def looked_up(task: "Task") -> int:
            index = task.indices.get(name)
            if index is not None:
                return index
            return int(task.values[name]) if variable is not None else task.sizes.lookup(name)

        return looked_up

    def _chosen(self, index: Index) -> Callable[["Task"], Chosen]:
        if isinstance(index, Single):
            return self.integer(index.value)
        start = None if index.start is None else self.integer(index.start)
        end = None if index.end is None else self.integer(index.end)
        return lambda task: (
            None if start is None else start(task),
            None if end is None else end(task),
        )

    def _all_chosen(self, access: Access) -> Callable[["Task"], list[Chosen]]:
        parts = [self._chosen(index) for index in access.indices]
        return lambda task: [part(task) for part in parts]

    # --- reading --------------------------------------------------------------------------------------------------

    def reader(self, operand: Operand, dtype: DType | None = None) -> ReadArray:
        """Compile a read of an operand; ``dtype`` is that of a literal."""
        if isinstance(operand, Literal):
            assert dtype is not None
            constant = initial_array(dtype, (), literal_value(operand, dtype))
            return lambda _task: constant
        if isinstance(operand, ModelRef):
            return self._model_reader(operand)
        name = operand.base
        if self._bound.is_index(operand):
            return lambda task: index_array(task.indices[name])
        variable = self._bound.vars[name]
        if variable.is_table:
            chosen = self._all_chosen(operand)
            return lambda task: task.tables[name].read(chosen(task))
        if isinstance(variable.origin, FromPattern):
            key = self.entry_key(operand, variable, variable.origin.pattern)
            return lambda task: task.values[key(task)]
        if operand.bracketed and operand.indices:
            chosen = self._all_chosen(operand)
            return lambda task: _part(name, task.values[name], chosen(task))
        return lambda task: task.values[name]

    def length_checked(self, operand: Operand, dtype: DType | None) -> ReadArray:
        """Compile a read of an op's operand; a slice must have the length that the source states."""
        variable = self._bound.vars.get(operand.base) if isinstance(operand, Access) else None
        is_part = isinstance(operand, Access) and operand.bracketed and not self._bound.is_index(operand)
        if variable is None or not is_part or isinstance(variable.origin, FromPattern):
            return self.reader(operand, dtype)
        assert isinstance(operand, Access)
        name, chosen = operand.base, self._all_chosen(operand)
        lengths = StatedLengths(self._bound, operand, variable)
        if variable.is_table:

            def read_table(task: "Task") -> Array:
                where, table = chosen(task), task.tables[name]
                lengths.require(task, table.shape_of(where))
                return table.read(where)

            return read_table
        if not operand.indices:
            return self.reader(operand, dtype)

        def read_part(task: "Task") -> Array:
            found = _part(name, task.values[name], chosen(task))
            lengths.require(task, found.shape)
            return found

        return read_part

    def entry_key(self, access: Access, variable: BoundVar, pattern: str) -> Callable[["Task"], tuple[str, str]]:
        """Compile the key of the model tensor that an access of a prefix table names; a misfit is refused."""
        assert variable.decl is not None
        indices = [index for index in access.indices if isinstance(index, Single)]
        assert len(indices) == len(access.indices), "slices of prefix tables are refused before"
        parts = [
            (name, self.integer(index.value)) for name, index in zip(variable.decl.table_indices, indices, strict=True)
        ]
        model, known = self._bound.model, set[str]()

        def key(task: "Task") -> tuple[str, str]:
            values = {name: part(task) for name, part in parts}
            entry = spelled(pattern, values)
            if entry not in known:
                info = model.tensors.get(entry) if model is not None else None
                if info is None or not info.has_data:
                    advice = nearest(entry, model.tensors) if model is not None else None
                    message = f"{access} is the model tensor {entry!r}, which does not exist"
                    raise OpError(Code.UNKNOWN_LINK, message, None, advice)
                if info.dtype is not variable.dtype or info.shape != variable.shape:
                    message = f"{access.base!r} is {variable.type}, but the entry {entry!r} is {info.type_text}"
                    raise OpError(Code.LINK_TYPE, message)
                known.add(entry)
            return (variable.name, entry)

        return key

    def quant(self, operand: Operand | None) -> Quant:
        """Compile the quantization of an operand's model tensor; entries of a table may differ."""
        model = self._bound.model
        if operand is None or model is None or isinstance(operand, Literal) or self._bound.is_index(operand):
            return lambda _task: None
        tensors = model.tensors
        if isinstance(operand, ModelRef):

            def of_model(task: "Task") -> QuantParams | None:
                name = spelled(operand.name, task.indices) if operand.formatted else operand.name
                return tensors[name].quant if name in tensors else None

            return of_model
        variable = self._bound.vars[operand.base]
        if isinstance(variable.origin, FromPattern):
            key = self.entry_key(operand, variable, variable.origin.pattern)
            return lambda task: tensors[key(task)[1]].quant
        own = part_quant(operand, variable.quant)
        return lambda _task: own

    def _model_reader(self, operand: ModelRef) -> ReadArray:
        if not operand.formatted:
            return lambda task: task.values["", operand.name]
        model = self._bound.model

        def read(task: "Task") -> Array:
            name = spelled(operand.name, task.indices)
            if model is None or (name not in model.tensors and name not in model.metadata_info):
                # Binding enumerates loops only up to a limit.
                message = f"{operand} is the model tensor {name!r}, which does not exist"
                raise OpError(Code.UNKNOWN_LINK, message)
            return task.values["", name]

        return read

    def fitting(self, source: Operand, dst: Access) -> TaskAction | None:
        """Compile a check of a slice of a growing table by its length alone, since it may not fit in memory."""
        variable = self._bound.vars.get(source.base) if isinstance(source, Access) else None
        target = self._bound.vars[dst.base]
        if variable is None or variable.decl is None or not variable.is_table or target.is_table or dst.bracketed:
            return None
        assert isinstance(source, Access)
        grown = variable.decl.auto_dim  # a slice of a matrix may be longer than the matrix can grow
        pairs = zip(variable.decl.table_indices, source.indices, strict=False)
        if all(isinstance(index, Single) or (name in variable.fixed and name not in grown) for name, index in pairs):
            return None
        name, chosen = source.base, self._all_chosen(source)
        return lambda task: task.sizes.agree(target, task.tables[name].shape_of(chosen(task)), str(source))

    # --- writing --------------------------------------------------------------------------------------------------

    def judge(self, access: Access, what: str) -> Judge | None:
        """Compile a check of a result's shape against its variable, before anything is computed; None for slices."""
        variable = self._bound.vars[access.base]
        is_entry = isinstance(variable.origin, FromPattern)
        if variable.is_table or (access.bracketed and access.indices and not is_entry):
            return None
        return lambda task, shape: task.sizes.agree(variable, shape, what)

    def writer(self, access: Access, what: str, *, is_judged: bool = False) -> WriteArray:
        """Compile a write to an access; ``what`` names the value in messages."""
        variable = self._bound.vars[access.base]
        name = access.base
        if variable.is_table:
            return self._table_writer(access, variable, what)
        if isinstance(variable.origin, FromPattern):
            key = self.entry_key(access, variable, variable.origin.pattern)

            def write_entry(task: "Task", value: Array) -> None:
                if not is_judged:
                    task.sizes.agree(variable, value.shape, what)
                task.values[key(task)] = value

            return write_entry
        if access.bracketed and access.indices:
            return self._part_writer(access, what)

        def write(task: "Task", value: Array) -> None:
            if not is_judged and (variable.is_dynamic or value.shape != variable.shape):
                task.sizes.agree(variable, value.shape, what)
            task.values[name] = value

        return write

    def _table_writer(self, access: Access, variable: BoundVar, what: str) -> WriteArray:
        name, chosen = access.base, self._all_chosen(access)

        def write(task: "Task", value: Array) -> None:
            table, where = task.tables[name], chosen(task)
            table.require_room(where)
            wanted = table.shape_of(where)
            if value.shape != wanted:
                found, needed = (TensorType(variable.dtype, shape) for shape in (value.shape, wanted))
                raise OpError(Code.SHAPE_MISMATCH, f"{what} is {found}, but {access} is {needed}")
            table.write(where, value)

        return write

    def _part_writer(self, access: Access, what: str) -> WriteArray:
        name, chosen = access.base, self._all_chosen(access)

        def write(task: "Task", value: Array) -> None:
            whole = task.values[name]
            region = _region(name, whole, chosen(task))
            changed = whole.copy()
            if changed[region].shape != value.shape:
                message = f"{what} has the shape {list(value.shape)}, but {access} has {list(changed[region].shape)}"
                raise OpError(Code.SHAPE_MISMATCH, message)
            changed[region] = value
            task.values[name] = changed

        return write

    # --- other nodes ----------------------------------------------------------------------------------------------

    def assign(self, name: str) -> TaskAction:
        """Compile an assignment: a temporary starts as zero, at its first read if its shape is not known yet."""
        variable = self._bound.vars[name]
        if variable.is_dynamic or variable.dims is None:

            def forget(task: "Task") -> None:
                task.values.pop(name, None)

            return forget
        zero: Array | None = None

        def assign(task: "Task") -> None:
            nonlocal zero
            if zero is None:
                zero = initial_array(variable.dtype, variable.shape, None)
            task.values[name] = zero

        return assign

    def counter(self, name: str, amount: Expr, sign: int) -> TaskAction:
        """Compile an addition to a persistent integer, or a subtraction from it, wrapping at its width."""
        dtype, by = self._bound.vars[name].dtype, self.integer(amount)

        def count(task: "Task") -> None:
            total = int(task.values[name]) + sign * by(task)
            half = 1 << (dtype.bits - 1) if dtype.kind == "int" else 0
            value = (total + half) % (1 << dtype.bits) - half
            if dtype.values and value not in dtype.values:
                raise OpError(Code.BAD_VALUE, f"{name!r} would be {total}, which is not {dtype.name}")
            task.values[name] = np.asarray(value).astype(dtype.array)

        return count

    def reset(self, access: Access) -> TaskAction:
        """Compile a reset of a table or variable, or part of it, to its initial value."""
        variable = self._bound.vars[access.base]
        name, chosen = access.base, self._all_chosen(access)
        if variable.is_table:
            return lambda task: task.tables[name].reset(chosen(task))

        def reset(task: "Task") -> None:
            fresh = task.original(name)
            if access.indices:
                whole = task.values[name].copy()
                region = _region(name, whole, chosen(task))
                whole[region] = fresh[region]
                fresh = whole
            task.values[name] = fresh

        return reset


def index_array(value: int) -> Array:
    """The index of a loop as an operand."""
    if not -(1 << 63) <= value < 1 << 63:
        raise OpError(Code.INDEX_OUT_OF_RANGE, f"the index {value} of a loop does not fit in i64")
    return np.asarray(value, np.int64)


def _region(name: str, array: Array, chosen: list[Chosen]) -> tuple[int | slice, ...]:
    region: list[int | slice] = []
    for axis, (one, extent) in enumerate(zip(chosen, array.shape, strict=True)):
        cells = selected(one, extent)
        last = cells if isinstance(cells, int) else cells[1] - 1
        if last >= extent:
            message = f"the index {last} of {name!r} is outside axis {axis}, which has {extent}"
            raise OpError(Code.INDEX_OUT_OF_RANGE, message)
        region.append(cells if isinstance(cells, int) else slice(*cells))
    return tuple(region)


def _part(name: str, array: Array, chosen: list[Chosen]) -> Array:
    return array[(*_region(name, array, chosen), ...)]  # the dots keep a scalar an array
