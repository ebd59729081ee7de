"""Convolutions in groups, with windows as lists of offsets: what they compute, and which have them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.scheduled_in_c import kernel_for, run
from tests.synth.test_windows import WEIGHTS, Case, contraction, made, whole_numbers

from openinfer import ModelLoader, Simulator
from openinfer.lang import graph
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Bind, For, Kernel
from openinfer.oinf import save_file
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.targets.cpu import schedule, windows
from openinfer.synth.targets.cpu.divide import Divide, divided
from openinfer.synth.targets.cpu.machine import AVX2, AVX512, CpuMachine, runnable
from openinfer.synth.targets.cpu.taps import CpuTaps
from openinfer.synth.targets.target import Passes

CASES: list[Case] = [
    ("conv2d", (1, 6, 9, 14), (6, 1, 3, 3), {"pads": [1], "groups": 6}),
    ("conv2d", (2, 4, 12, 13), (4, 1, 3, 3), {"pads": [1], "strides": [2], "groups": 4}),
    ("conv2d", (1, 3, 11, 16), (6, 1, 5, 5), {"pads": [2], "strides": [2, 1], "groups": 3}),
    ("conv2d", (1, 3, 14, 14), (3, 1, 3, 3), {"pads": [2], "dilations": [2], "groups": 3}),
    ("conv2d", (1, 2, 15, 17), (2, 1, 2, 3), {"pads": [3, 0, 0, 2], "strides": [3], "dilations": [2, 1], "groups": 2}),
    ("conv2d", (1, 6, 8, 9), (8, 3, 3, 3), {"pads": [1], "groups": 2}),
    ("conv2d", (1, 8, 7, 7), (18, 4, 1, 1), {"groups": 2}),
    ("conv2d", (1, 2, 96, 70), (2, 1, 3, 3), {"pads": [1], "groups": 2}),
    ("conv2d", (1, 2, 5, 40), (2, 1, 1, 7), {"pads": [0, 3], "groups": 2}),
    ("conv2d", (1, 4, 9, 9), (4, 1, 9, 9), {"groups": 4}),
    ("conv1d", (3, 6, 50), (12, 1, 5), {"pads": [2], "groups": 6}),
    ("conv1d", (1, 4, 33), (4, 2, 4), {"pads": [4, 0], "strides": [4], "groups": 2}),
    ("conv1d", (2, 2, 30), (2, 1, 3), {"pads": [2], "strides": [4], "dilations": [2], "groups": 2}),
    ("conv2d", (1, 4, 14, 14), (20, 2, 3, 3), {"pads": [1], "groups": 2}),
    ("conv3d", (1, 2, 5, 6, 8), (2, 1, 3, 3, 3), {"pads": [1], "strides": [1, 2, 1], "groups": 2}),
]
FEW_CHANNELS: list[Case] = [
    ("conv2d", (1, 3, 16, 18), (8, 3, 3, 3), {"pads": [1], "strides": [2]}),
    ("conv2d", (2, 1, 9, 10), (5, 1, 4, 2), {"pads": [1, 0, 2, 1]}),
    ("conv1d", (1, 2, 60), (9, 2, 5), {"strides": [3]}),
]


def has_taps(kernel: Kernel) -> bool:
    return isinstance(contraction(kernel).template, CpuTaps)


@pytest.fixture
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions, too, and none with channels as columns."""
    monkeypatch.setattr(schedule, "_LEAST", 0)
    monkeypatch.setattr(windows, "_LEAST_GAIN", 0.0)


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("case", [CASES[1], CASES[4], CASES[11], CASES[12], FEW_CHANNELS[1]], ids=str)
def test_windows_as_offsets_mean_the_same(case: Case) -> None:
    name, x, w, params = case
    kernel, _ = made(case, AVX512)
    assert has_taps(kernel)
    arrays = whole_numbers(case, 0)
    (wanted,) = interpret(kernel_for(name, x, w, w[:1], **params), arrays)
    (found,) = interpret(kernel, arrays, order=reversed)
    assert np.array_equal(found, wanted)


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.isa)
def test_generated_code_of_groups_agrees_with_plain_loops(target: CpuMachine, tmp_path: Path) -> None:
    kernels, plain = [], []
    cases = [*CASES, *FEW_CHANNELS]
    for number, case in enumerate(cases):
        kernel, _ = made(case, target)
        assert has_taps(kernel), case
        arrays = whole_numbers(case, number)
        own = kernel_for(case[0], case[1], case[2], case[2][:1], **case[3])
        shape = own.outputs[0].shape
        kernels += [(one, arrays, shape) for one in (kernel, divided(kernel, 3, 0.0))]
        plain.append((own, arrays, shape))
    folder = tmp_path / "plain"
    folder.mkdir()
    wanted = run(plain, folder, target)
    for found, one in zip(run(kernels, tmp_path, target), np.repeat(np.arange(len(cases)), 2), strict=True):
        assert np.array_equal(found, wanted[one]), cases[one]


