"""Weights that are mapped: the same results as held ones, from a file that is written once and is whole."""

from pathlib import Path

import numpy as np
import pytest

from openinfer import ModelLoader, Synthesizer, graph
from openinfer.dtypes import DTYPES
from openinfer.errors import ExecutionError
from openinfer.oinf import save_file
from openinfer.synth.memory.weights import FiniteWeights
from openinfer.synth.plan import Plan
from openinfer.synth.program.ir import Weight
from openinfer.tensor import Tensor

TEXT = """dynamic { x: f32[2, 40]; } constant { w: f32[40, 48]; b: f32[48]; t: i4[5, 3]; }
volatile { y: f32[2, 48]; s: i64[5]; }
block entry { op matmul(x, w) >> y; op add(y, b) >> y; n = op cast(t, to=i64); op sum_axis(n, axis=1) >> s;
return y, s; }"""
X = np.arange(80, dtype=np.float32).reshape(2, 40)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    tensors = {"w": random.standard_normal((40, 48)), "b": random.standard_normal(48)}
    packed = {"t": random.integers(-8, 8, (5, 3))}
    given = {name: one.astype(np.float32) for name, one in tensors.items()}
    save_file(tmp_path / "m.oinf", {**given, "t": Tensor.from_numpy(packed["t"].astype(np.int8), DTYPES["i4"])})
    return Synthesizer("host").synthesize(ModelLoader.open(tmp_path / "m.oinf"), graph(TEXT))


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache").glob("*/weights.bin"))


def test_mapped_weights_give_what_held_ones_give(plan: Plan, tmp_path: Path) -> None:
    held, mapped = plan.build(), plan.build(weights="mapped")
    (file,) = files(tmp_path)
    assert file.read_bytes() == plan.placed.weights.blob()
    for module in (mapped, mapped.another()):
        assert all(np.array_equal(one, other) for one, other in zip(module(x=X), held(x=X), strict=True))
    assert not mapped._weights.flags.writeable
    time = file.stat().st_mtime_ns
    plan.build(weights="mapped")
    assert file.stat().st_mtime_ns == time, "it is written once"


def test_a_file_that_is_not_whole_is_written_again(plan: Plan, tmp_path: Path) -> None:
    plan.build(weights="mapped")
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:-1])
    assert np.array_equal(plan.build(weights="mapped")(x=X)[0], plan.build()(x=X)[0])
    assert file.read_bytes() == plan.placed.weights.blob()


def test_a_cache_that_cannot_be_written_is_said(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path / "file"))
    with pytest.raises(ExecutionError, match="E731"):
        plan.build(weights="mapped")
    with pytest.raises(ExecutionError, match="'held' or 'mapped'"):
        plan.build(weights="maped")


def test_weights_are_looked_at_in_chunks(plan: Plan) -> None:
    program = plan.placed.program
    weight = next(one for step in program.steps() for one in getattr(step, "inputs", ()) if isinstance(one, Weight))
    assert weight in FiniteWeights(program)
