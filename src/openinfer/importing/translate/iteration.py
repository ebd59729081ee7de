"""Loops and scans: become loops of the language, or are unrolled where they cannot."""

from dataclasses import dataclass

import numpy as np

from openinfer.importing.draft import (
    I64,
    DraftBranch,
    DraftDeclare,
    DraftLoop,
    DraftOperand,
    DraftPart,
    DraftStep,
    DraftValue,
    IndexOperand,
    KnownTensor,
    known,
)
from openinfer.importing.emitter import slice_at
from openinfer.importing.flow import MOST_UNROLLED, carry, hoisted, require_bool, require_same_types, store
from openinfer.importing.onnx_model import OnnxGraph
from openinfer.importing.problems import SkippedError, Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.importing.translate.counted import bound_of, loop_places, require_outside
from openinfer.importing.translate.induction import counted_value, induction
from openinfer.ir.expr import BinaryExpr, Num, Ref
from openinfer.ir.operand import Single, Slice
from openinfer.loops.dim import expr_of, is_same, is_same_shape, is_symbolic

_ENDLESS = 1 << 31
"""A trip count of at least this means that only the condition ends the loop."""


@dataclass(frozen=True)
class _Trips:
    """How often a loop runs: ``count`` times, if it has a count, as long as a condition holds."""

    count: "int | DraftValue | None"
    start: DraftOperand | None
    """The condition before the first iteration; None if it is known to hold."""

    @property
    def can_be_unrolled(self) -> bool:
        """Whether there are few enough iterations to unroll."""
        return (
            self.start is None
            and isinstance(self.count, int)
            and not is_symbolic(self.count)
            and self.count <= MOST_UNROLLED
        )


@onnx_op("Loop")
def _loop(n: NodeContext) -> NodeResults:
    body = n.graph("body")
    carried = [one for one in n.operands[2:] if one is not None]
    cond = n.optional(1)
    if isinstance(cond, KnownTensor):
        if not np.all(cond.array):
            return _never(n, body, carried)
        cond = None
    trips = _Trips(_count(n), cond)
    if isinstance(trips.count, int) and not is_symbolic(trips.count) and trips.count <= 0:
        return _never(n, body, carried)
    mark, reported = n.emit.bodies.mark(), n.subgraphs.reported()
    try:
        return _as_loop(n, body, trips, carried)
    except (Unsupported, SkippedError):
        if not trips.can_be_unrolled:
            raise
        n.emit.bodies.rollback(mark)
        n.subgraphs.forget(reported)
    assert isinstance(trips.count, int)
    return _unrolled(n, body, trips.count, carried)


def _count(n: NodeContext) -> "int | DraftValue | None":
    """The trip count: a number, a size, a value of the graph, or None if only a condition ends the loop."""
    given = n.optional(0)
    if given is None:
        return None
    if isinstance(given, KnownTensor):
        found = given.array.reshape(-1)[0]
        times: int = found if is_symbolic(found) else int(found)
        return None if not is_symbolic(times) and times >= _ENDLESS else times
    return n.emit.value(n.emit.reshape(n.emit.cast(given, I64), ()))


def _goes_on() -> DraftOperand:
    """The condition as a running iteration sees it: true."""
    return known(np.ones((), np.bool_))


def _holds(cond: DraftOperand) -> bool:
    return isinstance(cond, KnownTensor) and bool(np.all(cond.array))


def _never(n: NodeContext, body: OnnxGraph, carried: list[DraftOperand]) -> NodeResults:
    """The results of a loop that never runs: collected values are empty, with the types that the body infers."""
    if len(body.outputs) == 1 + len(carried):
        return tuple(carried)
    mark = n.emit.bodies.mark()
    results = n.subgraphs.inline(body, [known(np.int64(0)), _goes_on(), *carried])
    n.emit.bodies.rollback(mark)
    rows = results[1 + len(carried) :]
    if any(is_symbolic(extent) for one in rows for extent in one.shape):
        raise Unsupported("it never runs and collects values of a dynamic size", "fix the size: --size NAME=VALUE")
    return (*carried, *(known(np.zeros((0, *one.shape), one.dtype.array), one.dtype) for one in rows))


