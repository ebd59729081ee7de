"""Contractions in tiles: every op that is one, on every set of vectors this machine has, at sizes around the tiles'."""

import ctypes
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.everything import some
from tests.synth.flags import UNDEFINED
from tests.synth.in_c import Prepared, check_op, compiled
from tests.synth.scheduled_in_c import F32, kernel_for, run

from openinfer.ir.expr import Ref
from openinfer.loops.build import cast, const, load, pair, rounded
from openinfer.loops.dim import Dim
from openinfer.loops.ir import Buffer, Contraction, walk
from openinfer.ops import OPS, Call, Case
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.cpu import schedule
from openinfer.synth.targets.cpu.machine import AVX2, AVX512, GENERIC, NEON, CpuMachine, runnable
from openinfer.synth.targets.cpu.packing import in_panels
from openinfer.synth.targets.cpu.schedule import scheduled
from openinfer.synth.targets.cpu.tile import tile_of
from openinfer.synth.targets.cpu.tile_shapes import tile_shapes

OPS_THAT_CONTRACT = [
    "matmul",
    "linear",
    "einsum",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
]
TARGETS = pytest.mark.parametrize("target", runnable(), ids=lambda target: target.isa)


@pytest.fixture(autouse=True)
def _everything_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generated cases are small: without this they would be plain loops."""
    monkeypatch.setattr(schedule, "_LEAST", 0)


@pytest.mark.parametrize(("name", "target"), some(product(OPS_THAT_CONTRACT, runnable()), 2))
def test_tiles_agree_with_the_simulator(name: str, target: CpuMachine, tmp_path: Path) -> None:
    """``test_ops_in_c`` has other cases, on the plainest device and on this machine's own."""
    options = ("-O0", *target.flags)
    assert check_op(name, tmp_path, 2, options, schedule=lambda one: scheduled(one, target, frozenset())[0]) > 0


# --- sizes around those of the tiles ----------------------------------------------------------------------------------


def near(found: Any, left: Any, right: Any, extra: Any = 0.0) -> None:
    """Within the bound of a sum of products, whatever its order."""
    wide = left.astype(np.float64) @ right.astype(np.float64) + extra
    bound = np.abs(left).astype(np.float64) @ np.abs(right).astype(np.float64) + np.abs(extra)
    assert (np.abs(found - wide) <= (left.shape[-1] + 2) * 2.0**-24 * bound).all()


