"""What binding says about wrong graphs: every code, in exactly these words.

``diagnostics.txt`` holds the cases: a name that begins with the code, the source, an arrow, and what is printed. All of
them are bound to one small model, with B=4 and D=16 given by the caller.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.check.binding import mentioned

import openinfer
from openinfer import GraphError, ModelLoader, bind, graph
from openinfer.check import check
from openinfer.errors import Code
from openinfer.lang import parse
from openinfer.oinf import Bitset, UninitializedTensor, save_file

CASES = Path(__file__).with_name("diagnostics.txt")
SOURCE = Path(openinfer.__file__).parent
SIZES = {"B": 4, "D": 16}
GRAPH = graph("block entry { return; }")
OF_RUNNING = {Code.BAD_VALUE}
"""Codes of ops that only a step meets."""
OF_MISUSE = {Code.BAD_SOURCE_FILE, Code.NOT_A_MODEL_FILE}
"""Codes of arguments that are no graph and no model, which have a test below."""
OF_LIMITS = {Code.OUT_OF_MEMORY, Code.TOO_DEEP}
"""Codes of graphs that are too large for a case; ``tests/growth`` has them."""
FOR_STEPS = {"inserted.py", "one_call.py", "saved_state.py", "step_sizes.py"}
"""Modules that binding does not use: what the simulator and compiled code share."""


@cache
def cases() -> dict[str, tuple[str, str]]:
    found = {}
    for case in CASES.read_text(encoding="utf-8").removeprefix("=== ").rstrip("\n").split("\n\n=== "):
        name, _, rest = case.partition("\n")
        source, shown = rest.split("\n--->\n")
        found[name] = (source, shown)
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelLoader]:
    tensors = {
        "weight": np.ones((16, 8), np.float32),
        "scale": np.float32(0.5),
        "empty": UninitializedTensor("f32", (4,)),
        **{f"W.{layer}": np.ones((16, 16), np.float32) for layer in range(3)},
        "W.3": np.ones((16, 8), np.float32),
    }
    metadata = {"heads": 8, "eps": 1e-5, "mode": "fast", "mask": Bitset([True, False])}
    path = tmp_path_factory.mktemp("model") / "tiny.oinf"
    save_file(path, tensors, sizevars={"H": 8}, metadata=metadata)
    with ModelLoader.open(path) as opened:
        yield opened


every_case = pytest.mark.parametrize("name", cases())


@every_case
def test_a_mistake_is_reported_in_these_words(name: str, model: ModelLoader) -> None:
    source, shown = cases()[name]
    parsed = parse(source, "g.oig")
    assert parsed.problems == []
    assert (
        "\n".join(problem.render() for problem in check(parsed.graph, model, mentioned(parsed.graph, SIZES)).problems)
        == shown
    )


@every_case
def test_a_mistake_has_the_code_its_case_is_named_for(name: str, model: ModelLoader) -> None:
    built = parse(cases()[name][0]).graph
    found = check(built, model, mentioned(built, SIZES)).problems
    assert str(found[0].code) == name.split(maxsplit=1)[0]


@every_case
def test_bind_raises_all_errors(name: str, model: ModelLoader) -> None:
    source, shown = cases()[name]
    built = parse(source, "g.oig").graph
    with pytest.raises(GraphError) as caught:
        bind(built, model, mentioned(built, SIZES))
    assert str(caught.value) == shown


def test_every_code_of_binding_has_a_case() -> None:
    modules = [path for path in (SOURCE / "check").glob("*.py") if path.name not in FOR_STEPS]
    modules += [SOURCE / "ops" / f"{name}.py" for name in ("arguments", "infer", "types")]
    used = {name for path in modules for name in re.findall(r"\bCode\.([A-Z_]+)\b", path.read_text(encoding="utf-8"))}
    assert {Code[name] for name in used} - OF_RUNNING - OF_MISUSE - OF_LIMITS == {
        Code(name.split()[0]) for name in cases()
    }


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("block entry { return; }",), "E112"),
        ((None,), "E112"),
        ((GRAPH, "m.oinf"), "E701"),
        ((GRAPH, None, [4]), "E208"),
    ],
)
def test_arguments_of_other_kinds_are_refused_in_our_words(arguments: tuple[Any, ...], code: str) -> None:
    for function in (bind, check):
        with pytest.raises(GraphError) as caught:
            function(*arguments)
        assert str(caught.value.code) == code


def test_what_the_caller_gives_has_no_place_in_the_text() -> None:
    (problem,) = check(graph("dynamic { x: f32[N]; } block entry { return; }"), None, {"N": 2**70}).problems
    assert problem.render() == ("error[E303]: the size 'N' is an integer from 0 to 2**47, not 1180591620717411303424")


def test_advice_that_takes_a_search_is_for_the_first_problems_only() -> None:
    nodes = "op matmull(x, x) >> x; " * 100
    found = check(parse(f"dynamic {{ x: f32; }} block entry {{ {nodes} return; }}").graph).problems
    assert [problem.help for problem in found[:20]] == ["did you mean 'matmul' or 'mul'?"] * 20
    assert {problem.help for problem in found[20:]} == {"'openinfer ops' lists them"}
    assert len(found) == 100
