"""The values of indices, as far as they are known statically: loops with static bounds are enumerated."""

import re
from collections.abc import Iterable, Iterator, Mapping

from openinfer.check.access import StaticValue, static_value
from openinfer.check.bound import BoundVar
from openinfer.ir import Access, Loop, Single
from openinfer.ir.expr import BinaryExpr, Expr, Num, names

Around = tuple[Loop, ...]
"""The enclosing loops of a node, outermost first."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_MOST = 4096
"""The number of iterations enumerated for one operand; the rest is checked at run time."""
_MOST_IN_ALL = 250_000
"""The number of iterations enumerated for a whole graph."""
_LONGEST_NAME = 64
"""The maximum number of bits of an index in the name of a tensor."""


_UNKNOWN = BinaryExpr("/", Num(1), Num(0))
"""An expression that has no value, whatever its names mean."""


def around(indices: Iterable[str]) -> Around:
    """The loops around the nodes of a block that is called: one with unknown bounds for each index parameter."""
    return tuple(Loop(name, name, Num(0), _UNKNOWN, ()) for name in indices)


def spelled(pattern: str, values: Mapping[str, int]) -> str:
    """A pattern with its indices filled in.

    >>> spelled("attn.{head}.qkv.{layer}", {"layer": 3, "head": 0})
    'attn.0.qkv.3'
    """
    return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), pattern)


def spelling(pattern: str) -> re.Pattern[str]:
    """A regular expression for the names that a pattern can give.

    >>> bool(spelling("W.{l}").fullmatch("W.12")), bool(spelling("W.{l}").fullmatch("W.bias"))
    (True, False)
    """
    parts = _PLACEHOLDER.split(pattern)[::2]
    return re.compile("-?[0-9]+".join(map(re.escape, parts)))


def pattern_name(
    variable: BoundVar, access: Access, pattern: str, values: Mapping[str, int], static: StaticValue
) -> str | None:
    """The model tensor that an access of a prefix table names at these loop indices; None if it is not static."""
    assert variable.decl is not None
    chosen: dict[str, int] = {}
    for name, index in zip(variable.decl.table_indices, access.indices, strict=False):
        assert isinstance(index, Single)
        value = static_value(index.value, lambda key: values[key] if key in values else static(key))
        if value is None or value.bit_length() > _LONGEST_NAME:
            return None
        chosen[name] = value
    return spelled(pattern, chosen)


class Ranges:
    """Enumerates the values of loop indices."""

    def __init__(self, static: StaticValue) -> None:
        self._static = static
        self._left = _MOST_IN_ALL
        self._judged: dict[object, int | None] = {}

    def all(self, access: Access | None, loops: Around, pattern: str = "") -> Iterator[Mapping[str, int]]:
        """The combinations of the loop indices in an access or pattern, up to a limit; none if they are not static.

        All iterations yield the same mapping, updated in place.
        """
        used = set(_PLACEHOLDER.findall(pattern))
        for index in access.indices if access is not None else ():
            used |= set(names(index.value)) if isinstance(index, Single) else set()
        yield from self._combinations(_needed(loops, used))

    def outside(self, expr: Expr, loops: Around, last: int | None, *, counts_back: bool) -> int | None:
        """A value of an index that is below zero or above ``last`` in some iteration; ends of slices count back."""
        needed = _needed(loops, set(names(expr)))
        key = (str(expr), tuple(map(id, needed)), last, counts_back)
        if key not in self._judged:
            self._judged[key] = self._outside(expr, needed, last, counts_back=counts_back)
        return self._judged[key]

    def _outside(self, expr: Expr, loops: Around, last: int | None, *, counts_back: bool) -> int | None:
        for values in self._combinations(loops):
            value = self._value(expr, values)
            if value is None:
                return None
            if (last is not None and value > last) or (value < 0 and not counts_back):
                return value
        return None

    def _combinations(self, loops: Around) -> Iterator[Mapping[str, int]]:
        """The indices of nested loops, iteration by iteration. Iterations of outer loops count toward the limit, too.

        One counter per loop instead of recursion, since loops may nest deeper than generators should.
        """
        values: dict[str, int] = {}
        counters: list[Iterator[int]] = []
        turns = 0
        most = min(_MOST, max(self._left, len(loops)))  # the first iteration is always enumerated
        while True:
            if len(counters) == len(loops):
                yield values
            else:
                turn = self._turns(loops[len(counters)], values)
                if turn is None:
                    return
                counters.append(turn)
            while counters:
                turns += 1
                self._left -= 1
                if turns > most:
                    return
                value = next(counters[-1], None)
                index = loops[len(counters) - 1].index
                if value is not None:
                    values[index] = value
                    break
                values.pop(index, None)
                counters.pop()
            else:
                return

    def _turns(self, loop: Loop, values: Mapping[str, int]) -> Iterator[int] | None:
        start, end = (self._value(bound, values) for bound in (loop.start, loop.end))
        return None if start is None or end is None else iter(range(start, end))

    def _value(self, expr: Expr, values: Mapping[str, int]) -> int | None:
        return static_value(expr, lambda name: values[name] if name in values else self._static(name))


def _needed(loops: Around, used: set[str]) -> Around:
    """The loops whose indices are used, and the loops that their bounds depend on."""
    found: list[Loop] = []
    for loop in reversed(loops):
        if loop.index in used:
            found.append(loop)
            used = used | set(names(loop.start)) | set(names(loop.end))
    return tuple(reversed(found))
