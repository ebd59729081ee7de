"""The simulator on a Vulkan device: nodes there, and everything else of a step as on the CPU."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.synth.vulkan.on_device import on_lavapipe

from openinfer import Device, DeviceArch, Executor, ModelLoader, SimBackend, SimSession, Simulator, graph
from openinfer.check.events import Event
from openinfer.dtypes import DTYPES
from openinfer.errors import ExecutionError, GraphError, OpenInferError
from openinfer.oinf import TensorSpec, save_file
from openinfer.oinf.quant import QuantParams, QuantScale
from openinfer.sim import on_op, on_write
from openinfer.synth.nodes import _device
from openinfer.synth.run import node_device
from openinfer.synth.run.node_device import NodeDevice
from openinfer.synth.targets.vulkan.node_code import host_code

TEXT = """
sizes { T <= 6; }
dynamic { x: f32[T, 4]; ids: i32[3]; keep: bool; }
persistent { n: i32 @init(0); total: f32[4] @init(0); seen(i): f32[4] @table; }
constant { w: f32[4, 4]; }
volatile { y: f32[T, 4]; picked: f32[3, 4]; all: f32[4]; half: f32[4]; }
block more { op add(total, all) >> total; return; }
block less { op sub(total, all) >> total; return; }
block entry {
    op matmul(x, w) >> y;
    op softmax(y, axis=1) >> y;
    op sum_axis(y, axes=[0]) >> all;
    loop twice (i in 0..2) { op add(all, w[i, ..]) >> all; }
    cache.write all >> seen[n];
    branch keep more less;
    transfer all >> half;
    yield half;
    cache.increment n;
    await half;
    op gather(w, ids, axis=0) >> picked;
    return y, picked, half;
}
block consumer { await half; op mul(half, half) >> half; yield half; }
"""
"""A counter, a table, a branch, a loop, a consumer, a dynamic size, and an op that fails after all of them."""


def inputs_of(step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    x = rng.normal(size=(2 + step, 4)).astype(np.float32)
    return {"x": x, "ids": rng.integers(0, 4, 3).astype(np.int32), "keep": np.bool_(step % 2)}


@pytest.fixture(scope="module", autouse=True)
def lavapipe() -> Iterator[None]:
    """The device of this process is lavapipe, from when it is first asked for."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in on_lavapipe().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    path = tmp_path_factory.mktemp("vulkan") / "model.oinf"
    save_file(path, {"w": np.random.default_rng(7).normal(size=(4, 4)).astype(np.float32)})
    return ModelLoader.open(path)


def both(model: ModelLoader | None, text: str, **options: Any) -> tuple[Executor, Executor]:
    """An executor on the device, whose nodes are compared with the CPU, and one on the CPU."""
    parsed = graph(text, "both.oig")
    on_device = Simulator(model, "lavapipe", compare=Device.CPU, **options).with_trace("full").make_executor(parsed)
    return on_device, Simulator(model, **options).with_trace("full").make_executor(parsed)


def told(event: Event) -> tuple[Any, ...]:
    """An event without times and values."""
    facts = event.facts()
    return tuple((key, facts[key]) for key in facts if key not in ("micros", "inputs", "outputs", "start_ns"))


