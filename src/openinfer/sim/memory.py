"""The four kinds of memory.

Arrays are never modified in place: a node that writes a variable replaces its array. So weights are never copied, a
transfer is a reference, and only tables need a rollback after a failed step.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from openinfer.check.bound import BoundGraph, BoundVar, FromCaller, FromInit, FromModel
from openinfer.check.inserted import accepted_input
from openinfer.check.links import metadata_dtype
from openinfer.check.sizes import SizeError, dimension
from openinfer.check.step_sizes import StepSizes
from openinfer.dtypes import DType, convert
from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.ops import Array, OpError, Shape
from openinfer.sim.tables import TableStorage
from openinfer.tensor import storage_bytes

MemoryKey = str | tuple[str, str]
"""A variable, or the entry of a prefix table with the name of its model tensor."""


def initial_array(dtype: DType, shape: Shape, value: Any) -> Array:
    """An array filled with an initial value; None means zero (all bits zero, so -1 for t1)."""
    if storage_bytes(dtype, shape) is None:
        raise OpError(Code.OUT_OF_MEMORY, f"{dtype.name}{list(shape)} is larger than any machine can hold")
    if value is None:
        return np.zeros(shape, dtype.array) if dtype.has_zero else np.full(shape, dtype.initial, dtype.array)
    return np.full(shape, convert(np.asarray(value), dtype), dtype.array)


class SessionMemory:
    """Memory that outlives a step: loaded weights, persistent values, tables, and inputs for the next step."""

    def __init__(self, bound: BoundGraph) -> None:
        self._bound = bound
        self._base: dict[MemoryKey, Array] = {}
        self.inputs: dict[str, Array] = {}
        self.persistent: dict[str, Array] = {}
        self.tables = self._new_tables()

    def _new_tables(self) -> dict[str, TableStorage]:
        return {
            variable.name: TableStorage(variable, self._element(variable))
            for variable in self._bound.vars.values()
            if variable.is_table
        }

    def reset(self) -> None:
        """Reset persistent memory to its initial values."""
        self.persistent, self.tables = {}, self._new_tables()

    def restore(self, plain: dict[str, Array], tables: Mapping[str, Mapping[tuple[int, ...], Array]]) -> None:
        """Replace all persistent memory at once."""
        fresh = self._new_tables()
        for name, grids in tables.items():
            fresh[name].restore(grids)
        self.persistent, self.tables = plain, fresh

    def _element(self, variable: BoundVar) -> Array:
        origin = variable.origin
        value = origin.value.value if isinstance(origin, FromInit) and origin.value is not None else None
        return initial_array(variable.dtype, (), value)

    def initial(self, name: str, sizes: StepSizes) -> Array:
        """The value of a variable before any node of this step writes it."""
        return self.persistent[name] if name in self.persistent else self.original(name, sizes)

    def original(self, name: str, sizes: StepSizes) -> Array:
        """The value of a variable that has never been written."""
        variable = self._bound.vars[name]
        if isinstance(variable.origin, FromModel):
            return self.entry((name, variable.origin.name))
        if isinstance(variable.origin, FromCaller):
            raise OpError(Code.NOT_INSERTED, f"the input {name!r} has not been inserted")
        if variable.is_dynamic:
            return initial_array(variable.dtype, sizes.shape(variable), _init(variable))
        if name not in self._base:
            self._base[name] = initial_array(variable.dtype, variable.shape, _init(variable))
        return self._base[name]

    def entry(self, key: tuple[str, str]) -> Array:
        """A model entry for a variable, loaded on first use. Packed tensors stay packed; every use unpacks them."""
        found = self._base.get(key)
        if found is not None:
            return found
        model = self._bound.model
        assert model is not None
        if key[1] not in model.tensors:
            variable = self._bound.vars.get(key[0])
            dtype = metadata_dtype(model, key[1]) if variable is None else variable.dtype
            assert dtype is not None
            found = np.asarray(model.metadata[key[1]]).astype(dtype.array)
        else:
            tensor = model.load(key[1])
            found = tensor.to_numpy()
            if tensor.dtype.is_packed:
                return found
        self._base[key] = found
        return found

    def is_packed(self, key: MemoryKey) -> bool:
        """Whether this is a model tensor that stays packed, so that every reader gets its own elements."""
        origin = self._bound.vars[key].origin if isinstance(key, str) else FromModel(key[1])
        if not isinstance(origin, FromModel) or self._bound.model is None:
            return False
        info = self._bound.model.tensors.get(origin.name)
        return info is not None and info.dtype.is_packed

    # --- inputs ---------------------------------------------------------------------------------------------------

    def insert(self, values: Mapping[str, Any]) -> None:
        """Store inputs for the next step; if one is wrong, none are stored."""
        try:
            accepted = {name: accepted_input(self._bound, name, value) for name, value in values.items()}
        except MemoryError as error:
            message = "there is not enough memory for the inputs"
            raise ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, message)) from error
        self.inputs |= accepted


def _init(variable: BoundVar) -> Any:
    origin = variable.origin
    return origin.value.value if isinstance(origin, FromInit) and origin.value is not None else None


class Values(dict[MemoryKey, Array]):
    """The variables of a running step. One that no node has written gets its initial value when it is first read."""

    def __init__(self, memory: SessionMemory, sizes: StepSizes, start: Mapping[MemoryKey, Array]) -> None:
        super().__init__()
        self.update(start)
        self._memory = memory
        self.sizes = sizes

    def __missing__(self, key: MemoryKey) -> Array:
        value = self.initial(key, self.sizes)
        if not self._memory.is_packed(key):
            self[key] = value
        return value

    def initial(self, key: MemoryKey, sizes: StepSizes) -> Array:
        """The value before any node writes it."""
        return self._memory.entry(key) if isinstance(key, tuple) else self._memory.initial(key, sizes)


class Overlay(dict[MemoryKey, Array]):
    """The variables as a consumer sees them: its own copies of what it awaits, its own block locals, and all others."""

    def __init__(self, values: Values, copies: Mapping[str, Array], local: frozenset[str]) -> None:
        super().__init__()
        for name, value in copies.items():
            super().__setitem__(name, value)
        self._values = values
        self._local = local
        """The variables of blocks that are called."""
        self._own = frozenset(copies) | local
        self.sizes = values.sizes.forked()

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (key not in self._local and key in self._values)

    def __missing__(self, key: MemoryKey) -> Array:
        is_shared = key not in self._local and key in self._values
        return self._values[key] if is_shared else self._values.initial(key, self.sizes)

    def __setitem__(self, key: MemoryKey, value: Array) -> None:
        if key in self._own:
            super().__setitem__(key, value)
        else:
            self._values[key] = value


def evaluated_shape(variable: BoundVar, sizes: StepSizes) -> Shape | None:
    """The current shape of a variable; None if a size is still unknown."""
    if variable.dims is None:
        return None
    try:
        return tuple(dimension(dim, sizes.dynamic, sizes.lookup) for dim in variable.dims)
    except SizeError:
        return None
