"""Inserted values: converts what callers pass to arrays of an input's dtype and shape, or refuses it.

The simulator and compiled code accept and refuse the same values.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.check.step_sizes import StepSizes
from openinfer.dtypes import DType, convert
from openinfer.errors import Code, Diagnostic, ExecutionError, TensorError, nearest
from openinfer.ir import MemoryKind
from openinfer.ops import Array, OpError, Shape
from openinfer.tensor import Tensor, any_array


def inputs_by_name(bound: BoundGraph, values: object, named: Mapping[str, Any]) -> dict[str, Any]:
    """The combined arguments of ``insert`` or of a call: a mapping, keywords, or both."""
    if isinstance(values, Mapping | None):
        return {**(values or {}), **named}
    message = f"inputs are given by name, not as {type(values).__name__}"
    dynamic = [name for name, variable in bound.vars.items() if variable.kind is MemoryKind.DYNAMIC]
    advice = f"write {', '.join(f'{name}=...' for name in dynamic[:4])}" if dynamic else "there are no inputs"
    raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, message, None, advice))


def accepted_input(bound: BoundGraph, name: str, value: Any) -> Array:
    """A caller's value for an input, as a new array in storage form."""
    variable = input_called(bound, name)
    array = accepted_array(name, value, variable.dtype)
    require_shape(bound, variable, array.shape)
    return array


def input_called(bound: BoundGraph, name: str) -> BoundVar:
    """The input of a name; anything else is refused."""
    variable = bound.vars.get(name)
    if variable is not None and variable.kind is MemoryKind.DYNAMIC:
        return variable
    dynamic = [one.name for one in bound.vars.values() if one.kind is MemoryKind.DYNAMIC]
    reason = (
        "there is no variable"
        if variable is None
        else f"only dynamic variables are inserted, not {variable.kind.value}"
    )
    advice = nearest(str(name), dynamic) or (f"inputs are {', '.join(dynamic)}" if dynamic else "there are no inputs")
    raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, f"{reason} {name!r}", None, advice))


def require_shape(bound: BoundGraph, variable: BoundVar, shape: Shape) -> None:
    """Refuse a shape that the input cannot have for any dynamic sizes."""
    try:
        StepSizes(bound).require_possible(variable, shape, "the value")
    except OpError as error:
        span = variable.decl.span if variable.decl else None
        raise ExecutionError(Diagnostic(error.code, error.message, span, error.advice)) from error


def accepted_array(name: str, value: Any, dtype: DType) -> Array:
    """A caller's value as a new array in storage form. Plain data is checked for range; arrays must convert exactly."""
    if isinstance(value, Tensor):
        value = value.to_numpy()
    is_array = isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__")
    try:
        array = any_array(value)
        converted = np.array(convert(array, dtype), order="C")
    except TensorError as error:
        raise ExecutionError(
            *(
                Diagnostic(found.code, f"the value of {name!r}: {found.message}", None, found.help)
                for found in error.diagnostics
            )
        ) from error
    if dtype.kind != "float" or array.dtype == dtype.array:
        return converted
    if is_array:
        if not _is_unchanged(array, converted):
            message = f"{name!r} is {dtype.name}, and some values of this {array.dtype} array have no {dtype.name} form"
            advice = f"round them yourself: {name}.astype({_spelling(dtype)})"
            raise ExecutionError(Diagnostic(Code.VALUE_OUT_OF_RANGE, message, None, advice))
    elif np.any(np.isinf(converted) & np.isfinite(array.astype(np.float64))):
        message = f"{name!r} is {dtype.name}, and some of these values are beyond the largest, {dtype.maximum}"
        raise ExecutionError(Diagnostic(Code.VALUE_OUT_OF_RANGE, message))
    return converted


def _is_unchanged(before: Array, after: Array) -> bool:
    """Whether floats kept their values in a conversion; every float type is a subset of f64."""
    back = after.astype(np.float64)
    if before.dtype.kind in "iu" and before.dtype.itemsize == 8:
        # f64 does not represent all of these integers, so they are compared as integers.
        low, high = -float(1 << 63) if before.dtype.kind == "i" else 0.0, float(1 << (63 + (before.dtype.kind == "u")))
        is_inside = (back >= low) & (back < high)
        return bool(np.all(is_inside & (np.where(is_inside, back, 0).astype(before.dtype) == before)))
    wide = before.astype(np.float64)
    return bool(np.all((back == wide) | (np.isnan(back) & np.isnan(wide))))


def _spelling(dtype: DType) -> str:
    module = "np" if dtype.array.type.__module__.startswith("numpy") else "ml_dtypes"
    return f"{module}.{dtype.array.name}"
