"""Runs single ops on a Vulkan device: the backend of a simulator that computes on such a device."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from threading import local
from typing import Any, NoReturn

import numpy as np

from openinfer.device import Device
from openinfer.dtypes import Array, Bytes, DType, pack, unpack
from openinfer.errors import Code
from openinfer.loops.dim import is_symbolic
from openinfer.ops import Call, OpError, OpRecord, ReferenceKernel, TensorType
from openinfer.ops.lower.kernel import QuantizationInput
from openinfer.synth.devices.description import DeviceArch, DeviceSpec, arch_of
from openinfer.synth.run.build import shader_compiler
from openinfer.synth.run.node_device import NodeDevice, NoResultError
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.node_kernel import NodeProgram
from openinfer.synth.targets.simt.machine import simt_machine
from openinfer.synth.targets.simt.require import lacking
from openinfer.synth.targets.vulkan.node_code import CallWriter, NodeCode, host_code
from openinfer.synth.targets.vulkan_target import vulkan_target
from openinfer.synth.varying import GeneralCall, VaryingExtents

_REACH = 1 << 32
"""Memory offsets have 32 bits."""
_ADVICE = "choose another dtype or op there; or correct the device file (a missing key means: ask the driver)"


def backend_for(device: object) -> "NodeBackend | None":
    """The backend for a device; None unless it is a Vulkan device."""
    if not isinstance(device, Device | DeviceSpec | DeviceArch | str):
        return None
    arch = arch_of(device)
    if arch.api != "vulkan":
        return None
    shader_compiler()  # fail first if this machine has no shader compiler
    return NodeBackend(arch)


@cache
def _device() -> NodeDevice:
    """The device of this process, opened on first use."""
    return NodeDevice(*host_code())


class NodeBackend:
    """Compiles op calls for a described device and runs them on the one in this machine."""

    def __init__(self, arch: DeviceArch) -> None:
        self._arch = arch
        machine = replace(simt_machine(arch), shared_rows=None)
        self._writer = CallWriter(machine, Numerics.of(arch), vulkan_target(arch).structures)
        self._device = _device()
        self._clock = _ThreadClock()
        self._varying = VaryingExtents()
        self._written: dict[Any, NodeCode] = {}
        self.is_flushing = self._writer.numerics.subnormals == "flushed"

    def kernel(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> "NodeOnDevice":
        """A complete call as a kernel for the device; ``OpError`` (E805) if the device lacks a feature the op needs."""
        general = self._varying.general(record, call, stored) or GeneralCall(call, {})
        code = self._code(record, general.call, stored)
        for what in lacking(self._arch, code.needs):
            raise OpError(Code.MISSING_FEATURE, f"'{record.name}' {what}", None, _ADVICE)
        program = code.at(general.sizes)
        largest = max(program.nbytes, default=0)
        if largest >= _REACH:
            message = f"a tensor of '{record.name}' takes {largest:,} bytes, and a kernel can address {_REACH:,}"
            raise OpError(Code.NOT_SYNTHESIZED, message, None, "reduce the sizes")
        return NodeOnDevice(self._device, self._clock, code, program, ReferenceKernel(record, call, stored))

    def _code(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> NodeCode:
        """The code of a call. A call with dynamic sizes is compiled once for all their values."""
        if not _is_general(call):
            return self._writer.code(record, call, stored)
        key = record.name, _known(call), *stored
        found = self._written.get(key)
        if found is None:
            found = self._written[key] = self._writer.code(record, call, stored)
        return found

    def prepare(self, kernels: Sequence[Callable[..., object]]) -> Sequence[OpError | None]:
        """Compile the shaders of several kernels together; returns the device's error for each kernel, or None."""
        own = [one for one in kernels if isinstance(one, NodeOnDevice)]
        return self._device.prepare([one.program for one in own])

    def taken(self) -> int | None:
        """Nanoseconds that this thread's last kernel took on the device, if the device has a clock."""
        return self._clock.taken


class _ThreadClock(local):
    """The time of each thread's last kernel."""

    taken: int | None = None


class NodeOnDevice:
    """One op call as a kernel of a device. Copies operands to the device and results back."""

    def __init__(
        self,
        device: NodeDevice,
        clock: _ThreadClock,
        code: NodeCode,
        program: NodeProgram,
        reference: ReferenceKernel,
    ) -> None:
        self.code = code
        self.program = program
        self.call = reference.call
        self._device = device
        self._clock = clock
        self._reference = reference
        self._constants = [_parameters(self.call, one) for one in code.quantization]

    def __call__(self, arrays: Sequence[Array | None], /) -> tuple[Array, ...]:
        """The results of the op, in stored form."""
        code = self.code
        given = [array for array in arrays if array is not None]
        stored = [_stored(array, buffer.dtype) for array, buffer in zip(given, code.buffers, strict=False)]
        places = range(code.inputs, code.inputs + code.outputs)
        try:
            found, self._clock.taken = self._device.run(self.program, [*stored, *self._constants], places)
        except NoResultError:
            self._refuse(arrays)
        return tuple(_loaded(data, kind) for data, kind in zip(found, self.call.outputs, strict=True))

    def _refuse(self, arrays: Sequence[Array | None]) -> NoReturn:
        """Raise the reason: the device only reports that there is no result, the reference kernel knows why."""
        self._reference(arrays)
        raise OpError(Code.BAD_VALUE, "the device refuses a value that the CPU computes")


def _is_general(call: Call) -> bool:
    return any(is_symbolic(extent) for one in call.inputs if one is not None for extent in one.shape)


def _known(call: Call) -> tuple[object, ...]:
    """Everything that the code of a call depends on, including the bounds of extents."""
    kinds = (*call.inputs, *call.wanted, *call.outputs)
    types = (
        None if one is None else (one.dtype.name, *((int(extent), repr(extent)) for extent in one.shape))
        for one in kinds
    )
    return repr(sorted(call.params.items())), *types


def _stored(array: Array, dtype: DType) -> Bytes:
    """An array as the bytes of a model file."""
    if dtype.is_packed:
        return pack(np.ascontiguousarray(array), dtype)
    return np.ascontiguousarray(array, dtype.array).reshape(-1).view(np.uint8)


def _loaded(data: Bytes, kind: TensorType) -> Array:
    if kind.dtype.is_packed:
        return unpack(data, kind.dtype, 0, kind.size).reshape(kind.shape)
    return np.asarray(data.view(kind.dtype.array)).reshape(kind.shape)


def _parameters(call: Call, asked: QuantizationInput) -> Bytes:
    """The scale, zero point or offset that the model stores with a quantized operand."""
    kind = call.inputs[asked.slot]
    assert kind is not None
    assert kind.quant is not None
    numbers = {"scale": kind.quant.scale, "zero": kind.quant.zero_point, "offset": kind.quant.offset}[asked.part]
    assert numbers is not None
    return np.ascontiguousarray(numbers.values.astype(asked.buffer.dtype.array)).reshape(-1).view(np.uint8)