def test_what_a_band_of_a_group_sees_fits_in_the_first_cache() -> None:
    case: Case = ("conv2d", (1, 8, 112, 112), (8, 1, 3, 3), {"pads": [1], "groups": 8})
    kernel, _ = made(case, AVX512)
    sizes = [4 * int(np.prod(buffer.shape)) for buffer in kernel.scratch]
    assert AVX512.l1d // 4 < sum(sizes) <= AVX512.l1d


def test_threads_share_the_groups() -> None:
    case: Case = ("conv2d", (1, 64, 56, 56), (64, 1, 3, 3), {"pads": [1], "groups": 64})
    kernel, _ = made(case, AVX512)
    outermost = divided(kernel, 2, 0.0).body[0]
    assert isinstance(outermost, For)
    assert outermost.bind is Bind.PART


@pytest.mark.parametrize(("target", "run"), [(AVX512, 3), (AVX2, 1)], ids=["can", "cannot"])
def test_what_neighbouring_offsets_see_is_loaded_once_where_vectors_can_be_moved(target: CpuMachine, run: int) -> None:
    kernel, _ = made(("conv2d", (1, 4, 14, 14), (4, 1, 3, 3), {"pads": [1], "groups": 4}), target)
    template = contraction(kernel).template
    assert isinstance(template, CpuTaps)
    assert template.run == run


@pytest.mark.parametrize(
    ("case", "finite"),
    [
        (("conv2d", (1, 6, 9, 14), (6, 1, 3, 3), {"pads": [1], "groups": 6}), frozenset[str]()),
        (("conv2d", (1, 9, 14, 6), (6, 1, 3, 3), {"pads": [1], "groups": 6, "layout": "NHWC"}), WEIGHTS),
        (("conv2d", (1, 64, 9, 9), (64, 32, 3, 3), {"pads": [1], "groups": 2}), WEIGHTS),
    ],
    ids=["infinities would meet zeros", "channels last", "many results for each group"],
)
def test_other_convolutions_have_no_lists_of_offsets(case: Case, finite: frozenset[str]) -> None:
    kernel, _ = made(case, AVX512, finite)
    assert not has_taps(kernel)


@pytest.mark.parametrize("groups", [1, 4, 8])
def test_what_follows_a_convolution_in_groups_is_part_of_its_kernel(groups: int) -> None:
    text = f"""
    dynamic {{ x: f32[1, 8, 9, 9]; w: f32[8, {8 // groups}, 3, 3]; b: f32[8]; }}
    volatile {{ h: f32[1, 8, 9, 9]; y: f32[1, 8, 9, 9]; }}
    block entry {{
        op conv2d(x, w, b, pads=[1], groups={groups}) >> h;
        op relu(h) >> h;
        op add(h, x) >> y;
        return y;
    }}
    """
    plan = Synthesizer("x86-avx512").synthesize(None, graph(text))
    kernels: list[Any] = [one for one in plan.placed.program.steps() if isinstance(one, KernelStep)]
    assert len(kernels) == 1


@pytest.mark.parametrize(
    ("dtype", "x", "w", "strides"),
    [("f32", (1, 2, 5, 402), (384, 2, 3, 3), (1, 1)), ("i8", (1, 4, 2402), (64, 4, 11), (2,))],
    ids=["floats", "bytes"],
)
def test_features_that_threads_share_have_sums_of_their_own(
    dtype: str, x: tuple[int, ...], w: tuple[int, ...], strides: tuple[int, ...], tmp_path: Path
) -> None:
    array: type[np.generic] = np.float32 if dtype == "f32" else np.int8
    total = "f32" if dtype == "f32" else "i32"
    rng = np.random.default_rng(1)
    save_file(tmp_path / "model.oinf", {"w": rng.integers(-9, 9, w).astype(array)})
    plane = [(seen - window) // stride + 1 for seen, window, stride in zip(x[2:], w[2:], strides, strict=True)]
    text = f"""
    dynamic {{ x: {dtype}{list(x)}; }} constant {{ w: {dtype}{list(w)}; }}
    volatile {{ y: {total}{[1, w[0], *plane]}; }}
    block entry {{ op conv{len(plane)}d(x, w, strides={list(strides)}, acc={total}) >> y; return y; }}
    """
    with ModelLoader.open(tmp_path / "model.oinf") as model:
        module = Synthesizer(passes=Passes(divide=Divide(2))).synthesize(model, graph(text)).build()
        executor = Simulator(model).make_executor(graph(text))
        given = rng.integers(-9, 9, x).astype(array)
        for one in (module, executor):
            one.insert(x=given)
            one.run_step()
        np.testing.assert_array_equal(module.fetch("y"), executor.fetch("y"))
