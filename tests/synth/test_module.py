"""``CompiledModule``: the executor's verbs, conversions and errors; the cache; memory that is shared, not copied."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import agree, planned

from openinfer import Code, ModelLoader, Simulator, Tensor, dtype_of, graph
from openinfer.errors import ExecutionError, MissingExtraError
from openinfer.oinf import save_file
from openinfer.synth.run.cache import cache_folder

TEXT = """
sizes { T <= 6; }
dynamic { x: f32[T, 2]; q: i4[3]; n: u8; flag: bool; }
constant { c: f32[2]; }
volatile { y: f32[T, 2]; r: i4[3]; s: f32; }
persistent { count: i32 @init(3); last: i4[3]; K(t): f32[2] @table @fixed(t=8); }
block entry {
    op add(x, c) >> y;
    op neg(q) >> r;
    transfer r >> last;
    cache.write c >> K[n];
    cache.increment count;
    return y, r;
}
"""


@pytest.fixture
def model(tmp_path: Path) -> ModelLoader:
    save_file(tmp_path / "m.oinf", {"c": np.array([1, 2], np.float32)})
    return ModelLoader.open(tmp_path / "m.oinf")


@pytest.fixture
def pair(model: ModelLoader) -> tuple[Any, Any]:
    return Simulator(model).make_executor(graph(TEXT)), planned(TEXT, model).build()


def good() -> dict[str, Any]:
    return {"x": np.ones((2, 2), np.float32), "q": [1, -2, 3], "n": 4, "flag": True}


def test_values_convert_as_they_do_in_the_simulator(model: ModelLoader) -> None:
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)[:, ::2]
    variants: list[dict[str, Any]] = [
        good(),
        {**good(), "x": [[1, 2], [3, 4], [5, 6]]},
        {**good(), "x": rows, "q": np.array([1, 2, 3], np.int64)},
        {**good(), "x": np.ones((6, 2), np.float64), "q": Tensor.from_numpy([0, -8, 7], "i4")},
        {**good(), "x": np.empty((0, 2), np.float32), "n": np.uint8(7)},
    ]
    agree(TEXT, model, inputs=lambda step: variants[step], steps=len(variants))


WRONG: list[tuple[str, Callable[[Any], Any]]] = [
    ("no such variable", lambda one: one.insert(z=1)),
    ("not an input", lambda one: one.insert(y=np.ones((2, 2), np.float32))),
    ("not by name", lambda one: one.insert(3)),
    ("a value out of range", lambda one: one.insert(q=[1, 2, 9])),
    ("a rounded value", lambda one: one.insert(x=np.full((1, 2), 0.1))),
    ("the wrong rank", lambda one: one.insert(x=np.ones(2, np.float32))),
    ("the wrong extent", lambda one: one.insert(x=np.ones((2, 3), np.float32))),
    ("more than the bound", lambda one: one.insert(x=np.ones((7, 2), np.float32))),
    ("not all inserted", lambda one: (one.insert(n=1), one.run_step())),
    ("no such result", lambda one: one.fetch("nothing")),
    ("a misspelt name", lambda one: one.fetch("cuont")),
    ("another dtype", lambda one: one.fetch("count", "f32")),
    ("no name", lambda one: one.fetch()),
    ("not a state", lambda one: one.load_state(b"not a state")),
    ("a missing file", lambda one: one.load_state("/nowhere/at/all.oinf")),
    ("an index outside", lambda one: (one.insert({**good(), "n": 8}), one.run_step())),
]


@pytest.mark.parametrize("wrong", [verb for _, verb in WRONG], ids=[name for name, _ in WRONG])
def test_mistakes_are_the_same_errors_as_in_the_simulator(pair: tuple[Any, Any], wrong: Callable[[Any], Any]) -> None:
    codes = []
    for one in pair:
        with pytest.raises(ExecutionError) as caught:
            wrong(one)
        codes.append(caught.value.code)
    assert codes[0] is codes[1]


def test_all_verbs(pair: tuple[Any, Any]) -> None:
    _, module = pair
    module.insert(good())
    assert module.fetch("n") == 4
    module.step()
    y, r = module.fetch("y", "r")
    assert y.tolist() == [[2, 3], [2, 3]]
    assert r.tolist() == [-1, 2, -3]
    assert module.fetch("y", "f32").dtype == np.float32
    assert module.fetch_tensor("last").to_numpy().tolist() == [-1, 2, -3]
    assert module.fetch_tensor("r").dtype is dtype_of("i4")
    assert module.fetch("K").shape == (5, 2)
    assert module.fetch("c").tolist() == [1, 2]
    assert module.fetch("x").tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ExecutionError) as caught:
        module.fetch("s")
    assert "return s;" in str(caught.value)
    module.reset()
    assert module.fetch("count") == 3
    assert module.fetch("K").shape == (0, 2)


def test_an_input_that_the_step_has_written_is_not_shown_as_it_was_inserted() -> None:
    """The simulator shows what the step made of it; the code does not keep that, and says so."""
    text = """dynamic { x: f32; z: f32; } volatile { y: f32; }
    block entry { branch twice; op add(x, z) >> y; return y; } block twice { op add(x, x) >> x; return; }"""
    module = planned(text).build()
    assert module(x=3, z=1) == 7
    assert module.fetch("z") == 1
    for verb in (module.fetch, module.fetch_view, module.fetch_tensor):
        with pytest.raises(ExecutionError) as caught:
            verb("x")
        assert "return x;" in str(caught.value)
    module.insert(x=5)
    assert module.fetch("x") == 5


def test_inputs_are_used_up_and_copied(pair: tuple[Any, Any]) -> None:
    _, module = pair
    values = good()
    module.insert(values)
    values["x"][:] = 50
    module.run_step()
    assert module.fetch("y").max() == 3
    with pytest.raises(ExecutionError) as caught:
        module.run_step()
    assert caught.value.code is Code.NOT_INSERTED


def test_views_share_memory_both_ways(pair: tuple[Any, Any]) -> None:
    _, module = pair
    x = np.ones((2, 2), np.float32)
    module.insert(good())
    module.insert_view(x=x)
    x[:] = 10
    module.run_step()
    view = module.fetch_view("y")
    assert view.tolist() == [[11, 12], [11, 12]]
    assert not view.flags.writeable
    assert np.shares_memory(view, module._arena)
    for wrong in (x.astype(np.float64), x.T[::-1], x.tolist()):
        with pytest.raises(ExecutionError) as caught:
            module.insert_view(x=wrong)
        assert caught.value.code is Code.UNSUPPORTED_ARRAY


def test_a_view_outlives_its_module(pair: tuple[Any, Any]) -> None:
    module = pair[1]
    module.insert(good())
    module.run_step()
    view = module.fetch_view("y")
    del pair, module
    gc.collect()
    assert view.tolist() == [[2, 3], [2, 3]]


def test_states_pass_between_simulator_and_code(pair: tuple[Any, Any], tmp_path: Path) -> None:
    executor, module = pair
    for one in pair:
        one.insert(good())
        one.run_step()
    assert module.save_state() == executor.save_state()
    module.save_state(tmp_path / "state.oinf")
    executor.reset()
    executor.load_state(tmp_path / "state.oinf")
    module.reset()
    module.load_state(executor.save_state())
    for name in ("count", "last", "K"):
        assert np.array_equal(executor.fetch(name), module.fetch(name))


def test_instances_are_independent(model: ModelLoader) -> None:
    plan = planned(TEXT, model)
    one, other = plan.build(), plan.build()
    one.insert(good())
    one.run_step()
    assert (one.fetch("count"), other.fetch("count")) == (4, 3)


# --- building ---------------------------------------------------------------------------------------------------------

SMALL = "dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { op mul(x, x) >> y; return y; }"


def works(module: Any) -> bool:
    module.insert(x=np.full(4, 3, np.float32))
    module.run_step()
    return bool(module.fetch("y").tolist() == [9] * 4)


def test_a_second_build_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path))
    assert works(planned(SMALL).build())
    (built,) = tmp_path.iterdir()
    before = (built / "module.so").stat().st_mtime_ns
    assert works(planned(SMALL).build())
    assert [path.name for path in tmp_path.iterdir()] == [built.name]
    assert (built / "module.so").stat().st_mtime_ns == before


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path / "file" / "cache"))
    assert works(planned(SMALL).build())


def test_the_usual_place_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENINFER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/openinfer")


def test_builds_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    script = """
from tests.synth.both_ways import planned
from tests.synth.test_module import SMALL, works
assert works(planned(SMALL).build())
"""
    environment = {
        **os.environ,
        "OPENINFER_CACHE": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path]),
    }
    running = [subprocess.Popen([sys.executable, "-c", script], env=environment) for _ in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    assert len(list(tmp_path.iterdir())) == 1


def test_without_a_compiler_the_error_says_what_to_install() -> None:
    with pytest.raises(MissingExtraError) as caught:
        planned(SMALL).build(cc="no-such-compiler")
    assert caught.value.code is Code.MISSING_TOOL
    assert "apt-get install gcc" in str(caught.value)


def test_a_compiler_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path))
    with pytest.raises(ExecutionError) as caught:
        planned(SMALL).build(flags=("-no-such-flag",))
    assert "no-such-flag" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_arena_beyond_all_memory_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path))
    text = """dynamic { x: f32[4194304, 8388608]; } volatile { y: f32[4194304, 8388608]; }
    block entry { assign h: f32[4194304, 8388608]; op exp(x) >> h; barrier; op softmax(h) >> y; return y; }"""
    plan = planned(text, device="generic")
    assert plan.memory.peak >= 1 << 47
    with pytest.raises(ExecutionError) as caught:
        plan.build(flags=("-O0",))
    assert caught.value.code is Code.OUT_OF_MEMORY
    assert "bytes to run the code in" in caught.value.message


def test_a_state_needs_room_for_a_temporary_file(
    tmp_path: Path, model: ModelLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = planned(TEXT, model).build()
    saved = module.save_state()
    assert saved is not None
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(ExecutionError) as caught:
        module.load_state(saved)
    assert caught.value.code is Code.WRITE_FAILED
    assert "temporary file" in caught.value.message
