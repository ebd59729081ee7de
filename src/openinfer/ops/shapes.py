"""Shape rules that several ops share."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import inf, log2, prod
from typing import Any

from openinfer.dtypes import DType
from openinfer.errors import counted
from openinfer.loops.dim import at, is_same, is_symbolic, sizes_in, span
from openinfer.ops.record import Call, CostRule, OpCost
from openinfer.ops.types import Shape, parameter_error, shape_error

_MOST_ALONE = 8


def same(call: Call) -> tuple[Shape, ...]:
    """The output has the first input's shape."""
    return (call.shape(0),)


def broadcast(call: Call) -> tuple[Shape, ...]:
    """Shapes of all inputs broadcast as in NumPy."""
    shape: Shape = ()
    for slot, kind in enumerate(call.inputs):
        if kind is not None:
            joined = broadcast_pair(shape, kind.shape)
            if joined is None:
                others = ", ".join(str(other) for other in call.inputs[:slot] if other is not None)
                raise shape_error(f"{kind} does not broadcast with {others}", slot)
            shape = joined
    return (shape,)


def broadcast_pair(one: Shape, other: Shape) -> Shape | None:
    """Two shapes broadcast, or None.

    >>> broadcast_pair((2, 1), (3,)), broadcast_pair((2,), (3,))
    ((2, 3), None)
    """
    rank = max(len(one), len(other))
    pairs = zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True)
    shape = []
    for left, right in pairs:
        if (left != right and 1 not in (left, right)) or _fits_by_accident(left, right):
            return None
        shape.append(_broadcast_extent(left, right))
    return tuple(shape)


def _fits_by_accident(one: int, other: int) -> bool:
    """Whether two extents with dynamic sizes, which can be more than 1, are equal at the bounds but not everywhere.

    Where one of them is 1 and the other is not, it would be stretched, which is not what equal extents compute.
    """
    if is_same(one, other) or not (is_symbolic(one) or is_symbolic(other)):
        return False
    if min(span(one)[1], span(other)[1]) <= 1:
        return False  # what is at most 1 is always stretched
    try:
        return any(at(one, sizes) != at(other, sizes) for sizes in _small_sizes(one, other))
    except ZeroDivisionError:
        return True  # nothing is known about them


def _small_sizes(*extents: int) -> Iterator[Mapping[str, int]]:
    """Some values of the dynamic sizes in extents that are not above their bounds: 0 or 1, one unlike the others."""
    names = sorted({name for extent in extents for name in sizes_in(extent)})
    for other in (0, 1):
        yield dict.fromkeys(names, other)
        yield from ({**dict.fromkeys(names, other), name: 1 - other} for name in names[:_MOST_ALONE])


def _broadcast_extent(one: int, other: int) -> int:
    """The extent of two that broadcast; a dynamic size is no 1, even if its bound is, since it can be 0."""
    if is_same(one, other) or is_same(other, 1):
        return one
    if is_same(one, 1):
        return other
    if span(one)[1] == 1 or span(other)[1] == 1:
        return one * other  # one of them is 0 or 1
    return one


def to_first(call: Call) -> tuple[Shape, ...]:
    """The other inputs broadcast to the first one's shape."""
    shape = call.shape(0)
    for slot, kind in enumerate(call.inputs[1:], start=1):
        if kind is not None and broadcast_pair(shape, kind.shape) != shape:
            raise shape_error(f"{kind} does not broadcast to {call.input(0)}", slot)
    return (shape,)


def axis_of(axis: int, rank: int, name: str = "axis") -> int:
    """An axis counted from the front; negative ones count from the end.

    >>> axis_of(-1, 3)
    2
    """
    if not -rank <= axis < rank:
        dimensions = f"{rank} dimension{'s' * (rank != 1)}"
        raise parameter_error(name, f"there is no axis {axis}: the operand has {dimensions}")
    return axis % rank


def axes_of(axes: Sequence[int] | None, rank: int, name: str = "axes") -> tuple[int, ...]:
    """Axes counted from the front and in order; None means all."""
    if axes is None:
        return tuple(range(rank))
    found = [axis_of(axis, rank, name) for axis in axes]
    if len(set(found)) < len(found):
        raise parameter_error(name, f"{name!r} names an axis twice")
    return tuple(sorted(found))


def per_axis(value: Sequence[int], count: int, name: str, least: int) -> tuple[int, ...]:
    """One integer for each spatial axis: a single one stands for all of them."""
    values = tuple(value) * count if len(value) == 1 else tuple(value)
    if len(values) != count:
        raise parameter_error(
            name, f"{name!r} has {counted(len(values), 'element')}, but there are {counted(count, 'spatial axis')}"
        )
    if any(element < least for element in values):
        raise parameter_error(name, f"the elements of {name!r} are at least {least}")
    return values


