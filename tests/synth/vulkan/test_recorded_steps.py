"""What a step submits: once, in the same recording, with waits only where launches depend on each other."""

from pathlib import Path

import numpy as np
import pytest
from tests.synth.vulkan.on_device import NAMED, counted, on_lavapipe

from openinfer import ModelLoader, Simulator, Synthesizer, graph
from openinfer.errors import OpenInferError
from openinfer.oinf import save_file

DECODER = """
sizes { T <= 8; }
dynamic { x: f32[1, 4]; ids: i32[1]; }
persistent { n: i32 @init(0); K(l, t): f32[4] @table @fixed(l=2, t=8); last(l): f32[4] @table @fixed(l=2);
    again(l): f32[4] @table @fixed(l=2); }
constant { w: f32[5, 4]; W(l): f32[4, 4] @pattern("W.{l}"); }
volatile { h: f32[1, 4]; k: f32[4]; past: f32[T, 4]; }
block layer(g: f32[1, 4], P: prefix, i: index) { t = op matmul(g, P[i]); r = op tanh(t); return r; }
block entry {
    op gather(w, ids, axis=0) >> h;
    op add(h, x) >> h;
    loop layers (l in 0..2) {
        call layer(h, W, l) >> h;
        op reshape(h, shape=[4]) >> k;
        cache.write k >> K[l, n];
        cache.write k >> last[l];
        cache.write last[l] >> again[l];
        cache.read K[l, 0..n+1] >> past;
        op sum_axis(past, axes=[0]) >> k;
        op reshape(k, shape=[1, 4]) >> h;
    }
    cache.increment n;
    return h;
}
"""
"""An index that can be wrong, then tables by a position that the device counts."""


@pytest.fixture(autouse=True)
def lavapipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in on_lavapipe().items():
        monkeypatch.setenv(name, value)


def test_the_step_of_a_decoder_is_one_submission_of_one_recording(tmp_path: Path) -> None:
    """Blocks with parameters, tables and extents that grow with every step included."""
    rng = np.random.default_rng(5)
    tensors = {"w": rng.normal(size=(5, 4)), **{f"W.{layer}": rng.normal(size=(4, 4)) for layer in range(2)}}
    save_file(tmp_path / "model.oinf", {name: value.astype(np.float32) for name, value in tensors.items()})
    model = ModelLoader.open(tmp_path / "model.oinf")
    module = Synthesizer(NAMED, name="decoder").synthesize(model, graph(DECODER)).build()
    executor = Simulator(model).make_executor(graph(DECODER))
    counts = []
    for step in range(6):
        inputs = {"x": rng.normal(size=(1, 4)).astype(np.float32), "ids": np.array([step % 5], np.int32)}
        results = [one(inputs) for one in (module, executor)]
        np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)
        counts.append((counted(module, "oi_submitted"), counted(module, "oi_recorded")))
    assert np.diff(counts[2:], axis=0).tolist() == [[1, 0]] * 3
    before = module.save_state()
    for _ in range(2):
        with pytest.raises(OpenInferError, match="gather"):
            module({"x": np.ones((1, 4), np.float32), "ids": np.array([7], np.int32)})
        assert module.save_state() == before
    for name in ("K", "last", "again", "n"):
        np.testing.assert_allclose(module.fetch(name), executor.fetch(name), rtol=1e-5, atol=1e-6)


def test_launches_wait_only_for_those_that_they_depend_on() -> None:
    text = """
        dynamic { x: f32[1000]; } volatile { a: f32; b: f32; c: f32; }
        block entry { op sum_axis(x) >> a; op max_axis(x) >> b; op mul(a, b) >> c; return a, b, c; }
    """
    module = Synthesizer(NAMED, name="waits").synthesize(None, graph(text)).build()
    module({"x": np.ones(1000, np.float32)})
    # Two rows of launches that have nothing to do with each other, their product, and what the host reads.
    assert 2 <= counted(module, "oi_waited") <= 5


