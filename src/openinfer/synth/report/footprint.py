"""The footprint of a program on a microcontroller: code, stack, RAM, flash, and the instructions of a step."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEVEL = "-O3"
"""The optimization level of a project's Makefile."""
_NODE = re.compile(r'^node: \{ title: "([^"]+)" label: "[^"]*?(?:\\n(\d+) bytes \((\w+)[^"]*)?"', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Footprint:
    """The memory a program uses on a device, in bytes; None for what was not measured.

    ``stack`` is that of a step, without the compiler's own support functions. ``unmeasured`` explains what is missing.
    """

    compiler: str | None
    code: int | None
    stack: int | None
    context: int | None
    arena: int
    state: int
    weights: int
    instructions: int
    is_counted: bool
    """Whether an emulator counted the instructions; otherwise they are estimated."""
    unmeasured: tuple[str, ...] = ()

    @property
    def ram(self) -> int:
        """Writable memory, as far as known."""
        return self.arena + self.state + (self.context or 0) + (self.stack or 0)

    @property
    def flash(self) -> int:
        """Read-only memory, as far as known."""
        return (self.code or 0) + self.weights

    def facts(self) -> dict[str, Any]:
        """The footprint as plain values."""
        own = {name: getattr(self, name) for name in ("compiler", "code", "stack", "context")}
        counted = {"instructions": self.instructions, "is_counted": self.is_counted}
        return {**own, "ram": self.ram, "flash": self.flash, **counted, "unmeasured": list(self.unmeasured)}

    def text(self) -> str:
        """The footprint as lines of text."""
        with_what = f" ({self.compiler}, {LEVEL})" if self.compiler else ""
        known = {"arena": self.arena, "state": self.state, "context": self.context, "stack": self.stack}
        parts = ", ".join(f"{what} {size:,}" for what, size in known.items() if size is not None)
        how = "in an emulator, all inputs 0" if self.is_counted else "about, an estimate"
        lines = [
            "on the device",
            f"  code     {_bytes(self.code)}{with_what}, without weights",
            f"  stack    {_bytes(self.stack)} in a step, by the compiler's call graph",
            f"  RAM      {self.ram:,} bytes: {parts}",
            f"  flash    {self.flash:,} bytes: {'code and ' if self.code is not None else ''}weights",
            f"  step     {self.instructions:,} instructions, {how}",
        ]
        return "\n".join([*lines, *(f"  {one}" for one in self.unmeasured)])


def _bytes(size: int | None) -> str:
    return "not measured" if size is None else f"{size:,} bytes"


def deepest(graph: str, entry: str) -> int | None:
    """The maximum stack depth of a function including its callees, from gcc's call graphs.

    None if a frame has no fixed size, or functions are recursive.
    """
    frames = {title: int(size) for title, size, _ in _NODE.findall(graph) if size}
    if any(kind not in ("", "static") for _, _, kind in _NODE.findall(graph)) or entry not in frames:
        return None
    calls: dict[str, set[str]] = {}
    for source, target in _EDGE.findall(graph):
        calls.setdefault(source, set()).add(target)
    return _depth(entry, frames, calls, frozenset(), {})


def _depth(
    name: str,
    frames: Mapping[str, int],
    calls: Mapping[str, set[str]],
    above: frozenset[str],
    known: dict[str, int | None],
) -> int | None:
    if name in above:
        return None
    if name not in known:
        inner = [_depth(one, frames, calls, above | {name}, known) for one in sorted(calls.get(name, ()))]
        known[name] = None
        if all(one is not None for one in inner):
            known[name] = frames.get(name, 0) + max((one for one in inner if one is not None), default=0)
    return known[name]
