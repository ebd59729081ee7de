"""From one call of an op to its kernel."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import Builder, Position, cast, index
from openinfer.loops.ir import Buffer, Const, Kernel, Load, Scalar, Space
from openinfer.oinf.quant import QuantParams
from openinfer.ops.lower.operand import LOWERINGS, Dequantize, KernelInput, Quantization
from openinfer.ops.record import Call, InputSpec, OpRecord, OutputSpec
from openinfer.ops.types import F32

I32 = DTYPES["i32"]


@dataclass(frozen=True)
class QuantizationInput:
    """An input that a quantized operand brings: its scales, or its zero points."""

    slot: int
    """Which of the op's operands is quantized."""
    part: Literal["scale", "zero"]
    buffer: Buffer


@dataclass(frozen=True)
class LoweredCall:
    """The kernel of a call; after the inputs of the op it has those for quantized operands."""

    kernel: Kernel
    quantization: tuple[QuantizationInput, ...]


def kernel_of(record: OpRecord, call: Call, stored: Sequence[DType | None]) -> Kernel:
    """The kernel of a complete call; ``stored`` are the dtypes its operands really have."""
    return lowered_call(record, call, stored).kernel


def lowered_call(record: OpRecord, call: Call, stored: Sequence[DType | None]) -> LoweredCall:
    """The same, with what its further inputs are."""
    inputs: list[Buffer] = []
    extra: list[QuantizationInput] = []
    operands: list[KernelInput | None] = []
    for slot, (kind, own) in enumerate(zip(call.inputs, stored, strict=True)):
        if kind is None or own is None:
            operands.append(None)
            continue
        buffer = Buffer(_called(record.signature.inputs, slot), own, kind.shape)
        inputs.append(buffer)
        dequantize = None
        if kind.quant is not None and kind.dtype is not own:
            dequantize = _dequantizing(kind.quant, slot, extra)
        quantization = None if kind.quant is None else _parameters(kind.quant, slot, extra)
        operands.append(KernelInput(buffer, kind.dtype, dequantize, quantization))
    taken = {buffer.name for buffer in inputs}
    names = [_called(record.signature.outputs, slot) for slot in range(len(call.outputs))]
    outputs = tuple(
        Buffer(f"{name}_out" if name in taken else name, kind.dtype, kind.shape)
        for name, kind in zip(names, call.outputs, strict=True)
    )
    builder = Builder()
    LOWERINGS[record.name](call, builder, tuple(operands), outputs)
    doc = record.doc.split("\n\n")[0].replace("\n", " ")
    kernel = Kernel(
        record.name, (*inputs, *(one.buffer for one in extra)), outputs, builder.body, (doc, *builder.notes)
    )
    return LoweredCall(kernel, tuple(extra))


def _called(specs: Sequence[InputSpec | OutputSpec], slot: int) -> str:
    """What the op's signature calls an operand; slots past the last belong to the variadic one."""
    spec = specs[min(slot, len(specs) - 1)]
    return f"{spec.name}_{slot - len(specs) + 1}" if spec.variadic else spec.name


def _input(slot: int, part: Literal["scale", "zero"], dtype: DType, quant: QuantParams) -> QuantizationInput:
    return QuantizationInput(slot, part, Buffer(f"{part}{slot}", dtype, (len(quant.scale.values),), Space.WEIGHTS))


def _dequantizing(quant: QuantParams, slot: int, extra: list[QuantizationInput]) -> Dequantize:
    """``(stored - zero_point) * scale`` in f32, in the simulator's order."""
    axis = quant.scale.axis
    extra.append(scales := _input(slot, "scale", F32, quant))
    zeros: QuantizationInput | None = None
    if quant.zero_point is not None:
        extra.append(zeros := _input(slot, "zero", F32, quant))

    def real(value: Scalar, where: tuple[Position, ...]) -> Scalar:
        channel = Const(0, index(0).dtype) if axis is None else index(where[axis])
        number = cast(value, F32)
        if zeros is not None:
            number = number - Load(zeros.buffer, (channel,))
        return number * Load(scales.buffer, (channel,))

    return real


def _parameters(quant: QuantParams, slot: int, extra: list[QuantizationInput]) -> Quantization:
    """Scales and zero points as they are stored: they become inputs when a lowering asks for them."""
    axis = quant.scale.axis

    def parameters(where: tuple[Position, ...]) -> tuple[Scalar, Scalar | None]:
        channel = (index(0) if axis is None else index(where[axis]),)
        extra.append(scales := _input(slot, "scale", F32, quant))
        if quant.zero_point is None:
            return Load(scales.buffer, channel), None
        extra.append(zeros := _input(slot, "zero", I32, quant))
        return Load(scales.buffer, channel), Load(zeros.buffer, channel)

    return parameters