HANDED = """
sizes { T <= 8; }
dynamic { x: f32[1, 16]; ids: i32[1]; }
persistent { n: i32 @init(0); K(l, t): f32[1, 16] @table @fixed(l=2, t=8); }
constant { w: f32[5, 16]; }
volatile { y: f32[1, 16]; k: f32[1, 16]; h: f32[1, 16]; past: f32[T, 1, 16]; }
block entry {
    op softmax(x, axis=1) >> h;
    loop layers (l in 0..2) {
        op softmax(h, axis=1) >> k;
        cache.write k >> K[l, n];
        cache.read K[l, 0..n+1] >> past;
        op sum_axis(past, axes=[0]) >> h;
    }
    op gather(w, ids, axis=0) >> y;
    op add(y, h) >> y;
    cache.increment n;
    return y;
}
"""
"""What is put into a table is read by nothing else; behind that, an index can be wrong."""


def test_what_is_only_put_into_a_table_is_made_there_and_taken_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    save_file(tmp_path / "model.oinf", {"w": rng.normal(size=(5, 16)).astype(np.float32)})
    model = ModelLoader.open(tmp_path / "model.oinf")
    read_again = HANDED.replace("op add(y, h) >> y;", "op add(y, h) >> y; op add(y, k) >> y;")
    waits = []
    for text in (HANDED, read_again):
        module = Synthesizer("lavapipe", name="handed").synthesize(model, graph(text)).build()
        executor = Simulator(model).make_executor(graph(text))
        for step in range(5):
            inputs = {"x": rng.normal(size=(1, 16)).astype(np.float32), "ids": np.array([step % 5], np.int32)}
            results = [one(inputs) for one in (module, executor)]
            np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)
        waits.append(counted(module, "oi_waited"))
        before = module.save_state()
        with pytest.raises(OpenInferError, match="gather"):
            module({"x": np.ones((1, 16), np.float32), "ids": np.array([7], np.int32)})
        assert module.save_state() == before
        np.testing.assert_allclose(module.fetch("K"), executor.fetch("K"), rtol=1e-5, atol=1e-6)
    # Each of the two copies that are left out would have waited for what it copies.
    assert waits[0] <= waits[1] - 2


FIRST = """
dynamic { x: f32[1, 16]; ids: i32[1]; }
persistent { last(l): f32[1, 16] @table @fixed(l=2); }
constant { w: f32[5, 16]; }
volatile { y: f32[1, 16]; k: f32[1, 16]; h: f32[1, 16]; }
block entry {
    op gather(w, ids, axis=0) >> y;
    op softmax(x, axis=1) >> h;
    loop layers (l in 0..2) {
        op softmax(h, axis=1) >> k;
        cache.write k >> last[l];
        op add(h, y) >> h;
    }
    return h;
}
"""
"""Only the first launch can fail: what the table had before need not be copied."""


def test_steps_whose_first_launch_fails_change_nothing_without_copies(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    save_file(tmp_path / "model.oinf", {"w": rng.normal(size=(5, 16)).astype(np.float32)})
    model = ModelLoader.open(tmp_path / "model.oinf")
    module = Synthesizer("lavapipe", name="first").synthesize(model, graph(FIRST)).build()
    executor = Simulator(model).make_executor(graph(FIRST))
    for step in range(4):
        inputs = {"x": rng.normal(size=(1, 16)).astype(np.float32), "ids": np.array([step % 5], np.int32)}
        np.testing.assert_allclose(module(inputs), executor(inputs), rtol=1e-5, atol=1e-6)
        before = module.save_state()
        with pytest.raises(OpenInferError, match="gather"):
            module({"x": np.ones((1, 16), np.float32), "ids": np.array([7], np.int32)})
        assert module.save_state() == before
        np.testing.assert_allclose(module.fetch("last"), executor.fetch("last"), rtol=1e-5, atol=1e-6)


def test_a_result_that_is_larger_than_what_its_memory_showed_before_is_copied_again() -> None:
    """The host reads 16 bytes of a value, and the branch's condition, before a result of up to 80 is where that was."""
    g = graph("""
        sizes { T <= 5; }
        dynamic { x: f32[T, 4]; go: bool; }
        volatile { zeros: f32[4]; y: f32[T, 4]; }
        persistent { seen(i): f32[4] @table; }
        block entry { cache.write zeros >> seen[2]; op add(y, x) >> y; branch go on on; return y; }
        block on { return; }
    """)
    module = Synthesizer(NAMED, name="net").synthesize(None, g).build()
    for step in range(3):
        x = np.full((1, 4), step + 1, np.float32)
        np.testing.assert_array_equal(module(x=x, go=True), x)
