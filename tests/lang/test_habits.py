"""What newcomers from PyTorch, NumPy, ONNX, C and Rust write first, and what they are told, in exactly these words.

``habits.txt`` holds the cases: a name, the source, an arrow, and what is printed. ``python -m tests.lang.test_habits``
writes the answers anew; read the difference before you commit it.
"""

from functools import cache
from pathlib import Path

import pytest

from openinfer.errors import GraphError
from openinfer.ir.op_names import OP_NAMES, op_called
from openinfer.lang import graph
from openinfer.ops import OPS

CASES = Path(__file__).with_name("habits.txt")


@cache
def cases() -> dict[str, tuple[str, str]]:
    found = {}
    for case in CASES.read_text(encoding="utf-8").removeprefix("=== ").rstrip("\n").split("\n\n=== "):
        name, _, rest = case.partition("\n")
        source, _, shown = rest.partition("\n--->\n")
        found[name] = (source, shown)
    return found


def told(source: str) -> str:
    with pytest.raises(GraphError) as caught:
        graph(source, "g.oig")
    return str(caught.value)


@pytest.mark.parametrize("name", cases())
def test_a_habit_from_elsewhere_is_answered_in_these_words(name: str) -> None:
    source, shown = cases()[name]
    assert told(source) == shown


@pytest.mark.parametrize("name", cases())
def test_one_mistake_is_one_error_with_a_place_and_a_remedy(name: str) -> None:
    shown = cases()[name][1]
    assert shown.count("error[") == shown.count(" --> g.oig:") == shown.count("= help: ")
    assert shown.count("error[") == 1 or name.startswith("two ")


def test_the_names_of_ops_are_those_of_the_records() -> None:
    assert OPS.keys() == OP_NAMES


@pytest.mark.parametrize("name", ["Conv2d", "MaxPool", "ReduceSum", "cat", "permute", "LayerNormalization", "Gemm"])
def test_what_other_frameworks_call_an_op_leads_to_ours(name: str) -> None:
    advice = op_called(name)
    assert advice.startswith("it is called '")
    assert advice.split("'")[1] in OPS


if __name__ == "__main__":
    parts = [f"=== {name}\n{source}\n--->\n{told(source)}\n" for name, (source, _) in cases().items()]
    CASES.write_text("\n".join(parts), encoding="utf-8")
