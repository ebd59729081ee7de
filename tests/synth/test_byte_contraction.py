"""Products of bytes in tiles: exact on every set of vectors, wherever the factors come from, at sizes around a tile."""

import ctypes
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.everything import HAS_EVERYTHING
from tests.synth.flags import LEVEL, UNDEFINED
from tests.synth.in_c import Prepared, compiled

from openinfer.dtypes import DTYPES, DType
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Contraction, Kernel
from openinfer.loops.verify import verify
from openinfer.ops import OPS, Call, Case, ReferenceKernel, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.devices.isa import has_dot
from openinfer.synth.program.cost import cost_of
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.cpu import schedule
from openinfer.synth.targets.cpu.divide import divided, scratch_elements
from openinfer.synth.targets.cpu.machine import AVX2, AVX512, GENERIC, CpuMachine, runnable
from openinfer.synth.targets.cpu.packing import in_panels
from openinfer.synth.targets.cpu.schedule import scheduled
from openinfer.synth.targets.cpu.tile import CpuTile, tile_of

I8, U8, I32 = DTYPES["i8"], DTYPES["u8"], DTYPES["i32"]
DOT = replace(AVX512, dot=True)
GUARD = 64


@dataclass(frozen=True)
class Way:
    """What code is written for, and how it is compiled: a compiler may know less than the code was written for."""

    name: str
    target: CpuMachine
    flags: tuple[str, ...]
    cc: str = "gcc"


def _ways() -> list[Way]:
    found = [Way(target.isa, target, target.flags) for target in runnable()]
    # With a cache that has no room for all rows.
    found.append(Way("flipped", replace(GENERIC, dot=True, l2=1 << 10), ()))
    found.append(Way("no vectors of GNU C", DOT, ("-U__GNUC__", "-Wno-error")))
    if AVX512 in runnable():
        found.append(Way("AVX-512 without the instruction", DOT, AVX512.flags))
    if has_dot():
        found.append(Way("narrow dot", replace(DOT, vector_bits=128), DOT.flags))
        found.append(Way("dot", DOT, DOT.flags))
    if shutil.which("clang") is not None:
        found += [Way(f"clang {one.name}", one.target, one.flags, "clang") for one in found[-1:]]
    return found


WAYS = pytest.mark.parametrize("way", _ways(), ids=lambda way: way.name)
TYPES = (I8, U8)
WAYS_AND_TYPES = pytest.mark.parametrize(
    ("way", "dtype"),
    [
        pytest.param(way, dtype, id=f"{way.name}-{dtype}")
        for place, way in enumerate(_ways())
        for dtype in (TYPES if HAS_EVERYTHING else TYPES[place % 2 :][:1])
    ],
)
"""Every way with both types; in the normal run with one of them, in turns."""


