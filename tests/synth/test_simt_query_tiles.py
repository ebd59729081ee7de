"""Attention of many queries on matrix units: what it computes, whatever the extents and the values are."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.everything import some
from tests.synth.test_simt_attention import (
    Shape,
    all_hidden,
    attention,
    hidden,
    infinite,
    nan,
    near,
    normal,
)
from tests.synth.test_simt_schedule import BF16, F32

from openinfer.dtypes import DTYPES, Array
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.loops.ir import WideStore, walk
from openinfer.loops.tile_steps import TileMix
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.schedule import scheduled

MACHINE = SimtMachine(subgroup=32, units=2, least_block=4, most_shared_bytes=232_448, has_matrix_units=True)
UNITS = ["attention on matrix units"]
SHAPES: dict[str, tuple[tuple[Shape, Shape, Shape], dict[str, Any]]] = {
    "odd extents, several heads": (((2, 9, 8), (1, 11, 8), (1, 11, 24)), {}),
    "two tiles for a query and a value": (((1, 9, 72), (1, 6, 72), (1, 6, 80)), {}),
    "causal, two blocks of queries and keys": (((1, 66, 8), (1, 71, 8), (1, 71, 8)), {"causal": True}),
    "causal, some see nothing": (((1, 20, 8), (1, 10, 8), (1, 10, 8)), {"causal": True}),
    "window, which hides whole blocks": (((1, 9, 8), (1, 140, 8), (1, 140, 8)), {"window": 9}),
    "batches": (((2, 1, 9, 8), (2, 1, 7, 8), (2, 1, 7, 8)), {"softcap": 3.0}),
}


@pytest.mark.parametrize("name", some(SHAPES, 3))
def test_many_queries_are_right_at_odd_extents(name: str) -> None:
    shapes, params = SHAPES[name]
    assert near(attention(BF16, *shapes, **params), normal(BF16, *shapes), MACHINE) == UNITS


@pytest.mark.parametrize("causal", some([True, False], 2))
def test_two_teams_share_the_keys_of_a_block_where_there_are_few_groups(causal: bool) -> None:
    shapes = (1, 9, 8), (1, 140, 8), (1, 140, 8)
    kernel, machine = attention(BF16, *shapes, causal=causal), replace(MACHINE, units=3)
    (launch,) = scheduled(kernel, machine).launches
    assert launch.form == "attention on matrix units: blocks of 64 queries and 128 keys"
    assert launch.threads == 256
    assert near(kernel, normal(BF16, *shapes), machine) == UNITS


@pytest.mark.parametrize(("change", "causal"), some(product([hidden, all_hidden, infinite, nan], [False, True]), 3))
def test_values_that_are_not_finite_count_where_their_keys_are_seen(
    change: Callable[[Array, Array, Array], None], causal: bool
) -> None:
    shapes = (1, 9, 8), (1, 9, 8), (1, 9, 8)
    arrays = normal(BF16, *shapes)
    change(*arrays)
    with np.errstate(invalid="ignore"):
        assert near(attention(BF16, *shapes, causal=causal), arrays, MACHINE) == UNITS


def test_means_of_large_values_are_finite() -> None:
    shapes = (1, 9, 8), (1, 20, 8), (1, 20, 8)
    arrays = normal(BF16, *shapes)
    arrays[2][:] = 3e38
    with np.errstate(over="ignore", invalid="ignore"):
        (found,) = launched(scheduled(attention(BF16, *shapes), MACHINE), arrays)
    np.testing.assert_allclose(found.astype(np.float64), 3e38, rtol=1e-2)


@pytest.mark.parametrize(("rows", "keys"), some([(66, 70), (1, 1)], 2))
def test_dynamic_numbers_of_queries_and_keys_end_where_they_end(rows: int, keys: int) -> None:
    most, more = Dim(130, Ref("R")), Dim(200, Ref("T"))
    kernel = attention(BF16, (1, most, 8), (1, more, 8), (1, more, 8), causal=True)
    arrays = normal(BF16, (1, rows, 8), (1, keys, 8), (1, keys, 8))
    assert near(kernel, arrays, MACHINE, {"R": rows, "T": keys}) == UNITS


def test_blocks_are_as_large_as_leaves_groups_for_all_units() -> None:
    shapes = (4, 256, 64), (2, 256, 64), (2, 256, 64)

    def form(machine: SimtMachine) -> str:
        return scheduled(attention(BF16, *shapes), machine).launches[0].form

    assert form(MACHINE) == "attention on matrix units: blocks of 128 queries and 64 keys"
    assert form(replace(MACHINE, units=9)) == "attention on matrix units: blocks of 64 queries and 128 keys"
    assert form(replace(MACHINE, units=8, most_shared_bytes=45_000)).endswith("blocks of 64 queries and 64 keys")
    assert form(replace(MACHINE, most_shared_bytes=45_000)).endswith("blocks of 64 queries and 64 keys")
    assert not form(replace(MACHINE, most_shared_bytes=32_768)).startswith(UNITS[0])


def test_units_are_for_elements_and_layouts_that_suit_them() -> None:
    shapes = (1, 16, 16), (1, 16, 16), (1, 16, 16)

    def forms(kind: Any, *own: Shape, machine: SimtMachine = MACHINE) -> str:
        return scheduled(attention(kind, *own), machine).launches[0].form

    assert forms(BF16, *shapes).startswith(UNITS[0])
    assert not forms(F32, *shapes).startswith(UNITS[0]), "sums of f32 keep all their bits"
    assert not forms(DTYPES["f16"], *shapes).startswith(UNITS[0]), "two f16 are not nearly an f32"
    assert not forms(BF16, (1, 16, 12), (1, 16, 12), (1, 16, 16)).startswith(UNITS[0]), "pieces of 8 elements"
    assert not forms(BF16, *shapes, machine=replace(MACHINE, unaligned=frozenset({"k"}))).startswith(UNITS[0])
    assert not forms(BF16, *shapes, machine=replace(MACHINE, has_matrix_units=False)).startswith(UNITS[0])


def test_a_tile_of_values_is_multiplied_once_for_each_block_and_results_are_stored_in_pairs() -> None:
    shapes = (1, 64, 128), (1, 64, 128), (1, 64, 128)
    (launch,) = scheduled(attention(BF16, *shapes), MACHINE).launches
    inside = [*walk(launch.kernel.body)]
    assert [one.width for one in inside if isinstance(one, TileMix)] == [64, 64]
    assert {one.count for one in inside if isinstance(one, WideStore)} == {2}
