"""Common subexpression elimination: names for what a statement would compute, and spell, more than once.

Only what is worth a name gets one: a function, or several operations. Names stand directly before their statement, in
its scope. What is computed under a condition only, in a branch of a choice or behind ``and`` and ``or``, stays there if
it could go wrong elsewhere: a load, a division of integers, a float that becomes an integer.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from openinfer.loops.dim import Dim
from openinfer.loops.ir import (
    INDEX,
    Binary,
    Buffer,
    Cast,
    Const,
    If,
    Let,
    Load,
    Local,
    Math,
    Round,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Statement,
    Store,
    Unary,
    assigned_by,
    children,
    rebuilt,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import binders, replaced, with_bodies, with_scalars

_LEAST = 2
"""How many operations a name must save, unless they are functions."""
_LONG = ("sqrt", "floor", "ceil", "rint", "trunc", "nextafter", "steps")


def named(value: Scalar, *others: Scalar) -> tuple[tuple[Let, ...], Scalar]:
    """The values to name first, in order, and the expression over these names, which ``others`` do not use.

    >>> from openinfer.dtypes import dtype_of
    >>> x = Math("exp", (ScalarVar("x", dtype_of("f32")),))
    >>> lets, rest = named(x + x)
    >>> [let.var.name for let in lets], rest == lets[0].var + lets[0].var
    (['exp_0'], True)
    """
    lets, (made,) = _Namer(_names_in(value, *others)).run([value])
    return lets, made


def with_names(statements: tuple[Statement, ...], taken: Collection[str] = ()) -> tuple[Statement, ...]:
    """Statements in which every value that occurs more than once in a statement has a name, none of those ``taken``."""
    names = {var.name for one in walk(statements) for var in binders(one)}
    for one in walk(statements):
        names |= _names_in(*scalars(one))
    names |= set(taken)
    assigned = {var for one in walk(statements) for var in assigned_by(one)}
    return _Scope(names, assigned, {}).run(statements)


def _names_in(*values: Scalar) -> set[str]:
    """The names of the variables and buffers in expressions."""
    found = set()
    for part in (part for value in values for part in visit(value)):
        match part:
            case ScalarVar(name=name) | Load(buffer=Buffer(name=name)):
                found.add(name)
    return found


class _Scope:
    """Statements one after the other, and those inside them, with what has a name by then and stays the same."""

    def __init__(self, taken: set[str], assigned: Collection[Scalar], known: Mapping[Scalar, Scalar]) -> None:
        self._taken = taken
        self._assigned = assigned
        self._known = dict(known)

    def run(self, statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(made for statement in statements for made in self._named(statement))

    def _named(self, statement: Statement) -> Iterator[Statement]:
        """A statement after the names of its values; conditions of loops are computed anew each time, and stay."""
        one = with_scalars(statement, partial(replaced, parts=self._known)) if self._known else statement
        if isinstance(one, Let | Local | SetLocal | Store | If):
            lets, one = _with_lets(one, self._taken)
            for let in lets:
                self._keep(let)
                yield let
        yield with_bodies(one, _Scope(self._taken, self._assigned, self._known).run)

    def _keep(self, let: Let) -> None:
        """A name stands for its value from here on, if that can be no other later."""
        if not any(isinstance(part, Load) or part in self._assigned for part in visit(let.value)):
            self._known[let.value] = let.var


def _with_lets(statement: Statement, taken: set[str]) -> tuple[tuple[Let, ...], Statement]:
    """A statement over names, and these."""
    values: list[Scalar] = []

    def seen(value: Scalar) -> Scalar:
        values.append(value)
        return value

    with_scalars(statement, seen)
    lets, made = _Namer(taken).run(values)
    rest = iter(made)
    return lets, with_scalars(statement, lambda _: next(rest)) if lets else statement


class _Namer:
    """The values of a statement as a graph: equal parts are one node, numbered before what they are part of."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._numbers: dict[int, int] = {}
        self._keys: dict[object, int] = {}
        self._nodes: list[Scalar] = []
        self._parts: list[tuple[int, ...]] = []
        self._kept: list[Scalar] = []

    def run(self, values: Sequence[Scalar]) -> tuple[tuple[Let, ...], list[Scalar]]:
        """The names, and the values over them."""
        roots = [self._number(value) for value in values]
        if len(self._nodes) == sum(map(len, self._parts)) + len(roots):
            return (), [*values]  # Every node has one use.
        often, always = self._often(roots), self._always(roots)
        lets: list[Let] = []
        made: list[Scalar] = []
        sizes: list[int] = []
        harmless: list[bool] = []
        for number, (node, parts) in enumerate(zip(self._nodes, self._parts, strict=True)):
            own = rebuilt(node, tuple(made[part] for part in parts)) if parts else node
            size = _size(node) + sum(sizes[part] for part in parts)
            harmless.append(_is_harmless(node) and all(harmless[part] for part in parts))
            is_safe = harmless[number] or bool(always >> number & 1)
            if size * (often[number] - 1) >= _LEAST and is_safe and self._is_readable(number):
                let = Let(ScalarVar(self._name(node), node.dtype), own)
                lets.append(let)
                own, size, harmless[number] = let.var, 0, True
            made.append(own)
            sizes.append(size)
        return tuple(lets), [made[root] for root in roots]

    def _number(self, value: Scalar) -> int:
        """One number for all parts that are equal."""
        found = self._numbers.get(id(value))
        if found is not None:
            return found
        parts = tuple(map(self._number, children(value)))
        # Equal nodes over operands with equal numbers are the same; the operands need not be compared again.
        stand_ins = tuple(ScalarVar(f"#{part}", self._nodes[part].dtype) for part in parts)
        key = rebuilt(value, stand_ins) if parts else value
        if key not in self._keys:
            self._keys[key] = len(self._nodes)
            self._nodes.append(value)
            self._parts.append(parts)
        self._numbers[id(value)] = self._keys[key]
        self._kept.append(value)
        return self._keys[key]

    def _often(self, roots: Sequence[int]) -> list[int]:
        """How often each node would be spelled if all that is spelled more often, and larger, had a name."""
        sizes: list[int] = []
        for node, parts in zip(self._nodes, self._parts, strict=True):
            sizes.append(min(_size(node) + sum(sizes[part] for part in parts), _LEAST))
        counts = Counter(roots)
        for number in range(len(self._nodes) - 1, -1, -1):
            is_named = sizes[number] * (counts[number] - 1) >= _LEAST
            for part in self._parts[number]:
                counts[part] += 1 if is_named else counts[number]
        return [counts[number] for number in range(len(self._nodes))]

    def _is_readable(self, number: int) -> bool:
        """Whether a name helps: not for a position that is computed from data, whose arithmetic can wrap elsewhere."""
        if self._nodes[number].dtype is not INDEX:
            return True
        return not isinstance(self._nodes[number], Load | Cast) and all(map(self._is_readable, self._parts[number]))

    def _always(self, roots: Sequence[int]) -> int:
        """The nodes, as bits, that are computed whatever a choice says."""
        found: list[int] = []
        for number, (node, parts) in enumerate(zip(self._nodes, self._parts, strict=True)):
            own = 1 << number
            inside = [found[part] for part in parts]
            match node:
                case Select():
                    own |= inside[0] | (inside[1] & inside[2])
                case Binary("and" | "or") if node.dtype.kind == "bool":
                    own |= inside[0]
                case _:
                    for one in inside:
                        own |= one
            found.append(own)
        every = 0
        for root in roots:
            every |= found[root]
        return every

    def _name(self, node: Scalar) -> str:
        hint = _hint(node)
        number = 0
        while f"{hint}{number}" in self._taken:
            number += 1
        self._taken.add(f"{hint}{number}")
        return f"{hint}{number}"


def _hint(node: Scalar) -> str:
    """What a value is called, before its number: as the function it is of, or the memory it is from."""
    match node:
        case Math(function=name) | Unary("sqrt" as name) | Load(buffer=Buffer(name=name)):
            return f"{name}_"
        case _:
            return "t"


def _size(node: Scalar) -> int:
    """How many operations a node adds to what is spelled; a function counts as many."""
    match node:
        case ScalarVar() | Const():
            return 0
        case Math():
            return _LEAST
        case Unary(op) if op in _LONG:
            return _LEAST
        case Load(index=index):
            return max(len(index), 1)
        case Round():
            return _LEAST
        case _:
            return 1


def _is_harmless(node: Scalar) -> bool:
    """Whether a node itself can be computed in vain, with operands for which it would not be: nothing goes wrong."""
    match node:
        case Load():
            return False
        case Cast(operand, dtype):
            return operand.dtype.kind != "float" or dtype.kind == "float"
        case Binary("div" | "rem", _, right) if node.dtype.kind != "float":
            return isinstance(right, Const) and not isinstance(right.value, Dim) and right.value > 0
        case _:
            return True
