"""Convolutions of bytes with windows as lists of groups of four: what they compute, which have them, and borders."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.everything import some
from tests.synth.test_byte_contraction import I8, U8, WAYS, Task, Way, call_for, kernel_for, matrix, run, wrapped
from tests.synth.test_windows import Case, contraction

from openinfer import CompiledModule, Executor, ModelLoader, Simulator, graph
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Contraction, Kernel, ScalarVar, walk
from openinfer.oinf import save_file
from openinfer.ops import OPS, ReferenceKernel
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.cpu import schedule
from openinfer.synth.targets.cpu.byte_taps import ByteTaps
from openinfer.synth.targets.cpu.divide import divided
from openinfer.synth.targets.cpu.machine import AVX512
from openinfer.synth.targets.cpu.schedule import scheduled
from openinfer.synth.targets.cpu.taps import Along

CASES: list[Case] = [
    ("conv2d", (1, 6, 9, 14), (6, 1, 3, 3), {"pads": [1], "groups": 6}),
    ("conv2d", (2, 4, 12, 13), (4, 1, 3, 3), {"pads": [1], "strides": [2], "groups": 4}),
    ("conv2d", (1, 3, 11, 16), (6, 1, 5, 5), {"pads": [2], "strides": [2, 1], "groups": 3}),
    ("conv2d", (1, 3, 14, 14), (3, 1, 3, 3), {"pads": [2], "dilations": [2], "groups": 3}),
    ("conv2d", (1, 2, 15, 17), (2, 1, 2, 3), {"pads": [3, 0, 0, 2], "strides": [3], "dilations": [2, 1], "groups": 2}),
    ("conv2d", (1, 6, 8, 9), (8, 3, 3, 3), {"pads": [1], "groups": 2}),
    ("conv2d", (1, 2, 96, 70), (2, 1, 3, 3), {"pads": [1], "groups": 2}),
    ("conv2d", (1, 2, 5, 40), (2, 1, 1, 7), {"pads": [0, 3], "groups": 2}),
    ("conv2d", (1, 2, 9, 6), (2, 1, 3, 3), {"pads": [9], "groups": 2}),
    ("conv2d", (1, 3, 30, 1), (3, 1, 3, 1), {"pads": [1, 0], "groups": 3}),
    ("conv1d", (3, 6, 50), (12, 1, 5), {"pads": [2], "groups": 6}),
    ("conv1d", (1, 4, 33), (4, 2, 4), {"pads": [4, 0], "strides": [4], "groups": 2}),
    ("conv2d", (1, 3, 16, 18), (8, 3, 3, 3), {"pads": [1], "strides": [2]}),
    ("conv1d", (1, 2, 60), (9, 2, 5), {"strides": [3]}),
    ("conv2d", (1, 3, 4, 14), (3, 1, 3, 3), {"pads": [2, 1], "strides": [3], "groups": 3}),
    ("conv2d", (1, 2, 4, 14), (2, 1, 2, 3), {"pads": [1], "strides": [3], "dilations": [2, 1], "groups": 2}),
]
BORDERED = """
dynamic {{ x: {dtype}[1, 4, 9, 6]; }}
volatile {{ w: {dtype}[4, 1, 3, 3]; b: i32[4]; y: i8[1, 4, 10, 6]; }}
constant {{ scale: f32[4]; zero: i8 @init(-5); }}
block entry {{
    assign padded: {dtype}[1, 4, 12, 8];
    assign sum: i32[1, 4, 10, 6];
    assign real: f32[1, 4, 10, 6];
    op pad(x, pads=[0, 0, 2, 1, 0, 0, 1, 1], value={value}) >> padded;
    op conv2d(padded, w, b, groups=4, acc=i32) >> sum;
    op cast(sum, to=f32) >> real;
    op quantize(real, scale, zero, to=i8, axis=1) >> y;
    return y;
}}
"""


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions, too."""
    monkeypatch.setattr(schedule, "_LEAST", 0)


def has_groups(kernel: Kernel) -> bool:
    return isinstance(contraction(kernel).template, ByteTaps)


@pytest.mark.parametrize("case", some([CASES[1], CASES[4], CASES[5], CASES[11]], 2), ids=str)
def test_groups_of_four_mean_the_same(case: Case) -> None:
    name, x, w, params = case
    rng = np.random.default_rng(1)
    arrays = [matrix(rng, I8, *x), matrix(rng, I8, *w)]
    kernel, packings = scheduled(kernel_for(name, x, w, **params), AVX512, frozenset({"w"}))
    assert has_groups(kernel)
    (wanted,) = interpret(kernel_for(name, x, w, **params), arrays)
    (found,) = interpret(kernel, [arrays[0], packings["w"].packed(arrays[1])], order=reversed)
    assert np.array_equal(found, wanted)


