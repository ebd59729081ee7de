"""Rows whose chunks are aligned in memory: every element has one thread, wherever a row begins."""

from dataclasses import replace

import numpy as np
import pytest
from tests.synth.test_simt_schedule import BF16, F32, I64, MACHINE, MACHINES, U8, accesses, checked, numbers, softmax

from openinfer.dtypes import DType
from openinfer.ir.expr import Ref
from openinfer.loops.build import Builder, cast, load, pair
from openinfer.loops.dim import Dim
from openinfer.loops.ir import Buffer, Kernel, LoopKind
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SharedRows, SimtMachine
from openinfer.synth.targets.simt.schedule import scheduled

SHARED = SimtMachine(8, 4, largest_group=8, kept_elements=8, shared_rows=SharedRows(threads=8, elements=8, most=4))


def centered(kind: DType, result: DType, rows: int, length: int, shift: int = 0, step: int = 0) -> Kernel:
    """Rows of a larger array, which begin at ``shift``, each minus its smallest element."""
    x, y = Buffer("x", kind, (rows, length + step)), Buffer("y", result, (rows, length))
    builder = Builder()
    with builder.loop(rows, LoopKind.PARALLEL) as i:
        least = builder.local(100, kind.compute)
        with builder.loop(length) as j:
            builder.assign(least, pair("min", least, load(x, i, j + shift)))
        with builder.loop(length) as j:
            builder.store(y, (i, j), cast(load(x, i, j + shift) - least, result.compute))
    return Kernel("k", (x,), (y,), builder.body)


def widest(found: Launches, buffer: str) -> int:
    return max((width for name, width in accesses(found) if name == buffer), default=1)


@pytest.mark.parametrize("machine", [*MACHINES.values(), SHARED], ids=[*MACHINES, "shared"])
@pytest.mark.parametrize(("rows", "length"), [(5, 35), (3, 37), (9, 131), (5, 301)])
def test_rows_of_odd_length_are_right(rows: int, length: int, machine: SimtMachine) -> None:
    found = checked(softmax(rows, length), [numbers(F32, rows, length)], machine)
    if machine.subgroup:
        assert (widest(found, "x"), widest(found, "y")) == (4, 4)


@pytest.mark.parametrize(("kind", "result", "width"), [(BF16, BF16, 8), (U8, U8, 16), (I64, I64, 1), (BF16, F32, 4)])
@pytest.mark.parametrize(("length", "shift", "step"), [(201, 0, 0), (202, 3, 5), (203, 1, 1)])
def test_rows_of_every_size_of_element_begin_anywhere(
    kind: DType, result: DType, width: int, length: int, shift: int, step: int
) -> None:
    """Of a slice, loads are aligned or stores, but not both unless rows are as far apart in both arrays."""
    found = checked(centered(kind, result, 5, length, shift, step), [numbers(kind, 5, length + step)])
    assert max(widest(found, "x"), widest(found, "y")) == width


def test_one_row_that_begins_inside_of_an_array() -> None:
    found = checked(centered(BF16, BF16, 1, 100, shift=3, step=9), [numbers(BF16, 1, 109)])
    assert widest(found, "x") == 8


def test_a_dynamic_number_of_rows() -> None:
    count = Dim(6, Ref("T"))
    x, y = Buffer("x", F32, (count, 201)), Buffer("y", F32, (count, 201))
    builder = Builder()
    with builder.loop(count, LoopKind.PARALLEL) as i:
        total = builder.local(0, F32)
        with builder.loop(201) as j:
            builder.assign(total, total + load(x, i, j))
        with builder.loop(201) as j:
            builder.store(y, (i, j), load(x, i, j) - total)
    values = numbers(F32, 4, 201)
    for machine in (MACHINE, SHARED, replace(SHARED, most_groups=8)):
        found = scheduled(Kernel("k", (x,), (y,), builder.body), machine)
        assert (widest(found, "x"), widest(found, "y")) == (4, 4)
        assert (launched(found, [values], {"T": 4})[0] == values - values.sum(1, keepdims=True)).all()


def test_elements_beside_the_chunks_stay_in_registers() -> None:
    """Each element is loaded once and stored once: 129 of a row are in 31 chunks, and five are beside them."""
    found = checked(softmax(3, 129), [numbers(F32, 3, 129)], SHARED)
    assert accesses(found) == {("x", 4): 2, ("y", 4): 2}


def test_buffers_that_may_start_anywhere_have_no_aligned_chunks() -> None:
    machine = replace(MACHINE, unaligned=frozenset({"x", "y"}))
    assert not accesses(scheduled(softmax(3, 131), machine))


def test_rows_of_words_keep_their_chunks() -> None:
    """Chunks of 8 bytes are as fast, and begin where the row does."""
    found = checked(softmax(3, 130), [numbers(F32, 3, 130)])
    assert set(accesses(found)) == {("x", 2), ("y", 2)}


def test_nan_and_infinities_stay_in_their_row() -> None:
    values = np.ones((4, 131), np.float32)
    values[1, 0], values[2, 130] = np.nan, np.inf
    found = scheduled(centered(F32, F32, 4, 131), MACHINE)
    (made,) = launched(found, [values])
    assert [bool(np.isfinite(row).all()) for row in made] == [True, False, False, True]


def test_loops_of_other_lengths_keep_their_own_elements() -> None:
    """Rows of 203 and of 199 would have three elements beside their chunks each."""
    lengths = (203, 199)
    inputs = tuple(Buffer(f"x{length}", F32, (3, length)) for length in lengths)
    outputs = tuple(Buffer(f"y{length}", F32, (3, length)) for length in lengths)
    builder = Builder()
    with builder.loop(3, LoopKind.PARALLEL) as i:
        least = builder.local(100, F32)
        for x in inputs:
            with builder.loop(x.shape[1]) as j:
                builder.assign(least, pair("min", least, load(x, i, j)))
        for x, y in zip(inputs, outputs, strict=True):
            with builder.loop(x.shape[1]) as j:
                builder.store(y, (i, j), load(x, i, j) - least)
    arrays = [numbers(F32, 3, length) + 1 for length in lengths]
    for machine in (MACHINE, SHARED):
        checked(Kernel("k", inputs, outputs, builder.body), arrays, machine)
