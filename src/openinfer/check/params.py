"""Converts parameter values from graphs to the Python values that op records expect."""

from collections.abc import Callable
from typing import Any

from openinfer.check.sizes import Lookup, SizeError, evaluate_evenly
from openinfer.errors import Advice, Code, Fix
from openinfer.ir.values import (
    AttrValue,
    DTypeList,
    DTypeValue,
    ExprList,
    ExprValue,
    FloatList,
    StrValue,
    VarValue,
)
from openinfer.ops import OpError

ParamLookup = Callable[[str], Any]
"""The parameter value that a name refers to, or None."""


_PYTHON = {"True": "write true", "False": "write false", "None": "leave the parameter out"}
"""Python literals, and what to write instead."""


def parameter(name: str, value: AttrValue, named: ParamLookup, size: Lookup) -> Any:
    """The Python value of a parameter; ``named`` looks up constants, ``size`` the current sizes."""
    match value:
        case VarValue(variable):
            found = named(variable)
            if found is None:
                message = f"the parameter {name!r} is {variable!r}, which is neither a scalar constant nor a size"
                advice = _PYTHON.get(variable)
                fix = Fix("", f", {name}=None") if variable == "None" else Fix(variable.lower(), variable)
                raise OpError(Code.BAD_PARAMETER, message, name, advice and Advice(advice, fix))
            return found
        case DTypeValue(dtype):
            return dtype
        case DTypeList(values):
            return values
        case FloatList(values):
            return tuple(element.value for element in values)
        case ExprList(values):
            return tuple(_integer(name, element, named, size) for element in values)
        case ExprValue(expr):
            return _integer(name, expr, named, size)
        case StrValue(text):
            return text
        case _:
            return value.value


def _integer(name: str, expr: Any, named: ParamLookup, size: Lookup) -> int:
    def lookup(variable: str) -> int:
        found = named(variable)
        return found if isinstance(found, int) else size(variable)

    try:
        return evaluate_evenly(expr, {}, lookup)
    except SizeError as error:
        raise OpError(error.code, error.message, name, error.advice) from error
