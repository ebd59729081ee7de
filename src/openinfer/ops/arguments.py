"""The operands and parameters of a call, put where the record wants them."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite, isinf
from typing import Any

from openinfer.dtypes import DType
from openinfer.errors import Code, nearest
from openinfer.ops.other_names import called_here
from openinfer.ops.record import InputSpec, OpRecord, Param
from openinfer.ops.types import OpError, parameter_error, together


def slots(record: OpRecord, names: Sequence[str | None]) -> tuple[int | None, ...]:
    """For every input of the record, which of the given operands it gets; ``names`` are theirs, None by position.

    A variadic input, always the last, takes all that is left.
    """
    specs = record.signature.inputs
    variadic = bool(specs) and specs[-1].variadic
    found: dict[int, int] = {}
    for position, name in enumerate(names):
        slot = position if name is None else _slot(record, name, position)
        if slot >= len(specs) and not variadic:
            message = f"'{record.name}' takes {len(specs)} input{'s' * (len(specs) != 1)}, and this is one more"
            raise OpError(Code.WRONG_OPERANDS, message, position, usage(record))
        if slot in found:
            message = f"the input {specs[slot].name!r} of '{record.name}' is given twice"
            raise OpError(Code.WRONG_OPERANDS, message, position)
        found[slot] = position
    for slot, spec in enumerate(specs):
        if slot not in found and not spec.optional:
            message = f"'{record.name}' needs the input {spec.name!r}"
            raise OpError(Code.WRONG_OPERANDS, message, None, usage(record))
    return tuple(found.get(slot) for slot in range(max(len(specs), len(names))))


def _slot(record: OpRecord, name: str, position: int) -> int:
    known = [spec.name for spec in record.signature.inputs]
    if name not in known:
        message = f"'{record.name}' has no input {name!r}"
        advice = called_here(name, known) or f"its inputs are {', '.join(known)}"
        raise OpError(Code.UNKNOWN_PARAMETER, message, position, advice)
    return known.index(name)


def spec_of(record: OpRecord, slot: int) -> InputSpec:
    """The input that a slot belongs to; slots past the last belong to the variadic one."""
    return record.signature.inputs[min(slot, len(record.signature.inputs) - 1)]


def usage(record: OpRecord) -> str:
    """How an op is written.

    >>> from openinfer.ops import op_named
    >>> usage(op_named("matmul"))
    'op matmul(a, b, transpose_a=false, transpose_b=false, acc) >> y'
    """
    inputs = [
        spec.name + ("?" if spec.optional else "") + (", ..." if spec.variadic else "")
        for spec in record.signature.inputs
    ]
    params = [param.name + default_text(param) for param in record.params]
    outputs = [out.name + (", ..." if out.variadic else "") for out in record.signature.outputs]
    return f"op {record.name}({', '.join(inputs + params)}) >> {', '.join(outputs)}"


def default_text(param: Param) -> str:
    """The default as the language writes it, or nothing."""
    return "" if param.default is None or param.is_required else f"={value_text(param.default)}"


def value_text(value: object) -> str:
    """A parameter's value as the language writes it.

    >>> value_text((1, 2)), value_text(True), value_text("tanh")
    ('[1, 2]', 'true', '"tanh"')
    """
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case tuple():
            return f"[{', '.join(map(value_text, value))}]"
        case _:
            return str(value)


def complete(record: OpRecord, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a call by their own names, checked, with defaults where nothing is given.

    All that is wrong with them is raised together.
    """
    values: dict[str, Any] = {}
    errors = unknown_parameters(record, given)
    for name, value in given.items():
        param = record.param(name)
        if param is None:
            continue
        if param.name in values:
            errors.append(parameter_error(name, f"the parameter {param.name!r} is given twice"))
            continue
        try:
            values[param.name] = _checked(record, param, value)
        except OpError as error:
            values[param.name] = None
            errors.append(error)
    for param in record.params:
        if param.name not in values and param.is_required and not unknown_parameters(record, given):
            message = f"'{record.name}' needs the parameter {param.name!r}"
            errors.append(OpError(Code.WRONG_OPERANDS, message, None, usage(record)))
    if errors:
        raise together(errors)
    return {param.name: values.get(param.name, param.default) for param in record.params}


def unknown_parameters(record: OpRecord, names: Iterable[str]) -> list[OpError]:
    """An error for every name that is no parameter."""
    known = [param.name for param in record.params]
    has = f"it has {', '.join(known)}" if known else "it has none"
    return [
        OpError(
            Code.UNKNOWN_PARAMETER, f"'{record.name}' has no parameter {name!r}", name, called_here(name, known) or has
        )
        for name in names
        if record.param(name) is None
    ]


_WORDS = {
    "int": "an integer",
    "float": "a number",
    "number": "a number",
    "bool": "true or false",
    "str": "a string",
    "dtype": "a dtype",
    "ints": "a list of integers",
    "floats": "a list of numbers",
    "dtypes": "a dtype or a list of one or two",
}


def _checked(record: OpRecord, param: Param, value: Any) -> Any:
    """A value in the form the reference expects: lists are tuples, one element counts as a list of it."""
    wants_list = param.kind in ("ints", "floats", "dtypes")
    if wants_list and not isinstance(value, tuple | list):
        value = (value,)
    elements = value if wants_list else (value,)
    kind = param.kind.removesuffix("s") if wants_list else param.kind
    if not all(_is(kind, element) for element in elements):
        found = value_text(tuple(value) if wants_list else value)
        message = f"{param.name!r} of '{record.name}' is {_WORDS[param.kind]}, not {found}"
        raise parameter_error(param.name, message)
    if kind == "int" and any(not -(1 << 63) <= element < 1 << 63 for element in elements):
        raise parameter_error(param.name, f"{param.name!r} of '{record.name}' has more than 64 bits")
    if param.choices and value not in param.choices:
        choices = " or ".join(value_text(choice) for choice in param.choices)
        message = f"{param.name!r} of '{record.name}' is {choices}, not {value_text(value)}"
        raise parameter_error(param.name, message, nearest(str(value), param.choices))
    if kind == "float":
        return tuple(map(_float, elements)) if wants_list else _float(value)
    return tuple(value) if wants_list else value


def _float(value: float) -> float:
    """A number as f64; an integer beyond all of them is infinite."""
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def _is(kind: str, value: object) -> bool:
    match kind:
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "float":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float)
        case "bool":
            return isinstance(value, bool)
        case "str":
            return isinstance(value, str)
        case _:
            return isinstance(value, DType)


def require_number(record: OpRecord, param: Param, value: object, dtype: DType) -> None:
    """Refuse a number that the dtype of the result does not have. An infinite default means no limit for any dtype."""
    assert isinstance(value, int | float)
    if dtype.kind == "float" or (isinstance(param.default, float) and isinf(param.default) and isinf(value)):
        return
    fits = isfinite(value) and value == int(value)
    if not fits or not dtype.minimum <= value <= dtype.maximum or (dtype.values and value not in dtype.values):
        message = f"{param.name!r} of '{record.name}' is {value_text(value)}, which is not {dtype.name}"
        raise parameter_error(param.name, message)
