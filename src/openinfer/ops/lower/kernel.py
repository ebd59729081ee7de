"""From one call of an op to its kernel."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import Builder, Position, cast, index
from openinfer.loops.ir import Binary, Buffer, Const, Kernel, Load, Math, Scalar, Space
from openinfer.loops.rewrite import changed_statements
from openinfer.oinf.quant import QuantParams, group_shape
from openinfer.ops.lower.operand import LOWERINGS, Dequantize, ElementQuantization, Groups, KernelInput
from openinfer.ops.record import Call, InputSpec, OpRecord, OutputSpec
from openinfer.ops.types import F32

I32 = DTYPES["i32"]
QuantizationPart = Literal["scale", "zero", "offset"]


@dataclass(frozen=True)
class QuantizationInput:
    """An input that a quantized operand brings: its scales, its zero points or its offsets."""

    slot: int
    """Which of the op's operands is quantized."""
    part: QuantizationPart
    buffer: Buffer


@dataclass(frozen=True)
class LoweredCall:
    """The kernel of a call; after the inputs of the op it has those for quantized operands."""

    kernel: Kernel
    quantization: tuple[QuantizationInput, ...]


def kernel_of(
    record: OpRecord, call: Call, stored: Sequence[DType | None], short: Collection[tuple[str, str]] = ()
) -> Kernel:
    """The kernel of a complete call; ``stored`` are the dtypes its operands really have.

    ``short`` are the functions that a target has for results of few bits, by name and the dtype of the result.
    """
    return lowered_call(record, call, stored, short).kernel


def lowered_call(
    record: OpRecord, call: Call, stored: Sequence[DType | None], short: Collection[tuple[str, str]] = ()
) -> LoweredCall:
    """The same, with what its further inputs are."""
    inputs: list[Buffer] = []
    extra: list[QuantizationInput] = []
    operands: list[KernelInput | None] = []
    for slot, (kind, own) in enumerate(zip(call.inputs, stored, strict=True)):
        if kind is None or own is None:
            operands.append(None)
            continue
        name, stem = _called(record.signature.inputs, slot)
        buffer = Buffer(name, own, kind.shape, stem=stem)
        inputs.append(buffer)
        dequantize, groups = None, None
        if kind.quant is not None and kind.dtype is not own:
            parameters = _Parameters(kind.quant, kind.shape, slot, extra, F32)
            dequantize, groups = parameters.dequantize, parameters.groups
        quantization = None if kind.quant is None else _Parameters(kind.quant, kind.shape, slot, extra, I32).stored
        operands.append(KernelInput(buffer, kind.dtype, dequantize, quantization, groups))
    taken = {buffer.name for buffer in inputs}
    names = [_called(record.signature.outputs, slot) for slot in range(len(call.outputs))]
    outputs = tuple(
        Buffer(f"{name}_out", kind.dtype, kind.shape)
        if name in taken
        else Buffer(name, kind.dtype, kind.shape, stem=stem)
        for (name, stem), kind in zip(names, call.outputs, strict=True)
    )
    builder = Builder(short=short)
    LOWERINGS[record.name](call, builder, tuple(operands), outputs)
    doc = builder.summary or record.doc.split("\n\n")[0].replace("\n", " ")
    body = builder.body
    if record.tolerance.kind == "ulp":
        body = changed_statements(body, partial(_about, outputs[0].dtype))
    kernel = Kernel(record.name, (*inputs, *(one.buffer for one in extra)), outputs, body, (doc, *builder.notes))
    return LoweredCall(kernel, tuple(extra))


def _about(result: DType, value: Scalar) -> Scalar | None:
    """A part of a result whose last bits are not all right: nor need all bits of a quotient be, nor of a function."""
    match value:
        case Binary("div", left, right) if value.dtype is F32 and result.kind == "float":
            return Binary("div", left, right, about=result)
        case Math(function, args) if value.dtype is F32 and result.is_small_float:
            return Math(function, args, about=result)
        case _:
            return None


def _called(specs: Sequence[InputSpec | OutputSpec], slot: int) -> tuple[str, str]:
    """What the op's signature calls an operand, and its stem if it has a number: slots past the last are variadic."""
    spec = specs[min(slot, len(specs) - 1)]
    return (f"{spec.name}_{slot - len(specs) + 1}", spec.name) if spec.variadic else (spec.name, "")


class _Parameters:
    """What the model stores beside the integers of one operand: inputs of the kernel from when they are asked for."""

    def __init__(
        self, quant: QuantParams, shape: tuple[int, ...], slot: int, extra: list[QuantizationInput], zeros: DType
    ) -> None:
        self._quant = quant
        self._shape = shape
        self._slot = slot
        self._extra = extra
        self._zeros = zeros
        """What zero points are read as."""

    @property
    def dequantize(self) -> Dequantize:
        """``(stored - zero_point) * scale`` or ``stored * scale + offset`` in f32, in the simulator's order."""
        inputs = self._inputs()
        return lambda value, where: self._real(value, inputs, self._place(where))

    @property
    def groups(self) -> Groups | None:
        """The same by the position of a group."""
        axis, group = self._quant.scale.axis, self._quant.scale.group
        if axis is None or group is None:
            return None
        inputs = [one for one in self._extra if one.slot == self._slot]
        return Groups(
            axis, group, lambda value, where: self._real(value, inputs, tuple(index(position) for position in where))
        )

    def stored(self, where: tuple[Position, ...]) -> ElementQuantization:
        """The numbers that belong to an element."""
        place = self._place(where)
        found: dict[str, Scalar] = {one.part: Load(one.buffer, place) for one in self._inputs()}
        return ElementQuantization(found["scale"], found.get("zero"), found.get("offset"))

    def _inputs(self) -> list[QuantizationInput]:
        quant = self._quant
        stored = quant.scale_dtype if quant.scale.group is not None else F32
        found = [self._input("scale", stored)]
        found += [self._input("zero", self._zeros)] if quant.zero_point is not None else []
        found += [self._input("offset", stored)] if quant.offset is not None else []
        self._extra += found
        return found

    def _input(self, part: QuantizationPart, dtype: DType) -> QuantizationInput:
        axis, group = self._quant.scale.axis, self._quant.scale.group
        shape: tuple[int, ...] = (len(self._quant.scale.values),)
        if axis is not None and group is not None:
            shape = group_shape(self._shape, axis, group)
        return QuantizationInput(self._slot, part, Buffer(f"{part}{self._slot}", dtype, shape, Space.WEIGHTS))

    def _place(self, where: tuple[Position, ...]) -> tuple[Scalar, ...]:
        """Where the numbers for an element are."""
        axis, group = self._quant.scale.axis, self._quant.scale.group
        if axis is None:
            return (Const(0, index(0).dtype),)
        if group is None:
            return (index(where[axis]),)
        return tuple(index(one) // group if at == axis else index(one) for at, one in enumerate(where))

    def _real(self, value: Scalar, inputs: Sequence[QuantizationInput], place: tuple[Scalar, ...]) -> Scalar:
        loaded: dict[str, Scalar] = {one.part: cast(Load(one.buffer, place), F32) for one in inputs}
        number = cast(value, F32)
        if "zero" in loaded:
            number = number - loaded["zero"]
        number = number * loaded["scale"]
        return number + loaded["offset"] if "offset" in loaded else number
