"""Ops that need several dynamic sizes to fit each other: compiled code accepts what the simulator accepts, no less.

Combinations of sizes at 0, 1, between, and at their bounds run in both; results, codes and places are compared.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import planned
from tests.synth.flags import TRAPS

from openinfer import ExecutionError, Simulator, graph
from openinfer.errors import Code, GraphError

TOGETHER: dict[str, tuple[tuple[int, int], str, str, str]] = {
    # --- the bounds of T and U, the shapes of x and y, and what is computed ---
    "a size of at most 1 is stretched": ((1, 4), "T", "U", "z = op add(x, y);"),
    "a window of a size": ((9, 4), "1, 1, T", "1, 1, U", "z = op conv1d(x, y);"),
    "a window of a fixed length": ((9, 4), "1, 1, T", "U, 1, 3", "z = op conv1d(x, y);"),
    "as many as a size": ((9, 4), "T", "U", "z, i = op topk(x, k=U, axis=0);"),
    "a part up to a size": ((9, 4), "T, 2", "U, 2", "z = op sum_axis(x[1..U, ], axes=[0]);"),
}


def both(bounds: tuple[int, int], x: str, y: str, nodes: str) -> list[Any]:
    text = (
        f"sizes {{ T <= {bounds[0]}; U <= {bounds[1]}; }} dynamic {{ x: f32[{x}]; y: f32[{y}]; }}"
        f" block entry {{ {nodes} return z; }}"
    )
    return [Simulator().with_trace("off").make_executor(graph(text)), planned(text).build("gcc", TRAPS)]


def ones(shape: str, **sizes: int) -> Any:
    return np.ones([sizes[dim] if dim in sizes else int(dim) for dim in shape.split(", ")], np.float32)


def outcome(one: Any, **inputs: Any) -> Any:
    try:
        found = one(inputs)
    except ExecutionError as error:
        one.reset()
        return error.code, error.diagnostics[0].span
    return found.tolist()


@pytest.mark.parametrize("name", TOGETHER)
def test_sizes_are_judged_together(name: str) -> None:
    """Not each with the others at their bounds, which refuses what has a result."""
    bounds, x, y, nodes = TOGETHER[name]
    executor, module = both(bounds, x, y, nodes)
    results = 0
    for t, u in product(*(sorted({0, 1, bound // 2, bound}) for bound in bounds)):
        inputs = {"x": ones(x, T=t, U=u), "y": ones(y, T=t, U=u)}
        wanted, found = (outcome(one, **inputs) for one in (executor, module))
        assert found == wanted, (t, u)
        results += isinstance(wanted, list)
    assert results > 3


def test_a_result_of_another_rank_has_one_code_whatever_its_values_are() -> None:
    """The rank of the result is a size: shapes are judged before the indices, which here are outside."""
    text = (
        "sizes { T <= 2; } dynamic { x: f32[T, 3, 5]; ids: i64[T, 4, T]; }"
        " block entry { z = op gather_nd(x, ids); return z; }"
    )
    executor = Simulator().with_trace("off").make_executor(graph(text))
    module = planned(text).build("gcc", TRAPS)
    for size, index in product((0, 1, 2), (0, 7)):
        inputs = {"x": np.ones((size, 3, 5), np.float32), "ids": np.full((size, 4, size), index)}
        assert outcome(module, **inputs) == outcome(executor, **inputs), (size, index)


@pytest.mark.parametrize(
    ("bounds", "x", "y"), [((2, 1), "T", "2"), ((3, 3), "T", "U"), ((2, 3), "3", "U"), ((2, 3), "T+1", "U")]
)
def test_sizes_that_fit_by_accident_where_types_are_checked_are_not_synthesized(
    bounds: tuple[int, int], x: str, y: str
) -> None:
    """At 1, one of them is stretched: code for equal extents would read beyond its end."""
    text = (
        f"sizes {{ T <= {bounds[0]}; U <= {bounds[1]}; }} dynamic {{ x: f32[{x}]; y: f32[{y}]; t: f32[T]; u: f32[U]; }}"
        " block entry { z = op add(x, y); return z; }"
    )
    Simulator().make_executor(graph(text))
    with pytest.raises(GraphError) as caught:
        planned(text)
    assert caught.value.code is Code.NOT_SYNTHESIZED


def test_a_size_of_at_most_1_is_stretched_to_one_of_at_most_2() -> None:
    executor, module = both((1, 2), "T", "U", "z = op add(x, y);")
    for t, u in product((0, 1), (0, 1, 2)):
        inputs = {"x": ones("T", T=t), "y": ones("U", U=u)}
        assert outcome(module, **inputs) == outcome(executor, **inputs), (t, u)
