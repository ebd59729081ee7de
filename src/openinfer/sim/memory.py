"""The four kinds of memory.

Values are arrays that nobody changes in place: a node that writes a variable gives it another array. So weights are
never copied, a transfer is a reference, and a step that fails leaves only tables to be rolled back.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from openinfer.check.bound import BoundGraph, BoundVar, FromCaller, FromInit, FromModel
from openinfer.check.links import metadata_dtype
from openinfer.check.sizes import SizeError, evaluate_evenly
from openinfer.dtypes import DType, convert, from_numpy_dtype
from openinfer.errors import Code, Diagnostic, ExecutionError, TensorError, nearest
from openinfer.ir import MemoryKind
from openinfer.ops import Array, OpError, Shape
from openinfer.sim.sizes import StepSizes
from openinfer.sim.tables import Table
from openinfer.tensor import Tensor, storage_bytes

Key = str | tuple[str, str]
"""A variable, or the entry of a prefix table by the name of its model tensor."""


def initial_array(dtype: DType, shape: Shape, value: Any) -> Array:
    """An array whose elements all have an initial value; None is zero (all bits zero, so -1 for t1)."""
    if storage_bytes(dtype, shape) is None:
        raise OpError(Code.OUT_OF_MEMORY, f"{dtype.name}{list(shape)} is larger than any machine can hold")
    if value is None:
        zero = np.zeros((), dtype.array) if dtype.name != "t1" else np.full((), -1, dtype.array)
        return np.full(shape, zero) if dtype.name == "t1" else np.zeros(shape, dtype.array)
    return np.full(shape, convert(np.asarray(value), dtype), dtype.array)


class Memory:
    """What outlives a step: loaded weights, persistent values, tables, and inputs that wait for the next step."""

    def __init__(self, bound: BoundGraph) -> None:
        self._bound = bound
        self._base: dict[Key, Array] = {}
        self.inputs: dict[str, Array] = {}
        self.persistent: dict[str, Array] = {}
        self.tables: dict[str, Table] = {}
        self.reset()

    def reset(self) -> None:
        """Put persistent memory back to its initial values."""
        self.persistent = {}
        self.tables = {
            variable.name: Table(variable, self._element(variable))
            for variable in self._bound.vars.values()
            if variable.is_table
        }

    def _element(self, variable: BoundVar) -> Array:
        origin = variable.origin
        value = origin.value.value if isinstance(origin, FromInit) and origin.value is not None else None
        return initial_array(variable.dtype, (), value)

    def initial(self, name: str, sizes: StepSizes) -> Array:
        """The value of a variable before any node has written it in this step."""
        return self.persistent[name] if name in self.persistent else self.original(name, sizes)

    def original(self, name: str, sizes: StepSizes) -> Array:
        """The value of a variable that nothing has ever written."""
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
        """A model entry for a variable, loaded on first use. Packed tensors stay packed and are unpacked every time."""
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

    # --- inputs ---------------------------------------------------------------------------------------------------

    def insert(self, values: Mapping[str, Any]) -> None:
        """Keep inputs for the next step; all of them or, when one is wrong, none."""
        try:
            accepted = {name: self._accepted(name, value) for name, value in values.items()}
        except MemoryError as error:
            message = "there is not enough memory for the inputs"
            raise ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, message)) from error
        self.inputs |= accepted

    def _accepted(self, name: str, value: Any) -> Array:
        variable = self._bound.vars.get(name)
        if variable is None or variable.kind is not MemoryKind.DYNAMIC:
            dynamic = [one.name for one in self._bound.vars.values() if one.kind is MemoryKind.DYNAMIC]
            reason = (
                "there is no variable"
                if variable is None
                else f"only dynamic variables are inserted, not {variable.kind.value}"
            )
            advice = nearest(str(name), dynamic) or (
                f"inputs are {', '.join(dynamic)}" if dynamic else "there are no inputs"
            )
            raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, f"{reason} {name!r}", None, advice))
        array = accepted_array(name, value, variable.dtype)
        self._require_shape(variable, array.shape)
        return array

    def _require_shape(self, variable: BoundVar, shape: Shape) -> None:
        sizes = StepSizes(self._bound)
        try:
            sizes.agree(variable, shape, "the value")
        except OpError as error:
            span = variable.decl.span if variable.decl else None
            raise ExecutionError(Diagnostic(error.code, error.message, span, error.advice)) from error


def _init(variable: BoundVar) -> Any:
    origin = variable.origin
    return origin.value.value if isinstance(origin, FromInit) and origin.value is not None else None


def accepted_array(name: str, value: Any, dtype: DType) -> Array:
    """A caller's value as a stored array of its own: plain data is range-checked, arrays change no value."""
    if isinstance(value, Tensor):
        if value.dtype is dtype:
            return value.to_numpy().copy()
        value = value.to_numpy()
    try:
        if not isinstance(value, np.ndarray | np.generic) and not hasattr(value, "__array__"):
            return Tensor.from_numpy(value, dtype).to_numpy().copy()
        array = np.asarray(value)
        converted = np.array(convert(array, dtype), order="C")
    except TensorError as error:
        raise ExecutionError(
            *(
                Diagnostic(found.code, f"the value of {name!r}: {found.message}", None, found.help)
                for found in error.diagnostics
            )
        ) from error
    if dtype.kind == "float" and array.dtype != dtype.array and not _is_unchanged(array, converted):
        message = f"{name!r} is {dtype.name}, and some values of this {array.dtype} array have no {dtype.name} form"
        advice = f"round them yourself: {name}.astype({_spelling(dtype)})"
        raise ExecutionError(Diagnostic(Code.VALUE_OUT_OF_RANGE, message, None, advice))
    return converted


