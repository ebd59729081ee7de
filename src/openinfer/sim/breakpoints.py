"""Breakpoints for runs: conditions on the node that has just been executed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from openinfer.dtypes import from_numpy_dtype
from openinfer.ops import Array

if TYPE_CHECKING:
    from openinfer.sim.executor import NodeView


@dataclass(frozen=True)
class Breakpoint:
    """A condition with a text for people, and the variable it refers to, if any."""

    text: str
    test: "Callable[[NodeView], bool]"
    variable: str | None = None

    def __str__(self) -> str:
        return self.text


def at_node(index: int) -> Breakpoint:
    """Stop after the node with this index."""
    return Breakpoint(f"node {index}", lambda node: node.event.node_index == index)


def on_op(name: str) -> Breakpoint:
    """Stop after every op of this name."""
    return Breakpoint(f"op {name}", lambda node: node.event.op_name == name)


def on_write(variable: str) -> Breakpoint:
    """Stop after every node that writes this variable, or part of it."""
    return Breakpoint(f"write {variable}", lambda node: variable in node.written, variable)


def on_nan(variable: str | None = None) -> Breakpoint:
    """Stop when a node writes a NaN or an infinity, to this variable or to any. Checks only what the node wrote."""

    def appears(node: "NodeView") -> bool:
        if not node.event.output or (variable is not None and variable not in node.written):
            return False
        return any(_is_broken(value) for name, value in node.results if variable in (None, name))

    return Breakpoint("nan" if variable is None else f"nan {variable}", appears, variable)


def _is_broken(value: Array) -> bool:
    dtype = from_numpy_dtype(value.dtype)
    return dtype is not None and dtype.kind == "float" and not bool(np.isfinite(value).all())


def on_change(variable: str) -> Breakpoint:
    """Stop when a node changes the value of this variable; writing the same value does not count."""
    return Breakpoint(f"change {variable}", lambda node: variable in node.written and node.changed(variable), variable)


def when(predicate: "Callable[[NodeView], bool]", text: str = "condition") -> Breakpoint:
    """Stop when a function of the executed node returns True."""
    return Breakpoint(text, predicate)
