"""``openinfer quantize``: integer graphs of float graphs, what they compute, and what is said about them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.in_process import openinfer
from tests.quantizing.small_graphs import CNN, cnn_tensors, noise, quantized

from openinfer import ModelLoader, OpenInferError, Synthesizer, load_graph
from openinfer.lang.format import format_source
from openinfer.oinf import save_file


def test_a_small_network_is_computed_in_integers(tmp_path: Path) -> None:
    samples = {"x": noise(16, 1, 3, 8, 8)}
    found = quantized(tmp_path, CNN, cnn_tensors(), samples)
    assert found.report.outputs[0].deviation is not None
    assert found.report.outputs[0].deviation.decibels > 30
    assert not found.report.floats
    products = [line for line in found.ops if "conv2d" in line or "linear" in line]
    assert len(products) == 4
    assert all("acc=i32" in line for line in products)
    assert found.report.bytes_after < found.report.bytes_before / 2


def test_generated_c_and_the_simulator_agree_to_the_bit(tmp_path: Path) -> None:
    """Sums are exact and roundings are IEEE's, so that no result differs."""
    text = CNN.replace("op mean_axis(d, axes=[2, 3]) >> e", "op max_axis(d, axes=[2, 3]) >> e")
    samples = {"x": noise(6, 1, 3, 8, 8)}
    found = quantized(tmp_path, text, cnn_tensors(), samples)
    with ModelLoader.open(found.report.model) as model:
        module = Synthesizer("generic").synthesize(model, load_graph(found.report.graph)).build()
        for at, (_, integers) in enumerate(found.outputs(samples)):
            module.insert(x=samples["x"][at])
            module.run_step()
            np.testing.assert_array_equal(module.fetch("y"), integers["y"])


def test_the_text_keeps_names_scopes_and_comments_and_is_formatted(tmp_path: Path) -> None:
    found = quantized(tmp_path, CNN, cnn_tensors(), {"x": noise(4, 1, 3, 8, 8)})
    assert format_source(found.text) == found.text
    assert found.text.startswith("// A small network.\n")
    assert 'scope "block" {' in found.text
    assert "// of the first layer" in found.text
    assert "W1: i8[6, 3, 3, 3];" in found.text
    assert "b1: i32[6];" in found.text


def test_padding_of_a_convolution_is_the_zero_point(tmp_path: Path) -> None:
    """Values far from zero: zeros in their place would show at the borders."""
    text = """
    dynamic { x: f32[1, 1, 5, 5]; } volatile { y: f32[1, 1, 5, 5]; } constant { W: f32[1, 1, 3, 3]; }
    block entry { op conv2d(x, W, pads=1) >> y; return y; }
    """
    samples = {"x": np.abs(noise(8, 1, 1, 5, 5)) + 3}
    found = quantized(tmp_path, text, {"W": np.ones((1, 1, 3, 3), np.float32)}, samples)
    assert any("op pad(" in line for line in found.ops)
    for floats, integers in found.outputs(samples):
        np.testing.assert_allclose(integers["y"], floats["y"], rtol=0.01)
    plain = quantized(tmp_path, text, {"W": np.ones((1, 1, 3, 3), np.float32)}, samples, symmetric=True)
    assert not any("op pad(" in line for line in plain.ops)
    for floats, integers in plain.outputs(samples):
        np.testing.assert_allclose(integers["y"], floats["y"], rtol=0.02)


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions_are_computed_in_integers(groups: int, tmp_path: Path) -> None:
    text = f"""
    dynamic {{ x: f32[1, 4, 6]; }} volatile {{ y: f32[1, {3 * groups}, 12]; }}
    constant {{ W: f32[4, 3, 4]; b: f32[{3 * groups}]; }}
    block entry {{ op conv_transpose1d(x, W, b, strides=2, pads=1, groups={groups}) >> y; return y; }}
    """
    tensors = {"W": noise(4, 3, 4) * np.array([[[1], [5], [0.2]]], np.float32), "b": noise(3 * groups)}
    samples = {"x": np.abs(noise(9, 1, 4, 6))}
    found = quantized(tmp_path, text, tensors, samples)
    assert any("conv_transpose1d" in line and "acc=i32" in line for line in found.ops)
    assert found.report.outputs[0].deviation is not None
    assert found.report.outputs[0].deviation.decibels > 35