@TARGETS
def test_every_size_around_a_tile(target: CpuMachine, tmp_path: Path) -> None:
    lanes = target.lanes(32)
    rows, vectors = tile_shapes(1024, 1024, lanes, target)[0]
    rng = np.random.default_rng(0)
    heights = [1, rows - 1, rows, rows + 1, 40]
    widths = [
        1,
        lanes - 1,
        lanes,
        lanes + 1,
        vectors * lanes - 1,
        vectors * lanes,
        vectors * lanes + 1,
        2 * vectors * lanes,
    ]
    chosen, factors = [], []
    for place, (m, n) in enumerate(product(heights, widths)):
        # An odd number of heights: each of them has both depths, and so has each width.
        k = (1, 34)[(place + place // len(widths)) % 2]
        a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
        kernel, _ = scheduled(kernel_for("matmul", (m, k), (k, n)), target, frozenset())
        chosen.append((kernel, [a, b], (m, n)))
        factors.append((a, b))
    for found, (a, b) in zip(run(chosen, tmp_path, target), factors, strict=True):
        near(found, a, b)


@TARGETS
def test_weights_in_panels(target: CpuMachine, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    chosen, wanted = [], []
    for m, n, k in product((1, 16, 37), (10, 31, 64, 129), (1, 33)):
        x, w = rng.normal(size=(2, m, k)).astype(np.float32), rng.normal(size=(n, k)).astype(np.float32)
        bias = rng.normal(size=n).astype(np.float32)
        kernel, packings = scheduled(
            kernel_for("linear", x.shape, w.shape, bias.shape), target, frozenset({"w", "bias"})
        )
        packed = packings["w"].packed(w) if "w" in packings else w
        assert packed.shape == kernel.inputs[1].shape
        chosen.append((kernel, [x, packed, bias], (2, m, n)))
        wanted.append((x, w.T, bias.astype(np.float64)))
    assert (
        sum(
            any((tile := tile_of(c)) and tile.has_panels for c in walk(one[0].body) if isinstance(c, Contraction))
            for one in chosen
        )
        >= 18
    )
    for found, parts in zip(run(chosen, tmp_path, target), wanted, strict=True):
        near(found, *parts)


@TARGETS
def test_rows_that_would_share_a_cache_set_are_copied_apart(target: CpuMachine, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(45, 1024)).astype(np.float32), rng.normal(size=(300, 1024)).astype(np.float32)
    kernel, packings = scheduled(kernel_for("linear", x.shape, w.shape), target, frozenset({"w"}))
    (memory,) = kernel.scratch
    assert memory.shape[1] > 1024
    (found,) = run([(kernel, [x, packings["w"].packed(w)], (45, 300))], tmp_path, target)
    near(found, x, w.T)


@TARGETS
def test_no_columns_rows_or_products(target: CpuMachine, tmp_path: Path) -> None:
    shapes = [(0, 5, 7), (4, 0, 7), (4, 5, 0)]
    kernels = [scheduled(kernel_for("matmul", (m, k), (k, n)), target, frozenset())[0] for m, k, n in shapes]
    arrays = [[np.ones((m, k), np.float32), np.ones((k, n), np.float32)] for m, k, n in shapes]
    chosen = [(kernel, own, (m, n)) for kernel, own, (m, k, n) in zip(kernels, arrays, shapes, strict=True)]
    found = run(chosen, tmp_path, target)
    assert [one.shape for one in found] == [(0, 7), (4, 7), (4, 0)]
    assert (found[1] == 0).all()


@TARGETS
def test_rows_that_are_known_when_the_code_runs(target: CpuMachine, tmp_path: Path) -> None:
    rows = Dim(40, Ref("T"))
    kernel, packings = scheduled(kernel_for("linear", (rows, 33), (50, 33)), target, frozenset({"w"}))
    rng = np.random.default_rng(3)
    w = rng.normal(size=(50, 33)).astype(np.float32)
    packed = packings["w"].packed(w) if packings else w
    one = Prepared(OPS["linear"], Case((), ()), Call(()), printed(kernel, "case0"), (), (), ())
    library = compiled([one], tmp_path, ("-O2", *UNDEFINED, *target.flags))
    for height in (0, 1, 2, 3, 7, 8, 9, 23, 40):
        x = rng.normal(size=(height, 33)).astype(np.float32)
        y = np.full((height * 50) + 16, 7.5, np.float32)
        scratch = [np.zeros(int(np.prod(buffer.shape)), np.float32) for buffer in kernel.scratch]
        memory = [ctypes.c_void_p(part.ctypes.data) for part in (x, packed, y, *scratch)]
        library.case0(*memory, ctypes.c_int64(height))
        assert (y[height * 50 :] == 7.5).all()
        near(y[: height * 50].reshape(height, 50), x, w.T)


@TARGETS
def test_an_epilogue_is_applied_without_being_contracted(target: CpuMachine, tmp_path: Path) -> None:
    """``sum * 3 + residual`` rounds after the multiplication, as the two ops do."""
    kernel = kernel_for("matmul", (9, 1), (1, 40))
    contraction = kernel.body[-1]
    assert isinstance(contraction, Contraction)
    residual = Buffer("x2", F32, (9, 40))
    value = contraction.epilogue * const(3, F32) + load(residual, *contraction.free)
    value = pair("max", rounded(cast(value, F32), F32), const(0, F32))
    kernel = replace(kernel, body=(replace(contraction, epilogue=value),), inputs=(*kernel.inputs, residual))
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(9, 1)).astype(np.float32), rng.normal(size=(1, 40)).astype(np.float32)
    c = rng.normal(size=(9, 40)).astype(np.float32)
    made, _ = scheduled(kernel, target, frozenset())
    (found,) = run([(made, [a, b, c], (9, 40))], tmp_path, target, "-O2")
    assert np.array_equal(found, np.maximum(a * b * np.float32(3) + c, np.float32(0)))


# --- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [GENERIC, AVX2, AVX512, NEON], ids=lambda target: target.isa)
def test_a_tile_fits_in_the_registers(target: CpuMachine) -> None:
    for rows, columns in product((1, 2, 4, 7, 16, 128, 1000), (1, 10, 49, 384, 4096)):
        height, vectors = tile_shapes(rows, columns, target.lanes(32), target)[0]
        assert height * vectors + vectors < target.vector_registers
        assert height <= max(rows, 1)


def test_large_products_on_avx512_are_8_by_48() -> None:
    assert tile_shapes(128, 1536, 16, AVX512)[0] == (8, 3)


def test_a_packing_is_a_permutation_with_zeros_behind() -> None:
    tensor = np.arange(1, 2 * 3 * 5 + 1)
    packed = in_panels(0, ((2, 15),), ((3, 5),), ((5, 1),), 4).packed(tensor)
    assert packed.shape == (2, 2, 3, 4)
    assert packed[1, 0].tolist() == [[16, 17, 18, 19], [21, 22, 23, 24], [26, 27, 28, 29]]
    assert packed[1, 1].tolist() == [[20, 0, 0, 0], [25, 0, 0, 0], [30, 0, 0, 0]]
