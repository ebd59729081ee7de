"""Differences between data-dependent numbers: ``i + 4`` is 4 more than ``i``, whatever ``i`` is."""

from dataclasses import dataclass, field

import numpy as np

from openinfer.importing.draft import DraftOperand, KnownTensor
from openinfer.importing.emitter import Emitter
from openinfer.loops.dim import is_same, is_symbolic

PASSING_OPS = frozenset({"cast", "reshape", "squeeze", "unsqueeze"})
"""Ops that keep the value of a single whole number."""
_MOST_OPS = 100


@dataclass(frozen=True)
class _Form:
    """A constant plus multiples of values, which are compared by identity."""

    constant: int = 0
    terms: dict[int, int] = field(default_factory=dict)

    def plus(self, other: "_Form", factor: int = 1) -> "_Form":
        terms = dict(self.terms)
        for key, count in other.terms.items():
            terms[key] = terms.get(key, 0) + factor * count
        return _Form(self.constant + factor * other.constant, {key: one for key, one in terms.items() if one})


def difference(emit: Emitter, later: DraftOperand, sooner: DraftOperand, edge: int | None = None) -> int | None:
    """How much larger one number is than another, or None if that is unknown.

    The minimum of a number and ``edge`` counts as the number.
    """
    forms = [_form(emit, one, edge, _MOST_OPS) for one in (later, sooner)]
    if forms[0] is None or forms[1] is None:
        return None
    found = forms[0].plus(forms[1], -1)
    return None if found.terms else found.constant


def behind(emit: Emitter, operand: DraftOperand) -> DraftOperand:
    """The operand behind any casts and reshapes."""
    asked = emit.asked(operand)
    while asked is not None and asked[0] in PASSING_OPS and asked[1][0] is not None:
        operand = asked[1][0]
        asked = emit.asked(operand)
    return operand


def _form(emit: Emitter, operand: DraftOperand | None, edge: int | None, left: int) -> _Form | None:
    if operand is None or not left:
        return None
    operand = behind(emit, operand)
    if isinstance(operand, KnownTensor):
        return _constant(operand)
    asked = emit.asked(operand)
    if asked is None or asked[0] not in ("add", "sub", "min"):
        return _Form(0, {id(operand): 1})
    op, inputs = asked
    if op == "min":
        others = [one for one in inputs if one is not None and not _is_edge(one, edge)]
        return _form(emit, others[0], edge, left - 1) if len(others) == 1 else _Form(0, {id(operand): 1})
    one, other = (_form(emit, given, edge, left - 1) for given in inputs)
    return None if one is None or other is None else one.plus(other, 1 if op == "add" else -1)


def _is_edge(operand: DraftOperand, edge: int | None) -> bool:
    if edge is None or not isinstance(operand, KnownTensor) or operand.array.size != 1:
        return False
    return is_same(operand.array.reshape(-1)[0], edge)


def _constant(tensor: KnownTensor) -> _Form | None:
    if tensor.array.size != 1:
        return None
    value = tensor.array.reshape(-1)[0]
    if is_symbolic(value):
        return _Form(value)
    return _Form(int(value)) if np.isfinite(value) and value == np.floor(value) else None