@WAYS
def test_generated_code_is_exact(way: Way, tmp_path: Path) -> None:
    tasks: list[Task] = []
    wanted = []
    for number, (name, x_shape, w_shape, params) in enumerate(CASES):
        dtype = (I8, U8)[number % 2]
        rng = np.random.default_rng(number)
        x, w = matrix(rng, dtype, *x_shape), matrix(rng, dtype, *w_shape)
        kernel = kernel_for(name, x_shape, w_shape, dtype=dtype, **params)
        made, packings = scheduled(kernel, way.target, frozenset({"w"}))
        assert has_groups(made), CASES[number]
        (out,) = kernel.outputs
        tasks.append((made, [x, packings["w"].packed(w)], out.shape))
        call = call_for(name, x_shape, w_shape, dtype=dtype, **params)
        wanted.append(ReferenceKernel(OPS[name], call, [dtype, dtype])((x, w))[0])
    for found, right, case in zip(run(tasks, tmp_path, way), wanted, CASES, strict=True):
        assert np.array_equal(found, wrapped(right)), case


def test_known_lines_are_numbers_and_no_border_is_no_loop() -> None:
    def text(**params: Any) -> str:
        kernel = kernel_for("conv2d", (1, 2, 9, 14), (2, 1, 3, 3), groups=2, **params)
        return printed(scheduled(kernel, AVX512, frozenset({"w"}))[0], "f").text

    assert "first" not in text(pads=[1])
    assert "to[k] = 0;" in text(pads=[1])
    assert "to[k] = 0;" not in text()


def test_a_single_line_inside_the_plane_is_no_loop() -> None:
    for name, x, w, params in CASES[-2:]:
        text = printed(scheduled(kernel_for(name, x, w, **params), AVX512, frozenset({"w"}))[0], "f").text
        assert "plane + 27" in text
        assert "line = 1;" not in text


def test_groups_of_channels_are_shared_by_threads() -> None:
    kernel, _ = scheduled(kernel_for("conv2d", (1, 8, 20, 20), (8, 1, 3, 3), groups=8), AVX512, frozenset({"w"}))
    assert divided(kernel, 2, 0.0) is not kernel


def test_products_without_windows_have_none() -> None:
    for name, x, w in (("linear", (2, 1, 33), (10, 33)), ("conv2d", (1, 2, 8, 8), (40, 2, 1, 1))):
        kernel, _ = scheduled(kernel_for(name, x, w), AVX512, frozenset({"w"}))
        assert not any(isinstance(one, Contraction) and isinstance(one.template, ByteTaps) for one in walk(kernel.body))


def bordered(dtype: str) -> str:
    return BORDERED.format(dtype=dtype, value=-7 if dtype == "i8" else 200)


def planned(dtype: str, device: str, folder: Path) -> tuple[Plan, ModelLoader]:
    rng = np.random.default_rng(3)
    weights = {
        "w": matrix(rng, I8 if dtype == "i8" else U8, 4, 1, 3, 3),
        "b": rng.integers(-999, 999, 4).astype(np.int32),
        "scale": np.array([90, 300, 170, 1000], np.float32),
    }
    save_file(folder / "model.oinf", weights)
    loader = ModelLoader.open(folder / "model.oinf")
    return Synthesizer(device).synthesize(loader, graph(bordered(dtype))), loader


@pytest.mark.parametrize(("dtype", "device"), [("i8", "host"), ("u8", "host"), ("i8", "generic")])
def test_borders_of_a_value_are_made_where_windows_see_them(dtype: str, device: str, tmp_path: Path) -> None:
    plan, loader = planned(dtype, device, tmp_path)
    assert all(one.is_fused for one in plan.ledger)
    x = matrix(np.random.default_rng(4), I8 if dtype == "i8" else U8, 1, 4, 9, 6)
    machines: list[CompiledModule | Executor] = [plan.build(), Simulator(loader).make_executor(graph(bordered(dtype)))]
    for one in machines:
        one.insert({"x": x})
        one.run_step()
    found, wanted = (one.fetch("y") for one in machines)
    assert np.array_equal(found, wanted)


def test_where_code_must_be_small_a_border_is_copied(tmp_path: Path) -> None:
    plan, _ = planned("i8", "cortex-m4", tmp_path)
    assert not all(one.is_fused for one in plan.ledger)


def test_the_text_of_a_kernel_says_its_windows_in_words() -> None:
    """``--print-after schedule`` is read by people: no record of Python is in it."""
    text = str(Along(8, 8, 1, -1, 1, 3, ScalarVar("i3"), ScalarVar("k6")))
    assert text == "8 windows of 3 taps along i3 + k6 (extent 8, stride 1, dilation 1, first -1)"