@pytest.fixture(autouse=True)
def _everything_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generated cases are small: without this they would be plain loops."""
    monkeypatch.setattr(schedule, "_LEAST", 0)


def kernel_for(name: str, *shapes: tuple[int, ...], dtype: DType = I8, **params: Any) -> Kernel:
    return kernel_of(OPS[name], call_for(name, *shapes, dtype=dtype, **params), [dtype] * len(shapes))


def call_for(name: str, *shapes: tuple[int, ...], dtype: DType = I8, **params: Any) -> Call:
    record = OPS[name]
    types = tuple(TensorType(dtype, shape) for shape in shapes)
    return infer(record, Call(types, complete(record, {"acc": (I32,), **params})))


def tile_in(kernel: Kernel) -> CpuTile:
    statement = kernel.body[-1]
    assert isinstance(statement, Contraction)
    tile = tile_of(statement)
    assert tile is not None
    return tile


Task = tuple[Kernel, Sequence[Any], tuple[int, ...]]


def run(tasks: Sequence[Task], folder: Path, way: Way) -> list[Any]:
    """The i32 results of kernels on arrays, with guards behind every memory."""
    library = library_of([kernel for kernel, _, _ in tasks], folder, way)
    return [result_of(task, getattr(library, f"case{number}")) for number, task in enumerate(tasks)]


def library_of(kernels: Sequence[Kernel], folder: Path, way: Way) -> ctypes.CDLL:
    dummy = Prepared(OPS["linear"], Case((), ()), Call(()), printed(kernels[0], "none"), (), (), ())
    prepared = [replace(dummy, code=printed(kernel, f"case{number}")) for number, kernel in enumerate(kernels)]
    return compiled(prepared, folder, (LEVEL, *UNDEFINED, *way.flags), way.cc)


def result_of(task: Task, function: Any, *sizes: int) -> Any:
    kernel, arrays, shape = task
    assert verify(kernel) == []
    count = int(np.prod(shape))
    result = np.full(count + GUARD, 77, np.int32)
    scratch = [np.full(one.dtype.nbytes(int(np.prod(one.shape))) + GUARD, 0x5A, np.uint8) for one in kernel.scratch]
    memory = [*(np.array(array, order="C") for array in arrays), result, *scratch]
    function(*(ctypes.c_void_p(one.ctypes.data) for one in memory), *(ctypes.c_int64(size) for size in sizes))
    assert (result[count:] == 77).all()
    assert all((one[-GUARD:] == 0x5A).all() for one in scratch)
    return result[:count].reshape(shape)


def wrapped(values: Any) -> Any:
    return values.astype(np.int64).astype(np.int32)


def matrix(rng: np.random.Generator, dtype: DType, *shape: int) -> Any:
    """Bytes of which many are the extremes."""
    low, high = int(dtype.minimum), int(dtype.maximum)
    drawn = rng.integers(low, high, shape, endpoint=True)
    return np.where(rng.random(shape) < 0.3, rng.choice([low, high], shape), drawn).astype(dtype.array)


def in_turns(extents: Sequence[Sequence[int]], dtype: DType) -> Iterator[tuple[tuple[int, ...], bool]]:
    """All sizes, each with one answer to a question, and with the other for the other dtype: compilers take long."""
    for places in product(*(range(len(some)) for some in extents)):
        sizes = tuple(some[place] for some, place in zip(extents, places, strict=True))
        yield sizes, (sum(places) + (dtype is U8)) % 2 == 1


@WAYS_AND_TYPES
def test_every_size_around_a_tile(way: Way, dtype: DType, tmp_path: Path) -> None:
    lanes = way.target.lanes(32)
    rng = np.random.default_rng(0)
    tasks: list[Task] = []
    wanted = []
    for (m, n, k), turned in in_turns(((1, 13), (2, lanes + 1, 7 * lanes), (3, 34)), dtype):
        a, b = matrix(rng, dtype, m, k), matrix(rng, dtype, k, n)
        shapes = (m, k), (n, k) if turned else (k, n)
        kernel = kernel_for("matmul", *shapes, dtype=dtype, transpose_b=turned)
        kernel, _ = scheduled(kernel, way.target, frozenset())
        assert tile_in(kernel).is_flipped is way.target.dot
        tasks.append((kernel, [a, b.T if turned else b], (m, n)))
        wanted.append(wrapped(a.astype(np.int64) @ b.astype(np.int64)))
    for found, right in zip(run(tasks, tmp_path, way), wanted, strict=True):
        assert np.array_equal(found, right)


@WAYS_AND_TYPES
def test_weights_in_groups(way: Way, dtype: DType, tmp_path: Path) -> None:
    """Panels of columns, and rows that are packed because the columns are places of a convolution."""
    rng = np.random.default_rng(1)
    tasks: list[Task] = []
    wanted = []
    for (m, n, k), is_convolution in in_turns(((1, 37), (10, 129), (33, 64)), dtype):
        if is_convolution:
            continue
        x, w = matrix(rng, dtype, 2, m, k), matrix(rng, dtype, n, k)
        kernel, packings = scheduled(kernel_for("linear", x.shape, w.shape, dtype=dtype), way.target, frozenset({"w"}))
        assert tile_in(kernel).has_panels
        tasks.append((kernel, [x, packings["w"].packed(w)], (2, m, n)))
        wanted.append(wrapped(x.astype(np.int64) @ w.T.astype(np.int64)))
    for (features, places, channels), is_convolution in in_turns(((1, 24), (3, 65), (1, 9)), dtype):
        if not is_convolution:
            continue
        x, w = matrix(rng, dtype, 2, channels, places), matrix(rng, dtype, features, channels, 1)
        kernel, packings = scheduled(kernel_for("conv1d", x.shape, w.shape, dtype=dtype), way.target, frozenset({"w"}))
        assert tile_in(kernel).left is None
        tasks.append((kernel, [x, packings["w"].packed(w)], (2, features, places)))
        wanted.append(wrapped(w[:, :, 0].astype(np.int64) @ x.astype(np.int64)))
    for found, right in zip(run(tasks, tmp_path, way), wanted, strict=True):
        assert np.array_equal(found, right)


WINDOWS: dict[str, dict[str, Any]] = {
    "padded": {"pads": 1},
    "strides": {"pads": 2, "strides": 2},
    "groups": {"groups": 2, "pads": 1},
    "channels last": {"layout": "NHWC", "pads": 1},
}


@WAYS
def test_windows_that_leave_the_input(way: Way, tmp_path: Path) -> None:
    """What lies outside counts as 0, also where bytes are flipped."""
    tasks: list[Task] = []
    wanted = []
    for name, params in WINDOWS.items():
        rng = np.random.default_rng(2)
        w = matrix(rng, I8, 6, 4 // params.get("groups", 1), 3, 3)
        x = matrix(rng, I8, *((2, 9, 7, 4) if "layout" in params else (2, 4, 9, 7)))
        kernel = kernel_for("conv2d", x.shape, w.shape, **params)
        (out,) = kernel.outputs
        packed, packings = scheduled(kernel, way.target, frozenset({"w"}))
        copied, _ = scheduled(kernel, way.target, frozenset())
        tasks += [(packed, [x, packings["w"].packed(w)], out.shape), (copied, [x, w], out.shape)]
        call = call_for("conv2d", x.shape, w.shape, **params)
        wanted += [(name, ReferenceKernel(OPS["conv2d"], call, [I8, I8])((x, w))[0])] * 2
    for found, (name, right) in zip(run(tasks, tmp_path, way), wanted, strict=True):
        assert np.array_equal(found, right), name


@WAYS
def test_sums_wrap(way: Way, tmp_path: Path) -> None:
    """More than 2^31: each of the sums, what is flipped, or both."""
    x, w = np.full((3, 40_000), 255, np.uint8), np.full((20, 40_000), 255, np.uint8)
    x[1] = w[3] = 0
    kernel, packings = scheduled(kernel_for("linear", x.shape, w.shape, dtype=U8), way.target, frozenset({"w"}))
    (found,) = run([(kernel, [x, packings["w"].packed(w)], (3, 20))], tmp_path, way)
    right = wrapped(x.astype(np.int64) @ w.T.astype(np.int64))
    assert (right < 0).any()
    assert np.array_equal(found, right)


@WAYS
def test_factors_of_different_signs_are_not_flipped(way: Way, tmp_path: Path) -> None:
    kernel = kernel_for("matmul", (9, 21), (21, 40))
    one = kernel.body[-1]
    assert isinstance(one, Contraction)
    rng = np.random.default_rng(3)
    tasks: list[Task] = []
    for left, right in ((I8, U8), (U8, I8)):
        a, b = replace(one.a, dtype=left), replace(one.b, dtype=right)
        mixed = replace(kernel, inputs=(a, b), body=(replace(one, a=a, b=b),))
        made, _ = scheduled(mixed, way.target, frozenset())
        assert not tile_in(made).is_flipped
        tasks.append((made, (matrix(rng, left, 9, 21), matrix(rng, right, 21, 40)), (9, 40)))
    for found, (_, (x, y), _) in zip(run(tasks, tmp_path, way), tasks, strict=True):
        assert np.array_equal(found, wrapped(x.astype(np.int64) @ y.astype(np.int64)))


@WAYS
def test_rows_that_are_known_when_the_code_runs(way: Way, tmp_path: Path) -> None:
    rows = Dim(40, Ref("T"))
    kernel, packings = scheduled(kernel_for("linear", (rows, 33), (50, 33)), way.target, frozenset({"w"}))
    rng = np.random.default_rng(4)
    x, w = matrix(rng, I8, 40, 33), matrix(rng, I8, 50, 33)
    function = library_of([kernel], tmp_path, way).case0
    for height in (0, 1, 7, 8, 23, 40):
        task = (kernel, [x[:height], packings["w"].packed(w)], (height, 50))
        assert np.array_equal(
            result_of(task, function, height), wrapped(x[:height].astype(np.int64) @ w.T.astype(np.int64))
        )


@pytest.mark.parametrize("target", [GENERIC, AVX2, DOT], ids=lambda target: target.isa)
def test_large_products_are_divided(target: CpuMachine) -> None:
    """Each part has memory of its own for what all of them copy."""
    kernel = kernel_for("matmul", (40, 30), (30, 200))
    whole = scheduled(kernel, target, frozenset())[0]
    made = divided(whole, 3, 0.0)
    assert made is not whole
    assert divided(whole, 3, 2 * 40 * 30 * 200 / 150) is whole, "four products take the time of one"
    assert tile_in(made).divided is not None
    assert all(scratch_elements(one.dtype.bits, one.shape) % 64 == 0 for one in made.scratch)


@pytest.mark.parametrize("target", [GENERIC, DOT], ids=["as it is", "flipped"])
def test_a_packed_factor_means_what_it_meant(target: CpuMachine) -> None:
    """The loops of a kernel say what its tiles compute: packed and flipped weights are themselves again."""
    rng = np.random.default_rng(5)
    for name, x, w in (("linear", (3, 6), (5, 6)), ("conv1d", (1, 3, 4), (2, 3, 2))):
        kernel = kernel_for(name, x, w)
        arrays = matrix(rng, I8, *x), matrix(rng, I8, *w)
        made, packings = scheduled(kernel, target, frozenset({"w"}))
        found = interpret(made, [arrays[0], packings["w"].packed(arrays[1])])
        assert np.array_equal(found[0], interpret(kernel, arrays)[0])
        assert cost_of(made).operations == cost_of(kernel).operations


def test_what_is_not_of_bytes_stays_in_loops() -> None:
    """Sums in other types wrap elsewhere."""
    for dtype, acc in (("i8", "i8"), ("i16", "i32"), ("i8", "i64"), ("i32", "i32")):
        kernel = kernel_for("matmul", (9, 40), (40, 40), dtype=DTYPES[dtype], acc=(DTYPES[acc],))
        one = scheduled(kernel, DOT, frozenset())[0].body[-1]
        assert isinstance(one, Contraction)
        assert one.template is None


def test_a_packing_in_groups() -> None:
    tensor = np.arange(1, 11, dtype=np.int8)
    packed = in_panels(0, (), ((5, 1),), ((2, 5),), 3, group=4).packed(tensor)
    assert packed.shape == (1, 2, 12)
    assert packed[0].tolist() == [[1, 2, 3, 4, 6, 7, 8, 9, 0, 0, 0, 0], [5, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0]]


def test_a_flipped_packing_has_zeros_behind() -> None:
    packing = replace(in_panels(0, ((2, 3),), (), ((3, 1),), 4), flip=True)
    packed = packing.packed(np.array([-128, 0, 127, -1, 1, 5], np.int8))
    assert packed.view(np.uint8).reshape(2, 4).tolist() == [[0, 128, 255, 0], [127, 129, 133, 0]]
