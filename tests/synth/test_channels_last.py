"""Convolutions of values whose channels are last in memory: what they compute, and which values these are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.differential.networks import disagreements
from tests.everything import some
from tests.synth.scheduled_in_c import kernel_for, run
from tests.synth.test_windows import WEIGHTS, Case, contraction, whole_numbers

from openinfer import Device, ModelLoader, Simulator
from openinfer.check.events import TraceLevel
from openinfer.lang import graph
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Alloc, Bind, For, Kernel, walk
from openinfer.loops.rewrite import with_buffers
from openinfer.loops.verify import verify
from openinfer.oinf import save_file
from openinfer.ops import Array
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.memory.place import in_place_inputs
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.program.packing import Packing
from openinfer.synth.targets.cpu import schedule
from openinfer.synth.targets.cpu.channel_taps import ChannelTaps
from openinfer.synth.targets.cpu.channels_last import strides
from openinfer.synth.targets.cpu.divide import divided
from openinfer.synth.targets.cpu.machine import AVX512, CpuMachine, runnable
from openinfer.synth.targets.cpu.memory_order import in_memory_order, jumps
from openinfer.synth.targets.cpu.schedule import scheduled
from openinfer.synth.targets.cpu.tile import tile_of

WIDE = {"strides": [3, 2], "dilations": [2, 3]}
DEPTHWISE: list[Case] = [
    ("conv2d", (1, 16, 9, 14), (16, 1, 3, 3), {"pads": [1], "groups": 16}),
    ("conv2d", (2, 24, 12, 13), (24, 1, 3, 3), {"pads": [1], "strides": [2], "groups": 24}),
    ("conv2d", (1, 33, 11, 16), (33, 1, 5, 5), {"pads": [2], "strides": [2, 1], "groups": 33}),
    ("conv2d", (1, 17, 14, 14), (17, 1, 3, 3), {"pads": [2], "dilations": [2], "groups": 17}),
    ("conv2d", (1, 40, 9, 8), (40, 1, 2, 3), {"pads": [3, 0, 0, 2], **WIDE, "groups": 40}),
    ("conv2d", (1, 129, 5, 7), (129, 1, 3, 3), {"groups": 129}),
    ("conv2d", (1, 72, 4, 21), (72, 1, 1, 7), {"pads": [0, 3], "groups": 72}),
    ("conv2d", (1, 16, 21, 4), (16, 1, 7, 1), {"pads": [3, 0], "groups": 16}),
    ("conv2d", (1, 32, 2, 2), (32, 1, 3, 3), {"pads": [2], "groups": 32}),
    ("conv1d", (3, 20, 50), (20, 1, 5), {"pads": [4, 1], "groups": 20}),
    ("conv3d", (1, 18, 5, 6, 8), (18, 1, 3, 3, 3), {"pads": [1], "strides": [1, 2, 1], "groups": 18}),
]
OTHERS: list[Case] = [
    ("conv2d", (1, 3, 16, 18), (24, 3, 3, 3), {"pads": [1], "strides": [2]}),
    ("conv2d", (2, 20, 9, 10), (40, 20, 4, 2), {"pads": [1, 0, 2, 1]}),
    ("conv2d", (1, 128, 5, 6), (72, 128, 3, 3), {"pads": [1]}),
    ("conv2d", (1, 19, 7, 9), (24, 19, 1, 1), {}),
    ("conv2d", (1, 19, 7, 9), (56, 19, 1, 1), {"strides": [2]}),
    ("conv2d", (1, 8, 6, 5), (20, 8, 3, 3), {"dilations": [2]}),
    ("conv2d", (1, 8, 6, 6), (6, 4, 3, 3), {"pads": [1], "groups": 2}),
    ("conv1d", (2, 6, 30), (88, 6, 3), {"pads": [2], "strides": [3]}),
]
EVERYTHING = ("x", "y")


@pytest.fixture
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions, too."""
    monkeypatch.setattr(schedule, "_LEAST", 0)


def last(kernel: Kernel, *names: str) -> Kernel:
    """A kernel some of whose buffers have their channels last."""
    buffers = {one.name: one for one in (*kernel.inputs, *kernel.outputs)}
    moved = {name: replace(buffers[name], strides=strides(buffers[name].shape)) for name in names}
    return in_memory_order(with_buffers(kernel, moved))


