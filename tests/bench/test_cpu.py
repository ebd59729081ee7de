"""The harness that compares CPU engines: what it writes, and that engines that are wrong or missing are named."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import bench.cpu.measure
import numpy as np
import pytest
from bench.cnns import ds_cnn, mobilenet_v3_small
from bench.cnns_int8 import in_8_bits
from bench.cpu.__main__ import main
from bench.cpu.cases import CASES
from bench.cpu.measure import cosine, judged
from bench.cpu.peers import ALL
from bench.cpu.prepare import Prepared, simulated
from bench.cpu.turns import Outcome
from bench.decoder import Shape, decoder
from bench.decoder_groups import grouped, write_gguf
from bench.decoder_quantized import decoder_int4, decoder_int8
from bench.minilm import Bert, encoder, minilm, random_weights
from bench.models import Model, digits, disagreement, lstm, mlp
from bench.of_bytes import digits_int8, mlp_int8
from bench.onnx_writer import ort
from bench.prefill import prefill
from bench.sequences import gru, tcn
from bench.vision import resnet50, unet_block, yolo_head
from bench.vit import Vit, vit_tiny

from openinfer.importing.gguf_blocks import groups_of
from openinfer.importing.gguf_file import GgufFile
from openinfer.synth.devices.isa import has_dot

SMALL = Shape(layers=2, width=128, heads=4, head=32, hidden=256, classes=64, tokens=16)
SMALL_BERT = Bert(2, 64, 4, 128, words=1100, positions=32)


def run(folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """The exit status and the facts of a short run of the MLP."""
    files = ["--json", str(folder / "cpu.json"), "--svg", str(folder / "cpu.svg"), "--files", str(folder / "files")]
    status = main(["mlp", "--peers", "onnxruntime", "--rounds", "2", "--threads", "2", *files, *more])
    facts: dict[str, Any] = json.loads((folder / "cpu.json").read_text())
    return status, facts


def test_a_run_writes_its_figures_and_a_picture(tmp_path: Path) -> None:
    status, facts = run(tmp_path)
    assert status == 0
    assert facts["machine"]["cores"] >= 1
    assert facts["machine"]["versions"]["onnxruntime"]
    assert facts["machine"]["installed_bytes"]["onnxruntime"] > 1e6
    assert all(value > 0 for value in facts["ceilings"].values())
    (model,) = facts["models"]
    assert model["key"] == "mlp"
    assert model["best_peer"] == "onnxruntime"
    engines = model["engines"]
    assert list(engines) == ["ours", "onnxruntime"]
    for one in engines.values():
        assert one["status"] == "ok"
        assert one["error"] < 1e-5
        assert len(one["times_ms"]) == 2
        low, high = one["quartiles_ms"]
        assert one["min_ms"] <= low <= one["median_ms"] <= high
        assert min(one["start_s"], one["peak_bytes"], one["model_bytes"], one["share_of_ceiling"]) > 0
    assert model["ratio"] == pytest.approx(engines["onnxruntime"]["median_ms"] / engines["ours"]["median_ms"])
    weights = 4 * (784 * 256 + 256 * 128 + 128 * 10)
    assert all(one["model_bytes"] > weights for one in engines.values())
    picture = ElementTree.parse(tmp_path / "cpu.svg").getroot()
    assert len(picture.findall(".//{*}rect/{*}title")) == 2
    assert any("MLP" in (text.text or "") for text in picture.iter("{http://www.w3.org/2000/svg}text"))


@pytest.fixture
def _known_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine can do is measured by the test above, which takes seconds."""
    monkeypatch.setattr("bench.ceilings.Ceilings.gflops", lambda _self, _threads: 100.0)
    monkeypatch.setattr("bench.ceilings.Ceilings.read_gb", lambda _self, _nbytes, _threads: 10.0)
    monkeypatch.setattr("bench.cpu.measure.handover_ns", lambda: 50.0)


