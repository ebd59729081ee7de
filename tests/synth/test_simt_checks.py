"""What the interpreter refuses of launches, before a device would do something to memory that nobody asked for."""

import numpy as np
import pytest

from openinfer.dtypes import DTYPES
from openinfer.loops.build import Builder, index, load
from openinfer.loops.interpret import UndefinedError
from openinfer.loops.ir import Buffer, Kernel, LoopKind, Space
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launch, Launches

F32 = DTYPES["f32"]
X, Y, KEPT = Buffer("x", F32, (6,)), Buffer("y", F32, (6,)), Buffer("kept", F32, (6,), space=Space.SCRATCH)
VALUES = np.arange(6, dtype=np.float32)


def run(*builders: Builder, scratch: tuple[Buffer, ...] = ()) -> list[float]:
    """Launches of six threads each, one after the other."""
    kernels = [Kernel("k", (X,), (Y,), one.body) for one in builders]
    found = Launches(kernels[0], tuple(Launch(one, 6) for one in kernels), scratch)
    return [float(one) for one in launched(found, [VALUES])[0]]


def copied(source: Buffer, target: Buffer, *, threads: int = 6, shift: int = 0) -> Builder:
    builder = Builder()
    with builder.loop(threads, LoopKind.PARALLEL) as i:
        builder.store(target, (i + shift,), load(source, i))
    return builder


def test_launches_see_what_those_before_have_written() -> None:
    assert run(copied(X, KEPT), copied(KEPT, Y), scratch=(KEPT,)) == VALUES.tolist()


@pytest.mark.parametrize("shift", [-1, 1])
def test_an_element_next_to_a_buffer_is_refused(shift: int) -> None:
    with pytest.raises(UndefinedError, match="outside of 'y'"):
        run(copied(X, Y, shift=shift))


def test_a_thread_too_many_is_refused() -> None:
    with pytest.raises(UndefinedError, match="outside of 'x'"):
        run(copied(X, Y, threads=7))


def test_a_thread_too_few_is_refused() -> None:
    with pytest.raises(UndefinedError, match="element 5 of 'y' was never written"):
        run(copied(X, Y, threads=5))


def test_memory_that_no_launch_has_written_is_refused() -> None:
    with pytest.raises(UndefinedError, match="element 5 of 'kept' is read before it is written"):
        run(copied(X, KEPT, threads=5), copied(KEPT, Y), scratch=(KEPT,))


def test_a_race_that_goes_well_in_one_order_is_refused() -> None:
    """Each thread reads what the next one writes later."""
    builder = Builder()
    with builder.loop(5, LoopKind.PARALLEL) as i:
        builder.store(Y, (i,), load(Y, i + 1))
    with pytest.raises(UndefinedError, match="parallel loop"):
        run(copied(X, Y), builder)


def test_memory_of_a_thread_has_nothing_of_the_thread_before() -> None:
    builder = Builder()
    with builder.loop(6, LoopKind.PARALLEL) as i:
        own = builder.buffer(F32, (2,), "own")
        with builder.when(i.eq(index(0))):
            builder.store(own, (0,), load(X, i))
        builder.store(Y, (i,), load(own, 0))
    with pytest.raises(UndefinedError, match="is read before it is written"):
        run(builder)
