"""Convolutions with channels as columns: what they compute, on which shapes, and how they are divided."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.scheduled_in_c import kernel_for, run

from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import INDEX, Bind, Const, Contraction, For, Kernel, walk
from openinfer.loops.verify import verify
from openinfer.synth.program.packing import Packing
from openinfer.synth.targets.cpu import find_taps, schedule, windows
from openinfer.synth.targets.cpu.choices import Choice, ProductShape
from openinfer.synth.targets.cpu.divide import divided
from openinfer.synth.targets.cpu.machine import AVX2, AVX512, CpuMachine, runnable
from openinfer.synth.targets.cpu.schedule import scheduled
from openinfer.synth.targets.cpu.tile import tile_of
from openinfer.synth.tuning.records import Processor, possible_tiles

WEIGHTS = frozenset({"w", "bias"})
Shape = tuple[int, ...]
Case = tuple[str, Shape, Shape, dict[str, Any]]
"""An op, the shapes of its input and weights, and its parameters."""

CASES: list[Case] = [
    ("conv2d", (1, 5, 9, 14), (35, 5, 3, 3), {"pads": [1]}),
    ("conv2d", (2, 4, 12, 13), (33, 4, 3, 3), {"pads": [1], "strides": [2]}),
    ("conv2d", (1, 3, 16, 31), (16, 3, 7, 7), {"pads": [3], "strides": [2]}),
    ("conv2d", (1, 8, 6, 17), (20, 8, 3, 3), {}),
    ("conv2d", (1, 7, 8, 9), (40, 7, 1, 1), {}),
    ("conv2d", (1, 7, 8, 9), (40, 7, 1, 1), {"strides": [2]}),
    ("conv2d", (1, 4, 10, 11), (24, 4, 3, 2), {"pads": [2, 0, 1, 1], "dilations": [2, 3]}),
    ("conv2d", (1, 8, 8, 15), (48, 4, 3, 3), {"pads": [1], "groups": 2}),
    ("conv2d", (1, 6, 7, 2), (32, 6, 3, 3), {"pads": [1]}),
    ("conv2d", (1, 2, 3, 8), (32, 2, 3, 3), {"pads": [2]}),
    ("conv1d", (3, 6, 50), (40, 6, 5), {"pads": [2]}),
    ("conv3d", (1, 3, 4, 6, 8), (17, 3, 3, 3, 3), {"pads": [1]}),
]
SMALL_CASES: list[Case] = [
    ("conv2d", (1, 2, 8, 5), (9, 2, 3, 3), {"pads": [1]}),
    ("conv2d", (2, 1, 9, 6), (3, 1, 3, 3), {"pads": [1], "strides": [2]}),
    ("conv2d", (1, 4, 4, 3), (6, 2, 2, 3), {"pads": [0, 1, 1, 1], "groups": 2}),
    ("conv2d", (1, 2, 4, 5), (5, 2, 1, 1), {"strides": [2]}),
    ("conv1d", (1, 3, 11), (9, 3, 3), {"pads": [3], "dilations": [2]}),
]


@pytest.fixture
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels are columns wherever that can be, and in bands of a few rows."""
    monkeypatch.setattr(schedule, "_LEAST", 0)
    monkeypatch.setattr(windows, "_LEAST_GAIN", np.inf)
    monkeypatch.setattr(windows, "_LARGE", 0)
    monkeypatch.setattr(find_taps, "_MOST_FEATURES", 0)


def made(case: Case, target: CpuMachine, finite: frozenset[str] = WEIGHTS) -> tuple[Kernel, dict[str, Packing]]:
    name, x, w, params = case
    kernel, packings = scheduled(kernel_for(name, x, w, w[:1], **params), target, WEIGHTS, finite)
    assert verify(kernel) == []
    return kernel, packings


def contraction(kernel: Kernel) -> Contraction:
    (found,) = (one for one in walk(kernel.body) if isinstance(one, Contraction))
    return found


def is_transposed(kernel: Kernel) -> bool:
    tile = tile_of(contraction(kernel))
    return tile is not None and tile.is_transposed


