"""Rows that several groups share, as shaders: they compile, and run where every group of a launch has a thread.

Lavapipe runs groups on threads of the CPU, as many as it is told to have. It silently ends all loops of a thread after
65,535 iterations, so groups wait slowly here.
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.synth.vulkan.on_device import FLAGS, compiled, on_lavapipe

from openinfer import DeviceArch, Simulator, Synthesizer, graph
from openinfer.dtypes import dtype_of
from openinfer.errors import ExecutionError
from openinfer.loops.build import Builder, index, load, pair
from openinfer.loops.ir import Buffer, Kernel, LoopKind
from openinfer.synth.devices.vulkan import GLSLANG
from openinfer.synth.plan import Plan
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.project import Golden
from openinfer.synth.targets.simt.launches import Launches, has_teams
from openinfer.synth.targets.simt.machine import simt_machine
from openinfer.synth.targets.simt.schedule import scheduled
from openinfer.synth.targets.vulkan import shader_files
from openinfer.synth.targets.vulkan.shader import launch_code, shader
from openinfer.synth.targets.vulkan.waiting import FUNCTIONS

THREADS = 16
"""Groups that run at the same time: no launch here has more."""
SPIN = "while (high == 0u || low == 0u) {\n"
ROWS = """
    dynamic { x: f32[4, 5000]; } volatile { y: f32[4, 5000]; z: f32[4, 5000]; }
    block entry { op softmax(x, axis=1) >> y; op layer_norm(y, eps=1e-5) >> z; return y, z; }
"""
FAILING = """
    dynamic { x: f32[3, 5000]; table: f32[4, 8]; ids: i32[2]; }
    persistent { total: f32[3, 5000] @init(0); }
    volatile { y: f32[3, 5000]; found: f32[2, 8]; }
    block entry {
        op gather(table, ids, axis=0) >> found;
        op softmax(x, axis=1) >> y;
        op add(total, y) >> total;
        return found, y;
    }
"""


def ordered() -> DeviceArch:
    """Lavapipe, as if it started groups in order and ended no loop."""
    document = DeviceArch.named("lavapipe").to_json()
    limits = {name: value for name, value in document["limits"].items() if name != "max_loop_iterations"}
    features = {**document["features"], "ordered_launches": True}
    return DeviceArch.from_json({**document, "limits": limits, "features": features})


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that wait do so in few iterations, and there is a thread for each of them."""
    for name, value in {**on_lavapipe(), "LP_NUM_THREADS": str(THREADS)}.items():
        monkeypatch.setenv(name, value)
    assert FUNCTIONS.count(SPIN) == 1
    slow = f"{SPIN}        {'atomicOr(words.v[at], 0u); ' * 200}\n"
    monkeypatch.setattr(shader_files, "FUNCTIONS", FUNCTIONS.replace(SPIN, slow))


def forms(plan: Plan) -> list[str]:
    found: list[str] = []
    for step in plan.project.program.steps():
        if isinstance(step, KernelStep):
            assert isinstance(step.schedule, Launches)
            found += [one.form for one in step.schedule.launches]
    return found


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


