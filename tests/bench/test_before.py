"""The comparison with an earlier checkout: what it writes, and that what it cannot compare is named."""

import json
from pathlib import Path
from typing import Any

import bench.before
import pytest
from bench.cpu.cases import CASES, Case
from bench.cpu.measure import output_of
from bench.cpu.peers import ROOT
from bench.decoder import Shape, decoder
from bench.models import mlp

from openinfer.synth.targets.target import Allowed

SMALL = Shape(layers=1, width=128, heads=4, head=32, hidden=256, classes=64, tokens=16)


@pytest.fixture(autouse=True)
def _small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    winograd = frozenset({Allowed.WINOGRAD})
    for case in (
        Case("small", lambda: mlp((8, 4, 2))),
        Case("stateful", lambda: decoder(SMALL)),
        Case("winograd", lambda: mlp((8, 4, 2)), allow=winograd),
    ):
        monkeypatch.setitem(CASES, case.key, case)


def run(folder: Path, before: Path, *models: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit status and the figures of two rounds on one thread."""
    options = ["--before", str(before), "--threads", "1", "--rounds", "2", "--folder", str(folder)]
    status = bench.before.main([*models, *options])
    facts = json.loads((folder / "before.json").read_text())
    assert set(facts["revisions"]) == {"before", "after"}
    models_of: list[dict[str, Any]] = facts["models"]
    return status, models_of


def test_a_checkout_agrees_with_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, models = run(tmp_path, ROOT, "small", "stateful", "wino*")
    assert status == 0
    assert [model["key"] for model in models] == ["small", "stateful", "winograd"]
    for model in models:
        assert len(model["ratios"]) == 2
        low, high = model["ratio_quartiles"]
        assert low <= model["ratio"] <= high
        assert model["after"]["error"] == 0
        for side in ("before", "after"):
            assert len(model[side]["times_ms"]) == 2
            assert (tmp_path / "before" / model["key"] / side / "ours-1" / "project" / "Makefile").exists()
    assert "after / before" in capsys.readouterr().out


def test_what_earlier_sources_refuse_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "old" / "src" / "openinfer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SyntaxError('winograd is unknown')\n")
    status, (model,) = run(tmp_path, tmp_path / "old", "small")
    assert status == 0
    assert model["before"]["status"] == "unable"
    assert "after" not in model
    assert "ratio" not in model
    assert "small (threads: 1): before is unable: SyntaxError: winograd is unknown" in capsys.readouterr().out


def test_results_that_differ_are_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "bench.before.output_of", lambda folder, name: output_of(folder, name) + (folder.name == "after")
    )
    status, (model,) = run(tmp_path, ROOT, "small")
    assert status == 1
    assert model["after"]["status"] == "wrong"
    assert model["before"]["times_ms"] == model["after"]["times_ms"] == []
    assert "after is wrong: the output differs by" in capsys.readouterr().out


def test_a_folder_without_sources_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.before.main(["--before", str(tmp_path)])
    assert "it has no src/openinfer" in capsys.readouterr().err
