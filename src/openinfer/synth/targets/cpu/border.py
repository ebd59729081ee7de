"""Windows on a tensor with a constant border: a convolution reads the unpadded tensor and adds the border itself.

8-bit activations have zero points, so their borders are not zero: a graph has a ``pad`` before the ``conv2d``. Where
the input of the windows is copied anyway, the copy adds the border, and the padded tensor needs no memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from openinfer.loops.affine import Affine, affine
from openinfer.loops.ir import (
    Binary,
    Buffer,
    Compare,
    Const,
    Contraction,
    Kernel,
    Load,
    Scalar,
    ScalarVar,
    Select,
    Statement,
    walk,
)
from openinfer.loops.rewrite import changed, map_statements
from openinfer.synth.passes.fuse.pair import PRODUCER_NOT_POINTWISE, FusionRule, Pair
from openinfer.synth.passes.fuse.pointwise import expression, pointwise_form
from openinfer.synth.program.refusal import Refusal
from openinfer.synth.targets.cpu.window import conditions, is_window

_NO_BORDER = Refusal("the producer is not a constant border around a tensor")
_NO_WINDOWS = Refusal("the reader does not copy windows")


def border_rule(is_copied: Callable[[Contraction], bool]) -> FusionRule:
    """The rule: a convolution for which ``is_copied`` is true adds the border of its input itself."""

    def border(pair: Pair) -> Kernel | Refusal:
        form = pointwise_form(pair.producer)
        if form is None:
            return PRODUCER_NOT_POINTWISE
        element = expression(form)
        if not isinstance(element, Select) or not isinstance(element.then, Load):
            return _NO_BORDER
        if not isinstance(element.otherwise, Const) or element.then.buffer.dtype is not pair.between.dtype:
            return _NO_BORDER
        found = [one for one in walk(pair.consumer.body) if isinstance(one, Contraction) and one.a == pair.between]
        if len(found) != 1 or found[0].b == pair.between or len(pair.reads) > 1:
            return _NO_WINDOWS
        made = _with_border(found[0], form.indices, element)
        if made is None or not is_copied(made):
            return _NO_WINDOWS

        def change(one: Statement) -> tuple[Statement, ...]:
            return (made if one is found[0] else one,)

        return replace(pair.consumer, name=pair.name, body=map_statements(pair.consumer.body, change))

    return border


def _with_border(one: Contraction, indices: Sequence[ScalarVar], element: Select) -> Contraction | None:
    """A contraction that reads ``element``, at the given indices, in place of a tensor of such elements."""
    if one.a_value is not None or one.valid is not None:
        return None
    places = dict(zip(indices, one.a_index, strict=True))
    value = changed(element, lambda part: places.get(part) if isinstance(part, ScalarVar) else None)
    assert isinstance(value, Select)
    assert isinstance(value.then, Load)
    return replace(one, a=value.then.buffer, a_index=value.then.index, a_value=value)


def without_border(one: Contraction) -> tuple[Contraction, int] | None:
    """Windows whose terms are valid inside the first factor, and the value outside of it; None for other contractions.

    The returned contraction is equivalent if the value outside is 0.
    """
    match one.a_value:
        case None:
            found, fill = one, 0
        case Select(cond, Load(buffer, index), Const(value=int(fill))) if buffer == one.a and index == one.a_index:
            if one.valid is not None:
                return None
            found = replace(one, a_index=tuple(map(_unclamped, index)), a_value=None, valid=cond)
        case _:
            return None
    return (found, int(fill)) if is_window(found) and _is_covered(found) else None


def _unclamped(value: Scalar) -> Scalar:
    """A position before it was clamped to the tensor."""
    match value:
        case Binary("min" | "max", inner, Const()) if affine(inner) is not None or _unclamped(inner) is not inner:
            return _unclamped(inner)
        case _:
            return value


def _is_covered(one: Contraction) -> bool:
    """Whether every valid term reads inside the first factor."""
    extents = dict(zip((var.name for var in (*one.free, *one.bound)), (*one.extents, *one.reduced), strict=True))
    asked = [] if one.valid is None else conditions(one.valid)
    edges = [(part.op, affine(part.left - part.right)) for part in asked if isinstance(part, Compare)]
    return all(_is_inside(one.a, axis, affine(part), extents, edges) for axis, part in enumerate(one.a_index))


def _is_inside(
    buffer: Buffer,
    axis: int,
    place: Affine | None,
    extents: dict[str, int],
    edges: Sequence[tuple[str, Affine | None]],
) -> bool:
    if place is None:
        return False
    extent = buffer.shape[axis]
    if not set(place.strides) <= set(extents):
        # It depends on an enclosing loop: the original access is in bounds.
        return True
    last = place.first + sum(step * (extents[name] - 1) for name, step in place.strides.items())
    behind = replace(place, first=place.first - extent)
    return (place.first >= 0 or ("ge", place) in edges) and (last < extent or ("lt", behind) in edges)
