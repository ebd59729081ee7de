"""The rules by which two kernels become one, tried in their order.

What is done to each element of a result is done before it is stored (``sink``); a value that is computed element by
element is computed where it is read (``inline``); what is only put into another order is read or written there
(``relayout``). Another rule is another function in ``RULES``. Every op still rounds as it does alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from openinfer.loops.build import rounded
from openinfer.loops.dim import is_same, is_same_shape
from openinfer.loops.ir import (
    INDEX,
    Buffer,
    Const,
    Contraction,
    Fail,
    If,
    Kernel,
    Let,
    Load,
    Math,
    Scalar,
    ScalarVar,
    Statement,
    Store,
    While,
    factors_of,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import changed, changed_statements, variables_of, without_unused
from openinfer.synth.passes.fuse.naming import buffers_of, free_name, joined_name
from openinfer.synth.passes.fuse.pointwise import expanded_size, expression, pointwise_form, with_names
from openinfer.synth.passes.fuse.relayout import has_long_rows, read_through, stored_through, with_stores

_MOST_PARTS = 2000
"""A larger expression is not worth the memory it saves."""


@dataclass(frozen=True)
class Pair:
    """Two kernels with no name in common, of which one reads what the other writes."""

    producer: Kernel
    consumer: Kernel
    between: Buffer
    """What is written and read, as the consumer calls it."""
    is_slice: bool
    """Whether the producer reads a slice of a table."""
    max_recomputed: int
    """The most operations of an element that is recomputed wherever it is read."""

    @property
    def name(self) -> str:
        """The name of a kernel that computes what both do."""
        return joined_name(self.producer.name, self.consumer.name)


FusionRule = Callable[[Pair], Kernel | None]
"""Two kernels as one; None where the rule does not apply."""


def joined(pair: Pair) -> Kernel | None:
    """What the first rule that applies makes of two kernels."""
    return next((made for rule in RULES if (made := rule(pair)) is not None), None)


# --- what is done to each element of a result, before it is stored ----------------------------------------------------


def sink(pair: Pair) -> Kernel | None:
    """The producer, storing what the consumer makes of each element; the consumer reads it once, where it stands."""
    producer, consumer, target = pair.producer, pair.consumer, pair.between
    form = pointwise_form(consumer)
    if form is None or not _stores_once(producer):
        return None
    loads = [
        one for value in _values(consumer) for one in visit(value) if isinstance(one, Load) and one.buffer == target
    ]
    if not is_same_shape(target.shape, consumer.outputs[0].shape):
        return None
    if not loads or not all(_is_here(one, form.indices) for one in loads):
        return None
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
        name = ScalarVar(free_name("v", "", taken), own.dtype)
        is_named = len(loads) > 1 and not isinstance(own, ScalarVar | Const)
        there = change(store.index, name if is_named else own)
        kept = with_names(form)
        lets = [Let(name, own)] * is_named + [Let(let.var, changed(let.value, there)) for let in kept.lets]
        return [*lets, Store(result, store.index, changed(kept.value, there))]

    def finished(one: Contraction) -> Contraction:
        own = rounded(one.epilogue, out.dtype)
        return replace(one, out=result, epilogue=changed(expression(form), change(one.out_index, own)))

    if any(isinstance(statement, Contraction) and statement.out == out for statement in walk(producer.body)):
        # An epilogue is one expression, without names for its parts.
        grown = [one.epilogue for one in walk(producer.body) if isinstance(one, Contraction) and one.out == out]
        if expanded_size(form) * sum(1 for value in grown for _ in visit(value)) > _MOST_PARTS:
            return None
    return replace(producer, name=pair.name, body=with_stores(producer.body, out, stored, finished))


def _is_here(element: Load, indices: tuple[ScalarVar, ...]) -> bool:
    """Whether an element is the one at the loops' indices; along an axis of extent 1 it may be said to be the first."""
    return all(
        one == index or (one == Const(0, INDEX) and is_same(extent, 1))
        for one, index, extent in zip(element.index, indices, element.buffer.shape, strict=True)
    )


def _values(kernel: Kernel) -> Iterator[Scalar]:
    for statement in walk(kernel.body):
        yield from scalars(statement)


def _stores_once(kernel: Kernel) -> bool:
    """Whether each element of the output is written by one statement, exactly once, and never read."""
    out = kernel.outputs[0]
    if any(isinstance(one, Load) and one.buffer == out for value in _values(kernel) for one in visit(value)):
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
    index = writer.index if isinstance(writer, Store) else writer.out_index
    if not all(isinstance(one, ScalarVar) for one in index) or len(set(index)) < len(index):
        return False
    return isinstance(writer, Contraction) or _is_unconditional(kernel.body, writer)


def _is_unconditional(body: tuple[Statement, ...], writer: Statement) -> bool:
    return not any(isinstance(statement, If) and writer in tuple(walk((statement,))) for statement in walk(body))


# --- elements computed where they are read ----------------------------------------------------------------------------


def inline(pair: Pair) -> Kernel | None:
    """The consumer, computing the producer's elements itself."""
    producer, consumer, target = pair.producer, pair.consumer, pair.between
    form = pointwise_form(producer)
    if form is None or any(target in factors_of(statement) for statement in walk(consumer.body)):
        return None
    if expanded_size(form) > _MOST_PARTS:
        return None
    element = rounded(expression(form), producer.outputs[0].dtype)
    loads = [
        one for value in _values(consumer) for one in visit(value) if isinstance(one, Load) and one.buffer == target
    ]
    operations = sum(
        10 if isinstance(one, Math) else 1 for one in visit(element) if not isinstance(one, ScalarVar | Load)
    )
    if len(loads) > 1 and operations > pair.max_recomputed:
        return None
    if not loads:
        return None

    def change(one: Scalar) -> Scalar | None:
        if not isinstance(one, Load) or one.buffer != target:
            return None
        places = dict(zip(form.indices, one.index, strict=True))
        return changed(element, lambda part: places.get(part) if isinstance(part, ScalarVar) else None)

    # An element that does not depend on where it is read leaves names for places behind.
    return replace(consumer, name=pair.name, body=without_unused(changed_statements(consumer.body, change)))


# --- what is only put into another order ------------------------------------------------------------------------------


def read_elsewhere(pair: Pair) -> Kernel | None:
    """The consumer, reading rows where they lie. Slices of tables are always read in place."""
    if not pair.is_slice and not has_long_rows(pair.between):
        return None
    return read_through(pair.producer, pair.consumer, pair.between)


def store_elsewhere(pair: Pair) -> Kernel | None:
    """The producer, writing rows where the consumer would put them."""
    return stored_through(pair.producer, pair.consumer, pair.between) if has_long_rows(pair.between) else None


RULES: tuple[FusionRule, ...] = (sink, inline, read_elsewhere, store_elsewhere)
