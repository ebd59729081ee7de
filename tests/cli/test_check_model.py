"""``openinfer check`` with a model and sizes: every link, type and shape, all problems at once."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.in_process import openinfer

from openinfer.oinf import save_file

MLP = """
sizes { T <= 16; }
dynamic { x: f32[T, D]; }
volatile { w: f32[D, H]; b: f32[H]; y: f32[T, H]; }
constant { scale: f32 @init(2.0); }
persistent { steps: i32 @init(0); }
block entry {
    assign h: f32[T, H];
    op matmul(x, w) >> h;
    op add(h, b) >> y;
    cache.increment steps;
    return y;
}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.oinf"
    save_file(path, {"w": np.ones((4, 3), np.float32), "b": np.ones(3, np.float32)}, {"D": 4, "H": 3})
    return str(path)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "g.oig"
    path.write_text(MLP)
    return path


def test_a_graph_that_fits_says_what_was_bound(graph: Path, model: str) -> None:
    done = openinfer("check", str(graph), "--model", model)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{graph}: no problems",
        f"  variables  7: 1 dynamic, 3 volatile, 1 constant, 1 persistent, 1 temporary; 2 filled from {model}",
        "  nodes      5",
        "  sizes      D=4, H=3, T<=16",
    ]


def test_sizes_alone_are_enough_where_nothing_is_linked(graph: Path) -> None:
    done = openinfer("check", str(graph), "--size", "D=2", "--size", "H=5", "--size", "T=3")
    assert (done.status, done.err) == (0, "")
    assert done.out.endswith("  sizes      D=2, H=5, T=3\n")


def test_problems_with_the_model_are_reported_together(graph: Path, model: str) -> None:
    text = MLP.replace("b: f32[H]", "b: f16[H]").replace("y: f32[T, H]", "y: f32[T, D]")
    graph.write_text(text.replace("matmul(x, w)", "matmull(x, w)"))
    done = openinfer("check", str(graph), "-m", model)
    assert (done.status, done.out) == (1, "")
    assert "error[E311]" in done.err
    assert "error[E206]" in done.err
    assert f"{graph}:4:" in done.err


def test_a_size_against_the_graph_is_an_error(graph: Path, model: str) -> None:
    done = openinfer("check", str(graph), "-m", model, "--size", "T=17")
    assert (done.status, "error[E312]" in done.err) == (1, True)


def test_a_size_that_the_graph_does_not_mention_is_an_error(graph: Path, model: str) -> None:
    graph.write_text(MLP.replace("T", "Tokens"))
    for command in (("check", str(graph)), ("run", str(graph), "-i", "x=1"), ("trace", str(graph), "-i", "x=1")):
        assert openinfer(*command, "-m", model, "--size", "Tokens=2").status == 0
        done = openinfer(*command, "-m", model, "--size", "Token=2", "--size", "Q=1")
        assert (done.status, done.err.count("error[E208]")) == (1, 2)
        assert "did you mean 'Tokens'?" in done.err


def test_without_a_model_a_graph_that_needs_one_is_checked_for_structure_and_ops(graph: Path) -> None:
    graph.write_text(MLP.replace("matmul(x, w)", "matmul(x)"))
    done = openinfer("check", str(graph))
    assert (done.status, done.out, done.err) == (0, f"{graph}: no problems\n", "")
    graph.write_text(MLP.replace("matmul(x, w)", "matmull(x, w)"))
    done = openinfer("check", str(graph))
    assert (done.status, done.err.count("error[")) == (1, 1)
    assert "there is no op 'matmull'" in done.err
    assert "did you mean 'matmul'" in done.err
    assert "error[E208]" in openinfer("check", str(graph), "--size", "T=3").err


def test_a_graph_that_needs_no_model_is_checked_in_full(tmp_path: Path) -> None:
    path = tmp_path / "self.oig"
    path.write_text("dynamic { x: f32[3]; } volatile { y: f32[4]; } block entry { op neg(x) >> y; return; }")
    done = openinfer("check", str(path))
    assert (done.status, "error[E309]" in done.err) == (1, True)


def test_errors_of_structure_come_first_and_alone(graph: Path) -> None:
    graph.write_text(MLP.replace("return y;", "return z;"))
    done = openinfer("check", str(graph), "-m", "missing.oinf")
    assert done.err.count("error[") == 1
    assert "error[E201]" in done.err


def test_warnings_are_shown_once_and_do_not_fail(graph: Path, model: str) -> None:
    graph.write_text(MLP.replace("constant {", "constants {").replace("return y;", "yield h; return y;"))
    done = openinfer("check", str(graph), "-m", model)
    assert (done.status, done.err.count("warning[W901]"), done.err.count("warning[W902]")) == (0, 1, 1)
    assert done.out.startswith(f"{graph}: no errors\n  variables  7")


def test_strictness_reaches_the_graph(graph: Path, model: str) -> None:
    graph.write_text(MLP.replace("y: f32[T, H]", "y: f32[T, H] @layout(a)"))
    assert openinfer("check", str(graph), "-m", model).status == 0
    assert "error[E204]" in openinfer("check", str(graph), "-m", model, "--strict").err


def test_json_lists_the_diagnostics_of_the_model_too(graph: Path, model: str) -> None:
    assert json.loads(openinfer("check", str(graph), "--json", "-m", model).out) == []
    graph.write_text(MLP.replace("b: f32[H]", "b: f16[H]"))
    done = openinfer("check", str(graph), "--json", "-m", model)
    assert (done.status, done.err) == (1, "")
    assert {found["code"] for found in json.loads(done.out)} >= {"E311"}
    missing = json.loads(openinfer("check", str(graph), "--json", "-m", "missing.oinf").out)
    assert [found["code"] for found in missing] == ["E701"]


def test_a_json_graph_is_bound_too(graph: Path, model: str, tmp_path: Path) -> None:
    document = tmp_path / "g.json"
    assert openinfer("graph", "to-json", str(graph), "-o", str(document)).status == 0
    assert openinfer("check", str(document), "-m", model).out.startswith(f"{document}: no problems\n  variables  7")


@pytest.mark.parametrize("size", ["T", "T=", "T=-1", "T=1.5", "=3x"])
def test_a_malformed_size_is_wrong_usage(graph: Path, size: str) -> None:
    done = openinfer("check", str(graph), "--size", size)
    assert (done.status, "Invalid value for --size" in done.err) == (2, True)
