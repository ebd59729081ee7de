"""Bit streams of the packed types, against a reference that counts single bits."""

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from openinfer.dtypes import DTYPES, DType, first_invalid_code, pack, unpack

Array = npt.NDArray[Any]
PACKED = [dtype for dtype in DTYPES.values() if dtype.is_packed]
PIECE = 1 << 15
"""Words that the implementation handles at a time."""

every_packed = pytest.mark.parametrize("dtype", PACKED, ids=str)


def value_of(code: int, dtype: DType) -> int | None:
    """What a stored code stands for; None for the one code that stands for nothing."""
    if dtype.name == "t1":
        return {0: -1, 1: 1}[code]
    if dtype.name == "t2":
        return {0: 0, 1: 1, 2: None, 3: -1}[code]
    if dtype.name.startswith("u"):
        return code
    return code - 2**dtype.bits if code >= 2 ** (dtype.bits - 1) else code


def codes_of(dtype: DType) -> list[int]:
    """The codes that stand for a value."""
    return [code for code in range(2**dtype.bits) if value_of(code, dtype) is not None]


def values_of(codes: list[int], dtype: DType) -> list[int]:
    """What each code stands for; t2's unused code reads as two's complement says, -2."""
    found = [value_of(code, dtype) for code in codes]
    return [-2 if value is None else value for value in found]


def reference_stream(codes: list[int], bits: int) -> bytes:
    """The codes one bit after another, least significant first, in bytes filled from the least significant bit."""
    row = [code >> bit & 1 for code in codes for bit in range(bits)]
    row += [0] * (-len(row) % 8)
    return bytes(sum(bit << place for place, bit in enumerate(row[at : at + 8])) for at in range(0, len(row), 8))


def reference_codes(stream: bytes, bits: int) -> list[int]:
    """All the codes of a stream, read bit by bit."""
    row = [byte >> place & 1 for byte in stream for place in range(8)]
    return [sum(row[at + bit] << bit for bit in range(bits)) for at in range(0, len(row), bits)]