@pytest.mark.parametrize("scheduler", ["sequential", "threaded"])
def test_steps_have_the_events_and_results_of_the_cpu(model: ModelLoader, scheduler: str) -> None:
    on_device, on_host = both(model, TEXT, scheduler=scheduler)
    for step in range(2):
        inputs = inputs_of(step)
        for found, wanted in zip(on_device(inputs), on_host(inputs), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        if scheduler == "sequential":
            assert [told(event) for event in on_device.events] == [told(event) for event in on_host.events]
        for name in ("n", "total", "seen"):
            np.testing.assert_allclose(on_device.fetch(name), on_host.fetch(name), rtol=1e-5, atol=1e-6)


def test_a_step_that_fails_on_the_device_says_what_the_cpu_says_and_has_no_effect(model: ModelLoader) -> None:
    on_device, on_host = both(model, TEXT)
    said = []
    for executor in (on_device, on_host):
        executor.insert({**inputs_of(0), "ids": np.array([1, 4, 0], np.int32)})
        with pytest.raises(ExecutionError) as caught:
            executor.run_step()
        said.append(str(caught.value))
        assert (caught.value.code, executor.fetch("n"), executor.fetch("seen").size) == ("E313", 0, 0)
    assert said[0] == said[1]


def test_breakpoints_and_edits_work_between_nodes(model: ModelLoader) -> None:
    executor = both(model, TEXT)[0]
    executor.insert(inputs_of(0))
    node = executor.run_until(on_op("softmax"))
    assert node is not None
    np.testing.assert_allclose(node.fetch("y").sum(axis=1), 1, rtol=1e-6)
    node.set("y", np.ones((2, 4), np.float32))
    node = executor.run_until(on_write("all"))
    assert node is not None
    assert node.fetch("all").tolist() == [2, 2, 2, 2]
    executor.cancel()
    assert executor.fetch("n") == 0


def test_every_dtype_comes_and_goes() -> None:
    names = [name for name in DTYPES if DTYPES[name].name == name]
    inputs = " ".join(f"x_{name}: {name}[3, 5];" for name in names)
    results = " ".join(f"y_{name}: {name}[3, 5];" for name in names)
    ops = " ".join(f"op flip(x_{name}, axes=[1]) >> y_{name};" for name in names)
    executor = both(None, f"dynamic {{ {inputs} }} volatile {{ {results} }} block entry {{ {ops} return; }}")[0]
    rng = np.random.default_rng(5)
    given = {}
    for name in names:
        dtype = DTYPES[name]
        codes = rng.choice(dtype.values or (0, 1), (3, 5)) if dtype.bits < 8 else rng.integers(0, 100, (3, 5))
        given[f"x_{name}"] = codes.astype(dtype.array) if dtype.name != "i1" else -codes.astype(dtype.array)
    executor(given)
    for name in names:
        np.testing.assert_array_equal(executor.fetch(f"y_{name}"), given[f"x_{name}"][:, ::-1])


def test_quantized_weights_bring_their_scales(tmp_path: Any) -> None:
    stored = np.random.default_rng(3).integers(-9, 9, (8, 4)).astype(np.int8)
    quant = QuantParams("symmetric", QuantScale.per_channel(1, [0.5, 0.25, 2.0, 1.0]))
    save_file(tmp_path / "q.oinf", {"w": TensorSpec(stored, "i8", quant=quant)})
    text = """dynamic { x: f32[2, 8]; } constant { w: i8[8, 4]; } volatile { y: f32[2, 4]; }
        block entry { op matmul(x, w) >> y; return y; }"""
    executor = both(ModelLoader.open(tmp_path / "q.oinf"), text)[0]
    x = np.random.default_rng(4).integers(-4, 4, (2, 8)).astype(np.float32)
    np.testing.assert_array_equal(executor(x=x), x @ (stored * np.array([0.5, 0.25, 2.0, 1.0], np.float32)))


def test_sizes_that_vary_need_no_new_shaders() -> None:
    text = """sizes { T <= 99; U <= 99; } dynamic { x: f32[T, 4]; k: f32[U, 4]; } volatile { y: f32[T, U]; z: f32[U]; }
        block entry { op matmul(x, k, transpose_b=true) >> y; op softmax(y, axis=1) >> y;
            op max_axis(y, axes=[0]) >> z; return y, z; }"""
    executor = both(None, text)[0]
    rng, counts = np.random.default_rng(9), []
    for rows, columns in ((2, 3), (4, 5), (5, 4), (6, 2), (9, 9), (3, 1), (7, 8)):
        shapes = {"x": (rows, 4), "k": (columns, 4)}
        y, z = executor({name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})
        assert (y.shape, z.shape) == ((rows, columns), (columns,))
        counts.append(len(_device()._store._known))
    assert counts[3] == counts[1], "the second sizes made all shaders that the next ones need"
    assert counts[6] == counts[5], "and those with one column, or as many rows, are cases of their own"


def test_sessions_run_on_vulkan_by_its_name() -> None:
    text = "dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { op neg(x) >> y; return y; }"
    run = SimSession(None, SimBackend.VULKAN).prepare(graph(text), {"x": [1.0, 2.0, 3.0, 4.0]})
    events = []
    while run.is_running():
        events.append(run.step())
    assert [event.kind for event in events] == ["BlockEnter", "OpExecute", "Return", "BlockExit"]
    assert run.finish().fetch("y").tolist() == [-1, -2, -3, -4]


def test_the_arena_grows_and_kernels_that_rest_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_device, "_LEAST_ARENA", 1024)
    monkeypatch.setattr(node_device, "_MOST_KERNELS", 1)
    device = NodeDevice(*host_code())
    text = """dynamic { x: f32[B]; } volatile { y: f32[B]; z: f32[B]; }
        block entry { op neg(x) >> y; op abs(y) >> z; return y, z; }"""
    for count in (4, 1000, 4):
        simulator = Simulator(None, "lavapipe", sizes={"B": count}, compare="cpu")
        monkeypatch.setattr(simulator._backend._device, "_device", device)  # type: ignore[attr-defined]
        y, z = simulator.make_executor(graph(text))(x=np.arange(count, dtype=np.float32))
        assert (y.sum(), z.sum()) == (-sum(range(count)), sum(range(count)))
    assert (len(device._open), device._bytes.size > 1024) == (1, True)


WITHOUT_F64 = {"device": {"type": "gpu", "api": "vulkan", "name": "a small GPU"}, "features": {"fp64": False}}


def test_what_a_device_cannot_compute_is_refused_at_its_nodes() -> None:
    text = """dynamic { x: f64[2]; } volatile { y: f64[2]; z: f32[2]; }
        block entry {
            op add(x, x) >> y;
            op cast(y, to=f32) >> z;
            return z;
        }"""
    with pytest.raises(GraphError) as caught:
        Simulator(None, DeviceArch.from_json(WITHOUT_F64)).make_executor(graph(text))
    found = [(one.code, one.facts()["line"]) for one in caught.value.diagnostics]
    assert found == [("E805", 3), ("E805", 4)]


def test_a_device_without_a_simulator_is_refused() -> None:
    with pytest.raises(OpenInferError, match="not on 'cuda'"):
        Simulator(None, Device.CUDA)


def test_without_a_compiler_of_shaders_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OpenInferError, match="apt-get install glslang-tools") as caught:
        Simulator(None, Device.VULKAN)
    assert caught.value.code == "E806"


def test_without_a_driver_the_package_is_named() -> None:
    program = "from openinfer import Simulator\nSimulator(None, 'vulkan')"
    environment = {**os.environ, "VK_ICD_FILENAMES": "/no/driver.json"}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    assert "error[E806]" in ended.stderr
    assert "apt-get install mesa-vulkan-drivers" in ended.stderr