def bytes_moved(call: Call) -> tuple[int, int]:
    """The bytes of all inputs and of all outputs."""
    read = sum(kind.nbytes for kind in call.inputs if kind is not None)
    return read, sum(kind.nbytes for kind in call.outputs)


def per_element(flops: int) -> CostRule:
    """A number of operations for each element of the first output."""
    return lambda call: OpCost(flops * prod(call.outputs[0].shape), *bytes_moved(call))


def per_input(flops: int) -> CostRule:
    """A number of operations for each element of the first input."""
    return lambda call: OpCost(flops * call.input(0).size, *bytes_moved(call))


def moves(call: Call) -> OpCost:
    """No arithmetic, only data: as many bytes are read as written, whatever the sizes of the inputs."""
    written = sum(kind.nbytes for kind in call.outputs)
    return OpCost(0, written, written)


def spread(values: Any, axis: int, rank: int) -> Any:
    """A one-dimensional array shaped to broadcast along an axis of a tensor of some rank."""
    return values.reshape([-1 if position == axis else 1 for position in range(rank)])


def gamma(roundings: float, dtype: DType) -> float:
    """The largest relative error after ``k`` roundings, ``k*u / (1 - k*u)``; infinite for too many.

    >>> from openinfer.dtypes import dtype_of
    >>> gamma(1, dtype_of("f8")), gamma(99, dtype_of("f8"))
    (0.14285714285714285, inf)
    """
    grown = roundings * dtype.epsilon / 2
    return grown / (1 - grown) if grown < 1 else inf


def summed(count: float) -> int:
    """How many roundings a term of a sum goes through at most: sums are taken in blocks, and sums of blocks in blocks.

    Blocks have at most 256 terms, so every factor of 256 adds at most 256 roundings, and any other its share of them;
    lanes that are combined, and the last block of each level, add a few.

    >>> summed(100), summed(3_000_000)
    (100, 736)
    """
    return int(min(count, 32 * log2(max(count, 1)) + 48))


def multiplied(terms: int) -> int:
    """How many roundings a product goes through at most in a sum of products: few are added in any order.

    >>> multiplied(100), multiplied(100_000), multiplied(4_000_000)
    (100, 8192, 16649)
    """
    return min(terms, max(8192, 1024 + terms // 256))


def pads_of(value: Sequence[int], count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after each spatial axis: one number, one per axis, or all begins and then all ends.

    >>> pads_of((1,), 2), pads_of((0, 1, 2, 3), 2)
    (((1, 1), (1, 1)), ((0, 1), (2, 3)))
    """
    if len(value) == 2 * count:
        return per_axis(value[:count], count, "pads", 0), per_axis(value[count:], count, "pads", 0)
    if len(value) not in (1, count):
        axes = f"{count} spatial ax{'e' if count != 1 else 'i'}s"
        raise parameter_error("pads", f"'pads' has {counted(len(value), 'element')}, but there are {axes}")
    both = per_axis(value, count, "pads", 0)
    return both, both


def taps(
    far: Sequence[int],
    near: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    begins: Sequence[int],
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
    """How a window slides: for each position ``k`` in it, which ``near`` indices meet which ``far`` ones.

    They meet where ``far = near * stride + k * dilation - begin``. Positions that meet nothing are left out, so that
    padding costs nothing and has no value.

    >>> list(taps((3,), (3,), (2,), (1,), (1,), (1,)))[0]
    ((0,), (slice(1, 3, None),), (slice(0, 2, 1),))
    """
    axes = [list(_axis_taps(*one)) for one in zip(far, near, kernel, strides, dilations, begins, strict=True)]
    for combination in product(*axes):
        yield (
            tuple(tap[0] for tap in combination),
            tuple(tap[1] for tap in combination),
            tuple(tap[2] for tap in combination),
        )


def _axis_taps(
    far: int, near: int, kernel: int, stride: int, dilation: int, begin: int
) -> Iterator[tuple[int, slice, slice]]:
    first = max(0, -((stride * (near - 1) - begin) // dilation))
    last = min(kernel - 1, (far - 1 + begin) // dilation)
    for k in range(first, last + 1):
        start = k * dilation - begin
        low, high = max(0, -(start // stride)), min(near - 1, (far - 1 - start) // stride)
        if low <= high:
            yield k, slice(low, high + 1), slice(start + low * stride, start + high * stride + 1, stride)
