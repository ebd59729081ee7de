"""Long rows: as many registers for each thread as a unit has, and the rest is loaded again."""

import pytest
from tests.synth.test_simt_schedule import F32, accesses, checked, numbers, softmax

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
