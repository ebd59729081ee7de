"""Outliers that move into weights, and layers that stay in floats for a wanted cosine."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.in_process import openinfer
from tests.quantizing.small_graphs import noise, quantized

from openinfer import ModelLoader, OpenInferError, Synthesizer, load_graph
from openinfer.oinf import save_file
from openinfer.quantizing.channels import ChannelSpread

TWO_READERS = """
dynamic { x: f32[4, D]; }
volatile { y: f32[4, D]; z: f32[4, D]; }
constant {
    gamma: f32[D]; beta: f32[D];
    Wa: f32[D, D]; ba: f32[D];
    Wb: f32[D, D];
}
block entry {
    assign h: f32[4, D];
    op layer_norm(x, gamma, beta) >> h;
    op linear(h, Wa, ba) >> y;
    op matmul(h, Wb) >> z;
    op add(h, z) >> z;
    return y, z;
}
"""


def outlier_tensors() -> dict[str, Any]:
    """One channel behind the norm is 200 times the others, and its weights are as much smaller."""
    gamma = np.ones(8, np.float32)
    gamma[3] = 200
    return {
        "gamma": gamma,
        "beta": noise(8, seed=1),
        "Wa": noise(8, 8, seed=2) / gamma,
        "ba": noise(8, seed=3),
        "Wb": noise(8, 8, seed=4) / gamma[:, np.newaxis],
    }


def test_an_outlier_channel_moves_into_the_weights_of_all_that_read_it(tmp_path: Path) -> None:
    samples = {"x": noise(20, 4, 8)}
    plain = quantized(tmp_path, TWO_READERS, outlier_tensors(), samples, smooth=False).report
    found = quantized(tmp_path, TWO_READERS, outlier_tensors(), samples)
    assert [one.smoothing > 0 for one in found.report.layers] == [True, True]
    assert any("op quantize(h, h_scale" in line and "axis=1" in line for line in found.ops)
    for before, after in zip(plain.layers, found.report.layers, strict=True):
        assert before.smoothing == 0
        assert after.alone.decibels > before.alone.decibels + 10
        assert after.together.decibels > 35
    assert "smoothing" in "\n".join(found.report.lines())
    assert "smoothing" not in "\n".join(plain.lines())
    with ModelLoader.open(found.report.model) as model:
        module = Synthesizer("generic").synthesize(model, load_graph(found.report.graph)).build()
        _, integers = found.outputs(samples)[0]
        module.insert(x=samples["x"][0])
        module.run_step()
        np.testing.assert_allclose(module.fetch("y"), integers["y"], rtol=1e-5, atol=1e-5)


LAYERS = """
dynamic { x: f32[4, D]; }
volatile { h: f32[4, D]; }
constant {
    gamma(l): f32[D] @pattern("gamma.{l}");
    W(l): f32[D, D] @pattern("W.{l}");
}
block entry {
    assign n: f32[4, D];
    transfer x >> h;
    loop layers (l in 0..2) {
        op rms_norm(h, gamma[l]) >> n;
        op linear(n, W[l]) >> n;
        op add(h, n) >> h;
    }
    return h;
}
"""


def test_in_a_loop_only_the_layers_that_gain_are_smoothed(tmp_path: Path) -> None:
    gamma = np.ones(8, np.float32)
    gamma[5] = 300
    tensors = {"gamma.0": np.ones(8, np.float32), "gamma.1": gamma, "W.0": noise(8, 8), "W.1": noise(8, 8) / gamma}
    found = quantized(tmp_path, LAYERS, tensors, {"x": noise(20, 4, 8)})
    assert [(one.label, one.smoothing > 0) for one in found.report.layers] == [("W[l=0]", False), ("W[l=1]", True)]
    assert 'n_scale(l): f32[D] @pattern("n_scale.{l}");' in found.text
    with ModelLoader.open(found.report.model) as model:
        scales = [model.load(f"n_scale.{at}").to_numpy() for at in range(2)]
    assert len(set(scales[0].tolist())) == 1
    assert len(set(scales[1].tolist())) > 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("op matmul(h, Wb) >> z;", "op matmul(h, Wb) >> z; op linear(y, Wa) >> y;"),
        ("op matmul(h, Wb) >> z;", "op reshape(h, shape=[4, D]) >> z; op matmul(z, Wb) >> z;"),
    ],
    ids=["weights that another layer reads", "codes that are moved"],
)
def test_what_others_use_is_not_smoothed(old: str, new: str, tmp_path: Path) -> None:
    assert old in TWO_READERS
    found = quantized(tmp_path, TWO_READERS.replace(old, new), outlier_tensors(), {"x": noise(5, 4, 8)})
    assert not any(one.smoothing for one in found.report.layers)


def test_rows_are_kept_evenly_over_all_samples() -> None:
    spread = ChannelSpread()
    for first in range(0, 3000, 100):
        spread.add(np.arange(first, first + 100, dtype=np.float32).reshape(-1, 1))
    spread.add(np.array([[np.nan]], np.float32))
    rows = spread.rows[:, 0]
    assert 256 <= len(rows) <= 512
    assert set(np.diff(rows)) == {rows[1] - rows[0]}
    assert (spread.low[0], spread.high[0]) == (0, 2999)


CHAIN = """
dynamic { x: f32[1, D]; }
volatile { y: f32[1, D]; }
constant { A: f32[D, D]; B: f32[D, D]; }
block entry {
    assign h: f32[1, D];
    op matmul(x, A) >> h;
    op tanh(h) >> h;
    op matmul(h, B) >> y;
    return y;
}
"""


def chain_tensors() -> dict[str, Any]:
    """What ``A`` gives is a small difference of large values: lost by rounding, unlike what ``B`` gives."""
    a = np.repeat(noise(1, 8) * 100, 8, axis=0) * np.array([[1], [-1]] * 4, np.float32)
    return {"A": a + noise(8, 8), "B": noise(8, 8, seed=3)}


def chain_samples() -> dict[str, Any]:
    x = np.repeat(noise(10, 1, 4) * 5, 2, axis=2)
    x[:, :, 1::2] += noise(10, 1, 4, seed=5) * 0.01
    return {"x": x.astype(np.float32)}


def test_layers_stay_in_floats_until_outputs_are_near_enough(tmp_path: Path) -> None:
    first = quantized(tmp_path, CHAIN, chain_tensors(), chain_samples())
    assert first.report.least_cosine < 0.99
    found = quantized(tmp_path, CHAIN, chain_tensors(), chain_samples(), least_cosine=0.99)
    assert found.report.least_cosine >= 0.99
    ((label, reason),) = [(one.label, one.reason) for one in found.report.floats]
    assert label == "A"
    assert reason.startswith("the least cosine is 0.")
    assert [one.label for one in found.report.layers] == ["B"]
    assert "B: i8[D, D];" in found.text


def test_a_cosine_that_cannot_be_reached_or_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OpenInferError, match="a least cosine is above 0 and below 1, not 2"):
        quantized(tmp_path, CHAIN, chain_tensors(), chain_samples(), least_cosine=2)
    with pytest.raises(OpenInferError, match="a least cosine needs samples"):
        quantized(tmp_path, CHAIN, chain_tensors(), None, weights_only=True, least_cosine=0.9)
    with pytest.raises(OpenInferError, match="there is nothing to quantize"):
        quantized(tmp_path, CHAIN, chain_tensors(), chain_samples(), least_cosine=0.9999999)
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_was_smoothed_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.oig").write_text(CHAIN)
    save_file("net.oinf", chain_tensors(), sizevars={"D": 8})
    np.savez("in.npz", **chain_samples())
    command = ["quantize", "net.oig", "--model", "net.oinf", "--calibrate", "in.npz", "-o", "out", "--json"]
    facts = json.loads(openinfer(*command, "--least-cosine", "0.99", "--no-smoothing").out)
    assert facts["outputs"][0]["least_cosine"] >= 0.99
    assert [one["layer"] for one in facts["floats"]] == ["A"]
    assert facts["layers"][0]["smoothing"] == 0
