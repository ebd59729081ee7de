"""What a target says holds everywhere: one number for the alignment, one for the size of a buffer."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.flags import USUAL

from openinfer import ModelLoader, Simulator, Synthesizer, graph
from openinfer.errors import ExecutionError, GraphError
from openinfer.oinf import save_file
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.plan import Plan
from openinfer.synth.targets.project import Weights
from openinfer.synth.targets.target import TARGETS, Passes, Target

TEXT = """
dynamic { x: f32[5]; at: i32; }
constant { w: f32[5, 3]; b: f32[3]; }
volatile { y: f32[3]; }
persistent {
    steps: i32 @init(0); last: f32[3] @init(0);
    K(l, i, j): f32[1, 3] @table @auto_dim(i, j) @fixed(l=3, i=4, j=3);
}
block entry {
    assign row: f32[1, 3];
    op matmul(x, w) >> y;
    op add(y, b) >> y;
    op add(y, last) >> last;
    cache.increment 1 steps;
    op reshape(y, shape=[1, 3]) >> row;
    cache.write row >> K[1, 0..1, 0..3];
    cache.write row >> K[at, 1..2, 0..3];
    return y;
}
"""
Changed = Callable[..., None]


@pytest.fixture
def model(tmp_path: Path) -> ModelLoader:
    rng = np.random.default_rng(3)
    tensors = {"w": rng.normal(size=(5, 3)).astype(np.float32), "b": rng.normal(size=3).astype(np.float32)}
    save_file(tmp_path / "m.oinf", tensors)
    return ModelLoader.open(tmp_path / "m.oinf")


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Changed:
    """Gives the target of C other facts."""
    plain = TARGETS["c"]

    def change(**facts: Any) -> None:
        def other(arch: DeviceArch) -> Target[Any]:
            return replace(plain(arch), **facts)

        monkeypatch.setitem(TARGETS, "c", other)

    return change


def planned(model: ModelLoader, weights: Weights = "file") -> Plan:
    passes = Passes(rollback=True)
    return Synthesizer("generic", name="net", weights=weights, passes=passes).synthesize(model, graph(TEXT))


def text_of(plan: Plan, path: str) -> str:
    text = plan.files()[path]
    assert isinstance(text, str)
    return text


def test_everything_is_laid_out_at_the_alignment_of_the_target(model: ModelLoader, changed: Changed) -> None:
    changed(alignment=128)
    placed = planned(model).placed
    (table,) = placed.state.tables.values()
    offsets = [
        *placed.memory.offsets.values(),
        *placed.state.homes.values(),
        table.extents_at,
        table.memory_at,
        table.cells_at(table.capacity),
        *(piece.offset for piece in placed.weights.pieces.values()),
        *placed.memory_bytes.values(),
        placed.rollback_bytes,
    ]
    assert [offset % 128 for offset in offsets] == [0] * len(offsets)
    assert placed.rollback_bytes > 0
    assert planned(model).facts()["memory"]["alignment"] == 128


def test_header_code_and_build_files_say_the_alignment_of_the_target(model: ModelLoader, changed: Changed) -> None:
    changed(alignment=128)
    plan = planned(model)
    assert "#define NET_ALIGNMENT 128\n" in text_of(plan, "include/net.h")
    assert "aligned to 128 bytes" in text_of(plan, "include/net.h")
    assert "aligned to 128 bytes" in text_of(plan, "src/net.c")
    assert "#define OI_ALIGNMENT 128\n" in text_of(plan, "src/runtime.h")
    assert "127u) / 128u * 128u" in text_of(plan, "example/main.c")
    assert "_Alignas(128)" in text_of(planned(model, "array"), "src/weights.c")
    assert ".balign 128\n" in text_of(planned(model, "incbin"), "src/weights.S")


def test_code_for_another_alignment_runs(model: ModelLoader, changed: Changed) -> None:
    """Also a step that fails behind its changes, and the table whose cells begin behind the extents of its matrices."""
    changed(alignment=128)
    module, executor = planned(model).build(flags=USUAL), Simulator(model).make_executor(graph(TEXT))
    for at in (2, 0, 7, 1):
        inputs = {"x": np.arange(5, dtype=np.float32) + at, "at": at}
        for one in (module, executor):
            one.insert(**inputs)
            if at == 7:
                with pytest.raises(ExecutionError):
                    one.run_step()
            else:
                one.run_step()
    for name in ("steps", "last", "K"):
        np.testing.assert_allclose(module.fetch(name), executor.fetch(name), rtol=1e-6)


def test_weights_lie_in_segments_that_a_buffer_holds(model: ModelLoader, changed: Changed) -> None:
    (whole,) = planned(model).placed.weights.segments
    changed(max_buffer_bytes=64)
    weights = planned(model).placed.weights
    assert [(one.offset, one.nbytes) for one in weights.segments] == [(0, 64), (64, 64)]
    assert sum(one.nbytes for one in weights.segments) == whole.nbytes == weights.size
    changed(max_buffer_bytes=32)
    with pytest.raises(GraphError, match="'w' has 60 bytes, and the device takes 32 in one buffer"):
        planned(model)