LOOP = """
dynamic { x: f32[4, D]; }
volatile { y: f32[4, D]; }
constant {
    Wa(l): f32[D, D] @pattern("a.{l}");
    Wb(l): f32[D, D] @pattern("b.{l}");
    bias(l): f32[D] @pattern("bias.{l}");
}
block entry {
    assign h: f32[4, D];
    assign p: f32[4, D];
    assign q: f32[4, D];
    transfer x >> h;
    loop layers (l in 0..3) {
        op linear(h, Wa[l], bias[l]) >> p;
        op gelu(p) >> p;
        op linear(h, Wb[l]) >> q;
        op mul(p, q) >> p;
        op add(h, p) >> h;
    }
    transfer h >> y;
    return y;
}
"""


def loop_tensors() -> dict[str, Any]:
    found = {f"{name}.{at}": noise(8, 8, seed=at + ord(name)) * 0.3 * 2**at for name in "ab" for at in range(3)}
    return found | {f"bias.{at}": noise(8, seed=at) for at in range(3)}


def test_loops_stay_loops_with_a_scale_for_each_layer(tmp_path: Path) -> None:
    samples = {"x": noise(12, 4, 8)}
    found = quantized(tmp_path, LOOP, loop_tensors(), samples, smooth=False)
    assert "loop layers (l in 0..3) {" in found.text
    assert 'h_scale(l): f32 @pattern("h_scale.{l}");' in found.text
    assert sum("op quantize(h, h_scale[l]" in line for line in found.ops) == 1, "both products share the codes"
    assert found.report.outputs[0].deviation is not None
    assert found.report.outputs[0].deviation.decibels > 25
    with ModelLoader.open(found.report.model) as model:
        scales = [float(model.load(f"h_scale.{at}").to_numpy()) for at in range(3)]
    assert scales == sorted(scales)
    assert scales[2] > 2 * scales[0]
    assert [one.label for one in found.report.layers][:2] == ["Wa[l=0]", "Wa[l=1]"]


def test_a_variable_with_several_values_is_read_as_the_right_one(tmp_path: Path) -> None:
    """The same name holds codes, numbers, and what a loop leaves in it."""
    text = """
    dynamic { x: f32[D]; } volatile { y: f32[D]; z: f32[D]; }
    constant { A: f32[D, D]; B: f32[D, D]; C: f32[D, D]; }
    block entry {
        assign h: f32[D];
        op linear(x, A) >> h;
        op linear(h, B) >> h;
        transfer h >> z;
        loop twice (i in 0..2) {
            op linear(h, C) >> h;
            op tanh(h) >> h;
        }
        op linear(h, A) >> h;
        op relu(h) >> h;
        op linear(h, B) >> y;
        return y, z;
    }
    """
    samples = {"x": noise(10, 8)}
    tensors = {name: noise(8, 8, seed=ord(name)) * 0.3 for name in "ABC"}
    found = quantized(tmp_path, text, tensors, samples)
    steps = found.outputs(samples)
    for name in ("y", "z"):
        exact = np.stack([floats[name] for floats, _ in steps])
        error = np.stack([integers[name] for _, integers in steps]) - exact
        assert np.linalg.norm(error) < 0.05 * np.linalg.norm(exact), name


HAZARDS = {
    "two loops with the same index": """
        transfer x >> h;
        loop one (l in 0..2) { op linear(x, T[l]) >> a; op add(h, a) >> h; }
        loop two (l in 0..2) { op linear(x, U[l]) >> a; op add(h, a) >> h; }
        transfer h >> y;
        return y;
    """,
    "a value that is returned, moved and added": """
        op linear(x, A) >> y;
        op relu(y) >> y;
        op linear(y, B) >> a;
        op add(y, a) >> a;
        op linear(a, C) >> h;
        op linear(h, A) >> z;
        return y, z;
    """,
    "a variable that begins as one": """
        op linear(x, A) >> w;
        op linear(w, B) >> y;
        return y;
    """,
    "weights of zeros with a bias": """
        op linear(x, zeros, bias) >> h;
        op linear(h, A) >> y;
        return y;
    """,
    "the same weights along both axes": """
        op linear(x, A) >> h;
        op matmul(h, A) >> y;
        return y;
    """,
    "a part of a value that is written anew": """
        op linear(x, A) >> h;
        op linear(h, B) >> a;
        op linear(x, C) >> h[0..1, ];
        op linear(h, B) >> y;
        return y, a;
    """,
    "a branch that writes what was codes": """
        op linear(x, A) >> h;
        op linear(h, B) >> a;
        branch other;
        op linear(h, B) >> y;
        return y, a;
    """,
    "a product of two values": """
        op linear(x, A) >> h;
        op matmul(h, x, transpose_b=true) >> square;
        op matmul(square, h) >> y;
        return y;
    """,
}


