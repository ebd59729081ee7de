"""Which ops are computed on codes, and how each treats them: the only module that names ops."""

from collections.abc import Mapping
from math import prod
from typing import Any

from openinfer.ops import Call

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
PRODUCTS = ("linear", "matmul", *CONVOLUTIONS, *TRANSPOSED)
"""Sums of products: computed on 8-bit codes, exact in i32."""
TABLES = ("embedding", "gather")
"""Rows of a stored table, which is kept in 8 bits."""
RESAMPLED = frozenset({"avg_pool", "global_avg_pool", "mean_axis"})
"""Means, computed in f32 from codes if their result is wanted as codes: their operand is larger than the result."""
LIGHT = frozenset({"add", "sub", "mul"}) | RESAMPLED
"""Computed in f32 from codes, if the result is wanted as codes and an operand has codes anyway."""
JOINING = ("concat", "stack")
"""All operands share one scale."""
_MOVES = frozenset(
    {
        *("reshape", "flatten", "squeeze", "unsqueeze", "transpose", "flip", "roll", "space_to_depth"),
        *("depth_to_space", "slice", "split", "expand", "tile", "pad", "gather", "take_along", "gather_nd"),
        *("max_pool", "global_max_pool", "max_axis", "min_axis"),
        *JOINING,
    }
)
SELECTING = frozenset({"slice", "split", "gather", "take_along", "gather_nd"})
"""The moves that drop values: their result may need a smaller range than their operand."""
MOST_FACTORS = 1 << 15
"""Sums of more 8-bit products, with zero points and a bias of up to half of i32, could overflow i32."""


def moves_values(op: str, params: Mapping[str, Any]) -> bool:
    """Whether an op only moves values of its operands, so that it works on codes as it does on numbers."""
    if op == "pad" and params["mode"] == "constant":
        return not params["value"]
    return op in _MOVES


def data_slots(op: str, count: int) -> range:
    """The operands of such an op that are values; the others are indices."""
    return range(count) if op in JOINING else range(1)


def rectifies(op: str, params: Mapping[str, Any]) -> float | None:
    """The upper limit of an op that clips negatives to zero, or None if it is a different op."""
    if op == "relu" and params["negative_slope"] == 0 and params["clamp_min"] in (None, 0.0):
        return float(params["clamp_max"])
    if op == "clamp" and params["min"] == 0:
        return float(params["max"])
    return None


def weight_axis(op: str, params: Mapping[str, Any]) -> int:
    """The axis of weights, two-dimensional or larger, that holds the channels of the result."""
    return 1 if op in TRANSPOSED or (op == "matmul" and not params["transpose_b"]) else 0


def result_axis(op: str, params: Mapping[str, Any], rank: int) -> int:
    """The channel axis of the result."""
    return 1 if op in (*CONVOLUTIONS, *TRANSPOSED) and params["layout"] == "NCHW" else rank - 1


def repeats(op: str, params: Mapping[str, Any]) -> int:
    """How many times the channels of the weights occur in the result, one after the other."""
    return int(params["groups"]) if op in TRANSPOSED else 1


def multiplies_rows(op: str, params: Mapping[str, Any]) -> bool:
    """Whether an op multiplies the last axis of its first operand by a matrix."""
    return op == "linear" or (op == "matmul" and not params["transpose_a"])


def factors(op: str, call: Call) -> int:
    """The number of products in a sum."""
    if op == "matmul":
        shape = call.shape(0)
        return shape[-2] if call.params["transpose_a"] else shape[-1]
    shape = call.shape(1)
    return prod((shape[0] // call.params["groups"], *shape[2:]) if op in TRANSPOSED else shape[1:])


def has_padding(op: str, params: Mapping[str, Any]) -> bool:
    """Whether an op pads its operand with zeros."""
    return op in CONVOLUTIONS and any(params["pads"])
