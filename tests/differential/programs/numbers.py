"""The ops of the interpreter, in NumPy alone: integers are held in 64 bits and wrap at their own width.

The signature of an op here is ``(arrays, dtype, params)``, where the dtype is that of the result.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = Any
FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
SIGNED = ("i1", "i2", "i4", "i8", "i16", "i32", "i64")
UNSIGNED = ("u1", "u2", "u4", "u8", "u16", "u32")
TERNARY = ("t1", "t2")
INTEGERS = (*SIGNED, *UNSIGNED)


class FailedError(Exception):
    """A step that fails, with the code that the language gives for it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.codes = {code}
        """Codes that are as good, where operands of one node are wrong in several ways."""


def held_as(dtype: str) -> Any:
    """The NumPy type that holds values of a dtype here."""
    return np.bool_ if dtype == "bool" else FLOATS.get(dtype, np.int64)


def limits(dtype: str) -> tuple[int, int]:
    """The least and the largest integer of a dtype."""
    if dtype in TERNARY:
        return (-1, 1)
    bits = int(dtype[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype in SIGNED else (0, (1 << bits) - 1)


def wrapped(values: Array, dtype: str) -> Array:
    """Integers brought into the range of a dtype; ternary ones are in theirs already."""
    values = np.asarray(values)
    if dtype not in INTEGERS or dtype == "i64":
        return values.astype(held_as(dtype))
    low, high = limits(dtype)
    return (values.astype(np.int64) - low & high - low) + low


def zero(dtype: str) -> Array:
    """What an element is that nothing has given a value: all its bits are zero."""
    return np.asarray(-1 if dtype == "t1" else 0).astype(held_as(dtype))


def converted(values: Array, dtype: str, to: str) -> Array:
    """``cast``: integers wrap, floats are cut and limited, ternary values are limited."""
    if to == "bool":
        return values != 0
    if to in FLOATS:
        return values.astype(held_as(to))
    if to == "t1":
        return np.where(values < 0, -1, 1)
    if to == "t2":
        return np.trunc(np.clip(np.nan_to_num(values.astype(np.float64)), -1, 1)).astype(np.int64)
    if dtype not in FLOATS:
        return wrapped(values.astype(np.int64), to)
    low, high = limits(to)
    wide = np.trunc(np.nan_to_num(values.astype(np.float64), posinf=np.inf, neginf=-np.inf))
    inside = np.where((wide > low) & (wide < high), wide, 0).astype(np.int64)
    return np.where(wide <= low, low, np.where(wide >= high, high, inside))


# --- ops --------------------------------------------------------------------------------------------------------------

Compute = Callable[[Sequence[Array], str, Mapping[str, Any]], Array]


def _arithmetic(function: Callable[..., Array]) -> Compute:
    """On the operands as they are; halves are computed in single precision and rounded once."""

    def compute(arrays: Sequence[Array], dtype: str, _params: Mapping[str, Any]) -> Array:
        wide = [one.astype(np.float32) if dtype == "f16" else one for one in arrays]
        return wrapped(function(*wide), dtype)

    return compute


def _smaller(one: Array, other: Array) -> Array:
    """The smaller of two; of zeros the negative one."""
    return (
        np.where((one == other) & np.signbit(one), one, np.minimum(one, other))
        if _is_float(one)
        else np.minimum(one, other)
    )


def _larger(one: Array, other: Array) -> Array:
    return (
        np.where((one == other) & ~np.signbit(one), one, np.maximum(one, other))
        if _is_float(one)
        else np.maximum(one, other)
    )


def _is_float(array: Array) -> bool:
    return bool(array.dtype.kind == "f")


def _relu(x: Array) -> Array:
    return np.where(np.isnan(x), x, np.where(x > 0, x, 0)) if _is_float(x) else np.maximum(x, 0)


def _quotient(kind: str) -> Compute:
    """Integer division of four kinds; by zero it fails unless the parameter says what the result is."""

    def compute(arrays: Sequence[Array], dtype: str, params: Mapping[str, Any]) -> Array:
        a, b = np.broadcast_arrays(*arrays)
        is_zero = b == 0
        if is_zero.any() and "div_by_zero_mask" not in params:
            raise FailedError("E313", f"{kind} by zero")
        divisor = np.where(is_zero, 1, b)
        floored, left = np.floor_divide(a, divisor), np.remainder(a, divisor)
        # -9223372036854775808 // -1 is the one quotient that does not fit.
        is_cut = (left != 0) & ((a < 0) != (divisor < 0))
        found = {
            "floor_div": floored,
            "mod": left,
            "div": floored + is_cut,
            "rem": left - np.where(is_cut, divisor, 0),
        }[kind]
        return wrapped(np.where(is_zero, params.get("div_by_zero_mask", 0), found), dtype)

    return compute


def _reduction(function: Callable[..., Array], identity: Callable[[str], int]) -> Compute:
    def compute(arrays: Sequence[Array], dtype: str, params: Mapping[str, Any]) -> Array:
        (x,) = arrays
        axes = params.get("axes", tuple(range(x.ndim)))
        wide = x.astype(np.int64) if x.dtype == np.bool_ else x
        found = function(wide, axis=tuple(axes), keepdims=params.get("keepdims", False), initial=identity(dtype))
        return wrapped(found, dtype)

    return compute


def _slice(arrays: Sequence[Array], _dtype: str, params: Mapping[str, Any]) -> Array:
    (x,) = arrays
    region = [slice(None)] * x.ndim
    for axis, start, end in zip(params["axes"], params["starts"], params["ends"], strict=True):
        region[axis] = slice(start, end)
    return x[tuple(region)]


def _iota(arrays: Sequence[Array], dtype: str, params: Mapping[str, Any]) -> Array:
    (x,) = arrays
    shape = [1] * x.ndim
    shape[params["axis"]] = -1
    counted = np.arange(x.shape[params["axis"]]).reshape(shape)
    return wrapped(np.broadcast_to(counted, x.shape), dtype)


def _gather(arrays: Sequence[Array], _dtype: str, params: Mapping[str, Any]) -> Array:
    x, ids = arrays
    extent = x.shape[params["axis"]]
    if ((ids < -extent) | (ids >= extent)).any():
        raise FailedError("E507", "gather")
    return np.take(x, ids, axis=params["axis"])


def _matmul(arrays: Sequence[Array], dtype: str, params: Mapping[str, Any]) -> Array:
    a, b = arrays
    return wrapped(np.matmul(a, b.swapaxes(-1, -2) if params.get("transpose_b", False) else b), dtype)


def _sum(x: Array, axis: tuple[int, ...], keepdims: bool, initial: int) -> Array:
    return np.sum(x, axis=axis, keepdims=keepdims, initial=initial, dtype=x.dtype)


COMPUTE: dict[str, Compute] = {
    **{
        name: _arithmetic(function)
        for name, function in (
            ("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("min", _smaller), ("max", _larger),
            ("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor), ("not", np.invert),
            ("neg", np.negative), ("abs", np.abs), ("square", np.square), ("sign", np.sign), ("relu", _relu),
            ("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal), ("gt", np.greater),
            ("ge", np.greater_equal), ("where", np.where),
        )
    },
    **{kind: _quotient(kind) for kind in ("div", "floor_div", "rem", "mod")},
    "sum_axis": _reduction(_sum, lambda _dtype: 0),
    "max_axis": _reduction(np.max, lambda dtype: limits(dtype)[0]),
    "min_axis": _reduction(np.min, lambda dtype: limits(dtype)[1]),
    "any_axis": lambda arrays, _dtype, params: np.any(arrays[0], axis=params.get("axes")),
    "all_axis": lambda arrays, _dtype, params: np.all(arrays[0], axis=params.get("axes")),
    "cumsum": lambda arrays, dtype, params: wrapped(np.cumsum(arrays[0], axis=params["axis"]), dtype),
    "concat": lambda arrays, _dtype, params: np.concatenate(arrays, axis=params["axis"]),
    "slice": _slice,
    "reshape": lambda arrays, _dtype, params: arrays[0].reshape(params["shape"]),
    "transpose": lambda arrays, _dtype, _params: arrays[0].T,
    "flip": lambda arrays, _dtype, params: np.flip(arrays[0], params["axes"]),
    "matmul": _matmul,
    "iota": _iota,
    "gather": _gather,
    "fill": lambda arrays, dtype, params: np.full(arrays[0].shape, params["value"]).astype(held_as(dtype)),
}  # fmt: skip
"""What ops compute. Ops that are not here are part of the interpreter."""


def computed(
    name: str, arrays: Sequence[Array], dtypes: Sequence[str], dtype: str, params: Mapping[str, Any]
) -> list[Array]:
    """The results of an op."""
    if name == "cast":
        return [np.asarray(converted(arrays[0], dtypes[0], dtype))]
    if name == "split":
        ends = np.cumsum(params["sizes"])[:-1]
        return list(np.split(arrays[0], ends, axis=params["axis"]))
    return [np.asarray(COMPUTE[name](arrays, dtype, params))]
