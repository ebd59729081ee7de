"""Stages in processes of their own, and as actors of Ray: ``make test-serve`` runs these."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.cli.in_process import openinfer
from tests.stages.test_split import LAYERS, inputs, model

from openinfer import ModelLoader, Simulator, graph
from openinfer.check import bind
from openinfer.errors import ExecutionError, OpenInferError
from openinfer.stages import Pipeline, split, write_stages

__all__ = ["model"]


def test_a_pipeline_of_processes_gives_what_one_module_gives(model: ModelLoader, tmp_path: Path) -> None:
    (tmp_path / "g.oig").write_text(LAYERS)
    done = openinfer(
        *("split", str(tmp_path / "g.oig"), "--model", str(model.path), "--at", "layers[2]", "--at", "head"),
        *("--output", str(tmp_path / "stages")),
    )
    assert done.out.endswith(f"3 stages: {tmp_path / 'stages'}\n"), done.err
    whole = Simulator(model).make_executor(graph(LAYERS))
    steps = [inputs(1 + number % 5, flag=bool(number % 2), k=number) for number in range(12)]
    with Pipeline(tmp_path / "stages") as pipeline:
        for given, found in zip(steps, pipeline.map(steps), strict=True):
            whole.insert(given)
            whole.run_step()
            assert np.allclose(found["y"], whole.fetch("y"), rtol=1e-5)
        with pytest.raises(ExecutionError, match="E508"):
            pipeline({"x": steps[0]["x"]})
        pid = pipeline.modules[1]._worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while not pipeline.modules[1].is_lost:
            pass
        assert np.allclose(pipeline(steps[0])["y"], next(iter(pipeline.map(steps[:1])))["y"])


def test_a_pipeline_with_states_begins_again_after_a_failure(tmp_path: Path) -> None:
    text = """persistent { n: f32; } dynamic { x: f32; i: i64; } volatile { y: f32; } constant { w: f32[3] @init(2); }
    block entry { scope "a" { op add(n, x) >> n; op add(n, 0) >> y; }
    scope "b" { t = op gather(w, i, axis=0); op add(y, t) >> y; } return y; }"""
    bound = bind(graph(text))
    write_stages(tmp_path, bound, split(bound, ["b"]))
    given = {"x": np.float32(1), "i": np.int64(0)}
    with Pipeline(tmp_path) as pipeline:
        assert (pipeline(given)["y"], pipeline(given)["y"]) == (3, 4)
        with pytest.raises(ExecutionError, match="E313"):
            pipeline({**given, "i": np.int64(7)})
        with pytest.raises(ExecutionError, match="reset"):
            pipeline(given)
        pipeline.reset()
        assert pipeline(given)["y"] == 3


def test_actors_of_ray_give_what_one_module_gives(model: ModelLoader, tmp_path: Path) -> None:
    from openinfer.stages.ray_actors import RayPipeline

    bound = bind(graph(LAYERS), model)
    write_stages(tmp_path, bound, split(bound, ["layers[2]", "head"]))
    whole = Simulator(model).make_executor(graph(LAYERS))
    steps = [inputs(1 + number % 5, flag=bool(number % 2), k=number) for number in range(6)]
    pipeline = RayPipeline(tmp_path)
    for given, found in zip(steps, pipeline.map(steps), strict=True):
        whole.insert(given)
        whole.run_step()
        assert np.allclose(found["y"], whole.fetch("y"), rtol=1e-5)
    pipeline.close()


def test_values_that_are_no_tensors_have_an_error_and_a_closed_pipeline_too(tmp_path: Path) -> None:
    text = """dynamic { x: f32[2]; } block entry { scope "a" { op add(x, 1) >> x; } scope "b" { op mul(x, 2) >> x; }
    return x; }"""
    bound = bind(graph(text))
    write_stages(tmp_path, bound, split(bound, ["b"]))
    with Pipeline(tmp_path) as pipeline:
        for bad in ("text", [[1], [2, 3]], None, np.array(["a", "b"]), np.array([1j, 2])):
            with pytest.raises(OpenInferError):
                pipeline({"x": bad})
        assert pipeline({"x": [1, 2]})["x"].tolist() == [4, 6]
    with pytest.raises(ExecutionError, match="closed"):
        pipeline({"x": [1, 2]})
    pipeline.close()


def test_steps_behind_one_that_failed_do_not_go_on_with_other_states(tmp_path: Path) -> None:
    text = """persistent { n: f32; } dynamic { x: f32; i: i64; } volatile { y: f32; } constant { w: f32[3] @init(2); }
    block entry { scope "a" { op add(n, x) >> n; op add(n, 0) >> y; }
    scope "b" { t = op gather(w, i, axis=0); op add(y, t) >> y; } return y; }"""
    bound = bind(graph(text))
    write_stages(tmp_path, bound, split(bound, ["b"]))
    with Pipeline(tmp_path) as pipeline:
        codes = [_code(pipeline, index) for index in (0, 7, 0, 0)]
        assert [code() for code in codes] == [None, "E313", "E412", "E412"]


def _code(pipeline: Pipeline, index: int) -> Callable[[], str | None]:
    """How a step ends that is begun now: its error may be that it cannot be."""
    try:
        begun = pipeline.submit({"x": np.float32(1), "i": np.int64(index)})
    except ExecutionError as error:
        refused = str(error.code)
        return lambda: refused

    def ended() -> str | None:
        error = begun.exception(timeout=60)
        return None if error is None else str(getattr(error, "code", error))

    return ended
