"""A further module of the same code: the weights are shared, the state is its own unless it is another's."""

import pytest

from openinfer import Synthesizer, graph
from openinfer.errors import ExecutionError

SUM = "dynamic { x: f32; } persistent { n: f32; } block entry { op add(n, x) >> n; return n; }"


def test_modules_of_the_same_code_share_weights_and_no_state() -> None:
    first = Synthesizer("generic").synthesize(None, graph(SUM)).build()
    second = first.another()
    assert (first(x=1.0), second(x=5.0), first(x=1.0)) == (1.0, 5.0, 2.0)
    assert second._weights is first._weights


def test_a_module_works_on_the_state_of_another() -> None:
    adds = Synthesizer("generic").synthesize(None, graph(SUM)).build()
    doubles = Synthesizer("generic").synthesize(None, graph(SUM.replace("add(n, x)", "mul(n, x)"))).build()
    shared = doubles.another(state_of=adds)
    assert (adds(x=3.0), shared(x=2.0), adds(x=1.0)) == (3.0, 6.0, 7.0)


def test_a_state_of_other_variables_is_not_shared() -> None:
    one = Synthesizer("generic").synthesize(None, graph(SUM)).build()
    other = Synthesizer("generic").synthesize(None, graph(SUM.replace("n: f32", "n: f32[2]"))).build()
    with pytest.raises(ExecutionError, match="E510"):
        one.another(state_of=other)
