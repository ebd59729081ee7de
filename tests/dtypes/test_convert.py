"""Conversion of arrays: integers exactly or not at all, layouts that do not matter, types that are refused."""

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from openinfer.dtypes import DTYPES, DType, convert
from openinfer.errors import Code, TensorError

Array = npt.NDArray[Any]

INTEGERS = [dtype for dtype in DTYPES.values() if dtype.kind != "float"]
FLOATS = [dtype for dtype in DTYPES.values() if dtype.kind == "float"]
SOURCES = [dtype for dtype in DTYPES.values() if dtype.name not in ("i1", "u1", "t1", "t2")]
"""One dtype for each NumPy type that is accepted."""
WIDE = ("i32", "i64", "u32", "u64")

every_integer = pytest.mark.parametrize("dtype", INTEGERS, ids=str)
every_dtype = pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)


def members(dtype: DType) -> list[int]:
    """All values of a small type, or the interesting ones of a wide type."""
    low, high = int(dtype.minimum), int(dtype.maximum)
    if dtype.values is not None:
        return list(dtype.values)
    if dtype.name not in WIDE:
        return list(range(low, high + 1))
    powers = [sign * 2**exponent + delta for sign in (-1, 1) for exponent in range(65) for delta in (-1, 0, 1)]
    rng = np.random.default_rng(0)
    spread = [low + int(part * 2.0**-64 * (high - low)) for part in rng.integers(0, 2**64, 1000, np.uint64)]
    return sorted({value for value in [*powers, *spread] if low <= value <= high})


def holds(source: DType, value: int) -> bool:
    """Whether a type can express a number exactly."""
    if source.kind != "float":
        return source.minimum <= value <= source.maximum
    if abs(value) > source.maximum:
        return False
    return int(np.array(value, np.float64).astype(source.array).astype(np.float64)) == value


def sample(source: DType, dtype: DType) -> Array:
    """A few values that both types have: 0 where it exists, and 1 or -1."""
    unused = {"t1": (0,)}.get(dtype.name, ())
    shared = [value for value in (-1, 0, 1) if holds(dtype, value) and holds(source, value) and value not in unused]
    return np.resize(np.array(shared, np.int64), 6).astype(source.array)


def array_of(values: list[int], source: DType) -> Array:
    if source.kind == "float":
        return np.array(values, np.float64).astype(source.array)
    return np.array(values, np.uint64 if source.name == "u64" else np.int64).astype(source.array)


def plain(values: Array) -> list[float]:
    return [float(value) for value in values.reshape(-1).astype(np.float64)]


def refusal(values: Array, dtype: DType) -> TensorError:
    with pytest.raises(TensorError) as caught:
        convert(values, dtype)
    return caught.value


# --- integers ---------------------------------------------------------------------------------------------------------


@every_integer
def test_every_value_in_range_is_accepted_unchanged(dtype: DType) -> None:
    everything = members(dtype)
    for source in SOURCES:
        values = [value for value in everything if holds(source, value)]
        found = convert(array_of(values, source), dtype)
        assert found.dtype == dtype.array, source
        wide = np.uint64 if dtype.kind == "uint" else np.int64
        assert found.astype(wide).tolist() == values, source


def amid(bad: Array, good: Array) -> list[Array]:
    """A bad value alone, and with good ones on either side."""
    return [bad, np.concatenate([good, bad]), np.concatenate([bad, good]), bad.reshape(())]


@every_integer
def test_the_first_values_out_of_range_are_refused(dtype: DType) -> None:
    low, high = int(dtype.minimum), int(dtype.maximum)
    for source, value in product(SOURCES, (low - 1, high + 1, 2 * low - 2, 2 * high + 2)):
        if holds(source, value):
            for array in amid(array_of([value], source), sample(source, dtype)):
                error = refusal(array, dtype)
                assert error.code is Code.VALUE_OUT_OF_RANGE, source
                shown = error.message.split()[2].replace("True", "1")
                assert float(shown) == value, source


@every_integer
@pytest.mark.parametrize("value", [0.5, -0.5, 0.25, np.nan, -np.nan, np.inf, -np.inf])
def test_fractions_infinities_and_nan_are_refused(dtype: DType, value: float) -> None:
    for source in FLOATS:
        for array in amid(np.array([value]).astype(source.array), sample(source, dtype)):
            assert refusal(array, dtype).code is Code.VALUE_OUT_OF_RANGE, source


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (2.0**63, "i64"),
        (np.nextafter(-(2.0**63), -np.inf), "i64"),
        (2.0**64, "u64"),
        (np.float32(2.0**63), "i64"),
        (np.float32(2.0**31), "i32"),
        (1e300, "u64"),
        (255.00000000000003, "u8"),
        (-1e-300, "u8"),
        (5e-324, "i64"),
    ],
)
def test_floats_just_beyond_an_integer_type_are_refused(value: float, name: str) -> None:
    assert refusal(np.array([value]), DTYPES[name]).code is Code.VALUE_OUT_OF_RANGE


