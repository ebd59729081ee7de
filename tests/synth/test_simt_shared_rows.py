"""Rows that several groups share: who has which part, what they exchange, and what they must not do."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.everything import some
from tests.synth.test_simt_schedule import BF16, F32, I32, accesses, checked, numbers, softmax

from openinfer import DeviceArch
from openinfer.dtypes import Array, DType
from openinfer.ir.expr import Ref
from openinfer.loops.build import Builder, index, load, math, pair
from openinfer.loops.dim import Dim
from openinfer.loops.expand import plain
from openinfer.loops.interpret import UndefinedError, interpret
from openinfer.loops.ir import Buffer, Exchange, GroupBarrier, Kernel, LoopKind, Statement, TeamWords, Unfailed, walk
from openinfer.loops.rewrite import Statements, map_statements
from openinfer.loops.teams import needed_words
from openinfer.loops.text import kernel_text
from openinfer.loops.verify import verify
from openinfer.ops import OPS, Call, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launches, group_of, has_teams
from openinfer.synth.targets.simt.machine import SharedRows, SimtMachine, simt_machine
from openinfer.synth.targets.simt.ready import with_late_guards, with_short_ready
from openinfer.synth.targets.simt.schedule import scheduled

SHARED = SharedRows(threads=8, elements=8, most=4)
MACHINE = SimtMachine(8, 4, largest_group=8, kept_elements=8, shared_rows=SHARED)
H200 = simt_machine(DeviceArch.named("h200-vulkan"))


def of_op(name: str, dtype: DType, *shapes: tuple[int, ...], **params: Any) -> Kernel:
    record = OPS[name]
    types = [TensorType(dtype, shape) for shape in shapes]
    optional = [None] * (3 - len(types)) if name == "layer_norm" else []
    call = infer(record, Call((*types, *optional), complete(record, params)))
    return plain(kernel_of(record, call, (*[dtype] * len(types), *optional)))


def forms(kernel: Kernel, machine: SimtMachine = MACHINE) -> list[str]:
    return [one.form for one in scheduled(kernel, machine).launches]


def random(dtype: DType, *shape: int) -> Array:
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    return np.asarray(values.astype(dtype.array))


# --- which rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "form"),
    [
        (4096, "256 threads each"),
        (8192, "512 threads each"),
        (16_384, "512 threads each"),
        (20_480, "512 threads each"),
        (20_484, "6 groups of 128 threads each"),
        (32_768, "8 groups of 128 threads each"),
        (40_000, "10 groups of 128 threads each"),
        (50_001, "13 groups of 128 threads each"),
        (65_536, "16 groups of 128 threads each"),
        (131_072, "32 groups of 128 threads each"),
    ],
)
def test_rows_of_an_h200_are_shared_if_a_unit_has_room_for_one_group_with_such_a_row(length: int, form: str) -> None:
    assert forms(of_op("softmax", F32, (256, length), axis=1), H200) == [f"rows: {form}, in registers"]


def test_elements_of_fewer_bits_take_as_many_registers() -> None:
    found = forms(of_op("rms_norm", BF16, (64, 65_536), (65_536,)), H200)
    assert found == ["rows: 16 groups of 128 threads each, in registers"]


@pytest.mark.parametrize("name", ["h200", "lavapipe", "vulkan"])
def test_rows_are_not_shared_on_devices_whose_groups_must_not_wait(name: str) -> None:
    machine = simt_machine(DeviceArch.named(name))
    assert machine.shared_rows is None
    assert not any(map(has_teams, (one.kernel for one in scheduled(softmax(64, 50_000), machine).launches)))


def test_groups_do_not_wait_where_a_device_ends_long_loops() -> None:
    document = DeviceArch.named("lavapipe").to_json()
    ordered = DeviceArch.from_json({**document, "features": {**document["features"], "ordered_launches": True}})
    assert simt_machine(ordered).shared_rows is None


@pytest.mark.parametrize(
    ("length", "form"),
    [
        (64, "8 threads each, in registers"),
        (68, "2 groups of 8 threads each, in registers"),
        (192, "3 groups of 8 threads each, in registers"),
        (256, "4 groups of 8 threads each, in registers"),
        (260, "4 groups of 8 threads each, partly in registers"),
    ],
)
def test_a_row_has_as_many_groups_as_can_hold_it(length: int, form: str) -> None:
    assert forms(softmax(3, length)) == [f"rows: {form}"]


def test_a_row_of_dynamic_length_has_one_group() -> None:
    length = Dim(200, Ref("T"))
    x, y = Buffer("x", F32, (3, length)), Buffer("y", F32, (3, length))
    builder = Builder()
    with builder.loop(3, LoopKind.PARALLEL) as i:
        total = builder.local(0, F32)
        with builder.loop(length) as j:
            builder.assign(total, total + load(x, i, j))
        with builder.loop(length) as j:
            builder.store(y, (i, j), load(x, i, j) - total)
    (launch,) = scheduled(Kernel("k", (x,), (y,), builder.body), MACHINE).launches
    assert not has_teams(launch.kernel)


def test_rows_in_which_groups_may_end_early_are_not_shared() -> None:
    """If a row has no result, some groups would wait forever for those that have found it out."""
    x, y = Buffer("x", F32, (3, 200)), Buffer("y", F32, (3, 200))
    builder = Builder()
    with builder.loop(3, LoopKind.PARALLEL) as i:
        total = builder.local(0, F32)
        with builder.loop(200) as j:
            builder.assign(total, total + load(x, i, j))
        builder.fail(total.eq(0), "a sum is zero")
        with builder.loop(200) as j:
            builder.store(y, (i, j), load(x, i, j) / total)
    assert forms(Kernel("k", (x,), (y,), builder.body)) == ["rows: 8 threads each, partly in registers"]


# --- what they compute ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most_groups", [64, 8], ids=["", "in turns"])
@pytest.mark.parametrize(
    ("rows", "length"), some([(1, 128), (5, 129), (3, 191), (2, 200), (3, 260), (3, 256), (2, 999)], 2)
)
def test_shared_rows_are_right_at_every_length(rows: int, length: int, most_groups: int) -> None:
    machine = replace(MACHINE, most_groups=most_groups)
    found = checked(softmax(rows, length), [numbers(F32, rows, length)], machine)
    assert has_teams(found.launches[0].kernel)
    assert group_of(found.launches[0].kernel, 1) == 8


@pytest.mark.parametrize("length", [130, 300])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm", "l2_normalize"])
def test_ops_of_shared_rows_are_right(name: str, length: int) -> None:
    params = {} if name.endswith("_norm") else {"axis": 1}
    weights = ((length,),) if name == "rms_norm" else ()
    kernel = of_op(name, F32, (2, length), *weights, **params)
    arrays = [random(F32, 2, length), *(random(F32, *shape) for shape in weights)]
    found = scheduled(kernel, MACHINE)
    assert [verify(one.kernel) for one in found.launches] == [[]]
    assert has_teams(found.launches[0].kernel)
    np.testing.assert_allclose(launched(found, arrays)[0], interpret(kernel, arrays)[0], 1e-5, 1e-6)


def hostile(dtype: DType, length: int) -> Array:
    """Rows with infinities and NaN, and with groups whose elements are all ``-inf`` or far below others."""
    x = np.random.default_rng(length).standard_normal((7, length)) * 30
    x[1], x[2, : length - 3], x[3, 5], x[4, 100] = -np.inf, -np.inf, np.inf, np.nan
    x[5, :40], x[6, 1:] = -1e30, -np.inf
    return np.asarray(x.astype(dtype.array))


@pytest.mark.parametrize("most_groups", [64, 8], ids=["", "in turns"])
@pytest.mark.parametrize(("dtype", "length"), [(F32, 203), (F32, 300), (BF16, 256)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_largest_elements_and_sums_of_powers_are_exchanged_at_once(
    name: str, dtype: DType, length: int, most_groups: int
) -> None:
    """The same results as relative to the largest of all, and the same bits in each run."""
    kernel, x = of_op(name, dtype, (7, length), axis=1), hostile(dtype, length)
    found = scheduled(kernel, replace(MACHINE, most_groups=most_groups))
    assert len(exchanges(found)) == 1
    # In turns, both reductions have the same shared memory.
    barriers = [one for one in walk(found.launches[0].kernel.body) if isinstance(one, GroupBarrier)]
    assert len(barriers) == (2 if most_groups == 64 else 3)
    assert [verify(one.kernel) for one in found.launches] == [[]]
    ours, theirs = (one[0].astype(np.float64) for one in (launched(found, [x]), interpret(kernel, [x])))
    np.testing.assert_allclose(ours, theirs, 2**-7 if dtype is BF16 else 2e-5, 1e-30)


@pytest.mark.parametrize("change", ["kept", "other", "between"])
def test_groups_exchange_largest_elements_first_if_more_depends_on_them(change: str) -> None:
    """Powers that stay in memory, of other elements, or of which something else is known before."""
    x, y, z = (Buffer(name, F32, (3, 200)) for name in "xyz")
    builder = Builder()
    with builder.loop(3, LoopKind.PARALLEL) as i:
        top, total = builder.local(-np.inf, F32), builder.local(0, F32)
        with builder.loop(200) as j:
            builder.assign(top, pair("max", top, load(x, i, j)))
        first = builder.let(top * 2) if change == "between" else top
        with builder.loop(200) as j:
            power = builder.let(math("exp", load(x, i, j) * (2 if change == "other" else 1) - top))
            builder.store(y, (i, j), power)
            builder.assign(total, total + power)
        with builder.loop(200) as j:
            builder.store(z if change == "kept" else y, (i, j), load(y, i, j) / (total + first))
    outputs = (y, z) if change == "kept" else (y,)
    kernel, values = Kernel("k", (x,), outputs, builder.body), np.abs(random(F32, 3, 200))
    found = scheduled(kernel, MACHINE)
    assert len(exchanges(found)) == 2
    for ours, theirs in zip(launched(found, [values]), interpret(kernel, [values]), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5)


def test_rows_of_bf16_are_shared() -> None:
    kernel = of_op("rms_norm", BF16, (3, 512), (512,))
    arrays = [random(BF16, 3, 512), random(BF16, 512)]
    found = scheduled(kernel, MACHINE)
    assert [one.form for one in found.launches] == ["rows: 4 groups of 8 threads each, partly in registers"]
    ours, theirs = (one[0].astype(np.float32) for one in (launched(found, arrays), interpret(kernel, arrays)))
    np.testing.assert_allclose(ours, theirs, 2**-7, 1e-6)


def test_a_row_of_an_h200() -> None:
    """Groups of 128 threads, each with up to 32 elements; the last one has a single chunk."""
    found = checked(softmax(1, 20_484), [numbers(F32, 1, 20_484)], H200)
    assert [one.form for one in found.launches] == ["rows: 6 groups of 128 threads each, in registers"]


def test_smaller_numbers_are_exchanged_as_words() -> None:
    """A maximum that begins with a number of the kernel, which threads without a group keep."""
    x, y = Buffer("x", BF16, (3, 200)), Buffer("y", BF16, (3, 200))
    builder = Builder()
    with builder.loop(3, LoopKind.PARALLEL) as i:
        total, count = builder.local(0, F32), builder.local(0, I32)
        with builder.loop(200) as j:
            builder.assign(total, total + load(x, i, j))
            builder.assign(count, count + 1)
        with builder.loop(200) as j:
            builder.store(y, (i, j), load(x, i, j) - total)
    found = checked(Kernel("k", (x,), (y,), builder.body), [numbers(BF16, 3, 200)], MACHINE)
    assert found.scratch == ()
    (exchange,) = exchanges(found)
    assert [one.dtype.name for one in exchange.memory] == ["f32", "i32"]
    assert (exchange.words, exchange.place) == (TeamWords(rows=3, groups=4, count=16), 0)


def test_what_a_row_has_once_is_stored_once() -> None:
    """A largest element and a sum, of rows that are not written."""
    x, y = Buffer("x", F32, (3, 200)), Buffer("y", F32, (3, 2))
    builder = Builder()
    with builder.loop(3, LoopKind.PARALLEL) as i:
        top, total = builder.local(-np.inf, F32), builder.local(0, F32)
        with builder.loop(200) as j:
            builder.assign(top, pair("max", top, load(x, i, j)))
        with builder.loop(200) as j:
            builder.assign(total, total + (load(x, i, j) - top))
        builder.store(y, (i, index(0)), top)
        builder.store(y, (i, index(1)), total)
    found = checked(Kernel("k", (x,), (y,), builder.body), [numbers(F32, 3, 200)], MACHINE)
    assert [one.form for one in found.launches] == ["rows: 4 groups of 8 threads each, in registers"]


def test_a_dynamic_number_of_rows_is_shared() -> None:
    count = Dim(6, Ref("T"))
    x, y = Buffer("x", F32, (count, 200)), Buffer("y", F32, (count, 200))
    builder = Builder()
    with builder.loop(count, LoopKind.PARALLEL) as i:
        total = builder.local(0, F32)
        with builder.loop(200) as j:
            builder.assign(total, total + load(x, i, j))
        with builder.loop(200) as j:
            builder.store(y, (i, j), load(x, i, j) - total)
    values = numbers(F32, 4, 200)
    for most_groups in (64, 12):
        machine = replace(MACHINE, most_groups=most_groups)
        found = scheduled(Kernel("k", (x,), (y,), builder.body), machine)
        assert has_teams(found.launches[0].kernel)
        assert (launched(found, [values], {"T": 4})[0] == values - values.sum(1, keepdims=True)).all()


def test_each_element_is_loaded_and_stored_once() -> None:
    assert accesses(checked(softmax(3, 256), [numbers(F32, 3, 256)], MACHINE)) == {("x", 4): 2, ("y", 4): 2}


# --- what they must not do --------------------------------------------------------------------------------------------


def changed(found: Launches, change: Callable[[Statement], Statements]) -> Launches:
    (launch,) = found.launches
    kernel = replace(launch.kernel, body=map_statements(launch.kernel.body, change))
    return replace(found, launches=(replace(launch, kernel=kernel),))


def exchanges(found: Launches) -> list[Exchange]:
    return [one for launch in found.launches for one in walk(launch.kernel.body) if isinstance(one, Exchange)]


def test_groups_that_do_not_wait_for_each_other_are_noticed() -> None:
    found = scheduled(softmax(3, 200), MACHINE)
    first, second = exchanges(found)
    assert (first.place, second.place, first.words.count) == (0, 8, 16)
    alone = changed(found, lambda one: (GroupBarrier(),) if isinstance(one, Exchange) else (one,))
    with pytest.raises(UndefinedError, match="read before it is written"):
        launched(alone, [numbers(F32, 3, 200)])


def test_groups_wait_for_all_of_their_team() -> None:
    found = scheduled(softmax(3, 200), MACHINE)
    words = replace(exchanges(found)[0].words, groups=2)
    fewer = changed(found, lambda one: (replace(one, words=words) if isinstance(one, Exchange) else one,))
    with pytest.raises(UndefinedError, match="which others do not reach"):
        launched(fewer, [numbers(F32, 3, 200)])


def test_rows_are_not_shared_if_their_words_take_too_much_memory() -> None:
    assert needed_words(TeamWords(rows=5, groups=4, count=16)) == 5 * 32
    for words, form in (
        (160, "4 groups of 8 threads each, in registers"),
        (159, "8 threads each, partly in registers"),
    ):
        machine = replace(MACHINE, shared_rows=replace(SHARED, words=words))
        assert forms(softmax(5, 256), machine) == [f"rows: {form}"]


def test_launches_look_for_failures_before_they_exchange_anything() -> None:
    """Either all groups of a team end there or none: nothing of earlier launches still runs."""
    found = with_late_guards(with_short_ready(scheduled(softmax(3, 200), MACHINE)))
    text = kernel_text(found.launches[0].kernel)
    assert sum(isinstance(one, Unfailed) for one in walk(found.launches[0].kernel.body)) == 1
    assert (
        text.index("x[")
        < text.index("unfailed")
        < text.index("exchange exchanged_f32 =")
        < text.index("leave 16 words")
    )