@dataclass(frozen=True)
class _LoopBody:
    """One iteration: its steps, and what it computes for the variables of the loop."""

    index: IndexOperand
    steps: tuple[DraftStep, ...]
    trips: _Trips
    goes_on: DraftOperand
    variables: dict[int, DraftValue]
    """The variable of each carried value that needs one, by position."""
    new: tuple[DraftOperand, ...]
    """The values of the variables in the next iteration."""
    collected: dict[int, DraftOperand]
    finals: list[DraftOperand | None]
    """The value of each carried value after the loop."""


def _loop_body(n: NodeContext, body: OnnxGraph, trips: _Trips, carried: list[DraftOperand]) -> _LoopBody:
    seen = induction(n, body, carried, trips.start)
    times = seen.count if trips.count is None else None
    trips = trips if times is None else _Trips(times, None)
    counters = {
        place: counter for place, counter in seen.counters.items() if isinstance(times, int) or not n.reads(place)
    }
    fixed = {*seen.kept, *counters, *(place for place in seen.unread if not n.reads(place))}
    moving = [place for place in range(len(carried)) if place not in fixed]
    variables = {place: n.emit.variable(carried[place]) for place in moving if place not in seen.unread}
    finals: list[DraftOperand | None] = [variables.get(place, one) for place, one in enumerate(carried)]
    for place, counter in counters.items():
        finals[place] = counted_value(n.emit, counter, times, carried[place]) if isinstance(times, int) else None
    index = n.emit.open_loop("iterations")
    given = [variables.get(place, one) for place, one in enumerate(carried)]
    for place, counter in counters.items():
        given[place] = counted_value(n.emit, counter, index, carried[place])
    results = n.subgraphs.inline(body, [index, _goes_on(), *given])
    steps = n.emit.bodies.close()
    for place in moving:
        if place in seen.unread:  # takes the type of the new value
            variables[place] = _unread_variable(n, carried[place], results[1 + place])
            finals[place] = variables[place]
    new = tuple(results[1 + place] for place in variables)
    require_same_types(new, list(variables.values()))
    goes_on = results[0] if times is None else _goes_on()
    collected = {place: one for place, one in enumerate(results[1:]) if place >= len(carried) and n.reads(place)}
    finals += [None] * (len(results) - 1 - len(carried))
    return _LoopBody(index, steps, trips, goes_on, variables, new, collected, finals)


def _unread_variable(n: NodeContext, first: DraftOperand, new: DraftOperand) -> DraftValue:
    """A variable for what the last iteration computes; an initial value of another type is ignored."""
    is_same_type = first.dtype is new.dtype and is_same_shape(first.shape, new.shape)
    return n.emit.variable(first) if is_same_type else n.emit.declare(new.dtype, new.shape)


