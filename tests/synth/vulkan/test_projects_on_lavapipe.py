"""Whole projects on lavapipe: built by make, run with the validation layer, and loaded as modules."""

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.vulkan.on_device import NAMED, counted, on_lavapipe

from openinfer import Executor, ModelLoader, Simulator, Synthesizer, graph
from openinfer.errors import ExecutionError, OpenInferError
from openinfer.oinf import save_file
from openinfer.ops import Array
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.plan import Plan
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.run.step_memory import _Asked
from openinfer.synth.targets.project import Golden

TEXT = """
sizes { T <= 6; }
dynamic { x: f32[T, 4]; ids: i32[3]; keep: bool; }
persistent { n: i32 @init(0); total: f32[4] @init(0); seen(i): f32[4] @table @fixed(i=8); log(i): f32[4] @table; }
constant { w: f32[4, 4]; }
volatile { y: f32[T, 4]; picked: f32[3, 4]; all: f32[4]; before: f32[4]; now: f32[4]; }
block more { op add(total, all) >> total; return; }
block less { op sub(total, all) >> total; return; }
block entry {
    op matmul(x, w) >> y;
    op softmax(y, axis=1) >> y;
    op sum_axis(y, axes=[0]) >> all;
    cache.write all >> seen[n];
    cache.write all >> log[n];
    branch keep more less;
    transfer total >> now;
    cache.read seen[n] >> before;
    op gather(w, ids, axis=0) >> picked;
    cache.increment n;
    return y, picked, before, now;
}
"""
"""A counter, tables, a branch, a dynamic size, an output that lies in the state, an op that fails after all of them."""


RETURNED = ("y", "picked", "before", "now")