@pytest.mark.parametrize("name", HAZARDS)
def test_every_read_sees_the_value_that_the_float_graph_reads(name: str, tmp_path: Path) -> None:
    declared = """
    dynamic { x: f32[1, D]; }
    volatile { y: f32[1, D]; z: f32[1, D]; w: f32[1, D] @init(1.0); }
    constant {
        A: f32[D, D]; B: f32[D, D]; C: f32[D, D]; zeros: f32[D, D]; bias: f32[D];
        T(l): f32[D, D] @pattern("T.{l}"); U(l): f32[D, D] @pattern("U.{l}");
    }
    """
    assigns = "assign h: f32[1, D]; assign a: f32[1, D]; assign square: f32[1, 1];"
    other = "block other { op tanh(h) >> h; return; }"
    text = f"{declared} block entry {{ {assigns} {HAZARDS[name]} }} {other if 'branch' in name else ''}"
    tensors = {one: noise(8, 8, seed=at) * 0.4 for at, one in enumerate(("A", "B", "C", "T.0", "U.0"))}
    tensors |= {"T.1": tensors["T.0"] * 9, "U.1": tensors["U.0"] * 5, "bias": noise(8), "zeros": tensors["A"] * 0}
    samples = {"x": noise(10, 1, 8)}
    found = quantized(tmp_path, text, tensors, samples)
    steps = found.outputs(samples)
    for output in steps[0][0]:
        exact = np.stack([floats[output] for floats, _ in steps])
        error = np.stack([integers[output] for _, integers in steps]) - exact
        assert np.linalg.norm(error) < 0.05 * np.linalg.norm(exact), output


def test_a_limit_holds_where_codes_reach_further(tmp_path: Path) -> None:
    """The other operand of the concatenation needs codes up to 40: those of the first must still end at 1."""
    text = """
    dynamic { x: f32[1, D]; } volatile { y: f32[1, 16]; } constant { A: f32[D, D]; B: f32[D, D]; C: f32[16, 16]; }
    block entry {
        assign a: f32[1, D];
        assign b: f32[1, D];
        assign c: f32[1, 16];
        op linear(x, A) >> a;
        op clamp(a, min=0.0, max=1.0) >> a;
        op linear(x, B) >> b;
        op concat(a, b, axis=1) >> c;
        op linear(c, C) >> y;
        return y;
    }
    """
    tensors = {"A": noise(8, 8, seed=1) * 3, "B": noise(8, 8, seed=2) * 5, "C": np.eye(16, dtype=np.float32)}
    samples = {"x": noise(20, 1, 8)}
    found = quantized(tmp_path, text, tensors, samples)
    for floats, integers in found.outputs(samples):
        np.testing.assert_allclose(integers["y"], floats["y"], atol=0.5)
        assert integers["y"][0, :8].max() < 1.3


def test_kept_layers_stay_in_floats(tmp_path: Path) -> None:
    for pattern in ("block", "W3", "block/W*"):
        found = quantized(tmp_path, CNN, cnn_tensors(), {"x": noise(4, 1, 3, 8, 8)}, keep=[pattern])
        kept = [one.label for one in found.report.floats]
        assert "block/W3" in kept
        assert "W1" not in kept
        assert "W3: f32[6, 6, 1, 1];" in found.text


def test_weights_that_are_tied_to_a_table_serve_both(tmp_path: Path) -> None:
    text = """
    dynamic { ids: i32[3]; } volatile { y: f32[3, 16]; } constant { words: f32[16, D]; }
    block entry {
        assign h: f32[3, D];
        op embedding(words, ids) >> h;
        op gelu(h) >> h;
        op linear(h, words) >> y;
        return y;
    }
    """
    samples = {"ids": np.random.default_rng(0).integers(0, 16, (9, 3)).astype(np.int32)}
    found = quantized(tmp_path, text, {"words": noise(16, 8)}, samples)
    assert "words: i8[16, D];" in found.text
    for floats, integers in found.outputs(samples):
        np.testing.assert_allclose(integers["y"], floats["y"], atol=0.15)


