"""Scheduled kernels in C on arrays of f32, with guards behind every memory."""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.synth.flags import UNDEFINED
from tests.synth.in_c import Prepared, compiled, in_parts, is_in_parts, parts_scratch

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.ir import Kernel
from openinfer.ops import OPS, Call, Case, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cstyle.statements import Printed

F32 = DTYPES["f32"]


def kernel_for(name: str, *shapes: tuple[int, ...], dtype: DType = F32, **params: Any) -> Kernel:
    record = OPS[name]
    types = tuple(TensorType(dtype, shape) for shape in shapes)
    call = infer(record, Call(types, complete(record, params)))
    return kernel_of(record, call, [dtype] * len(shapes))


def run(
    kernels: Sequence[tuple[Kernel, Sequence[Any], tuple[int, ...]]],
    folder: Path,
    target: CpuMachine,
    level: str = "-O0",
) -> list[Any]:
    """The f32 results of kernels on arrays, with guards behind every memory."""
    dummy = Prepared(OPS["linear"], Case((), ()), Call(()), printed(kernels[0][0], "none"), (), (), ())
    prepared = [replace(dummy, code=_code(kernel, f"case{number}")) for number, (kernel, _, _) in enumerate(kernels)]
    library = compiled(prepared, folder, (level, *UNDEFINED, *target.flags))
    found = []
    for number, (kernel, arrays, shape) in enumerate(kernels):
        count = int(np.prod(shape))
        result = np.full(count + 16, 7.5, np.float32)
        own = parts_scratch(kernel) if is_in_parts(kernel) else kernel.scratch
        scratch = [np.full(int(np.prod(buffer.shape)) + 16, np.nan, np.float32) for buffer in own]
        memory = [*(np.array(array, order="C") for array in arrays), result, *scratch]
        getattr(library, f"case{number}")(*(ctypes.c_void_p(one.ctypes.data) for one in memory))
        assert (result[count:] == 7.5).all()
        assert all(np.isnan(one[-16:]).all() for one in scratch)
        found.append(result[:count].reshape(shape))
    return found


def _code(kernel: Kernel, name: str) -> Printed:
    return in_parts(kernel, name) if is_in_parts(kernel) else printed(kernel, name)
