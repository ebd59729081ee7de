"""``Tensor``: values in and out, views of shared storage, and exchange with other libraries."""

import tracemalloc
from types import EllipsisType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.dlpack import from_dlpack

from openinfer import DTYPES, Code, DType, Tensor, TensorError
from openinfer.dtypes import pack
from openinfer.tensor import row_major

Array = npt.NDArray[Any]
Key = int | slice | EllipsisType

PACKED = [dtype for dtype in DTYPES.values() if dtype.is_packed]
UNPACKED = [dtype for dtype in DTYPES.values() if not dtype.is_packed]
WITHOUT_DLPACK = ("bf16", "f8")
SHARED = [dtype for dtype in UNPACKED if dtype.name not in WITHOUT_DLPACK]

every_dtype = pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
every_packed = pytest.mark.parametrize("dtype", PACKED, ids=str)
every_unpacked = pytest.mark.parametrize("dtype", UNPACKED, ids=str)
every_shared = pytest.mark.parametrize("dtype", SHARED, ids=str)


def values(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Random values of a type, every code of the small ones among them."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "float":
        return rng.normal(size=shape).astype(dtype.array)
    if dtype.values is not None:
        return rng.choice(np.array(dtype.values, np.int8), shape)
    low, high = int(dtype.minimum), int(dtype.maximum)
    wide = np.uint64 if dtype.kind == "uint" else np.int64
    return rng.integers(low, high, shape, wide, endpoint=True).astype(dtype.array)


def same(found: Array, expected: Array) -> bool:
    """Equal type, shape and bytes."""
    return (
        found.dtype == expected.dtype
        and found.shape == expected.shape
        and np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()
    )


def stored(array: Array, dtype: DType) -> bytes:
    """What a file holds for these elements."""
    return pack(array, dtype).tobytes() if dtype.is_packed else np.ascontiguousarray(array).tobytes()


def code_of(function: Any, *arguments: Any) -> Code:
    with pytest.raises(TensorError) as caught:
        function(*arguments)
    return caught.value.code


# --- values in and out ------------------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (3, 0, 2)], ids=str)
def test_values_round_trip(dtype: DType, shape: tuple[int, ...]) -> None:
    array = values(dtype, shape)
    tensor = Tensor.from_numpy(array, dtype)
    assert (tensor.dtype, tensor.shape, tensor.ndim) == (dtype, shape, len(shape))
    assert tensor.size == array.size
    assert tensor.nbytes == dtype.nbytes(array.size) == len(tensor.storage)
    assert tensor.strides == row_major(shape)
    assert tensor.is_contiguous
    assert same(tensor.to_numpy(), array)
    assert tensor.raw().tobytes() == stored(array, dtype)


@every_unpacked
def test_an_array_of_the_right_type_and_layout_is_shared(dtype: DType) -> None:
    array = values(dtype, (3, 5))
    tensor = Tensor.from_numpy(array, dtype)
    assert np.shares_memory(tensor.to_numpy(), array)
    assert np.shares_memory(tensor.raw(), array)
    assert np.shares_memory(tensor[1:, ::-2].to_numpy(), array)
    assert not np.shares_memory(Tensor.from_numpy(array.T, dtype).to_numpy(), array)


@every_dtype
def test_a_read_only_array_gives_a_tensor_that_cannot_be_written_through(dtype: DType) -> None:
    array = values(dtype, (4,))
    array.flags.writeable = False
    tensor = Tensor.from_numpy(array, dtype)
    assert tensor.to_numpy().flags.writeable == dtype.is_packed
    assert same(tensor.to_numpy(), array)


@every_dtype
def test_layout_and_byte_order_of_the_array_do_not_matter(dtype: DType) -> None:
    array = values(dtype, (3, 5))
    expected = Tensor.from_numpy(array, dtype).raw().tobytes()
    for other in (np.asfortranarray(array), np.repeat(array, 2, 0)[::2], array.astype(array.dtype.newbyteorder(">"))):
        assert Tensor.from_numpy(other, dtype).raw().tobytes() == expected


@pytest.mark.parametrize(
    ("data", "name", "shape"),
    [
        (1.5, "f32", ()),
        ([1.5, 2], "f32", (2,)),
        ([[1, 2], [3, 4]], "i64", (2, 2)),
        ([True, False], "bool", (2,)),
        ([], "f32", (0,)),
        ([[], []], "f32", (2, 0)),
        ([2**63], "u64", (1,)),
        (np.float64(1.5), "f64", ()),
        (np.array([1.5]), "f64", (1,)),
        (np.array([1], "longlong"), "i64", (1,)),
        (np.ones(2, ml_dtypes.bfloat16), "bf16", (2,)),
        (np.ones(2, ml_dtypes.int4), "i4", (2,)),
        (memoryview(b"ab"), "u8", (2,)),
        (torch.ones(2, dtype=torch.float64), "f64", (2,)),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_without_a_dtype_the_data_decides(data: Any, name: str, shape: tuple[int, ...]) -> None:
    tensor = Tensor.from_numpy(data)
    assert (tensor.dtype.name, tensor.shape) == (name, shape)
    assert tensor.to_numpy().tolist() == np.asarray(data).tolist()


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        ([0.1], "f64", 0.1),
        ([1e300], "f64", 1e300),
        ([2.0**53 - 1], "i64", 2.0**53 - 1),
        ([16777217.0], "i32", 16777217),
        ([1 + 2**-8 + 2**-30], "bf16", 1 + 2**-7),
    ],
    ids=repr,
)
def test_python_floats_are_rounded_only_to_the_dtype_asked_for(data: Any, name: str, expected: float) -> None:
    assert Tensor.from_numpy(data, name).to_numpy().astype(np.float64).tolist() == [expected]


@pytest.mark.parametrize(
    ("data", "dtype", "code"),
    [
        ([[1], [2, 3]], None, Code.BAD_SHAPE),
        (np.zeros((1,) * 17), None, Code.BAD_SHAPE),
        ("text", None, Code.UNSUPPORTED_ARRAY),
        ([2**64], None, Code.UNSUPPORTED_ARRAY),
        (None, None, Code.UNSUPPORTED_ARRAY),
        ([1j], "f32", Code.UNSUPPORTED_ARRAY),
        ([2**63, -1], None, Code.VALUE_OUT_OF_RANGE),
        ([1e300], None, Code.VALUE_OUT_OF_RANGE),
        ([-1], "u8", Code.VALUE_OUT_OF_RANGE),
        ([0.5], "i8", Code.VALUE_OUT_OF_RANGE),
        ([float("nan")], "bool", Code.VALUE_OUT_OF_RANGE),
        ([1], "int8", Code.UNKNOWN_DTYPE),
    ],
    ids=str,
)
def test_data_that_makes_no_tensor_is_a_typed_error(data: Any, dtype: str | None, code: Code) -> None:
    assert code_of(Tensor.from_numpy, data, dtype) is code


def test_sixteen_dimensions_are_allowed() -> None:
    assert Tensor.from_numpy(np.zeros((1,) * 16)).ndim == 16


@every_dtype
def test_zeros_stores_zero_bits(dtype: DType) -> None:
    tensor = Tensor.zeros(dtype.name, (3, 5))
    assert tensor.raw().tobytes() == bytes(dtype.nbytes(15))
    assert set(tensor.to_numpy().astype(np.float64).reshape(-1)) == {-1.0 if dtype.name == "t1" else 0.0}
    assert Tensor.zeros(dtype, ()).to_numpy().shape == ()
    assert Tensor.zeros(dtype, (0, 2**20)).to_numpy().shape == (0, 2**20)


@pytest.mark.parametrize("shape", [(2, -1), (0, -1), (2**61,), (2**70,), (0, 2**62), (0, 2**70), (1,) * 17], ids=str)
def test_zeros_of_an_impossible_shape_is_a_typed_error(shape: tuple[int, ...]) -> None:
    assert code_of(Tensor.zeros, "f32", shape) is Code.BAD_SHAPE


# --- views ------------------------------------------------------------------------------------------------------------

extents = st.lists(st.integers(0, 5), max_size=4).map(tuple)
bounds = st.none() | st.integers(-7, 7)
slices = st.builds(slice, bounds, bounds, st.none() | st.integers(-3, 3).filter(bool))


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Key, ...]:
    """Integers in range, slices and at most one ellipsis, for some of the axes."""
    count = draw(st.integers(0, len(shape)))
    split = draw(st.none() | st.integers(0, count))
    axes = range(count) if split is None else [*range(split), *range(len(shape) - count + split, len(shape))]
    chosen: list[Key] = [
        draw(slices | st.integers(-shape[axis], shape[axis] - 1)) if shape[axis] else draw(slices) for axis in axes
    ]
    if split is not None:
        chosen.insert(split, ...)
    return tuple(chosen)


