"""Commands that compute on a Vulkan device: ``run``, ``step``, ``trace`` and ``synth --run``."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.in_process import openinfer
from tests.sim.faulty_device import Faulty
from tests.synth.vulkan.on_device import on_lavapipe

SOURCE = """dynamic { x: f32[4]; }
volatile { a: f32[4]; y: f32[4]; }
block entry {
    op exp(x) >> a;
    op softmax(a, axis=0) >> y;
    return y;
}
"""
HERE = ("--device", "lavapipe")


@pytest.fixture(scope="module", autouse=True)
def lavapipe() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in on_lavapipe().items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "net.oig"
    path.write_text(SOURCE)
    return str(path)


def test_a_run_is_compared_with_the_cpu_node_by_node(source: str) -> None:
    done = openinfer("run", source, "-i", "x=randn:0", *HERE, "--compare", "cpu")
    assert (done.status, done.err) == (0, "")
    assert "every node computes what the CPU does" in done.out


def test_the_first_node_that_differs_is_an_error(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openinfer.synth.nodes.NodeBackend", lambda _arch: Faulty("softmax", 2.0))
    done = openinfer("run", source, "-i", "x=randn:0", *HERE, "--compare", "cpu", "--json")
    found = json.loads(done.out)["diagnostics"][0]
    assert (done.status, found["code"], found["line"]) == (1, "E808", 5)
    assert "node 1 ('softmax')" in found["notes"][0]


def test_a_trace_of_the_device_differs_from_that_of_the_cpu_by_rounding_alone(source: str, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("cpu.json", "device.json")]
    for path, options in zip(paths, ((), HERE), strict=True):
        done = openinfer("trace", source, "-i", "x=randn:0", "--level", "full", "-o", path, *options)
        assert done.status == 0, done.err
    assert "no difference beyond" in openinfer("trace-diff", *paths, "--tolerance", "1e-6").out


def test_the_debugger_steps_on_the_device(source: str) -> None:
    done = openinfer("step", source, "-i", "x=[0, 0, 0, 0]", *HERE, text="next\nprint a\ncontinue\nquit\n")
    assert done.status == 0, done.out
    assert "[1, 1, 1, 1]" in done.out


def test_a_project_for_vulkan_runs_against_the_simulator_and_against_c(source: str) -> None:
    for against in ("simulator", "c"):
        done = openinfer("synth", source, *HERE, "--run", "--against", against, "--json")
        facts = json.loads(done.out)["run"]
        assert (done.status, facts["ok"], facts["against"]) == (0, True, against)
