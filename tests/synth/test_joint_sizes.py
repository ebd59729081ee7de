"""Dimensions over several dynamic sizes: solved from all inputs together, in the simulator and in compiled code."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import agree, planned

from openinfer import ExecutionError, Simulator, graph
from openinfer.errors import Code

MASKED = """
sizes { P <= 8; T <= 4; }
dynamic { mask: i32[P+T]; x: f32[T, 2]; past: f32[P, 2]; }
volatile { y: f32[P+T, 2]; z: i32[P+T]; }
block entry { op concat(past, x, axis=0) >> y; op add(mask, mask) >> z; return y, z; }
"""
CROSSED = """
sizes { P <= 8; T <= 4; }
dynamic { a: i32[P+T]; b: i32[P-T]; c: i32[2*P+T]; }
volatile { y: i32[P+T]; }
block entry { op add(a, a) >> y; return y; }
"""
OPEN = """
sizes { P <= 8; T <= 4; }
dynamic { mask: i32[P+T]; }
volatile { y: i32[P+T]; }
block entry { op add(mask, mask) >> y; return y; }
"""
SLICED = """
sizes { P <= 8; T <= 4; }
dynamic { x: f32[T, 2]; n: i32; }
volatile { all: f32[P+T, 2]; y: f32[P, 2]; }
persistent { K(t): f32[2] @table @fixed(t=12); count: i32; }
block entry {
    cache.write x >> K[count..count+T];
    cache.read K[0..n] >> all;
    op slice(all, axes=[0], starts=[0], ends=[P]) >> y;
    cache.increment count;
    return y;
}
"""


def both(text: str) -> list[Any]:
    return [Simulator(None).make_executor(graph(text)), planned(text).build("gcc", ("-std=c11", "-O0"))]


def values(past: int, now: int, **other: int) -> dict[str, Any]:
    mask = np.arange(other.get("mask", past + now), dtype=np.int32)
    return {"mask": mask, "x": np.ones((now, 2), np.float32), "past": np.zeros((past, 2), np.float32)}


def failure(one: Any, **inputs: Any) -> ExecutionError:
    with pytest.raises(ExecutionError) as caught:
        one(inputs)
    return caught.value


def test_sizes_are_solved_from_all_inputs_together_in_any_order() -> None:
    for one in both(MASKED):
        for past, now in ((3, 2), (0, 0), (8, 4), (8, 0), (0, 1)):
            inputs = values(past, now)
            for order in permutations(inputs):
                for name in order:
                    one.insert({name: inputs[name]})
                one.run_step()
                assert one.fetch("y").shape == (past + now, 2)
                assert np.array_equal(one.fetch("z"), 2 * inputs["mask"])


def test_inputs_that_contradict_each_other_are_refused_where_the_sum_is_declared() -> None:
    for one in both(MASKED):
        error = failure(one, **values(3, 1, mask=5))
        assert error.code is Code.SIZE_CONFLICT
        assert "the inserted 'mask' is i32[5], but 'mask' is i32[P+T] with" in error.diagnostics[0].message
        assert error.diagnostics[0].span is not None
        assert failure(one, mask=np.zeros(13, np.int32)).code is Code.SIZE_CONFLICT


def test_lines_that_cross_decide_sizes_that_no_input_has_alone() -> None:
    for one in both(CROSSED):
        one.insert(a=np.arange(7), b=np.arange(3), c=np.arange(12))
        one.run_step()
        assert np.array_equal(one.fetch("y"), 2 * np.arange(7))
        assert failure(one, a=np.arange(7), b=np.arange(3), c=np.arange(11)).code is Code.SIZE_CONFLICT
        assert failure(one, a=np.arange(6), b=np.arange(3), c=np.arange(11)).code is Code.SIZE_CONFLICT


def test_a_sum_alone_decides_nothing() -> None:
    for one in both(OPEN):
        error = failure(one, mask=np.zeros(7, np.int32))
        assert error.code is Code.SIZE_CONFLICT
        assert "all they say is that 'P+T' of 'mask' is 7" in error.diagnostics[0].message
        assert error.diagnostics[0].span is not None
        assert error.diagnostics[0].help is not None


def test_a_slice_decides_the_size_that_inputs_leave_open() -> None:
    """``all: [P+T]`` with T of an input and P of the slice, also where there is no such P."""
    steps = [(1, 1), (3, 2), (12, 4), (1, 2), (0, 0), (9, 1)]
    agree(
        SLICED,
        inputs=lambda step: {"n": np.int32(steps[step][0]), "x": np.ones((steps[step][1], 2), np.float32)},
        steps=len(steps),
    )
