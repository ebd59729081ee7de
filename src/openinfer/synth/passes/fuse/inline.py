"""The rule ``inline``: recomputes a pointwise producer where its elements are read."""

from dataclasses import replace

from openinfer.loops.build import rounded
from openinfer.loops.ir import Kernel, Load, Math, Scalar, ScalarVar, factors_of, visit, walk
from openinfer.loops.rewrite import changed, changed_statements, without_unused
from openinfer.synth.passes.fuse.pair import MAX_PARTS, PRODUCER_NOT_POINTWISE, TOO_LARGE, UNUSED, Pair
from openinfer.synth.passes.fuse.pointwise import expanded_size, expression, pointwise_form
from openinfer.synth.program.refusal import Refusal

_NEEDS_MEMORY = Refusal("the reader is a product or an attention, which reads the value from memory")
_RECOMPUTED = "each element would be computed at {} reads with {} operations, and the limit is {}"


def inline(pair: Pair) -> Kernel | Refusal:
    """The consumer, which computes the producer's elements itself."""
    producer, consumer, target = pair.producer, pair.consumer, pair.between
    form = pointwise_form(producer)
    if form is None:
        return PRODUCER_NOT_POINTWISE
    if any(target in factors_of(statement) for statement in walk(consumer.body)):
        return _NEEDS_MEMORY
    if expanded_size(form) > MAX_PARTS:
        return TOO_LARGE
    element = rounded(expression(form), producer.outputs[0].dtype)
    reads = len(pair.reads)
    operations = sum(
        10 if isinstance(one, Math) else 1 for one in visit(element) if not isinstance(one, ScalarVar | Load)
    )
    if reads > 1 and operations > pair.max_recomputed:
        return Refusal(_RECOMPUTED, (reads, operations, pair.max_recomputed))
    if not reads:
        return UNUSED

    def change(one: Scalar) -> Scalar | None:
        if not isinstance(one, Load) or one.buffer != target:
            return None
        places = dict(zip(form.indices, one.index, strict=True))
        return changed(element, lambda part: places.get(part) if isinstance(part, ScalarVar) else None)

    # If the element does not depend on the position of the read, position variables become unused.
    return replace(consumer, name=pair.name, body=without_unused(changed_statements(consumer.body, change)))
