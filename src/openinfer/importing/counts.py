"""Data-dependent extents: the number of entries in a result is known only at run time, up to a bound.

Such a result has the extent of its bound, with the entries first. During translation its extent is a symbol of its
own, so shapes propagate as they do from a dynamic size; at the end the bound replaces the symbol. In between every
step is checked: an entry of its result may depend only on the same entry of its inputs, so the padding after the
last entry never matters.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from openinfer.errors import Code, Diagnostic, FileSpan, ImportingError, printable
from openinfer.importing.draft import (
    Draft,
    DraftBranch,
    DraftDeclare,
    DraftLoop,
    DraftOp,
    DraftOperand,
    DraftPart,
    DraftStep,
    DraftValue,
    NodeOrigin,
    Port,
    operands,
    walk,
)
from openinfer.importing.options import SizeChoice, SizeWord
from openinfer.ir.expr import Ref, evaluate
from openinfer.ir.polynomial import expr_of as form_expr
from openinfer.loops.dim import Dim, is_same, sizes_in
from openinfer.ops import OPS, complete

_MARK = "entries of "
"""The prefix of the symbols for counts; no identifier has it."""
_ELEMENTWISE = frozenset({"Binary", "Ternary", "Compare", "Unary", "Activation", "Test", "Type"})
_ALONG = {
    "softmax": "axis", "log_softmax": "axis", "glu": "axis", "concat": "axis", "stack": "axis", "split": "axis",
    "slice": "axes", "flip": "axes", "roll": "axes", "take_along": "axis", "l2_normalize": "axis", "layer_norm": "axes",
    "rms_norm": "axes", "cumsum": "axis", "cumprod": "axis", "argmax_axis": "axis", "argmin_axis": "axis",
    "topk": "axis", "sort": "axis", "sum_axis": "axes", "mean_axis": "axes", "var_axis": "axes", "prod_axis": "axes",
    "max_axis": "axes", "min_axis": "axes", "any_axis": "axes", "all_axis": "axes", "logsumexp_axis": "axes",
    "norm_axis": "axes",
}  # fmt: skip
"""Ops that combine elements along axes, and the parameter that names the axes; None means all axes."""
_KEEP_ORDER = frozenset({"transpose", "squeeze", "unsqueeze", "expand"})
_FILLS = frozenset({"expand", "iota", "one_hot", "fill"})


@dataclass(frozen=True)
class _Count:
    """A data-dependent extent: its symbol, the result whose entries it counts, and the operand with the count."""

    extent: Dim
    result: str
    number: DraftOperand


class DataCounts:
    """The data-dependent extents of one model."""

    def __init__(self, choices: Mapping[str, SizeWord]) -> None:
        self._choices = choices
        self._found: dict[str, _Count] = {}
        self._labelled: dict[int, DraftValue] = {}

    def bound(self, where: str) -> int | None:
        """The bound given for an extent, which is identified by its place: ``name[axis]``."""
        choice = self._choices.get(where)
        return choice.value if isinstance(choice, SizeChoice) else None

    def declare(self, result: str, bound: int, number: DraftOperand) -> Dim:
        """Create an extent for the entries of a result."""
        name = f"{_MARK}{len(self._found)}"
        made = Dim(bound, Ref(name))
        self._found[name] = _Count(made, result, number)
        return made

    def label(self, value: DraftValue, axis: int, extent: Dim) -> DraftValue:
        """Give an axis of a value the extent of its entries."""
        value.shape = (*value.shape[:axis], extent, *value.shape[axis + 1 :])
        self._labelled[id(value)] = value
        return value

    def resolved(self, draft: Draft, path: str, sizes: Mapping[str, int]) -> Draft:
        """The draft with bounds in place of counts, which become outputs; raises for steps that mix entries."""
        if not self._found:
            return draft
        problems = [problem for step in walk(draft.steps) if (problem := self._problem(step))]
        if problems:
            advice = "fix what its length depends on: --fix INPUT=VALUE"
            raise ImportingError(
                *(Diagnostic(Code.UNSUPPORTED_NODE, one, FileSpan(path), advice) for one in dict.fromkeys(problems))
            )
        known = {**sizes, **{name: int(one.extent) for name, one in self._found.items()}}
        steps = tuple(_bounded_step(step, known) for step in draft.steps)
        ports = [Port(one.name, _bounded_operand(one.operand, known)) for one in draft.outputs]
        ports += [Port(f"{one.result}.count", one.number) for one in self._found.values()]
        return replace(draft, steps=steps, outputs=tuple(ports))

    def _problem(self, step: DraftStep) -> str:
        """Why a step may not read entries, or an empty string."""
        read = any(map(_is_counted, operands(step)))
        written = isinstance(step, DraftOp) and any(map(_is_counted, step.outputs))
        if not read and not written:
            return ""
        if isinstance(step, DraftOp):
            is_source = not read and all(id(one) in self._labelled for one in step.outputs if _is_counted(one))
            if is_source or _is_entrywise(step):
                return ""
        origin = step.origin if isinstance(step, DraftOp) else NodeOrigin()
        title = f"{printable(origin.kind):.80} node {printable(origin.node)!r:.100}"
        return f"cannot import {title}: it joins entries whose number depends on data"


# --- bounds in place of symbols ---------------------------------------------------------------------------------------


def _bounded(value: Any, known: Mapping[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_bounded(one, known) for one in value)
    return evaluate(value.expr, known.__getitem__) if isinstance(value, Dim) and _counts(value) else value


def _bounded_operand(operand: DraftOperand, known: Mapping[str, int]) -> DraftOperand:
    base = operand.base if isinstance(operand, DraftPart) else operand
    if isinstance(base, DraftValue):
        base.shape = _bounded(tuple(base.shape), known)
    return replace(operand, shape=_bounded(operand.shape, known)) if isinstance(operand, DraftPart) else operand


def _bounded_step(step: DraftStep, known: Mapping[str, int]) -> DraftStep:
    match step:
        case DraftDeclare(value):
            _bounded_operand(value, known)
            return step
        case DraftLoop(body=body):
            return replace(step, body=tuple(_bounded_step(one, known) for one in body))
        case DraftBranch(then_body=then_body, else_body=else_body):
            bodies = [tuple(_bounded_step(one, known) for one in body) for body in (then_body, else_body)]
            return replace(step, then_body=bodies[0], else_body=bodies[1])
    if not isinstance(step, DraftOp):
        return step
    for one in (*step.inputs, *step.outputs):
        if one is not None:
            _bounded_operand(one, known)
    return replace(step, params=tuple((name, _bounded(value, known)) for name, value in step.params))


# --- which steps may read entries -------------------------------------------------------------------------------------


def _is_counted(operand: DraftOperand) -> bool:
    return any(map(_counts, operand.shape))


def _counts(value: Any) -> bool:
    return isinstance(value, Dim) and any(name.startswith(_MARK) for name in sizes_in(value))


def _place(shape: Iterable[int]) -> int | None:
    """The one axis that is a count, or None; -1 if an extent is computed from a count, or two are counts."""
    found = [(place, one) for place, one in enumerate(shape) if _counts(one)]
    if not found:
        return None
    place, extent = found[0]
    return place if len(found) == 1 and _is_plain(extent) else -1


def _is_plain(extent: int) -> bool:
    """Whether an extent simplifies to a count itself, as ``entries * 6 / 6`` does."""
    return isinstance(extent, Dim) and (
        isinstance(extent.expr, Ref) or isinstance(form_expr(extent.form, sizes_in(extent)), Ref)
    )


def _is_entrywise(step: DraftOp) -> bool:
    """Whether each entry of the results depends only on the same entry of the inputs."""
    given, own = (
        complete(OPS[step.op], dict(step.params)),
        [None if one is None else _place(one.shape) for one in step.inputs],
    )
    outputs = [_place(one.shape) for one in step.outputs]
    if -1 in own or any(place is None or place == -1 for place in outputs):
        return False
    first = step.inputs[0]
    if all(place is None for place in own):
        return step.op in _FILLS
    assert first is not None
    if step.op in _ALONG:
        return _goes_along_others(step, own, given[_ALONG[step.op]])
    if OPS[step.op].family in _ELEMENTWISE:
        return step.op != "dynamic_quantize" and all(
            len(one.shape) - place == len(step.outputs[0].shape) - outputs[0]
            for one, place in zip(step.inputs, own, strict=True)
            if one is not None and place is not None and outputs[0] is not None
        )
    match step.op:
        case "gather" | "embedding" | "one_hot":
            axis = given.get("axis", 0) % len(first.shape)
            return own[0] is None or own[-1] is not None or (step.op == "gather" and own[0] != axis)
        case "gather_nd":
            ids = step.inputs[1]
            return own[0] is None and ids is not None and own[1] != len(ids.shape) - 1
        case "reshape" | "flatten":
            return _is_same_before(first.shape, own[0], step.outputs[0].shape, outputs[0])
        case "linear":
            return own[0] is not None and own[0] != len(first.shape) - 1
        case "matmul":
            return own[0] is not None and own[1] is None and own[0] != len(first.shape) - 1 and not step.params
    return step.op in _KEEP_ORDER


def _goes_along_others(step: DraftOp, own: list[int | None], axes: Any) -> bool:
    """Whether the combined axes exclude the axis of the entries."""
    if axes is None:
        return False
    for one, place in zip(step.inputs, own, strict=True):
        if one is None or place is None:
            continue
        rank = len(one.shape)
        joined = [axis % rank for axis in (axes if isinstance(axes, tuple | list) else (axes,))]
        if step.op != "stack" and place in joined:
            return False
    return True


def _is_same_before(shape: Any, place: int | None, other: Any, other_place: int | None) -> bool:
    """Whether two shapes have the same number of elements before an axis of each."""
    if place is None or other_place is None:
        return False
    sizes = [np.prod([int(one) for one in dims], dtype=object) for dims in (shape[:place], other[:other_place])]
    dynamic = any(isinstance(one, Dim) for one in (*shape[:place], *other[:other_place]))
    same = len(shape[:place]) == len(other[:other_place]) and all(map(is_same, shape[:place], other[:other_place]))
    return same if dynamic else bool(sizes[0] == sizes[1])