@settings(deadline=None)
@given(st.data(), st.sampled_from(list(DTYPES.values())), extents)
def test_a_view_of_a_view_is_what_numpy_says(data: st.DataObject, dtype: DType, shape: tuple[int, ...]) -> None:
    array = values(dtype, shape)
    tensor = Tensor.from_numpy(array, dtype)
    for _ in range(2):
        key = data.draw(keys(array.shape))
        array, tensor = np.asarray(array[key]), tensor[key]
        assert same(tensor.to_numpy(), array)
        assert tensor.raw().tobytes() == stored(array, dtype)
        assert tensor.size == array.size
        assert tensor.nbytes == dtype.nbytes(array.size)
        assert same(np.asarray(tensor), array)


@settings(deadline=None)
@given(st.data(), st.sampled_from(UNPACKED), extents)
def test_strides_count_elements(data: st.DataObject, dtype: DType, shape: tuple[int, ...]) -> None:
    array = values(dtype, shape)
    assume(array.size > 0)
    key = data.draw(keys(shape))
    view, expected = Tensor.from_numpy(array, dtype)[key], np.asarray(array[key])
    assume(expected.size > 0)
    steps = tuple(step // array.itemsize for step in expected.strides)
    visible = [axis for axis, extent in enumerate(expected.shape) if extent > 1]
    assert [view.strides[axis] for axis in visible] == [steps[axis] for axis in visible]
    assert view.is_contiguous == expected.flags.c_contiguous
    assert np.shares_memory(view.to_numpy(), array)


@every_packed
def test_raw_of_a_slice_that_ends_inside_a_byte_has_zero_spare_bits(dtype: DType) -> None:
    array = values(dtype, (16,))
    array[:] = array.max() if dtype.kind == "uint" or dtype.values else -1
    for length in range(1, 17):
        whole = Tensor.from_numpy(array[:length], dtype)
        for start in range(length):
            for stop in range(start, length + 1):
                assert whole[start:stop].raw().tobytes() == stored(array[start:stop], dtype)


@every_packed
def test_raw_of_an_aligned_packed_slice_is_a_view(dtype: DType) -> None:
    tensor = Tensor.from_numpy(values(dtype, (64,)), dtype)
    assert np.shares_memory(tensor.raw(), tensor.storage)
    assert np.shares_memory(tensor[8:24].raw(), tensor.storage)


@every_dtype
def test_views_share_storage(dtype: DType) -> None:
    tensor = Tensor.from_numpy(values(dtype, (4, 6)), dtype)
    for view in (tensor[1], tensor[..., ::-1], tensor[2:, 3], tensor[()], tensor[...]):
        assert view.storage is tensor.storage
        assert view.dtype is dtype


@every_dtype
def test_an_empty_tensor_can_be_sliced_like_any_other(dtype: DType) -> None:
    empty = Tensor.zeros(dtype, (0, 3))
    assert empty[:, 2].to_numpy().shape == (0,)
    assert empty[:, ::-1].to_numpy().shape == (0, 3)
    assert empty[..., 1:].to_numpy().shape == (0, 2)
    assert empty[:, 2].raw().shape == (0,)


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint8, np.uint64])
@pytest.mark.parametrize("name", ["f32", "i4"])
def test_numpy_integers_index_like_python_ones(name: str, kind: type[np.integer[Any]]) -> None:
    array = values(DTYPES[name], (3, 5))
    tensor = Tensor.from_numpy(array, name)
    index: Any = kind(2)
    assert same(tensor[index].to_numpy(), array[2])
    assert same(tensor[0, index:].to_numpy(), array[0, 2:])


