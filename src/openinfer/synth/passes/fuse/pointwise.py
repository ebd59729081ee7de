"""Kernels that compute each element of their result by itself: what fusion can move to where elements are read."""

from dataclasses import dataclass

from openinfer.loops.ir import For, Kernel, Let, Load, Scalar, ScalarVar, Select, Statement, Store, visit
from openinfer.loops.rewrite import changed


@dataclass(frozen=True)
class Pointwise:
    """A kernel that computes each element of its one output from elements of its inputs: a perfect nest of loops."""

    indices: tuple[ScalarVar, ...]
    lets: tuple[Let, ...]
    value: Scalar


def pointwise_form(kernel: Kernel) -> Pointwise | None:
    """The form of a kernel that is one, else None."""
    if len(kernel.outputs) != 1:
        return None
    body: tuple[Statement, ...] = kernel.body
    indices: list[ScalarVar] = []
    while len(body) == 1 and isinstance(body[0], For):
        indices.append(body[0].index)
        body = body[0].body
    if not body or not isinstance(body[-1], Store) or not all(isinstance(one, Let) for one in body[:-1]):
        return None
    store = body[-1]
    if store.buffer != kernel.outputs[0] or store.index != tuple(indices):
        return None
    return Pointwise(tuple(indices), tuple(one for one in body[:-1] if isinstance(one, Let)), store.value)


def expression(form: Pointwise) -> Scalar:
    """The element as one expression, its named parts put in."""
    known: dict[Scalar, Scalar] = {}

    def put_in(value: Scalar) -> Scalar:
        return changed(value, known.get)

    for let in form.lets:
        known[let.var] = put_in(let.value)
    return put_in(form.value)


def with_names(form: Pointwise) -> Pointwise:
    """The form with names only for what is used more than once, and for what is loaded if there are choices.

    What is loaded by name is loaded in any case. Where a value is loaded only if it is chosen, gcc 12 makes loads under
    a mask of it, and has been seen to take the mask of other elements.
    """
    parts = [part for value in (*(let.value for let in form.lets), form.value) for part in visit(value)]
    has_choices = any(isinstance(part, Select) for part in parts)
    once = {
        let.var: let.value
        for let in form.lets
        if parts.count(let.var) < 2 and not (has_choices and any(isinstance(part, Load) for part in visit(let.value)))
    }

    def put_in(value: Scalar) -> Scalar:
        return changed(value, lambda one: put_in(once[one]) if isinstance(one, ScalarVar) and one in once else None)

    lets = tuple(Let(let.var, put_in(let.value)) for let in form.lets if let.var not in once)
    return Pointwise(form.indices, lets, put_in(form.value))


def expanded_size(form: Pointwise) -> int:
    """How many parts the element has as one expression: what is used twice counts twice, and so do its own parts."""
    sizes: dict[Scalar, int] = {}
    for let in form.lets:
        sizes[let.var] = sum(sizes.get(part, 1) for part in visit(let.value))
    return sum(sizes.get(part, 1) for part in visit(form.value))
