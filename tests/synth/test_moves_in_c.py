"""Moves, indices and transforms in generated C, beyond the generated cases of their records."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import Question, compare
from tests.synth.in_c import Prepared, answer, compiled, executed, loaded, prepared, stored_bytes

from openinfer.dtypes import DTYPES
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim, at
from openinfer.loops.ir import Buffer
from openinfer.ops import OPS, Array, Call, Case, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.c.kernels import printed

F32, F64, I64, U64 = (DTYPES[name] for name in ("f32", "f64", "i64", "u64"))
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def numbers(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


# --- indices out of range ---------------------------------------------------------------------------------------------

Bad = tuple[str, tuple[Array, ...], dict[str, Any]]
SINGLE = np.zeros(1, np.float32)
BAD: list[Bad] = [
    ("gather", (X, np.array([0, 3])), {}),
    ("gather", (X, np.array([-5])), {"axis": 1}),
    ("gather", (X, np.array([2**63 + 1], np.uint64)), {}),
    ("gather", (np.zeros((9, 0), np.float32), np.array([9], np.uint8)), {}),
    ("embedding", (X, np.array([[2], [-4]], np.int8)), {}),
    ("take_along", (X, np.array([[4], [0], [0]])), {"axis": 1}),
    ("gather_nd", (X, np.array([[2, 4]])), {}),
    ("gather_nd", (np.zeros((2, 3, 0), np.float32), np.array([[0, 0], [0, -4]])), {}),
    ("scatter", (SINGLE, np.array([-2], np.int16), SINGLE), {"axis": 0}),
    ("scatter", (SINGLE, np.array([2**64 - 1], np.uint64), SINGLE), {"axis": 0, "reduce": "add"}),
    ("scatter_nd", (X, np.array([[3, 0]], np.uint32), SINGLE), {}),
    ("scatter_nd", (np.zeros((2, 0), np.float32), np.array([[2]]), np.zeros((1, 0), np.float32)), {}),
]


def test_an_index_out_of_range_is_a_failure_and_touches_nothing(tmp_path: Path) -> None:
    cases = []
    for number, (name, arrays, params) in enumerate(BAD):
        kinds = tuple(DTYPES[array.dtype.kind + str(array.itemsize * 8)] for array in arrays)
        cases.append(prepared(OPS[name], Case(arrays, kinds, params), number))
    library = compiled(cases, tmp_path)
    for number, one in enumerate(cases):
        assert executed(one, library, number)[1] != 0, BAD[number]


# --- transforms of any length -----------------------------------------------------------------------------------------


def _transforms(count: int) -> list[tuple[str, Case]]:
    pairs, reals = numbers((2, count, 2)), numbers((2, count))
    wide = pairs.astype(np.float64) / 3
    return [
        ("fft", Case((pairs,), (F32,))),
        ("ifft", Case((wide,), (F64,))),
        ("rfft", Case((reals.astype(np.float64),), (F64,))),
        ("irfft", Case((pairs,), (F32,), {"n": 2 * count - 1})),
    ]


def test_transforms_have_any_number_of_points(tmp_path: Path) -> None:
    lengths = (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15, 26, 49, 60, 64, 97, 121, 128, 400, 509, 1024)
    chosen = [pair for count in lengths for pair in _transforms(count)]
    check([prepared(OPS[name], case, number) for number, (name, case) in enumerate(chosen)], tmp_path)


def test_transforms_of_the_largest_numbers_do_not_overflow_on_the_way(tmp_path: Path) -> None:
    pairs = np.full((3, 16, 2), 1.7e308)
    pairs[1, ::2] *= -1
    pairs[2] /= 3e307
    cases = [Case((pairs,), (F64,)), Case((np.full((16, 2), 3e38, np.float32),), (F32,))]
    check(
        [
            prepared(OPS[name], case, 2 * at + number)
            for at, case in enumerate(cases)
            for number, name in enumerate(("fft", "ifft"))
        ],
        tmp_path,
    )


def check(cases: list[Prepared], folder: Path) -> None:
    library = compiled(cases, folder)
    for number, one in enumerate(cases):
        results, status = executed(one, library, number)
        assert status == 0
        with np.errstate(all="ignore"):
            wanted = answer(one)
            question = Question(one.record, one.case.arrays, one.case.dtypes, one.call.params, one.call.outputs)
            compare(question, results, wanted)


# --- dynamic sizes ----------------------------------------------------------------------------------------------------

T, N = (Dim(bound, Ref(name)) for name, bound in (("T", 11), ("N", 6)))
Shape = tuple[int, ...]
DYNAMIC: list[tuple[str, list[Shape], dict[str, Any]]] = [
    ("reshape", [(T, 12)], {"shape": (T, 3, 4)}),
    ("reshape", [(T, 3, 4)], {"shape": (-1, 6)}),
    ("reshape", [(T, N)], {"shape": (N, T)}),
    ("flatten", [(2, T, N)], {"axis": 1}),
    ("unsqueeze", [(T, N)], {"axes": (0, 2)}),
    ("transpose", [(T, 3, N)], {}),
    ("flip", [(T, 3)], {}),
    ("roll", [(T, 3)], {"shifts": 4, "axes": 0}),
    ("roll", [(T, 3)], {"shifts": -7, "axes": 0}),
    ("concat", [(T, 3), (2, 3), (N, 3)], {"axis": 0}),
    ("stack", [(T, 3), (T, 3)], {"axis": 1}),
    ("expand", [(T, 1)], {"shape": (2, T, 4)}),
    ("tile", [(T, 3)], {"repeats": (2, 2)}),
    ("pad", [(T, 3)], {"pads": (2, 1, 3, 0)}),
    ("pad", [(T, 3)], {"pads": (9, 0, 12, 0), "mode": "reflect"}),
    ("pad", [(T, 3)], {"pads": (9, 0, 12, 0), "mode": "wrap"}),
    ("pad", [(T, 3)], {"pads": (1, 0, 1, 0), "mode": "edge"}),
    ("slice", [(16, 3)], {"starts": (0,), "ends": (T,)}),
    ("slice", [(3, 20)], {"starts": (T,), "ends": (T + N,), "axes": (1,)}),
    ("rfft", [(2, T)], {}),
    ("fft", [(2, T, 2)], {}),
    ("ifft", [(T, 2)], {"n": 12}),
    ("stft", [(2, T), (4,)], {"frame": 4, "hop": 2}),
    ("stft", [(N, 2 * T), (7,)], {"frame": 7, "hop": 3}),
    ("fir", [(2, T), (N,)], {}),
    ("mel_filterbank", [(3, T)], {"bins": 4, "rate": 8000}),
]


@pytest.mark.parametrize("case", range(len(DYNAMIC)))
def test_sizes_may_be_known_only_when_the_code_runs(case: int, tmp_path: Path) -> None:
    name, shapes, params = DYNAMIC[case]
    record = OPS[name]
    call = infer(record, Call(tuple(TensorType(F32, shape) for shape in shapes), complete(record, params)))
    kernel = kernel_of(record, call, (F32,) * len(shapes))
    code = printed(kernel, "case0")
    one = Prepared(record, Case((), ()), call, code, kernel.inputs, kernel.outputs, kernel.scratch)
    library = compiled([one], tmp_path)
    for sizes in ({"T": 11, "N": 6}, {"T": 4, "N": 3}, {"T": 7, "N": 1}, {"T": 1, "N": 6}, {"T": 3, "N": 2}):
        _run_at(one, library, shapes, params, sizes)


def _run_at(
    one: Prepared, library: ctypes.CDLL, shapes: list[Shape], params: dict[str, Any], sizes: dict[str, int]
) -> None:
    def known(numbers: Any) -> Any:
        return tuple(at(number, sizes) for number in numbers)

    arrays = tuple(numbers(known(shape)) for shape in shapes)
    own = {name: known(value) if isinstance(value, tuple) else value for name, value in params.items()}
    there = prepared(one.record, Case(arrays, (F32,) * len(arrays), own), 0)
    outputs = [np.full(kind.nbytes, 0xA5, np.uint8) for kind in there.call.outputs]
    scratch = [np.zeros(_bytes(buffer), np.uint8) for buffer in one.scratch]
    data = [stored_bytes(array, F32) for array in arrays]
    pointers = [ctypes.c_void_p(item.ctypes.data) for item in (*data, *outputs, *scratch)]
    library.case0(*pointers, *(ctypes.c_int64(sizes[size]) for size in one.code.sizes))
    results = tuple(loaded(item, kind) for item, kind in zip(outputs, there.call.outputs, strict=True))
    question = Question(there.record, arrays, (F32,) * len(arrays), there.call.params, there.call.outputs)
    compare(question, results, answer(there))


def _bytes(buffer: Buffer) -> int:
    return buffer.dtype.nbytes(int(np.prod([int(extent) for extent in buffer.shape])))
