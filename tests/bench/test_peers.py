"""The engines that the CPU benchmark is measured against: their environments, what they answer, and the page's table.

None of their packages is needed here.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from bench.cpu import table
from bench.cpu.cases import CASES
from bench.cpu.convert import converted, digest_of, reason_of
from bench.cpu.engines import PLACES
from bench.cpu.engines.ncnn import unknown_layers
from bench.cpu.peers import PEERS
from bench.cpu.process import UnableEngineError, environment, parsed

FAST, SLOW = {"status": "ok", "median_ms": 1.0}, {"status": "ok", "median_ms": 2.0, "share_of_ceiling": 0.5}
UNABLE = {"status": "unable", "why": "Foo is unknown", "median_ms": None}
FACTS: dict[str, Any] = {
    "machine": {"processor": "A processor", "cores": 2, "versions": {"openinfer": "1", "litert": "2.3.0"}},
    "settings": {"threads": [2], "rounds": 3},
    "ceilings": {"gflops_2_threads": 233.0},
    "models": [
        {
            "key": "ds-cnn",
            "name": "DS-CNN",
            "threads": 2,
            "ratio": 0.5,
            "engines": {"ours": SLOW, "litert": FAST, "ncnn": UNABLE},
        }
    ],
}


def test_every_engine_of_a_case_has_a_place_and_a_title() -> None:
    assert set(PLACES) == set(PEERS)
    assert {engine for case in CASES.values() for engine in case.engines} <= set(PEERS)
    assert {case.original for case in CASES.values()} - {None} <= set(CASES)


def test_peers_find_neither_the_environment_of_the_benchmark_nor_anything_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"/somewhere/.venv/bin{os.pathsep}/usr/bin")
    monkeypatch.setenv("PYTHONPATH", "/somewhere/src")
    found = environment("mnn", tmp_path, 2)
    assert found["PATH"].startswith(str(PEERS["mnn"].python.parent))
    assert "/somewhere" not in found["PATH"] + found["PYTHONPATH"]
    assert found["PIP_NO_INDEX"] == "1"
    assert found["OMP_NUM_THREADS"] == "2"
    assert "AMX" not in found["ONEDNN_MAX_CPU_ISA"]


def test_an_engine_that_cannot_run_a_model_says_why() -> None:
    assert parsed('{"seconds": 0.5}') == {"seconds": 0.5}
    with pytest.raises(UnableEngineError, match="Foo is unknown"):
        parsed('{"cannot": "Foo is unknown"}')


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ('loading\n{"cannot": "Foo is unknown"}\n', "Foo is unknown"),
        (
            "loading\nmodel.mlir:3:1: error: failed to legalize\nsee above\n",
            "model.mlir:3:1: error: failed to legalize",
        ),
        ("Traceback\nKeyError: 'Foo'\n", "KeyError: 'Foo'"),
        ("", "its converter said nothing"),
    ],
)
def test_of_what_a_converter_says_the_reason_is_shown(log: str, reason: str) -> None:
    assert reason_of(log) == reason


def test_layers_that_a_converter_has_left_are_found() -> None:
    text = "7767517\n2 2\nInput in0 0 1 x\nTensor.to op 1 1 x y\n"
    assert unknown_layers(text) == ["Tensor.to"]


def test_a_file_is_made_again_only_for_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in place of Python, which counts how often a conversion begins."""
    home, model = tmp_path / "peers", tmp_path / "model"
    (home / "mnn" / "bin").mkdir(parents=True)
    model.mkdir()
    program = home / "mnn" / "bin" / "python"
    program.write_text(f"#!/bin/sh\necho once >> {tmp_path}/count\n", encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setattr("bench.cpu.peers.HOME", home)
    for data, expected in ((b"one", 1), (b"one", 1), (b"another", 2)):
        (model / "model.onnx").write_bytes(data)
        assert converted("mnn", model) is None
        assert len((tmp_path / "count").read_text(encoding="ascii").split()) == expected
    assert digest_of("mnn", model) != digest_of("ncnn", model)


def test_the_table_of_the_page_is_written_from_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n\n{table.BEGIN}\nold\n{table.END}\n\nAfter.\n", encoding="utf-8")
    monkeypatch.setattr(table, "PAGE", page)
    table.write_table(FACTS)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("Before.")
    assert text.endswith("After.\n")
    assert "old" not in text
    assert "| DS-CNN | 2 | **1** | 0.50 | 50% |" in text
    assert "* ncnn, ds-cnn: unable: Foo is unknown" in text
    table.write_table(FACTS)
    assert page.read_text(encoding="utf-8") == text


def test_the_page_has_a_place_for_the_table() -> None:
    text = table.PAGE.read_text(encoding="utf-8")
    assert text.count(table.BEGIN) == text.count(table.END) == 1