def whole_numbers(case: Case, seed: int) -> list[Any]:
    """Small ones, so that every order of a sum gives the same bits."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, shape).astype(np.float32) for shape in (case[1], case[2], case[2][:1])]


def packed(arrays: Sequence[Any], packings: dict[str, Packing]) -> list[Any]:
    x, w, bias = arrays
    return [x, packings["w"].packed(w), bias]


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("case", SMALL_CASES, ids=str)
def test_the_schedule_means_the_same(case: Case) -> None:
    name, x, w, params = case
    kernel, packings = made(case, AVX2)
    assert is_transposed(kernel)
    arrays = whole_numbers(case, 0)
    (wanted,) = interpret(kernel_for(name, x, w, w[:1], **params), arrays)
    (found,) = interpret(kernel, packed(arrays, packings), order=reversed)
    assert np.array_equal(found, wanted)


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.isa)
def test_generated_code_agrees_with_plain_loops(target: CpuMachine, tmp_path: Path) -> None:
    kernels, plain = [], []
    for number, case in enumerate(CASES):
        kernel, packings = made(case, target)
        assert is_transposed(kernel), case
        arrays = whole_numbers(case, number)
        own = kernel_for(case[0], case[1], case[2], case[2][:1], **case[3])
        shape = own.outputs[0].shape
        kernels += [(one, packed(arrays, packings), shape) for one in (kernel, divided(kernel, 3, 0.0))]
        plain.append((own, arrays, shape))
    folder = tmp_path / "plain"
    folder.mkdir()
    wanted = run(plain, folder, target)
    for found, one in zip(run(kernels, tmp_path, target), np.repeat(np.arange(len(CASES)), 2), strict=True):
        assert np.array_equal(found, wanted[one]), CASES[one]


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.isa)
def test_every_possible_tile_computes_the_convolution(target: CpuMachine, tmp_path: Path) -> None:
    case: Case = ("conv2d", (1, 4, 5, 19), (37, 4, 3, 3), {"pads": [1]})
    kernel = kernel_for(case[0], case[1], case[2], case[2][:1], **case[3])
    asked: list[ProductShape] = []
    scheduled(kernel, target, WEIGHTS, choose=asked.append)
    (shape,) = asked
    assert (shape.left, shape.right, shape.rows, shape.columns, shape.inner) == ("windows", "panels", 19, 37, 36)
    arrays, out = whole_numbers(case, 3), kernel.outputs[0].shape
    tasks = [(kernel, arrays, out)]
    tiles = possible_tiles(shape, Processor.of(target, 1))
    for rows, vectors in tiles[:: max(1, len(tiles) // 12)]:
        choices = {shape: Choice(rows=rows, vectors=vectors, gain=1.5)}
        own, packings = scheduled(kernel, target, WEIGHTS, choose=choices.get)
        tile = tile_of(contraction(own))
        assert tile is not None
        assert (tile.is_transposed, tile.rows, tile.columns // tile.lanes, tile.gain) == (True, rows, vectors, 1.5)
        tasks.append((own, packed(arrays, packings), out))
    wanted, *found = run(tasks, tmp_path, target)
    assert len(found) > 5
    assert all(np.array_equal(one, wanted) for one in found)


# --- decisions --------------------------------------------------------------------------------------------------------


def square(channels: int, size: int, features: int, kernel: int = 3, stride: int = 1) -> Case:
    params = {"pads": [kernel // 2], "strides": [stride]}
    return "conv2d", (1, channels, size, size), (features, channels, kernel, kernel), params


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=lambda target: target.isa)
@pytest.mark.parametrize("case", [square(64, 56, 64), square(128, 28, 128), square(256, 14, 256), square(512, 7, 512)])
def test_many_channels_are_columns(case: Case, target: CpuMachine) -> None:
    assert is_transposed(made(case, target)[0])


@pytest.mark.parametrize("case", [square(64, 56, 1), square(1, 64, 8), square(64, 56, 64, kernel=1)])
def test_few_channels_or_products_have_places_as_columns(case: Case) -> None:
    assert not is_transposed(made(case, AVX512)[0])


@pytest.mark.usefixtures("_always")
def test_an_infinity_must_not_meet_the_zeros_around() -> None:
    assert not is_transposed(made(square(8, 9, 32), AVX512, frozenset({"bias"}))[0])
    assert is_transposed(made(("conv2d", (1, 8, 9, 9), (32, 8, 3, 3), {}), AVX512, frozenset({"bias"}))[0])


@pytest.mark.usefixtures("_always")
def test_dynamic_sizes_and_transposed_windows_have_places_as_columns() -> None:
    dynamic = kernel_for("conv2d", (Dim(4, Ref("B")), 8, 9, 9), (32, 8, 3, 3), pads=[1])
    backward = kernel_for("conv_transpose2d", (1, 8, 9, 9), (8, 32, 3, 3))
    for kernel in (dynamic, backward):
        assert not is_transposed(scheduled(kernel, AVX512, WEIGHTS)[0])


def test_seven_rows_and_four_vectors_take_all_registers() -> None:
    tile = tile_of(contraction(made(square(512, 7, 512), AVX512)[0]))
    assert tile is not None
    assert (tile.rows, tile.columns) == (7, 64)


# --- bands ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "bands"), [(112, 8), (56, 8), (28, 4), (14, 2), (7, 1), (13, 1), (26, 2)])
def test_bands_are_shared_evenly(size: int, bands: int) -> None:
    kernel, _ = made(square(64, size, 64), AVX512)
    outer = kernel.body[-1]
    assert (Const(bands, INDEX) if bands > 1 else None) == (outer.extent if isinstance(outer, For) else None)


def test_what_a_band_sees_fits_in_a_cache() -> None:
    for channels, size in product((64, 256, 1024), (13, 20, 56)):
        kernel, _ = made(square(channels, size, 64), AVX512)
        if is_transposed(kernel):
            assert int(np.prod(kernel.scratch[0].shape)) * 4 <= AVX512.l2


@pytest.mark.parametrize(
    ("case", "parts", "share"),
    [
        (square(64, 56, 64), 2, "bands"),
        (square(256, 14, 256), 2, "bands"),
        (square(256, 14, 256), 4, "columns"),
        (square(512, 7, 512), 2, "columns"),
    ],
)
def test_threads_have_bands_or_channels(case: Case, parts: int, share: str) -> None:
    whole = made(case, AVX512)[0]
    kernel = divided(whole, parts, 0.0)
    loops = [one for one in walk(kernel.body) if isinstance(one, For) and one.bind is Bind.PART]
    tile = tile_of(contraction(kernel))
    assert kernel is not whole
    assert tile is not None
    assert (bool(loops), tile.divided) == ((True, None) if share == "bands" else (False, "columns"))


@pytest.mark.parametrize(("channels", "features", "share"), [(96, 576, "columns"), (576, 96, "rows")])
def test_a_product_that_widens_is_divided_by_channels_and_one_that_narrows_by_positions(
    channels: int, features: int, share: str
) -> None:
    case: Case = ("conv2d", (1, channels, 16, 16), (features, channels, 1, 1), {})
    tile = tile_of(contraction(divided(made(case, AVX512)[0], 2, 0.0)))
    assert tile is not None
    assert tile.divided == share
