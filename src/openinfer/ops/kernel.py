"""A call made ready to run on stored arrays: conversions in, the reference, conversions out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType, convert, dtype_of, from_numpy_dtype
from openinfer.errors import Code, Diagnostic, GraphError, nearest
from openinfer.oinf.quant import QuantParams
from openinfer.ops.arguments import complete, slots
from openinfer.ops.infer import infer
from openinfer.ops.numeric import Convert, entering, leaving
from openinfer.ops.record import OPS, Call, OpRecord
from openinfer.ops.types import OpError, TensorType
from openinfer.tensor import Tensor, as_array


class ReferenceKernel:
    """One op with types and parameters settled. Calling it computes; whoever calls it has silenced NumPy's warnings."""

    __slots__ = ("_enter", "_leave", "_reference", "call")

    def __init__(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> None:
        """``call`` is complete; ``stored`` are the dtypes the operands really have."""
        self.call = call
        self._reference = record.reference
        pairs = zip(call.inputs, stored, strict=True)
        self._enter = [_entry(kind, own, as_stored=record.stored) for kind, own in pairs]
        self._leave: list[Convert | None] = [
            None if record.stored else leaving(output.dtype) for output in call.outputs
        ]

    def __call__(self, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
        """The results of the op in stored form."""
        operands = [
            array if enter is None or array is None else enter(array)
            for enter, array in zip(self._enter, arrays, strict=True)
        ]
        results = self._reference(self.call, *operands)
        if not isinstance(results, tuple):
            results = (results,)
        return tuple(
            np.asarray(result) if leave is None else leave(np.asarray(result))
            for leave, result in zip(self._leave, results, strict=True)
        )

    def entered(self, arrays: Sequence[Array | None]) -> list[Array | None]:
        """The operands as the reference takes them."""
        pairs = zip(self._enter, arrays, strict=True)
        return [array if enter is None or array is None else enter(array) for enter, array in pairs]

    def unrounded(self, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
        """The results as the reference computes them, before they are stored."""
        results = self._reference(self.call, *self.entered(arrays))
        return results if isinstance(results, tuple) else (np.asarray(results),)


def _entry(kind: TensorType | None, stored: DType | None, *, as_stored: bool) -> Convert | None:
    if kind is None or stored is None or as_stored:
        return None  # what moves values knows itself which of them to dequantize
    if kind.quant is not None and kind.dtype is not stored:
        return _dequantizing(kind.quant, kind.dtype.compute)
    return entering(stored)


def _dequantizing(quant: QuantParams, dtype: DType) -> Convert:
    return lambda array: quant.dequantize(array).astype(dtype.array, copy=False)


def op_named(name: str) -> OpRecord:
    """The record of an op, by name or alias."""
    record = OPS.get(name)
    if record is None:
        advice = nearest(str(name), OPS) or "'openinfer ops' lists them"
        raise GraphError(Diagnostic(Code.UNKNOWN_OP, f"there is no op {name!r:.60}", help=advice))
    return record


def apply(name: str, *operands: Any, dtypes: Sequence[str | DType | None] = (), **params: Any) -> Any:
    """Compute one op on arrays, without a graph: one array, or a tuple where the op has several outputs.

    ``dtypes`` says what arrays are where NumPy cannot (i1, u1, t1, t2); None operands are inputs left out. A list of
    parameters is a list or tuple; dtypes among them may be names.

    >>> apply("add", np.float32([1, 2]), np.float32([10]))
    array([11., 12.], dtype=float32)
    """
    record = op_named(name)
    arrays = [None if operand is None else _stored(operand) for operand in operands]
    given = list(dtypes) + [None] * (len(arrays) - len(dtypes))
    try:
        kinds = [
            None if array is None else TensorType(_dtype(array, dtype), array.shape)
            for array, dtype in zip(arrays, given, strict=True)
        ]
        wanted_params = {key: _param(record, key, value) for key, value in params.items()}
        places = slots(record, [None] * len(arrays))
        ordered = [None if place is None else arrays[place] for place in places]
        types = tuple(None if place is None else kinds[place] for place in places)
        call = infer(record, Call(types, complete(record, wanted_params)))
        with np.errstate(all="ignore"):
            results = ReferenceKernel(record, call, [kind.dtype if kind else None for kind in types])(ordered)
    except OpError as error:
        raise GraphError(Diagnostic(error.code, error.message, help=error.advice)) from error
    except MemoryError as error:
        message = f"there is not enough memory for '{record.name}'"
        raise GraphError(Diagnostic(Code.OUT_OF_MEMORY, message)) from error
    return results[0] if len(results) == 1 else results


def _stored(operand: Any) -> Array:
    return operand.to_numpy() if isinstance(operand, Tensor) else as_array(operand)


def _dtype(array: Array, given: str | DType | None) -> DType:
    dtype = from_numpy_dtype(array.dtype) if given is None else dtype_of(given)
    if dtype is None:
        convert(array, dtype_of("f32"))  # raises: no dtype stands for this array
    assert dtype is not None
    return dtype


def _param(record: OpRecord, name: str, value: Any) -> Any:
    param = record.param(name)
    if param is not None and param.kind in ("dtype", "dtypes"):
        return tuple(map(dtype_of, value)) if isinstance(value, list | tuple) else dtype_of(value)
    return tuple(value) if isinstance(value, list) else value
