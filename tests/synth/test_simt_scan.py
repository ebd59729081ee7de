"""Running totals in launches: teams of threads for rows and columns, three launches for a long row."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.everything import some

from openinfer.dtypes import DTYPES, Array, DType
from openinfer.ir.expr import Ref
from openinfer.loops.build import Builder, cast, load
from openinfer.loops.dim import Dim
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import (
    ACCUMULATOR,
    Axis,
    Buffer,
    Kernel,
    LoopKind,
    Result,
    ScalarVar,
    Scan,
    WideLoad,
    WideStore,
    walk,
)
from openinfer.loops.verify import verify
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SimtMachine, simt_machine
from openinfer.synth.targets.simt.schedule import scheduled

F32, BF16, F64, I8, I32, I64 = (DTYPES[name] for name in ("f32", "bf16", "f64", "i8", "i32", "i64"))
MACHINE = SimtMachine(group=32, subgroup=8, units=2, least_row=8)
WITHOUT_SUBGROUPS = SimtMachine(group=16, units=2, least_row=8)
FEW_GROUPS = SimtMachine(group=16, subgroup=4, units=2, least_row=8, most_groups=2)
MACHINES = [MACHINE, WITHOUT_SUBGROUPS, FEW_GROUPS]
SHAPES = [(8, 8), (40, 12), (300, 9), (100, 33), (3, 33, 16), (2, 70, 64)]


def running(shape: tuple[int, ...], axis: int, dtype: DType, total: DType, op: Any = "add", **ways: bool) -> Kernel:
    """Running totals along an axis."""
    x, y = Buffer("x", dtype, shape), Buffer("y", total, shape)
    builder = Builder()
    kept = [extent for place, extent in enumerate(shape) if place != axis]
    with builder.loops(kept, LoopKind.PARALLEL) as outer:
        along = Axis(builder.fresh("i"), shape[axis])
        where = [*outer]
        where.insert(axis, along.index)
        acc = ScalarVar(ACCUMULATOR, total)
        out = Result(y, tuple(where), cast(acc, y.dtype.compute))
        builder.add(Scan(along, op, total, cast(load(x, *where), total), out, **ways))
    return Kernel("k", (x,), (y,), builder.body)


def values(dtype: DType, *shape: int) -> Array:
    """Small integers, whose sums are exact in every order."""
    return ((np.arange(np.prod(shape, dtype=int)) * 7919 % 1013) % 5 - 2).astype(dtype.array).reshape(shape)


def right(kernel: Kernel, machine: SimtMachine, array: Array, sizes: Mapping[str, int] | None = None) -> Launches:
    """The launches of a kernel, which compute what it does, bit for bit, without races."""
    found = scheduled(kernel, machine)
    assert [verify(launch.kernel) for launch in found.launches] == [[] for _ in found.launches]
    (one,), (other,) = launched(found, [array], sizes), interpret(kernel, [array], sizes)
    assert one.tobytes() == other.tobytes()
    return found


def forms(found: Launches) -> list[str]:
    return [launch.form.partition(":")[0] for launch in found.launches]


@pytest.mark.parametrize(("length", "machine"), some(product([8, 9, 31, 64, 130, 515], MACHINES), 4))
def test_rows_of_every_length(length: int, machine: SimtMachine) -> None:
    for ways in ({}, {"is_exclusive": True}, {"is_reversed": True}, {"is_exclusive": True, "is_reversed": True}):
        found = right(running((5, length), 1, I32, I32, **ways), machine, values(I32, 5, length))
        assert set(forms(found)) <= {"scan", "rows"}
        assert forms(found)[-1] == "scan"


@pytest.mark.parametrize(("shape", "machine"), some(product(SHAPES, MACHINES), 4))
def test_columns_are_beside_each_other(shape: tuple[int, ...], machine: SimtMachine) -> None:
    axis = len(shape) - 2
    for ways in ({}, {"is_exclusive": True, "is_reversed": True}):
        found = right(running(shape, axis, I32, I32, **ways), machine, values(I32, *shape))
        assert "columns" in found.launches[-1].form


@pytest.mark.parametrize(
    ("dtype", "total", "op"),
    [(F32, F32, "add"), (BF16, F32, "add"), (I8, I32, "add"), (I64, I64, "mul"), (F32, F64, "mul"), (I8, I64, "add")],
)
def test_totals_of_every_type(dtype: DType, total: DType, op: str) -> None:
    """Products, too: of floats, 0 times a product that is too large is 0, and 0 times infinity is not a number."""
    for shape, axis in (((3, 200), 1), ((90, 16), 0)):
        array = values(dtype, *shape)
        if op == "mul":
            array = np.where(array == 0, 1, array).astype(dtype.array)
        if total is F64:
            array[:2], array[0, 10], array[-1, 9] = 1e38, 0, np.inf
        for machine in some(MACHINES, 2):
            right(running(shape, axis, dtype, total, op), machine, array)


def test_accesses_are_wide_in_rows() -> None:
    found = scheduled(running((5, 1024), 1, F32, F32, is_reversed=True), MACHINE)
    (launch,) = found.launches
    assert {len(one.variables) for one in walk(launch.kernel.body) if isinstance(one, WideLoad)} == {4}
    assert {len(one.values) for one in walk(launch.kernel.body) if isinstance(one, WideStore)} == {4}


@pytest.mark.parametrize(("length", "is_reversed"), some([(16389, True), (16384, False)], 2))
def test_a_long_row_is_scanned_in_three_launches(length: int, *, is_reversed: bool) -> None:
    machine = SimtMachine(group=32, subgroup=8, units=8)
    found = right(running((length,), 0, I32, I32, is_reversed=is_reversed), machine, values(I32, length))
    assert forms(found) == ["rows", "scan", "scan", *(["scan"] if length % 2 else [])]


def test_few_long_columns_are_scanned_in_three_launches() -> None:
    machine = SimtMachine(group=32, subgroup=8, units=16, least_row=8)
    found = right(running((523, 8), 0, I32, I32), machine, values(I32, 523, 8))
    assert len(found.launches) == 4
    assert "columns" in found.launches[-1].form


def test_sums_of_many_stretches_are_added_in_blocks() -> None:
    """One total for all would lose small terms: an error bound grows with the logarithm of the length."""
    machine = SimtMachine(group=8, subgroup=4, units=1, kept_elements=1, least_row=8)
    length = Dim(2400, Ref("T"))
    for shape, axis in (((1, length), 1), ((length, 8), 0)):
        array = np.ones(shape, np.float32)
        array.flat[: array.shape[1 - axis]] = 2**28  # Eight more than that is the same number in f32.
        found = scheduled(running(shape, axis, F32, F32), machine)
        assert forms(found) == ["scan"]
        (result,) = launched(found, [array], {"T": 2400})
        assert (result[-1, -1] if axis == 1 else result[-1].min()) > 2**28 + 2000


@pytest.mark.parametrize("machine", MACHINES, ids=["subgroups", "without", "few groups"])
def test_dynamic_rows_and_columns(machine: SimtMachine) -> None:
    rows, length = Dim(9, Ref("R")), Dim(150, Ref("T"))
    for kernel, shape in (
        (running((rows, length), 1, I32, I32), ("R", "T")),
        (running((rows, length), 1, I32, I32, is_exclusive=True, is_reversed=True), ("R", "T")),
        (running((rows, length, 16), 1, I32, I32, is_reversed=True), ("R", "T", 16)),
        (running((length, rows), 0, I32, I32), ("T", "R")),
    ):
        for count, extent in ((3, 130), (1, 1), (3, 0), (0, 5)):
            sizes = {"R": count, "T": extent}
            extents = [sizes[one] if isinstance(one, str) else one for one in shape]
            right(kernel, machine, values(I32, *extents), sizes)


def test_rows_of_a_gpu() -> None:
    """Subgroups of 32, teams of up to 512."""
    machine = simt_machine(DeviceArch.named("h200"))
    for shape, axis, ways in (((1, 4096), 1, {}), ((2, 9000), 1, {"is_exclusive": True}), ((300, 16), 0, {})):
        right(running(shape, axis, I32, I32, **ways), machine, values(I32, *shape))


def test_short_rows_are_threads() -> None:
    assert forms(right(running((70, 5), 1, I32, I32), MACHINE, values(I32, 70, 5))) == ["threads"]


@pytest.mark.parametrize("length", [5, 40])
def test_scans_beside_each_other_have_names_of_their_own(length: int) -> None:
    x, y, z = (Buffer(name, I32, (length,)) for name in "xyz")
    builder, acc = Builder(), ScalarVar(ACCUMULATOR, I32)
    for out in (y, z):
        along = Axis(builder.fresh("i"), length)
        builder.add(Scan(along, "add", I32, load(x, along.index), Result(out, (along.index,), acc)))
    found = scheduled(Kernel("k", (x,), (y, z), builder.body), MACHINE)
    assert [verify(launch.kernel) for launch in found.launches] == [[] for _ in found.launches]
    for one in launched(found, [np.ones(length, np.int32)]):
        assert one.tolist() == [*range(1, length + 1)]
