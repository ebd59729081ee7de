"""Which ops are computed on codes, and what each does with them: the one place that names ops."""

from collections.abc import Mapping
from math import prod
from typing import Any

from openinfer.ops import Call

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
PRODUCTS = ("linear", "matmul", *CONVOLUTIONS, *TRANSPOSED)
"""Sums of products: computed on codes of 8 bits, exact in i32."""
TABLES = ("embedding", "gather")
"""Rows of a stored table, which is stored in 8 bits."""
RESAMPLED = frozenset({"avg_pool", "global_avg_pool", "mean_axis"})
"""Means, computed in f32 of codes where their result is wanted as codes: their operand is larger than the result."""
LIGHT = frozenset({"add", "sub", "mul"}) | RESAMPLED
"""Computed in f32 of codes, where the result is wanted as codes and an operand has codes anyway."""
JOINING = ("concat", "stack")
"""All operands are of one scale."""
_MOVES = frozenset(
    {
        *("reshape", "flatten", "squeeze", "unsqueeze", "transpose", "flip", "roll", "space_to_depth"),
        *("depth_to_space", "slice", "split", "expand", "tile", "pad", "gather", "take_along", "gather_nd"),
        *("max_pool", "global_max_pool", "max_axis", "min_axis"),
        *JOINING,
    }
)
SELECTING = frozenset({"slice", "split", "gather", "take_along", "gather_nd"})
"""Of these, those that leave values out: what they give may need a smaller range than what they take."""
MOST_FACTORS = 1 << 15
"""More products of 8-bit codes, with zero points and a bias of up to half of i32, could leave it."""


def moves_values(op: str, params: Mapping[str, Any]) -> bool:
    """Whether an op gives values of its operands only, so that it works on codes as it does on numbers."""
    if op == "pad" and params["mode"] == "constant":
        return not params["value"]
    return op in _MOVES


def data_slots(op: str, count: int) -> range:
    """The operands of such an op that are values; others are indices."""
    return range(count) if op in JOINING else range(1)


def rectifies(op: str, params: Mapping[str, Any]) -> float | None:
    """The upper limit of an op that replaces what is below zero by zero, or None where it is not one."""
    if op == "relu" and params["negative_slope"] == 0 and params["clamp_min"] in (None, 0.0):
        return float(params["clamp_max"])
    if op == "clamp" and params["min"] == 0:
        return float(params["max"])
    return None


def weight_axis(op: str, params: Mapping[str, Any]) -> int:
    """The axis of two-dimensional or larger weights along which the channels of the result lie."""
    return 1 if op in TRANSPOSED or (op == "matmul" and not params["transpose_b"]) else 0


def result_axis(op: str, params: Mapping[str, Any], rank: int) -> int:
    """The axis of the result along which its channels lie."""
    return 1 if op in (*CONVOLUTIONS, *TRANSPOSED) and params["layout"] == "NCHW" else rank - 1


def repeats(op: str, params: Mapping[str, Any]) -> int:
    """How often the channels of the weights occur in the result, one after the other."""
    return int(params["groups"]) if op in TRANSPOSED else 1


def multiplies_rows(op: str, params: Mapping[str, Any]) -> bool:
    """Whether an op multiplies the last axis of its first operand with a matrix."""
    return op == "linear" or (op == "matmul" and not params["transpose_a"])


def factors(op: str, call: Call) -> int:
    """How many products a sum has."""
    if op == "matmul":
        shape = call.shape(0)
        return shape[-2] if call.params["transpose_a"] else shape[-1]
    shape = call.shape(1)
    return prod((shape[0] // call.params["groups"], *shape[2:]) if op in TRANSPOSED else shape[1:])


def has_padding(op: str, params: Mapping[str, Any]) -> bool:
    """Whether an op sees zeros around its operand."""
    return op in CONVOLUTIONS and any(params["pads"])
