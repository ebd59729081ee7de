"""Common subexpression elimination: names values that a statement would compute, and print, more than once.

Only values worth a name get one: a function call, or several operations. Names are bound directly before their
statement, in its scope. A value that is computed only under a condition (in a branch of a selection, or behind ``and``
or ``or``) stays there if it could go wrong elsewhere: a load, an integer division, a float-to-integer cast.
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
"""The number of operations that a name must save; a function call counts as that many."""
_LONG = ("sqrt", "floor", "ceil", "rint", "trunc", "nextafter", "steps")


def named(value: Scalar, *others: Scalar) -> tuple[tuple[Let, ...], Scalar]:
    """The bindings to insert, in order, and the expression over them; the new names do not occur in ``others``.

    >>> from openinfer.dtypes import dtype_of
    >>> x = Math("exp", (ScalarVar("x", dtype_of("f32")),))
    >>> lets, rest = named(x + x)
    >>> [let.var.name for let in lets], rest == lets[0].var + lets[0].var
    (['exp_0'], True)
    """
    lets, (made,) = _ValueGraph(_names_in(value, *others)).run([value])
    return lets, made


def with_names(statements: tuple[Statement, ...], taken: Collection[str] = ()) -> tuple[Statement, ...]:
    """Name every value that occurs more than once in a statement; new names are none of those in ``taken``."""
    names = {var.name for one in walk(statements) for var in binders(one)}
    for one in walk(statements):
        names |= _names_in(*scalars(one))
    names |= set(taken)
    assigned = {var for one in walk(statements) for var in assigned_by(one)}
    return _SharingScope(names, assigned, {}).run(statements)


def _names_in(*values: Scalar) -> set[str]:
    """The names of the variables and buffers in expressions."""
    found = set()
    for part in (part for value in values for part in visit(value)):
        match part:
            case ScalarVar(name=name) | Load(buffer=Buffer(name=name)):
                found.add(name)
    return found


class _SharingScope:
    """Rewrites statements in order, nested ones included, and reuses the names of values that cannot have changed."""

    def __init__(self, taken: set[str], assigned: Collection[Scalar], known: Mapping[Scalar, Scalar]) -> None:
        self._taken = taken
        self._assigned = assigned
        self._known = dict(known)

    def run(self, statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(made for statement in statements for made in self._named(statement))

    def _named(self, statement: Statement) -> Iterator[Statement]:
        """The new bindings, then the statement. Loop conditions are evaluated anew each time, so they stay in place."""
        one = with_scalars(statement, partial(replaced, parts=self._known)) if self._known else statement
        if isinstance(one, Let | Local | SetLocal | Store | If):
            lets, one = _with_lets(one, self._taken)
            for let in lets:
                self._keep(let)
                yield let
        # A branch does not know the names of the other one.
        yield with_bodies(one, lambda body: _SharingScope(self._taken, self._assigned, self._known).run(body))

    def _keep(self, let: Let) -> None:
        """Reuse a name from here on, unless its value depends on memory or on assigned variables."""
        if not any(isinstance(part, Load) or part in self._assigned for part in visit(let.value)):
            self._known[let.value] = let.var


def _with_lets(statement: Statement, taken: set[str]) -> tuple[tuple[Let, ...], Statement]:
    """The bindings for a statement's repeated values, and the statement over them."""
    values: list[Scalar] = []

    def seen(value: Scalar) -> Scalar:
        values.append(value)
        return value

    with_scalars(statement, seen)
    lets, made = _ValueGraph(taken).run(values)
    rest = iter(made)
    return lets, with_scalars(statement, lambda _: next(rest)) if lets else statement


class _ValueGraph:
    """The values of a statement as a graph: equal subexpressions share a node, and operands are numbered first."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._numbers: dict[int, int] = {}
        self._keys: dict[object, int] = {}
        self._nodes: list[Scalar] = []
        self._parts: list[tuple[int, ...]] = []
        self._kept: list[Scalar] = []

    def run(self, values: Sequence[Scalar]) -> tuple[tuple[Let, ...], list[Scalar]]:
        """The bindings, and the values over them."""
        roots = [self._number(value) for value in values]
        if len(self._nodes) == sum(map(len, self._parts)) + len(roots):
            return (), [*values]  # Every node has one use.
        often, always = self._print_counts(roots), self._unconditional(roots)
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
        """The number of an expression's node; equal expressions share one."""
        found = self._numbers.get(id(value))
        if found is not None:
            return found
        parts = tuple(map(self._number, children(value)))
        # Nodes with equally numbered operands are equal if the rest is, so operands are not compared again.
        stand_ins = tuple(ScalarVar(f"#{part}", self._nodes[part].dtype) for part in parts)
        key = rebuilt(value, stand_ins) if parts else value
        if key not in self._keys:
            self._keys[key] = len(self._nodes)
            self._nodes.append(value)
            self._parts.append(parts)
        self._numbers[id(value)] = self._keys[key]
        self._kept.append(value)
        return self._keys[key]

    def _print_counts(self, roots: Sequence[int]) -> list[int]:
        """How often each node would be printed if every larger node worth a name had one."""
        sizes: list[int] = []
        for node, parts in zip(self._nodes, self._parts, strict=True):
            sizes.append(min(_size(node) + sum(sizes[part] for part in parts), _LEAST))
        counts = Counter(roots)
        for number in range(len(self._nodes) - 1, -1, -1):
            is_named = sizes[number] * (counts[number] - 1) >= _LEAST and self._is_readable(number)
            for part in self._parts[number]:
                counts[part] += 1 if is_named else counts[number]
        return [counts[number] for number in range(len(self._nodes))]

    def _is_readable(self, number: int) -> bool:
        """Whether a name helps: not for a position computed from data, whose arithmetic could wrap elsewhere."""
        if self._nodes[number].dtype is not INDEX:
            return True
        return not isinstance(self._nodes[number], Load | Cast) and all(map(self._is_readable, self._parts[number]))

    def _unconditional(self, roots: Sequence[int]) -> int:
        """The nodes, as a bit set, that are computed whatever the conditions of selections are."""
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
    """A name without its number: that of the function or the buffer that the value comes from."""
    match node:
        case Math(function=name) | Unary("sqrt" as name) | Load(buffer=Buffer(name=name)):
            return f"{name}_"
        case _:
            return "t"


def _size(node: Scalar) -> int:
    """The number of operations that a node adds to the printed code; a function counts as several."""
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
    """Whether a node is safe to compute speculatively, provided that its operands are."""
    match node:
        case Load():
            return False
        case Cast(operand, dtype):
            return operand.dtype.kind != "float" or dtype.kind == "float"
        case Binary("div" | "rem", _, right) if node.dtype.kind != "float":
            return isinstance(right, Const) and not isinstance(right.value, Dim) and right.value > 0
        case _:
            return True