@pytest.mark.parametrize(
    "key",
    [
        2,
        -3,
        (0, 3),
        (0, 0, 0),
        (..., 0, 0, 0),
        (..., ...),
        None,
        True,
        np.True_,
        (0, False),
        1.0,
        "a",
        [0],
        np.array([0, 1]),
        np.array([True, False]),
        slice(None, None, 0),
        slice(0.5, None),
        slice("a"),
    ],
    ids=repr,
)
def test_an_index_that_names_no_view_is_a_typed_error(key: Any) -> None:
    for tensor in (Tensor.zeros("f32", (2, 3)), Tensor.zeros("i4", (2, 3))):
        assert code_of(tensor.__getitem__, key) is Code.BAD_SHAPE


def test_the_length_is_the_first_extent_and_a_scalar_has_none() -> None:
    assert len(Tensor.zeros("f32", (4, 2))) == 4
    assert code_of(len, Tensor.zeros("f32", ())) is Code.BAD_SHAPE


@pytest.mark.parametrize("name", ["f32", "i4"])
def test_iterating_gives_the_rows(name: str) -> None:
    array = values(DTYPES[name], (3, 5))
    rows: Any = Tensor.from_numpy(array, name)
    assert [row.to_numpy().tolist() for row in rows] == array.tolist()
    assert code_of(iter, Tensor.zeros(name, ())) is Code.BAD_SHAPE


