"""Flat kernels of slow functions: threads with several chunks, and nests over contiguous elements as one loop."""

from dataclasses import replace

import numpy as np
import pytest
from tests.synth.test_simt_schedule import F32, MACHINE, checked, forms

from openinfer.dtypes import DTYPES, INDEX
from openinfer.loops.build import Builder, cast, load, math
from openinfer.loops.ir import Buffer, Kernel, LoopKind
from openinfer.ops import OPS, Call, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.simt.collapsed import with_collapsed_loops


@pytest.mark.parametrize("length", [4])
@pytest.mark.parametrize("rows", [1, 16, 37, 111])
@pytest.mark.parametrize(("op", "count"), [("neg", 1), ("exp", 1), ("tanh", 2), ("sigmoid", 2), ("gelu", 4)])
def test_threads_of_slow_functions_load_several_chunks_first(op: str, count: int, rows: int, length: int) -> None:
    x = (np.arange(rows * length).reshape(rows, length) % 13 - 6).astype(np.float32)
    machine = replace(MACHINE, units=1, busy=4)
    record = OPS[op]
    call = infer(record, Call((TensorType(F32, x.shape),), complete(record, {})))
    found = checked(kernel_of(record, call, (F32,)), [x], machine)
    most = rows * length // 4 // machine.busy
    several = max(one for one in (1, 2, 4) if one <= min(count, max(most, 1)))
    wanted = f"flat: {several} times 4 elements a thread" if several > 1 else "flat: 4 elements a thread"
    assert [one.form for one in found.launches] == [wanted]


def test_contiguous_elements_of_a_slow_function_have_one_loop() -> None:
    x = (np.arange(6 * 5 * 12).reshape(6, 5, 12) % 13 - 6).astype(np.float32)
    record = OPS["tanh"]
    call = infer(record, Call((TensorType(F32, x.shape),), complete(record, {})))
    found = checked(kernel_of(record, call, (F32,)), [x], MACHINE)
    assert forms(found) == ["flat"]
    assert [one.shape for one in found.launches[0].kernel.inputs] == [(360,)]


@pytest.mark.parametrize("op", ["div", "pow"])
def test_elements_beside_a_row_keep_their_loops(op: str) -> None:
    x = (np.arange(6 * 8).reshape(6, 8) % 13 + 1).astype(np.float32)
    y = np.linspace(0.5, 2, 8, dtype=np.float32)
    record = OPS[op]
    call = infer(record, Call((TensorType(F32, x.shape), TensorType(F32, y.shape)), complete(record, {})))
    found = checked(kernel_of(record, call, (F32, F32)), [x, y], MACHINE)
    assert {one.shape for one in found.launches[0].kernel.inputs} == {(6, 8), (8,)}


def test_elements_that_another_variable_moves_keep_their_loops() -> None:
    x, y, steps = Buffer("x", F32, (4, 8)), Buffer("y", F32, (4, 8)), Buffer("steps", DTYPES["i32"], (4, 8))
    builder = Builder()
    with builder.loop(4, LoopKind.PARALLEL) as i, builder.loop(8, LoopKind.PARALLEL) as j:
        step = builder.let(cast(load(steps, i, j), INDEX))
        builder.store(y, (i, j), math("tanh", load(x, i, j + step)))
    kernel = Kernel("k", (x, steps), (y,), builder.body)
    assert with_collapsed_loops(kernel) is kernel