def test_weights_only_needs_no_samples(tmp_path: Path) -> None:
    found = quantized(tmp_path, LOOP, loop_tensors(), None, weights_only=True)
    assert "Wa(l): i8[D, D]" in found.text
    assert not any("quantize" in line for line in found.ops)
    for floats, integers in found.outputs({"x": noise(3, 4, 8)}):
        assert np.linalg.norm(integers["y"] - floats["y"]) < 0.1 * np.linalg.norm(floats["y"])


CELL = """
dynamic {{ x: f32[1, D]; }} volatile {{ y: f32[1, 4]; }} persistent {{ h: f32[1, 4]; c: f32[1, 4]; }}
constant {{ wi: f32[{gates}, D]; wh: f32[{gates}, 4]; bi: f32[{gates}]; bh: f32[{gates}]; }}
block entry {{ op {cell} transfer h >> y; return y; }}
"""


@pytest.mark.parametrize(
    ("cell", "gates"),
    [
        ("lstm_cell(x, h, c, wi, wh, bi, bh) >> h, c;", 16),
        ("gru_cell(x, h, wi, wh, bi, bh) >> h;", 12),
        ('rnn_cell(x, h, wi, wh, bi, bh, activation="relu") >> h;', 4),
    ],
    ids=["lstm", "gru", "rnn"],
)
def test_recurrent_cells_become_products_and_gates(cell: str, gates: int, tmp_path: Path) -> None:
    shapes = {"wi": (gates, 8), "wh": (gates, 4), "bi": (gates,), "bh": (gates,)}
    tensors = {name: noise(*shape, seed=at) * 0.4 for at, (name, shape) in enumerate(shapes.items())}
    samples = {"x": noise(30, 1, 8)}
    found = quantized(tmp_path, CELL.format(cell=cell, gates=gates), tensors, samples)
    assert sum("op linear" in line for line in found.ops) == 2
    for floats, integers in found.outputs(samples):
        np.testing.assert_allclose(integers["y"], floats["y"], atol=0.06)
    kept = quantized(tmp_path, LOOP_WITH_CELL, LOOP_TENSORS, samples, keep=["wi"])
    assert any("gru_cell" in line for line in kept.ops)


LOOP_WITH_CELL = CELL.format(cell="gru_cell(x, h, wi, wh, bi, bh) >> h; op linear(h, W) >> c;", gates=12).replace(
    "constant { ", "constant { W: f32[4, 4]; "
)
LOOP_TENSORS = {"wi": noise(12, 8), "wh": noise(12, 4), "bi": noise(12), "bh": noise(12), "W": noise(4, 4)}


def test_accuracy_is_counted_before_and_after(tmp_path: Path) -> None:
    samples = {"x": noise(10, 1, 3, 8, 8)}
    first = quantized(tmp_path, CNN, cnn_tensors(), samples)
    labels = np.array([floats["y"].argmax() for floats, _ in first.outputs(samples)])
    labels[0] = (labels[0] + 1) % 5
    found = quantized(tmp_path, CNN, cnn_tensors(), samples, labels=labels, judge="y")
    assert found.report.accuracy is not None
    assert (found.report.accuracy.before, found.report.accuracy.count) == (9, 10)
    facts = json.loads(json.dumps(found.report.facts(), allow_nan=False))
    assert facts["accuracy"]["after"] >= 8
    assert facts["layers"][0]["layer"] == "W1"


def test_outliers_are_cut_off_by_observers_that_look_at_all_values(tmp_path: Path) -> None:
    text = """
    dynamic { x: f32[30000]; } volatile { y: f32[4]; } constant { W: f32[4, 30000]; }
    block entry { op linear(x, W) >> y; return y; }
    """
    x = noise(2, 30000)
    x[:, 7] = 30
    scales = {}
    for observer in ("minmax", "mse", "percentile:99.5"):
        found = quantized(tmp_path, text, {"W": noise(4, 30000)}, {"x": x}, observer=observer, smooth=False)
        line = next(line for line in found.text.splitlines() if "x_scale" in line)
        scales[observer] = float(line.partition("@init(")[2].partition(")")[0])
    assert scales["percentile:99.5"] < scales["mse"] < scales["minmax"]


ONE = """
dynamic { x: f32[4]; } volatile { y: f32[4]; } constant { W: f32[4, 4]; }
block entry { op matmul(x, W) >> y; return y; }
"""
GOOD = {"x": np.ones((3, 4), np.float32)}


