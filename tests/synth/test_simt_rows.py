"""Long rows: as many registers for each thread as a unit has, and the rest is loaded or computed again."""

import numpy as np
import pytest
from tests.synth.test_simt_schedule import BF16, F32, accesses, checked, numbers, softmax
from tests.synth.test_simt_shared_rows import MACHINE as SHARED
from tests.synth.test_simt_shared_rows import of_op, random

from openinfer.loops.build import Builder, load, math, select
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Buffer, Kernel, LoopKind, Math, Space, Store, scalars, visit, walk
from openinfer.loops.verify import verify
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.schedule import scheduled


def test_of_a_row_that_is_too_long_a_part_stays_in_registers() -> None:
    """Six chunks of a thread are loaded and stored once, its others by each loop: two at a time, and the last alone."""
    found = checked(softmax(3, 600), [numbers(F32, 3, 600)])
    assert accesses(found) == {("x", 4): 6 + 3 + 3, ("y", 4): 6 + 3 + 3 + 3}


@pytest.mark.parametrize("length", [516, 999, 1000, 1024])
def test_a_row_has_half_the_threads_with_more_registers_each_if_two_fit_on_a_unit(length: int) -> None:
    machine = SimtMachine(8, 4, largest_group=32, unit_registers=2 * 16 * (24 + 64))
    found = checked(softmax(3, length), [numbers(F32, 3, length)], machine)
    assert [one.form for one in found.launches] == ["rows: 16 threads each, in registers"]


def test_threads_have_no_more_of_a_row_than_there_are_registers() -> None:
    def form(length: int, registers: int) -> str:
        machine = SimtMachine(8, 4, largest_group=32, unit_registers=registers)
        return scheduled(softmax(3, length), machine).launches[0].form

    assert form(1028, 16 * (24 + 64)) == "rows: 32 threads each, partly in registers"
    assert form(1028, 16 * (24 + 68)) == "rows: 16 threads each, in registers"
    assert form(1024, 0) == "rows: 32 threads each, in registers"
    assert form(1024, 2 * 16 * (24 + 60)) == "rows: 32 threads each, in registers"
    assert form(500, 16 * (24 + 68)) == "rows: 16 threads each, in registers"


def exponentials(found: Launches) -> int:
    """How many exponentials are in the code of a launch."""
    values = [value for one in walk(found.launches[0].kernel.body) for value in scalars(one)]
    return sum(isinstance(part, Math) and part.function == "exp" for value in values for part in visit(value))


@pytest.mark.parametrize(
    ("length", "form", "count"),
    [
        (64, "rows: 8 threads each, in registers", 2 * 8),
        (128, "rows: 2 groups of 8 threads each, in registers", 8 + 2),
        (203, "rows: 3 groups of 8 threads each, in registers", 8 + 2 + 1),
        (600, "rows: 4 groups of 8 threads each, partly in registers", 2 * 8 * 2 + 2),
    ],
)
def test_powers_of_few_bits_are_computed_once_in_shared_rows_that_are_in_registers(
    length: int, form: str, count: int
) -> None:
    kernel, x = of_op("softmax", BF16, (3, length), axis=1), random(BF16, 3, length)
    found = scheduled(kernel, SHARED)
    assert [verify(one.kernel) for one in found.launches] == [[]]
    assert found.launches[0].form == form
    assert exponentials(found) == count
    stores = [one for one in walk(found.launches[0].kernel.body) if isinstance(one, Store)]
    assert not any(one.buffer.space is Space.OWN for one in stores)
    ours, theirs = (one[0].astype(np.float32) for one in (launched(found, [x]), interpret(kernel, [x])))
    np.testing.assert_allclose(ours, theirs, 2**-7)


@pytest.mark.parametrize("changes", [False, True])
def test_powers_are_computed_again_if_what_they_depend_on_has_changed(changes: bool) -> None:
    x, y = Buffer("x", BF16, (3, 128)), Buffer("y", BF16, (3, 128))
    builder = Builder()
    with builder.loop(3, LoopKind.PARALLEL) as i:
        top, total = builder.local(-np.inf, F32), builder.local(0, F32)
        with builder.loop(128) as j:
            value = builder.let(load(x, i, j))
            builder.assign(top, select(value > top, value, top))
        with builder.loop(128) as j:
            power = builder.let(math("exp", load(x, i, j) - top))
            builder.assign(total, total + power)
        if changes:
            builder.assign(top, top * 2)
        with builder.loop(128) as j:
            builder.store(y, (i, j), math("exp", load(x, i, j) - top) / total)
    kernel, values = Kernel("k", (x,), (y,), builder.body), random(BF16, 3, 128)
    found = scheduled(kernel, SHARED)
    assert exponentials(found) == (18 if changes else 10)
    ours, theirs = (one[0].astype(np.float32) for one in (launched(found, [values]), interpret(kernel, [values])))
    np.testing.assert_allclose(ours, theirs, 2**-7)
