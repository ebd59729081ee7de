"""Advice for ops that reject sizes only because parts of them round down: multiples that they would accept."""

from collections.abc import Callable, Sequence

from openinfer.importing.extents import has_quotient
from openinfer.ir.expr import Ref, TooDeepError, evaluate
from openinfer.loops.dim import Dim
from openinfer.ops.types import OpError, Shape, TensorType

_STEPS = (2, 4, 8, 16, 32, 64, 128)
_BOUND = 1 << 10
"""The size that the op is tried with again; the outcome does not depend on it."""
Types = Sequence[TensorType | None]


def multiple_advice(types: Types, attempt: Callable[[Types], object]) -> str | None:
    """Advice for extents that differ only by rounding; None if rounding is not the cause."""
    if not any(has_quotient(extent) for one in types if one is not None for extent in one.shape):
        return None
    for step in _STEPS:
        try:
            attempt([None if one is None else TensorType(one.dtype, _multiples(one.shape, step)) for one in types])
        except (OpError, TooDeepError, ZeroDivisionError):
            continue
        return f"it can where sizes are multiples of {step}: --size 'NAME={step}*n' --size 'n<=BOUND'"
    return None


def _multiples(shape: Shape, step: int) -> Shape:
    return tuple(
        evaluate(one.expr, lambda name: Dim(_BOUND, Ref(name)) * step) if isinstance(one, Dim) else one for one in shape
    )