@pytest.mark.parametrize(
    ("samples", "options", "code", "message"),
    [
        (None, {}, "E770", "there are no samples"),
        ({"x": np.ones(4, np.float32)}, {}, "E770", "no axis of samples"),
        ({"z": np.ones((3, 4), np.float32)}, {}, "E770", "no samples of the input 'x'"),
        ({**GOOD, "z": np.ones(3)}, {}, "E770", "there is no input 'z'"),
        ({"x": np.ones((0, 4), np.float32)}, {}, "E770", "no samples"),
        ("missing.npz", {}, "E770", "cannot read"),
        ("net.oig", {}, "E770", "is not an .npz file"),
        (GOOD, {"labels": np.ones(2, np.int64)}, "E770", "there are 3 samples"),
        (GOOD, {"observer": "best"}, "E771", "there is no observer 'best'"),
        (GOOD, {"observer": "percentile:12"}, "E771", "a percentile is above 50"),
        (GOOD, {"keep": ["nothing*"]}, "E771", "no layer matches 'nothing*'"),
        (GOOD, {"judge": "z"}, "E771", "there is no output 'z'"),
        (GOOD, {"keep": ["W"]}, "E772", "there is nothing to quantize"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    samples: Any, options: dict[str, Any], code: str, message: str, tmp_path: Path
) -> None:
    given = str(tmp_path / samples) if isinstance(samples, str) else samples
    with pytest.raises(OpenInferError) as raised:
        quantized(tmp_path, ONE, {"W": noise(4, 4)}, given, **options)
    assert str(raised.value.code) == code
    assert message in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_layers_that_no_sample_reaches_stay_in_floats(tmp_path: Path) -> None:
    text = """
    dynamic { x: f32[4]; wanted: bool; } volatile { y: f32[4]; } constant { W: f32[4, 4]; V: f32[4, 4]; }
    block entry { op matmul(x, W) >> y; branch wanted more none; return y; }
    block more { op matmul(y, V) >> y; return; }
    block none { return; }
    """
    samples = {"x": noise(5, 4), "wanted": np.zeros(5, np.bool_)}
    found = quantized(tmp_path, text, {"W": noise(4, 4), "V": noise(4, 4)}, samples)
    assert [(one.label, one.reason) for one in found.report.floats] == [("V", "no sample reaches it")]


def test_samples_of_different_shapes_come_as_arrays_of_their_own(tmp_path: Path) -> None:
    text = """
    sizes { T <= 9; }
    dynamic { x: f32[T, D]; } volatile { y: f32[T, D]; } constant { W: f32[D, D]; }
    block entry { op linear(x, W) >> y; return y; }
    """
    arrays: dict[str, Any] = {"x.0": noise(3, 8), "x.1": noise(9, 8)}
    np.savez(tmp_path / "in.npz", **arrays)
    found = quantized(tmp_path, text, {"W": noise(8, 8)}, tmp_path / "in.npz")
    assert found.report.samples == 2
    assert found.report.outputs[0].deviation is not None
    assert found.report.outputs[0].deviation.decibels > 30


def test_what_is_not_quantized_stays_in_the_model_as_it_was(tmp_path: Path) -> None:
    found = quantized(tmp_path, LOOP, loop_tensors() | {"unused": noise(3)}, {"x": noise(2, 4, 8)}, keep=["Wb"])
    with ModelLoader.open(found.report.model) as model:
        assert model.tensors["b.0"].dtype.name == "f32"
        assert model.tensors["a.0"].dtype.name == "i8"
        assert "unused" not in model.tensors
        assert model.size_of("D") == 8


def test_the_command_prints_the_report_and_facts_for_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.oig").write_text(ONE)
    save_file("net.oinf", {"W": noise(4, 4)})
    np.savez("in.npz", x=noise(6, 4))
    np.save("labels.npy", np.zeros(6, np.int64))
    command = ["quantize", "net.oig", "--model", "net.oinf", "--calibrate", "in.npz", "-o", "out"]
    done = openinfer(*command)
    assert done.status == 0
    assert "W      matmul" in done.out
    assert done.out.endswith("graph: out/net_i8.oig\nmodel: out/net_i8.oinf\n")
    done = openinfer(*command, "--labels", "labels.npy", "--output", "y", "--name", "small", "--json")
    facts = json.loads(done.out)
    assert facts["graph"] == "out/small.oig"
    assert facts["accuracy"]["count"] == 6
    done = openinfer(*command, "--observer", "best")
    assert done.status == 1
    assert "error[E771]" in done.err
