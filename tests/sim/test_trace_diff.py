"""Comparing traces: the first event that differs, by what and by how much; hostile documents."""

import json
import random
from typing import Any

import numpy as np
import pytest

from openinfer import Simulator, graph
from openinfer.errors import Code, OpenInferError
from openinfer.sim.compare import TraceComparison, compare, read_trace

SOURCE = """
dynamic { x: f32[4]; }
volatile { a: f32[4]; b: f32[4]; y: f32[4]; }
block entry {
    op mul(x, x) >> a;
    loop twice (i in 0..2) { op add(a, x) >> a; }
    op clamp(a, min=0.0, max=100.0) >> b;
    op neg(b) >> y;
    return y;
}
"""
HAND_OVER = """
dynamic { x: f32[64]; }
volatile { a: f32[64]; b: f32[64]; y: f32[64]; }
block entry { transfer x >> a; transfer x >> b; yield a, b; await a, b; op add(a, b) >> y; return y; }
block one { await a; op mul(a, a) >> a; op neg(a) >> a; yield a; }
block two { await b; op neg(b) >> b; yield b; }
"""


def traced(
    text: str = SOURCE, x: Any = (1.0, 2.0, 3.0, 4.0), level: str = "full", scheduler: str = "sequential"
) -> Any:
    executor = Simulator(scheduler=scheduler).with_trace(level).make_executor(graph(text))
    executor.insert(x=np.asarray(x, np.float32))
    executor.run_step()
    return executor.trace()


def compared(one: Any, other: Any, tolerance: float = 0.0) -> TraceComparison:
    return compare(read_trace(json.dumps(one), "a"), read_trace(json.dumps(other), "b"), tolerance)


def test_a_run_is_the_same_as_itself_whatever_the_times() -> None:
    found = compared(traced(), traced())
    assert (found.difference, found.with_values, found.events) == (None, True, (7, 7))


def test_the_first_node_with_another_value_is_found_with_the_amount() -> None:
    found = compared(traced(), traced(x=(1.0, 2.0, 3.0, 4.5))).difference
    assert found is not None
    assert (found.what, found.event.node_index, found.event.op_name, found.event.position) == ("value", 0, "mul", 0)
    deviations = {deviation.name: deviation for deviation in found.deviations}
    assert list(deviations) == ["a digest", "a max", "a mean", "a sample 3"]
    sample = deviations["a sample 3"]
    assert (sample.one, sample.other, sample.absolute) == (16.0, 20.25, 4.25)
    assert sample.relative == pytest.approx(4.25 / 20.25)
    assert str(sample) == "a sample 3: 16 against 20.25 (by 4.25, relative 0.21)"


def test_a_difference_inside_a_loop_names_the_iteration() -> None:
    other = traced()
    position = next(i for i, event in enumerate(other) if event.get("indices") == {"i": 1})
    other[position]["outputs"][0]["digest"] = "00000000"
    found = compared(traced(), other).difference
    assert found is not None
    assert found.event.indices == {"i": 1}
    assert "i=1" in found.event.title
    assert [deviation.name for deviation in found.deviations] == ["a digest"]


def test_a_tolerance_forgives_small_differences_but_no_nan() -> None:
    nearly = traced(x=(1.0, 2.0, 3.0, 4.000001))
    assert compared(traced(), nearly).difference is not None
    assert compared(traced(), nearly, 1e-5).difference is None
    assert compared(traced(), nearly, 1e-9).difference is not None
    broken = compared(traced(), traced(x=(1.0, 2.0, 3.0, np.nan)), 1e9).difference
    assert broken is not None
    assert "a nan: 0 against 1 (by 1, relative 1)" in map(str, broken.deviations)


def test_equal_nans_and_infinities_are_the_same() -> None:
    x = (np.nan, np.inf, -np.inf, 1.0)
    assert compared(traced(x=x), traced(x=x)).difference is None
    nearly = compared(traced(x=x), traced(x=(np.nan, np.inf, -np.inf, 1.0000001)), 1e-3)
    assert nearly.difference is None


def test_other_structure_is_told_before_values() -> None:
    found = compared(traced(), traced(SOURCE.replace("op neg(b)", "op abs(b)"))).difference
    assert found is not None
    assert (found.what, found.event.op_name) == ("structure", "neg")
    assert [str(deviation) for deviation in found.deviations] == ["op_name: neg against abs"]


def test_other_parameters_and_types_are_told() -> None:
    found = compared(traced(), traced(SOURCE.replace("max=100.0", "max=10.0"))).difference
    assert found is not None
    assert [str(deviation) for deviation in found.deviations] == ["parameter max: 100 against 10"]
    other = traced(SOURCE.replace("f32[4]", "f32[2]"), (1.0, 2.0))
    types = compared(traced(), other).difference
    assert types is not None
    assert types.what == "type"
    assert str(types.deviations[0]) == "input x: f32[4] against f32[2]"


