"""The dtype table: every type's width, range, NumPy type and compute type."""

import copy
import pickle
from typing import Any, get_args

import ml_dtypes
import numpy as np
import pytest

from openinfer.dtypes import ALIASES, DTYPES, INDEX, DType, DTypeName, dtype_of, from_numpy_dtype, unpack
from openinfer.errors import Code, TensorError

F8_MAX = 57344.0
BF16_MAX = (2 - 2**-7) * 2.0**127
F16_MAX = 65504.0
F32_MAX = (2 - 2**-23) * 2.0**127
F64_MAX = (2 - 2**-52) * 2.0**1023

TABLE: list[tuple[str, str, int, float, float, str, Any]] = [
    ("f8", "float", 8, -F8_MAX, F8_MAX, "f32", ml_dtypes.float8_e5m2),
    ("bf16", "float", 16, -BF16_MAX, BF16_MAX, "f32", ml_dtypes.bfloat16),
    ("f16", "float", 16, -F16_MAX, F16_MAX, "f32", np.float16),
    ("f32", "float", 32, -F32_MAX, F32_MAX, "f32", np.float32),
    ("f64", "float", 64, -F64_MAX, F64_MAX, "f64", np.float64),
    ("i1", "int", 1, -1, 0, "i8", np.int8),
    ("i2", "int", 2, -2, 1, "i8", ml_dtypes.int2),
    ("i4", "int", 4, -8, 7, "i8", ml_dtypes.int4),
    ("i8", "int", 8, -128, 127, "i8", np.int8),
    ("i16", "int", 16, -32768, 32767, "i16", np.int16),
    ("i32", "int", 32, -(2**31), 2**31 - 1, "i32", np.int32),
    ("i64", "int", 64, -(2**63), 2**63 - 1, "i64", np.int64),
    ("u1", "uint", 1, 0, 1, "u8", np.uint8),
    ("u2", "uint", 2, 0, 3, "u8", ml_dtypes.uint2),
    ("u4", "uint", 4, 0, 15, "u8", ml_dtypes.uint4),
    ("u8", "uint", 8, 0, 255, "u8", np.uint8),
    ("u16", "uint", 16, 0, 65535, "u16", np.uint16),
    ("u32", "uint", 32, 0, 2**32 - 1, "u32", np.uint32),
    ("u64", "uint", 64, 0, 2**64 - 1, "u64", np.uint64),
    ("t1", "int", 1, -1, 1, "i8", np.int8),
    ("t2", "int", 2, -1, 1, "i8", np.int8),
    ("bool", "bool", 8, 0, 1, "bool", np.bool_),
]
NO_ARRAY_TYPE_OF_THEIR_OWN = ("i1", "u1", "t1", "t2")

every_dtype = pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)


def test_the_table_is_exactly_the_22_types_of_the_format() -> None:
    assert sorted(DTYPES) == sorted(row[0] for row in TABLE)
    assert len(DTYPES) == 22


