"""Dtypes and numbers in C."""

from math import copysign, isinf, isnan

import numpy as np

from openinfer.dtypes import DType

STORED = {
    "f8": "uint8_t",
    "bf16": "uint16_t",
    "f16": "uint16_t",
    "f32": "float",
    "f64": "double",
    "bool": "uint8_t",
}
"""What an element of a buffer is in C; packed types share bytes, integers have their own names."""


def stored_type(dtype: DType) -> str:
    """The C type of a buffer's elements; of the bytes that hold them, where several share one."""
    if dtype.is_packed:
        return "uint8_t"
    return STORED.get(dtype.name) or scalar_type(dtype)


def scalar_type(dtype: DType) -> str:
    """The C type of a value in a compute dtype."""
    if dtype.kind == "float":
        return "double" if dtype.name == "f64" else "float"
    if dtype.kind == "bool":
        return "bool"
    return f"{'u' * (dtype.kind == 'uint')}int{dtype.bits}_t"


def literal(value: float, dtype: DType) -> str:
    """A number as C reads back exactly.

    >>> from openinfer.dtypes import dtype_of
    >>> literal(0.1, dtype_of("f32")), literal(-(2**31), dtype_of("i32")), literal(True, dtype_of("bool"))
    ('0.1f', '(-2147483647 - 1)', 'true')
    """
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "float":
        return _float(value, single=dtype.name != "f64")
    number = int(value)
    if dtype.kind == "uint":
        return f"{number}u" if dtype.bits <= 32 else f"UINT64_C({number})"
    if dtype.bits <= 32:
        return f"(-{-(number + 1)} - 1)" if number == -(2**31) else f"({number})" if number < 0 else str(number)
    if number == -(2**63):
        return "(-INT64_C(9223372036854775807) - 1)"
    return f"(-INT64_C({-number}))" if number < 0 else f"INT64_C({number})"


def _float(value: float, *, single: bool) -> str:
    suffix = "f" if single else ""
    if isnan(value):
        return (
            f"(-{'OI_NAN' if single else 'OI_NAN64'})" if copysign(1, value) < 0 else "OI_NAN" if single else "OI_NAN64"
        )
    if isinf(value) or (single and isinf(float(np.float32(value)))):
        name = "OI_INF" if single else "OI_INF64"
        return name if value > 0 else f"(-{name})"
    text = str(np.float32(value)) if single else repr(float(value))
    text = text if any(mark in text for mark in ".en") else f"{text}.0"
    return f"({text}{suffix})" if text.startswith("-") else f"{text}{suffix}"
