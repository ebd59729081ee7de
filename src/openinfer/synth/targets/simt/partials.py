"""Partial results in memory that threads share."""

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import cast
from openinfer.loops.ir import Buffer, Load, Scalar, ScalarVar, Store


def shared_type(dtype: DType) -> DType:
    """The type of a partial result in memory: one word, or two."""
    return dtype if dtype.bits >= 32 else DTYPES["i32"]


def part_stored(buffer: Buffer, at: tuple[Scalar, ...], part: ScalarVar) -> Store:
    """Stores a partial result."""
    return Store(buffer, at, cast(part, buffer.dtype))


def part_loaded(buffer: Buffer, at: tuple[Scalar, ...], part: ScalarVar) -> Scalar:
    """Loads a partial result."""
    return cast(Load(buffer, at), part.dtype)