def inputs_of(step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {
        "x": rng.normal(size=(1 + step % 6, 4)).astype(np.float32),
        "ids": rng.integers(0, 4, 3).astype(np.int32),
        "keep": np.bool_(step % 2),
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    path = tmp_path_factory.mktemp("vulkan") / "model.oinf"
    save_file(path, {"w": np.random.default_rng(7).normal(size=(4, 4)).astype(np.float32)})
    return ModelLoader.open(path)


@pytest.fixture(scope="module")
def plan(model: ModelLoader) -> Plan:
    return Synthesizer(NAMED, name="seen").synthesize(model, graph(TEXT))


@pytest.fixture
def lavapipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in on_lavapipe().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def module(plan: Plan, lavapipe: None) -> CompiledModule:
    return plan.build()


@pytest.fixture
def executor(model: ModelLoader) -> Executor:
    return Simulator(model).make_executor(graph(TEXT))


def same(one: CompiledModule, other: Executor | CompiledModule) -> None:
    for name in ("y", "picked", "before", "now", "n", "total", "seen", "log"):
        np.testing.assert_allclose(one.fetch(name), other.fetch(name), rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_module_does_what_the_simulator_does(module: CompiledModule, executor: Executor) -> None:
    for step in range(5):
        for one in (module, executor):
            one.insert(inputs_of(step))
            one.run_step()
        same(module, executor)


def test_a_step_that_fails_on_the_device_has_not_happened(module: CompiledModule, executor: Executor) -> None:
    for step in range(4):
        wrong = {**inputs_of(step), "ids": np.array([0, 4, 1], np.int32)}
        codes = []
        for one in (module, executor):
            before = one.save_state()
            with pytest.raises(OpenInferError) as caught:
                one(wrong)
            codes.append((caught.value.code, caught.value.diagnostics[0].span))
            assert one.save_state() == before
            one(inputs_of(step))
        assert codes[0] == codes[1]
    same(module, executor)


def test_a_step_is_recorded_once_and_its_arguments_change(module: CompiledModule, executor: Executor) -> None:
    """What differs between steps, extents and groups of launches included, is read from memory in the second one on."""
    for step in range(8):
        for one in (module, executor):
            one({**inputs_of(step), "keep": np.bool_(True)})
        if step == 4:
            before = counted(module, "oi_recorded"), counted(module, "oi_submitted")
    assert counted(module, "oi_recorded") == before[0]
    assert counted(module, "oi_submitted") > before[1]
    same(module, executor)


def saved(module: CompiledModule) -> bytes:
    """What the code itself saves."""
    instance = module._instance
    size = instance.function("saved_bytes")
    size.restype = ctypes.c_size_t
    found = ctypes.create_string_buffer(size(ctypes.byref(module._context)))
    instance.call("save_state", found, ctypes.c_size_t(len(found)))
    return found.raw


def test_states_are_those_of_generated_c_byte_for_byte(module: CompiledModule, model: ModelLoader) -> None:
    in_c = Synthesizer(name="seen").synthesize(model, graph(TEXT)).build(flags=("-std=c11", "-O0"))
    assert saved(module) == saved(in_c)
    for step in range(3):
        module(inputs_of(step))
    made = saved(module)
    in_c._instance.call("load_state", made, ctypes.c_size_t(len(made)))
    assert saved(in_c) == made
    in_c(inputs_of(3))
    theirs = saved(in_c)
    module._instance.call("load_state", theirs, ctypes.c_size_t(len(theirs)))
    assert saved(module) == theirs


def test_a_project_builds_and_its_selftest_passes_under_validation(
    plan: Plan, executor: Executor, tmp_path: Path
) -> None:
    golden = []
    for step in range(3):
        executor(inputs_of(step))
        golden.append(Golden(inputs_of(step), {name: executor.fetch(name) for name in RETURNED}))
    wrong = {**inputs_of(0), "ids": np.array([9, 0, 0], np.int32)}
    plan.emit(tmp_path, [*golden, Golden(wrong, {}, is_refused=True)])
    layers = {"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation"}
    command = ["make", "example", "selftest", "CFLAGS=-O1 -Wall -Wextra -Werror"]
    environment = {**os.environ, **on_lavapipe(), **layers}
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    assert "Validation" not in ended.stdout + ended.stderr, ended.stdout
    assert "values are right" in ended.stdout
    build = "cmake -S . -B cmake >cmake.log && cmake --build cmake >>cmake.log || { tail cmake.log >&2; exit 1; }"
    ended = subprocess.run(["sh", "-c", build], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]


SANITIZED = "-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all"


def test_the_host_part_has_nothing_for_sanitizers_to_report(plan: Plan, executor: Executor, tmp_path: Path) -> None:
    """By both compilers, in steps that fail, too; what the driver keeps until its end is no leak of ours."""
    executor(inputs_of(1))
    golden = Golden(inputs_of(1), {name: executor.fetch(name) for name in RETURNED})
    wrong = {**inputs_of(0), "ids": np.array([9, 0, 0], np.int32)}
    plan.emit(tmp_path, [golden, Golden(wrong, {}, is_refused=True)])
    environment = {**os.environ, **on_lavapipe(), "ASAN_OPTIONS": "detect_leaks=0"}
    for compiler in ("gcc", "clang"):
        for made in (*tmp_path.glob("build/*.o"), *tmp_path.glob("build/*.a"), *tmp_path.glob("build/selftest")):
            made.unlink()
        command = ["make", "selftest", f"CC={compiler}", f"CFLAGS={SANITIZED}"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
        assert ended.returncode == 0, f"{compiler}: {ended.stdout[-2000:]}\n{ended.stderr[-3000:]}"
        assert "values are right" in ended.stdout


SHARED = """
dynamic { x: f32[4]; }
persistent { n: i32 @init(0); total: f32[4] @init(1); }
block entry { op add(total, x) >> total; cache.increment n; return total; }
"""


@pytest.mark.usefixtures("lavapipe")
def test_two_programs_share_a_state_in_the_same_memory() -> None:
    """As a program for prompts and one for tokens do: the second is on the device of the first."""
    plan = Synthesizer(NAMED, name="shared").synthesize(None, graph(SHARED))
    one, other = plan.build(), plan.build()
    arena, state = plan.placed.arena_bytes, plan.placed.state_bytes
    other._instance.tell("free")
    fresh = _Asked(other._instance, arena)
    given = ctypes.c_void_p(fresh.pointer), ctypes.c_size_t(arena), _handle(one._state), ctypes.c_size_t(state)
    other._instance.call("init", *given, None, ctypes.c_size_t(0))
    for step in range(4):
        (other if step % 2 else one).insert(x=np.full(4, 10.0**step, np.float32))
        (other if step % 2 else one).run_step()
    assert one.fetch("total").tolist() == [1112.0] * 4
    assert one.fetch("n") == 4


def _handle(memory: Array) -> ctypes.c_void_p:
    """The memory that was asked for which an array looks at."""
    base: Any = memory.base
    return ctypes.c_void_p(base.owner.pointer)


@pytest.mark.usefixtures("lavapipe")
def test_launches_are_timed_by_the_device(plan: Plan) -> None:
    found = plan.profile(inputs_of(2), steps=2, warmup=1)
    names = {node.text.split("(")[0] for one in found.kernels for node in one.nodes}
    assert {"op matmul", "op gather"} <= names
    timed = [one for one in found.calls if one.name.endswith("softmax")]
    assert timed
    assert all(one.calls == 1 for one in timed)


@pytest.mark.usefixtures("lavapipe")
def test_a_trace_has_the_values_of_the_simulators(plan: Plan, model: ModelLoader) -> None:
    traced = plan.build(trace="full")
    simulated = Simulator(model).with_trace("full").make_executor(graph(TEXT))
    for one in (traced, simulated):
        one(inputs_of(1))
    assert [event.node_index for event in traced.events] == [event.node_index for event in simulated.events]


def test_what_is_missing_is_said(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VK_ICD_FILENAMES", "/no/driver.json")
    with pytest.raises(ExecutionError, match="there is no driver") as caught:
        plan.build()
    assert (caught.value.code, "mesa-vulkan-drivers" in str(caught.value)) == ("E806", True)


@pytest.mark.usefixtures("lavapipe")
def test_shaders_for_larger_subgroups_are_refused(model: ModelLoader) -> None:
    """Threads would exchange values with others than they mean."""
    arch = DeviceArch.named("lavapipe")
    wide = arch.model_copy(update={"limits": arch.limits.model_copy(update={"subgroup_size": 64})})
    text = "dynamic { x: f32[300]; } volatile { y: f32; } block entry { op sum_axis(x) >> y; return y; }"
    with pytest.raises(ExecutionError) as caught:
        Synthesizer(wide, name="wide").synthesize(model, graph(text)).build()
    assert caught.value.code == "E806"
    found = Synthesizer(arch, name="narrow").synthesize(model, graph(text)).build()({"x": np.ones(300, np.float32)})
    assert found == 300


@pytest.mark.usefixtures("lavapipe")
@pytest.mark.parametrize("constant", [2**31 - 1, 2**31 + 1, 2**32 + 1])
def test_constants_of_64_bits_are_not_signed_numbers_of_32(constant: int) -> None:
    text = "dynamic {{ x: i64[3]; }} volatile {{ y: i64[3]; }} block entry {{ op xor({}, x) >> y; return y; }}"
    module = Synthesizer(NAMED).synthesize(None, graph(text.format(constant))).build()
    x = np.array([0, -1, 2**40], np.int64)
    np.testing.assert_array_equal(module(x=x), x ^ constant)
