"""Moves of elements into another shape or order: for each element of the result, where it comes from."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from openinfer.loops.build import Builder, Coordinates, Position, flat, index, select, unflat
from openinfer.loops.dim import expr_of, is_symbolic
from openinfer.loops.ir import Buffer, LoopKind, Scalar, ScalarVar
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.shapes import axes_of, axis_of

SourceCoordinates: TypeAlias = Callable[[Call, KernelInput, tuple[ScalarVar, ...]], Coordinates]
"""The coordinates in the operand that an element of the result comes from."""


def is_zero(extent: int) -> bool:
    """Whether an extent is known to be 0."""
    return extent == 0 and not is_symbolic(extent)


def is_one(extent: int) -> bool:
    """Whether an extent is known to be 1."""
    return extent == 1 and not is_symbolic(extent)


def fill_from(builder: Builder, out: Buffer, element: Callable[[tuple[ScalarVar, ...]], Scalar]) -> None:
    """Every element of the result, one by one; nothing where there is none."""
    if any(is_zero(extent) for extent in out.shape):
        return  # Indices computed for it could divide by an extent of 0.
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        builder.store(out, where, element(where))


def moving(*names: str) -> Callable[[SourceCoordinates], SourceCoordinates]:
    """Make a map of coordinates the lowering of ops with one operand."""

    def register(source: SourceCoordinates) -> SourceCoordinates:
        def lowering(
            call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
        ) -> None:
            (x,), (out,) = inputs, outputs
            assert x is not None
            fill_from(builder, out, lambda where: x[source(call, x, where)])

        lowers(*names)(lowering)
        return source

    return register


# --- the same elements in another shape -------------------------------------------------------------------------------


def _groups(shape: Sequence[int], source: Sequence[int]) -> list[tuple[slice, slice]]:
    """Neighbouring axes of two shapes that have as many elements: positions are the same number in both of them."""
    found: list[tuple[slice, slice]] = []
    i = j = 0
    while i < len(shape) or j < len(source):
        start, elements, others = (i, j), 1, 1
        while (i, j) == start or expr_of(elements) != expr_of(others):
            if i < len(shape) and (elements <= others or j == len(source)):
                elements, i = elements * shape[i], i + 1
            elif j < len(source):
                others, j = others * source[j], j + 1
            else:
                break  # Written in different ways, as sizes may be; there are as many elements all the same.
        found.append((slice(start[0], i), slice(start[1], j)))
    return found


def reshaped(where: Sequence[Position], shape: Sequence[int], source: Sequence[int]) -> Coordinates:
    """The coordinates in an array of another shape with the same row-major index."""
    long = [axis for axis, extent in enumerate(shape) if not is_one(extent)]
    here, extents = [where[axis] for axis in long], [shape[axis] for axis in long]
    others = [extent for extent in source if not is_one(extent)]
    place: list[Position] = []
    for own, other in _groups(extents, others):
        place += unflat(flat(here[own], extents[own]), others[other])
    there = iter(place)
    return tuple(0 if is_one(extent) else next(there) for extent in source)


@moving("reshape", "flatten", "squeeze", "unsqueeze")
def _reshape(call: Call, x: KernelInput, where: tuple[ScalarVar, ...]) -> Coordinates:
    return reshaped(where, call.outputs[0].shape, x.shape)


# --- another order ----------------------------------------------------------------------------------------------------


@moving("transpose")
def _transpose(call: Call, x: KernelInput, where: tuple[ScalarVar, ...]) -> Coordinates:
    rank, perm = len(x.shape), call.params["perm"]
    axes = tuple(reversed(range(rank))) if perm is None else tuple(axis_of(axis, rank) for axis in perm)
    return tuple(where[axes.index(axis)] for axis in range(rank))


@moving("flip")
def _flip(call: Call, x: KernelInput, where: tuple[ScalarVar, ...]) -> Coordinates:
    axes = axes_of(call.params["axes"], len(x.shape))
    return tuple(
        index(extent - 1) - at if axis in axes else at
        for axis, (at, extent) in enumerate(zip(where, x.shape, strict=True))
    )


@moving("roll")
def _roll(call: Call, x: KernelInput, where: tuple[ScalarVar, ...]) -> Coordinates:
    axes, shifts = call.params["axes"], call.params["shifts"]
    place: list[Position] = list(where)
    for given, shift in zip(axes, shifts * len(axes) if len(shifts) == 1 else shifts, strict=True):
        axis = axis_of(given, len(x.shape))
        place[axis] = _rolled(where[axis], shift, x.shape[axis])
    return tuple(place)


def _rolled(at: Scalar, shift: int, extent: int) -> Scalar:
    """``(at - shift) mod extent``."""
    if is_symbolic(extent) or is_symbolic(shift):
        rest = index(shift) % index(extent)
        return (at + index(extent) - rest) % index(extent)
    source = at + index(-shift % extent)
    return select(source >= index(extent), source - index(extent), source)


# --- blocks of pixels -------------------------------------------------------------------------------------------------


@moving("space_to_depth")
def _space_to_depth(call: Call, x: KernelInput, where: tuple[ScalarVar, ...]) -> Coordinates:
    block = call.params["block"]
    image, depth, row, column = where
    i, j, channel = unflat(depth, (block, block, x.shape[1]))
    return image, channel, row * index(block) + i, column * index(block) + j


@moving("depth_to_space")
def _depth_to_space(call: Call, _x: KernelInput, where: tuple[ScalarVar, ...]) -> Coordinates:
    block, channels = call.params["block"], call.outputs[0].shape[1]
    image, channel, row, column = where
    i, j = row % index(block), column % index(block)
    if call.params["order"] == "DCR":
        depth = flat((i, j, channel), (block, block, channels))
    else:
        depth = flat((channel, i, j), (channels, block, block))
    return image, depth, row // index(block), column // index(block)
