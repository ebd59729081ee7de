"""Products of bytes in the registers of a microcontroller: in plain C here, the instructions in ``cortex_m``."""

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.flags import LEVEL, UNDEFINED
from tests.synth.in_c import Prepared, compiled

from openinfer.dtypes import DTYPES, DType
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Contraction, Kernel, walk
from openinfer.loops.verify import verify
from openinfer.ops import OPS, Call, Case, ReferenceKernel, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.program.packing import Packing
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.cpu import schedule
from openinfer.synth.targets.cpu.emit.word_tiles import PairTile
from openinfer.synth.targets.cpu.machine import CORTEX_M
from openinfer.synth.targets.cpu.schedule import scheduled
from openinfer.synth.targets.cpu.tile import CpuTile, tile_of
from openinfer.synth.targets.cpu.word_taps import WordTaps

I8, U8, I32, F32 = (DTYPES[name] for name in ("i8", "u8", "i32", "f32"))
GUARD = 64


@pytest.fixture(autouse=True)
def _everything_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases are small: without this they would be plain loops."""
    monkeypatch.setattr(schedule, "_LEAST", 0)


def call_for(name: str, *shapes: tuple[int, ...], dtype: DType = I8, **params: Any) -> Call:
    types = tuple(TensorType(dtype, shape) for shape in shapes)
    return infer(OPS[name], Call(types, complete(OPS[name], {"acc": (I32,), **params})))


def kernel_for(name: str, *shapes: tuple[int, ...], dtype: DType = I8, **params: Any) -> Kernel:
    return kernel_of(OPS[name], call_for(name, *shapes, dtype=dtype, **params), [dtype] * len(shapes))


def tile_in(kernel: Kernel) -> CpuTile | None:
    (one,) = (part for part in walk(kernel.body) if isinstance(part, Contraction))
    return tile_of(one)


def run(kernel: Kernel, arrays: list[Any], folder: Path, *sizes: int) -> Any:
    """The result of a kernel, with guards behind every memory; dynamic sizes come last."""
    assert verify(kernel) == []
    code = printed(kernel, "case0", isa="cortex-m4")
    prepared = Prepared(OPS["linear"], Case((), ()), Call(()), code, (), (), ())
    function = compiled([prepared], folder, (LEVEL, *UNDEFINED)).case0
    (out,) = kernel.outputs
    memory = [np.full(int(np.prod(one.shape)) + GUARD, 77, one.dtype.array) for one in (out, *kernel.scratch)]
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in (*arrays, *memory)]
    function(*pointers, *(ctypes.c_int64(size) for size in sizes))
    assert all((one[-GUARD:] == 77).all() for one in memory)
    return memory[0][: int(np.prod(out.shape))].reshape(out.shape)


def matrix(rng: np.random.Generator, dtype: DType, *shape: int) -> Any:
    """Bytes of which many are the extremes."""
    low, high = int(dtype.minimum), int(dtype.maximum)
    drawn = rng.integers(low, high, shape, endpoint=True)
    return np.where(rng.random(shape) < 0.3, rng.choice([low, high], shape), drawn).astype(dtype.array)


def packed(kernel: Kernel, w: Any) -> tuple[Kernel, Any]:
    """The kernel with its weight as tiles take it, and the weight in that order."""
    made, packings = scheduled(kernel, CORTEX_M, frozenset({"w"}))
    found: Mapping[str, Packing] = packings
    return made, found["w"].packed(w) if "w" in found else w


@pytest.mark.parametrize("dtype", [I8, U8], ids=str)
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 2, 3), (1, 6, 9), (2, 5, 4), (5, 7, 34)])
def test_rows_of_numbers_meet_panels_of_weights(
    dtype: DType, rows: int, columns: int, depth: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(rows + columns)
    x, w = matrix(rng, dtype, rows, depth), matrix(rng, dtype, columns, depth)
    kernel, stored = packed(kernel_for("linear", x.shape, w.shape, dtype=dtype), w)
    tile = tile_in(kernel)
    assert tile is not None
    assert tile.widened == "rows"
    assert np.array_equal(run(kernel, [x, stored], tmp_path), x.astype(np.int64) @ w.T.astype(np.int64))


WINDOWS: dict[str, dict[str, Any]] = {
    "plain": {},
    "padded": {"pads": 1},
    "strides": {"pads": 2, "strides": 2},
    "groups": {"groups": 2, "pads": 1},
    "each channel alone": {"groups": 4, "pads": 1},
    "channels last": {"layout": "NHWC", "pads": 1},
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("dtype", [I8, U8], ids=str)
def test_windows_meet_rows_of_weights(name: str, dtype: DType, tmp_path: Path) -> None:
    """An odd number of positions and of features; what lies outside counts as 0."""
    params = WINDOWS[name]
    rng = np.random.default_rng(2)
    w = matrix(rng, dtype, 8 if "groups" in params else 5, 4 // params.get("groups", 1), 3, 3)
    x = matrix(rng, dtype, *((2, 9, 7, 4) if "layout" in params else (2, 4, 9, 7)))
    kernel, stored = packed(kernel_for("conv2d", x.shape, w.shape, dtype=dtype, **params), w)
    assert tile_in(kernel) is not None
    call = call_for("conv2d", x.shape, w.shape, dtype=dtype, **params)
    (right,) = ReferenceKernel(OPS["conv2d"], call, [dtype, dtype])((x, w))
    assert np.array_equal(run(kernel, [x, stored], tmp_path), right)


@pytest.mark.parametrize("dtype", [I8, U8], ids=str)
@pytest.mark.parametrize(("width", "high"), [(7, 3), (8, 3), (3, 3), (9, 1), (6, 4)])
def test_windows_of_three_on_each_channel(dtype: DType, width: int, high: int, tmp_path: Path) -> None:
    """Two neighbours at a time, and the last alone where their number is odd."""
    rng = np.random.default_rng(width)
    x, w = matrix(rng, dtype, 2, 5, 6, width), matrix(rng, dtype, 5, 1, high, 3)
    kernel, stored = packed(kernel_for("conv2d", x.shape, w.shape, dtype=dtype, groups=5), w)
    (one,) = (part for part in walk(kernel.body) if isinstance(part, Contraction))
    assert isinstance(one.template, WordTaps) == (width > 3)
    call = call_for("conv2d", x.shape, w.shape, dtype=dtype, groups=5)
    (right,) = ReferenceKernel(OPS["conv2d"], call, [dtype, dtype])((x, w))
    assert np.array_equal(run(kernel, [x, stored], tmp_path), right)


def test_sums_wrap(tmp_path: Path) -> None:
    x, w = np.full((1, 40_000), 255, np.uint8), np.full((3, 40_000), 255, np.uint8)
    w[1] = 0
    kernel, stored = packed(kernel_for("linear", x.shape, w.shape, dtype=U8), w)
    right = (x.astype(np.int64) @ w.T.astype(np.int64)).astype(np.int32)
    assert (right < 0).any()
    assert np.array_equal(run(kernel, [x, stored], tmp_path), right)


def test_rows_that_are_known_when_the_code_runs(tmp_path: Path) -> None:
    rows = Dim(6, Ref("T"))
    rng = np.random.default_rng(4)
    x, w = matrix(rng, I8, 6, 33), matrix(rng, I8, 5, 33)
    kernel, stored = packed(kernel_for("linear", (rows, 33), (5, 33)), w)
    for height in (0, 1, 5, 6):
        found = run(kernel, [x[:height].copy(), stored], tmp_path, height)[:height]
        assert np.array_equal(found, x[:height].astype(np.int64) @ w.T.astype(np.int64))


# --- rounding ---------------------------------------------------------------------------------------------------------

_EDGES = (0.5, 1.5, -0.5, -2.5, 126.5, 127.5, -128.5, 255.5, 2.0**19, 2.0**20, 2.0**20 + 1, 3e9, 1e30, np.inf, np.nan)


@pytest.mark.parametrize("to", ["i8", "u8", "i16"])
@pytest.mark.parametrize("point", [-128, 0, 127])
def test_quantization_rounds_and_limits_at_once(to: str, point: int, tmp_path: Path) -> None:
    """One operation, with the same results as the definition, infinities and NaN included."""
    values = np.array([*_EDGES, *(-one for one in _EDGES)], np.float32)
    scale, own = np.array(1.0, np.float32), DTYPES[to]
    arrays: list[Any] = [values, scale, np.array(max(point, int(own.minimum)), own.array)]
    types = tuple(TensorType(dtype, one.shape) for dtype, one in zip((F32, F32, own), arrays, strict=True))
    call = infer(OPS["quantize"], Call(types, complete(OPS["quantize"], {"to": own})))
    kernel = kernel_of(OPS["quantize"], call, [one.dtype for one in types])
    made, _ = scheduled(kernel, CORTEX_M, frozenset())
    assert "oi_whole_f32" in printed(made, "quantize", isa="cortex-m4").text
    (right,) = ReferenceKernel(OPS["quantize"], call, [one.dtype for one in types])(tuple(arrays))
    found = run(made, arrays, tmp_path)
    assert np.array_equal(found, right)
    outcome = interpret(made, arrays)
    assert np.array_equal(outcome[0], right)


@pytest.mark.parametrize(("wide", "loops"), [(1, False), (2, True)])
def test_one_column_needs_no_loop_over_columns(wide: int, *, loops: bool) -> None:
    assert ("for (int n = 0;" in PairTile("i8", 4, wide, (1, 4)).text) is loops
