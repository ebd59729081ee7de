"""The rule ``sink``: applies a pointwise consumer to each element before the producer stores it."""

from collections.abc import Callable
from dataclasses import replace

from openinfer.loops.affine import affine
from openinfer.loops.build import rounded
from openinfer.loops.dim import is_same, is_same_shape, is_symbolic
from openinfer.loops.ir import (
    INDEX,
    Const,
    Contraction,
    Fail,
    If,
    Kernel,
    Let,
    Load,
    Scalar,
    ScalarVar,
    Statement,
    Store,
    While,
    visit,
    walk,
)
from openinfer.loops.rewrite import changed, variables_of
from openinfer.synth.passes.fuse.naming import buffers_of, free_name
from openinfer.synth.passes.fuse.pair import MAX_PARTS, READER_NOT_POINTWISE, TOO_LARGE, UNUSED, Pair, is_read
from openinfer.synth.passes.fuse.pointwise import expanded_size, expression, pointwise_form, with_names
from openinfer.synth.passes.fuse.stores import with_stores
from openinfer.synth.program.refusal import Refusal

_STORED_IN_PLACES = Refusal("the producer does not store each element in one statement, exactly once")
_OTHER_SHAPE = Refusal("the reader's result has another shape")
_READ_ELSEWHERE = Refusal("the reader takes elements from other positions than those it writes")


def sink(pair: Pair) -> Kernel | Refusal:
    """The producer, storing what the consumer makes of each element, which it may only read in place."""
    producer, consumer, target = pair.producer, pair.consumer, pair.between
    form = pointwise_form(consumer)
    if form is None:
        return READER_NOT_POINTWISE
    if not _stores_once(producer):
        return _STORED_IN_PLACES
    if not is_same_shape(target.shape, consumer.outputs[0].shape):
        return _OTHER_SHAPE
    reads = pair.reads
    if not reads:
        return UNUSED
    if not all(_is_here(one, form.indices) for one in reads):
        return _READ_ELSEWHERE
    out, result = producer.outputs[0], consumer.outputs[0]
    taken = {buffer.name for kernel in (producer, consumer) for buffer in buffers_of(kernel)}
    taken |= {var.name for kernel in (producer, consumer) for var in variables_of(kernel.body)}

    def change(where: tuple[Scalar, ...], own: Scalar) -> Callable[[Scalar], Scalar | None]:
        places = dict(zip(form.indices, where, strict=True))
        return lambda one: (
            places.get(one)
            if isinstance(one, ScalarVar)
            else own
            if isinstance(one, Load) and one.buffer == target
            else None
        )

    def stored(store: Store) -> list[Statement]:
        own = rounded(store.value, out.dtype)
        name = ScalarVar(free_name("v", "v", taken), own.dtype, "v")
        is_named = len(reads) > 1 and not isinstance(own, ScalarVar | Const)
        there = change(store.index, name if is_named else own)
        kept = with_names(form)
        lets = [Let(name, own)] * is_named + [Let(let.var, changed(let.value, there)) for let in kept.lets]
        return [*lets, Store(result, store.index, changed(kept.value, there))]

    def finished(one: Contraction) -> Contraction:
        own = rounded(one.epilogue, out.dtype)
        return replace(one, out=result, epilogue=changed(expression(form), change(one.out_index, own)))

    if any(isinstance(statement, Contraction) and statement.out == out for statement in walk(producer.body)):
        # An epilogue is a single expression, without let bindings.
        grown = [one.epilogue for one in walk(producer.body) if isinstance(one, Contraction) and one.out == out]
        if expanded_size(form) * sum(1 for value in grown for _ in visit(value)) > MAX_PARTS:
            return TOO_LARGE
    return replace(producer, name=pair.name, body=with_stores(producer.body, out, stored, finished))


def _is_here(element: Load, indices: tuple[ScalarVar, ...]) -> bool:
    """Whether a load is at the loop indices; along an axis of extent 1, index 0 is the same."""
    return all(
        one == index or (one == Const(0, INDEX) and is_same(extent, 1))
        for one, index, extent in zip(element.index, indices, element.buffer.shape, strict=True)
    )


def _stores_once(kernel: Kernel) -> bool:
    """Whether each element of the output is written by one statement, exactly once, and never read."""
    out = kernel.outputs[0]
    if is_read(kernel, out):
        return False
    writers = [
        statement
        for statement in walk(kernel.body)
        if (isinstance(statement, Store) and statement.buffer == out)
        or (isinstance(statement, Contraction) and statement.out == out)
    ]
    if len(writers) != 1 or any(isinstance(statement, While | Fail) for statement in walk(kernel.body)):
        return False
    (writer,) = writers
    if isinstance(writer, Contraction):
        return _is_whole(writer)
    index = writer.index
    if not all(isinstance(one, ScalarVar) for one in index) or len(set(index)) < len(index):
        return False
    return _is_unconditional(kernel.body, writer)


def _is_whole(one: Contraction) -> bool:
    """Whether each output index is one free index, or several combined densely, as groups of channels are."""
    extents = dict(zip((var.name for var in one.free), one.extents, strict=True))
    used: list[str] = []
    for part, extent in zip(one.out_index, one.out.shape, strict=True):
        if isinstance(part, ScalarVar):
            used.append(part.name)
            continue
        place = affine(part)
        steps = (
            ()
            if place is None
            else sorted((int(step), extents.get(name, 0), name) for name, step in place.strides.items())
        )
        total = 1
        for step, count, name in steps:
            if is_symbolic(count) or (step != total and count != 1):
                return False
            total *= count
            used.append(name)
        if place is None or place.first or not is_same(total, extent):
            return False
    return len(set(used)) == len(used)


def _is_unconditional(body: tuple[Statement, ...], writer: Statement) -> bool:
    return not any(isinstance(statement, If) and writer in tuple(walk((statement,))) for statement in walk(body))
