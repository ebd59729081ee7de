"""Ops that join tensors, cut parts out of them, repeat them and add borders."""

from collections.abc import Iterator

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import Advice, Fix, FixPlace, counted
from openinfer.loops.dim import is_symbolic, larger, smaller, span
from openinfer.ops.cases import case, special
from openinfer.ops.move import moving, settings
from openinfer.ops.numeric import leaving
from openinfer.ops.record import REQUIRED, Call, Case, Cases, OpCost, Param
from openinfer.ops.shapes import axis_of, bytes_moved
from openinfer.ops.types import Shape, parameter_error, shape_error

_PADDING = Advice("value=1 or value=-1", *(Fix(f"value={one}", place=FixPlace.ARGUMENT) for one in (1, -1)))


def _copies(call: Call) -> OpCost:
    """Every input is read once, however often its elements are written."""
    return OpCost(0, *bytes_moved(call))


# --- joining ----------------------------------------------------------------------------------------------------------


def _joining(*shapes: tuple[tuple[Shape, ...], int]) -> Cases:
    """One case for each list of shapes and axis."""

    def cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
        for operands, axis in shapes:
            yield case(dtype, *(special(rng, dtype, shape) for shape in operands), axis=axis)

    return cases


def _concatenated(call: Call) -> tuple[Shape, ...]:
    first = call.input(0)
    axis = axis_of(call.params["axis"], len(first.shape))
    before, after = first.shape[:axis], first.shape[axis + 1 :]
    length = 0
    for slot in range(len(call.inputs)):
        kind = call.input(slot)
        if len(kind.shape) != len(first.shape) or (kind.shape[:axis], kind.shape[axis + 1 :]) != (before, after):
            raise shape_error(f"{kind} does not fit {first}: their extents may differ along axis {axis} only", slot)
        length += kind.shape[axis]
    return ((*before, length, *after),)


@moving(
    Param("axis", "int", REQUIRED, "The axis along which the operands follow one another."),
    text="x...: T -> T",
    shape=_concatenated,
    cost=_copies,
    cases=_joining(
        (((7,),), 0),
        (((1,), (7,)), -1),
        (((2, 3), (1, 3), (4, 3)), 0),
        (((2, 3), (2, 1)), -1),
        (((2, 0, 3), (2, 5, 3)), 1),
        (((0,), (0,)), 0),
        (((2, 3, 5), (2, 2, 5), (2, 1, 5), (2, 3, 5)), -2),
    ),
)
def concat(call: Call, *x: Array) -> Array:
    """The operands one after another along an axis, as long as all of theirs together: `y = [a, b, ...]`."""
    return np.concatenate(x, call.params["axis"])


def _stacked(call: Call) -> tuple[Shape, ...]:
    first = call.input(0)
    for slot in range(1, len(call.inputs)):
        if call.shape(slot) != first.shape:
            raise shape_error(f"{call.input(slot)} cannot be stacked on {first}: their shapes differ", slot)
    axis = axis_of(call.params["axis"], len(first.shape) + 1)
    return ((*first.shape[:axis], len(call.inputs), *first.shape[axis:]),)


@moving(
    Param("axis", "int", REQUIRED, "Position of the new axis in the result."),
    text="x...: T -> T",
    shape=_stacked,
    cost=_copies,
    cases=_joining(
        (((),), 0),
        (((), ()), -1),
        (((7,), (7,)), 1),
        (((2, 3), (2, 3), (2, 3)), -2),
        (((2, 3, 1), (2, 3, 1)), 0),
        (((2, 0), (2, 0)), 1),
    ),
)
def stack(call: Call, *x: Array) -> Array:
    """The operands one after another along a new axis, `y[..., i, ...] = x_i[..., ...]`."""
    return np.stack(x, call.params["axis"])


# --- cutting ----------------------------------------------------------------------------------------------------------


