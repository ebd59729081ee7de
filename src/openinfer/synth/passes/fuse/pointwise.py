"""Pointwise kernels: each element of the result is computed independently, so fusion can move it to its readers."""

from dataclasses import dataclass

from openinfer.loops.ir import For, Kernel, Let, Load, Scalar, ScalarVar, Select, Statement, Store, visit
from openinfer.loops.rewrite import changed


@dataclass(frozen=True)
class Pointwise:
    """A kernel that computes each element of its single output from elements of its inputs, in a perfect loop nest."""

    indices: tuple[ScalarVar, ...]
    lets: tuple[Let, ...]
    value: Scalar


def pointwise_form(kernel: Kernel) -> Pointwise | None:
    """The pointwise form of a kernel; None if it has none."""
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
    """The element as one expression, with its let bindings substituted."""
    known: dict[Scalar, Scalar] = {}

    def put_in(value: Scalar) -> Scalar:
        return changed(value, known.get)

    for let in form.lets:
        known[let.var] = put_in(let.value)
    return put_in(form.value)


def with_names(form: Pointwise) -> Pointwise:
    """The form with let bindings only for what is used more than once, and for loads if there are selects.

    A let-bound load is unconditional. For loads inside a select, gcc 12 generates masked loads, and has been seen to
    use the mask of other elements.
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
    """The size of the element as one expression: a binding counts in full at each use."""
    sizes: dict[Scalar, int] = {}
    for let in form.lets:
        sizes[let.var] = sum(sizes.get(part, 1) for part in visit(let.value))
    return sum(sizes.get(part, 1) for part in visit(form.value))
