"""From the types of operands and the parameters of a call to the types of its results."""

from dataclasses import replace

from openinfer.dtypes import DType
from openinfer.errors import Code
from openinfer.ops.arguments import require_number, spec_of
from openinfer.ops.record import Call, OpRecord
from openinfer.ops.types import F32, OpError, TensorType, parameter_error, shape_error
from openinfer.tensor import MAX_DIMS, storage_bytes


def infer(record: OpRecord, call: Call) -> Call:
    """The call with the types of its outputs, or a fault.

    Quantized operands that stand where a float is expected get that float's dtype in the result's ``inputs``.
    """
    call = with_dtypes(record, call)
    dtypes = tuple(output.dtype for output in call.outputs)
    shapes = record.shape(call)
    for shape in shapes:
        if len(shape) > MAX_DIMS or storage_bytes(dtypes[0], shape) is None:
            raise shape_error(f"the result of '{record.name}' would have the shape {list(shape)}: no machine holds it")
    kinds = dtypes if len(dtypes) == len(shapes) else (dtypes[0],) * len(shapes)
    outputs = tuple(TensorType(dtype, shape) for dtype, shape in zip(kinds, shapes, strict=True))
    return replace(call, outputs=outputs)


def with_dtypes(record: OpRecord, call: Call) -> Call:
    """The call with its operands' dtypes judged and its outputs' dtypes known; shapes of outputs are still empty."""
    call, variables = _unified(record, call)
    outputs = record.signature.outputs
    if record.dtype is not None:
        dtypes = record.dtype(call)
    else:
        dtypes = tuple(variables.get(out.type) or record.signature.allowed(out.type)[0] for out in outputs)
    for param in record.params:
        value = call.params.get(param.name)
        if param.kind == "number" and value is not None:
            require_number(record, param, value, dtypes[0])
    return replace(call, outputs=tuple(TensorType(dtype, ()) for dtype in dtypes))


def type_variables(record: OpRecord, call: Call) -> dict[str, DType]:
    """What the type variables of an op stand for, as far as the operands that are there say so."""
    return _unified(record, call)[1]


def _unified(record: OpRecord, call: Call) -> tuple[Call, dict[str, DType]]:
    """Operands of one type variable have one dtype; what each variable stands for in this call."""
    inputs = list(call.inputs)
    variables: dict[str, DType] = {}
    first: dict[str, TensorType] = {}
    for slot, given in enumerate(call.inputs):
        if given is None:
            continue
        spec = spec_of(record, slot)
        real = _float_expected(record, call, slot) if spec.dequantizes and given.quant is not None else None
        kind = given if real is None else replace(given, dtype=real)
        inputs[slot] = kind
        allowed = record.signature.allowed(spec.type)
        if kind.dtype not in allowed:
            raise _not_allowed(record, slot, kind, allowed)
        if spec.type not in record.signature.types:
            continue
        known = first.setdefault(spec.type, kind)
        if known.dtype is not kind.dtype:
            message = f"'{record.name}' mixes {known} and {kind}"
            is_quantized = known.quant is not None or kind.quant is not None
            advice = "op dequantize(x) >> y" if is_quantized else "cast one of them: op cast(x, to=...) >> y"
            raise OpError(Code.WRONG_DTYPE, message, slot, advice)
        variables[spec.type] = kind.dtype
    return replace(call, inputs=tuple(inputs)), variables


def _not_allowed(record: OpRecord, slot: int, kind: TensorType, allowed: tuple[DType, ...]) -> OpError:
    name = spec_of(record, slot).name
    choices = ", ".join(dtype.name for dtype in allowed)
    message = f"the input {name!r} of '{record.name}' cannot be {kind}"
    return OpError(Code.WRONG_DTYPE, message, slot, f"it takes {choices}")


def _float_expected(record: OpRecord, call: Call, slot: int) -> DType | None:
    """The float dtype that a quantized operand stands in for, or None where its integers are meant."""
    variable = spec_of(record, slot).type
    others = [
        kind
        for other, kind in enumerate(call.inputs)
        if other != slot and kind is not None and spec_of(record, other).type == variable
    ]
    if others:
        return next((kind.dtype for kind in others if kind.quant is None and kind.dtype.kind == "float"), None)
    wanted = call.wanted[0] if call.wanted else None
    if wanted is None:
        return F32
    return wanted.dtype if wanted.dtype.kind == "float" else None


def accumulated(call: Call) -> tuple[DType, DType]:
    """The accumulator and output dtypes of a reduction or contraction with an ``acc`` parameter."""
    dtype = call.dtype(0)
    given: tuple[DType, ...] | None = call.params.get("acc")
    if given is None:
        return dtype.compute if dtype.kind == "float" else dtype, dtype
    if not 1 <= len(given) <= 2:
        raise parameter_error("acc", "'acc' is an accumulator dtype, or that and an output dtype")
    accumulator = given[0]
    if (accumulator.kind == "float") != (dtype.kind == "float") or accumulator.kind == "bool" or accumulator.values:
        raise parameter_error("acc", f"{dtype.name} values cannot be summed in {accumulator.name}")
    output = given[1] if len(given) == 2 else dtype if dtype.kind == "float" else accumulator
    if (output.kind == "float") != (accumulator.kind == "float") or output.kind == "bool" or output.values:
        raise parameter_error("acc", f"a sum in {accumulator.name} cannot become {output.name}")
    return accumulator, output