def test_the_shorter_run_ends_where_the_longer_goes_on() -> None:
    longer = traced(SOURCE.replace("return y;", "barrier; barrier; return y;"))
    shorter = traced(SOURCE.replace("return y;", "barrier; return y;"))
    found = compared(longer, longer[:-1]).difference
    assert found is not None
    assert (found.what, found.other, found.event.kind) == ("end", None, "Return")
    reverse = compared(longer[:-1], longer).difference
    assert reverse is not None
    assert (reverse.what, reverse.one) == ("end", None)
    parted = compared(longer, shorter).difference
    assert parted is not None
    assert parted.what == "structure"


def test_traces_without_values_are_compared_by_structure_and_say_so() -> None:
    basic = traced(level="basic")
    assert (compared(basic, traced(x=(5.0, 6.0, 7.0, 8.0))).difference, compared(basic, traced()).with_values) == (
        None,
        False,
    )
    assert compared(basic, traced(SOURCE.replace("op neg(b)", "op abs(b)"), level="basic")).difference is not None


def test_two_schedules_of_a_run_are_the_same_run() -> None:
    x = np.arange(64)
    for _ in range(5):
        assert compared(traced(HAND_OVER, x), traced(HAND_OVER, x, scheduler="threaded")).difference is None
    other = traced(HAND_OVER.replace("op neg(b)", "op abs(b)"), x, scheduler="threaded")
    found = compared(traced(HAND_OVER, x), other).difference
    assert found is not None
    assert (found.event.thread, found.what) == ("two", "structure")


def test_facts_are_plain_json() -> None:
    infinite = compared(traced(), traced(x=(1.0, 2.0, 3.0, np.inf))).facts()
    text = json.dumps(infinite, allow_nan=False)
    assert json.loads(text)["difference"]["what"] == "value"
    assert json.dumps(compared(traced(), traced()).facts(), allow_nan=False)
    structure = compared(traced(), traced(SOURCE.replace("in 0..2", "in 0..3"))).facts()
    assert json.loads(json.dumps(structure))["difference"]["deviations"] == [
        {"name": "params", "a": ["i", "0", "2"], "b": ["i", "0", "3"]}
    ]


# --- documents from anywhere ------------------------------------------------------------------------------------------

EVENT = {"block_name": "entry", "node_index": 0, "kind": "Return", "op_name": "", "params": [], "output": []}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", Code.BAD_JSON),
        ("[", Code.BAD_JSON),
        ("\ufeff[]", Code.BAD_JSON),
        ("[" * 100_000, Code.BAD_JSON),
        ("[NaN]", Code.BAD_JSON),
        ("[1e999]", Code.BAD_JSON),
        ('[{"a": 1, "a": 2}]', Code.BAD_JSON),
        ("[" + "9" * 5_000 + "]", Code.BAD_JSON),
        ("3", Code.BAD_DOCUMENT),
        ("{}", Code.BAD_DOCUMENT),
        ('{"traceEvents": []}', Code.BAD_DOCUMENT),
        ("[3]", Code.BAD_DOCUMENT),
        ("[{}]", Code.BAD_DOCUMENT),
    ],
)
def test_a_text_that_is_no_trace_is_refused(text: str, code: Code) -> None:
    with pytest.raises(OpenInferError) as caught:
        read_trace(text, "t.json")
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("node_index", "0"),
        ("node_index", True),
        ("node_index", 10**30),
        ("kind", 3),
        ("kind", "\ud800"),
        ("params", "x"),
        ("params", [1]),
        ("thread", None),
        ("indices", [1]),
        ("indices", {"i": 1.5}),
        ("scope", [[]]),
        ("attrs", 3),
        ("attrs", {"a": {}}),
        ("attrs", {"a": [[[[[[[[[[1]]]]]]]]]]}),
        ("inputs", {}),
        ("outputs", [{}]),
        ("outputs", [{"name": "y", "shape": [1.5]}]),
        ("outputs", [{"name": "y", "min": "low"}]),
        ("outputs", [{"name": "y", "sample": ["x"]}]),
    ],
)
def test_an_event_with_a_wrong_value_is_refused_with_its_path(key: str, value: Any) -> None:
    with pytest.raises(OpenInferError) as caught:
        read_trace(json.dumps([EVENT, EVENT | {key: value}]), "t.json")
    assert caught.value.code is Code.BAD_DOCUMENT
    place = caught.value.diagnostics[0].span
    assert place is not None
    assert str(place.facts()["path"]).startswith(f"/1/{key}")


def test_a_document_without_optional_keys_is_a_trace() -> None:
    assert compared([EVENT], [EVENT | {"unknown": 3, "outputs": [{"name": "y"}]}]).difference is None
    assert compared([], []).difference is None


def test_mutants_of_a_trace_are_compared_or_refused() -> None:
    chance = random.Random(3)
    good = json.dumps(traced())
    events = read_trace(good, "good")
    refused = 0
    for _ in range(600):
        text = list(good)
        for _ in range(chance.randint(1, 3)):
            text[chance.randrange(len(text))] = chance.choice('{}[],:"0-9e.truenlx\\')
        try:
            compare(events, read_trace("".join(text), "mutant")).facts()
        except OpenInferError:
            refused += 1
    assert refused > 50