# --- NumPy and DLPack -------------------------------------------------------------------------------------------------


@every_unpacked
def test_numpy_shares_memory_unless_it_asks_for_a_copy(dtype: DType) -> None:
    array = values(dtype, (3, 5))
    tensor = Tensor.from_numpy(array, dtype)
    assert np.shares_memory(np.asarray(tensor), array)
    assert np.shares_memory(np.asarray(tensor, copy=False), array)
    assert not np.shares_memory(np.array(tensor), array)
    assert not np.shares_memory(np.asarray(tensor, copy=True), array)
    assert same(np.array(tensor), array)


@every_packed
def test_numpy_gets_a_copy_of_a_packed_tensor_or_a_typed_error(dtype: DType) -> None:
    array = values(dtype, (3, 5))
    tensor = Tensor.from_numpy(array, dtype)
    assert same(np.asarray(tensor), array)
    assert same(np.asarray(tensor, copy=True), array)
    with pytest.raises(TensorError) as caught:
        np.asarray(tensor, copy=False)
    assert caught.value.code is Code.NO_EXCHANGE


@every_dtype
def test_numpy_can_ask_for_another_type(dtype: DType) -> None:
    array = values(dtype, (3, 5))
    found = np.asarray(Tensor.from_numpy(array, dtype), np.float64)
    assert same(found, array.astype(np.float64))


def test_numpy_refuses_another_type_without_a_copy() -> None:
    with pytest.raises(ValueError, match="avoid copy"):
        np.asarray(Tensor.zeros("f32", (2,)), np.float64, copy=False)


@every_shared
def test_dlpack_shares_memory_with_numpy_and_torch(dtype: DType) -> None:
    array = values(dtype, (3, 5))
    tensor = Tensor.from_numpy(array, dtype)
    for view, expected in ((tensor, array), (tensor[1:, ::2], array[1:, ::2]), (tensor[2, 3], array[2, 3, ...])):
        assert np.shares_memory(np.from_dlpack(view), array)
        assert same(np.from_dlpack(view), expected)
        assert from_dlpack(view).tolist() == expected.tolist()
    from_dlpack(tensor)[0, 0] = 0
    assert array[0, 0] == 0