@pytest.mark.usefixtures("_known_ceilings")
@pytest.mark.parametrize(("wrong", "right", "code"), [("onnxruntime", "ours", 0), ("ours", "onnxruntime", 1)])
def test_an_engine_that_is_wrong_is_marked_and_not_timed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: str,
    right: str,
    code: int,
) -> None:
    read = bench.cpu.measure.output_of

    def spoiled(folder: Path, name: str) -> Any:
        return read(folder, name) + (0.1 if name.startswith(wrong) else 0.0)

    monkeypatch.setattr(bench.cpu.measure, "output_of", spoiled)
    status, facts = run(tmp_path)
    (model,) = facts["models"]
    assert status == code
    assert model["engines"][right]["status"] == "ok"
    assert model["engines"][wrong]["status"] == "wrong"
    assert model["engines"][wrong]["times_ms"] == []
    assert model["ratio"] is None
    assert f"{wrong} is wrong: the output differs by" in capsys.readouterr().out


@pytest.mark.usefixtures("_known_ceilings")
@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("raise ModuleNotFoundError(\"No module named 'onnxruntime'\")", "missing"),
        ("raise RuntimeError('out of order')", "failed"),
    ],
)
def test_an_engine_that_does_not_start_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    status: str,
) -> None:
    (tmp_path / "onnxruntime.py").write_text(line)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    returned, facts = run(tmp_path)
    engines = facts["models"][0]["engines"]
    assert returned == 0
    assert engines["onnxruntime"]["status"] == status
    assert engines["ours"]["median_ms"] > 0
    assert f"onnxruntime is {status}" in capsys.readouterr().out


def test_models_that_are_not_there_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["perceptron"])
    assert "there is no model 'perceptron': choose from mlp" in capsys.readouterr().err


def test_small_weights_of_peers_are_judged_by_the_f32_model() -> None:
    rng = np.random.default_rng(0)
    original = rng.normal(size=1000)
    right = Prepared(Path(), original + rng.normal(0, 0.1, 1000), original, None, {})
    near, far = original + rng.normal(0, 0.12, 1000), original + rng.normal(0, 0.4, 1000)
    found = {}
    for name, output, engine in (("near", near, "onnxruntime"), ("far", far, "onnxruntime"), ("ours", near, "ours")):
        outcome = Outcome()
        judged(outcome, output, engine, right)
        found[name] = outcome.status
    assert found == {"near": "ok", "far": "wrong", "ours": "wrong"}


@pytest.mark.parametrize("output", [np.zeros(3), np.array([1.0, np.nan])])
def test_outputs_of_another_size_or_not_finite_are_wrong(output: Any) -> None:
    outcome = Outcome()
    judged(outcome, output, "openvino", Prepared(Path(), np.ones(2), None, None, {}))
    assert outcome.status == "wrong"


@pytest.mark.parametrize(
    ("key", "build"),
    [
        ("mlp", mlp),
        ("minilm-1x16", lambda: minilm(1, 16)),
        ("lstm", lambda: lstm(32)),
        ("digits", digits),
        ("decoder", lambda: decoder(SMALL)),
    ],
)
def test_models_are_the_same_for_every_engine(key: str, build: Callable[[], Model], tmp_path: Path) -> None:
    import torch
    from bench.cpu.torch_models import MODULES

    model = build()
    wanted = simulated(model, model.saved(tmp_path))
    module = MODULES[key]({name: torch.from_numpy(value) for name, value in model.tensors.items()})
    given = module.prepared({name: torch.from_numpy(value) for name, value in model.given.items()})
    assert disagreement(module(*given).detach().numpy(), wanted) < 1e-5
    assert disagreement(ort(model.onnx(), 1).run(None, model.given)[0], wanted) < 1e-5


@pytest.mark.parametrize(
    "build",
    [
        lambda: mobilenet_v3_small(32),
        lambda: ds_cnn(2, 8),
        lambda: resnet50(32),
        lambda: yolo_head(8, 16),
        lambda: unet_block(16, 8),
        lambda: tcn(32, 16, 3),
        lambda: gru(32),
        lambda: vit_tiny(Vit(2, 3, 16, 3)),
        lambda: encoder(SMALL_BERT, "BERT", (2, 16), random_weights(SMALL_BERT)),
        lambda: lstm(32),
    ],
    ids=["mobilenet", "ds-cnn", "resnet50", "yolo", "unet", "tcn", "gru", "vit", "bert", "lstm"],
)
def test_models_are_the_same_in_onnx_and_as_modules_of_it(build: Callable[[], Model], tmp_path: Path) -> None:
    import torch
    from bench.cpu.onnx_torch import OnnxModule

    model = build()
    wanted = simulated(model, model.saved(tmp_path))
    (tmp_path / "model.onnx").write_bytes(model.onnx())
    assert disagreement(ort(model.onnx(), 1).run(None, model.given)[0], wanted) < 1e-5
    module = OnnxModule(tmp_path / "model.onnx").eval()
    given = [torch.from_numpy(value) for value in model.given.values()]
    assert disagreement(module(*given).detach().numpy(), wanted) < 1e-5
    assert model.multiply_adds > 0
    assert 0 < model.read_bytes <= sum(value.nbytes for value in model.tensors.values())