def _is_unchanged(before: Array, after: Array) -> bool:
    if from_numpy_dtype(before.dtype) is not None and before.dtype.kind in "iu":
        return bool(np.all(after.astype(np.float64).astype(object) == before.astype(object)))
    wide = before.astype(np.float64)
    back = after.astype(np.float64)
    return bool(np.all((back == wide) | (np.isnan(back) & np.isnan(wide))))


def _spelling(dtype: DType) -> str:
    module = "np" if dtype.array.type.__module__.startswith("numpy") else "ml_dtypes"
    return f"{module}.{dtype.array.name}"


class Values(dict[Key, Array]):
    """The variables of a running step. One that no node has written yet gets its initial value when it is read."""

    def __init__(self, memory: Memory, sizes: StepSizes, start: Mapping[str, Array]) -> None:
        super().__init__()
        self.update(start)
        self._memory = memory
        self.sizes = sizes

    def __missing__(self, key: Key) -> Array:
        value = self.initial(key, self.sizes)
        self[key] = value
        return value

    def initial(self, key: Key, sizes: StepSizes) -> Array:
        """The value before any node has written one."""
        return self._memory.entry(key) if isinstance(key, tuple) else self._memory.initial(key, sizes)


class Overlay(dict[Key, Array]):
    """What a consumer sees: copies of its own of what it awaits, and the variables of the step behind them."""

    def __init__(self, values: Values, copies: Mapping[str, Array]) -> None:
        super().__init__()
        for name, value in copies.items():
            super().__setitem__(name, value)
        self._values = values
        self._own = frozenset(copies)
        self.sizes = values.sizes.forked()

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._values

    def __missing__(self, key: Key) -> Array:
        return self._values[key] if key in self._values else self._values.initial(key, self.sizes)

    def __setitem__(self, key: Key, value: Array) -> None:
        if key in self._own:
            super().__setitem__(key, value)
        else:
            self._values[key] = value


def evaluated_shape(variable: BoundVar, sizes: StepSizes) -> Shape | None:
    """The shape of a variable now, or None while a size is unknown."""
    if variable.dims is None:
        return None
    try:
        return tuple(evaluate_evenly(dim, sizes.dynamic, sizes.lookup) for dim in variable.dims)
    except SizeError:
        return None
