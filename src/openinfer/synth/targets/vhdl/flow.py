"""A loop body as data flow: reads, long products, values and stores, in an order that respects all dependences.

As in SSA, variables get a new name with each value, conditions become selects, and short loops are unrolled. What is
left has no control flow, so iterations can overlap.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from openinfer.dtypes import DType
from openinfer.loops.dim import Dim
from openinfer.loops.expand import expanded
from openinfer.loops.ir import (
    INDEX,
    Alloc,
    Binary,
    Buffer,
    Const,
    Contraction,
    For,
    If,
    Let,
    Load,
    Local,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Statement,
    Store,
    children,
    rebuilt,
)
from openinfer.loops.simplify import once
from openinfer.loops.used import offset

_UNROLLED = 4
"""Loops of at most this many iterations are unrolled."""
_MOST_OPERATIONS = 64


class NotStraightError(Exception):
    """A loop whose iterations cannot overlap."""


@dataclass(frozen=True)
class FlowRead:
    """Requests an element; the response comes later."""

    var: ScalarVar
    buffer: Buffer
    place: Scalar


@dataclass(frozen=True)
class FlowProduct:
    """A long product, which takes a clock of its own."""

    var: ScalarVar
    value: Binary


@dataclass(frozen=True)
class FlowValue:
    """A named expression."""

    var: ScalarVar
    value: Scalar


@dataclass(frozen=True)
class FlowStore:
    """Stores an element, always or under a condition."""

    buffer: Buffer
    place: Scalar
    value: Scalar
    guard: Scalar | None


@dataclass(frozen=True)
class FlowUpdate:
    """Sets a loop-carried variable for the next iteration."""

    var: ScalarVar
    value: Scalar


FlowStep = FlowRead | FlowProduct | FlowValue | FlowStore | FlowUpdate


@dataclass
class LoopFlow:
    """Builds the flow of a body; ``is_long`` tells which products take their own clock, or raises for slower values."""

    is_long: Callable[[Scalar], bool]
    declare: Callable[[ScalarVar, Scalar], None]
    """Declares a name by its value, or by the element that it stands for."""
    simpler: Callable[[Scalar], Scalar]
    """Simplifies an expression."""
    values: dict[str, Scalar]
    """What names stand for."""
    steps: list[FlowStep] = field(default_factory=list)
    _own: set[str] = field(default_factory=set)
    _carried: dict[str, ScalarVar] = field(default_factory=dict)
    _reads: dict[tuple[str, Scalar], ScalarVar] = field(default_factory=dict)
    _stored: dict[str, Scalar] = field(default_factory=dict)

    @property
    def in_place(self) -> frozenset[str]:
        """The buffers that are both read and written."""
        return frozenset(name for name, _ in self._reads) & frozenset(self._stored)

    @property
    def places_in_place(self) -> list[Scalar]:
        """The offsets at which buffers are accessed in place."""
        found = [place for name, place in self._stored.items() if name in self.in_place]
        for name, place in self._reads:
            if name in self.in_place and place != self._stored[name]:
                raise NotStraightError
        return found

    def run(self, body: Sequence[Statement]) -> None:
        """Build the flow of one iteration."""
        self._body(body, None)
        for name, var in self._carried.items():
            self.steps.append(FlowUpdate(var, self.values[name]))

    @property
    def carried(self) -> frozenset[str]:
        """The loop-carried variables."""
        return frozenset(self._carried)

    def _body(self, body: Sequence[Statement], guard: Scalar | None) -> None:
        for statement in body:
            if len(self.steps) > _MOST_OPERATIONS:
                raise NotStraightError
            self._statement(statement, guard)

    def _statement(self, statement: Statement, guard: Scalar | None) -> None:
        match statement:
            case Let(var, value) | Local(var, value):
                self._own.add(var.name)
                self.values[var.name] = self.named(value, var.name)
            case SetLocal(var, value):
                if var.name not in self._own:
                    self._carried[var.name] = var
                self.values[var.name] = self.named(value, var.name)
            case Store(buffer, index, value):
                self._store(buffer, offset(buffer, index), value, guard)
            case If(cond, then, otherwise):
                self._if(self.named(cond, "is"), then, otherwise, guard)
            case For(index, Const(extent), body) if not isinstance(extent, Dim) and int(extent) <= _UNROLLED:
                for at in range(int(extent)):
                    self.values[index.name] = Const(at, INDEX)
                    self._body(body, guard)
                self.values.pop(index.name, None)
            case Contraction():
                self._body(expanded(statement), guard)
            case Alloc():
                pass
            case _:
                raise NotStraightError

    def _if(
        self, cond: Scalar, then: Sequence[Statement], otherwise: Sequence[Statement], guard: Scalar | None
    ) -> None:
        before = dict(self.values)
        self._body(then, _both(guard, cond))
        chosen, self.values = self.values, dict(before)
        if otherwise:
            self._body(otherwise, _both(guard, self.named(~cond, "is")))
        for name in dict.fromkeys((*chosen, *self.values)):
            one = chosen.get(name, before.get(name))
            other = self.values.get(name, before.get(name))
            if one is other or name not in (*before, *self._carried):
                continue
            if one is None or other is None:  # carried, and changed in only one branch
                var = self._carried[name]
                one, other = var if one is None else one, var if other is None else other
            self.values[name] = self.named(Select(cond, one, other), name)

    def _store(self, buffer: Buffer, place: Scalar, value: Scalar, guard: Scalar | None) -> None:
        _require_whole(buffer.dtype)
        at, found = self.value(place), self.named(value, "put")
        spelled = self.simpler(self._spelled(place))
        if self._stored.setdefault(buffer.name, spelled) != spelled and self._is_read(buffer.name):
            raise NotStraightError
        self.steps.append(FlowStore(buffer, at, found, guard))

    def _is_read(self, name: str) -> bool:
        return any(one == name for one, _ in self._reads)

    def named(self, value: Scalar, what: str) -> Scalar:
        """Bind a value to a fresh name; constants and names are returned as they are."""
        made = self.value(value)
        if isinstance(made, Const | ScalarVar):
            return made
        var = self._fresh(what, made.dtype)
        self.declare(var, made)
        self.steps.append(FlowValue(var, made))
        return var

    def value(self, value: Scalar) -> Scalar:
        """Resolve an expression, with names in place of elements and long products."""
        return self._split(self.simpler(self._spelled(value)))

    def _split(self, value: Scalar) -> Scalar:
        if value.dtype.kind == "float":
            raise NotStraightError
        match value:
            case ScalarVar() | Const():
                return value
            case Load(buffer, index):
                return self._read(value, buffer, offset(buffer, index))
            case _:
                made = once(rebuilt(value, tuple(self._split(part) for part in children(value))))
        if isinstance(made, Binary) and self.is_long(made):
            var = self._fresh("product", made.dtype)
            self.declare(var, made)
            self.steps.append(FlowProduct(var, made))
            return var
        return made

    def _read(self, load: Load, buffer: Buffer, place: Scalar) -> Scalar:
        _require_whole(buffer.dtype)
        if buffer.name in self._stored:
            raise NotStraightError
        key = buffer.name, place
        if key not in self._reads:
            at = self._split(place)
            var = self._fresh("read", load.dtype)
            self.declare(var, load)
            self._reads[key] = var
            self.steps.append(FlowRead(var, buffer, at))
        return self._reads[key]

    def _spelled(self, place: Scalar) -> Scalar:
        """An expression with names replaced by what they stand for."""
        if isinstance(place, ScalarVar):
            return self.values.get(place.name, place)
        parts = children(place)
        return rebuilt(place, tuple(self._spelled(part) for part in parts)) if parts else place

    def _fresh(self, what: str, dtype: DType) -> ScalarVar:
        return ScalarVar(f"${what}${len(self.steps)}", dtype, what)


def _require_whole(dtype: DType) -> None:
    """Reject packed elements, whose writes must read first, and floats, which are only moved."""
    if dtype.bits < 8 or dtype.kind == "float":
        raise NotStraightError


def _both(one: Scalar | None, other: Scalar) -> Scalar:
    return other if one is None else Binary("and", one, other)
