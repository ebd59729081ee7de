"""Sizes that are multiples of others: what rounds down without them divides evenly with them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tests.cli.in_process import openinfer
from tests.importing.models import imported, model, node, require_agreement

from openinfer import ImportingError
from openinfer.errors import Code
from openinfer.ir.expr import evaluate
from openinfer.ir.operand_text import parse_expr
from openinfer.ir.polynomial import expr_of, form_of

RNG = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def down_and_up() -> Any:
    """Two halvings, one doubling, and a sum of both levels, as detectors have it."""
    return model(
        [
            node("Conv", ["x", "w"], ["a"], strides=[2], pads=[1, 1]),
            node("Conv", ["a", "w"], ["b"], strides=[2], pads=[1, 1]),
            node("Resize", ["b", "", "scales"], ["up"], mode="nearest"),
            node("Add", ["a", "up"], ["y"]),
        ],
        {"x": ("f32", [1, 1, "length"])},
        {"y": ("f32", None)},
        {"w": normal(1, 1, 3), "scales": np.array([1, 1, 2], np.float32)},
    )


def test_levels_of_a_pyramid_fit_for_multiples(tmp_path: Path) -> None:
    for length in (4, 12, 20):
        found = require_agreement(
            down_and_up(), tmp_path, {"x": normal(1, 1, length)}, sizes={"length": "4*n", "n": "<=5"}
        )
    assert "x: f32[1, 1, 4*n];" in found
    assert "y: f32[1, 1, 2*n];" in found


def test_the_multiples_with_which_an_op_would_work_are_advised(tmp_path: Path) -> None:
    with pytest.raises(ImportingError) as caught:
        imported(down_and_up(), tmp_path, sizes={"length": "<=20"})
    assert "multiples of 4: --size 'NAME=4*n' --size 'n<=BOUND'" in str(caught.value)


def test_a_size_can_have_a_least_value(tmp_path: Path) -> None:
    """The larger of a length and 8 is the length, if that is never less."""
    made = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Max", ["s", "least"], ["m"]),
            node("Reshape", ["x", "m"], ["y"]),
        ],
        {"x": ("f32", ["length"])},
        {"y": ("f32", None)},
        {"least": np.array([8])},
    )
    for length in (8, 14):
        found = require_agreement(made, tmp_path, {"x": normal(length)}, sizes={"length": "8+more", "more": "<=6"})
    assert "x: f32[8+more];" in found


def test_powers_of_sizes_are_sizes(tmp_path: Path) -> None:
    """As relative attention computes the length of a flattened matrix."""
    made = model(
        [
            node("Shape", ["x"], ["s"], start=0, end=1),
            node("Pow", ["s", "two"], ["square"]),
            node("MatMul", ["x", "y"], ["product"]),
            node("Reshape", ["product", "square"], ["z"]),
        ],
        {"x": ("f32", ["length", 3]), "y": ("f32", [3, "length"])},
        {"z": ("f32", None)},
        {"two": np.array([2])},
    )
    feeds = {"x": normal(4, 3), "y": normal(3, 4)}
    assert "z: f32[length*length];" in require_agreement(made, tmp_path, feeds, sizes={"length": "<=5"})


def test_expressions_are_read_by_the_command(tmp_path: Path) -> None:
    imported(down_and_up(), tmp_path, sizes={"length": 8})
    sizes = ("--size", "length=4*n", "--size", "n<=5")
    done = openinfer("import", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "out"), *sizes)
    assert done.status == 0, done.err


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"length": "4*n"}, "a size has no value: 'n'"),
        ({"length": "4*length"}, "is computed from itself"),
        ({"length": "4*n", "n": "length/4"}, "is computed from itself"),
        ({"length": "n-8", "n": "<=9"}, "can be less than 0"),
        ({"length": "4*(n", "n": "<=9"}, "is not an expression"),
        ({"length": "8/(n-n)", "n": "<=9"}, "is not an expression"),
        ({"length": "<=n", "n": 4}, "a number, a bound or an expression, not 'n'"),
    ],
    ids=["open", "itself", "circle", "negative", "parenthesis", "zero", "bound"],
)
def test_expressions_that_are_none_are_refused(tmp_path: Path, sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ImportingError, match=re.escape(message)):
        imported(down_and_up(), tmp_path, sizes=sizes)


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_padding_to_the_same_size_is_known_for_multiples_of_the_stride(tmp_path: Path, auto: str) -> None:
    made = model(
        [
            node("Conv", ["x", "w"], ["c"], strides=[3], auto_pad=auto),
            node("ConvTranspose", ["c", "t"], ["y"], strides=[3], auto_pad=auto),
        ],
        {"x": ("f32", [1, 1, "length"])},
        {"y": ("f32", None)},
        {"w": normal(1, 1, 5), "t": normal(1, 1, 4)},
    )
    for length in (6, 15):
        require_agreement(made, tmp_path, {"x": normal(1, 1, length)}, sizes={"length": "3*n", "n": "<=5"})


def test_a_multiple_is_split_evenly(tmp_path: Path) -> None:
    made = model(
        [node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2), node("Sub", ["a", "b"], ["y"])],
        {"x": ("f32", ["length", 3])},
        {"y": ("f32", None)},
        opset=18,
    )
    require_agreement(made, tmp_path, {"x": normal(6, 3)}, sizes={"length": "2*n", "n": "<=5"})
    with pytest.raises(ImportingError, match="it splits a dynamic size into equal parts") as caught:
        imported(made, tmp_path, sizes={"length": "<=10"})
    assert "NAME=2*n" in str(caught.value)


def test_what_a_branch_cannot_do_names_the_input_that_decides(tmp_path: Path) -> None:
    """One branch only works for another length. Nothing else is said of what its failure leaves open."""

    def branch(name: str, nodes: list[Any]) -> Any:
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", 1, None)])

    then = branch("then", [node("Relu", ["x"], ["then_y"])])
    other = branch("other", [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["other_y"])])
    made = model(
        [
            node("Equal", ["rate", "wide"], ["is_wide"]),
            node("If", ["is_wide"], ["y"], name="choose", then_branch=then, else_branch=other),
        ],
        {"x": ("f32", [2, 4]), "rate": ("i64", [])},
        {"y": ("f32", None)},
        {"wide": np.int64(16), "w": normal(3, 3)},
    )
    with pytest.raises(ImportingError) as caught:
        imported(made, tmp_path)
    (problem,) = caught.value.diagnostics
    assert problem.code is Code.UNSUPPORTED_NODE
    assert "MatMul" in problem.message
    assert problem.help is not None
    assert "'choose'; --fix 'rate=VALUE'" in problem.help
    imported(made, tmp_path, fixed={"rate": 16})


def test_canonical_forms_take_whole_multiples_out_of_divisions() -> None:
    """Every form has the value of its expression, and those without rounding are polynomials."""
    texts = ["(32*n-1)/2+1", "(3*n+7)/3", "(6*n+5)%3", "((8*n+1)/2+1)/4", "(7-4*n)/2", "(5*n)/5-n"]
    for text in texts:
        short = expr_of(form_of(parse_expr(text)), {"n"})
        assert short is not None, text
        for n in range(-4, 5):
            at = {"n": n}.__getitem__
            assert evaluate(short, at) == evaluate(parse_expr(text), at), (text, n)
    for one, other in [("(n+5)/2", "(n+1)/2+2"), ("(3*n)/2", "n+n/2"), ("(n+4)%2", "n%2"), ("(5*n-1)%3", "(2*n+2)%3")]:
        assert form_of(parse_expr(one)) == form_of(parse_expr(other))
    assert form_of(parse_expr("(n+1)/2")) != form_of(parse_expr("n/2"))
