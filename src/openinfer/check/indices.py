"""What indices can be, as far as that is known before anything runs: loops with static bounds are followed."""

import re
from collections.abc import Iterator
from itertools import islice

from openinfer.check.access import StaticValue, static_value
from openinfer.check.bound import BoundVar
from openinfer.ir import Access, Loop, Single
from openinfer.ir.expr import Expr, names

Around = tuple[Loop, ...]
"""The loops around a node, outermost first."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_MOST = 4096
"""How many combinations of loop indices are tried; the rest is left to the run."""


def spelled(pattern: str, values: dict[str, int]) -> str:
    """A pattern with its indices filled in.

    >>> spelled("attn.{head}.qkv.{layer}", {"layer": 3, "head": 0})
    'attn.0.qkv.3'
    """
    return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), pattern)


def pattern_name(
    variable: BoundVar, access: Access, pattern: str, values: dict[str, int], static: StaticValue
) -> str | None:
    """The model tensor that an access of a prefix table names at these loop indices, where that is static."""
    assert variable.decl is not None
    chosen: dict[str, int] = {}
    for name, index in zip(variable.decl.table_indices, access.indices, strict=False):
        assert isinstance(index, Single)
        value = static_value(index.value, lambda key: values[key] if key in values else static(key))
        if value is None:
            return None
        chosen[name] = value
    return spelled(pattern, chosen)


class Ranges:
    """The values that loop indices take."""

    def __init__(self, static: StaticValue) -> None:
        self._static = static

    def all(self, access: Access | None, loops: Around, pattern: str = "") -> Iterator[dict[str, int]]:
        """The combinations of the loop indices that an access or pattern uses, up to a limit; none if not static."""
        used = set(_PLACEHOLDER.findall(pattern))
        for index in access.indices if access is not None else ():
            used |= set(names(index.value)) if isinstance(index, Single) else set()
        yield from islice(self._combinations(_needed(loops, used)), _MOST)

    def _combinations(self, loops: Around) -> Iterator[dict[str, int]]:
        if not loops:
            yield {}
            return
        for outer in self._combinations(loops[:-1]):
            loop = loops[-1]
            start, end = (self._value(bound, outer) for bound in (loop.start, loop.end))
            if start is None or end is None:
                return
            for value in range(start, end):
                yield {**outer, loop.index: value}

    def _value(self, expr: Expr, values: dict[str, int]) -> int | None:
        return static_value(expr, lambda name: values[name] if name in values else self._static(name))

    def outside(self, expr: Expr, loops: Around, last: int, *, counts_back: bool) -> int | None:
        """A value of an index that is below zero or above ``last`` in some iteration; ends of slices count back."""
        needed = _needed(loops, set(names(expr)))
        for values in islice(self._combinations(needed), _MOST):
            value = self._value(expr, values)
            if value is None:
                return None
            if value > last or (value < 0 and not counts_back):
                return value
        return None


def _needed(loops: Around, used: set[str]) -> Around:
    """The loops whose indices are used, and those that their bounds depend on."""
    found: list[Loop] = []
    for loop in reversed(loops):
        if loop.index in used:
            found.append(loop)
            used = used | set(names(loop.start)) | set(names(loop.end))
    return tuple(reversed(found))
