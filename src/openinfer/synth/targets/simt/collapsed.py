"""Loop nests over contiguous elements as one loop: its threads need no quotients to find their elements.

Only nests whose values take long to compute gain by it: others wait for memory, quotients or not.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from openinfer.loops.affine import Affine, position, variables
from openinfer.loops.build import index
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, For, Kernel, Let, Load, LoopKind, Scalar, ScalarVar, Statement, Store, scalars
from openinfer.loops.ir import visit as parts_of
from openinfer.loops.rewrite import Statements, changed, map_statements, with_buffers, with_scalars
from openinfer.synth.targets.simt.flat import time_of
from openinfer.synth.targets.simt.threads import int_extent, nest


def with_collapsed_loops(kernel: Kernel) -> Kernel:
    """A kernel that is such a nest, over arrays with a single axis; any other kernel as it is."""
    loops = tuple(nest(kernel.body[0])) if len(kernel.body) == 1 else ()
    if len(loops) < 2 or any(is_symbolic(int_extent(one.extent)) for one in loops):
        return kernel
    body = loops[-1].body
    if not all(isinstance(one, Let | Store) for one in body) or time_of(body) < 2:
        return kernel
    total = prod(int_extent(one.extent) for one in loops)
    buffers = {buffer.name: buffer for buffer, _ in _accesses(body)}
    dense = {name: replace(one, shape=(total,), strides=None) for name, one in buffers.items() if _is_whole(one, total)}
    if dense.keys() != buffers.keys() or not all(_is_row_major(place, loops) for _, place in _accesses(body)):
        return kernel
    if {one.index.name for one in loops} & variables(*_outside_indices(body)):
        return kernel
    at = loops[-1].index
    flat = map_statements(body, lambda one: (_flat(one, at),))
    return with_buffers(replace(kernel, body=(For(at, index(total), flat, LoopKind.PARALLEL),)), dense)


def _accesses(body: Statements) -> Iterator[tuple[Buffer, Affine | None]]:
    for one in body:
        if isinstance(one, Store):
            yield one.buffer, position(one.buffer, one.index)
        for part in (part for value in scalars(one) for part in parts_of(value)):
            if isinstance(part, Load):
                yield part.buffer, position(part.buffer, part.index)


def _is_whole(buffer: Buffer, total: int) -> bool:
    """Whether a buffer is contiguous and has an element for each iteration."""
    if any(map(is_symbolic, (*buffer.shape, *buffer.actual_strides))):
        return False
    return buffer.strides is None and prod(buffer.shape) == total


def _is_row_major(place: Affine | None, loops: tuple[For, ...]) -> bool:
    """Whether iterations access one element after the other."""
    if place is None or is_symbolic(place.first) or place.first != 0:
        return False
    step, wanted, single = 1, {}, set()
    for one in reversed(loops):
        extent = int_extent(one.extent)
        if extent > 1:
            wanted[one.index.name] = step
        else:
            single.add(one.index.name)
        step *= extent
    return {name: stride for name, stride in place.strides.items() if name not in single} == wanted


def _outside_indices(body: Statements) -> Iterator[Scalar]:
    """What statements compute, without the indices of their accesses."""
    for one in body:
        value = one.value if isinstance(one, Let | Store) else None
        if value is not None:
            yield changed(value, lambda part: ScalarVar(" element", part.dtype) if isinstance(part, Load) else None)


def _flat(one: Statement, at: ScalarVar) -> Statement:
    """A statement with the number of the iteration as index of all accesses."""
    made = with_scalars(
        one,
        lambda value: changed(
            value, lambda part: replace(part, index=(at,)) if isinstance(part, Load) and part.index != (at,) else None
        ),
    )
    return replace(made, index=(at,)) if isinstance(made, Store) else made
