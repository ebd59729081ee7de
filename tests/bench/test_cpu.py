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
from bench.cpu.__main__ import main
from bench.cpu.cases import CASES
from bench.cpu.measure import Outcome, cosine, judged
from bench.cpu.peers import ALL
from bench.cpu.prepare import Prepared, simulated
from bench.decoder import Shape, decoder
from bench.decoder_quantized import decoder_int4, decoder_int8
from bench.minilm import minilm
from bench.models import Model, digits, disagreement, lstm, mlp
from bench.of_bytes import digits_int8, mlp_int8
from bench.onnx_writer import ort

SMALL = Shape(layers=2, width=128, heads=4, head=32, hidden=256, classes=64, tokens=16)


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


@pytest.mark.usefixtures("_known_ceilings")
def test_an_engine_that_is_wrong_is_marked_and_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = bench.cpu.measure.output_of

    def spoiled(folder: Path, name: str) -> Any:
        return read(folder, name) + (0.1 if name.startswith("onnxruntime") else 0.0)

    monkeypatch.setattr(bench.cpu.measure, "output_of", spoiled)
    status, facts = run(tmp_path)
    (model,) = facts["models"]
    assert status == 1
    assert model["engines"]["ours"]["status"] == "ok"
    assert model["engines"]["onnxruntime"]["status"] == "wrong"
    assert model["engines"]["onnxruntime"]["times_ms"] == []
    assert model["best_peer"] is None
    assert model["ratio"] is None
    assert "onnxruntime is wrong: the output differs by" in capsys.readouterr().out


@pytest.mark.usefixtures("_known_ceilings")
@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        ("raise ModuleNotFoundError(\"No module named 'onnxruntime'\")", "missing", 0),
        ("raise RuntimeError('out of order')", "failed", 1),
    ],
)
def test_an_engine_that_does_not_start_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    status: str,
    code: int,
) -> None:
    (tmp_path / "onnxruntime.py").write_text(line)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    returned, facts = run(tmp_path)
    engines = facts["models"][0]["engines"]
    assert returned == code
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


@pytest.mark.parametrize(("build", "least"), [(decoder_int8, 0.999), (decoder_int4, 0.97)])
def test_decoders_with_small_weights_are_near_the_original(
    build: Callable[[Shape], Model], least: float, tmp_path: Path
) -> None:
    model = build(SMALL)
    assert model.original is not None
    wanted = simulated(model.original, model.original.saved(tmp_path))
    found = simulated(model, model.saved(tmp_path))
    assert least < cosine(found, wanted) < 1 - 1e-6
    assert least < cosine(ort(model.onnx(), 1).run(None, model.given)[0], wanted)
    assert model.read_bytes < model.original.read_bytes / 2


@pytest.mark.parametrize("build", [digits_int8, lambda: mlp_int8((96, 64, 32), 5)], ids=["digits", "mlp"])
def test_models_in_integers_are_near_the_original(build: Callable[[], Model], tmp_path: Path) -> None:
    model = build()
    assert model.original is not None
    wanted = simulated(model.original, model.original.saved(tmp_path))
    assert 0.999 < cosine(simulated(model, model.saved(tmp_path)), wanted) < 1 - 1e-6
    assert cosine(ort(model.onnx(), 1).run(None, model.given)[0], wanted) > 0.999
    assert model.read_bytes < model.original.read_bytes / 2


def test_torch_has_every_model_that_it_is_measured_on() -> None:
    from bench.cpu.torch_models import MODULES

    assert {key for key, case in CASES.items() if "torch" in case.engines} == set(MODULES)
    assert all(set(case.engines) <= set(ALL) for case in CASES.values())
