"""Kernels as launches: what becomes a thread, what is handed on between launches, and that nothing races."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.synth.in_c import call_of, cases_of

from openinfer.dtypes import DTYPES, DType
from openinfer.ir.expr import Ref
from openinfer.loops.build import Builder, load
from openinfer.loops.dim import Dim
from openinfer.loops.expand import plain
from openinfer.loops.interpret import KernelFailedError, UndefinedError, interpret
from openinfer.loops.ir import INDEX, Bind, Buffer, For, Kernel, LoopKind, Space, Store, walk
from openinfer.loops.verify import verify
from openinfer.ops import OPS
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.simt.baseline import baseline
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launch, Launches
from openinfer.synth.targets.simt.machine import SimtMachine

F32, U4 = DTYPES["f32"], DTYPES["u4"]
X, Y = Buffer("x", F32, (6,)), Buffer("y", F32, (6,))
MACHINE = SimtMachine()


def kernel(write: Callable[[Builder], None], *, inputs: tuple[Buffer, ...] = (X,), out: Buffer = Y) -> Kernel:
    builder = Builder()
    write(builder)
    return Kernel("k", inputs, (out,), builder.body)


def scheduled(one: Kernel, machine: SimtMachine = MACHINE) -> Launches:
    found = baseline(one, machine)
    assert [verify(launch.kernel) for launch in found.launches] == [[] for _ in found.launches]
    return found


def threads(found: Launches) -> list[int]:
    return [launch.threads for launch in found.launches]


def centred(builder: Builder) -> None:
    """Subtract the sum of all elements: a loop that gathers, and one that uses what it found."""
    total = builder.local(0, F32)
    with builder.loop(6) as i:
        builder.assign(total, total + load(X, i))
    with builder.loop(6, LoopKind.PARALLEL) as j:
        builder.store(Y, (j,), load(X, j) - total)


def test_nested_parallel_loops_become_one_loop_over_threads() -> None:
    wide, out = Buffer("x", F32, (3, 5)), Buffer("y", F32, (5, 3))

    def transpose(builder: Builder) -> None:
        with builder.loops((3, 5), LoopKind.PARALLEL) as (i, j):
            builder.store(out, (j, i), load(wide, i, j))

    found = scheduled(kernel(transpose, inputs=(wide,), out=out))
    assert threads(found) == [15]
    (loop,) = found.launches[0].kernel.body
    assert isinstance(loop, For)
    assert loop.bind is Bind.THREAD
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert (launched(found, [x])[0] == x.T).all()


def test_statements_without_a_parallel_loop_are_one_thread_that_hands_values_on() -> None:
    found = scheduled(kernel(centred))
    assert threads(found) == [1, 6]
    assert [one.name for one in found.scratch] == ["kept_s1"]
    x = np.arange(6, dtype=np.float32)
    assert launched(found, [x])[0].tolist() == (x - 15).tolist()


def test_a_variable_that_changes_again_is_handed_on_again() -> None:
    def twice(builder: Builder) -> None:
        count = builder.local(1, INDEX)
        for _ in range(2):
            builder.assign(count, count + 1)
            with builder.loop(6, LoopKind.PARALLEL) as i:
                builder.store(Y, (i,), load(X, (i + count) % 6))

    found = scheduled(kernel(twice))
    assert threads(found) == [1, 6, 1, 6]
    assert [(one.name, one.dtype.name) for one in found.scratch] == [("kept_s1", "i64")]
    assert launched(found, [np.arange(6, dtype=np.float32)])[0].tolist() == [3, 4, 5, 0, 1, 2]


def test_a_cheap_value_is_computed_again_by_all_that_use_it() -> None:
    def scaled(builder: Builder) -> None:
        first = builder.let(load(X, 0))
        for _ in range(2):
            with builder.loop(6, LoopKind.PARALLEL) as i:
                builder.store(Y, (i,), load(X, i) * first)

    found = scheduled(kernel(scaled))
    assert (threads(found), found.scratch) == ([6, 6], ())


def test_a_value_of_memory_that_changes_is_not_computed_again() -> None:
    def shifted(builder: Builder) -> None:
        builder.store(Y, (0,), load(X, 1))
        first = builder.let(load(Y, 0))
        with builder.loop(6, LoopKind.PARALLEL) as i:
            builder.store(Y, (i,), first)

    found = scheduled(kernel(shifted))
    assert threads(found) == [1, 6]
    assert len(found.scratch) == 1
    assert launched(found, [np.arange(6, dtype=np.float32)])[0].tolist() == [1] * 6


@pytest.mark.parametrize(("extent", "kind", "space"), [(4, F32, "own"), (65, F32, "scratch"), (4, U4, "scratch")])
def test_memory_of_an_iteration_is_the_threads_own(extent: int, kind: DType, space: str) -> None:
    """In registers if it is small; else a row of memory for each thread, also where elements share words."""
    x, y = Buffer("x", kind, (6,)), Buffer("y", kind, (6,))

    def copied(builder: Builder) -> None:
        with builder.loop(6, LoopKind.PARALLEL) as i:
            own = builder.buffer(kind, (extent,))
            with builder.loop(extent) as k:
                builder.store(own, (k,), load(x, i))
            builder.store(y, (i,), load(own, extent - 1))

    found = scheduled(kernel(copied, inputs=(x,), out=y))
    stores = [one.buffer for one in walk(found.launches[0].kernel.body) if isinstance(one, Store)]
    assert {one.space.value for one in stores if one.name != "y"} == {space}
    assert [one.shape for one in found.scratch] == ([(6, extent)] if space == "scratch" else [])
    values = np.arange(6).astype(kind.array)
    assert (launched(found, [values])[0] == values).all()


def test_more_iterations_than_threads_take_turns() -> None:
    machine = SimtMachine(group=2, most_groups=2, in_flight=3)
    found = scheduled(kernel(centred), machine)
    assert threads(found) == [1, 4]
    x = np.arange(6, dtype=np.float32)
    assert launched(found, [x])[0].tolist() == (x - 15).tolist()


def test_threads_with_much_memory_are_as_many_as_are_in_flight() -> None:
    def copied(builder: Builder) -> None:
        with builder.loop(6, LoopKind.PARALLEL) as i:
            own = builder.buffer(F32, (100,))
            builder.store(own, (i,), load(X, i))
            builder.store(Y, (i,), load(own, i))

    found = scheduled(kernel(copied), SimtMachine(in_flight=4))
    assert threads(found) == [4]
    assert found.scratch[0].shape == (4, 100)
    assert launched(found, [np.arange(6, dtype=np.float32)])[0].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_number_of_threads_may_depend_on_a_size() -> None:
    length = Dim(6, Ref("T"))
    x, y = Buffer("x", F32, (length, 2)), Buffer("y", F32, (length, 2))

    def copied(builder: Builder) -> None:
        with builder.loops((length, 2), LoopKind.PARALLEL) as (i, j):
            builder.store(y, (i, j), load(x, i, j))

    found = scheduled(kernel(copied, inputs=(x,), out=y))
    assert isinstance(found.launches[0].threads, Dim)
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert (launched(found, [values], {"T": 4})[0] == values).all()


def test_launches_after_a_check_are_guarded() -> None:
    def checked(builder: Builder) -> None:
        with builder.loop(6, LoopKind.PARALLEL) as i:
            builder.fail(load(X, i) < 0, "negative")
        with builder.loop(6, LoopKind.PARALLEL) as i:
            builder.store(Y, (i,), load(X, i))

    found = scheduled(kernel(checked))
    assert [launch.is_guarded for launch in found.launches] == [False, True]
    with pytest.raises(KernelFailedError):
        launched(found, [np.full(6, -1, np.float32)])


@pytest.mark.parametrize("shift", [1, 5])
def test_threads_that_touch_what_others_write_are_refused(shift: int) -> None:
    """Whether the write or the read would come first in the order of the threads."""

    def racing(builder: Builder) -> None:
        with builder.loop(6, LoopKind.PARALLEL, "thread") as i:
            builder.store(Y, (i,), load(X, i))
        with builder.loop(6, LoopKind.PARALLEL) as i:
            builder.store(Y, (i,), load(Y, (i + shift) % 6))

    one = kernel(racing)
    with pytest.raises(UndefinedError, match="parallel loop"):
        launched(Launches(one, (Launch(one, 6),), ()), [np.arange(6, dtype=np.float32)])


@pytest.mark.parametrize("name", ["layer_norm", "matmul", "sort", "gather", "scatter", "dynamic_quantize", "sdpa"])
def test_launches_compute_what_the_kernel_does(name: str) -> None:
    record = OPS[name]
    for dtype in record.dtypes[:: max(len(record.dtypes) // 3, 1)]:
        for case in cases_of(name, dtype, 2):
            one = plain(kernel_of(record, call_of(record, case), case.dtypes))
            arrays = [array for array in case.arrays if array is not None]
            if sum(array.size for array in arrays) > 200:
                continue
            try:
                wanted = interpret(one, arrays)
            except KernelFailedError:
                with pytest.raises(KernelFailedError):
                    launched(scheduled(one), arrays)
                continue
            found = launched(scheduled(one), arrays)
            assert [left.tobytes() for left in found] == [right.tobytes() for right in wanted]


def test_memory_spaces_of_threads_are_no_parameters() -> None:
    found = scheduled(kernel(centred))
    memory = [one for launch in found.launches for one in (*launch.kernel.inputs, *launch.kernel.outputs)]
    assert all(one.space is not Space.OWN for one in memory)