def convolution(case: Case) -> Kernel:
    name, x, w, params = case
    return kernel_for(name, x, w, w[:1], **params)


def made(case: Case, target: CpuMachine, *names: str) -> tuple[Kernel, dict[str, Packing]]:
    """The scheduled kernel of a convolution with a bias, and how its weights are stored."""
    kernel, packings = scheduled(last(convolution(case), *(names or EVERYTHING)), target, WEIGHTS)
    assert verify(kernel) == []
    return kernel, packings


def moved_last(array: Array) -> Array:
    """An array with its channels last."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def operands(case: Case, seed: int, packings: dict[str, Packing]) -> list[Array]:
    """Input, weights and bias as a kernel takes them."""
    x, w, bias = whole_numbers(case, seed)
    return [moved_last(x), packings["w"].packed(w) if "w" in packings else w, bias]


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("case", some([DEPTHWISE[1], DEPTHWISE[4], OTHERS[0], DEPTHWISE[8], OTHERS[6]], 2), ids=str)
def test_kernels_with_channels_last_mean_the_same(case: Case) -> None:
    kernel, packings = made(case, AVX512)
    (wanted,) = interpret(convolution(case), whole_numbers(case, 0))
    (found,) = interpret(kernel, [np.ravel(one) for one in operands(case, 0, packings)], order=reversed)
    assert np.array_equal(np.reshape(found, moved_last(wanted).shape), moved_last(wanted))


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.isa)
def test_generated_code_of_channels_that_are_last_agrees_with_plain_loops(target: CpuMachine, tmp_path: Path) -> None:
    kernels, plain = [], []
    cases = [*DEPTHWISE, *OTHERS]
    for number, case in enumerate(cases):
        kernel, packings = made(case, target)
        assert isinstance(contraction(kernel).template, ChannelTaps) == (case in DEPTHWISE), case
        own = convolution(case)
        shape = own.outputs[0].shape
        arrays = operands(case, number, packings)
        kernels += [(one, arrays, moved_last(np.empty(shape)).shape) for one in (kernel, divided(kernel, 3, 0.0))]
        plain.append((own, whole_numbers(case, number), shape))
    folder = tmp_path / "plain"
    folder.mkdir()
    wanted = [moved_last(one) for one in run(plain, folder, target)]
    for found, one in zip(run(kernels, tmp_path, target), np.repeat(np.arange(len(cases)), 2), strict=True):
        assert np.array_equal(found, wanted[one]), cases[one]


def test_windows_of_a_convolution_are_rows_where_channels_are_contiguous() -> None:
    kernel, _ = made(("conv2d", (1, 128, 14, 14), (128, 128, 3, 3), {"pads": [1]}), AVX512)
    tile = tile_of(contraction(kernel))
    assert tile is not None
    assert tile.has_windows
    (memory,) = kernel.scratch
    assert memory.strides is not None
    assert memory.strides[-1] == 144, "neighbours must not share a set of the cache"


def test_threads_share_rows_of_windows() -> None:
    kernel, _ = made(("conv2d", (1, 64, 56, 56), (64, 1, 3, 3), {"pads": [1], "groups": 64}), AVX512)
    *_, rows = divided(kernel, 2, 0.0).body
    assert isinstance(rows, For)
    assert rows.bind is Bind.PART


@pytest.mark.parametrize("columns", some([25, 24, 40, 72, 3, 8], 2))
def test_panels_of_few_columns_end_in_half_a_vector(columns: int, tmp_path: Path) -> None:
    case: Case = ("conv2d", (1, 21, 8, 9), (columns, 21, 1, 1), {})
    kernel, packings = made(case, AVX512)
    code = run([(kernel, operands(case, 1, packings), (1, 8, 9, columns))], tmp_path, AVX512)[0]
    (wanted,) = interpret(convolution(case), whole_numbers(case, 1))
    assert np.array_equal(code, moved_last(wanted))


def test_a_sum_over_places_adds_to_all_channels_in_turn() -> None:
    kernel = last(kernel_for("global_avg_pool", (1, 24, 5, 6)), "x")
    assert [one.buffer.shape for one in walk(kernel.body) if isinstance(one, Alloc)] == [(24,), (24,)]
    x = np.random.default_rng(0).standard_normal((1, 24, 5, 6)).astype(np.float32)
    (found,) = interpret(kernel, [np.ravel(moved_last(x))])
    assert np.allclose(found, x.mean(axis=(2, 3), keepdims=True), rtol=1e-6)


def test_an_element_is_not_written_over_another_one() -> None:
    kernel = kernel_for("neg", (1, 24, 5, 6))
    assert in_place_inputs(last(kernel)) == [0]
    assert in_place_inputs(last(kernel, *EVERYTHING)) == [0]
    assert in_place_inputs(last(kernel, "x")) == []


# --- networks ---------------------------------------------------------------------------------------------------------

SEPARABLE = """
dynamic { x: f32[1, 3, 12, 10]; }
volatile { w0: f32[16, 3, 3, 3]; w1: f32[16, 1, 3, 3]; w2: f32[24, 16, 1, 1]; }
block entry {
    a = op conv2d(x, w0, pads=[1]);
    op relu(a) >> a;
    b = op conv2d(a, w1, pads=[1], groups=16);
    c = op conv2d(b, w2);
    d = op relu(c);
    y = op global_avg_pool(d);
    return y;
}
"""


def planned(text: str, folder: Path, device: str = "x86-avx512") -> tuple[Plan, ModelLoader]:
    rng = np.random.default_rng(1)
    shapes = {"w0": (16, 3, 3, 3), "w1": (16, 1, 3, 3), "w2": (24, 16, 1, 1)}
    tensors = {name: rng.integers(-4, 5, shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(folder / "model.oinf", tensors)
    model = ModelLoader.open(folder / "model.oinf")
    return Synthesizer(DeviceArch.named(device)).synthesize(model, graph(text)), model


def strided(plan: Plan) -> list[str]:
    steps = [step for step in plan.placed.program.steps() if isinstance(step, KernelStep)]
    return [str(step.outputs[0].variable) for step in steps if step.kernel.outputs[0].strides is not None]


def test_values_between_convolutions_have_their_channels_last(tmp_path: Path) -> None:
    plan, _ = planned(SEPARABLE, tmp_path)
    assert strided(plan) == ["a", "b", "d"]


FEW = """
dynamic { x: f32[1, 3, 12, 10]; }
volatile { w0: f32[4, 3, 3, 3]; w2: f32[6, 4, 1, 1]; }
block entry {
    a = op conv2d(x, w0, pads=[1]);
    b = op relu(a);
    c = op conv2d(b, w2);
    y = op relu(c);
    return y;
}
"""


def test_other_values_stay_as_the_graph_has_them(tmp_path: Path) -> None:
    """Vectors of four channels would be mostly empty; values that are sorted along rows are not read along channels."""
    rng = np.random.default_rng(1)
    shapes = {"w0": (4, 3, 3, 3), "w2": (6, 4, 1, 1)}
    save_file(
        tmp_path / "few.oinf", {name: rng.standard_normal(one).astype(np.float32) for name, one in shapes.items()}
    )
    with ModelLoader.open(tmp_path / "few.oinf") as few:
        assert strided(Synthesizer(DeviceArch.named("x86-avx512")).synthesize(few, graph(FEW))) == []
    sorting, _ = planned(SEPARABLE.replace("d = op relu(c);", "d, i = op sort(c, axis=3);"), tmp_path)
    assert "d" not in strided(sorting)


LINEAR = """
dynamic { x: f32[2, 32, 48]; }
volatile { y: f32[2, 32, 48]; }
constant { u: f32[64, 48]; d: f32[48, 64]; }
block entry {
    a = op linear(x, u);
    b = op gelu(a);
    op linear(b, d) >> y;
    return y;
}
"""


def test_what_linear_layers_store_has_its_channels_last_already(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weights = {"u": rng.standard_normal((64, 48), np.float32), "d": rng.standard_normal((48, 64), np.float32)}
    save_file(tmp_path / "linear.oinf", weights)
    with ModelLoader.open(tmp_path / "linear.oinf") as linear:
        assert strided(Synthesizer(DeviceArch.named("x86-avx512")).synthesize(linear, graph(LINEAR))) == []


SUMMED = """
dynamic { x: f32[1, 3, 12, 10]; }
volatile { u: f32[24, 3, 1, 1]; v: f32[24, 3, 1, 1]; }
block entry {
    a = op conv2d(x, u);
    b = op conv2d(x, v);
    y = op add(b, a);
    return y;
}
"""


def test_what_the_epilogue_of_a_convolution_reads_is_as_its_results_are(tmp_path: Path) -> None:
    """A caller reads ``y`` in the order of the graph: the other convolution is added there, along rows."""
    rng = np.random.default_rng(1)
    weights = {name: rng.standard_normal((24, 3, 1, 1), np.float32) for name in "uv"}
    save_file(tmp_path / "summed.oinf", weights)
    with ModelLoader.open(tmp_path / "summed.oinf") as summed:
        assert strided(Synthesizer(DeviceArch.named("x86-avx512")).synthesize(summed, graph(SUMMED))) == []
        pooled = graph(SUMMED.replace("return y;", "z = op global_avg_pool(y); return z;"))
        assert len(strided(Synthesizer(DeviceArch.named("x86-avx512")).synthesize(summed, pooled))) == 2


def test_pooling_runs_along_channels(tmp_path: Path) -> None:
    plan, _ = planned(SEPARABLE.replace("d = op relu(c);", "d = op max_pool(c, kernel=[3, 3], pads=[1]);"), tmp_path)
    assert strided(plan) == ["a", "b", "c", "d"]
    kernels = [step.kernel for step in plan.placed.program.steps() if isinstance(step, KernelStep)]
    assert [jumps(kernel) for kernel in kernels if "max_pool" in kernel.name] == [0]


def test_what_a_caller_reads_is_as_the_graph_has_it(tmp_path: Path) -> None:
    plan, _ = planned(SEPARABLE.replace("return y;", "return y, b;"), tmp_path)
    assert "b" not in strided(plan)


def test_a_trace_shows_values_as_the_graph_has_them(tmp_path: Path) -> None:
    plan, model = planned(SEPARABLE, tmp_path, "generic")
    x = np.random.default_rng(2).integers(-4, 5, (1, 3, 12, 10)).astype(np.float32)
    executor = Simulator(model, Device.CPU).with_trace(TraceLevel.FULL).make_executor(graph(SEPARABLE))
    module = plan.build(trace=TraceLevel.FULL)
    shown: list[dict[str, Any]] = []
    for machine in (executor, module):
        machine.insert(x=x)
        machine.step()
        outputs = [one for event in machine.trace() for one in event.get("outputs", [])]
        shown.append({one["name"]: one for one in outputs})
    simulated, compiled = shown
    assert strided(plan) == ["a", "b", "d"]
    for name in strided(plan):
        assert compiled[name] == simulated[name], "whole numbers are exact, and so are their digests"


def test_values_of_weights_that_are_not_finite_do_not_reach_over_edges(tmp_path: Path) -> None:
    text = SEPARABLE.replace("y = op global_avg_pool(d);", "y = op neg(d);")
    _, model = planned(text, tmp_path, "generic")
    tensors = {name: model.load(name).to_numpy().copy() for name in ("w0", "w1", "w2")}
    tensors["w1"][3, 0, 0, 0] = np.inf
    save_file(tmp_path / "infinite.oinf", tensors)
    x = np.random.default_rng(3).standard_normal((1, 3, 12, 10)).astype(np.float32)
    with ModelLoader.open(tmp_path / "infinite.oinf") as infinite:
        module = Synthesizer(DeviceArch.named("generic")).synthesize(infinite, graph(text)).build()
        executor = Simulator(infinite, Device.CPU).make_executor(graph(text))
        for machine in (module, executor):
            machine.insert(x=x)
            machine.step()
        assert np.allclose(module.fetch("y"), executor.fetch("y"), atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("seed", some([1, 6, 11, 17, 24, 35], 2))
def test_random_networks_agree_with_the_simulator(seed: int, tmp_path: Path) -> None:
    devices = ("generic", f"x86-{runnable()[-1].isa}")[: len(runnable())]
    assert list(disagreements(seed, tmp_path, devices, (2,))) == []
