"""Converts parts of a draft to IR values: numbers, parameters and indices; also names tensors for model files."""

import re
from hashlib import blake2b
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.importing.draft import I64, DraftOperand, KnownTensor
from openinfer.importing.extents import has_quotient
from openinfer.importing.identifiers import Identifiers, identifier
from openinfer.ir.expr import BinaryExpr, Expr, Num, Ref
from openinfer.ir.operand import Index, Single
from openinfer.ir.values import (
    AttrValue,
    BoolValue,
    DTypeList,
    DTypeValue,
    ExprList,
    ExprValue,
    FloatList,
    FloatValue,
    InitValue,
    IntValue,
    StrValue,
)
from openinfer.loops.dim import Dim, expr_of, is_symbolic


def tensor_name(text: str, taken: Identifiers) -> str:
    """A unique name that model files allow, as close to a text as possible."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "_", text)[-200:] or "tensor"
    unique = taken.unique(cleaned.replace("__", "_"), "w")
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", cleaned).strip("_")
    return cleaned if unique == identifier(plain, "w") and len(plain) < 60 else unique


def is_position(operand: DraftOperand | None) -> bool:
    """Whether an index can be written into the text: a known i64 scalar."""
    return isinstance(operand, KnownTensor) and operand.shape == () and operand.dtype is I64 and not operand.has_sizes


def open_extent(op: str, value: Any) -> Any:
    """The shape of a reshape with -1 for its only quotient, which need not divide evenly."""
    if op != "reshape" or not isinstance(value, tuple) or sum(map(has_quotient, value)) != 1:
        return value
    return tuple(-1 if has_quotient(one) else one for one in value)


def layer_index(index: str) -> tuple[Index, ...]:
    """The index of a table's layer: a loop index or a number."""
    if not index:
        return ()
    return (Single(Num(int(index)) if index.isdigit() else Ref(index)),)


def plus(expr: Expr, added: int) -> Expr:
    """A sum; adding zero is omitted."""
    return expr if not is_symbolic(added) and added == 0 else BinaryExpr("+", expr, expr_of(added))


def digest(array: Array) -> bytes:
    """A hash of an array's elements."""
    return blake2b(array.reshape(-1).view(np.uint8).data if array.size else b"", digest_size=16).digest()


def shortened_hint(hint: str) -> str:
    """The name of a value in the file, without suffixes that exporters add."""
    return hint.removesuffix("_output_0").removesuffix(":0")


def number_value(constant: KnownTensor) -> InitValue:
    """The value of a known tensor with one element."""
    found = constant.array.reshape(-1)[0]
    if constant.dtype.kind == "bool":
        return BoolValue(bool(found))
    if constant.dtype.kind == "float":
        return FloatValue(_shortest(found))
    return IntValue(int(found))


def _shortest(value: Any) -> float:
    """The float with the shortest text that rounds back to a value of a smaller type."""
    exact = float(value)
    if value.dtype.itemsize > 4 or not np.isfinite(exact):
        return exact
    short = float(str(value))
    return short if abs(short) <= abs(exact) or abs(exact) < 1e4 else exact  # the largest rounds out of range


def attribute_value(value: Any) -> AttrValue:
    """A parameter of an op as an attribute."""
    match value:
        case bool():
            return BoolValue(value)
        case Dim():
            return ExprValue(value.expr)
        case int():
            return IntValue(value)
        case float():
            return FloatValue(value)
        case str():
            return StrValue(value)
        case DType():
            return DTypeValue(value)
    assert isinstance(value, tuple), value
    if all(isinstance(one, DType) for one in value) and value:
        return DTypeList(value)
    if any(isinstance(one, float) for one in value):
        return FloatList(tuple(FloatValue(float(one)) for one in value))
    return ExprList(tuple(map(expr_of, value)))
