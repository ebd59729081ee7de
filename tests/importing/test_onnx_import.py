"""ONNX models become graphs that compute the same, with what is known folded away; what cannot be is refused."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.cli.in_process import openinfer
from tests.importing.backend import cases, run_case
from tests.importing.models import imported, model, node, require_agreement, text
from tests.importing.onnx_fuzz import mutant, verdict

from openinfer import ImportingError
from openinfer.errors import Code
from openinfer.lang.format import format_source

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


# --- ONNX's own cases -------------------------------------------------------------------------------------------------


def test_cases_of_onnx_agree_or_are_refused_with_a_code() -> None:
    """One in 23 of them. Their results are computed where they are made, which is why they are not parameters."""
    part = [name for place, name in enumerate(sorted(cases())) if place % 23 == 0 and "_expanded" not in name]
    assert len(part) > 40
    outcomes = [run_case(cases()[name]) for name in part]
    assert [outcome for outcome in outcomes if outcome.verdict not in ("agrees", "refused")] == []


# --- sizes ------------------------------------------------------------------------------------------------------------


def shapes_from_shapes() -> Any:
    """Reshape(x, [batch, length, 2, 3]) with a shape computed from x, as exporters write it."""
    return model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["b"], axis=0),
            node("Gather", ["s", "one"], ["t"], axis=0),
            node("Unsqueeze", ["b", "axis"], ["b1"]),
            node("Unsqueeze", ["t", "axis"], ["t1"]),
            node("Concat", ["b1", "t1", "rest"], ["shape"], axis=0),
            node("Reshape", ["x", "shape"], ["y"]),
        ],
        {"x": ("f32", ["batch", "length", 6])},
        {"y": ("f32", None)},
        {"zero": np.int64(0), "one": np.int64(1), "axis": np.array([0]), "rest": np.array([2, 3])},
    )


def test_shape_arithmetic_over_dynamic_sizes_is_folded_away(tmp_path: Path) -> None:
    found = require_agreement(
        shapes_from_shapes(), tmp_path, {"x": normal(1, 5, 6)}, sizes={"batch": 1, "length": "<=9"}
    )
    assert "op reshape(x, shape=[1, length, 2, 3]) >> y;" in found
    assert found.count("op ") == 1


def test_all_sizes_without_a_word_are_listed_together(tmp_path: Path) -> None:
    with pytest.raises(ImportingError) as caught:
        imported(shapes_from_shapes(), tmp_path)
    assert caught.value.code is Code.OPEN_SIZE
    assert "'batch'" in caught.value.message
    assert "'length'" in caught.value.message
    assert not (tmp_path / "out").exists()


def test_dimensions_without_a_name_are_called_by_their_place(tmp_path: Path) -> None:
    made = model([node("Relu", ["x"], ["y"])], {"x": ("f32", [None, 3])}, {"y": ("f32", None)})
    with pytest.raises(ImportingError, match=r"x\[0\]"):
        imported(made, tmp_path)
    assert "x: f32[2, 3];" in require_agreement(made, tmp_path, {"x": normal(2, 3)}, sizes={"x[0]": 2})


def test_dimensions_that_are_expressions_follow_from_their_names(tmp_path: Path) -> None:
    made = model(
        [node("Concat", ["p", "x"], ["all"], axis=0), node("Add", ["all", "m"], ["y"])],
        {"p": ("f32", ["past"]), "x": ("f32", ["now"]), "m": ("f32", ["past + now"])},
        {"y": ("f32", None)},
    )
    feeds = {"p": normal(3), "x": normal(2), "m": normal(5)}
    assert "m: f32[past+now];" in require_agreement(made, tmp_path, feeds, sizes={"past": "<=8", "now": "<=4"})


def test_extents_that_round_down_are_inferred(tmp_path: Path) -> None:
    made = model(
        [
            node("Conv", ["x", "w"], ["c"], strides=[2]),
            node("Reshape", ["c", "shape"], ["y"]),
        ],
        {"x": ("f32", [1, 2, "width"])},
        {"y": ("f32", None)},
        {"w": normal(4, 2, 3), "shape": np.array([1, 2, 2, -1])},
    )
    for width in (5, 6):
        found = require_agreement(made, tmp_path, {"x": normal(1, 2, width)}, sizes={"width": "<=9"})
        assert "y = op reshape(c, shape=[1, 2, 2, -1]);" in found


def test_a_value_that_is_called_like_a_size_gets_another_name(tmp_path: Path) -> None:
    made = model([node("Relu", ["batch"], ["n"])], {"batch": ("f32", ["batch", "n"])}, {"n": ("f32", None)})
    found = require_agreement(made, tmp_path, {"batch": normal(2, 3)}, sizes={"batch": "<=4", "n": "<=5"})
    assert "batch_2: f32[batch, n];" in found


def test_a_size_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    made = model([node("Relu", ["x"], ["y"])], {"x": ("f32", ["batch"])}, {"y": ("f32", ["out"])})
    with pytest.raises(ImportingError) as caught:
        imported(made, tmp_path, sizes={"batch": 1, "bacth": 2})
    assert caught.value.code is Code.BAD_IMPORT_OPTION
    imported(made, tmp_path, sizes={"batch": 1, "out": 1})  # of an output: it needs no word, but may have one


# --- control flow and recurrent layers --------------------------------------------------------------------------------


def a_choice() -> Any:
    branches = {
        f"{word}_branch": helper.make_graph(
            [node(kind, ["x"], [f"{word}_y"])], word, [], [helper.make_tensor_value_info(f"{word}_y", 1, [4])]
        )
        for word, kind in (("then", "Relu"), ("else", "Neg"))
    }
    return model(
        [node("If", ["flag"], ["y"], **branches)], {"x": ("f32", [4]), "flag": ("bool", [])}, {"y": ("f32", [4])}
    )


@pytest.mark.parametrize("flag", [True, False])
def test_a_fixed_condition_leaves_one_branch(tmp_path: Path, flag: bool) -> None:
    found = require_agreement(a_choice(), tmp_path, {"x": normal(4)}, fixed={"flag": flag})
    assert "branch" not in found
    assert ("op relu" in found) is flag


@pytest.mark.parametrize("flag", [True, False])
def test_a_condition_that_is_an_input_becomes_a_branch(tmp_path: Path, flag: bool) -> None:
    found = require_agreement(a_choice(), tmp_path, {"x": normal(4), "flag": np.array(flag)})
    assert "branch flag then otherwise;" in found


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_recurrent_layer_over_a_dynamic_length_is_a_loop(
    tmp_path: Path, kind: str, gates: int, direction: str
) -> None:
    count = 2 if direction == "bidirectional" else 1
    attributes: dict[str, Any] = {"hidden_size": 5, "direction": direction}
    weights = {"w": normal(count, gates * 5, 3), "r": normal(count, gates * 5, 5), "b": normal(count, 2 * gates * 5)}
    made = model(
        [node(kind, ["x", "w", "r", "b"], ["y", "h"], **attributes)],
        {"x": ("f32", ["time", 2, 3])},
        {"y": ("f32", None), "h": ("f32", None)},
        weights,
    )
    found = require_agreement(made, tmp_path, {"x": normal(6, 2, 3)}, sizes={"time": "<=7"})
    assert found.count("in 0..time)") == count


def scalars(**types: int) -> list[Any]:
    return [helper.make_tensor_value_info(name, kind, []) for name, kind in types.items()]


def test_what_a_loop_collects_is_what_was_carried_into_the_iteration(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["go_out"]),
            node("Add", ["s", "one"], ["s_out"]),
            node("Identity", ["s"], ["seen"]),
        ],
        "body",
        scalars(i=7, go=9, s=1),
        scalars(go_out=9, s_out=1, seen=1),
    )
    made = model(
        [node("Loop", ["n", "", "x"], ["last", "all"], body=body)],
        {"x": ("f32", [])},
        {"last": ("f32", None), "all": ("f32", None)},
        {"n": np.int64(300), "one": np.float32(1)},
    )
    assert "loop iterations (i in 0..300)" in require_agreement(made, tmp_path, {"x": np.array(0.5, np.float32)})


def test_an_input_with_a_default_is_a_constant_that_can_be_fixed(tmp_path: Path) -> None:
    made = model(
        [node("Mul", ["x", "scale"], ["y"])],
        {"x": ("f32", [3]), "scale": ("f32", [1])},
        {"y": ("f32", [3])},
        {"scale": np.array([2], np.float32)},
    )
    assert "op mul(x, 2.0) >> y;" in text(imported(made, tmp_path))
    assert "op mul(x, 0.5) >> y;" in text(imported(made, tmp_path, fixed={"scale": 0.5}))


# --- names and files --------------------------------------------------------------------------------------------------


def test_names_that_become_the_same_identifier_stay_apart(tmp_path: Path) -> None:
    made = model(
        [node("Sub", ["a.b", "a/b"], ["12"]), node("Add", ["12", "op"], ["a:b"])],
        {"a.b": ("f32", [2]), "a/b": ("f32", [2]), "op": ("f32", [2])},
        {"a:b": ("f32", [2])},
    )
    found = imported(made, tmp_path)
    assert found.inputs == {"a.b": "a_b", "a/b": "a_b_2", "op": "op_2"}
    assert found.outputs == {"a:b": "a_b_3"}
    require_agreement(made, tmp_path, {"a.b": normal(2), "a/b": normal(2), "op": normal(2)})


def test_an_output_may_be_an_input_or_a_constant_or_another_output(tmp_path: Path) -> None:
    made = model(
        [node("Relu", ["x"], ["y"]), node("Identity", ["y"], ["z"]), node("Identity", ["x"], ["same"])],
        {"x": ("f32", [3])},
        {"y": ("f32", [3]), "z": ("f32", [3]), "same": ("f32", [3]), "w": ("f32", [2])},
        {"w": np.ones(2, np.float32)},
    )
    require_agreement(made, tmp_path, {"x": normal(3)})


def test_the_text_is_stable_under_the_formatter(tmp_path: Path) -> None:
    found = text(imported(shapes_from_shapes(), tmp_path, sizes={"batch": 2, "length": "<=9"}))
    assert format_source(found) == found


def test_the_command_prints_the_names_as_json(tmp_path: Path) -> None:
    onnx.save(shapes_from_shapes(), tmp_path / "net.onnx")
    sizes = ("--size", "batch=1", "--size", "length<=4")
    done = openinfer("import", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "d"), *sizes, "--name", "n", "--json")
    assert done.status == 0, done.err
    facts = json.loads(done.out)
    assert facts["graph"] == str(tmp_path / "d" / "n.oig")
    assert (facts["inputs"], facts["outputs"], facts["states"]) == ({"x": "x"}, {"y": "y"}, {})
    assert openinfer("check", facts["graph"], "--model", facts["model"]).status == 0


def test_every_node_that_cannot_be_imported_has_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    made = model(
        [
            node("RandomNormalLike", ["x"], ["a"], name="first"),
            node("Relu", ["a"], ["b"], name="needs the first"),
            node("NonZero", ["x"], ["c"], name="second"),
            node("Frobnicate", ["x"], ["d"], name="third"),
        ],
        {"x": ("f32", [3])},
        {"b": ("f32", None), "c": ("i64", None), "d": ("f32", None)},
    )
    onnx.save(made, tmp_path / "net.onnx")
    done = openinfer("import", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "d"))
    assert done.status == 1
    assert done.err.count("error[E761]") == 3
    assert all(name in done.err for name in ("'first'", "'second'", "'third'", "NonZero"))
    assert not (tmp_path / "d").exists()


# --- hostile files ----------------------------------------------------------------------------------------------------


def external(folder: Path, location: str, offset: int = 0, length: int = 8) -> Path:
    made = model([node("Add", ["x", "w"], ["y"])], {"x": ("f32", [2])}, {"y": ("f32", [2])}, {"w": np.ones(2, "f")})
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    path = folder / "model" / "net.onnx"
    path.parent.mkdir()
    path.write_bytes(made.SerializeToString())
    return path


def refused(path: Path, folder: Path) -> ImportingError:
    from openinfer.importing import import_onnx

    with pytest.raises(ImportingError) as caught:
        import_onnx(path, folder / "out")
    assert not (folder / "out").exists()
    return caught.value


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "", "link", "weights/../../secret", "missing"])
def test_external_data_outside_the_folder_of_the_model_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(64))
    path = external(tmp_path, location)
    (path.parent / "link").symlink_to(tmp_path / "secret")
    assert refused(path, tmp_path).code is Code.BAD_IMPORT_FILE


@pytest.mark.parametrize(("offset", "length"), [(60, 8), (-8, 8), (0, 4), (1 << 62, 8)])
def test_external_data_that_is_not_there_is_refused(tmp_path: Path, offset: int, length: int) -> None:
    path = external(tmp_path, "weights", offset, length)
    (path.parent / "weights").write_bytes(bytes(64))
    assert refused(path, tmp_path).code is Code.BAD_IMPORT_FILE


def test_external_data_beside_the_model_is_read(tmp_path: Path) -> None:
    from openinfer.importing import import_onnx

    path = external(tmp_path, "weights", 4)
    (path.parent / "weights").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    found = import_onnx(path, tmp_path / "out")
    assert "w: f32[2];" in text(found)


def test_claims_of_huge_tensors_are_refused_before_memory_is_taken(tmp_path: Path) -> None:
    made = model([node("Add", ["x", "w"], ["y"])], {"x": ("f32", [2])}, {"y": ("f32", [2])}, {"w": np.ones(2, "f")})
    made.graph.initializer[0].dims[:] = [1 << 60]
    (tmp_path / "net.onnx").write_bytes(made.SerializeToString())
    assert refused(tmp_path / "net.onnx", tmp_path).code is Code.BAD_IMPORT_FILE


@pytest.mark.parametrize("data", [b"", b"\x00" * 64, b"not a model"])
def test_files_that_are_no_models_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "net.onnx").write_bytes(data)
    assert refused(tmp_path / "net.onnx", tmp_path).code is Code.BAD_IMPORT_FILE


def test_damaged_files_give_coded_errors_or_graphs(tmp_path: Path) -> None:
    verdicts = {verdict(mutant(7, number), tmp_path) for number in range(300)}
    assert {"graph", "E760", "E761", "E762"} <= verdicts


def test_a_result_that_is_a_size_is_computed(tmp_path: Path) -> None:
    made = model([node("Shape", ["x"], ["y"])], {"x": ("f32", ["batch", 3])}, {"y": ("i64", None)})
    require_agreement(made, tmp_path, {"x": normal(2, 3)}, sizes={"batch": "<=4"})


def test_the_page_lists_exactly_the_op_types_that_have_a_translation() -> None:
    from openinfer.importing.translate import TABLE

    page = (Path(__file__).parents[2] / "docs" / "importing.md").read_text()
    listed = page.partition("These have a translation:")[2].partition("With limits:")[0]
    refused = {
        "Multinomial",
        "Bernoulli",
        *(f"Random{kind}{end}" for kind in ("Normal", "Uniform") for end in ("", "Like")),
    }
    own, _, microsoft = listed.partition("Of the domain `com.microsoft`")
    names = [*re.findall(r"`(\w+)`", own), *(f"com.microsoft:{name}" for name in re.findall(r"`(\w+)`", microsoft))]
    assert sorted(names) == sorted(TABLE.keys() - refused)