def by_ort(least: float) -> float:
    """The least cosine of ONNX Runtime: without VNNI it adds pairs of products of bytes in 16 bits, which saturate."""
    return least if has_dot() else min(least, 0.99)


@pytest.mark.parametrize(("build", "least"), [(decoder_int8, 0.999), (decoder_int4, 0.97)])
def test_decoders_with_small_weights_are_near_the_original(
    build: Callable[[Shape], Model], least: float, tmp_path: Path
) -> None:
    model = build(SMALL)
    assert model.original is not None
    wanted = simulated(model.original, model.original.saved(tmp_path))
    found = simulated(model, model.saved(tmp_path))
    assert least < cosine(found, wanted) < 1 - 1e-6
    assert by_ort(least) < cosine(ort(model.onnx(), 1).run(None, model.given)[0], wanted)
    assert model.read_bytes < model.original.read_bytes / 2


@pytest.mark.parametrize(
    "build",
    [digits_int8, lambda: mlp_int8((96, 64, 32), 5), lambda: in_8_bits(ds_cnn(2, 8))],
    ids=["digits", "mlp", "ds-cnn"],
)
def test_models_in_integers_are_near_the_original(
    build: Callable[[], Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.cnns_int8.KEPT", tmp_path / "kept")
    model = build()
    assert model.original is not None
    wanted = simulated(model.original, model.original.saved(tmp_path))
    assert 0.999 < cosine(simulated(model, model.saved(tmp_path)), wanted) < 1 - 1e-6
    assert cosine(ort(model.onnx(), 1).run(None, model.given)[0], wanted) > by_ort(0.999)
    assert model.read_bytes < model.original.read_bytes / 2


def test_a_prompt_is_read_alike(tmp_path: Path) -> None:
    model = prefill(SMALL)
    wanted = simulated(model, model.saved(tmp_path))
    assert disagreement(ort(model.onnx(), 1).run(None, model.given)[0], wanted) < 1e-5


@pytest.mark.parametrize(("kind", "least"), [("BF16", 0.9999), ("Q8_0", 0.9999), ("Q4_0", 0.97)])
def test_weights_are_the_same_in_the_files_of_both(kind: str, least: float, tmp_path: Path) -> None:
    """llama.cpp's file, read by our own importer, has the numbers that our file has."""
    model = grouped(SMALL, kind)
    assert model.original is not None
    near = cosine(simulated(model, model.saved(tmp_path)), simulated(model.original, model.original.saved(tmp_path)))
    assert least < near < 1 - 1e-9
    write_gguf(tmp_path / "model.gguf", SMALL, dict(model.original.tensors), kind)
    own = model.tensors["layers.1.down"]
    with GgufFile(str(tmp_path / "model.gguf")) as file:
        tensor = file.tensors["blk.1.ffn_down.weight"]
        data = file.read(tensor)
        assert (tensor.format_name, tensor.shape) == (kind, (SMALL.width, SMALL.hidden))
        assert file.tensors["token_embd.weight"].format_name == "F32"
    if kind == "BF16":
        assert np.array_equal(data.view(np.uint16), (own.values.view(np.uint32) >> 16).reshape(-1))
    else:
        found = groups_of(kind, data)
        assert np.array_equal(found.values.reshape(-1), own.values.reshape(-1))
        assert np.array_equal(found.scales.reshape(-1), own.quant.scale.values)


def test_torch_has_every_model_that_it_is_measured_on() -> None:
    from bench.cpu.torch_models import MODULES

    assert {key for key, case in CASES.items() if "torch" in case.engines} == set(MODULES)
    assert all(set(case.engines) <= set(ALL) for case in CASES.values())
