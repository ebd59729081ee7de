"""Attention with a dynamic number of queries: each query is computed on its own, by one thread."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from openinfer.loops.build import index
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Attend, Axis, Element, For, Kernel, LoopKind, Scalar, Statement
from openinfer.loops.rewrite import map_statements, replaced, variables_of
from openinfer.synth.targets.simt.wide import FreshNames


def with_own_queries(kernel: Kernel) -> Kernel:
    """A kernel with attention over a dynamic number of queries as parallel loops over attention with one query."""
    names = FreshNames({one.name for one in (*kernel.inputs, *kernel.outputs)})
    names.taken.update(var.name for var in variables_of(kernel.body))

    def changed(one: Statement) -> Iterable[Statement]:
        if not isinstance(one, Attend) or not is_symbolic(one.row.extent):
            return (one,)
        head, row = names.var("head"), names.var("row")
        alone = _alone(one, {one.head.index: head, one.row.index: row})
        rows = For(row, index(one.row.extent), (alone,), LoopKind.PARALLEL)
        return (For(head, index(one.head.extent), (rows,), LoopKind.PARALLEL),)

    return replace(kernel, body=map_statements(kernel.body, changed))


def _alone(one: Attend, parts: Mapping[Scalar, Scalar]) -> Attend:
    """The attention of one query, whose head and row are given."""

    def placed(element: Element) -> Element:
        value = None if element.value is None else replaced(element.value, parts)
        return replace(element, index=tuple(replaced(at, parts) for at in element.index), value=value)

    out = replace(
        one.out, index=tuple(replaced(at, parts) for at in one.out.index), value=replaced(one.out.value, parts)
    )
    return replace(
        one,
        head=Axis(one.head.index, 1),
        row=Axis(one.row.index, 1),
        queries=placed(one.queries),
        score=replaced(one.score, parts),
        out=out,
        until=None if one.until is None else replaced(one.until, parts),
        after=None if one.after is None else replaced(one.after, parts),
    )
