"""Large graphs: binding takes time in proportion to their nodes."""

from time import process_time

import pytest
from tests.check.binding import mentioned
from tests.lang.sketches import sketch

from openinfer.check import check
from openinfer.ir import Graph
from openinfer.lang import graph

NODES = 40_000
SECONDS = 15
"""Two or three seconds on an idle machine; a minute wherever something grows with the square of the nodes."""


def bound_in_time(source: Graph, problems: int = 0) -> bool:
    """Whether binding finds so many problems within the time."""
    started = process_time()
    found = check(source, None, mentioned(source, {"B": 4})).problems
    elapsed = process_time() - started
    assert len(found) == problems
    return elapsed < SECONDS


@pytest.fixture(scope="module")
def chain() -> Graph:
    """Temporaries, each computed from the one before it."""
    nodes = "".join(f"assign h{at + 1}: f32[B]; op neg(h{at}) >> h{at + 1}; " for at in range(NODES // 2))
    return graph(f"dynamic {{ h0: f32[B]; }} block entry {{ {nodes} return; }}")


def test_forty_thousand_nodes_with_a_temporary_for_every_second_one_are_bound(chain: Graph) -> None:
    assert bound_in_time(chain)


def test_ten_thousand_unknown_ops_are_reported() -> None:
    nodes = "op nag(x) >> x; " * 10_000
    assert bound_in_time(sketch(f"dynamic {{ x: f32[B]; }} block entry {{ {nodes} return; }}"), 10_000)


def test_ten_thousand_unknown_sizes_are_reported_as_one_missing_model() -> None:
    declared = "".join(f"v{at}: f32[size_{at}]; " for at in range(10_000))
    assert bound_in_time(graph(f"volatile {{ {declared} }} block entry {{ return; }}"), 1)


def test_thousands_of_branches_to_a_block_with_thousands_of_variables_are_bound() -> None:
    declared = "".join(f"v{at}: f32; " for at in range(3000))
    nodes = "".join(f"op neg(x) >> v{at}; " for at in range(3000))
    text = f"dynamic {{ x: f32; }} volatile {{ {declared} }} block entry {{ {'branch all; ' * 5000} return; }}"
    assert bound_in_time(graph(f"{text} block all {{ {nodes} return; }}"))
