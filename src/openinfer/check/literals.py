"""Infers the dtypes of literals from the operands around them, and checks that the dtypes can hold them."""

from collections.abc import Mapping, Sequence
from typing import Any

from openinfer.check.access import AccessType
from openinfer.dtypes import DType
from openinfer.errors import Code
from openinfer.ir import Literal
from openinfer.ir.values import BoolValue, FloatValue, IntValue, init_value
from openinfer.ops import Call, OpError, OpRecord, TensorType, spec_of, type_variables
from openinfer.ops.types import BOOL, F32, I64

PlainNumber = bool | int | float


def literal_value(literal: Literal, dtype: DType) -> PlainNumber | None:
    """A literal as a number of a dtype, None if the dtype cannot hold it; whole floats count as integers.

    >>> from openinfer.dtypes import dtype_of
    >>> one = Literal(FloatValue(1.0))
    >>> literal_value(one, dtype_of("u8")), literal_value(Literal(IntValue(300)), dtype_of("u8"))
    (1, None)
    """
    value = literal.value
    if isinstance(value, FloatValue) and dtype.kind != "float" and value.value.is_integer():
        value = IntValue(int(value.value))
    found = init_value(value, dtype)
    return None if found is None else found.value


def require_value(literal: Literal, dtype: DType, at: int | None = None) -> None:
    """Refuse a literal that a dtype cannot hold."""
    if literal_value(literal, dtype) is not None:
        return
    if dtype.values:
        held = f"{{{', '.join(map(str, dtype.values))}}}"
    elif dtype.kind == "bool":
        held = "true and false"
    else:
        held = f"{dtype.minimum} to {dtype.maximum}" if dtype.kind != "float" else f"numbers up to {dtype.maximum}"
    message = f"{literal} is not a value of {dtype.name}, the dtype it has here"
    raise OpError(Code.VALUE_OUT_OF_RANGE, message, at, f"{dtype.name} holds {held}")


def with_literals(
    record: OpRecord,
    ordered: Sequence[AccessType | None],
    literals: Mapping[int, Literal],
    params: Mapping[str, Any],
    wanted: Sequence[AccessType | None],
) -> list[AccessType | None]:
    """The types of all operands, literals included; ``literals`` are keyed by operand slot."""
    if all(kind is None for kind in ordered):
        slot = next(iter(literals))
        message = f"'{record.name}' has only literals for operands, and nothing says which dtype they have"
        raise OpError(Code.WRONG_DTYPE, message, slot, "give a number a dtype: assign c: f32; transfer 1.0 >> c;")
    guesses = tuple(None if kind is None else TensorType(kind.dtype, (), kind.quant) for kind in ordered)
    hints = tuple(None if kind is None else TensorType(kind.dtype, ()) for kind in wanted)
    variables = type_variables(record, Call(guesses, params, hints))
    found = list(ordered)
    for slot, literal in literals.items():
        name = spec_of(record, slot).type
        dtype = variables.get(name) or _lone_dtype(record, slot, literal, guesses, params, hints)
        if dtype is None:
            message = f"nothing says which dtype {literal} has"
            advice = "declare the result: assign y: f32[...];"
            raise OpError(Code.WRONG_DTYPE, message, slot, advice)
        require_value(literal, dtype, slot)
        found[slot] = AccessType(dtype, ())
    return found


def _lone_dtype(
    record: OpRecord,
    slot: int,
    literal: Literal,
    guesses: Sequence[TensorType | None],
    params: Mapping[str, Any],
    hints: Sequence[TensorType | None],
) -> DType | None:
    """The dtype of a literal that need not match another operand."""
    signature, name = record.signature, spec_of(record, slot).type
    allowed = signature.allowed(name)
    if name not in signature.types:
        return allowed[0]
    for output, hint in zip(signature.outputs, hints, strict=False):
        if output.type == name:
            return None if hint is None else hint.dtype
    if isinstance(literal.value, BoolValue):
        return BOOL[0] if BOOL[0] in allowed else None
    others = list(dict.fromkeys(kind.dtype for kind in guesses if kind is not None))
    is_index = I64 in allowed and all(dtype.kind in ("int", "uint") for dtype in allowed)
    candidates = [params.get("to"), I64 if is_index else None, others[0] if len(others) == 1 else None, F32]
    return next((dtype for dtype in candidates if dtype in allowed), None)
