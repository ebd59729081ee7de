"""Results whose length depends on data: as many places as a bound says, what exists first, and how much that is."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.importing.models import imported, model, node

from openinfer import ImportingError, ModelLoader, OpenInferError, Simulator, load_graph

RNG = np.random.default_rng(2)


def both(made: Any, folder: Path, feeds: dict[str, Any], **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results here and those of ONNX Runtime."""
    found = imported(made, folder, **options)
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"))
    wanted = dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds), strict=True))
    with ModelLoader.open(found.model) as weights:
        executor = Simulator(weights).make_executor(load_graph(found.graph))
        executor.insert(**{found.inputs[name]: value for name, value in feeds.items()})
        executor.run_step()
        return {name: executor.fetch(variable) for name, variable in found.outputs.items()}, wanted


def boxes_model(classes: int, centre: int, most: int = 5) -> Any:
    """Non-maximum suppression, and what detectors do with it: the boxes and the scores of what is left."""
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["rows"], center_point_box=centre),
        node("Slice", ["rows", "two", "three", "one"], ["column"]),
        node("Squeeze", ["column", "one"], ["index"]),
        node("Squeeze", ["boxes", "zero"], ["flat"]),
        node("Gather", ["flat", "index"], ["found"], axis=0),
        node("Mul", ["found", "factor"], ["scaled"]),
    ]
    weights = {
        "most": np.array([most]), "overlap": np.array([0.4], np.float32), "least": np.array([0.3], np.float32),
        "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "three": np.array([3]),
        "factor": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    inputs: Any = {"boxes": ("f32", [1, 20, 4]), "scores": ("f32", [1, classes, 20])}
    return model(nodes, inputs, {"rows": ("i64", None), "scaled": ("f32", None)}, weights)


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("centre", [0, 1])
def test_boxes_that_overlap_better_ones_go(tmp_path: Path, classes: int, centre: int) -> None:
    boxes = RNG.uniform(0, 6, (1, 20, 4)).astype(np.float32)
    feeds = {"boxes": boxes, "scores": RNG.uniform(0, 1, (1, classes, 20)).astype(np.float32)}
    found, wanted = both(boxes_model(classes, centre), tmp_path, feeds, sizes={"rows[0]": "<=16"})
    count = int(found["rows.count"])
    assert count == len(wanted["rows"]) > 1
    assert np.array_equal(found["rows"][:count], wanted["rows"])
    assert np.all(found["rows"][count:] == -1)
    assert np.allclose(found["scaled"][:count], wanted["scaled"])
    assert found["scaled"].shape == (16, 4)


def test_more_entries_than_the_bound_stop_the_run(tmp_path: Path) -> None:
    made = model([node("NonZero", ["x"], ["y"])], {"x": ("f32", [6])}, {"y": ("i64", None)})
    assert (
        both(made, tmp_path, {"x": np.array([0, 1, 1, 0, 1, 0], np.float32)}, sizes={"y[1]": "<=3"})[0]["y.count"] == 3
    )
    with pytest.raises(OpenInferError):
        both(made, tmp_path, {"x": np.ones(6, np.float32)}, sizes={"y[1]": "<=5"})


def test_a_length_that_depends_on_data_needs_a_bound(tmp_path: Path) -> None:
    made = model([node("NonZero", ["x"], ["y"])], {"x": ("f32", [6])}, {"y": ("i64", None)})
    with pytest.raises(ImportingError) as caught:
        imported(made, tmp_path)
    assert "--size 'y[1]<=BOUND'" in str(caught.value)


def test_coordinates_of_what_is_not_zero(tmp_path: Path) -> None:
    made = model([node("NonZero", ["x"], ["y"])], {"x": ("f32", [3, 4])}, {"y": ("i64", None)})
    x = (RNG.uniform(0, 1, (3, 4)) > 0.5).astype(np.float32)
    found, wanted = both(made, tmp_path, {"x": x}, sizes={"y[1]": "<=12"})
    assert np.array_equal(found["y"][:, : int(found["y.count"])], wanted["y"])


@pytest.mark.parametrize("axis", [0, 1, None])
def test_slices_where_a_condition_is_true(tmp_path: Path, axis: int | None) -> None:
    attributes: Any = {} if axis is None else {"axis": axis}
    inputs: Any = {"x": ("f32", [3, 4]), "c": ("bool", [3])}
    made = model([node("Compress", ["x", "c"], ["y"], **attributes)], inputs, {"y": ("f32", None)})
    feeds = {"x": RNG.standard_normal((3, 4)).astype(np.float32), "c": np.array([True, False, True])}
    found, wanted = both(made, tmp_path, feeds, sizes={f"y[{axis or 0}]": "<=3"})
    assert int(found["y.count"]) == 2
    assert np.array_equal(np.take(found["y"], [0, 1], axis or 0), wanted["y"])


def test_elements_that_occur(tmp_path: Path) -> None:
    made = model([node("Unique", ["x"], ["y"])], {"x": ("i64", [8])}, {"y": ("i64", None)})
    found, wanted = both(made, tmp_path, {"x": np.array([3, 1, 1, 7, 3, 3, 0, 7])}, sizes={"y[0]": "<=8"})
    assert np.array_equal(found["y"][: int(found["y.count"])], wanted["y"])


@pytest.mark.parametrize(
    "last",
    [
        node("ReduceSum", ["e"], ["y"], keepdims=0),
        node("Softmax", ["e"], ["y"], axis=0),
        node("Concat", ["e", "e"], ["y"], axis=0),
        node("Shape", ["e"], ["y"]),
        node("CumSum", ["e", "zero"], ["y"]),
        node("Slice", ["e", "one", "two"], ["y"]),
        node("MatMul", ["e", "e"], ["y"]),
    ],
    ids=lambda one: one.op_type,
)
def test_what_joins_entries_is_refused(tmp_path: Path, last: Any) -> None:
    nodes = [node("Compress", ["x", "c"], ["e"], axis=0), last]
    weights = {"zero": np.int64(0), "one": np.array([0]), "two": np.array([2])}
    inputs: Any = {"x": ("f32", [4]), "c": ("bool", [4])}
    kind = "i64" if last.op_type == "Shape" else "f32"
    with pytest.raises(ImportingError, match="number depends on data"):
        imported(model(nodes, inputs, {"y": (kind, None)}, weights), tmp_path, sizes={"e[0]": "<=3"})


def test_what_keeps_entries_apart_is_imported(tmp_path: Path) -> None:
    nodes = [
        node("Compress", ["x", "c"], ["e"], axis=0),
        node("Softmax", ["e"], ["s"], axis=-1),
        node("MatMul", ["s", "w"], ["p"]),
        node("Concat", ["p", "e"], ["both"], axis=1),
        node("ReduceMax", ["both"], ["m"], axes=[1], keepdims=1),
        node("Sub", ["both", "m"], ["d"]),
        node("Reshape", ["d", "shape"], ["r"]),
        node("Transpose", ["r"], ["y"], perm=[1, 0, 2]),
    ]
    weights = {"w": RNG.standard_normal((4, 2)).astype(np.float32), "shape": np.array([-1, 3, 2])}
    inputs: Any = {"x": ("f32", [5, 4]), "c": ("bool", [5])}
    feeds = {"x": RNG.standard_normal((5, 4)).astype(np.float32), "c": np.array([True, False, True, False, True])}
    found, wanted = both(model(nodes, inputs, {"y": ("f32", None)}, weights), tmp_path, feeds, sizes={"e[0]": "<=4"})
    assert np.allclose(found["y"][:, :3], wanted["y"], atol=1e-6)
