"""Sums of powers in rows that groups share: relative to the largest element of a group first, of all of them later.

A softmax needs the largest element of a row before it computes powers. If groups exchanged it first, each would wait
for the others twice. So powers are relative to what a group itself has found, and groups exchange their largest
elements together with their sums, which are scaled when they are added, as are the powers when they are used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from openinfer.loops.build import select
from openinfer.loops.ir import (
    Binary,
    Compare,
    Const,
    Let,
    Load,
    Math,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Space,
    Statement,
    Store,
    scalars,
    visit,
    walk,
)
from openinfer.loops.reduction import Reduction, reduced_term
from openinfer.loops.rewrite import changed_statements
from openinfer.synth.targets.simt.row_loops import RowItem, RowLoop


@dataclass(frozen=True)
class Powers:
    """A loop that finds the largest element of a row, and a later one that adds powers relative to it."""

    first: RowLoop
    second: RowLoop
    third: RowLoop | None
    """The next loop."""
    extreme: Reduction
    total: Reduction
    power: Math
    stored: frozenset[str]
    """Buffers that have powers until the next loop has used them."""

    def relative_to(self, base: ScalarVar) -> RowLoop:
        """The second loop, with powers relative to something else."""
        return _changed(self.second, self.extreme.var, base)

    def of(self, difference: Scalar) -> Scalar:
        """A power."""
        return replace(self.power, args=(difference,))

    def scaled(self, one: RowLoop, factor: ScalarVar) -> RowLoop:
        """A later loop, which multiplies the powers that it loads."""
        edge = None if one.edge is None else self.scaled(one.edge, factor)
        return replace(one, body=changed_statements(one.body, lambda part: self._scaled(part, factor)), edge=edge)

    def _scaled(self, part: Scalar, factor: ScalarVar) -> Scalar | None:
        is_power = isinstance(part, Load) and part.buffer.name in self.stored
        return part * factor if is_power else None

    def base(self) -> Scalar:
        """What powers of a group are relative to: of elements that are all ``-inf``, they are 0."""
        var = self.extreme.var
        return select(var.eq(Const(-inf, var.dtype)), Const(0, var.dtype), var)


def powers_of(items: Sequence[RowItem]) -> Powers | None:
    """The sum of powers of a row; None if there is none."""
    loops = [(place, one) for place, one in enumerate(items) if isinstance(one, RowLoop)]
    thirds = [*(one for _, one in loops[2:]), None]
    for (begin, first), (end, second), third in zip(loops, loops[1:], thirds, strict=False):
        found = _powers(first, second, items[begin + 1 : end], third)
        if found is not None:
            return found
    return None


def _powers(first: RowLoop, second: RowLoop, between: Sequence[RowItem], third: RowLoop | None) -> Powers | None:
    """The powers of a loop relative to the largest element of another; None if it has no such powers."""
    if first.shape != second.shape or len(first.reductions) != 1 or len(second.reductions) != 1:
        return None
    (extreme,), (total,) = first.reductions, second.reductions
    term, largest = reduced_term(total.update), _value(first, reduced_term(extreme.update))
    assert term is not None
    power = _value(second, term)
    match power, total.update.value:
        case Math("exp", (Binary("sub", element, base),)), Binary("add") if base == extreme.var:
            is_same = first.alike((largest,)) == second.alike((element,))
        case _:
            return None
    is_plain = _is_largest(extreme) and not any(isinstance(one, Store) for one in first.body)
    is_only = not _is_used(extreme.var, between) and _parts(second.body).count(extreme.var) == 1
    stored = _stored(second, term, third)
    return (
        Powers(first, second, third, extreme, total, power, stored)
        if is_same and is_plain and is_only and stored is not None
        else None
    )


def _is_used(var: ScalarVar, statements: Sequence[RowItem]) -> bool:
    return var in _parts(statements) or any(isinstance(one, SetLocal) and one.var == var for one in statements)


def _value(one: RowLoop, value: Scalar | None) -> Scalar:
    """What a value of a loop is, without the variable that it has there."""
    assert value is not None
    lets: dict[Scalar, Scalar] = {each.var: each.value for each in one.body if isinstance(each, Let)}
    return lets.get(value, value)


def _is_largest(one: Reduction) -> bool:
    match one.update.value:
        case Select(cond=Compare(op="gt")) | Binary(op="max"):
            return True
        case _:
            return False


def _stored(one: RowLoop, power: Scalar, third: RowLoop | None) -> frozenset[str] | None:
    """The buffers in which a loop leaves powers for the next one, which replaces them; None if others may see them."""
    stores = [each for each in one.body if isinstance(each, Store)]
    found = frozenset(each.buffer.name for each in stores)
    is_plain = all(each.value == power for each in stores) and _parts(one.body).count(power) == len(stores) + 1
    if not is_plain or found & _loaded(one.body):
        return None
    if not found:
        return found
    if third is None or third.shape != one.shape:
        return None
    for name in found - {each.buffer.name for each in stores if each.buffer.space is Space.OWN}:
        places = [
            place for place, each in enumerate(third.body) if isinstance(each, Store) and each.buffer.name == name
        ]
        if len(places) != 1 or name in _loaded(third.body[places[0] + 1 :]):
            return None
    return found


def _parts(statements: Sequence[RowItem]) -> list[Scalar]:
    """All that statements compute from, outside of loops."""
    plain = tuple(one for one in statements if not isinstance(one, RowLoop))
    return [part for one in walk(plain) for value in scalars(one) for part in visit(value)]


def _loaded(statements: Sequence[Statement]) -> set[str]:
    return {part.buffer.name for part in _parts(statements) if isinstance(part, Load)}


def _changed(one: RowLoop, old: ScalarVar, new: Scalar) -> RowLoop:
    known: dict[Scalar, Scalar] = {old: new}
    edge = None if one.edge is None else _changed(one.edge, old, new)
    return replace(one, body=changed_statements(one.body, known.get), edge=edge)
