"""The dtype table and the conversions into it. Knows nothing of files, graphs or execution."""

from openinfer.dtypes.convert import Array, convert
from openinfer.dtypes.packing import Bytes, first_invalid_code, pack, unpack
from openinfer.dtypes.table import ALIASES, DTYPES, INDEX, DType, DTypeName, dtype_of, from_numpy_dtype

__all__ = [
    "ALIASES",
    "DTYPES",
    "INDEX",
    "Array",
    "Bytes",
    "DType",
    "DTypeName",
    "convert",
    "dtype_of",
    "first_invalid_code",
    "from_numpy_dtype",
    "pack",
    "unpack",
]
