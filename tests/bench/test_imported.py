"""The table of imported models: what models are fed, how it goes on after an interruption, and where it is written."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from bench.imported import __main__ as command
from bench.imported.floats import float_model
from bench.imported.measure import Result, interleaved, node_count
from bench.imported.models import MODELS, RealModel, feeds_of, tied
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


@dataclass(frozen=True)
class Port:
    """An input as ONNX Runtime describes it."""

    name: str
    type: str
    shape: list[int | str | None]


GROWING = RealModel("m", "", "", {"T": 2}, states=(("present.*", "past.*"),), growing={"past": 2}, fixed={"sr": 5})


def test_states_begin_empty_and_are_what_the_step_before_gave() -> None:
    ports = [
        Port("ids", "tensor(int64)", [1, "T"]),
        Port("position_ids", "tensor(int64)", [1, "T"]),
        Port("mask", "tensor(int64)", [1, "past + T"]),
        Port("past.0", "tensor(float)", [1, "past", 3]),
        Port("sr", "tensor(int64)", []),
    ]
    first = feeds_of(GROWING, ports, 0, {})
    assert {name: array.shape for name, array in first.items()} == {
        "ids": (1, 2),
        "position_ids": (1, 2),
        "mask": (1, 2),
        "past.0": (1, 0, 3),
        "sr": (),
    }
    states = tied(GROWING, {"logits": np.zeros(3), "present.0": np.ones((1, 2, 3))})
    second = feeds_of(GROWING, ports, 1, states)
    assert second["past.0"].shape == (1, 2, 3)
    assert second["mask"].shape == (1, 4)
    assert second["position_ids"].tolist() == [[2, 3]]
    assert second["sr"] == 5


def test_all_models_have_names_of_their_own() -> None:
    assert len({model.name for model in MODELS}) == len(MODELS) == 27


def test_a_model_in_floats_has_no_rounding_left(tmp_path: Path) -> None:
    weights = np.array([[3, -4], [5, 100]], np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["codes", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["codes", "w", "zero", "w_zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "scale"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in "xy"]
    stored = [onnx.numpy_helper.from_array(weights, "w"), onnx.numpy_helper.from_array(np.array(2, np.int8), "w_zero")]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "q.onnx")
    float_model(tmp_path / "q.onnx", tmp_path / "f.onnx")
    x = np.array([[0.3, -0.7]], np.float32)
    (found,) = ReferenceEvaluator(str(tmp_path / "f.onnx")).run(None, {"x": x})
    np.testing.assert_allclose(np.asarray(found), x @ (weights - np.float32(2)), rtol=1e-6)
    assert node_count(onnx.load(tmp_path / "f.onnx").graph) == 9


def test_each_step_is_timed_and_the_median_taken() -> None:
    times = [iter([9.0, 1.0, *[0.25] * 90]), iter([9.0, 1.0, *[0.5] * 90])]
    assert interleaved([lambda: next(times[0]), lambda: next(times[1])], 3) == [250.0, 500.0]


RESULT = Result("m", 10, 20, 1, 0.25, 4, 2e-7, 3e-7, 1.234, 250.4)


def test_only_near_results_agree() -> None:
    assert RESULT.agrees
    assert not Result("m", 1, 1, 0, 0.1, 1, 2e-3, 0, 1, 1).agrees
    assert Result("m", 1, 1, 0, 0.1, 1, 0.1, 0.1, 1, 1, runtime=0.09).agrees
    assert not Result("m", 1, 1, 0, 0.1, 1, 0.2, 0.1, 1, 1, runtime=0.09).agrees


def test_what_is_done_is_kept_and_the_table_goes_between_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (RealModel(name, "", "") for name in ("m", "n"))
    document = tmp_path / "page.md"
    document.write_text(f"before\n{command.BEGIN}old\n{command.END}behind\n")
    monkeypatch.setattr(command, "MODELS", (first, second))
    monkeypatch.setattr(command, "DOCUMENT", document)
    monkeypatch.setattr(sys, "argv", ["bench", "--folder", str(tmp_path), "--write"])
    path = command.result_path(tmp_path, first)
    path.parent.mkdir()
    path.write_text(json.dumps(RESULT.facts()))
    asked: list[str] = []

    def run(model: RealModel, _given: object) -> str | None:
        asked.append(model.name)
        return "not done after 600 s"

    monkeypatch.setattr(command, "run_apart", run)
    assert command.main() == 1
    assert asked == ["n"], "m was done before"
    assert "n: not done after 600 s" in capsys.readouterr().err
    assert "old" in document.read_text(), "a table that is not whole is not written"

    def done(model: RealModel, _given: object) -> str | None:
        command.result_path(tmp_path, model).write_text(json.dumps({**RESULT.facts(), "name": "n", "runtime": 0.5}))
        return None

    monkeypatch.setattr(command, "run_apart", done)
    assert command.main() == 0
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("behind\n")
    assert "| m | 10 | 20 | 1 | 0.2 | 4 | 2e-07 | 3e-07 | 1.23 | 250 |\n" in text
    assert "| n | 10 | 20 | 1 | 0.2 | 4 | 2e-07 (5e-01) | 3e-07 (5e-01) | 1.23 | 250 |\n" in text
