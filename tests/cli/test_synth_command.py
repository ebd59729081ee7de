"""``openinfer synth`` and ``openinfer devices``."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.in_process import Done, openinfer

from openinfer import DeviceArch
from openinfer.cli.compiled import difference
from openinfer.oinf import save_file
from openinfer.synth.devices.description import device_names, device_schema

MLP = """
dynamic { x: f32[B, D]; }
volatile { y: f32[B, O]; }
constant { w: f32[D, O]; b: f32[O]; }
block entry {
    assign h: f32[B, O];
    op matmul(x, w) >> h;
    op add(h, b) >> h;
    op relu(h) >> y;
    return y;
}
"""
METAL = '{"device": {"type": "gpu", "api": "metal"}}'
"""A device that nothing writes code for."""
TABLE = """
persistent { K(t): f32[4] @table; }
dynamic { x: f32[4]; }
block entry { cache.write x >> K[0]; return; }
"""
COUNTER = """
dynamic { x: i32[4]; }
volatile { y: i32[4]; }
persistent { n: i32 @init(0); }
block entry { cache.increment n; op add(x, n) >> y; return y; }
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def mlp(tmp_path: Path) -> tuple[str, ...]:
    """The arguments that name a graph and its model."""
    rng = np.random.default_rng(1)
    tensors = {"w": rng.normal(size=(16, 8)).astype(np.float32), "b": rng.normal(size=8).astype(np.float32)}
    save_file(tmp_path / "mlp.oinf", tensors, sizevars={"B": 4, "D": 16, "O": 8})
    return written(tmp_path, MLP, "mlp.oig"), "--model", str(tmp_path / "mlp.oinf")