@pytest.mark.usefixtures("slowly")
def test_groups_of_a_row_wait_for_each_other_in_every_step() -> None:
    """Their words are left as the next launch needs them."""
    plan = Synthesizer(ordered(), name="rows").synthesize(None, graph(ROWS))
    assert forms(plan) == ["rows: 3 groups of 64 threads each, in registers"] * 2
    module = plan.build()
    rng = np.random.default_rng(4)
    for _ in range(6):
        x = rng.standard_normal((4, 5000)).astype(np.float32)
        x[1, :-3] = -np.inf  # One group has numbers.
        y, z = module({"x": x})
        wanted = softmax(x.astype(np.float64))
        np.testing.assert_allclose(y, wanted, rtol=1e-5)
        normal = (wanted - wanted.mean(1, keepdims=True)) / np.sqrt(wanted.var(1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(z, normal, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("slowly")
def test_after_a_failure_no_group_of_a_row_waits_or_writes() -> None:
    plan = Synthesizer(ordered(), name="failing").synthesize(None, graph(FAILING))
    assert "rows: 3 groups of 64 threads each, in registers" in forms(plan)
    module = plan.build()
    x, table = np.random.default_rng(5).standard_normal((3, 5000)), np.arange(32, dtype=np.float32).reshape(4, 8)
    inputs = {"x": x.astype(np.float32), "table": table, "ids": np.array([3, 0], np.int32)}
    done = 0
    for is_good in (True, False, True, False, False, True):
        if is_good:
            module(inputs)
            done += 1
        else:
            with pytest.raises(ExecutionError, match="an index is out of range"):
                module({**inputs, "ids": np.array([3, 4], np.int32)})
        np.testing.assert_allclose(module.fetch("total"), done * softmax(x), rtol=1e-5)


@pytest.mark.usefixtures("slowly")
def test_a_selftest_of_shared_rows_passes_under_validation(tmp_path: Path) -> None:
    """Each case is a step: the words are as it found them."""
    found = graph(ROWS)
    executor, rng = Simulator(None).make_executor(found), np.random.default_rng(6)
    golden = []
    for _ in range(2):
        x = rng.standard_normal((4, 5000)).astype(np.float32)
        executor({"x": x})
        golden.append(Golden({"x": x}, {name: executor.fetch(name) for name in ("y", "z")}))
    Synthesizer(ordered(), name="rows").synthesize(None, found).emit(tmp_path, golden)
    command = ["make", "selftest", "CFLAGS=-O1 -Wall -Wextra -Werror"]
    environment = {**os.environ, "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation"}
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    assert "Validation" not in ended.stdout + ended.stderr, ended.stdout
    assert "values are right" in ended.stdout


@pytest.mark.usefixtures("slowly")
def test_values_of_64_bits_are_exchanged() -> None:
    text = ROWS.replace("f32", "f64").replace("5000", "2500")
    plan = Synthesizer(ordered(), name="doubles").synthesize(None, graph(text))
    assert forms(plan) == ["rows: 3 groups of 64 threads each, in registers"] * 2
    module = plan.build()
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((4, 2500))
        np.testing.assert_allclose(module({"x": x})[0], softmax(x), rtol=1e-13)


def test_values_of_every_type_are_exchanged_in_valid_shaders(tmp_path: Path) -> None:
    """Those of fewer bits are words there."""
    arch = ordered()
    for name in ("i8", "u16", "i32", "u32", "i64", "u64", "bool", "bf16", "f64"):
        dtype = dtype_of(name)
        x, y = Buffer("x", dtype, (3, 9000)), Buffer("y", dtype, (3, 9000))
        builder = Builder()
        with builder.loop(3, LoopKind.PARALLEL) as i:
            first = load(x, i, index(0))
            top = builder.local(first, first.dtype)
            with builder.loop(9000) as j:
                builder.assign(top, pair("or" if name == "bool" else "max", top, load(x, i, j)))
            with builder.loop(9000) as j:
                builder.store(y, (i, j), pair("and" if name == "bool" else "min", top, load(x, i, j)))
        (launch,) = scheduled(Kernel("k", (x,), (y,), builder.body), simt_machine(arch)).launches
        assert has_teams(launch.kernel), launch.form
        code = launch_code(launch, "run", Numerics.of(arch))
        compiled(shader([code], 64, Numerics.of(arch), "run();"), tmp_path, 0)
        command = ["spirv-val", "--target-env", "vulkan1.2", str(tmp_path / "m0.spv")]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_shared_rows_of_an_h200_are_valid_shaders(tmp_path: Path) -> None:
    """Of all lengths and numbers of groups, next to launches that wait for earlier ones."""
    for length in (20_484, 53_253, 200_000):
        text = ROWS.replace("4, 5000", f"64, {length}")
        plan = Synthesizer("h200-vulkan", name="rows").synthesize(None, graph(text))
        code = plan.project.code()
        assert sum("oi_leave(" in text for name, text in code.items() if name.startswith("shaders/k")) == 2
        assert code["src/shaders.c"].count("OI_FOR_TEAM, ") == 2
        folder = plan.emit(tmp_path / str(length))
        for path in sorted((tmp_path / str(length) / "shaders").glob("k*.comp")):
            command = [GLSLANG, *FLAGS, "-o", str(tmp_path / "made.spv"), str(path)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            assert ended.returncode == 0, (folder, ended.stdout[:2000])
            assert shutil.which("spirv-val"), "this test needs spirv-val: apt-get install spirv-tools"
            command = ["spirv-val", "--target-env", "vulkan1.2", str(tmp_path / "made.spv")]
            assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_programs_without_shared_rows_have_no_words_for_them() -> None:
    code = Synthesizer(ordered(), name="rows").synthesize(None, graph(ROWS.replace("5000", "500"))).project.code()
    assert "oi_leave" not in "".join(text for name, text in code.items() if name.startswith("shaders/"))
    assert "OI_FOR_TEAM" not in code["src/shaders.c"]
