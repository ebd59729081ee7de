"""Outputs tied to inputs stay in the graph between steps; what only grows becomes a table."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.importing.models import model, node, text
from tests.synth.flags import USUAL

from openinfer import ImportingError, ModelLoader, Simulator, Synthesizer, load_graph
from openinfer.errors import Code
from openinfer.importing import Imported, import_onnx

RNG = np.random.default_rng(3)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def accumulator() -> Any:
    return model(
        [
            node("Add", ["x", "sum_in"], ["sum_out"]),
            node("Identity", ["x"], ["last_out"]),
            node("Sub", ["sum_in", "last_in"], ["y"]),
        ],
        {"x": ("f32", [3]), "sum_in": ("f32", [3]), "last_in": ("f32", [3])},
        {"y": ("f32", [3]), "sum_out": ("f32", [3]), "last_out": ("f32", [3])},
    )


def swapping() -> Any:
    """Each state is the other in the next step."""
    return model(
        [node("Identity", ["b_in"], ["a_out"]), node("Add", ["a_in", "x"], ["b_out"])],
        {"x": ("f32", [2]), "a_in": ("f32", [2]), "b_in": ("f32", [2])},
        {"a_out": ("f32", [2]), "b_out": ("f32", [2])},
    )


def cache(axis: int, tail: Sequence[Any] = ()) -> Any:
    """A cache that grows by the tokens of a step, its mean, and perhaps more."""
    past: list[Any] = [1, 2, 4]
    past.insert(axis, "past")
    now: list[Any] = [1, 2, 4]
    now.insert(axis, "now")
    return model(
        [
            node("Concat", ["past.0", "x"], ["present.0"], axis=axis),
            node("ReduceMean", ["present.0"], ["y"], axes=[axis], keepdims=0),
            *tail,
        ],
        {"x": ("f32", now), "past.0": ("f32", past)},
        {"y": ("f32", None), **({"z": ("f32", None)} if tail else {}), "present.0": ("f32", None)},
        {"axes": np.array([axis])},
    )


def require_steps(
    made: Any,
    folder: Path,
    states: Sequence[tuple[str, str]],
    tied: Mapping[str, str],
    inputs: Sequence[Any],
    **options: Any,
) -> Imported:
    """Import a model and run it for some steps in the simulator, in C and in ONNX Runtime, which is fed its states."""
    onnx.save(made, folder / "net.onnx")
    found = import_onnx(folder / "net.onnx", folder / "out", states=states, **options)
    session = onnxruntime.InferenceSession(os.fspath(folder / "net.onnx"))
    shapes = {
        one.name: [0 if isinstance(extent, str) else extent for extent in one.shape] for one in session.get_inputs()
    }
    fed = {given: np.zeros(shapes[given], np.float32) for given in tied.values()}
    graph = load_graph(found.graph)
    with ModelLoader.open(found.model) as weights:
        machines: list[Any] = [
            Simulator(weights).make_executor(graph),
            Synthesizer().synthesize(weights, graph).build(flags=USUAL),
        ]
        for x in inputs:
            names = [one.name for one in session.get_outputs()]
            results = dict(zip(names, session.run(None, {"x": x, **fed}), strict=True))
            for machine in machines:
                machine.insert(**{found.inputs["x"]: x})
                machine.run_step()
                for name, variable in found.outputs.items():
                    assert np.allclose(machine.fetch(variable), results[name], atol=1e-5), name
            fed = {given: results[output] for output, given in tied.items()}
    return found


def test_states_of_one_type_are_persistent(tmp_path: Path) -> None:
    tied = {"sum_out": "sum_in", "last_out": "last_in"}
    found = require_steps(accumulator(), tmp_path, [("*_out", "*_in")], tied, [normal(3) for _ in range(4)])
    assert found.inputs == {"x": "x"}
    assert found.outputs == {"y": "y"}
    assert found.states == {"sum_in": "sum_in", "sum_out": "sum_in", "last_in": "last_in", "last_out": "last_in"}
    assert "persistent {\n    sum_in: f32[3];\n    last_in: f32[3];\n}" in text(found)


def test_states_that_are_each_other_are_written_at_once(tmp_path: Path) -> None:
    found = import_states(swapping(), tmp_path, [("a_out", "a_in"), ("b_out", "b_in")])
    with ModelLoader.open(found.model) as weights:
        executor = Simulator(weights).make_executor(load_graph(found.graph))
        a, b = np.zeros(2, np.float32), np.zeros(2, np.float32)
        for _ in range(4):
            x = normal(2)
            executor.insert(x=x)
            executor.run_step()
            a, b = b, a + x
            assert np.array_equal(executor.fetch("a_in"), a)
            assert np.array_equal(executor.fetch("b_in"), b)


def import_states(made: Any, folder: Path, states: Sequence[tuple[str, str]], **options: Any) -> Imported:
    onnx.save(made, folder / "net.onnx")
    return import_onnx(folder / "net.onnx", folder / "out", states=states, **options)


@pytest.mark.parametrize("axis", [0, 2])
def test_a_cache_that_grows_is_a_table(tmp_path: Path, axis: int) -> None:
    def tokens(count: int) -> Any:
        shape = [1, 2, 4]
        shape.insert(axis, count)
        return normal(*shape)

    found = require_steps(
        *(cache(axis), tmp_path, [("present.*", "past.*")], {"present.0": "past.0"}),
        [tokens(3), tokens(1), tokens(1)],
        sizes={"past": "<=8", "now": "<=4"},
    )
    assert "past_0(t): f32[1, 2, 4] @table @fixed(t=12);" in text(found)
    assert "concat" not in text(found)
    assert "cache.increment now past;" in text(found)


def test_a_cache_whose_past_is_read_by_itself_too(tmp_path: Path) -> None:
    tail = [node("ReduceSum", ["past.0", "axes"], ["z"], keepdims=0)]
    found = require_steps(
        *(cache(1, tail), tmp_path, [("present.0", "past.0")], {"present.0": "past.0"}),
        [normal(1, 2, 2, 4), normal(1, 1, 2, 4), normal(1, 3, 2, 4)],
        sizes={"past": "<=8", "now": "<=4"},
    )
    assert "cache.read past_0[0..past]" in text(found)


@pytest.mark.parametrize(
    "states",
    [[("nothing", "sum_in")], [("sum_out", "nothing")], [("*_out", "sum_in")], [("sum_out", "x"), ("last_out", "x")]],
)
def test_states_that_the_model_does_not_have_are_refused(tmp_path: Path, states: list[tuple[str, str]]) -> None:
    with pytest.raises(ImportingError) as caught:
        import_states(accumulator(), tmp_path, states)
    assert caught.value.code is Code.BAD_IMPORT_OPTION


def test_a_state_that_changes_its_type_is_refused(tmp_path: Path) -> None:
    made = model(
        [node("Concat", ["x", "s"], ["t"], axis=0)], {"x": ("f32", [1]), "s": ("f32", [2])}, {"t": ("f32", [3])}
    )
    with pytest.raises(ImportingError, match="'t' is f32"):
        import_states(made, tmp_path, [("t", "s")])


def test_outputs_that_nobody_wants_are_left_out_with_what_only_they_need(tmp_path: Path) -> None:
    given = model(
        [node("Exp", ["x"], ["large"]), node("Neg", ["x"], ["y"]), node("Add", ["large", "y"], ["debug.0"])],
        {"x": ("f32", [3])},
        {"y": ("f32", [3]), "debug.0": ("f32", [3]), "large": ("f32", [3])},
    )
    onnx.save(given, tmp_path / "m.onnx")
    found = import_onnx(tmp_path / "m.onnx", tmp_path, drop=["debug.*", "large"])
    assert found.outputs == {"y": "y"}
    assert "exp" not in Path(found.graph).read_text()
    for drop, message in ((["nothing"], "has no output 'nothing'"), (["*"], "no output would be left")):
        with pytest.raises(ImportingError, match=message):
            import_onnx(tmp_path / "m.onnx", tmp_path / "none", drop=drop)
    assert not (tmp_path / "none").exists()
