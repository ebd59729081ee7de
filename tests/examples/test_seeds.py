"""The first snippets as scripts: each runs, says what it should, and leaves its files where it says."""

import json
import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
from examples.seeds.minimal import MINIMAL
from tests.synth.vulkan.on_device import on_lavapipe

from openinfer import Graph

ROOT = Path(__file__).parents[2]
BUILD = Path("build/examples/seeds")
OUTPUT = {
    "minimal": r"y\[0\.\.100\] = \[(\s*-?[0-9.]+){100}\s*\]\n",
    "classic": r"y = \[0\.0+e\+00 [^\]]*\]\n",
    "cache_steps": r"step 1, K \(10, 1, 2, 4\), z = \[.*\]\nstep 2, K \(10, 2, 2, 4\), z = \[.*\]\n",
    "stepping": r"y=\[5, 5, 5, 5, 5, \.\.\.\] +-- \[Assign\] entry ::  .*\n"
    r"y=\[5, 5, 5, 5, 5, \.\.\.\] +-- \[OpExecute\] entry :: add .*\n"
    r"y=\[-[^5].*\] +-- \[OpExecute\] entry :: mul .*\ny=.* \[Return\] entry :: .*\n",
    "session": r"\[BlockEnter\] entry .*\n\[Assign\].*\n\[OpExecute\] entry :: add .*\n\[OpExecute\] entry :: mul .*\n"
    r"\[Return\].*\n\[BlockExit\].*\nfinal y = \[.*\]\n",
    "trace_export": r"4 events in build/examples/seeds/trace.json\n",
    "serialize": r"the graph is in build/examples/seeds/minimal-graph.json\n",
    "deserialize": r"the graph is in .*\ny = \[1\.36962, -2\.30213, .*\]\n",
    "synthesize": r"the project is in build/examples/seeds/out; a step works in 4096 bytes\n",
    "synthesize_json": r"the graph is in .*\nthe project is in build/examples/seeds/out_json; .*\n",
    "device_json": r"generic C11: the project is in build/examples/seeds/out_device\n"
    r"Mock RTX: gpu, vulkan, 65536 bytes of shared memory\n"
    r"its shaders are in build/examples/seeds/out_vulkan/shaders\n",
    "vulkan": r"y=\[5, 5, 5, 5, 5, \.\.\.\] +-- \[Assign\] entry ::  .*\n"
    r"y=\[5, 5, 5, 5, 5, \.\.\.\] +-- \[OpExecute\] entry :: add .*\n"
    r"y=\[-[^5].*\] +-- \[OpExecute\] entry :: mul .*\ny=.* \[Return\] entry :: .*\n"
    r"y = \[-[^5].*\]\nthe project is in build/examples/seeds/out_gpu\n"
    r"the graph is in .*\nthe project is in build/examples/seeds/out_gpu_json\n",
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in on_lavapipe().items():
        monkeypatch.setenv(name, value)


def run(name: str) -> None:
    import_module(f"examples.seeds.{name}").main()


@pytest.mark.parametrize("name", OUTPUT)
def test_a_script_runs_and_says_what_it_should(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(name)
    said = capsys.readouterr().out
    assert re.fullmatch(OUTPUT[name], said), said


def test_every_script_is_listed_and_tested() -> None:
    scripts = {path.stem for path in (ROOT / "examples/seeds").glob("*.py")} - {"model"}
    listed = re.findall(r"\[(\w+)\]\(\1\.py\)", (ROOT / "examples/seeds/README.md").read_text())
    assert scripts == set(listed) == set(OUTPUT)


def test_the_trace_has_the_documented_events() -> None:
    run("trace_export")
    events = json.loads((BUILD / "trace.json").read_text())
    assert [(event["kind"], event["params"], event["output"]) for event in events] == [
        ("Assign", [], ["t0"]),
        ("OpExecute", ["x", "a"], ["t0"]),
        ("OpExecute", ["y", "t0"], ["y"]),
        ("Return", [], []),
    ]


def test_the_graph_comes_back_from_its_file() -> None:
    run("serialize")
    assert Graph.from_json((BUILD / "minimal-graph.json").read_text()) == MINIMAL


@pytest.mark.parametrize(("name", "folder"), [("synthesize", "out"), ("synthesize_json", "out_json")])
def test_the_project_builds_and_its_example_runs(name: str, folder: str) -> None:
    run(name)
    subprocess.run(["make", "-s", "-C", str(BUILD / folder), "example"], check=True)
    ended = subprocess.run(["build/example"], cwd=BUILD / folder, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "y" in ended.stdout


def test_the_same_device_file_gives_the_same_code() -> None:
    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (BUILD / "out_device").rglob("*") if path.is_file()}

    run("device_json")
    first = files()
    run("device_json")
    assert files() == first
