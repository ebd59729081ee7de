"""Data-dependent control flow: ``torch.cond``, ``while_loop``, ``scan`` and ``map``."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from openinfer.importing.aten.context import OPERANDS, AtenContext, AtenResults, python_op
from openinfer.importing.draft import (
    DraftBranch,
    DraftDeclare,
    DraftLoop,
    DraftOperand,
    DraftStep,
    DraftValue,
    KnownTensor,
    extent,
    known,
)
from openinfer.importing.emitter import slice_at
from openinfer.importing.flow import branched, carry, hoisted, require_bool, require_same_types, store
from openinfer.importing.problems import Unsupported
from openinfer.importing.torch_model import AtenGraph, ValueRef
from openinfer.loops.dim import Dim, is_same, larger

_HIGHER = "torch.ops.higher_order."


@python_op(f"{_HIGHER}cond")
def _cond(n: AtenContext) -> AtenResults:
    """A condition known at import selects one branch; otherwise both become blocks."""
    cond, then, other, given = (n.values[place] for place in "0123")
    if isinstance(cond, KnownTensor):
        cond = bool(np.all(cond.array))
    if isinstance(cond, bool):
        return n.inline(then if cond else other, given)
    if not isinstance(cond, OPERANDS):
        raise Unsupported("its condition is neither a tensor nor known")
    require_bool(cond)
    flag = n.emit.value(n.emit.reshape(cond, ()))
    bodies = []
    for graph in (then, other):
        n.emit.bodies.open()
        results = n.inline(graph, given)
        bodies.append((n.emit.bodies.close(), results))
    return branched(n.emit, flag, bodies[0], bodies[1], "let both branches give the same type")


# --- while loops ------------------------------------------------------------------------------------------------------


@python_op(f"{_HIGHER}while_loop")
def _while_loop(n: AtenContext) -> AtenResults:
    """A loop up to a counter's bound; any further condition guards each iteration with a block."""
    condition, body = _graph(n, "0"), _graph(n, "1")
    carried = [_operand(one) for one in n.values["2"]]
    more = tuple(n.values.get("3") or ())
    limit, is_only_count = _limit(condition, body, carried, more)
    variables = [n.emit.variable(one) for one in carried]
    go = None
    if not is_only_count:
        go = n.emit.variable(_holds(n, condition, (*variables, *more)), "goes_on")
    index = n.emit.open_loop("iterations")
    results = n.inline(body, (*variables, *more))
    require_same_types(results, variables)
    carry(n.emit, results, variables)
    if go is not None:
        store(n.emit, _holds(n, condition, (*variables, *more)), go)
    steps = n.emit.bodies.close()
    if go is not None:
        declared: list[DraftStep] = []
        steps = (DraftBranch(go, hoisted(steps, declared, again=True), (), n.emit.origin, ("iteration", "ended")),)
        for step in declared:
            n.emit.bodies.add(step)
    comment = f"{n.emit.origin.kind} {n.emit.origin.node}".strip()
    n.emit.bodies.add(DraftLoop("iterations", index.name, limit, steps, n.emit.origin, comment))
    return tuple(variables)


def _holds(n: AtenContext, condition: AtenGraph, given: Sequence[Any]) -> DraftOperand:
    (found,) = n.inline(condition, given)
    require_bool(found)
    return n.emit.reshape(found, ())


def _limit(
    condition: AtenGraph, body: AtenGraph, carried: Sequence[DraftOperand], more: Sequence[Any]
) -> tuple[int, bool]:
    """The upper bound on iterations, and whether nothing else ends the loop."""
    parts = _conjunction(condition, condition.outputs[0])
    for part in parts:
        found = _counted(condition, part, body, carried, more)
        if found is not None:
            return found, len(parts) == 1
    advice = "compare a counter with a number, too: (i < 100) & ..., where the loop gives i + 1"
    raise Unsupported("its number of iterations has no upper bound", advice)


def _conjunction(graph: AtenGraph, value: Any) -> list[Any]:
    """Split a condition into the values that must all hold."""
    node = next((one for one in graph.nodes if value == ValueRef(one.name)), None)
    if node is None or node.op not in ("aten.logical_and", "aten.bitwise_and", "aten.__and__", "_operator.and_"):
        return [value]
    return [part for one in list(node.arguments.values())[:2] for part in _conjunction(graph, one)]