def as_bytes(stream: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(stream, np.uint8)


def ints(values: Array) -> list[int]:
    return [int(value) for value in values.astype(np.int64)]


def random_elements(dtype: DType, count: int, seed: int = 0) -> Array:
    choices = np.array(values_of(codes_of(dtype), dtype), np.int8)
    return np.random.default_rng(seed).choice(choices, count).astype(dtype.array)


@every_packed
def test_every_value_has_its_code(dtype: DType) -> None:
    for code in codes_of(dtype):
        values = values_of([code], dtype)
        assert pack(np.array(values, dtype.array), dtype).tolist() == [code]
        assert ints(unpack(as_bytes(bytes([code])), dtype, 0, 1)) == values


@every_packed
def test_every_stream_of_up_to_two_bytes_round_trips(dtype: DType) -> None:
    """A stream of n elements, read as one number, has the elements' codes as its digits."""
    lookup = np.array(values_of(list(range(2**dtype.bits)), dtype), np.int8).astype(dtype.array)
    valid = np.isin(np.arange(2**dtype.bits), codes_of(dtype))
    for count in range(16 // dtype.bits + 1):
        size = (count * dtype.bits + 7) // 8
        digits = np.arange(2 ** (count * dtype.bits))[:, None] >> np.arange(count) * dtype.bits & (1 << dtype.bits) - 1
        numbers = np.flatnonzero(valid[digits].all(axis=1))
        elements = lookup[digits[numbers]]
        expected = numbers.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :size]
        packed, unpacked = np.empty_like(expected), np.empty_like(elements)
        for row in range(len(numbers)):
            packed[row] = pack(elements[row], dtype)
            unpacked[row] = unpack(packed[row], dtype, 0, count)
        assert np.array_equal(packed, expected)
        assert np.array_equal(unpacked.view(np.int8), elements.view(np.int8))


@every_packed
def test_every_two_byte_pattern_is_read_right_from_every_start(dtype: DType) -> None:
    stream = np.arange(2**16, dtype="<u2").tobytes()
    expected = np.array(values_of(reference_codes(stream, dtype.bits), dtype), np.int8)
    for start in range(16):
        found = unpack(as_bytes(stream), dtype, start, len(expected) - start)
        assert found.dtype == dtype.array
        assert np.array_equal(found.astype(np.int8), expected[start:])


@every_packed
def test_every_start_and_count_reads_the_elements_it_names(dtype: DType) -> None:
    stream = np.random.default_rng(1).integers(0, 256, 40, np.uint8)
    expected = values_of(reference_codes(stream.tobytes(), dtype.bits), dtype)
    for start, count in product(range(16), range(18)):
        assert ints(unpack(stream, dtype, start, count)) == expected[start : start + count]


@every_packed
def test_every_count_packs_like_the_reference_with_zero_spare_bits(dtype: DType) -> None:
    codes = codes_of(dtype)
    for first, count in product(range(len(codes)), range(18)):
        run = [codes[(first + at * 7) % len(codes)] for at in range(count)]
        elements = np.array(values_of(run, dtype), np.int8).astype(dtype.array)
        stream = pack(elements, dtype)
        assert stream.dtype == np.uint8
        assert stream.tobytes() == reference_stream(run, dtype.bits)
        assert len(stream) == dtype.nbytes(count)


@every_packed
@pytest.mark.parametrize("extra", [-1, 0, 1, 3, 9])
def test_streams_longer_than_one_piece_agree_with_the_reference(dtype: DType, extra: int) -> None:
    count = 2 * PIECE * (8 // dtype.bits) + extra
    elements = random_elements(dtype, count)
    stored = elements.astype(np.int8) > 0 if dtype.name == "t1" else elements.view(np.uint8)
    bits = np.unpackbits(stored.astype(np.uint8)[:, None], axis=1, bitorder="little")[:, : dtype.bits]
    stream = pack(elements, dtype)
    assert stream.tobytes() == np.packbits(bits.reshape(-1), bitorder="little").tobytes()
    for start in (0, 1, 5, count // 2 + 1, count - 1, count):
        assert np.array_equal(unpack(stream, dtype, start, count - start), elements[start:])


@every_packed
def test_the_layout_of_the_array_does_not_matter(dtype: DType) -> None:
    rows = random_elements(dtype, 15 * 7).reshape(15, 7)
    expected = pack(rows.reshape(-1), dtype).tobytes()
    read_only = rows.copy()
    read_only.flags.writeable = False
    unaligned = np.empty(rows.size + 1, dtype.array)[1:]
    unaligned[:] = rows.reshape(-1)
    wide = np.repeat(rows, 2, axis=1)
    for same in (
        rows,
        np.asfortranarray(rows),
        rows[::-1, ::-1].copy()[::-1, ::-1],
        wide[:, ::2],
        read_only,
        unaligned,
    ):
        assert pack(same, dtype).tobytes() == expected


@every_packed
def test_a_scalar_and_an_empty_array_pack(dtype: DType) -> None:
    one = random_elements(dtype, 1)
    assert pack(one.reshape(()), dtype).tobytes() == pack(one, dtype).tobytes()
    for shape in ((0,), (3, 0), (0, 5)):
        assert pack(np.empty(shape, dtype.array), dtype).shape == (0,)
        assert unpack(np.empty(0, np.uint8), dtype, 0, 0).shape == (0,)


@every_packed
def test_a_read_only_stream_unpacks_to_fresh_memory(dtype: DType) -> None:
    stream = as_bytes(bytes(range(1, 9)))
    before = stream.tobytes()
    elements = unpack(stream, dtype, 3, 20)
    elements[:] = elements[::-1].copy()
    assert stream.tobytes() == before


@every_packed
def test_a_strided_stream_is_read_right(dtype: DType) -> None:
    stream = np.random.default_rng(2).integers(0, 256, 64, np.uint8)
    expected = values_of(reference_codes(stream[::-2].tobytes(), dtype.bits), dtype)
    assert ints(unpack(stream[::-2], dtype, 1, 20)) == expected[1:21]


# --- what no writer produces ------------------------------------------------------------------------------------------


def invalid(stream: bytes, dtype: DType, count: int) -> int | None:
    codes = reference_codes(stream, dtype.bits)
    per_byte = 8 // dtype.bits
    for at, code in enumerate(codes):
        if (at >= count and code) or value_of(code, dtype) is None:
            return at // per_byte
    return None


@every_packed
def test_every_invalid_stream_of_one_byte_is_found(dtype: DType) -> None:
    per_byte = 8 // dtype.bits
    for byte, count in product(range(256), range(1, per_byte + 1)):
        stream = bytes([byte])
        assert first_invalid_code(as_bytes(stream), dtype, count) == invalid(stream, dtype, count)


@every_packed
def test_an_invalid_stream_of_two_bytes_names_the_first_bad_byte(dtype: DType) -> None:
    per_byte = 8 // dtype.bits
    for number, count in product(range(0, 2**16, 37), (per_byte + 1, 2 * per_byte)):
        stream = number.to_bytes(2, "little")
        assert first_invalid_code(as_bytes(stream), dtype, count) == invalid(stream, dtype, count)


@every_packed
def test_what_the_writer_packs_is_valid(dtype: DType) -> None:
    for count in (0, 1, 2, 3, 7, 8, 9, 4 * PIECE * 4 + 3):
        assert first_invalid_code(pack(random_elements(dtype, count), dtype), dtype, count) is None


@pytest.mark.parametrize("at", [0, PIECE - 1, PIECE, 2 * PIECE + 7])
def test_a_bad_ternary_code_is_found_in_any_piece(at: int) -> None:
    dtype = DTYPES["t2"]
    stream = pack(random_elements(dtype, 3 * PIECE * 4), dtype)
    stream[at] = 0b01_10_01_01
    stream[-1] = 0b10_10_10_10
    assert first_invalid_code(stream, dtype, 3 * PIECE * 4) == at