def _parts(call: Call) -> tuple[Shape, ...]:
    x, sizes = call.input(0), call.params["sizes"]
    axis = axis_of(call.params["axis"], len(x.shape))
    extent = x.shape[axis]
    if sizes is None:
        count = len(call.wanted)
        if count == 0:
            raise parameter_error("sizes", "without 'sizes', the number of outputs must be known")
        if extent % count:
            message = f"axis {axis} of {x} does not divide into {count} equal parts"
            raise parameter_error("sizes", message, "sizes=[...] gives the extent of each part")
        sizes = (extent // count,) * count
    if not sizes or any(size < 0 for size in sizes) or sum(sizes) != extent:
        message = (
            f"{list(sizes)} are not the sizes of parts of {x}: together they are the extent {extent} of axis {axis}"
        )
        raise parameter_error("sizes", message)
    return tuple((*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in sizes)


@moving(
    Param("axis", "int", REQUIRED, "The axis to cut."),
    Param("sizes", "ints", None, "The extent of each part along the axis; absent means equal parts, one per output."),
    text="x: T -> y...: T",
    shape=_parts,
    cases=settings(
        ((7,), {"axis": 0, "sizes": (3, 4)}),
        ((7,), {"axis": -1, "sizes": 7}),
        ((3, 5), {"axis": 1, "sizes": (1, 0, 4)}),
        ((4, 6), {"axis": -2, "sizes": (2, 1, 1)}),
        ((2, 0, 3), {"axis": 2, "sizes": (1, 2)}),
        ((2, 0, 3), {"axis": 1, "sizes": (0, 0)}),
    ),
)
def split(call: Call, x: Array) -> tuple[Array, ...]:
    """Parts of a tensor along an axis, in order; `concat` of them is the tensor again."""
    axis = axis_of(call.params["axis"], x.ndim)
    ends = np.cumsum([kind.shape[axis] for kind in call.outputs])
    return tuple(np.split(x, ends[:-1], axis))


def _slices(call: Call) -> tuple[slice, ...]:
    """What is taken of every axis."""
    rank, params = len(call.shape(0)), call.params
    starts, ends = params["starts"], params["ends"]
    axes = tuple(range(len(starts))) if params["axes"] is None else params["axes"]
    steps = (1,) * len(starts) if params["steps"] is None else params["steps"]
    for name, values in (("ends", ends), ("axes", axes), ("steps", steps)):
        if len(values) != len(starts):
            raise parameter_error(
                name, f"{name!r} has {counted(len(values), 'element')}, but 'starts' has {len(starts)}"
            )
    if 0 in steps:
        raise parameter_error("steps", "a step is not 0")
    taken = [slice(None)] * rank
    along = [axis_of(axis, rank, "axes") for axis in axes]
    if len(set(along)) < len(along):
        raise parameter_error("axes", "'axes' names an axis twice")
    for axis, *bounds in zip(along, starts, ends, steps, strict=True):
        taken[axis] = slice(*bounds)
    return tuple(taken)


def _sliced(call: Call) -> tuple[Shape, ...]:
    pairs = zip(_slices(call), call.shape(0), strict=True)
    return (tuple(_taken(part, extent) for part, extent in pairs),)


def _taken(part: slice, extent: int) -> int:
    """How many elements a slice takes of an axis; where its extent or a bound is a symbol, an expression of them."""
    if part == slice(None):
        return extent
    if is_symbolic(extent) or not any(is_symbolic(one) for one in (part.start, part.stop) if one is not None):
        return _taken_of(part, extent)
    start, end = (0 if part.start is None else part.start), (extent if part.stop is None else part.stop)
    start, end = (one + extent if one < 0 else one for one in (start, end))
    # Below the bounds of the sizes, a run checks the extent that is declared.
    if part.step not in (None, 1) or not 0 <= start <= end <= extent:
        message = "a cut that depends on a dynamic size has the step 1 and lies within the axis"
        raise parameter_error("ends", message)
    return end - start


def _taken_of(part: slice, extent: int) -> int:
    """How many elements a slice takes of an axis, at every value of a dynamic size that its extent may be."""
    step = part.step or 1
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    start, end = (
        edge if given is None else given + extent if given < 0 else given
        for given, edge in ((part.start, low if step > 0 else high), (part.stop, high if step > 0 else low))
    )
    if step == 1 and span(start)[0] >= 0:
        # A start behind the extent leaves nothing, as one at it does.
        return larger(smaller(end, high) - start, 0)
    start, end = (smaller(larger(one, low), high) for one in (start, end))
    return larger((end - start + step - 1) // step if step > 0 else (start - end - step - 1) // -step, 0)


@moving(
    Param("starts", "ints", REQUIRED, "The first index along each axis; negative ones count from the end."),
    Param("ends", "ints", REQUIRED, "The index before which to stop; negative ones count from the end."),
    Param("axes", "ints", None, "The axes that are cut; absent means the first ones, in order."),
    Param("steps", "ints", None, "The distance between elements, negative for backwards; absent means 1."),
    shape=_sliced,
    cases=settings(
        ((7,), {"starts": 2, "ends": 5}),
        ((7,), {"starts": -3, "ends": 1000}),
        ((7,), {"starts": 6, "ends": -1000, "steps": -2}),
        ((7,), {"starts": 5, "ends": 2}),
        ((3, 5), {"starts": (0, 1), "ends": (2, -1), "steps": (1, 2)}),
        ((3, 5), {"starts": (-1,), "ends": (0,), "axes": (-1,), "steps": (-1,)}),
        ((2, 3, 4), {"starts": (1, 0), "ends": (2, 4), "axes": (0, 2), "steps": (1, 3)}),
        ((2, 0, 3), {"starts": (0, -1), "ends": (5, 9), "axes": (1, 0)}),
        ((), {"starts": (), "ends": ()}),
    ),
)
def slice_(call: Call, x: Array) -> Array:
    """A part of a tensor, along each axis `y[i] = x[start + i * step]` while before `end`.

    Bounds are as in NumPy: negative ones count from the end, those outside mean the border. With a negative step an
    `end` of -1 is the last element; any number below `-extent` goes on to the first one.
    """
    return x[_slices(call)]


# --- repeating --------------------------------------------------------------------------------------------------------


def _expanded(call: Call) -> tuple[Shape, ...]:
    x, shape = call.input(0), call.params["shape"]
    fault = shape_error(f"{x} does not broadcast to {list(shape)}", "shape")
    new = len(shape) - len(x.shape)
    if new < 0:
        raise fault
    result: list[int] = []
    for own, extent in zip((None,) * new + x.shape, shape, strict=True):
        wanted = own if extent == -1 else extent
        if wanted is None or wanted < 0 or own not in (None, 1, wanted):
            raise fault
        result.append(wanted)
    return (tuple(result),)


@moving(
    Param("shape", "ints", REQUIRED, "The extents of the result; -1 keeps that of `x`."),
    shape=_expanded,
    cost=_copies,
    cases=settings(
        ((), {"shape": ()}),
        ((), {"shape": (2, 3)}),
        ((1,), {"shape": 7}),
        ((3, 1), {"shape": (3, 5)}),
        ((3, 1, 5), {"shape": (2, -1, 4, -1)}),
        ((2, 1), {"shape": (2, 0)}),
        ((2, 0, 1), {"shape": (2, 0, 3)}),
    ),
)
def expand(call: Call, x: Array) -> Array:
    """The operand broadcast to `shape`: axes of extent 1 are repeated, and new ones come in front."""
    return np.broadcast_to(x, call.outputs[0].shape)


def _tiled(call: Call) -> tuple[Shape, ...]:
    shape, repeats = call.shape(0), call.params["repeats"]
    if any(count < 0 for count in repeats):
        raise parameter_error("repeats", f"a tensor cannot be repeated {counted(min(repeats), 'time')}")
    rank = max(len(shape), len(repeats))
    pairs = zip((1,) * (rank - len(shape)) + shape, (1,) * (rank - len(repeats)) + repeats, strict=True)
    return (tuple(extent * count for extent, count in pairs),)


@moving(
    Param("repeats", "ints", REQUIRED, "How often along each axis; for fewer axes than `x` has, the last ones."),
    shape=_tiled,
    cost=_copies,
    cases=settings(
        ((), {"repeats": ()}),
        ((), {"repeats": 3}),
        ((7,), {"repeats": 2}),
        ((3, 5), {"repeats": (2, 1)}),
        ((3, 5), {"repeats": 3}),
        ((3, 1), {"repeats": (2, 1, 4)}),
        ((3, 5), {"repeats": (0, 2)}),
        ((2, 0, 3), {"repeats": (1, 2, 2)}),
    ),
)
def tile(call: Call, x: Array) -> Array:
    """Copies of the operand side by side, along each axis `y[i] = x[i mod extent]`."""
    return np.tile(x, call.params["repeats"])


# --- borders ----------------------------------------------------------------------------------------------------------


def _pads(call: Call) -> list[tuple[int, int]]:
    """What is added before and after each axis."""
    rank, pads = len(call.shape(0)), call.params["pads"]
    if len(pads) == 1:
        pads *= 2 * rank
    if len(pads) != 2 * rank:
        message = f"'pads' has {counted(len(pads), 'element')}, but {call.input(0)} needs {2 * rank}"
        raise parameter_error("pads", message, "pads = [begin of each axis..., end of each axis...]")
    if any(count < 0 for count in pads):
        raise parameter_error("pads", "'pads' are not negative", "slice takes elements away")
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _padded(call: Call) -> tuple[Shape, ...]:
    x, mode, pads = call.input(0), call.params["mode"], _pads(call)
    if mode == "constant" and not x.dtype.has_zero and call.params["value"] is None:
        raise parameter_error("value", f"{x.dtype} has no 0 to pad with", _PADDING)
    for axis, (extent, added) in enumerate(zip(x.shape, pads, strict=True)):
        if mode != "constant" and extent == 0 and any(added):
            raise shape_error(f"axis {axis} of {x} is empty: there is nothing to pad it with", 0)
    return (tuple(extent + sum(added) for extent, added in zip(x.shape, pads, strict=True)),)


def _pad_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    least = int(max(dtype.minimum, -3))
    yield case(dtype, special(rng, dtype, ()), pads=(), value=least)
    yield case(dtype, special(rng, dtype, (7,)), pads=2, value=least)
    yield case(dtype, special(rng, dtype, (3, 5)), pads=(1, 0, 0, 2), mode="constant", value=int(min(dtype.maximum, 5)))
    yield case(dtype, special(rng, dtype, (2, 0)), pads=(0, 1, 1, 2), value=least)
    if dtype.has_zero:
        yield case(dtype, special(rng, dtype, (2, 3)), pads=1)
    if dtype.kind == "float":
        yield case(dtype, special(rng, dtype, (3,)), pads=1, value=float("nan"))
        yield case(dtype, special(rng, dtype, (3,)), pads=1, value=0.1)
    for mode in ("reflect", "edge", "wrap"):
        yield case(dtype, special(rng, dtype, (7,)), pads=(3, 2), mode=mode)
        yield case(dtype, special(rng, dtype, (3, 4)), pads=(1, 0, 2, 3), mode=mode)
        yield case(dtype, special(rng, dtype, (3, 1)), pads=(8, 2, 11, 1), mode=mode)
        yield case(dtype, special(rng, dtype, (2, 0)), pads=(1, 0, 1, 0), mode=mode)


def _sources(extent: int, before: int, after: int, mode: str) -> Array:
    """For each index of a padded axis, the index it takes its element from."""
    at = np.arange(-before, extent + after)
    if mode == "edge":
        return np.clip(at, 0, extent - 1)
    if mode == "wrap":
        return at % extent
    period = max(2 * (extent - 1), 1)
    at %= period
    return np.where(at < extent, at, period - at)


@moving(
    Param("pads", "ints", REQUIRED, "How many elements to add: [begin of each axis..., end of each], or one for all."),
    Param(
        "mode",
        "str",
        "constant",
        "What the border holds: one value, the elements mirrored at the first and last, the nearest, or those from "
        "the other end.",
        choices=("constant", "reflect", "edge", "wrap"),
    ),
    Param("value", "number", None, "What a constant border holds; absent means 0."),
    shape=_padded,
    cost=_copies,
    cases=_pad_cases,
)
def pad(call: Call, x: Array) -> Array:
    """The operand with a border, `y[begin + i] = x[i]` along each axis.

    Modes are as in NumPy: a border longer than the operand reflects or wraps again and again.
    """
    pads, mode = _pads(call), call.params["mode"]
    if mode == "constant":
        dtype = call.dtype()
        value = np.array(0 if call.params["value"] is None else call.params["value"])
        fill = leaving(dtype)(value) if dtype.kind == "float" else value.astype(dtype.array)
        result = np.full(call.outputs[0].shape, fill, x.dtype)
        result[tuple(slice(before, before + extent) for (before, _), extent in zip(pads, x.shape, strict=True))] = x
        return result
    for axis, (before, after) in enumerate(pads):
        if before or after:
            x = np.take(x, _sources(x.shape[axis], before, after, mode), axis)
    return x
