"""Attention of many queries in blocks of them: what it computes, whatever the extents and the values are."""

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

from openinfer.dtypes import Array
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.schedule import scheduled

SMALL = SimtMachine(group=4, subgroup=2, units=2, least_block=2)
"""Blocks of 8 queries or fewer, and 8 keys."""
SHAPES: dict[str, tuple[tuple[Shape, Shape, Shape], dict[str, Any]]] = {
    "whole blocks": (((1, 16, 4), (1, 16, 4), (1, 16, 4)), {}),
    "odd extents": (((2, 9, 3), (1, 11, 3), (1, 11, 5)), {}),
    "few keys": (((2, 9, 4), (2, 3, 4), (2, 3, 4)), {}),
    "causal": (((1, 19, 4), (1, 19, 4), (1, 19, 4)), {"causal": True}),
    "causal, behind others": (((1, 9, 4), (1, 26, 4), (1, 26, 4)), {"causal": True}),
    "causal, some see nothing": (((1, 20, 4), (1, 10, 4), (1, 10, 4)), {"causal": True}),
    "window": (((1, 20, 4), (1, 34, 4), (1, 34, 4)), {"window": 6}),
    "batches": (((2, 2, 9, 4), (2, 1, 10, 4), (2, 1, 10, 4)), {"softcap": 3.0}),
}


@pytest.mark.parametrize("name", some(SHAPES, 2))
def test_many_queries_are_right_at_odd_extents(name: str) -> None:
    shapes, params = SHAPES[name]
    for machine in (SMALL, replace(SMALL, unrolls=True)):
        assert near(attention(F32, *shapes, **params), normal(F32, *shapes), machine) == ["attention"]


def test_small_floats_are_loaded_in_wide_accesses() -> None:
    shapes = (2, 9, 8), (1, 10, 8), (1, 10, 16)
    assert near(attention(BF16, *shapes), normal(BF16, *shapes), SMALL) == ["attention"]


def test_blocks_are_smaller_where_there_is_less_memory_or_more_units() -> None:
    shapes = (1, 64, 8), (1, 64, 8), (1, 64, 8)

    machine = SimtMachine(group=16, subgroup=4, units=2, least_block=2)

    def form(machine: SimtMachine) -> str:
        return scheduled(attention(F32, *shapes), machine).launches[0].form

    assert form(machine) == "attention: blocks of 16 queries and 16 keys"
    assert form(replace(machine, units=9)) == "attention: blocks of 4 queries and 16 keys"
    assert form(replace(machine, shared_bytes=1300)) == "attention: blocks of 4 queries and 16 keys"
    assert form(replace(machine, shared_bytes=900)) == "attention: blocks of 4 queries and 8 keys"
    assert not form(replace(machine, shared_bytes=256)).startswith("attention")
    assert not form(replace(machine, subgroup=0)).startswith("attention")


@pytest.mark.parametrize(("change", "causal"), some(product([hidden, all_hidden, infinite, nan], [False, True]), 3))
def test_values_that_are_not_finite_count_where_their_keys_are_seen(
    change: Callable[[Array, Array, Array], None], causal: bool
) -> None:
    shapes = (1, 10, 4), (1, 10, 4), (1, 10, 4)
    arrays = normal(F32, *shapes)
    change(*arrays)
    with np.errstate(invalid="ignore"):
        assert near(attention(F32, *shapes, causal=causal), arrays, SMALL) == ["attention"]


def test_means_of_large_values_are_finite() -> None:
    shapes = (1, 9, 4), (1, 20, 4), (1, 20, 4)
    arrays = normal(F32, *shapes)
    arrays[2][:] = 3e38
    (found,) = launched(scheduled(attention(F32, *shapes), SMALL), arrays)
    np.testing.assert_allclose(found, np.float32(3e38), rtol=1e-5)


@pytest.mark.parametrize("length", [1, 20])
def test_a_dynamic_number_of_keys_ends_where_it_ends(length: int) -> None:
    most = Dim(96, Ref("T"))
    kernel = attention(F32, (2, 9, 4), (1, most, 4), (1, most, 4))
    arrays = normal(F32, (2, 9, 4), (1, length, 4), (1, length, 4))
    assert near(kernel, arrays, SMALL, {"T": length}) == ["attention"]
