"""Where a run should stop: conditions on the node that has just been executed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from openinfer.sim.executor import NodeView


@dataclass(frozen=True)
class Breakpoint:
    """A condition with a name for people."""

    text: str
    test: "Callable[[NodeView], bool]"

    def __str__(self) -> str:
        return self.text


def at_node(index: int) -> Breakpoint:
    """Stop after the node with this index."""
    return Breakpoint(f"node {index}", lambda node: node.event.node_index == index)


def on_op(name: str) -> Breakpoint:
    """Stop after every op of this name."""
    return Breakpoint(f"op {name}", lambda node: node.event.op_name == name)


def on_write(variable: str) -> Breakpoint:
    """Stop after every node that writes this variable."""
    return Breakpoint(f"write {variable}", lambda node: variable in node.written)


def on_nan(variable: str | None = None) -> Breakpoint:
    """Stop when a node writes a NaN or an infinity, into this variable or any."""

    def appears(node: "NodeView") -> bool:
        return any(_is_broken(node, name) for name in node.written if variable in (None, name))

    return Breakpoint("nan" if variable is None else f"nan {variable}", appears)


def _is_broken(node: "NodeView", name: str) -> bool:
    value = node.peek(name)
    return value is not None and value.dtype.kind in "fV" and not bool(np.all(np.isfinite(value.astype(np.float64))))


def on_change(variable: str) -> Breakpoint:
    """Stop when this variable has another value than after the node before."""
    seen: list[object] = []

    def changed(node: "NodeView") -> bool:
        value = node.peek(variable)
        bytes_ = None if value is None else (value.shape, value.tobytes())
        is_new = bool(seen) and seen[0] != bytes_
        seen[:] = [bytes_]
        return is_new

    return Breakpoint(f"change {variable}", changed)


def when(predicate: "Callable[[NodeView], bool]", text: str = "condition") -> Breakpoint:
    """Stop when a function of the executed node says so."""
    return Breakpoint(text, predicate)
