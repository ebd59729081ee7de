"""Loops in both branches of a choice: gcc 12 merges them into vectors with wrong masks, unless they stay rolled."""

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.synth.in_c import Prepared, compiled
from tests.synth.scheduled_in_c import F32, kernel_for

from openinfer.loops.build import index
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Buffer, Const, For, If, Kernel, Load, LoopKind, ScalarVar, Statement, Store
from openinfer.ops import OPS, Call, Case
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.cpu.machine import AVX512, CpuMachine, runnable
from openinfer.synth.targets.cpu.schedule import scheduled


def bordered(width: int) -> Kernel:
    """Rows of a tensor, and rows of zeros around them."""
    x, y = Buffer("x", F32, (7, width)), Buffer("y", F32, (9, width))
    row, at = ScalarVar("row"), ScalarVar("at")

    def along(store: Statement) -> tuple[Statement, ...]:
        return (For(at, index(width), (store,), LoopKind.PARALLEL),)

    copy = Store(y, (row, at), Load(x, (row - index(1), at)))
    is_inside = (row - index(1) >= index(0)) & (row - index(1) < index(7))
    body = If(is_inside, along(copy), along(Store(y, (row, at), Const(0.0, F32))))
    return Kernel("bordered", (x,), (y,), (For(row, index(9), (body,), LoopKind.PARALLEL),))


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.isa)
def test_borders_are_right_with_optimization(target: CpuMachine, tmp_path: Path) -> None:
    kernels = [bordered(width) for width in (2, 3, 4)]
    dummy = Prepared(OPS["linear"], Case((), ()), Call(()), printed(kernels[0], "none"), (), (), ())
    prepared = [replace(dummy, code=printed(one, f"case{place}")) for place, one in enumerate(kernels)]
    library = compiled(prepared, tmp_path, ("-O3", *target.flags))
    for place, kernel in enumerate(kernels):
        x = np.arange(1, 1 + kernel.inputs[0].shape[0] * kernel.inputs[0].shape[1], dtype=np.float32)
        (wanted,) = interpret(kernel, [x])
        found = np.full(wanted.size, 7.5, np.float32)
        getattr(library, f"case{place}")(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(found.ctypes.data))
        np.testing.assert_array_equal(found, np.ravel(wanted), str(kernel.inputs[0].shape))


@pytest.mark.parametrize(("columns", "stride"), [(2, 8), (8, 8), (9, 16), (20, 24)])
def test_sums_of_few_columns_have_no_gaps(columns: int, stride: int) -> None:
    """Compilers that load a whole row of sums would see memory that nothing has written."""
    kernel, _ = scheduled(kernel_for("matmul", (13, 50), (50, columns)), AVX512, frozenset())
    text = printed(kernel, "f").text
    assert f"tile, {stride});" in text
    assert f"tile[row * {stride} + column]" in text
