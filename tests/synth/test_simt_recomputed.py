"""Rows of scratch memory in parallel loops: where elements are computed again, and where they are not."""

import numpy as np
import pytest
from tests.synth.in_c import call_of, cases_of
from tests.synth.test_simt_schedule import BF16, F32, I32, MACHINE, PARALLEL, forms, numbers

from openinfer.dtypes import DTYPES
from openinfer.loops.build import Builder, Position, cast, const, index, load, pair
from openinfer.loops.expand import plain
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Alloc, Buffer, Const, For, Kernel, Load, Local, Scalar, SetLocal, walk
from openinfer.loops.rewrite import straightened
from openinfer.loops.verify import verify
from openinfer.ops import OPS
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.recomputed import with_recomputed_rows
from openinfer.synth.targets.simt.schedule import scheduled


def joined(length: int, window: int, *, first: int = 2, count: Position | None = None) -> Kernel:
    """The largest elements of 5 rows of a matrix, moved by ``first``, and then those of adjacent columns."""
    x, y = Buffer("x", I32, (3, 5, length)), Buffer("y", I32, (3, length + first + 1 - window))
    builder = Builder()
    with builder.loop(3, PARALLEL) as i:
        row = builder.buffer(I32, (length + first,), "row")
        rows = builder.let(pair("min", i + 3, 5))
        with builder.loop(length + first) as j:
            builder.store(row, (j,), const(-9, I32))
        with builder.loops([rows, length if count is None else count]) as (k, j):
            at = (j + first,)
            builder.store(row, at, pair("max", Load(row, at), load(x, i, k, j)))
        with builder.loop(y.shape[1]) as j:
            total = builder.local(0, I32, "total")
            with builder.loop(window) as k:
                builder.assign(total, total + load(row, j + k))
            builder.store(y, (i, j), total)
    return Kernel("k", (x,), (y,), builder.body)


def depth(kernel: Kernel) -> int:
    """How many parallel loops there are."""
    return sum(isinstance(one, For) and one.kind is PARALLEL for one in walk(kernel.body))


@pytest.mark.parametrize(
    ("length", "window", "first", "count"), [(9, 3, 2, 9), (1, 1, 0, 1), (4, 4, 1, 4), (33, 7, 0, 33), (9, 3, 1, 7)]
)
def test_each_result_computes_what_it_reads(length: int, window: int, first: int, count: int) -> None:
    kernel, arrays = joined(length, window, first=first, count=count), [numbers(I32, 3, 5, length)]
    found = with_recomputed_rows(kernel)
    assert not any(isinstance(one, Alloc) for one in walk(found.body))
    assert depth(found) == 2
    assert verify(found) == []
    (one,), (other,) = interpret(found, arrays), interpret(kernel, arrays)
    assert one.tobytes() == other.tobytes()


def test_a_variable_begins_with_the_first_constant() -> None:
    found = [*walk(straightened(with_recomputed_rows(joined(9, 3)).body))]
    assert const(-9, I32) in [one.value for one in found if isinstance(one, Local)]
    assert not any(isinstance(one.value, Const) for one in found if isinstance(one, SetLocal))


def test_a_group_shares_rows_with_large_windows() -> None:
    kernel = joined(1300, 1100)
    assert with_recomputed_rows(kernel) == kernel
    assert forms(scheduled(kernel, MACHINE)) == ["together"]


def made(write: str) -> Kernel:
    """A row that is written and read in one of several ways."""
    x, y, builder = Buffer("x", F32, (3, 8)), Buffer("y", F32, (3, 8)), Builder()
    with builder.loop(3, PARALLEL) as i:
        if write == "beside a longer one":
            builder.buffer(F32, (9,), "other")
        if write == "of two axes":
            builder.buffer(F32, (8, 1), "other")
        row = builder.buffer(BF16 if write == "rounded" else F32, (8,), "row")
        with builder.loop(8) as j:
            place = {"backwards": index(7) - j, "apart": j * 2 % 8, "at one place": index(3)}.get(write, j)
            value: Scalar = load(x, i, j)
            if write == "from another element":
                value = value + Load(row, (pair("max", j - 1, 0),))
            builder.store(row, (place,), value)
        if write == "by hand":
            builder.store(row, (index(2),), load(x, i, 0))
        with builder.loop(8) as j:
            if write == "changed where it is read":
                builder.store(row, (j,), load(row, j) * 2)
            at = index(0) if write == "to one element" else j
            place = cast(load(row, j), index(0).dtype) if write == "from a place of a place" else index(7) - j
            builder.store(y, (i, at), load(row, place))
        if write == "and more":
            builder.store(y, (i, index(0)), load(row, index(1)))
    return Kernel("k", (x,), (y,), builder.body)


WRITES = (
    "backwards", "apart", "at one place", "from another element", "by hand", "changed where it is read",
    "to one element", "and more", "beside a longer one", "of two axes", "rounded", "from a place of a place",
)  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
def test_other_rows_stay_in_memory(write: str) -> None:
    kernel = made(write)
    assert with_recomputed_rows(kernel) == kernel
    assert with_recomputed_rows(made("plainly")) != made("plainly")


@pytest.mark.parametrize(
    ("name", "dtype"), [("max_pool", "f32"), ("max_pool", "i8"), ("avg_pool", "f32"), ("avg_pool", "bf16")]
)
def test_pooling_has_a_thread_for_each_result(name: str, dtype: str) -> None:
    """Results have the same bits: elements are joined in the same order."""
    seen = 0
    for case in cases_of(name, DTYPES[dtype], 12):
        arrays = [array for array in case.arrays if array is not None]
        kernel = plain(kernel_of(OPS[name], call_of(OPS[name], case), case.dtypes))
        found = scheduled(kernel, MACHINE)
        assert [verify(launch.kernel) for launch in found.launches] == [[] for _ in found.launches]
        assert not found.scratch
        (one,), (other,) = launched(found, arrays), interpret(kernel, arrays)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
        seen += 1
    assert seen
