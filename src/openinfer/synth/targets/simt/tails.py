"""Tails: consumers of a product of few vectors, where each iteration reads few of the results.

Examples are a rotation of pairs and a permutation. A subgroup computes all rows whose results an iteration reads, and
its first thread runs the iteration. So nothing waits for the product as a whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from openinfer.loops.affine import position, variables
from openinfer.loops.build import index
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, For, Let, Load, Scalar, ScalarVar, Statement, Store, scalars, visit
from openinfer.loops.rewrite import Statements, changed_statements, renamed, replaced, variables_of
from openinfer.synth.targets.simt.independent import as_parallel
from openinfer.synth.targets.simt.products import VectorProduct
from openinfer.synth.targets.simt.threads import int_extent, nest
from openinfer.synth.targets.simt.wide import FreshNames

_MOST_READS = 2
"""Rows that a subgroup computes at once."""


@dataclass(frozen=True)
class ProductTail:
    """Independent iterations, each of which reads distinct results of one product."""

    rows: tuple[tuple[ScalarVar, int], ...]
    """The indices of an iteration, with their extents."""
    body: Statements
    reads: tuple[Load, ...]
    """Results that an iteration reads."""

    def statements(self, at: dict[Scalar, Scalar], found: dict[Scalar, Scalar], names: FreshNames) -> Statements:
        """The iteration at ``at``; ``found`` has values for the results that it reads."""
        own = {var.name: names.var(var.name, var.dtype) for var in variables_of(self.body)}
        placed = changed_statements(renamed(self.body, own), at.get)
        return changed_statements(placed, found.get)


def tail_of(one: Statement, product: VectorProduct) -> ProductTail | None:
    """A statement as the tail of a product; None if it is something else."""
    loops, out = tuple(nest(as_parallel(one))) if isinstance(one, For) else (), product.one.out
    extents = [int_extent(each.extent) for each in loops]
    body = loops[-1].body if loops else ()
    if not body or any(map(is_symbolic, extents)) or not all(isinstance(each, Let | Store) for each in body):
        return None
    reads = tuple(dict.fromkeys(_loads(body, out)))
    indices = {each.index.name for each in loops}
    is_known = all(variables(part) <= indices and not _has_load(part) for read in reads for part in read.index)
    is_apart = not any(isinstance(each, Store) and each.buffer == out for each in body)
    is_one = all(extent == 1 for _, extent in product.inside)
    if not (is_known and is_apart and is_one and 0 < len(reads) <= _MOST_READS):
        return None
    made = ProductTail(tuple(zip((each.index for each in loops), extents, strict=True)), body, reads)
    return made if _reads_once(made, out) else None


def _reads_once(tail: ProductTail, out: Buffer) -> bool:
    """Whether each result is read exactly once: none is recomputed, and none is unused."""
    found: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
    shape = [extent for _, extent in tail.rows]
    total = prod(map(int, out.shape))
    for place in (position(out, read.index) for read in tail.reads):
        if place is None or is_symbolic(place.first) or any(map(is_symbolic, place.strides.values())):
            return False
        at = np.full(shape, place.first, np.int64)
        for axis, (var, extent) in enumerate(tail.rows):
            steps = np.arange(extent, dtype=np.int64) * place.stride(var)
            at += steps.reshape([extent if other == axis else 1 for other in range(len(shape))])
        found.append(at.ravel())
    places = np.unique(np.concatenate(found))
    return len(places) == total == len(found) * prod(shape)


def _loads(body: Statements, buffer: Buffer) -> Iterator[Load]:
    parts = (part for one in body for value in scalars(one) for part in visit(value))
    return (part for part in parts if isinstance(part, Load) and part.buffer == buffer)


def _has_load(value: Scalar) -> bool:
    return any(isinstance(part, Load) for part in visit(value))


def tail_products(product: VectorProduct, tail: ProductTail) -> Sequence[VectorProduct]:
    """The product, once for each result that an iteration reads, restricted to the row of that result."""
    return [one for read in tail.reads if (one := _of_read(product, tail, read)) is not None]


def _of_read(product: VectorProduct, tail: ProductTail, read: Load) -> VectorProduct | None:
    one = product.one
    known: dict[Scalar, Scalar] = {var: index(0) for var, _ in product.inside}
    places = zip(one.out_index, read.index, strict=True)
    known |= {part: place for part, place in places if isinstance(part, ScalarVar)}
    if any(var not in known for var, _ in product.rows):
        return None
    own = replace(one, out_index=read.index, epilogue=replaced(one.epilogue, known))
    factor, vector = replaced(product.factor, known), replaced(product.vector, known)
    scale = None if product.scale is None else replaced(product.scale, known)
    return replace(product, one=own, factor=factor, vector=vector, rows=tail.rows, inside=(), scale=scale)
