"""Converts what programs pass to the builder (operands, sizes, parameters, constraints) to IR values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from openinfer.dtypes import ALIASES, DTYPES, DType, dtype_of
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir.expr import Expr, Num, Ref
from openinfer.ir.graph import NO_CONSTRAINTS, BlockParam, BlockParamKind, CallArgument, Constraints
from openinfer.ir.operand import Access, Literal, Operand
from openinfer.ir.operand_text import parse_access, parse_expr, parse_operand
from openinfer.ir.values import (
    AttrValue,
    BoolValue,
    DTypeList,
    DTypeValue,
    ExprList,
    ExprValue,
    FloatList,
    FloatValue,
    IntValue,
    StrValue,
    VarValue,
)

Size = int | np.integer[Any] | str | Expr
Number = bool | int | float | np.generic
OperandLike = str | Operand | Number
Destination = str | Access
ParamLike = Number | str | DType | Expr | AttrValue | Sequence["int | float | str | DType | Expr"]
BlockParamLike = str | DType | tuple["str | DType", Sequence["Size"]]
T = TypeVar("T")


class Variable(str):
    """The name of a variable or a loop index in a graph under construction."""

    __slots__ = ()


@dataclass(frozen=True)
class Var:
    """The name of a constant, as the value of a parameter."""

    name: str


def refusal(code: Code, message: str) -> GraphError:
    """An error about an argument, which has no source location."""
    return GraphError(Diagnostic(code, message))


def _parsed(parser: Callable[[str], T], text: str) -> T:
    try:
        return parser(text)
    except ValueError as error:
        raise refusal(Code.SYNTAX, f"{text!r:.80}: {error}") from error


def text_of(value: object) -> str:
    """Require a name or a string."""
    if isinstance(value, str):
        return value
    raise refusal(Code.SYNTAX, f"expected text, found {value!r:.80}")


def expr_of(value: Size | float | DType) -> Expr:
    """Convert a size, dimension, index or amount."""
    if isinstance(value, str):
        return _parsed(parse_expr, value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return Num(int(value))
    if isinstance(value, Expr):
        return value
    raise refusal(Code.SYNTAX, f"expected an integer or an expression, found {value!r:.80}")


def operand_of(place: OperandLike) -> Operand:
    """Convert an input of a node; a number becomes a literal."""
    if isinstance(place, bool | int | float | np.generic):
        return Literal(number_of(place))
    return place if isinstance(place, Operand) else _parsed(parse_operand, text_of(place))


def argument_of(given: OperandLike | Expr) -> CallArgument:
    """Convert an argument of a call: an operand, or an expression for an index."""
    if isinstance(given, Num | Ref):
        return Literal(IntValue(given.value)) if isinstance(given, Num) else Access(given.name)
    if isinstance(given, Expr):
        return given
    try:
        return operand_of(given)
    except GraphError:
        return argument_of(expr_of(given)) if isinstance(given, str) else operand_of(given)


def param_of(name: str, kind: BlockParamLike) -> BlockParam:
    """Convert a parameter of a block."""
    if kind in ("index", "prefix"):
        return BlockParam(name, BlockParamKind(kind))
    dtype, dims = kind if isinstance(kind, tuple) else (kind, ())
    return BlockParam(name, BlockParamKind.TENSOR, dtype_of(dtype), tuple(map(expr_of, dims)))


def targets_of(out: Destination | Sequence[Destination]) -> Sequence[Destination]:
    """One target or several, as a sequence."""
    return [out] if isinstance(out, str | Access) else out


def access_of(target: Destination) -> Access:
    """Convert a target: a variable, or a selection from it in brackets."""
    return target if isinstance(target, Access) else _parsed(parse_access, text_of(target))


def number_of(value: Number) -> BoolValue | IntValue | FloatValue:
    """Convert a Python or NumPy number."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool):
        return BoolValue(plain)
    return IntValue(plain) if isinstance(plain, int) else FloatValue(float(plain))


def value_of(value: "ParamLike | Var") -> AttrValue:
    """Convert the value of a parameter or constraint."""
    match value:
        case bool() | int() | float() | np.generic():
            return number_of(value)
        case str():
            return StrValue(value)
        case Var():
            return VarValue(value.name)
        case DType():
            return DTypeValue(value)
        case list() | tuple():
            return _list(value)
        case Num():
            return IntValue(value.value)
        case _ if isinstance(value, Expr):
            return ExprValue(value)
        case _ if isinstance(value, AttrValue):
            return value
        case _:
            raise refusal(Code.SYNTAX, f"{value!r:.80} cannot be the value of a parameter")


def keyword_of(value: "ParamLike | Var | Operand") -> AttrValue:
    """Convert a keyword of an op. Building the graph decides which names are inputs, and binding the op checks them."""
    assert not isinstance(value, Operand)
    if isinstance(value, Variable):
        return VarValue(str(value))
    if isinstance(value, str) and (value in DTYPES or value in ALIASES):
        return DTypeValue(dtype_of(value))
    return value_of(value)


def _list(values: "Sequence[int | float | str | DType | Expr]") -> AttrValue:
    if any(isinstance(value, bool) for value in values):
        raise refusal(Code.SYNTAX, f"a list holds numbers, size expressions or dtypes, not {values!r:.80}")
    dtypes = tuple(value for value in values if isinstance(value, DType))
    if dtypes and len(dtypes) == len(values):
        return DTypeList(dtypes)
    numbers = tuple(value for value in values if isinstance(value, int | float | np.integer | np.floating))
    if any(isinstance(value, float | np.floating) for value in numbers) and len(numbers) == len(values):
        return FloatList(tuple(FloatValue(float(value)) for value in numbers))
    return ExprList(tuple(expr_of(value) for value in values))


def constraints_of(values: Mapping[str, ParamLike] | None) -> Constraints:
    """Convert the constraints of a node or block."""
    return MappingProxyType({key: value_of(value) for key, value in values.items()}) if values else NO_CONSTRAINTS
