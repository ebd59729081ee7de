"""The 22 element types of tensors: width, range, NumPy type, compute type."""

import sys
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from openinfer.errors import Code, Diagnostic, TensorError, nearest

if sys.byteorder != "little":
    message = "OpenInfer reads little-endian files in place and supports little-endian hosts only"
    raise ImportError(message)

Kind = Literal["float", "int", "uint", "bool"]
DTypeName = Literal[
    "f8", "bf16", "f16", "f32", "f64", "i1", "i2", "i4", "i8", "i16", "i32", "i64",
    "u1", "u2", "u4", "u8", "u16", "u32", "u64", "t1", "t2", "bool",
]  # fmt: skip
"""The names of all dtypes, for type checkers."""


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type. There is exactly one object per type, so ``is`` and ``==`` agree.

    >>> i4 = dtype_of("i4")
    >>> i4.bits, i4.minimum, i4.maximum, i4.compute.name
    (4, -8, 7, 'i8')
    """

    name: str
    kind: Kind
    bits: int
    array: np.dtype[np.generic]
    """The NumPy element type of ``Tensor.to_numpy``."""
    minimum: float
    maximum: float
    compute_name: str
    values: tuple[int, ...] | None = None
    """All values, for types that do not use every code of their width; None for the others."""
    least_normal: float = 0.0
    """The smallest positive normal number of a float."""
    least_positive: float = 0.0
    """The smallest positive number of a float, including subnormals: the most that one underflow loses."""
    epsilon: float = 0.0
    """The distance from 1 to the next larger number of a float."""
    is_saturating: bool = False
    """Whether a cast to this float clamps to its largest finite number instead of overflowing to infinity."""
    tolerance: float = 0.0
    """The default relative error allowed for a value of this float computed by a whole graph."""

    @property
    def is_packed(self) -> bool:
        """Whether several elements share a byte."""
        return self.bits < 8

    @property
    def is_small_float(self) -> bool:
        """Whether this is a float that is stored in fewer bits than it is computed in."""
        return self.kind == "float" and self.compute_name != self.name

    @property
    def has_zero(self) -> bool:
        """Whether 0 is one of its values."""
        return self.values is None or 0 in self.values

    @property
    def initial(self) -> int:
        """The value of an element whose bits are all zero: 0, or the minimum of types without a zero."""
        return 0 if self.has_zero else int(self.minimum)

    @property
    def itemsize(self) -> int:
        """Bytes per element of ``array`` (1 for packed types, which unpack to bytes)."""
        return self.array.itemsize

    @property
    def compute(self) -> "DType":
        """The type in which arithmetic is done: f32 for small floats, a byte for packed integers."""
        return self if self.compute_name == self.name else DTYPES[self.compute_name]

    def nbytes(self, count: int) -> int:
        """The bytes that ``count`` elements occupy in storage.

        >>> dtype_of("i2").nbytes(9)
        3
        """
        return (count * self.bits + 7) // 8

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<dtype {self.name}>"

    def __reduce__(self) -> str | tuple[object, tuple[str]]:
        return "INDEX" if self is INDEX else (dtype_of, (self.name,))


def _float(name: str, array: type[np.generic], compute: str, tolerance: float, *, is_saturating: bool = False) -> DType:
    info: Any = ml_dtypes.finfo(array)  # type: ignore[no-untyped-call]  # ml_dtypes has no types for it.
    return DType(
        *(name, "float", info.bits, np.dtype(array), float(info.min), float(info.max), compute),
        least_normal=float(info.smallest_normal),
        least_positive=float(info.smallest_subnormal),
        epsilon=float(info.eps),
        is_saturating=is_saturating,
        tolerance=tolerance,
    )


def _integer(name: str, array: type[np.generic]) -> DType:
    bits = int(name[1:])
    compute = name if bits >= 8 else name[0] + "8"
    if name[0] == "u":
        return DType(name, "uint", bits, np.dtype(array), 0, 2**bits - 1, compute)
    return DType(name, "int", bits, np.dtype(array), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, compute)


_TABLE = (
    _float("f8", ml_dtypes.float8_e5m2, "f32", 0.2, is_saturating=True),
    _float("bf16", ml_dtypes.bfloat16, "f32", 5e-2),
    _float("f16", np.float16, "f32", 1e-2),
    _float("f32", np.float32, "f32", 1e-4),
    _float("f64", np.float64, "f64", 1e-9),
    _integer("i1", np.int8),
    _integer("i2", ml_dtypes.int2),
    _integer("i4", ml_dtypes.int4),
    _integer("i8", np.int8),
    _integer("i16", np.int16),
    _integer("i32", np.int32),
    _integer("i64", np.int64),
    _integer("u1", np.uint8),
    _integer("u2", ml_dtypes.uint2),
    _integer("u4", ml_dtypes.uint4),
    _integer("u8", np.uint8),
    _integer("u16", np.uint16),
    _integer("u32", np.uint32),
    _integer("u64", np.uint64),
    DType("t1", "int", 1, np.dtype(np.int8), -1, 1, "i8", (-1, 1)),
    DType("t2", "int", 2, np.dtype(np.int8), -1, 1, "i8", (-1, 0, 1)),
    DType("bool", "bool", 8, np.dtype(np.bool_), 0, 1, "bool"),
)

INDEX = DType("index", "int", 64, np.dtype(np.int64), -(2**63), 2**63 - 1, "index")
"""The type of positions in generated code. No tensor or file has it; targets choose its width."""

DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in _TABLE}
ALIASES = {"f8e5m2": "f8", "float8e5m2": "f8"}

_OWN_ARRAY_TYPE = ("i1", "u1", "t1", "t2")
_BY_ARRAY = {dtype.array: dtype for dtype in _TABLE if dtype.name not in _OWN_ARRAY_TYPE}


def dtype_of(name: "str | DType") -> DType:
    """The dtype with this name or alias; a ``DType`` is returned as it is.

    >>> dtype_of("float8e5m2")
    <dtype f8>
    """
    if isinstance(name, DType):
        return name
    found = DTYPES.get(ALIASES.get(name, name)) if isinstance(name, str) else None
    if found is None:
        raise TensorError(
            Diagnostic(
                Code.UNKNOWN_DTYPE,
                f"unknown dtype {name!r}",
                help=nearest(str(name), [*DTYPES, *ALIASES]) or "dtypes are " + ", ".join(DTYPES),
            )
        )
    return found


def from_numpy_dtype(array_dtype: "np.dtype[np.generic]") -> DType | None:
    """The dtype that a NumPy element type corresponds to by itself; None if there is none.

    >>> from_numpy_dtype(np.dtype(">f4"))
    <dtype f32>
    """
    # NumPy's variable-length strings (kind "T") have no byte order to change.
    return None if array_dtype.kind == "T" else _BY_ARRAY.get(array_dtype.newbyteorder("="))
