"""Launches that do not depend on each other become one, in which each thread does what it did before."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.synth.test_simt_schedule import MACHINE, PARALLEL, checked, numbers

from openinfer.dtypes import DTYPES
from openinfer.loops.build import Builder, load
from openinfer.loops.ir import Buffer, Kernel, LoopKind, Scalar

F32 = DTYPES["f32"]


def copies(*pieces: tuple[int, int], rows: int = 3) -> Kernel:
    """Pieces of a width, each to its first column of a result."""
    width = max(first + count for first, count in pieces)
    given = [Buffer(f"x_{number}", F32, (rows, count)) for number, (_, count) in enumerate(pieces)]
    y, builder = Buffer("y", F32, (rows, width)), Builder()
    for one, (first, count) in zip(given, pieces, strict=True):
        with builder.loops((rows, count), PARALLEL) as (i, j):
            builder.store(y, (i, j + first), load(one, i, j))
    return Kernel("k", tuple(given), (y,), builder.body)


@pytest.mark.parametrize("widths", [(8, 8), (7, 5), (4, 12, 3), (1,) * 10])
def test_the_parts_of_a_concatenation_are_one_launch(widths: tuple[int, ...]) -> None:
    """Eight parts in one launch at most."""
    pieces = [(sum(widths[:place]), one) for place, one in enumerate(widths)]
    found = checked(copies(*pieces), [numbers(F32, 3, one) for one in widths], MACHINE)
    assert len(found.launches) == -(-len(widths) // 8)


def test_what_writes_the_same_elements_stays_in_order() -> None:
    found = checked(copies((0, 8), (7, 8)), [numbers(F32, 3, 8), numbers(F32, 3, 8) + 9], MACHINE)
    assert len(found.launches) == 2


def then(second: Callable[[Builder, Buffer, Buffer, Buffer], None]) -> Kernel:
    x, y, z = (Buffer(name, F32, (8,)) for name in "xyz")
    builder = Builder()
    with builder.loop(8, LoopKind.PARALLEL) as i:
        builder.store(y, (i,), load(x, i) + 1)
    second(builder, x, y, z)
    return Kernel("k", (x,), (y, z), builder.body)


@pytest.mark.parametrize("depends", [True, False])
def test_what_reads_the_first_result_waits_for_it(depends: bool) -> None:
    def second(builder: Builder, x: Buffer, y: Buffer, z: Buffer) -> None:
        with builder.loop(8, LoopKind.PARALLEL) as i:
            value: Scalar = load(y if depends else x, 7 - i)
            builder.store(z, (i,), value * 2)

    assert len(checked(then(second), [numbers(F32, 8)], MACHINE).launches) == 1 + depends


def test_launches_with_loops_stay_as_they_are() -> None:
    def second(builder: Builder, x: Buffer, _y: Buffer, z: Buffer) -> None:
        with builder.loop(8, LoopKind.PARALLEL) as i:
            total = builder.local(0, F32)
            with builder.loop(5) as j:
                builder.assign(total, total + load(x, j))
            builder.store(z, (i,), total)

    assert len(checked(then(second), [np.arange(8, dtype=np.float32)], MACHINE).launches) == 2
