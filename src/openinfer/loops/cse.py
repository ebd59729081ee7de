"""Common subexpression elimination: names for the parts of an expression that occur more than once."""

from collections import Counter

from openinfer.dtypes import DTYPES
from openinfer.loops.ir import INDEX, Binary, Const, Let, Load, Scalar, ScalarVar, Select, children, rebuilt

_UNNAMED = (INDEX, DTYPES["i64"])
"""Arithmetic that compilers fold by themselves."""


def named(value: Scalar, prefix: str) -> tuple[tuple[Let, ...], Scalar]:
    """The values to name first, in order, and the expression over these names.

    >>> from openinfer.dtypes import dtype_of
    >>> x = ScalarVar("x", dtype_of("f32")) * 2.0
    >>> lets, rest = named(x + x, "v")
    >>> [let.var.name for let in lets], rest == lets[0].var + lets[0].var
    (['v0'], True)
    """
    return _Namer(prefix).run(value)


class _Namer:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._numbers: dict[int, int] = {}
        self._keys: dict[object, int] = {}
        self._nodes: list[Scalar] = []
        self._parts: list[tuple[int, ...]] = []
        self._kept: list[Scalar] = []

    def run(self, value: Scalar) -> tuple[tuple[Let, ...], Scalar]:
        root = self._number(value)
        counts = Counter(part for parts in self._parts for part in parts)
        always = self._always(root)
        lets: list[Let] = []
        made: list[Scalar] = []
        careful: list[bool] = []
        for number, (node, parts) in enumerate(zip(self._nodes, self._parts, strict=True)):
            own = rebuilt(node, tuple(made[part] for part in parts)) if parts else node
            is_division = isinstance(node, Binary) and node.op in ("div", "rem") and node.dtype.kind != "float"
            careful.append(isinstance(node, Load) or is_division or any(careful[part] for part in parts))
            is_safe = number in always or not careful[number]
            is_plain = isinstance(node, ScalarVar | Const) or node.dtype in _UNNAMED
            if counts[number] > 1 and not is_plain and is_safe:
                let = Let(ScalarVar(f"{self._prefix}{len(lets)}", node.dtype), own)
                lets.append(let)
                own = let.var
                careful[number] = False
            made.append(own)
        return tuple(lets), made[root]

    def _number(self, value: Scalar) -> int:
        """Value numbering: equal subexpressions share a number, and operands are numbered before their users."""
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

    def _always(self, root: int) -> set[int]:
        """The subexpressions that are evaluated unconditionally."""
        found: set[int] = set()
        stack = [root]
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                parts = self._parts[number]
                stack.extend(parts[:1] if isinstance(self._nodes[number], Select) else parts)
        return found
