"""Forms of launches: which structure gets which, and that each computes what the kernel does, at odd extents."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.everything import some
from tests.synth.in_c import call_of, cases_of

from openinfer.dtypes import DTYPES, Array, DType
from openinfer.ir.expr import Ref
from openinfer.loops.build import Builder, cast, index, load, pair, select
from openinfer.loops.dim import Dim
from openinfer.loops.expand import plain
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import (
    ACCUMULATOR,
    ORIGIN,
    RANKED,
    Axis,
    Buffer,
    Contraction,
    Kernel,
    Load,
    LoopKind,
    Order,
    Result,
    ScalarVar,
    WideLoad,
    WideStore,
    scalars,
    visit,
    walk,
)
from openinfer.loops.verify import verify
from openinfer.ops import OPS
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.schedule import scheduled

F32, BF16, U4, U8, I32, I64 = (DTYPES[name] for name in ("f32", "bf16", "u4", "u8", "i32", "i64"))
MACHINE = SimtMachine(group=8, subgroup=4)
PARALLEL = LoopKind.PARALLEL


def checked(kernel: Kernel, arrays: list[Array], machine: SimtMachine = MACHINE) -> Launches:
    """The launches of a kernel, which compute what it does; sums of floats in another order, of small integers here."""
    found = scheduled(kernel, machine)
    assert [verify(launch.kernel) for launch in found.launches] == [[] for _ in found.launches]
    wanted = interpret(kernel, arrays)
    for one, other in zip(launched(found, arrays), wanted, strict=True):
        assert one.tobytes() == other.tobytes()
    return found


def forms(found: Launches) -> list[str]:
    return [launch.form.partition(":")[0] for launch in found.launches]


def accesses(found: Launches) -> Counter[tuple[str, int]]:
    """How often so many elements of a buffer are in one access."""
    counts: Counter[tuple[str, int]] = Counter()
    for one in (one for launch in found.launches for one in walk(launch.kernel.body)):
        if isinstance(one, WideLoad):
            counts[one.buffer.name, len(one.variables)] += 1
        if isinstance(one, WideStore):
            counts[one.buffer.name, len(one.values)] += 1
    return counts


def numbers(dtype: DType, *shape: int) -> Array:
    return (np.arange(np.prod(shape, dtype=int)) % 13).astype(dtype.array).reshape(shape)


# --- flat -------------------------------------------------------------------------------------------------------------


def mapped(source: DType, result: DType, extent: int, shift: int = 0) -> Kernel:
    x, y = Buffer("x", source, (extent + shift,)), Buffer("y", result, (extent,))
    builder = Builder()
    with builder.loop(extent, PARALLEL) as i:
        builder.store(y, (i,), cast(load(x, i + shift), result.compute))
    return Kernel("k", (x,), (y,), builder.body)


@pytest.mark.parametrize("extent", some([1, 3, 4, 7, 8, 16, 33, 64, 67], 2))
@pytest.mark.parametrize(("source", "result"), [(F32, F32), (F32, BF16), (U8, F32), (U4, U8), (U8, U4), (I64, I64)])
def test_flat_launches_are_right_at_every_extent(source: DType, result: DType, extent: int) -> None:
    found = checked(mapped(source, result, extent), [numbers(source, extent)])
    least = 128 // min(source.bits, result.bits)
    assert forms(found) == ["flat"] if extent >= min(least, 16) else True


def test_a_thread_has_16_bytes_of_what_is_smallest() -> None:
    assert accesses(checked(mapped(F32, F32, 64), [numbers(F32, 64)])) == {("x", 4): 1, ("y", 4): 1}
    assert accesses(checked(mapped(F32, BF16, 64), [numbers(F32, 64)])) == {("x", 8): 1, ("y", 8): 1}


def test_what_is_not_aligned_is_loaded_one_by_one() -> None:
    kernel, arrays = mapped(F32, F32, 64, shift=1), [numbers(F32, 65)]
    assert accesses(checked(kernel, arrays)) == {("y", 4): 1}
    machine = SimtMachine(group=8, subgroup=4, unaligned=frozenset({"x", "y"}))
    assert forms(checked(mapped(F32, F32, 64), [numbers(F32, 64)], machine)) == ["threads"]


def test_rows_whose_length_divides_are_flat_whatever_is_beside_them() -> None:
    """A row by a number that memory gives, and one factor for all of it: a copy of wide accesses."""
    x, ids, scale = Buffer("x", F32, (5, 8)), Buffer("ids", I64, (3,)), Buffer("scale", F32, (3,))
    y, builder = Buffer("y", F32, (3, 8)), Builder()
    with builder.loops((3, 8), PARALLEL) as (i, j):
        row = builder.let(cast(load(ids, i), builder.fresh("i").dtype))
        builder.store(y, (i, j), load(x, row, j) * load(scale, i))
    kernel = Kernel("k", (x, ids, scale), (y,), builder.body)
    found = checked(kernel, [numbers(F32, 5, 8), np.array([4, 0, 2]), numbers(F32, 3)])
    assert accesses(found) == {("x", 4): 1, ("y", 4): 1}
    assert found.launches[0].threads == 6


def test_work_in_place_is_flat() -> None:
    y, builder = Buffer("y", F32, (64,)), Builder()
    x = Buffer("x", F32, (64,))
    for source in (x, y):
        with builder.loop(64, PARALLEL) as i:
            builder.store(y, (i,), load(source, i) + 1)
    assert forms(checked(Kernel("k", (x,), (y,), builder.body), [numbers(F32, 64)])) == ["flat", "flat"]


def test_an_element_that_is_stored_and_read_again_is_not_in_a_wide_access() -> None:
    x, y, z = (Buffer(name, F32, (8,)) for name in "xyz")
    builder = Builder()
    with builder.loop(8, PARALLEL) as i:
        builder.store(y, (i,), load(x, i) + 1)
        builder.store(z, (i,), load(y, i) * 2)
    found = checked(Kernel("k", (x,), (y, z), builder.body), [numbers(F32, 8)])
    assert accesses(found) == {("x", 4): 1, ("z", 4): 1}


def test_a_dynamic_number_of_rows_is_flat() -> None:
    length = Dim(6, Ref("T"))
    x, y = Buffer("x", F32, (length, 8)), Buffer("y", F32, (length, 8))
    builder = Builder()
    with builder.loops((length, 8), PARALLEL) as (i, j):
        builder.store(y, (i, j), load(x, i, j) + 1)
    found = scheduled(Kernel("k", (x,), (y,), builder.body), MACHINE)
    assert forms(found) == ["flat"]
    values = numbers(F32, 4, 8)
    assert (launched(found, [values], {"T": 4})[0] == values + 1).all()


# --- transposes -------------------------------------------------------------------------------------------------------


def transposed(dtype: DType, rows: int, columns: int) -> Kernel:
    """Of each of two matrices, with a number for each row and another operand beside it."""
    x, z = Buffer("x", dtype, (2, columns, rows)), Buffer("z", dtype, (rows, columns))
    y, builder = Buffer("y", dtype, (2, rows, columns)), Builder()
    with builder.loops((2, rows, columns), PARALLEL) as (b, i, j):
        value = builder.let(load(x, b, j, i))
        builder.store(y, (b, i, j), pair("max", value, load(z, i, j)))
    return Kernel("k", (x, z), (y,), builder.body)


@pytest.mark.parametrize("machine", [MACHINE, SimtMachine(8, 4, most_groups=3)], ids=["", "few groups"])
@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (9, 17), (3, 16), (24, 7)])
@pytest.mark.parametrize("dtype", some([F32, BF16, U8, I64], 2), ids=str)
def test_transposes_go_through_squares_that_a_group_shares(
    dtype: DType, rows: int, columns: int, machine: SimtMachine
) -> None:
    kernel = transposed(dtype, rows, columns)
    found = checked(kernel, [numbers(dtype, 2, columns, rows), numbers(dtype, rows, columns)], machine)
    assert forms(found) == ["tiles"]


@pytest.mark.parametrize(("rows", "columns"), [(32, 32), (48, 16), (24, 20), (32, 18), (20, 33), (18, 32)])
@pytest.mark.parametrize("dtype", [F32, BF16, U8], ids=str)
def test_elements_that_are_only_moved_are_moved_as_words(dtype: DType, rows: int, columns: int) -> None:
    """Whole accesses, with rows and columns at the ends of the last rectangles, and narrower ones that write words;
    else elements go one by one."""
    x, y, builder = Buffer("x", dtype, (columns, rows)), Buffer("y", dtype, (rows, columns)), Builder()
    with builder.loops((rows, columns), PARALLEL) as (i, j):
        builder.store(y, (i, j), load(x, j, i))
    machine = SimtMachine(32, 8, most_groups=3)
    found = checked(Kernel("k", (x,), (y,), builder.body), [numbers(dtype, columns, rows)], machine)
    is_whole = rows * dtype.bits % 128 == 0 and (dtype is F32 or columns * dtype.bits % 128 == 0)
    assert ["as words" in one.form for one in found.launches] == [is_whole]


def test_rows_that_are_too_short_for_squares_are_flat() -> None:
    kernel = transposed(F32, 64, 1)
    assert forms(checked(kernel, [numbers(F32, 2, 1, 64), numbers(F32, 64, 1)])) != ["tiles"]


# --- rows -------------------------------------------------------------------------------------------------------------

MACHINES = {"subgroups": MACHINE, "no subgroups": SimtMachine(group=8), "few groups": SimtMachine(8, 4, most_groups=2)}


def softmax(rows: int, length: int) -> Kernel:
    """Of integers: a maximum, elements that are written and read again, and a sum that is exact in any order."""
    x, y = Buffer("x", F32, (rows, length)), Buffer("y", F32, (rows, length))
    builder = Builder()
    with builder.loop(rows, PARALLEL) as i:
        top = builder.local(-np.inf, F32)
        with builder.loop(length) as j:
            value = builder.let(load(x, i, j))
            builder.assign(top, select(value > top, value, top))
        total = builder.local(0, F32)
        with builder.loop(length) as j:
            value = builder.let(load(x, i, j) - top)
            builder.store(y, (i, j), value)
            builder.assign(total, total + value)
        with builder.loop(length) as j:
            builder.store(y, (i, j), load(y, i, j) * 2 - total)
    return Kernel("k", (x,), (y,), builder.body)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize(("rows", "length"), some([(1, 33), (3, 32), (5, 64), (2, 67), (3, 300), (7, 36), (2, 999)], 2))
def test_rows_are_right_at_every_length(rows: int, length: int, machine: SimtMachine) -> None:
    found = checked(softmax(rows, length), [numbers(F32, rows, length)], machine)
    assert forms(found) == ["rows"] if machine.subgroup else True


@pytest.mark.parametrize("length", [64, 68, 132])
def test_what_stays_in_registers_is_loaded_and_stored_once(length: int) -> None:
    """Elements that a loop stores and a later one reads and stores again are stored by the later one."""
    found = checked(softmax(3, length), [numbers(F32, 3, length)])
    chunks = -(-length // 4 // 8)
    assert accesses(found) == {("x", 4): chunks, ("y", 4): chunks}


def test_how_many_threads_a_row_has() -> None:
    def team(rows: int, length: int, machine: SimtMachine = MACHINE) -> str:
        return scheduled(softmax(rows, length), machine).launches[0].form

    assert team(1, 8) == "threads"
    assert team(1000, 32) == "rows: 8 threads each, in registers"
    assert team(100_000, 32) == "rows: 8 threads each, in registers"
    assert team(100_000, 36) == "rows: 8 threads each, in registers"
    assert team(1000, 256) == "rows: 8 threads each, in registers"
    assert team(1000, 1000) == "rows: 8 threads each, partly in registers"
    assert team(1000, 1000, SimtMachine(8)) == "rows: 8 threads each"
    assert team(1000, 1000, SimtMachine(8, 4, largest_group=32)) == "rows: 32 threads each, in registers"
    assert team(2, 32) == "rows: 8 threads each, in registers"


def total(dtype: DType, shape: tuple[int, ...], axes: tuple[int, ...], op: str = "add") -> Kernel:
    x, kept = Buffer("x", dtype, shape), [axis for axis in range(len(shape)) if axis not in axes]
    y, builder = Buffer("y", dtype, tuple(shape[axis] for axis in kept)), Builder()
    with builder.loops([shape[axis] for axis in kept], PARALLEL) as outer:
        found = builder.local(0 if op != "mul" else 1, dtype.compute)
        with builder.loops([shape[axis] for axis in axes]) as inner:
            where = dict(zip((*kept, *axes), (*outer, *inner), strict=True))
            builder.assign(found, pair(op, found, load(x, *(where[axis] for axis in range(len(shape))))))
        builder.store(y, outer, found)
    return Kernel("k", (x,), (y,), builder.body)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("dtype", [F32, I64, U8, DTYPES["i16"], DTYPES["f64"]], ids=str)
@pytest.mark.parametrize("op", ["add", "max", "mul", "min"])
def test_totals_of_every_type(dtype: DType, op: str, machine: SimtMachine) -> None:
    kernel = total(dtype, (3, 70), (1,), op)
    values = (np.arange(210).reshape(3, 70) % (2 if op == "mul" else 100)).astype(dtype.array)
    assert forms(checked(kernel, [values], machine)) == ["rows"]


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 2), (0, 2), (0, 1), (0,)])
def test_totals_along_several_axes(axes: tuple[int, ...]) -> None:
    checked(total(F32, (5, 9, 12), axes), [numbers(F32, 5, 9, 12)])


@pytest.mark.parametrize(
    ("shape", "axes"), [((40, 8), (0,)), ((33, 9), (0,)), ((3, 35, 17), (1,)), ((2, 7, 5, 12), (1, 2))]
)
@pytest.mark.parametrize("op", ["add", "max"])
def test_rows_that_are_neighbours_in_memory_are_beside_each_other(
    shape: tuple[int, ...], axes: tuple[int, ...], op: str
) -> None:
    """Threads next to each other read what is next to each other; those behind the last row have it, too."""
    machine = SimtMachine(8, 4, largest_group=16)
    found = checked(total(F32, shape, axes, op), [numbers(F32, *shape)], machine)
    assert found.launches[0].form.endswith("beside each other")


def test_neighbouring_rows_stay_with_neighbouring_threads() -> None:
    """Many columns whose elements are far apart."""
    assert forms(scheduled(total(F32, (64, 100_000), (0,)), MACHINE)) == ["threads"]
    assert forms(scheduled(total(F32, (64, 3), (0,)), MACHINE)) == ["rows"]


def test_loops_that_touch_each_others_elements_are_one_threads() -> None:
    x, y = Buffer("x", F32, (2, 64)), Buffer("y", F32, (2, 64))
    builder = Builder()
    with builder.loop(2, PARALLEL) as i:
        with builder.loop(64) as j:
            builder.store(y, (i, j), load(x, i, j))
        with builder.loop(64) as j:
            builder.store(y, (i, j), load(y, i, index(63) - j))
    kernel = Kernel("k", (x,), (y,), builder.body)
    assert forms(scheduled(kernel, MACHINE)) == ["threads"]


def test_a_loop_whose_iterations_build_on_each_other_is_one_threads() -> None:
    x, y = Buffer("x", F32, (2, 64)), Buffer("y", F32, (2,))
    builder = Builder()
    with builder.loop(2, PARALLEL) as i, builder.loop(64) as j:
        builder.store(y, (i,), load(x, i, j))
    assert forms(scheduled(Kernel("k", (x,), (y,), builder.body), MACHINE)) == ["threads"]


def test_a_dynamic_row_is_a_row() -> None:
    rows, length = Dim(9, Ref("R")), Dim(80, Ref("T"))
    x, y = Buffer("x", F32, (rows, length)), Buffer("y", F32, (rows,))
    builder = Builder()
    with builder.loop(rows, PARALLEL) as i:
        found = builder.local(0, F32)
        with builder.loop(length) as j:
            builder.assign(found, found + load(x, i, j))
        builder.store(y, (i,), found)
    made = scheduled(Kernel("k", (x,), (y,), builder.body), MACHINE)
    assert forms(made) == ["rows"]
    for count, extent in ((9, 80), (5, 37), (1, 1), (3, 0)):
        values = numbers(F32, count, extent)
        assert launched(made, [values], {"R": count, "T": extent})[0].tolist() == values.sum(axis=1).tolist()


# --- contractions of few rows -----------------------------------------------------------------------------------------


def linear(rows: int, columns: int, length: int, dtype: DType, *, group: int = 0) -> Kernel:
    """A product with a matrix of rows along the sum; with groups, of numbers that have a scale for each group."""
    x, y = Buffer("x", F32, (rows, length)), Buffer("y", F32, (rows, columns))
    w, scale = Buffer("w", dtype, (columns, length)), Buffer("scale", F32, (columns, -(-length // (group or length))))
    i, j, k = (ScalarVar(name) for name in "ijk")
    value = cast(load(w, j, k), F32) * load(scale, j, k // group) if group else None
    acc = ScalarVar(ACCUMULATOR, F32)
    one = Contraction(
        y, x, w, (i, j), (rows, columns), (k,), (length,), (i, j), (i, k), (j, k), F32, acc + 1, b_value=value
    )
    return Kernel("k", (x, w, scale) if group else (x, w), (y,), (one,))


@pytest.mark.parametrize(("rows", "columns", "length"), [(1, 5, 64), (1, 3, 129), (3, 6, 40), (8, 9, 96), (9, 2, 64)])
@pytest.mark.parametrize("dtype", [F32, BF16, U8, U4], ids=str)
def test_products_of_few_rows_read_the_matrix_once(rows: int, columns: int, length: int, dtype: DType) -> None:
    kernel = linear(rows, columns, length, dtype)
    found = checked(kernel, [numbers(F32, rows, length), numbers(dtype, columns, length)])
    assert forms(found) == ["rows"]
    if rows <= 8 and length % 32 == 0:
        assert found.launches[0].threads <= 8 * columns
        assert {name for name, _ in accesses(found)} == {"x", "w"}


@pytest.mark.parametrize("dtype", [U8, U4], ids=str)
def test_scales_of_groups_are_loaded_once_for_an_access(dtype: DType) -> None:
    arrays = [numbers(F32, 2, 128), numbers(dtype, 3, 128), numbers(F32, 3, 4)]
    found = checked(linear(2, 3, 128, dtype, group=32), arrays)
    body = [one for launch in found.launches for one in walk(launch.kernel.body)]
    loads = [part for one in body for value in scalars(one) for part in visit(value) if isinstance(part, Load)]
    assert 0 < sum(part.buffer.name == "scale" for part in loads) == accesses(found)["w", 128 // dtype.bits]


# --- long loops -------------------------------------------------------------------------------------------------------

LONG = SimtMachine(group=8, subgroup=4, least_row=2, long_row=100, units=1)


@pytest.mark.parametrize("shape", [(513,), (1000,), (64, 17), (3, 400)])
@pytest.mark.parametrize("op", ["add", "max", "min"])
def test_a_long_total_is_taken_in_two_launches(shape: tuple[int, ...], op: str) -> None:
    kernel = total(F32, shape, tuple(range(len(shape))), op)
    assert forms(checked(kernel, [numbers(F32, *shape)], LONG)) == ["rows", "rows"]


def test_what_is_computed_of_a_long_total_is_flat() -> None:
    x, y = Buffer("x", F32, (1024,)), Buffer("y", F32, (1024,))
    builder = Builder()
    found = builder.local(0, F32)
    with builder.loop(1024) as i:
        builder.assign(found, found + load(x, i))
    with builder.loop(1024) as i:
        builder.store(y, (i,), load(x, i) - found)
    made = checked(Kernel("k", (x,), (y,), builder.body), [numbers(F32, 1024)], LONG)
    assert forms(made) == ["rows", "rows", "flat"]


def test_a_long_total_that_begins_with_something_is_taken_by_one_group() -> None:
    x, y = Buffer("x", F32, (1024,)), Buffer("y", F32, ())
    builder = Builder()
    found = builder.local(load(x, 5), F32)
    with builder.loop(1024) as i:
        builder.assign(found, pair("max", found, load(x, i)))
    builder.store(y, (), found)
    assert forms(checked(Kernel("k", (x,), (y,), builder.body), [numbers(F32, 1024)], LONG)) == ["rows"]


# --- contractions of many rows ----------------------------------------------------------------------------------------

SQUARE = SimtMachine(group=16, subgroup=4, least_block=4)


@pytest.mark.parametrize(("rows", "columns", "length"), [(16, 16, 16), (17, 9, 18)])
def test_products_of_many_rows_are_in_blocks(rows: int, columns: int, length: int) -> None:
    kernel = linear(rows, columns, length, BF16)
    for machine in (SQUARE, replace(SQUARE, unrolls=True)):
        found = checked(kernel, [numbers(F32, rows, length), numbers(BF16, columns, length)], machine)
        assert forms(found) == ["blocks"]


@pytest.mark.parametrize("machine", [SQUARE, SimtMachine(group=4, least_block=4, units=1)], ids=["small", "large"])
def test_products_of_many_matrices_are_in_blocks(machine: SimtMachine) -> None:
    """Rows of two indices, columns next to each other, and a factor that is computed."""
    x, w, y = Buffer("x", I32, (3, 5, 2, 7)), Buffer("w", I32, (3, 7, 11)), Buffer("y", I32, (3, 5, 11, 2))
    b, i, j, n, k = (ScalarVar(name) for name in "bijnk")
    one = Contraction(
        y, x, w, (b, i, j, n), (3, 5, 2, 11), (k,), (7,), (b, i, n, j), (b, i, j, k), (b, k, n), I32,
        ScalarVar(ACCUMULATOR, I32) * 2, a_value=load(x, b, i, j, k) - 3,
    )  # fmt: skip
    found = checked(Kernel("k", (x, w), (y,), (one,)), [numbers(I32, 3, 5, 2, 7), numbers(I32, 3, 7, 11)], machine)
    assert forms(found) == ["blocks"]


# --- iterations that a group runs together ----------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [SimtMachine(8, 4, least_row=2), SimtMachine(8, least_row=2)], ids=["", "alone"])
def test_attention_has_a_group_for_each_head(machine: SimtMachine) -> None:
    """Scores, their softmax and means are in memory of the group; sums come out in another order."""
    record, seen = OPS["sdpa"], 0
    for case in cases_of("sdpa", F32, 3):
        arrays = [array for array in case.arrays if array is not None]
        kernel = plain(kernel_of(record, call_of(record, case), case.dtypes))
        if sum(array.size for array in arrays) > 500:
            continue
        found = scheduled(kernel, machine)
        assert [verify(launch.kernel) for launch in found.launches] == [[] for _ in found.launches]
        seen += "together" in forms(found)
        (one,), (other,) = launched(found, arrays), interpret(kernel, arrays)
        assert np.allclose(one, other, 1e-5, 1e-6, equal_nan=True)
    assert seen


def test_memory_that_a_group_cannot_share_is_a_threads_own() -> None:
    x, y = Buffer("x", F32, (3, 64)), Buffer("y", F32, (3, 64))
    builder = Builder()
    with builder.loop(3, PARALLEL) as i:
        own = builder.buffer(F32, (64,))
        with builder.loop(64) as j:
            builder.store(own, (index(63) - j,), load(x, i, j))
        with builder.loop(64) as j:
            builder.store(y, (i, j), load(own, j))
    kernel = Kernel("k", (x,), (y,), builder.body)
    assert forms(checked(kernel, [numbers(F32, 3, 64)])) == ["together"]
    assert forms(checked(kernel, [numbers(F32, 3, 64)], SimtMachine(8, 4, shared_bytes=256))) == ["threads"]


# --- orders -----------------------------------------------------------------------------------------------------------


def in_order(rows: int, length: int, first: int, dtype: DType, *, is_descending: bool = False) -> Kernel:
    """The first ones of each row, doubled, and where they were."""
    x = Buffer("x", dtype, (rows, length))
    values, places = Buffer("values", dtype, (rows, first)), Buffer("places", I64, (rows, first))
    builder = Builder()
    with builder.loop(rows, PARALLEL) as row:
        along, rank = Axis(builder.fresh("i"), length), Axis(builder.fresh("i"), first)
        key = load(x, row, along.index)
        outs = (
            Result(values, (row, rank.index), ScalarVar(RANKED, key.dtype)),
            Result(places, (row, rank.index), ScalarVar(ORIGIN, I64)),
        )
        builder.add(Order(along, rank, key, outs, is_descending=is_descending))
    return Kernel("k", (x,), (values, places), builder.body)


@pytest.mark.parametrize(("length", "first"), [(1, 1), (2, 2), (9, 9), (16, 3), (33, 33)])
@pytest.mark.parametrize(("dtype", "is_descending"), [(F32, False), (F32, True), (U8, True), (I64, False)])
def test_a_group_sorts_what_it_can_share(length: int, first: int, dtype: DType, *, is_descending: bool) -> None:
    """Equal keys stay in the order in which they are; NaN is larger than all numbers."""
    machine = SimtMachine(8, most_groups=2) if dtype is U8 else MACHINE
    values = (np.arange(3 * length).reshape(3, length) * 7 % 5).astype(dtype.array)
    if dtype is F32 and length > 4:
        values[1, 2], values[1, 4], values[2, 3] = np.nan, -0.0, np.inf
    kernel = in_order(3, length, first, dtype, is_descending=is_descending)
    found = checked(kernel, [values], machine)
    assert forms(found) == (["order"] if length > 1 else ["threads"])


@pytest.mark.parametrize(("length", "first"), [(17, 17), (32, 1), (75, 75), (130, 20)])
def test_longer_runs_are_merged_in_launches_of_their_own(length: int, first: int) -> None:
    values = (np.arange(2 * length).reshape(2, length) * 31 % 23).astype(np.float32)
    values[0, 3:9] = np.nan
    found = checked(in_order(2, length, first, F32), [values], SimtMachine(8, 4, shared_bytes=128))
    assert forms(found)[0] == "order"
    assert "threads" in forms(found)
