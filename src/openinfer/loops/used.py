"""What a kernel's code needs: the memory that it touches, and the sizes that it computes with."""

from collections.abc import Iterator

from openinfer.loops.dim import sizes_in
from openinfer.loops.ir import (
    INDEX,
    Buffer,
    Const,
    Contraction,
    Exchange,
    Kernel,
    Load,
    Scalar,
    ScalarVar,
    Store,
    Structure,
    TileStep,
    WideLoad,
    WideStore,
    children,
    scalars,
    walk,
)


def offset(buffer: Buffer, index: tuple[Scalar, ...]) -> Scalar:
    """The linear position of an element, as printed code computes it."""
    total: Scalar = Const(0, INDEX)
    for one, stride in zip(index, buffer.actual_strides, strict=True):
        total = total + one * Const(stride, INDEX)
    return total


def used_buffers(kernel: Kernel) -> set[str]:
    """The names of the buffers that a kernel loads from or stores to."""
    found = {one.buffer.name for one in _computed(kernel) if isinstance(one, Load)}
    for statement in walk(kernel.body):
        match statement:
            case Store(buffer=buffer) | WideLoad(buffer=buffer) | WideStore(buffer=buffer):
                found.add(buffer.name)
            case Exchange(memory=memory):
                found |= {one.name for one in memory}
            case Contraction(out=out, template=template):
                found |= {one.name for one in (out, *(() if template is None else template.memory))}
            case Structure(results=results):
                found |= {one.buffer.name for one in results}
            case TileStep():
                found |= {one.name for one in (*statement.reads, *statement.writes)}
    return found


def used_sizes(kernel: Kernel) -> set[str]:
    """The dynamic sizes that a kernel certainly computes with.

    The printer of a tiled contraction decides which strides it prints; the extents of its loops are always used.
    """
    found: set[str] = set()
    for one in _computed(kernel):
        if isinstance(one, Const) and isinstance(one.value, int):
            found |= sizes_in(one.value)
    for statement in walk(kernel.body):
        extents: tuple[int, ...] = ()
        match statement:
            case Contraction():
                extents = (*statement.extents, *statement.reduced)
            case Structure(axes=axes):
                extents = tuple(axis.extent for axis in axes)
        found |= {size for extent in extents for size in sizes_in(extent)}
    return found


def used_variables(*values: Scalar) -> set[str]:
    """The names of the variables that printed expressions use; those with stride 0 do not count."""
    return {one.name for value in values for one in _parts(value) if isinstance(one, ScalarVar)}


def _computed(kernel: Kernel) -> Iterator[Scalar]:
    for statement in walk(kernel.body):
        values = scalars(statement)
        match statement:
            case Store(buffer=buffer, index=index, value=value):
                values = (offset(buffer, index), value)
            case WideLoad(buffer=buffer, index=index):
                values = (offset(buffer, index),)
            case WideStore(buffer=buffer, index=index, values=stored):
                values = (offset(buffer, index), *stored)
            case Contraction(out=out, out_index=index):
                values = (offset(out, index), *values[len(index) :])
        if isinstance(statement, Contraction) and statement.template is not None:
            yield from (one for value in values for one in _parts(value) if isinstance(one, Load))
        else:
            yield from (one for value in values for one in _parts(value))


def _parts(value: Scalar) -> Iterator[Scalar]:
    """An expression and everything that is computed for it."""
    stack = [value]
    while stack:
        one = stack.pop()
        yield one
        stack.extend((offset(one.buffer, one.index),) if isinstance(one, Load) else children(one))
