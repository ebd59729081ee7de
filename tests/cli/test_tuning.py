"""``--tune``, ``--tuned`` and ``--no-tuned`` of ``openinfer synth`` and ``openinfer bench``."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.in_process import openinfer

from openinfer.oinf import save_file
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.targets.cpu.choices import Choice
from openinfer.synth.targets.cpu.machine import cpu_machine
from openinfer.synth.tuning.records import Processor, Record, Tuned

GRAPH = """
dynamic { x: f32[8, 48]; }
constant { w: f32[48, 40]; }
volatile { y: f32[8, 40]; }
block entry { op matmul(x, w) >> y; return y; }
"""
FAST = ("--tune", "--tune-seconds", "0")
ONE = ("--threads", "1")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def graph(tmp_path: Path) -> tuple[str, ...]:
    """The arguments that name a graph and its model."""
    save_file(tmp_path / "m.oinf", {"w": np.random.default_rng(1).normal(size=(48, 40)).astype(np.float32)})
    (tmp_path / "g.oig").write_text(GRAPH)
    return str(tmp_path / "g.oig"), "--model", str(tmp_path / "m.oinf")


def measured(path: Path, graph: tuple[str, ...], count: str = "1 product measured") -> Record:
    """What is found about the one product of the graph; the command says how many it has measured."""
    done = openinfer("synth", *graph, *ONE, *FAST, "--tuned", str(path))
    assert (done.status, done.err.partition(",")[0]) == (0, f"tiles: {count}")
    (record,) = Tuned.load(path).records
    return record


def chosen(path: Path, record: Record) -> Record:
    """A file that says another tile is the best."""
    made = record.model_copy(update={"choice": Choice(rows=3, vectors=1, gain=1.5)})
    Tuned(records=(made,)).save(path)
    return made


def test_what_is_measured_is_written_and_not_measured_again(tmp_path: Path, graph: tuple[str, ...]) -> None:
    path = tmp_path / "t.json"
    record = measured(path, graph)
    assert record.processor == Processor.of(cpu_machine(DeviceArch.detect()), 1)
    assert (record.product.rows, record.product.columns, record.product.inner) == (8, 40, 48)
    made = chosen(path, record)
    assert measured(path, graph, "nothing to measure; products are small") == made


def test_without_a_file_choices_are_kept_with_the_builds(tmp_path: Path, graph: tuple[str, ...]) -> None:
    assert openinfer("synth", *graph, *ONE, *FAST).status == 0
    assert len(Tuned.load(tmp_path / "cache" / "tuned.json").records) == 1


def test_a_file_is_used_and_the_report_says_so(tmp_path: Path, graph: tuple[str, ...]) -> None:
    path = tmp_path / "t.json"
    chosen(path, measured(path, graph))
    before = path.read_bytes()
    done = openinfer("synth", *graph, *ONE, "--tuned", str(path), "--report")
    assert "in tiles of 3 x " in done.out
    assert "by measuring, 1.50 times as fast as by rule" in done.out
    facts = json.loads(openinfer("synth", *graph, *ONE, "--tuned", str(path), "--json").out)
    assert [one["chosen_by"] for one in facts["kernels"][0]["tiles"]] == ["measurement"]
    assert openinfer("bench", *graph, *ONE, "--tuned", str(path), "--steps", "1").status == 0
    assert path.read_bytes() == before
    for other in ((*ONE, "--no-tuned"), ("--threads", "2", "--tuned", str(path)), ONE):
        assert ", by rule" in openinfer("synth", *graph, *other, "--report").out


def test_code_with_chosen_tiles_agrees_with_the_simulator(tmp_path: Path, graph: tuple[str, ...]) -> None:
    path = tmp_path / "t.json"
    chosen(path, measured(path, graph))
    assert openinfer("synth", *graph, *ONE, "--tuned", str(path), "--run").status == 0


def test_bench_measures_too(tmp_path: Path, graph: tuple[str, ...]) -> None:
    path = tmp_path / "t.json"
    assert openinfer("bench", *graph, *FAST, "--tuned", str(path), "--steps", "1").status == 0
    assert len(Tuned.load(path).records) == 1


@pytest.mark.parametrize("options", [("--no-tuned", "--tune"), ("--no-tuned", "--tuned", "t.json")])
def test_options_that_exclude_each_other(options: tuple[str, ...], graph: tuple[str, ...]) -> None:
    done = openinfer("synth", *graph, *options)
    assert done.status == 2
    assert "--no-tuned" in done.err


def test_a_file_of_nonsense_is_refused_and_stays_as_it_is(tmp_path: Path, graph: tuple[str, ...]) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"schema": "openinfer.tuned", "version": 1, "records": [3]}')
    for options in ((), FAST):
        done = openinfer("synth", *graph, *options, "--tuned", str(path))
        assert done.status == 1
        assert done.err.startswith(f"error[E804]: expected an object, found 3\n  --> {path}: /records/0")
    assert path.read_text().endswith("[3]}")


def test_a_file_that_is_not_there_is_refused_unless_it_is_to_be_written(tmp_path: Path, graph: tuple[str, ...]) -> None:
    done = openinfer("synth", *graph, "--tuned", str(tmp_path / "none.json"))
    assert (done.status, done.err.partition(":")[0]) == (1, "error[E804]")
    assert openinfer("synth", *graph, *FAST, "--tuned", str(tmp_path / "new.json")).status == 0
    assert openinfer("synth", *graph, *FAST, "--tuned", str(tmp_path / "no" / "t.json")).status == 1


def test_a_device_that_this_machine_is_not_cannot_be_measured(graph: tuple[str, ...]) -> None:
    done = openinfer("synth", *graph, "--device", "cortex-m4", *FAST)
    assert (done.status, done.err.partition(":")[0]) == (1, "error[E801]")
