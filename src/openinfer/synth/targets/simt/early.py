"""Hoists loads to the start of a thread, so that all of them are in flight at the same time.

A short launch whose loads wait for barriers, or for other loads, takes the sum of their latencies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from openinfer.loops.affine import variables
from openinfer.loops.ir import (
    INDEX,
    Buffer,
    If,
    Let,
    Load,
    Scalar,
    Space,
    Statement,
    Store,
    WideLoad,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements, changed_statements, replaced
from openinfer.synth.targets.simt.team import as_words
from openinfer.synth.targets.simt.wide import FreshNames

_MOST_WORDS = 64
"""Registers per thread for values loaded early."""


@dataclass
class EarlyLoads:
    """Collects the loads that are hoisted to the start."""

    known: set[str]
    """Variables that are defined at the start."""
    names: FreshNames
    statements: list[Statement] = field(default_factory=list)
    """Hoisted loads in order, with the indices that they need."""
    _places: dict[Scalar, Scalar] = field(default_factory=dict)
    """Hoisted index variables, with their values."""
    _accesses: dict[tuple[Buffer, tuple[Scalar, ...]], WideLoad] = field(default_factory=dict)
    _words: int = 0

    def without_accesses(self, body: Sequence[Statement]) -> Statements:
        """Hoists wide loads out of statements that write only shared memory; returns the other statements.

        Loaded words are unpacked where the load was: nothing waits for it before that.
        """
        found: list[Statement] = []
        for one in body:
            if isinstance(one, Let) and self._is_place(one):
                self._add_place(one)
            elif isinstance(one, WideLoad) and self._is_early(one.buffer, one.index) and self._has_room(one):
                found += self._accessed(one)
            else:
                found.append(one)
        return tuple(found)

    def with_operands(self, body: Statements) -> Statements:
        """Hoists the loads of statements at the end of an iteration; returns the other statements."""
        written = {one.buffer.name for one in walk(body) if isinstance(one, Store)}
        made: dict[Scalar, Scalar] = {}
        for one in _straight(body):
            if isinstance(one, Let) and self._is_place(one):
                self._add_place(one)
            for load in (part for value in scalars(one) for part in visit(value) if isinstance(part, Load)):
                if load not in made and load.buffer.name not in written and self._is_early(load.buffer, load.index):
                    var = self.names.var(load.buffer.name, load.dtype)
                    self.statements.append(Let(var, load))
                    made[load] = var
        return changed_statements(_without(body, self._places), made.get)

    def _is_place(self, one: Let) -> bool:
        return one.var.dtype is INDEX and self._is_known(one.value)

    def _add_place(self, one: Let) -> None:
        self.statements.append(one)
        self.known.add(one.var.name)
        self._places[one.var] = replaced(one.value, self._places)

    def _is_early(self, buffer: Buffer, index: Sequence[Scalar]) -> bool:
        return buffer.space not in (Space.OWN, Space.GROUP) and all(map(self._is_known, index))

    def _is_known(self, value: Scalar) -> bool:
        return variables(value) <= self.known and not any(isinstance(part, Load) for part in visit(value))

    def _has_room(self, one: WideLoad) -> bool:
        self._words += len(one.variables) * one.buffer.dtype.bits // 32
        return self._words <= _MOST_WORDS

    def _accessed(self, one: WideLoad) -> Iterator[Statement]:
        """Hoists a load, unless the same one is hoisted already; yields names for its elements."""
        key = one.buffer, tuple(replaced(part, self._places) for part in one.index)
        own = replace(one, variables=tuple(self.names.var(var.name, var.dtype) for var in one.variables))
        access, elements = as_words(own, self.names)
        first = self._accesses.setdefault(key, access)
        if first is access:
            self.statements.append(access)
        same: dict[Scalar, Scalar] = dict(zip(access.variables, first.variables, strict=True))
        values = [replaced(each.value, same) for each in elements] or first.variables
        yield from (Let(var, value) for var, value in zip(one.variables, values, strict=True))


def _straight(body: Statements) -> Iterator[Statement]:
    """The statements at the end of an iteration, including those inside branches."""
    for one in body:
        if isinstance(one, If):
            yield from _straight(one.then)
        else:
            yield one


def _without(body: Statements, places: dict[Scalar, Scalar]) -> Statements:
    found: list[Statement] = []
    for one in body:
        if isinstance(one, If):
            found.append(replace(one, then=_without(one.then, places)))
        elif not (isinstance(one, Let) and one.var in places):
            found.append(one)
    return tuple(found)
