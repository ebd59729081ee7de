"""Variables as trees: scopes of a frame, and arrays that expand into their parts.

Whatever can be expanded has a number, which is valid until the run continues.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from openinfer.check.bound import BoundVar, FromPattern
from openinfer.errors import ExecutionError
from openinfer.ir import Access, MemoryKind
from openinfer.ops import Array
from openinfer.sim.commands import RefusedError
from openinfer.sim.inspection import brief, numbers, overview
from openinfer.sim.preview import format_truncated
from openinfer.sim.stops import parsed_access
from openinfer.sim.views import ExecutionPoint

MOST_CHILDREN = 1000
"""The most parts of an array that are shown if the client does not ask for a number."""


@dataclass(frozen=True)
class FrameScope:
    """A group of variables of a frame."""

    title: str
    kind: MemoryKind | None
    block: str
    """The block that the variables are local to; empty for those that all blocks share."""


@dataclass(frozen=True)
class ArrayPart:
    """A variable, or what is left of it after some indices."""

    variable: BoundVar
    name: str
    path: tuple[int, ...] = ()


SCOPES = (
    ("Values", MemoryKind.VOLATILE),
    ("Inputs", MemoryKind.DYNAMIC),
    ("Persistent", MemoryKind.PERSISTENT),
    ("Constants", MemoryKind.CONSTANT),
)
INDICES = FrameScope("Loop indices and sizes", None, "")


class ValueTrees:
    """Numbers for what a client can expand, and its children."""

    def __init__(self) -> None:
        self._shown: list[FrameScope | ArrayPart] = []

    def forget(self) -> None:
        """Invalidate all numbers, because the run continues."""
        self._shown.clear()

    def number(self, shown: FrameScope | ArrayPart) -> int:
        """Assign a number to something that can be expanded."""
        self._shown.append(shown)
        return len(self._shown)

    def shown(self, number: int) -> FrameScope | ArrayPart:
        """What a number refers to."""
        if not 1 <= number <= len(self._shown):
            message = "these variables are not shown any more; the run has gone on"
            raise RefusedError(message)
        return self._shown[number - 1]

    # --- scopes ---------------------------------------------------------------------------------------------------

    def scopes(self, place: ExecutionPoint, block: str) -> list[dict[str, Any]]:
        """The scopes of a frame in a block."""
        own = [FrameScope(f"Block {block}", None, block)] if _names(place, FrameScope("", None, block)) else []
        shared = [FrameScope(title, kind, "") for title, kind in SCOPES]
        found = [*own, *(one for one in shared if _names(place, one)), INDICES]
        return [
            {
                "name": one.title,
                "variablesReference": self.number(one),
                "expensive": False,
                "presentationHint": "locals",
            }
            for one in found
        ]

    def children(self, place: ExecutionPoint, number: int, start: int, count: int) -> list[dict[str, Any]]:
        """The children of what a number refers to."""
        shown = self.shown(number)
        if isinstance(shown, ArrayPart):
            return list(self._parts(place, shown, start, count))
        if shown is INDICES:
            return list(_integers(place))
        names = _names(place, shown)[start : start + (count or len(place.variables.bound.vars))]
        return [self._variable(place, name, shown) for name in names]

    def _variable(self, place: ExecutionPoint, name: str, scope: FrameScope) -> dict[str, Any]:
        variable = place.variables.bound.vars[name]
        try:
            text = overview(place, variable)
        except ExecutionError as error:
            text = f"({error.message})"
        shown = name.rpartition(".")[2] if scope.block else name
        opens = not isinstance(variable.origin, FromPattern) and (variable.is_table or bool(variable.shape))
        return {
            "name": shown,
            "value": text,
            "type": str(variable.type),
            "evaluateName": name,
            "variablesReference": self.number(ArrayPart(variable, name)) if opens else 0,
        }

    # --- arrays ---------------------------------------------------------------------------------------------------

    def _parts(self, place: ExecutionPoint, part: ArrayPart, start: int, count: int) -> Iterator[dict[str, Any]]:
        whole = place.read(Access(part.name))
        value = whole[part.path]
        if not part.path and start == 0:
            yield {"name": "(statistics)", "value": numbers(value).strip(), "variablesReference": 0}
        if not value.ndim:
            return
        last = min(len(value), start + (count or MOST_CHILDREN))
        for index in range(start, last):
            yield self.element(part, (*part.path, index), value[index], f"[{index}]")
        if not count and last < len(value):
            yield {"name": f"[{last}..]", "value": f"{len(value) - last} more", "variablesReference": 0}

    def element(self, part: ArrayPart, path: tuple[int, ...], value: Array, name: str) -> dict[str, Any]:
        """A part of an array as a variable."""
        opens = getattr(value, "ndim", 0) > 0
        where = f"{part.name}[{', '.join(map(str, path))}]" if path else part.name
        return {
            "name": name,
            "value": brief(part.variable, value) if opens else format_truncated(value),
            "evaluateName": where,
            "variablesReference": self.number(ArrayPart(part.variable, part.name, path)) if opens else 0,
            **({"indexedVariables": len(value)} if opens else {}),
        }

    def evaluated(self, place: ExecutionPoint, text: str) -> dict[str, Any]:
        """The value of an expression: a variable, a part of one, a loop index or a size."""
        access = place.seen(parsed_access(text))
        variable = place.variables.bound.vars.get(access.base)
        if variable is None:
            known = {one["name"]: one["value"] for one in _integers(place)}
            if access.bracketed or access.base not in known:
                message = f"there is no variable {access.base!r:.60}"
                raise RefusedError(message)
            return {"result": known[access.base], "variablesReference": 0}
        value = place.read(access)
        is_whole = not access.bracketed and value.ndim > 0
        number = self.number(ArrayPart(variable, access.base)) if is_whole else 0
        return {"result": brief(variable, value), "type": str(variable.type), "variablesReference": number}

    def access(self, number: int, name: str) -> Access:
        """The access that a name below a number stands for, to change its value."""
        shown = self.shown(number)
        if isinstance(shown, FrameScope):
            if shown is INDICES:
                message = f"{name!r:.60} is an index or a size, which only the graph changes"
                raise RefusedError(message)
            return parsed_access(f"{shown.block}.{name}" if shown.block else name)
        if not (name.startswith("[") and name.endswith("]") and name[1:-1].isdigit()):
            message = f"{name!r:.60} cannot be changed"
            raise RefusedError(message)
        return parsed_access(f"{shown.name}[{', '.join(map(str, (*shown.path, int(name[1:-1]))))}]")


def _names(place: ExecutionPoint, scope: FrameScope) -> list[str]:
    bound = place.variables.bound
    if scope.block:
        return [name for name in bound.vars if name.startswith(f"{scope.block}.") and name in bound.locals]
    return [name for name, one in bound.vars.items() if one.kind is scope.kind and name not in bound.locals]


def _integers(place: ExecutionPoint) -> Iterator[dict[str, Any]]:
    bound, sizes = place.variables.bound, place.variables.values.sizes
    for name, value in place.indices.items():
        yield {"name": name, "value": str(value), "type": "loop index", "variablesReference": 0}
    for name, value in {**bound.sizes, **sizes.dynamic}.items():
        yield {"name": name, "value": str(value), "type": "size", "variablesReference": 0}
    for name, most in bound.bounds.items():
        if name not in sizes.dynamic:
            yield {"name": name, "value": f"at most {most}", "type": "size", "variablesReference": 0}
