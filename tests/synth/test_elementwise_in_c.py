"""What the generated cases of elementwise ops leave out: failures, reduced tests, ties, tails, stored quantization."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import Question, compare
from tests.synth.in_c import Prepared, _wide, compiled, executed

from openinfer.dtypes import DTYPES, DType, dtype_of
from openinfer.loops.ir import Const
from openinfer.oinf.quant import QuantParams, QuantScale, QuantZeroPoint
from openinfer.ops import OPS, Array, Call, Case, OpError, ReferenceKernel, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.c.dialect import C
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter


def prepared(
    name: str,
    arrays: Sequence[Any],
    dtypes: Sequence[str],
    number: int,
    wanted: tuple[TensorType, ...] = (),
    quant: QuantParams | None = None,
    **params: Any,
) -> Prepared:
    record = OPS[name]
    kinds: tuple[DType, ...] = tuple(map(dtype_of, dtypes))
    stored = tuple(np.asarray(array).astype(kind.array) for array, kind in zip(arrays, kinds, strict=True))
    types: list[TensorType | None] = [
        TensorType(kind, array.shape, quant) for array, kind in zip(stored, kinds, strict=True)
    ]
    places: list[Any] = [*stored, *[None] * (len(record.signature.inputs) - len(stored))]
    types += [None] * (len(places) - len(types))
    slots = (*kinds, *[None] * (len(places) - len(kinds)))
    call = infer(record, Call(tuple(types), complete(record, params), wanted))
    kernel = kernel_of(record, call, slots)
    code = printed(kernel, f"case{number}")
    return Prepared(
        record, Case(tuple(places), slots, params), call, code, kernel.inputs, kernel.outputs, kernel.scratch
    )


def reference(one: Prepared) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        return ReferenceKernel(one.record, one.call, one.case.dtypes)(one.case.arrays)


def check(cases: Sequence[Prepared], folder: Path) -> None:
    """Generated C against the reference: results, or the failure of both."""
    library = compiled(cases, folder)
    for number, one in enumerate(cases):
        results, status = executed(one, library, number)
        try:
            wanted = reference(one)
        except OpError:
            assert status != 0, one.case
            continue
        assert status == 0, one.case
        question = Question(one.record, one.case.arrays, one.case.dtypes, one.call.params, one.call.outputs)
        with np.errstate(all="ignore"):
            pairs = zip(wanted, one.call.outputs, strict=True)
            compare(question, results, tuple(_wide(value, kind) for value, kind in pairs))


SIGNED = ("i4", "i8", "i32", "i64")


def test_values_without_a_result_are_failures(tmp_path: Path) -> None:
    cases: list[Prepared] = []
    for kind in SIGNED:
        for name in ("div", "floor_div", "rem", "mod"):
            cases.append(prepared(name, ([7, 1], [2, 0]), (kind, kind), len(cases)))
        for name in ("pow", "shl", "shr"):
            cases.append(prepared(name, ([3, 2], [1, -1]), (kind, kind), len(cases)))
    cases.append(prepared("div", ([7, 1], [2, 0]), ("u16", "u16"), len(cases)))
    cases.append(prepared("bitcast", ([0, 1, 2],), ("u8",), len(cases), to=dtype_of("bool")))
    cases.append(prepared("bitcast", ([0, 2],), ("u2",), len(cases), to=dtype_of("t2")))
    for one in cases:
        with pytest.raises(OpError):
            reference(one)
    check(cases, tmp_path)


def test_tests_reduce_to_one_answer_where_a_scalar_is_declared(tmp_path: Path) -> None:
    one = (TensorType(dtype_of("bool"), ()),)
    values = ([[1.0, 2.0], [3.0, 0.0]], [[1.0, np.nan], [2, 3]], [[np.inf, 1], [1, 1]], [[-1.0, 2], [3, 4]])
    cases: list[Prepared] = []
    for name in ("is_finite", "is_nan", "is_inf", "is_neg"):
        for value in (*values, np.zeros((0, 3))):
            cases.append(prepared(name, (value,), ("f16",), len(cases), one))
    check(cases, tmp_path)


def test_casts_round_once(tmp_path: Path) -> None:
    """Numbers next to ties of the narrow type, closer to them than the type in between can tell."""
    cases: list[Prepared] = []
    for to, bits in (("f8", 2), ("f16", 10), ("bf16", 7)):
        base = np.array([1 + 2.0**-bits * k for k in range(4)]) + 2.0 ** -(bits + 1)
        near = np.concatenate([base, np.nextafter(base, 2), np.nextafter(base, 0)])
        spread = np.concatenate([near * 2.0**k for k in (-24, -16, -14, 0, 10)])
        cases.append(prepared("cast", (np.concatenate([spread, -spread]),), ("f64",), len(cases), to=dtype_of(to)))
    for kind in ("i32", "i64", "u32", "u64"):
        top = np.array([2**24 + 2**16 * (2 * k + 1) for k in range(8)], object)
        scale = 2**38 if kind.endswith("64") else 1
        numbers = np.concatenate([top * scale - 1, top * scale, top * scale + 1])
        cases.append(prepared("cast", (numbers,), (kind,), len(cases), to=dtype_of("bf16")))
    check(cases, tmp_path)


@pytest.mark.parametrize("name", ["sigmoid", "silu", "softplus", "elu", "celu", "mish", "gelu"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_tails_are_as_accurate_as_the_rest(name: str, kind: str, tmp_path: Path) -> None:
    # f64's gelu ends before its error function has no normal numbers: there the product with x shows its steps.
    reach = {"f32": 110.0, "f64": 745.0}[kind]
    rng = np.random.default_rng(5)
    params: list[dict[str, Any]] = [{}]
    if name == "gelu":
        params = [{"approximate": "none"}, {"approximate": "tanh"}]
        reach = {"f32": 15.0, "f64": 37.0}[kind]
    if name == "celu":
        reach = min(reach, 450.0)  # beyond it a negative alpha times an exponential is infinite
    params += {"softplus": [{"beta": 0.3}, {"beta": -1.7}], "celu": [{"alpha": -0.7}, {"alpha": 1e10}]}.get(name, [])
    cases: list[Prepared] = []
    for given in params:
        values = np.concatenate([rng.uniform(-reach, reach / 8, 3000), rng.uniform(-12, 4, 3000)])
        cases.append(prepared(name, (values,), (kind,), len(cases), **given))
    check(cases, tmp_path)


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_a_closed_gate_keeps_the_accuracy_of_what_passes(kind: str, tmp_path: Path) -> None:
    reach = {"f16": 25.0, "f32": 180.0, "f64": 1400.0}[kind]
    rng = np.random.default_rng(6)
    size = rng.uniform(0, float(np.log2(dtype_of(kind).maximum)) - 1, 3000)
    x = np.stack([np.exp2(size), rng.uniform(-reach, 4, 3000)])
    check([prepared("glu", (x,), (kind,), 0, axis=0)], tmp_path)


def test_stored_quantization_is_read_from_the_model(tmp_path: Path) -> None:
    values = np.array([[-(2**31), 5, 2**31 - 1], [7, -9, 0]])
    plain = QuantParams("symmetric", QuantScale.per_tensor(0.1))
    points = QuantZeroPoint.per_channel(1, [2**31 - 1, -7, -(2**31)])
    per_channel = QuantParams("asymmetric", QuantScale.per_channel(1, [0.1, 2.5, 3.0]), points)
    cases = [
        prepared("dequantize", (values,), ("i32",), number, quant=quant)
        for number, quant in enumerate((plain, per_channel))
    ]
    library = compiled(cases, tmp_path)
    for number, (one, quant) in enumerate(zip(cases, (plain, per_channel), strict=True)):
        extra: list[Array] = [quant.scale.values] + ([] if quant.zero_point is None else [quant.zero_point.values])
        kinds = ("f32", "i32")
        arrays = (one.case.arrays[0], *extra)
        dtypes = (one.case.dtypes[0], *(dtype_of(kind) for kind, _ in zip(kinds, extra, strict=False)))
        given = Prepared(one.record, Case(arrays, dtypes), one.call, one.code, one.inputs, one.outputs, one.scratch)
        results, status = executed(given, library, number)
        assert status == 0
        np.testing.assert_array_equal(results[0], reference(one)[0])


def test_bits_of_small_floats_survive_being_loaded_and_stored(tmp_path: Path) -> None:
    cases: list[Prepared] = []
    for small, unsigned in (("f16", "u16"), ("bf16", "u16"), ("f8", "u8")):
        codes = np.arange(1 << dtype_of(unsigned).bits)
        cases.append(prepared("bitcast", (codes,), (unsigned,), len(cases), to=dtype_of(small)))
    library = compiled(cases, tmp_path)
    for number, one in enumerate(cases):
        (result,), _ = executed(one, library, number)
        source = one.case.arrays[0]
        assert source is not None
        np.testing.assert_array_equal(result.view(source.dtype), source)


def test_numbers_in_front_of_a_caret_are_hexadecimal() -> None:
    printer = ScalarPrinter(C, lambda buffer: buffer.name)
    for dtype, wanted in (("i32", "0x2 ^ 2"), ("u32", "0xau ^ 10u")):
        number = Const(2 if dtype == "i32" else 10, DTYPES[dtype])
        assert printer.text(number ^ number) == wanted  # gcc 13 warns of 2 ^ 2 and 10 ^ 10