def _counted(
    condition: AtenGraph, part: Any, body: AtenGraph, carried: Sequence[DraftOperand], more: Sequence[Any]
) -> int | None:
    """The trip count if this part of the condition bounds a counter, else None."""
    node = next((one for one in condition.nodes if part == ValueRef(one.name)), None)
    if node is None or node.op not in ("aten.lt", "aten.le", "_operator.lt", "_operator.le"):
        return None
    counter, end = list(node.arguments.values())[:2]
    places = {ValueRef(name): place for place, name in enumerate(condition.inputs)}
    place = places.get(counter, len(carried))
    if place >= len(carried):
        return None
    if isinstance(end, ValueRef):
        other = places.get(end, -1)
        end = more[other - len(carried)] if other >= len(carried) else None
    start, last, step = _integer(carried[place]), _integer(end), _step(body, place)
    if start is None or last is None or step is None:
        return None
    last = last + 1 if node.op.endswith(".le") else last
    return larger((last - start + step - 1) // step, 0)


def _step(body: AtenGraph, place: int) -> int | None:
    """The constant by which a carried value grows per iteration, else None."""
    node = next((one for one in body.nodes if body.outputs[place] == ValueRef(one.name)), None)
    if node is None or node.op not in ("aten.add", "_operator.add") or node.arguments.get("alpha", 1) != 1:
        return None
    given = list(node.arguments.values())[:2]
    own = ValueRef(body.inputs[place])
    other = given[1] if given[0] == own else given[0] if given[1] == own else None
    return other if isinstance(other, int) and not isinstance(other, Dim) and other > 0 else None


def _integer(value: Any) -> int | None:
    """A known number or size, else None."""
    if isinstance(value, KnownTensor) and value.array.size == 1 and value.dtype.kind in ("int", "uint"):
        found = value.array.reshape(-1)[0]
        return found if isinstance(found, Dim) else int(found)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# --- scans ------------------------------------------------------------------------------------------------------------


@python_op(f"{_HIGHER}scan")
def _scan(n: AtenContext) -> AtenResults:
    """Loop over the rows of tensors, with carried values."""
    carried = [_operand(one) for one in n.values["1"]]
    return _over_rows(n, carried, [_operand(one) for one in n.values["2"]], tuple(n.values.get("3") or ()))


@python_op(f"{_HIGHER}map_impl")
def _map(n: AtenContext) -> AtenResults:
    """Loop over the rows of tensors, each independent of the others."""
    return _over_rows(n, [], [_operand(one) for one in n.values["1"]], tuple(n.values.get("2") or ()))


def _over_rows(
    n: AtenContext, carried: list[DraftOperand], given: list[DraftOperand], more: tuple[Any, ...]
) -> AtenResults:
    scanned = [n.emit.value(one) for one in given]
    if not scanned:
        raise Unsupported("it runs over no tensor")
    times = scanned[0].shape[0]
    if not all(is_same(one.shape[0], times) for one in scanned):
        raise Unsupported("the tensors that it runs over have different lengths")
    variables = [n.emit.variable(one) for one in carried]
    before = n.emit.bodies.mark()
    index = n.emit.open_loop("scan")
    results = n.inline(_graph(n, "0"), (*variables, *(slice_at(one, index) for one in scanned), *more))
    own, collected = results[: len(carried)], results[len(carried) :]
    require_same_types(own, variables)
    rows = [DraftValue(one.dtype, (times, *one.shape)) for one in collected]
    for one, tensor in zip(collected, rows, strict=True):
        store(n.emit, one, slice_at(tensor, index))
    carry(n.emit, own, variables)
    n.emit.close_loop("scan", index, times)
    n.emit.bodies.insert(before, [DraftDeclare(tensor) for tensor in rows])
    return (*variables, *rows)


def _graph(n: AtenContext, place: str) -> AtenGraph:
    found = n.values[place]
    if not isinstance(found, AtenGraph):
        raise Unsupported("its body is not a graph")
    return found


def _operand(value: Any) -> DraftOperand:
    if isinstance(value, OPERANDS):
        return value
    if isinstance(value, Dim):
        return extent(value)
    if isinstance(value, bool | int | float):
        return known(np.asarray(value, np.int64 if type(value) is int else None))
    raise Unsupported("a value it carries is not a tensor")
