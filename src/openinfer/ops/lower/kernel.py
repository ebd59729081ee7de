"""From one call of an op to its kernel."""

from collections.abc import Sequence

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import Builder, Position, cast, index
from openinfer.loops.ir import Buffer, Const, Kernel, Load, Scalar, Space
from openinfer.oinf.quant import QuantParams
from openinfer.ops.lower.operand import LOWERINGS, Dequantize, Operand, Quantization
from openinfer.ops.record import Call, InputSpec, OpRecord, OutputSpec
from openinfer.ops.types import F32

I32 = DTYPES["i32"]


def kernel_of(
    record: OpRecord,
    call: Call,
    stored: Sequence[DType | None],
    spaces: Sequence[Space] | None = None,
) -> Kernel:
    """The kernel of a complete call; ``stored`` are the dtypes its operands really have.

    A quantized operand brings its scales and zero points as further inputs, after the op's own.
    """
    inputs: list[Buffer] = []
    extra: list[Buffer] = []
    operands: list[Operand | None] = []
    for slot, (kind, own) in enumerate(zip(call.inputs, stored, strict=True)):
        if kind is None or own is None:
            operands.append(None)
            continue
        space = spaces[slot] if spaces is not None else Space.ARENA
        buffer = Buffer(_called(record.signature.inputs, slot), own, kind.shape, space)
        inputs.append(buffer)
        dequantize = None
        if kind.quant is not None and kind.dtype is not own:
            dequantize = _dequantizing(kind.quant, slot, extra)
        quantization = None if kind.quant is None else _parameters(kind.quant, slot, extra)
        operands.append(Operand(buffer, kind.dtype, dequantize, quantization))
    taken = {buffer.name for buffer in inputs}
    names = [_called(record.signature.outputs, slot) for slot in range(len(call.outputs))]
    outputs = tuple(
        Buffer(f"{name}_out" if name in taken else name, kind.dtype, kind.shape)
        for name, kind in zip(names, call.outputs, strict=True)
    )
    builder = Builder()
    LOWERINGS[record.name](call, builder, tuple(operands), outputs)
    return Kernel(
        record.name,
        (*inputs, *extra),
        outputs,
        builder.body,
        (record.doc.split("\n\n")[0].replace("\n", " "),),
    )


def _called(specs: Sequence[InputSpec | OutputSpec], slot: int) -> str:
    """What the op's signature calls an operand; slots past the last belong to the variadic one."""
    spec = specs[min(slot, len(specs) - 1)]
    return f"{spec.name}_{slot - len(specs) + 1}" if spec.variadic else spec.name


def _dequantizing(quant: QuantParams, slot: int, extra: list[Buffer]) -> Dequantize:
    """``(stored - zero_point) * scale`` in f32, in the simulator's order."""
    axis, count = quant.scale.axis, len(quant.scale.values)
    scales = Buffer(f"scale{slot}", F32, (count,), Space.WEIGHTS)
    extra.append(scales)
    zeros: Buffer | None = None
    if quant.zero_point is not None:
        zeros = Buffer(f"zero{slot}", F32, (count,), Space.WEIGHTS)
        extra.append(zeros)

    def real(value: Scalar, where: tuple[Position, ...]) -> Scalar:
        channel = Const(0, index(0).dtype) if axis is None else index(where[axis])
        number = cast(value, F32)
        if zeros is not None:
            number = number - Load(zeros, (channel,))
        return number * Load(scales, (channel,))

    return real


def _parameters(quant: QuantParams, slot: int, extra: list[Buffer]) -> Quantization:
    """Scales and zero points as they are stored: they become inputs when a lowering asks for them."""
    axis, shape = quant.scale.axis, (len(quant.scale.values),)

    def parameters(where: tuple[Position, ...]) -> tuple[Scalar, Scalar | None]:
        channel = (index(0) if axis is None else index(where[axis]),)
        scales = Buffer(f"scale{slot}", F32, shape, Space.WEIGHTS)
        extra.append(scales)
        if quant.zero_point is None:
            return Load(scales, channel), None
        zeros = Buffer(f"zero{slot}", I32, shape, Space.WEIGHTS)
        extra.append(zeros)
        return Load(scales, channel), Load(zeros, channel)

    return parameters
