"""Contractions on matrix units: which ones, and that tiles, rings of them and what is done with sums are right."""

from dataclasses import replace

import numpy as np
import pytest
from tests.everything import some
from tests.synth.test_simt_schedule import BF16, F32, I32, checked, forms

from openinfer.dtypes import DTYPES, Array, DType
from openinfer.ir.expr import Ref
from openinfer.loops.build import load, rounded, select
from openinfer.loops.dim import Dim
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import ACCUMULATOR, Buffer, Contraction, Kernel, Load, ScalarVar, Store, visit, walk
from openinfer.loops.tile_steps import TILE_THREADS, TileCopy, TileStore, TileSync, sum_place
from openinfer.loops.verify import verify
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.schedule import scheduled

MACHINE = SimtMachine(group=8, subgroup=4, least_block=4, most_shared_bytes=232_448, has_matrix_units=True)
I8 = DTYPES["i8"]


def product(kind: DType, out: DType, extents: tuple[int, int, int], *, is_across: bool = False) -> Kernel:
    """A product with a bias; the second factor has its terms along rows, or across them."""
    rows, columns, terms = extents
    total = I32 if kind is I8 else F32
    i, j, k = (ScalarVar(name) for name in "ijk")
    x, y = Buffer("x", kind, (rows, terms)), Buffer("y", out, (rows, columns))
    w = Buffer("w", kind, (terms, columns) if is_across else (columns, terms))
    bias = Buffer("bias", total, (columns,))
    epilogue = ScalarVar(ACCUMULATOR, total) + load(bias, j)
    epilogue = epilogue if out is total else rounded(epilogue, out)
    where = (k, j) if is_across else (j, k)
    body = Contraction(y, x, w, (i, j), (rows, columns), (k,), (terms,), (i, j), (i, k), where, total, epilogue)
    return Kernel("k", (x, w, bias), (y,), (body,))


def small(buffer: Buffer) -> Array:
    """Numbers whose sums are exact, however they are added up; each element's neighbours are others."""
    count = int(np.prod(buffer.shape))
    return (np.arange(count) * 5 % 7 - 3).astype(buffer.dtype.array).reshape(buffer.shape)


def found_for(kernel: Kernel) -> Launches:
    return checked(kernel, [small(one) for one in kernel.inputs], MACHINE)


def steps(found: Launches, kind: type) -> int:
    return sum(isinstance(one, kind) for launch in found.launches for one in walk(launch.kernel.body))


@pytest.mark.parametrize(
    ("kind", "out", "extents"),
    [
        (BF16, BF16, (9, 10, 200)),
        (DTYPES["f16"], BF16, (70, 9, 24)),
        (I8, I32, (11, 12, 48)),
    ],
)
def test_products_on_matrix_units_are_right(kind: DType, out: DType, extents: tuple[int, int, int]) -> None:
    found = found_for(product(kind, out, extents))
    assert forms(found) == ["matrix units"]
    assert steps(found, TileStore) == 0, "rows are copied as they are"


@pytest.mark.parametrize("extents", [(10, 9, 24), (9, 12, 19)])
def test_terms_that_are_not_neighbours_are_brought_together(extents: tuple[int, int, int]) -> None:
    """The second factor across its rows; and where pieces of 16 bytes do not begin where rows do, both factors."""
    found = found_for(product(BF16, BF16, extents, is_across=True))
    assert forms(found) == ["matrix units"]
    assert steps(found, TileStore) > 0
    assert (steps(found, TileCopy) > 0) == (extents[2] % 8 == 0)


@pytest.mark.parametrize(("rows", "columns"), some([(1, 9), (1, 64), (70, 9), (70, 64)], 3))
def test_a_dynamic_number_of_rows_ends_where_it_ends(rows: int, columns: int) -> None:
    kernel = product(BF16, BF16, (Dim(130, Ref("R")), columns, 24))
    arrays = [small(Buffer(one.name, one.dtype, (rows, 24) if one.name == "x" else one.shape)) for one in kernel.inputs]
    found = scheduled(kernel, MACHINE)
    assert forms(found) == ["matrix units"]
    assert [verify(launch.kernel) for launch in found.launches] == [[]]
    (one,), (other,) = launched(found, arrays, {"R": rows}), interpret(kernel, arrays, {"R": rows})
    assert one.shape == (rows, columns)
    assert one.tobytes() == other.tobytes()


def test_a_dynamic_number_of_rows_has_no_blocks_without_units() -> None:
    kernel = product(F32, F32, (Dim(130, Ref("R")), 16, 16))
    assert not {"matrix units", "blocks"} & {*forms(scheduled(kernel, MACHINE))}


def test_sums_that_keep_all_their_bits_are_not_left_to_matrix_units() -> None:
    """How units round what they add up is not ours to say."""
    kernel = product(BF16, F32, (16, 16, 64))
    assert forms(scheduled(kernel, MACHINE))[0] == "blocks"
    assert forms(scheduled(product(F32, BF16, (16, 16, 64)), MACHINE))[0] == "blocks"
    plain = SimtMachine(group=8, subgroup=4, least_block=4)
    assert forms(scheduled(product(BF16, BF16, (16, 16, 64)), plain))[0] == "blocks"


def test_batches_that_need_not_have_arrived_are_those_behind_the_one_that_is_multiplied() -> None:
    found = scheduled(product(BF16, BF16, (2048, 4096, 512)), MACHINE)
    assert found.launches[0].form == "matrix units: 128 x 256 sums, 4 stages"
    pending = [one.pending for one in walk(found.launches[0].kernel.body) if isinstance(one, TileSync) and one.pending]
    assert pending == [1], "of four stages, one is multiplied, one may still be, and of two others one is awaited"


@pytest.mark.parametrize("is_chosen", [False, True])
def test_what_results_need_is_loaded_before_the_first_of_them_is_stored(is_chosen: bool) -> None:
    """A store may change what the next load sees, as far as compilers know. What only some results load stays there."""
    kernel = product(BF16, BF16, (70, 9, 24))
    (one,) = kernel.body
    assert isinstance(one, Contraction)
    if is_chosen:
        kernel = replace(kernel, body=(replace(one, epilogue=select(one.free[0] < 3, one.epilogue, 0.0)),))
    found = found_for(kernel)
    assert forms(found) == ["matrix units"]
    inside = [*walk(found.launches[0].kernel.body)]
    results = [each for each in inside if isinstance(each, Store) and each.buffer.name == "y"]
    parts = [part for each in results for part in visit(each.value) if isinstance(part, Load)]
    assert ("bias" in {part.buffer.name for part in parts}) == is_chosen


def test_every_sum_is_one_threads() -> None:
    places = {sum_place(thread, number) for thread in range(TILE_THREADS) for number in range(32)}
    assert places == {(row, column) for row in range(64) for column in range(64)}
