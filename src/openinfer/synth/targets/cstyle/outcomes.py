"""Comparisons of integers whose outcome compilers can tell, and about which they would warn."""

from operator import eq, ge, gt, le, lt, ne

from openinfer.dtypes import DTYPES, INDEX
from openinfer.loops.dim import Dim
from openinfer.loops.ir import Binary, Cast, Const, Scalar
from openinfer.synth.targets.cstyle.widths import Widths

_COMPARED = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}
REFLEXIVE = ("eq", "le", "ge")
"""The comparisons that hold between a number and itself."""


def is_truth(value: Scalar) -> bool:
    """Whether an integer is a bool, 0 or 1: compilers see through casts, and warn about comparing it with more."""
    while isinstance(value, Cast) and value.dtype.kind != "float":
        value = value.operand
    return value.dtype.kind == "bool"


def outcome_of(op: str, left: Scalar, right: Scalar, widths: Widths) -> bool | None:
    """The outcome of a comparison of integers that is always the same: with itself, or with a limit of its type.

    Compilers see through widening casts, and know which bits a mask leaves.
    """
    if left.dtype.kind == "float":
        return None
    if left == right:
        return op in REFLEXIVE
    if isinstance(left, Const) and not isinstance(right, Const):
        return outcome_of({"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(op, op), right, left, widths)
    if not isinstance(right, Const) or isinstance(right.value, Dim):
        return None
    if is_truth(left):
        outcomes = {_COMPARED[op](truth, right.value) for truth in (0, 1)}
        return outcomes.pop() if len(outcomes) == 1 else None
    inner = _before_widening(left)
    if op in ("eq", "ne") and _clears(inner, int(right.value)):
        return op == "ne"
    least, most = inner.dtype.minimum, inner.dtype.maximum
    if left.dtype is INDEX and widths.is_narrow(left):
        least, most = DTYPES["i32"].minimum, DTYPES["i32"].maximum
    if not least <= right.value <= most:
        return bool(_COMPARED[op](least, right.value))
    ends = {"lt": (least, False), "ge": (least, True), "gt": (most, False), "le": (most, True)}
    end, outcome = ends.get(op, (None, False))
    return outcome if right.value == end else None


def _before_widening(value: Scalar) -> Scalar:
    """An integer before it was cast to types that hold all of its values."""
    while (
        isinstance(value, Cast) and value.dtype.kind in ("int", "uint") and value.operand.dtype.kind in ("int", "uint")
    ):
        own, wide = value.operand.dtype, value.dtype
        if not (wide.minimum <= own.minimum and own.maximum <= wide.maximum):
            break
        value = value.operand
    return value


def _clears(value: Scalar, number: int) -> bool:
    """Whether a mask clears bits of an integer that a number has."""
    match value:
        case Binary("and", _, Const(mask)) | Binary("and", Const(mask), _) if not isinstance(mask, Dim):
            return number & ~int(mask) != 0
        case _:
            return False