def test_the_largest_floats_below_the_limits_are_accepted() -> None:
    assert int(convert(np.nextafter([2.0**64], 0), DTYPES["u64"])[0]) == 2**64 - 2**11
    assert int(convert(np.nextafter([2.0**63], 0), DTYPES["i64"])[0]) == 2**63 - 2**10
    assert int(convert(np.array([-(2.0**63)]), DTYPES["i64"])[0]) == -(2**63)


@every_integer
def test_negative_zero_is_zero(dtype: DType) -> None:
    if dtype.name == "t1":
        assert refusal(np.array([-0.0]), dtype).code is Code.VALUE_OUT_OF_RANGE
        return
    assert plain(convert(np.array([-0.0]), dtype)) == [0.0]


def test_binary_values_have_no_zero() -> None:
    error = refusal(np.array([-1, 0, 1], np.int8), DTYPES["t1"])
    assert error.code is Code.VALUE_OUT_OF_RANGE
    assert error.message == "the value 0 is not a t1"
    assert error.diagnostics[0].help == "t1 holds {-1, 1}; clip or round the array yourself first"


def test_a_refusal_names_the_value_and_the_range() -> None:
    error = refusal(np.array([1, 300], np.int32), DTYPES["u8"])
    assert error.message == "the value 300 is not a u8"
    assert error.diagnostics[0].help == "u8 holds the integers 0 to 255; clip or round the array yourself first"


@pytest.mark.parametrize("payload", [0x7F800001, 0xFF800001, 0x7FC00000])
@every_dtype
def test_signalling_nans_convert_or_are_refused_without_warnings(dtype: DType, payload: int) -> None:
    values = np.array([payload], np.uint32).view(np.float32)
    if dtype.kind == "float":
        found = convert(values, dtype)
        with np.errstate(invalid="ignore"):
            assert np.isnan(found.astype(np.float64)).all()
    else:
        assert refusal(values, dtype).code is Code.VALUE_OUT_OF_RANGE


# --- NumPy types ------------------------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize(
    "kind", ["O", "S4", "U4", "M8[s]", "m8[s]", "V4", "F", "D", "longdouble", "clongdouble", [("a", "f4")]], ids=str
)
def test_arrays_without_real_numbers_are_refused(kind: Any, dtype: DType) -> None:
    for shape in ((), (0,), (2,)):
        error = refusal(np.zeros(shape, np.dtype(kind)), dtype)
        assert error.code is Code.UNSUPPORTED_ARRAY


def test_arrays_of_variable_length_text_are_refused() -> None:
    text: Any = np.array(["a"], np.dtypes.StringDType())
    assert refusal(text, DTYPES["f32"]).code is Code.UNSUPPORTED_ARRAY


def test_small_floats_that_are_no_dtype_are_refused() -> None:
    assert refusal(np.ones(2, ml_dtypes.float8_e4m3fn), DTYPES["f32"]).code is Code.UNSUPPORTED_ARRAY


@every_dtype
def test_every_accepted_numpy_type_converts_to_every_dtype(dtype: DType) -> None:
    for source in SOURCES:
        values = sample(source, dtype)
        found = convert(values, dtype)
        assert found.dtype == dtype.array, source
        assert plain(found) == plain(values), source


# --- layout -----------------------------------------------------------------------------------------------------------


def layouts_of(values: Array) -> list[Array]:
    """The same values in other byte orders, orders of axes, strides and alignments."""
    return [
        values.astype(values.dtype.newbyteorder(">")),
        np.asfortranarray(values),
        np.repeat(values, 2, axis=1)[:, ::2],
        values[::-1, ::-1].copy()[::-1, ::-1],
        np.frombuffer(b"\0" + values.tobytes(), np.uint8)[1:].view(values.dtype).reshape(values.shape),
    ]


@every_dtype
def test_byte_order_and_layout_do_not_matter(dtype: DType) -> None:
    for source in SOURCES:
        values = sample(source, dtype).reshape(2, 3)
        for array in layouts_of(values):
            found = convert(array, dtype)
            assert (found.dtype, found.shape) == (dtype.array, (2, 3)), source
            assert found.flags.c_contiguous, source
            assert plain(found) == plain(values), source


@every_dtype
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1, 1)], ids=str)
def test_scalars_and_empty_arrays_keep_their_shape(dtype: DType, shape: tuple[int, ...]) -> None:
    for source in SOURCES:
        values = np.resize(sample(source, dtype), shape).astype(source.array)
        found = convert(values, dtype)
        assert isinstance(found, np.ndarray), source
        assert (found.dtype, found.shape) == (dtype.array, shape), source
        assert plain(found) == plain(values), source


@pytest.mark.parametrize("dtype", [dtype for dtype in SOURCES if not dtype.is_packed], ids=str)
def test_an_array_that_already_fits_is_not_copied(dtype: DType) -> None:
    values = np.zeros((2, 3), dtype.array)
    assert np.shares_memory(convert(values, dtype), values)
    assert not np.shares_memory(convert(values.T, dtype), values)


@every_dtype
def test_the_source_is_never_written(dtype: DType) -> None:
    for source in SOURCES:
        values = sample(source, dtype)
        values.flags.writeable = False
        before = values.tobytes()
        convert(values, dtype)
        assert values.tobytes() == before, source