def _as_loop(n: NodeContext, body: OnnxGraph, trips: _Trips, carried: list[DraftOperand]) -> NodeResults:
    """A loop with a variable for each carried value; collected values become the rows of a tensor."""
    one = _loop_body(n, body, trips, carried)
    index, collected, variables = one.index, one.collected, list(one.variables.values())
    go = None
    if one.trips.start is not None or not _holds(one.goes_on):
        require_bool(one.goes_on)
        require_bool(one.trips.start or _goes_on())
        go = n.emit.variable(n.emit.reshape(one.trips.start or _goes_on(), ()), "goes_on")
    limit, rows = _limits(n, one.trips, is_conditional=go is not None, collected=list(collected))
    tensors = {place: n.emit.declare(own.dtype, (rows, *own.shape)) for place, own in collected.items()}
    number = n.emit.variable(known(np.int64(0)), "iterations") if collected and go is not None else None
    guard = n.emit.declare(I64, (rows,), "ran") if one.trips.count is None and not collected else None
    n.emit.bodies.open()
    for place, own in collected.items():
        store(n.emit, own, slice_at(tensors[place], index))  # first: it may be a value carried into this iteration
    if guard is not None:
        n.emit.copy(index, slice_at(guard, index))
    if number is not None:
        n.emit.copy(n.emit.op("add", index, known(np.int64(1))), number)
    if go is None:
        carry(n.emit, one.new, variables)
    else:
        carry(n.emit, (*one.new, n.emit.reshape(one.goes_on, ())), [*variables, go])
    _add_loop(n, index, limit, (*one.steps, *n.emit.bodies.close()), go)
    if number is None and collected and isinstance(limit, DraftValue):
        number = n.emit.value(n.emit.op("max", limit, known(np.int64(0))))
    if number is not None:
        _label(n, tensors, rows, number)
    return tuple(tensors.get(place, final) for place, final in enumerate(one.finals))


def _limits(
    n: NodeContext, trips: _Trips, *, is_conditional: bool, collected: list[int]
) -> tuple[int | DraftValue, int]:
    """The end of the loop, and the most rows it may collect; one more iteration than that stops the run."""
    if isinstance(trips.count, int) and not (is_conditional and collected):
        return trips.count, trips.count
    if trips.count is not None and not collected:
        return trips.count, 0
    if collected:
        require_outside(n)
    places = [*(f"{n.node.outputs[place]}[0]" for place in collected), *loop_places(n.node)]
    word = "how many values it collects" if collected else "how often it runs"
    bound = bound_of(n, places, f"{word} depends on data")
    return (bound + 1 if trips.count is None else trips.count), bound


def _label(n: NodeContext, tensors: dict[int, DraftValue], rows: int, number: DraftValue) -> None:
    """Declare that rows exist up to a data-dependent number."""
    extent = n.emit.counts.declare(n.node.outputs[min(tensors)], rows, number)
    for tensor in tensors.values():
        n.emit.counts.label(tensor, 0, extent)


def _add_loop(
    n: NodeContext,
    index: IndexOperand,
    limit: int | DraftValue,
    steps: tuple[DraftStep, ...],
    go: DraftValue | None,
) -> None:
    """Add the loop itself; with a condition, its iteration is a block that runs only while that holds."""
    if go is not None:
        declared: list[DraftStep] = []
        steps = (DraftBranch(go, hoisted(steps, declared, again=True), (), n.emit.origin, ("iteration", "ended")),)
        for step in declared:
            n.emit.bodies.add(step)
    comment = f"{n.emit.origin.kind} {n.emit.origin.node}".strip()
    n.emit.bodies.add(DraftLoop("iterations", index.name, limit, steps, n.emit.origin, comment))


def _unrolled(n: NodeContext, body: OnnxGraph, times: int, carried: list[DraftOperand]) -> NodeResults:
    collected: list[list[DraftOperand]] = []
    for iteration in range(times):
        results = n.subgraphs.inline(body, [known(np.int64(iteration)), _goes_on(), *carried])
        go_on, rest = results[0], results[1:]
        carried, rows = list(rest[: len(carried)]), rest[len(carried) :]
        collected = collected or [[] for _ in rows]
        for own, one in zip(collected, rows, strict=True):
            own.append(one)
        if not isinstance(go_on, KnownTensor):
            raise Unsupported(
                "its condition depends on data, and a value that it carries or reads changes its shape",
                "fix what it depends on: --fix INPUT=VALUE",
            )
        if not np.all(go_on.array):
            break
    return (*carried, *(n.emit.op("stack", *own, axis=0) for own in collected))


# --- scans ------------------------------------------------------------------------------------------------------------