@pytest.mark.parametrize(("name", "kind", "bits", "minimum", "maximum", "compute", "array"), TABLE)
def test_a_dtype_has_its_width_range_compute_type_and_array_type(
    name: str, kind: str, bits: int, minimum: float, maximum: float, compute: str, array: Any
) -> None:
    dtype = dtype_of(name)
    assert (dtype.name, dtype.kind, dtype.bits) == (name, kind, bits)
    assert (dtype.minimum, dtype.maximum) == (minimum, maximum)
    assert dtype.compute is dtype_of(compute)
    assert dtype.array == np.dtype(array)
    assert dtype.array.byteorder in "=|"
    assert dtype.itemsize == max(1, bits // 8)
    assert dtype.is_packed == (bits < 8)


def test_ranges_of_integer_types_are_exact_python_integers() -> None:
    bounds = [bound for dtype in DTYPES.values() if dtype.kind != "float" for bound in (dtype.minimum, dtype.maximum)]
    assert all(type(bound) is int for bound in bounds)


def test_only_the_ternary_and_binary_types_list_their_values() -> None:
    listed = {name: dtype.values for name, dtype in DTYPES.items() if dtype.values is not None}
    assert listed == {"t1": (-1, 1), "t2": (-1, 0, 1)}


@every_dtype
def test_a_compute_type_computes_in_itself(dtype: DType) -> None:
    assert dtype.compute.compute is dtype.compute
    assert not dtype.compute.is_packed


@every_dtype
def test_storage_of_a_count_is_rounded_up_to_bytes(dtype: DType) -> None:
    for count in [*range(20), 2**40 + 1]:
        whole, rest = divmod(count * dtype.bits, 8)
        assert dtype.nbytes(count) == whole + (rest > 0)


@every_dtype
def test_an_array_type_stands_for_its_dtype_in_either_byte_order(dtype: DType) -> None:
    expected = dtype
    if dtype.name in NO_ARRAY_TYPE_OF_THEIR_OWN:
        expected = DTYPES["u8" if dtype.kind == "uint" else "i8"]
    assert from_numpy_dtype(dtype.array) is expected
    assert from_numpy_dtype(dtype.array.newbyteorder(">")) is expected
    assert from_numpy_dtype(dtype.array.newbyteorder("<")) is expected


@pytest.mark.parametrize(("numpy_name", "name"), [("longlong", "i64"), ("ulonglong", "u64"), ("intc", "i32")])
def test_numpy_types_with_two_names_are_one_dtype(numpy_name: str, name: str) -> None:
    assert from_numpy_dtype(np.dtype(numpy_name)) is dtype_of(name)


@pytest.mark.parametrize(
    "other",
    ["O", "S4", "U4", "M8[s]", "m8[s]", "V4", "F", "D", "longdouble", "clongdouble", "T", [("a", "f4")], ("f4", (2,))],
    ids=str,
)
def test_other_numpy_types_stand_for_no_dtype(other: Any) -> None:
    array_type: np.dtype[Any] = np.dtypes.StringDType() if other == "T" else np.dtype(other)
    assert from_numpy_dtype(array_type) is None


@pytest.mark.parametrize(
    "other", ["float8_e4m3fn", "float8_e4m3", "float8_e5m2fnuz", "float8_e3m4", "float4_e2m1fn", "float6_e2m3fn"]
)
def test_other_small_floats_stand_for_no_dtype(other: str) -> None:
    assert from_numpy_dtype(np.dtype(getattr(ml_dtypes, other))) is None


@every_dtype
def test_there_is_one_object_per_dtype(dtype: DType) -> None:
    assert dtype_of(dtype.name) is dtype
    assert dtype_of(dtype) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.copy(dtype) is dtype
    assert copy.deepcopy(dtype) is dtype


@every_dtype
def test_a_dtype_prints_as_its_name(dtype: DType) -> None:
    assert str(dtype) == dtype.name
    assert repr(dtype) == f"<dtype {dtype.name}>"


def test_the_names_for_type_checkers_are_those_of_the_table() -> None:
    assert get_args(DTypeName) == tuple(DTYPES)


@every_dtype
def test_all_bits_zero_are_the_initial_value(dtype: DType) -> None:
    assert unpack(np.zeros(1, np.uint8), dtype, 0, 1)[0] == dtype.initial if dtype.is_packed else dtype.initial == 0
    assert dtype.has_zero is (dtype.initial == 0)


def test_the_least_numbers_of_floats_are_those_of_the_standard() -> None:
    exponents = {"f8": (-14, -16), "bf16": (-126, -133), "f16": (-14, -24), "f32": (-126, -149), "f64": (-1022, -1074)}
    for name, (normal, least) in exponents.items():
        assert (DTYPES[name].least_normal, DTYPES[name].least_positive) == (2.0**normal, 2.0**least)


def test_aliases_name_the_same_object() -> None:
    assert set(ALIASES) == {"f8e5m2", "float8e5m2"}
    assert all(dtype_of(alias) is DTYPES["f8"] for alias in ALIASES)


@pytest.mark.parametrize(
    "name", ["", "F32", "f32 ", "int8", "f128", "i3", "\x1b[2J", None, 8, np.float32, ["f32"], b"f32"]
)
def test_an_unknown_name_is_a_typed_error(name: Any) -> None:
    with pytest.raises(TensorError) as caught:
        dtype_of(name)
    assert caught.value.code is Code.UNKNOWN_DTYPE


def test_an_unknown_name_gets_the_nearest_ones_or_all() -> None:
    with pytest.raises(TensorError, match="did you mean 'bf16'"):
        dtype_of("bfl16")
    with pytest.raises(TensorError, match="dtypes are f8, bf16"):
        dtype_of("quaternion")


def test_positions_are_of_no_dtype_that_a_tensor_has() -> None:
    assert INDEX not in DTYPES.values()
    assert INDEX.compute is INDEX
    assert pickle.loads(pickle.dumps(INDEX)) is INDEX
    with pytest.raises(TensorError):
        dtype_of(INDEX.name)
