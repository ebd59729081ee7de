"""Gathers and scatters. Every index is bounds-checked before it is used."""

from collections.abc import Callable
from contextlib import ExitStack

from openinfer.loops.build import Builder, Coordinates, broadcast_index, cast, index, load, pair, select
from openinfer.loops.ir import BOOL, INDEX, Buffer, Const, LoopKind, Scalar
from openinfer.ops.lower.elementwise import I64, U64
from openinfer.ops.lower.move import fill_from, is_zero
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of

REASON = "an index is out of range"


def _counted(ids: KernelInput, where: Coordinates, extent: int) -> Scalar:
    """A valid index, counted from the front."""
    given = cast(ids[where], INDEX)
    return given if ids.dtype.kind == "uint" else select(given < 0, given + index(extent), given)


def _check(builder: Builder, ids: KernelInput, where: Coordinates, extent: int) -> None:
    """A bounds check: fail if an index is outside of the extent."""
    if is_zero(extent):  # Compilers warn about comparisons that are always true.
        builder.fail(Const(1, BOOL), REASON)
        return
    # In the full width: a narrower position would truncate an index that is too large.
    own = INDEX if ids.dtype.maximum < 2**31 else I64
    given = builder.let(cast(ids[where], own))
    beyond = given >= cast(index(extent), own)
    if ids.dtype is U64:  # An index above the largest i64 has become negative.
        beyond = (given < 0) | beyond
    elif ids.dtype.kind == "int":
        beyond = (given < cast(index(-extent), own)) | beyond
    builder.fail(beyond, REASON)


def _check_all(builder: Builder, ids: KernelInput, extent: int) -> None:
    """All indices, before they are used: elements that are read later need no check of their own."""
    with builder.loops(ids.shape, LoopKind.PARALLEL) as where:
        _check(builder, ids, where, extent)


# --- reading ----------------------------------------------------------------------------------------------------------


def _gathered(builder: Builder, x: KernelInput, ids: KernelInput, out: Buffer, axis: int) -> None:
    _check_all(builder, ids, x.shape[axis])
    behind = axis + len(ids.shape)

    def element(where: Coordinates) -> Scalar:
        place = builder.let(_counted(ids, where[axis:behind], x.shape[axis]))
        return x[(*where[:axis], place, *where[behind:])]

    fill_from(builder, out, element)


@lowers("gather")
def _gather(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    x, ids = inputs
    assert x is not None
    assert ids is not None
    _gathered(builder, x, ids, outputs[0], axis_of(call.params["axis"], len(x.shape)))


@lowers("embedding")
def _embedding(
    _call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    table, ids = inputs
    assert table is not None
    assert ids is not None
    _gathered(builder, table, ids, outputs[0], 0)


@lowers("take_along")
def _take_along(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x, ids), (out,) = inputs, outputs
    assert x is not None
    assert ids is not None
    axis = axis_of(call.params["axis"], len(x.shape))
    _check_all(builder, ids, x.shape[axis])

    def element(where: Coordinates) -> Scalar:
        place = builder.let(_counted(ids, broadcast_index(where, ids.shape), x.shape[axis]))
        return x[broadcast_index((*where[:axis], place, *where[axis + 1 :]), x.shape)]

    fill_from(builder, out, element)


@lowers("gather_nd")
def _gather_nd(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x, ids), (out,) = inputs, outputs
    assert x is not None
    assert ids is not None
    batch, behind, depth = call.params["batch_dims"], len(ids.shape) - 1, ids.shape[-1]
    extents = x.shape[batch : batch + depth]
    with builder.loops(ids.shape[:-1], LoopKind.PARALLEL) as where:
        for part, extent in enumerate(extents):
            _check(builder, ids, (*where, part), extent)

    def element(where: Coordinates) -> Scalar:
        vector = [builder.let(_counted(ids, (*where[:behind], part), extent)) for part, extent in enumerate(extents)]
        return x[(*where[:batch], *vector, *where[behind:])]

    fill_from(builder, out, element)


# --- writing ----------------------------------------------------------------------------------------------------------


def _combined(reduce: str, old: Scalar, new: Scalar) -> Scalar:
    """What an element is after an update."""
    match reduce:
        case "add" | "mul":
            return pair(reduce, old, new)
        case "min" | "max":
            return pair(reduce, old, new)
        case _:
            return new


def _copied(builder: Builder, source: Callable[[Coordinates], Scalar], out: Buffer) -> None:
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        builder.store(out, where, source(where))


class _Scattering:
    """A copy of the operand that updates are applied to, in order.

    Sums and products of small floats are kept in their compute type until the end: they are rounded once.
    """

    def __init__(self, call: Call, builder: Builder, x: KernelInput, out: Buffer) -> None:
        self._builder = builder
        self._reduce = call.params["reduce"]
        rounds = x.dtype.kind == "float" and x.dtype.compute is not x.dtype and self._reduce in ("add", "mul")
        self._out = out
        self._target = builder.buffer(x.dtype.compute, x.shape, "sums") if rounds else out
        _copied(builder, lambda where: x[where], self._target)

    def update(self, place: Coordinates, value: Scalar) -> None:
        """Apply one update, at valid coordinates."""
        where = tuple(self._builder.let(index(at)) for at in place)
        self._builder.store(self._target, where, _combined(self._reduce, load(self._target, *where), value))

    def finish(self) -> None:
        """The result, where it is elsewhere so far."""
        if self._target is not self._out:
            _copied(self._builder, lambda where: load(self._target, *where), self._out)


@lowers("scatter")
def _scatter(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x, ids, updates), (out,) = inputs, outputs
    assert x is not None
    assert ids is not None
    assert updates is not None
    axis = axis_of(call.params["axis"], len(x.shape))
    result = _Scattering(call, builder, x, out)
    with ExitStack() as nest:
        # Updates that differ elsewhere than along the axis are of different elements.
        kinds = [LoopKind.SERIAL if one == axis else LoopKind.PARALLEL for one in range(len(ids.shape))]
        where = tuple(nest.enter_context(builder.loop(*one)) for one in zip(ids.shape, kinds, strict=True))
        _check(builder, ids, where, x.shape[axis])
        place = _counted(ids, where, x.shape[axis])
        result.update((*where[:axis], place, *where[axis + 1 :]), updates[where])
    result.finish()


@lowers("scatter_nd")
def _scatter_nd(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x, ids, updates), (out,) = inputs, outputs
    assert x is not None
    assert ids is not None
    assert updates is not None
    depth = ids.shape[-1]
    result = _Scattering(call, builder, x, out)
    with builder.loops(ids.shape[:-1]) as where:
        for part, extent in enumerate(x.shape[:depth]):
            _check(builder, ids, (*where, part), extent)
        if any(is_zero(extent) for extent in x.shape):
            return  # The indices are checked, but there is no element to update.
        vector = [builder.let(_counted(ids, (*where, part), extent)) for part, extent in enumerate(x.shape[:depth])]
        with builder.loops(x.shape[depth:], LoopKind.PARALLEL) as inside:
            result.update((*vector, *inside), updates[(*where, *inside)])
    result.finish()