@onnx_op("Scan")
def _scan(n: NodeContext) -> NodeResults:
    """Scan over slices of the inputs, forwards or backwards."""
    count = n.integer("num_scan_inputs", 0)
    given = [one for one in n.operands[1 if n.opset < 9 else 0 :] if one is not None]
    if not 1 <= count <= len(given):
        raise Unsupported("it has fewer inputs than it scans")
    if n.opset >= 9:
        return _scanned(n, given[: len(given) - count], given[len(given) - count :])
    if n.optional(0) is not None:
        raise Unsupported("it has lengths for the sequences of its batch", "export it with opset 9 or later")
    batch = given[0].shape[0]
    if is_symbolic(batch) or not 1 <= batch <= MOST_UNROLLED:
        raise Unsupported("its batch is dynamic", "fix the size: --size NAME=VALUE")
    found = []
    for element in range(batch):  # up to opset 8 the first axis is the batch
        own = [n.emit.op("gather", one, known(np.int64(element)), axis=0) for one in given]
        found.append(_scanned(n, own[: len(own) - count], own[len(own) - count :]))
    return tuple(n.emit.op("stack", *results, axis=0) for results in zip(*found, strict=True))


def _scanned(n: NodeContext, carried: list[DraftOperand], given: list[DraftOperand]) -> tuple[DraftOperand, ...]:
    scanned = [n.emit.value(one) for one in given]
    axes = [
        n.axis(axis, len(own.shape))
        for axis, own in zip(n.ints("scan_input_axes") or (0,) * len(scanned), scanned, strict=True)
    ]
    backwards = n.ints("scan_input_directions" if n.opset >= 9 else "directions") or (0,) * len(scanned)
    times = scanned[0].shape[axes[0]]
    if not all(is_same(own.shape[axis], times) for own, axis in zip(scanned, axes, strict=True)):
        raise Unsupported("the axes that it scans have different lengths")
    variables = [n.emit.variable(one) for one in carried]
    before = n.emit.bodies.mark()
    index = n.emit.open_loop("scan")
    slices = [
        _slice(own, axis, index, times, backwards=bool(back))
        for own, axis, back in zip(scanned, axes, backwards, strict=True)
    ]
    results = n.subgraphs.inline(n.graph("body"), [*variables, *slices])
    own, collected = results[: len(carried)], results[len(carried) :]
    require_same_types(own, variables)
    rows = [(one, DraftValue(one.dtype, (times, *one.shape))) for one in collected]
    directions = n.ints("scan_output_directions") or (0,) * len(rows)
    for (one, tensor), back in zip(rows, directions, strict=True):
        store(n.emit, one, _slice(tensor, 0, index, times, backwards=bool(back)))
    carry(n.emit, own, variables)
    n.emit.close_loop("scan", index, times)
    n.emit.bodies.insert(before, [DraftDeclare(tensor) for _, tensor in rows])
    places = n.ints("scan_output_axes") or (0,) * len(rows)
    moved = [_moved(n, tensor, axis) for (_, tensor), axis in zip(rows, places, strict=True)]
    return (*variables, *moved)


def _moved(n: NodeContext, tensor: DraftValue, axis: int) -> DraftOperand:
    """A tensor with its first axis moved elsewhere."""
    place = n.axis(axis, len(tensor.shape))
    rest = list(range(1, len(tensor.shape)))
    return n.emit.transpose(tensor, [*rest[:place], 0, *rest[place:]])


def _slice(tensor: DraftValue, axis: int, index: IndexOperand, times: int, *, backwards: bool) -> DraftPart:
    last = BinaryExpr("-", expr_of(times), Num(1)) if is_symbolic(times) else Num(int(times) - 1)
    at = BinaryExpr("-", last, Ref(index.name)) if backwards else Ref(index.name)
    indices = tuple(Single(at) if one == axis else Slice() for one in range(len(tensor.shape)))
    return DraftPart(tensor, indices, (*tensor.shape[:axis], *tensor.shape[axis + 1 :]))
