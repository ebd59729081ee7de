"""Contractions in blocks: terms that do not count, and sums in parts where there are fewer blocks than units."""

from dataclasses import replace

import pytest
from tests.synth.test_simt_schedule import F32, I32, SQUARE, checked, forms, linear, numbers

from openinfer.dtypes import DType
from openinfer.loops.ir import ACCUMULATOR, Buffer, Contraction, Kernel, Math, ScalarVar, scalars, visit, walk
from openinfer.synth.targets.simt.schedule import scheduled


def padded(dtype: DType, *, is_by_column: bool = False) -> Kernel:
    """A convolution of 8 positions, 4 channels and 3 taps, with a border of 1; or terms that count for some columns."""
    x, w, y = Buffer("x", dtype, (4, 8)), Buffer("w", dtype, (5, 4, 3)), Buffer("y", dtype, (5, 8))
    f, p, c, t = (ScalarVar(name) for name in "fpct")
    at = p + t - 1
    valid = f < t + 3 if is_by_column else (at >= 0) & (at < 8)
    place = p if is_by_column else at
    total = ScalarVar(ACCUMULATOR, dtype)
    one = Contraction(
        y, x, w, (f, p), (5, 8), (c, t), (4, 3), (f, p), (c, place), (f, c, t), dtype, total, valid=valid
    )  # fmt: skip
    return Kernel("k", (x, w), (y,), (one,))


def test_a_border_is_zeros_where_that_is_the_same() -> None:
    """Zeros times numbers that are finite, or integers, are nothing; times others, they are not."""
    arrays = [numbers(F32, 4, 8), numbers(F32, 5, 4, 3)]
    known = replace(SQUARE, finite=frozenset({"w"}))
    assert forms(checked(padded(F32), arrays, known)) == ["blocks"]
    assert "blocks" not in forms(scheduled(padded(F32), SQUARE))
    assert "blocks" not in forms(scheduled(padded(F32), replace(SQUARE, finite=frozenset({"x"}))))
    assert forms(checked(padded(I32), [numbers(I32, 4, 8), numbers(I32, 5, 4, 3)], SQUARE)) == ["blocks"]


def test_the_factor_that_says_what_counts_is_the_one_that_is_zero() -> None:
    arrays = [numbers(F32, 4, 8), numbers(F32, 5, 4, 3)]
    kernel = padded(F32, is_by_column=True)
    assert forms(checked(kernel, arrays, replace(SQUARE, finite=frozenset({"x"})))) == ["blocks"]
    assert "blocks" not in forms(scheduled(kernel, replace(SQUARE, finite=frozenset({"w"}))))


@pytest.mark.parametrize(("length", "parts"), [(48, 3), (34, 2), (33, 1), (30, 1)])
def test_long_sums_of_few_blocks_are_taken_in_parts(length: int, parts: int) -> None:
    """Equal ones, which have 16 terms at least here, and no more of them than leave a unit to each group."""
    machine = replace(SQUARE, group=4, units=13)  # blocks of 8 x 8: there are four
    arrays = [numbers(F32, 9, length), numbers(F32, 9, length)]
    found = checked(linear(9, 9, length, F32), arrays, machine)
    assert forms(found) == (["blocks"] if parts == 1 else ["blocks", "threads"])
    assert [one.shape[0] for one in found.scratch] == ([] if parts == 1 else [parts])


def test_a_border_stays_one_where_sums_are_in_parts() -> None:
    kernel = padded(F32)
    (one,) = kernel.body
    assert isinstance(one, Contraction)
    x, w = Buffer("x", F32, (12, 8)), Buffer("w", F32, (5, 12, 3))
    long = replace(kernel, inputs=(x, w), body=(replace(one, a=x, b=w, reduced=(12, 3)),))
    machine = replace(SQUARE, group=4, units=2, finite=frozenset({"w"}))
    found = checked(long, [numbers(F32, 12, 8), numbers(F32, 5, 12, 3)], machine)
    assert forms(found)[0] == "blocks"
    assert [buffer.shape for buffer in found.scratch] == [(2, 5, 8)]


def test_terms_are_added_in_one_instruction_where_a_device_rounds_that_once() -> None:
    """But for those of very long sums, which are added in blocks."""
    exact, lengths = replace(SQUARE, units=1, fuses=True), (16, 9000)
    found = [scheduled(linear(9, 9, length, F32), exact).launches for length in lengths]
    parts = [
        {part.function for one in walk(launches[0].kernel.body) for value in scalars(one) for part in visit(value)
         if isinstance(part, Math)}
        for launches in found
    ]  # fmt: skip
    assert parts == [{"fma"}, set()]


def test_products_of_no_matrices_have_blocks_that_do_not_run() -> None:
    x, w, y = Buffer("x", F32, (0, 16, 8)), Buffer("w", F32, (0, 16, 8)), Buffer("y", F32, (0, 16, 16))
    b, i, j, k = (ScalarVar(name) for name in "bijk")
    one = Contraction(
        y, x, w, (b, i, j), (0, 16, 16), (k,), (8,), (b, i, j), (b, i, k), (b, j, k), F32, ScalarVar(ACCUMULATOR, F32)
    )
    checked(Kernel("k", (x, w), (y,), (one,)), [numbers(F32, 0, 16, 8), numbers(F32, 0, 16, 8)], SQUARE)