def written(folder: Path, text: str, name: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def synth(*arguments: str) -> Done:
    done = openinfer("synth", *arguments)
    assert (done.status, done.err) == (0, ""), done.err
    return done


def facts_of(*arguments: str) -> Any:
    return json.loads(synth(*arguments, "--json").out)


# --- the project ------------------------------------------------------------------------------------------------------


def test_a_project_is_written_and_summed_up(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    folder = tmp_path / "out"
    done = synth(*mlp, "--device", "generic", "-o", str(folder))
    lines = done.out.splitlines()
    assert lines[:3] == [
        "mlp for generic C11 (generic)",
        "  kernels  1 call of 1 function, after 2 fusions",
        "  arena    128 bytes, the least possible",
    ]
    assert any(line.startswith("  weights  576 bytes, 2 tensors") for line in lines)
    assert any(str(folder) in line for line in lines)
    assert (folder / "include" / "mlp.h").exists()
    assert "MLP_ARENA_BYTES 128" in (folder / "include" / "mlp.h").read_text()


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, mlp: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    synth(*mlp, "--device", "generic")
    assert list((tmp_path / "empty").iterdir()) == []


def test_the_project_has_the_name_that_is_given_else_the_nearest_to_the_graphs(
    tmp_path: Path, mlp: tuple[str, ...]
) -> None:
    assert facts_of(*mlp)["name"] == "mlp"
    assert facts_of(*mlp, "--name", "net_1")["name"] == "net_1"
    assert facts_of(written(tmp_path, MLP, "3 odd-name.oig"), *mlp[1:])["name"] == "n3_odd_name"
    for bad in ("1x", "a-b", "", "a" * 61, "a/b", "stdio", "Net"):
        done = openinfer("synth", *mlp, "--name", bad)
        assert (done.status, done.out) == (2, "")
        assert "--name" in done.err


@pytest.mark.parametrize(("kind", "file"), [("file", "weights.bin"), ("array", "weights.c"), ("incbin", "weights.S")])
def test_weights_come_from_where_they_should(tmp_path: Path, mlp: tuple[str, ...], kind: str, file: str) -> None:
    folder = tmp_path / kind
    facts = facts_of(*mlp, "--device", "generic", "--weights", kind, "-o", str(folder))
    assert f"src/{file}" in facts["files"]
    assert (folder / "src" / file).exists()


def test_the_self_test_has_the_simulators_values_and_passes(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    folder = tmp_path / "tested"
    synth(*mlp, "--device", "generic", "-o", str(folder), "--steps", "2")
    done = subprocess.run(["make", "-C", str(folder), "selftest"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "64 of 64 values are right" in done.stdout
    untested = tmp_path / "untested"
    synth(*mlp, "--device", "generic", "-o", str(untested), "--no-selftest")
    assert not (untested / "selftest").exists()


def test_the_same_input_gives_the_same_files(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        synth(*mlp, "--device", "x86-avx2", "-o", str(folder))
    one, other = ({str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in folders)
    assert one == other


def test_a_device_can_be_a_file_and_its_unknown_keys_are_warned_about(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    path = written(tmp_path, '{"device": {"type": "cpu", "name": "mine"}, "cpu": {"coers": 2}}', "mine.json")
    done = openinfer("synth", *mlp, "--device", path)
    assert done.status == 0
    assert done.out.startswith("mlp for mine (generic)\n")
    assert done.err.startswith("warning[W801]: the key 'coers' is unknown\n")
    assert "did you mean 'cores'?" in done.err


def test_a_device_says_whether_and_how_much_is_fused(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    document = {"device": {"type": "cpu"}, "preferences": {"prefer_fusion": False}}
    path = written(tmp_path, json.dumps(document), "plain.json")
    assert len(facts_of(*mlp, "--device", path)["kernels"]) == 3
    document["preferences"] = {"max_kernel_ops": 2}
    path = written(tmp_path, json.dumps(document), "two.json")
    assert len(facts_of(*mlp, "--device", path)["kernels"]) == 2


def test_no_fuse_gives_every_node_a_kernel(mlp: tuple[str, ...]) -> None:
    facts = facts_of(*mlp, "--device", "generic", "--no-fuse")
    assert (len(facts["kernels"]), facts["ledger"]) == (3, [])


def test_an_arena_that_is_too_large_names_who_fills_it(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    folder = tmp_path / "out"
    done = openinfer("synth", *mlp, "--device", "generic", "--max-arena", "127", "-o", str(folder))
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("error[E801]: a step needs an arena of 128 bytes, and 127 are allowed\n")
    assert "(y): 128 bytes" in done.err
    assert not folder.exists()
    synth(*mlp, "--device", "generic", "--max-arena", "128")


def test_what_cannot_be_synthesized_is_an_error(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    other = written(tmp_path, METAL, "other.json")
    for arguments in ((*mlp, "--device", other), (written(tmp_path, TABLE, "t.oig"), "--device", "generic")):
        done = openinfer("synth", *arguments)
        assert (done.status, done.out) == (1, "")
        assert done.err.startswith("error[E801]: ")
    done = openinfer("synth", *mlp, "--device", "nonsense")
    assert (done.status, done.err.partition(":")[0]) == (1, "error[E802]")
    done = openinfer("synth", *mlp, "--size", "Q=3")
    assert (done.status, done.err.partition(":")[0]) == (1, "error[E208]")


def test_errors_are_json_where_json_is_asked_for(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    done = openinfer("synth", *mlp, "--device", written(tmp_path, METAL, "other.json"), "--json")
    assert (done.status, done.err) == (1, "")
    facts = json.loads(done.out)
    assert (facts["ok"], facts["diagnostics"][0]["code"]) == (False, "E801")


# --- the report -------------------------------------------------------------------------------------------------------


def test_the_report_shows_kernels_the_ledger_and_the_arena(mlp: tuple[str, ...]) -> None:
    out = synth(*mlp, "--device", "generic", "--report").out
    assert "kernels\n  matmul_add_relu" in out
    assert "      line 7: op matmul(x, w) >> h\n" in out
    assert "fused: 2" in out
    assert "  line 7: op matmul(x, w) >> h\n    into line 8: op add(h, b) >> h\n" in out
    assert "arena: 128 bytes, exactly the lower bound" in out


def test_the_map_runs_from_the_first_kernel_to_the_last(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    folder = tmp_path / "out"
    facts = facts_of(*mlp, "--device", "generic", "--no-fuse", "--report", "-o", str(folder))
    assert facts["memory"]["positions"] == ["matmul", "add", "relu"]
    (only,) = facts["memory"]["requests"]
    assert only["lifetime"] == [[0, 2]]
    assert "arena.svg" in facts["files"]
    assert (folder / "arena.svg").read_text().startswith("<svg")


def test_a_value_that_is_needed_late_lies_to_the_right(tmp_path: Path) -> None:
    text = """dynamic { x: f32[64]; } volatile { y: f32[64]; z: f32[64]; }
    block entry { op neg(x) >> y; op softmax(y, axis=0) >> z; return z; }"""
    facts = facts_of(written(tmp_path, text, "late.oig"), "--device", "generic", "--no-fuse")
    ends = {one["label"]: one["lifetime"][-1][1] for one in facts["memory"]["requests"]}
    assert facts["memory"]["positions"] == ["neg", "softmax"]
    assert max(ends.values()) == 1
    assert all(end == 1 for label, end in ends.items() if "z" in label)


def test_a_refused_fusion_is_in_the_report_with_its_reason(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    apart = written(
        tmp_path, MLP.replace("op add(h, b) >> h;", "op add(h, b) >> h with { fuse = false };"), "apart.oig"
    )
    facts = facts_of(apart, *mlp[1:], "--device", "generic")
    reasons = {entry["reason"] for entry in facts["ledger"] if not entry["fused"]}
    assert any("fuse = false" in reason for reason in reasons)


def test_costs_are_counted_by_hand(mlp: tuple[str, ...]) -> None:
    product, add, relu = facts_of(*mlp, "--device", "generic", "--no-fuse")["kernels"]
    assert (product["name"], product["operations"]) == ("matmul", 2 * 4 * 16 * 8)
    assert (product["bytes_read"], product["bytes_written"]) == (4 * (4 * 16 + 16 * 8), 4 * 4 * 8)
    assert (add["operations"], add["bytes_read"], add["bytes_written"]) == (32, 4 * (32 + 8), 4 * 32)
    assert relu["nodes"][0]["text"].startswith("op relu(h")
    assert all(one["calls"] == 1 for one in (product, add, relu))


def test_a_device_that_says_how_fast_it_is_gives_times(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    speed = {"cpu": {"flops_per_second": 1e9}, "memory": {"bandwidth_bytes_per_second": 1e6}}
    path = written(tmp_path, json.dumps({"device": {"type": "cpu"}, **speed}), "fast.json")
    for kernel in facts_of(*mlp, "--device", path, "--no-fuse")["kernels"]:
        moved = kernel["bytes_read"] + kernel["bytes_written"]
        assert kernel["roofline_seconds"] == pytest.approx(max(kernel["operations"] / 1e9, moved / 1e6))
    assert "at least" in synth(*mlp, "--device", path, "--report").out


def test_a_loop_counts_how_often_its_kernels_are_called(tmp_path: Path) -> None:
    text = """dynamic { x: f32[4]; } volatile { y: f32[4]; }
    block entry { transfer x >> y; loop layers (l in 0..5) { op add(y, x) >> y; } return y; }"""
    (kernel,) = facts_of(written(tmp_path, text, "loop.oig"), "--device", "generic")["kernels"]
    assert kernel["calls"] == 5


# --- step by step -----------------------------------------------------------------------------------------------------


def test_the_pipeline_stops_after_a_step_and_shows_what_it_made(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    out = synth(*mlp, "--device", "generic", "--stop-after", "fuse").out
    assert out.startswith("--- after fuse ---\ninput x = t1: f32[4, 16]\n")
    assert '= k0 matmul_add_relu(t1, "w", "b")  # 1, 2, 3\n' in out
    assert "arena" not in out
    for stage in ("bind", "decompose", "simplify", "schedule", "place"):
        assert synth(*mlp, "--stop-after", stage).out.startswith(f"--- after {stage} ---\n")
    assert "mlp for " in synth(*mlp, "--stop-after", "emit", "-o", str(tmp_path / "out")).out
    assert (tmp_path / "out" / "plan.json").exists()


def test_steps_are_shown_on_the_way(mlp: tuple[str, ...]) -> None:
    out = synth(*mlp, "--device", "generic", "--print-after", "decompose", "--print-after", "place").out
    assert [line for line in out.splitlines() if line.startswith("--- ")] == [
        "--- after decompose ---",
        "--- after place ---",
    ]
    assert "mlp for generic C11 (generic)" in out
    printed = facts_of(*mlp, "--print-after", "all")["printed"]
    assert list(printed) == ["bind", "decompose", "simplify", "fuse", "schedule", "place", "emit"]
    assert list(facts_of(*mlp, "--stop-after", "bind")["printed"]) == ["bind"]


def test_a_step_that_is_shown_on_the_way_is_as_it_was_when_the_pipeline_stopped_there(mlp: tuple[str, ...]) -> None:
    printed = facts_of(*mlp, "--print-after", "all")["printed"]
    for stage in ("decompose", "simplify", "fuse", "schedule"):
        assert facts_of(*mlp, "--stop-after", stage)["printed"][stage] == printed[stage]
    assert printed["decompose"] != printed["fuse"] != printed["schedule"]


def test_a_step_that_does_not_exist_is_refused_with_a_list(mlp: tuple[str, ...]) -> None:
    for option in ("--stop-after", "--print-after"):
        done = openinfer("synth", *mlp, option, "fusion")
        assert (done.status, done.out) == (1, "")
        assert done.err.startswith("error[E803]: the pipeline has no step 'fusion'\n")
        assert "the steps are bind, decompose, simplify, fuse, schedule, place, emit" in done.err
    done = openinfer("synth", *mlp, "--stop-after", "fusion", "--json")
    assert json.loads(done.out)["diagnostics"][0]["code"] == "E803"


def test_what_needs_all_steps_cannot_be_had_with_a_stop(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    for options in (("-o", str(tmp_path / "out")), ("--build",), ("--run",), ("--report",)):
        done = openinfer("synth", *mlp, "--stop-after", "fuse", *options)
        assert (done.status, done.out) == (2, "")
        assert "--stop-after" in done.err
    assert not (tmp_path / "out").exists()


# --- compiled here ----------------------------------------------------------------------------------------------------


def test_compiled_code_is_compared_with_the_simulator(mlp: tuple[str, ...]) -> None:
    facts = facts_of(*mlp, "--run", "--steps", "3")
    assert facts["built"]
    run = facts["run"]
    assert (run["ok"], run["steps"]) == (True, 3)
    assert [one["name"] for one in run["outputs"]] == ["y"]
    assert run["outputs"][0]["largest"] < 1e-4
    text = synth(*mlp, "--run", "--input", "x=zeros").out
    assert "1 step: " in text
    assert "  y: float32[4, 8]  the same" in text


def test_memory_between_steps_is_compared_too(tmp_path: Path) -> None:
    facts = facts_of(written(tmp_path, COUNTER, "c.oig"), "--run", "--steps", "4", "--input", "x=randint:1:0..9")
    assert facts["run"]["outputs"] == [
        {"name": "y", "step": 0, "dtype": "int32", "shape": [4], "ok": True, "largest": 0, "differing": 0}
    ]


def test_a_difference_beyond_the_tolerance_exits_1(mlp: tuple[str, ...]) -> None:
    exact = openinfer("synth", *mlp, "--run", "--no-fuse", "--tolerance", "0", "--json")
    facts = json.loads(exact.out)
    differs = facts["run"]["outputs"][0]["differing"] > 0
    assert exact.status == int(differs)
    assert facts["run"]["ok"] is not differs


def f32(values: list[float]) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("one", "other", "ok", "largest"),
    [
        (f32([1, np.nan]), f32([1, np.nan]), True, 0.0),
        (f32([1, np.nan]), f32([1, 2]), False, None),
        (f32([np.inf]), f32([np.inf]), True, 0.0),
        (f32([np.inf]), f32([3]), False, None),
        (f32([1000]), f32([1000.5]), True, 0.5),
        (f32([1]), f32([1.5]), False, 0.5),
        (np.array([3, 200], np.uint8), np.array([3, 100], np.uint8), False, 100),
        (np.zeros(0, np.float32), np.zeros(0, np.float32), True, 0.0),
        (f32([1]), f32([1, 2]), False, None),
    ],
)
def test_differences_are_measured(one: Any, other: Any, ok: bool, largest: float | None) -> None:
    found = difference(one, other, 1e-3)
    assert (found["ok"], found["largest"]) == (ok, largest)


def test_code_for_another_machine_is_not_run_here(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    done = openinfer("synth", *mlp, "--device", "cortex-m4", "--build", "-o", str(tmp_path / "out"))
    assert (done.status, done.out) == (1, "")
    assert "does not run on this machine" in done.err
    assert not (tmp_path / "out").exists()


# --- devices ----------------------------------------------------------------------------------------------------------


def test_devices_are_listed_with_what_is_written_for_them() -> None:
    done = openinfer("devices")
    assert (done.status, done.err) == (0, "")
    rows = {line.split()[0]: line for line in done.out.splitlines()[1:]}
    assert tuple(rows) == device_names()
    assert "C, avx512" in rows["x86-avx512"]
    assert "CUDA, C" in rows["h200"]
    everything = json.loads(openinfer("devices", "--json").out)
    assert everything["generic"] == DeviceArch.named("generic").to_json()


def test_one_device_is_shown_with_all_its_keys() -> None:
    out = openinfer("devices", "cortex-m4").out
    assert out.startswith("Cortex-M4F\n")
    assert "  isa               cortex-m4\n" in out
    assert "name sram, bytes 131072 (128.0 KiB), speed normal" in out
    assert json.loads(openinfer("devices", "cortex-m4", "--json").out) == DeviceArch.named("cortex-m4").to_json()


def test_the_detected_machine_is_a_device_file(tmp_path: Path, mlp: tuple[str, ...]) -> None:
    path = written(tmp_path, openinfer("devices", "--detect").out, "host.json")
    assert DeviceArch.load(path) == DeviceArch.detect()
    assert synth(*mlp, "--device", path).out == synth(*mlp).out


def test_the_schema_can_be_printed() -> None:
    assert json.loads(openinfer("devices", "--schema").out) == device_schema()


def test_bad_device_files_and_names_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, '{"device": {"type": "tpu"}}', "bad.json")
    done = openinfer("devices", path)
    assert (done.status, done.out) == (1, "")
    assert f"--> {path}: /device/type" in done.err
    done = openinfer("devices", "nope", "--json")
    assert (done.status, json.loads(done.out)["diagnostics"][0]["code"]) == (1, "E802")
    assert openinfer("devices", "generic", "--detect").status == 2


def test_made_up_inputs_have_sizes_below_their_bounds_as_well(tmp_path: Path) -> None:
    text = """
    sizes { T <= 8; }
    dynamic { x: f32[T, 3]; }
    volatile { y: f32[T, 3]; m: f32[3]; }
    persistent { seen(t): f32[3] @table @fixed(t=12); n: i64 @init(0); }
    block entry {
        op relu(x) >> y;
        op mean_axis(x, axes=[0]) >> m;
        cache.write y >> seen[n..n+T];
        cache.increment 8 n;
        return y, m;
    }
    """
    folder, graph = tmp_path / "out", written(tmp_path, text, "sized.oig")
    done = openinfer("synth", graph, "--device", "generic", "-o", str(folder), "--run", "--json")
    facts = json.loads(done.out)["run"]
    assert (facts["ok"], facts["steps"], facts["trials"], facts["unrefused"]) == (True, 4, 3, [])
    selftest = (folder / "selftest/main.c").read_text()
    assert all(f"in{number}.T = {size};" in selftest for number, size in enumerate((8, 5, 1, 0)))
    assert "sizes[4][1] = { { 8 }, { 5 }, { 1 }, { 0 } };" in (folder / "example/main.c").read_text()
    assert b"T = 5" in subprocess.check_output(["make", "-s", "-C", str(folder), "selftest", "example"])


def test_a_size_without_a_result_must_be_refused_by_the_code_as_well(tmp_path: Path) -> None:
    text = """
    sizes { T <= 8; }
    dynamic { x: f32[T]; }
    volatile { y: f32[T-1]; }
    block entry { op slice(x, starts=[1], ends=[T], axes=[0]) >> y; return y; }
    """
    folder, graph = tmp_path / "out", written(tmp_path, text, "sized.oig")
    done = openinfer("synth", graph, "--device", "generic", "-o", str(folder), "--run", "--json")
    facts = json.loads(done.out)["run"]
    assert (facts["ok"], facts["trials"], facts["unrefused"]) == (True, 3, [])
    assert "expected a failure, got none" in (folder / "selftest/main.c").read_text()
    assert subprocess.run(["make", "-s", "-C", str(folder), "selftest"], check=False).returncode == 0