@every_shared
def test_dlpack_of_a_read_only_array_is_read_only_or_refused(dtype: DType) -> None:
    array = values(dtype, (4,))
    array.flags.writeable = False
    tensor = Tensor.from_numpy(array, dtype)
    assert code_of(tensor.__dlpack__) is Code.NO_EXCHANGE
    assert not np.from_dlpack(tensor).flags.writeable
    assert np.from_dlpack(tensor, copy=True).flags.writeable


@pytest.mark.parametrize("dtype", [*PACKED, *(DTYPES[name] for name in WITHOUT_DLPACK)], ids=str)
def test_dlpack_of_a_type_it_does_not_know_is_a_typed_error(dtype: DType) -> None:
    tensor = Tensor.zeros(dtype, (4,))
    assert code_of(np.from_dlpack, tensor) is Code.NO_EXCHANGE
    assert code_of(from_dlpack, tensor) is Code.NO_EXCHANGE


def test_dlpack_of_a_reversed_view_is_a_typed_error() -> None:
    """Torch does not refuse a negative stride: it ends the process."""
    tensor = Tensor.zeros("f32", (2, 4))
    assert code_of(tensor[:, ::-1].__dlpack__) is Code.NO_EXCHANGE
    assert code_of(tensor[::-1].__dlpack__) is Code.NO_EXCHANGE


def test_the_dlpack_device_is_the_processor() -> None:
    assert Tensor.zeros("f32", (4,)).__dlpack_device__() == (1, 0)


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (Tensor.zeros("f32", ()), "Tensor(f32[], [0.0])"),
        (Tensor.zeros("u8", (0, 4)), "Tensor(u8[0, 4], [])"),
        (Tensor.from_numpy(np.arange(6).reshape(2, 3), "i16"), "Tensor(i16[2, 3], [0, 1, 2, 3, 4, 5])"),
        (Tensor.from_numpy(np.arange(7), "u4"), "Tensor(u4[7], [0, 1, 2, 3, 4, 5, ...])"),
        (Tensor.from_numpy(np.arange(100), "i32")[::-1], "Tensor(i32[100], [99, 98, 97, 96, 95, 94, ...])"),
        (
            Tensor.from_numpy(np.arange(100) % 8, "u4").__getitem__(slice(9, None)),
            "Tensor(u4[91], [1, 2, 3, 4, 5, 6, ...])",
        ),
        (Tensor.from_numpy([True, False]), "Tensor(bool[2], [True, False])"),
        (Tensor.from_numpy([1, -1], "t1"), "Tensor(t1[2], [1, -1])"),
        (Tensor.from_numpy([float("inf"), float("nan"), 0.1]), "Tensor(f32[3], [inf, nan, 0.1])"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tensor_prints_its_type_and_first_elements(tensor: Tensor, text: str) -> None:
    assert repr(tensor) == text


@every_dtype
def test_printing_a_big_tensor_does_not_unpack_it(dtype: DType) -> None:
    tensor = Tensor.zeros(dtype, (1 << 10, 1 << 10))[::-1, ::2]
    tracemalloc.start()
    try:
        text = repr(tensor)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert text.endswith(", ...])")
    assert peak < 200_000


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 4), (3, 1, 2)], ids=str)
def test_row_major_strides_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    steps = np.empty(tuple(extent or 1 for extent in shape), np.int8).strides
    if all(shape):
        assert row_major(shape) == steps
    assert len(row_major(shape)) == len(shape)


def test_lists_of_large_integers_keep_every_bit() -> None:
    for dtype in (None, "u64"):
        tensor = Tensor.from_numpy([2**64 - 1, 0], dtype)
        assert (tensor.dtype.name, tensor.to_numpy().tolist()) == ("u64", [2**64 - 1, 0])
    for values in ([2**64 - 1, -1], [2**64, 0]):
        with pytest.raises(TensorError):
            Tensor.from_numpy(values, "u64")
