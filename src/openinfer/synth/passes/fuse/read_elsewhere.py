"""The rule ``read_elsewhere``: eliminates copies that only move rows; the consumer reads the rows from the source.

Rows must be contiguous in the source too; a contraction reads its factors from there. Weights of few bits that are only
widened are read in stored form, in any order: each element is widened where it is read.
"""

from dataclasses import replace

from openinfer.loops.affine import affine
from openinfer.loops.dim import is_same
from openinfer.loops.ir import (
    Buffer,
    Contraction,
    Element,
    Kernel,
    Load,
    Scalar,
    ScalarVar,
    Statement,
    Structure,
    factors_of,
    walk,
)
from openinfer.loops.rewrite import changed, changed_statements, map_statements, without_unused
from openinfer.synth.passes.fuse.pair import PRODUCER_NOT_POINTWISE, Pair
from openinfer.synth.passes.fuse.pointwise import Pointwise, pointwise_form
from openinfer.synth.passes.fuse.relayout import (
    SHORT_ROWS,
    ScalarCoordinates,
    has_long_rows,
    moved_element,
    widened_element,
)
from openinfer.synth.program.refusal import Refusal

_COMPUTES = Refusal("the producer does more than move elements")
_BREAKS_ROWS = Refusal("rows of the producer's result are not rows of its operand")
_SQUARED = Refusal("the value is both factors of a product")


def read_elsewhere(pair: Pair) -> Kernel | Refusal:
    """The consumer, reading a moved tensor's rows from their source."""
    form = pointwise_form(pair.producer)
    if form is None:
        return PRODUCER_NOT_POINTWISE
    wide = widened_element(form, pair.between) if pair.is_weight else None
    if wide is not None and _can_widen(pair):
        return _read_through(pair.consumer, pair.between, form, wide)
    source = moved_element(form, pair.between) if len(pair.producer.inputs) == 1 else None
    if source is None:
        return _COMPUTES
    # Slices of tables are always read in place.
    if not pair.is_slice and not has_long_rows(pair.between):
        return SHORT_ROWS
    if not _keeps_rows(source, form, pair.between):
        return _BREAKS_ROWS
    if _is_squared(pair.between, pair.consumer):
        return _SQUARED
    return _read_through(pair.consumer, pair.between, form, source)


def _can_widen(pair: Pair) -> bool:
    """Whether the consumer reads elements in expressions, or as one factor of a contraction, which can convert them."""
    statements = [one for one in walk(pair.consumer.body) if pair.between in factors_of(one)]
    is_product = all(isinstance(one, Contraction) for one in statements)
    return is_product and not _is_squared(pair.between, pair.consumer)


def _read_through(consumer: Kernel, target: Buffer, form: Pointwise, source: Load) -> Kernel:
    def placed(where: ScalarCoordinates) -> ScalarCoordinates:
        places = dict(zip(form.indices, where, strict=True))
        return tuple(
            changed(one, lambda part: places.get(part) if isinstance(part, ScalarVar) else None) for one in source.index
        )

    def change(one: Scalar) -> Scalar | None:
        return Load(source.buffer, placed(one.index)) if isinstance(one, Load) and one.buffer == target else None

    def moved(one: Element) -> Element:
        return replace(one, buffer=source.buffer, index=placed(one.index)) if one.buffer == target else one

    def factors(one: Statement) -> tuple[Statement]:
        if isinstance(one, Structure):
            return (one.with_elements(moved),)
        if not isinstance(one, Contraction):
            return (one,)
        left = replace(one, a=source.buffer, a_index=placed(one.a_index)) if one.a == target else one
        return (replace(left, b=source.buffer, b_index=placed(one.b_index)) if one.b == target else left,)

    body = map_statements(consumer.body, factors)
    return replace(consumer, body=without_unused(changed_statements(body, change)))


def _is_squared(buffer: Buffer, kernel: Kernel) -> bool:
    """Whether a contraction has the buffer as both factors: one buffer could not tell the two apart."""
    return any(factors_of(statement).count(buffer) > 1 for statement in walk(kernel.body))


def _keeps_rows(source: Load, form: Pointwise, made: Buffer) -> bool:
    """Whether each index is used exactly once, and rows of the result are contiguous in the source."""
    places = [affine(one) for one in source.index]
    names = [name for place in places if place is not None for name in place.strides]
    chosen = [var.name for var, extent in zip(form.indices, made.shape, strict=True) if not is_same(extent, 1)]
    if not form.indices or None in places or not set(chosen) <= set(names) or len(set(names)) < len(names):
        return False
    last = places[-1]
    return last is not None and is_same(last.first, 0) and is_same(last.stride(form.indices[-1]), 1)
