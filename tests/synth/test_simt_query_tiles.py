"""Attention of many queries on matrix units: what it computes, whatever the extents and the values are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
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
from openinfer.loops.ir import walk
from openinfer.loops.tile_steps import TileMix
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.schedule import scheduled

MACHINE = SimtMachine(subgroup=32, units=2, least_block=4, most_shared_bytes=232_448, has_matrix_units=True)
SHAPES: dict[str, tuple[tuple[Shape, Shape, Shape], dict[str, Any]]] = {
    "odd extents": (((2, 9, 8), (1, 11, 8), (1, 11, 24)), {}),
    "causal, two blocks of queries, a longer prompt before": (((1, 70, 16), (1, 75, 16), (1, 75, 16)), {"causal": True}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_many_queries_are_right_at_odd_extents(name: str) -> None:
    shapes, params = SHAPES[name]
    assert near(attention(BF16, *shapes, **params), normal(BF16, *shapes), MACHINE) == ["attention on matrix units"]
