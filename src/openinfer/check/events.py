"""Trace events of executed nodes, whether the simulator or generated code executed them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from zlib import crc32

import numpy as np

from openinfer.check.bound import BoundOp
from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.ir import (
    Access,
    BlockCall,
    CacheReset,
    Graph,
    Loop,
    Node,
    Op,
    Scope,
)
from openinfer.ir.uses import node_uses
from openinfer.ops import Array, Call
from openinfer.ops.arguments import value_text

MOST_EVENTS = 1_000_000
"""The maximum number of events in a trace: a loop of billions of iterations must not fill the memory."""
_SAMPLES = 16


class TraceLevel(StrEnum):
    """How much a trace records: nothing, which nodes ran and for how long, or statistics of values as well."""

    OFF = "off"
    BASIC = "basic"
    FULL = "full"
    VERBOSE = "full"


LEVELS = {**{str(level): level for level in TraceLevel}, "verbose": TraceLevel.FULL}


def trace_level(level: TraceLevel | str) -> TraceLevel:
    """A trace level by name."""
    found = LEVELS.get(str(level).lower())
    if found is None:
        message = f"a trace level is off, basic or full, not {level!r}"
        raise ExecutionError(Diagnostic(Code.BAD_PARAMETER, message))
    return found


@dataclass(frozen=True)
class Event:
    """The trace record of one executed node.

    ``micros`` is its duration, split into whole milliseconds, microseconds and nanoseconds. ``indices`` are the indices
    of the enclosing loops, ``thread`` is the block whose task ran it.
    """

    kind: str
    block_name: str
    op_name: str
    node_index: int
    node_uuid: str
    params: list[str]
    output: list[str]
    micros: list[int]
    thread: str = "entry"
    indices: dict[str, int] = field(default_factory=dict)
    scope: list[str] = field(default_factory=list)
    start_ns: int = 0
    duration_ns: int = 0
    details: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """The event as plain values: the documented keys, and further ones only if they are not empty or default."""
        found: dict[str, Any] = {
            "block_name": self.block_name,
            "node_index": self.node_index,
            "node_uuid": self.node_uuid,
            "kind": self.kind,
            "op_name": self.op_name,
            "params": self.params,
            "output": self.output,
            "micros": self.micros,
        }
        if self.indices:
            found["indices"] = self.indices
        if self.scope:
            found["scope"] = self.scope
        if self.thread != "entry":
            found["thread"] = self.thread
        return found | self.details


def split_time(nanoseconds: int) -> list[int]:
    """Split a duration into whole milliseconds, microseconds and nanoseconds.

    >>> split_time(31_788)
    [0, 31, 788]
    """
    return [nanoseconds // 1_000_000, nanoseconds // 1_000 % 1_000, nanoseconds % 1_000]


# --- nodes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlacedNode:
    """A node, the block it is in, and the scopes around it there."""

    node: Node
    block: str
    scopes: tuple[str, ...]


def placed_nodes(graph: Graph) -> Iterator[PlacedNode]:
    """Every node of a graph with its place. Not recursive: nesting may exceed Python's limit."""
    for name, block in graph.blocks.items():
        todo = [PlacedNode(node, name, ()) for node in reversed(block.nodes)]
        while todo:
            placed = todo.pop()
            yield placed
            kind = placed.node.kind
            inner = (*placed.scopes, kind.name) if isinstance(kind, Scope) else placed.scopes
            todo += [PlacedNode(node, name, inner) for node in reversed(placed.node.body)]


def node_kind(node: Node, *, is_return: bool = False) -> str:
    """The kind of a node in events; a call has a second event, when its block returns."""
    if isinstance(node.kind, BlockCall):
        return "CallReturn" if is_return else "Call"
    return "OpExecute" if isinstance(node.kind, Op) else type(node.kind).__name__


def node_params(node: Node, *, is_return: bool = False) -> list[str]:
    """The operands of a node, as in the source."""
    if isinstance(node.kind, BlockCall):
        return [] if is_return else [str(given) for given in node.kind.args]
    found = node_uses(node.kind)
    read = [str(given.operand) for given in found.reads]
    evaluated = [str(expr) for expr in found.exprs]
    match node.kind:
        case CacheReset(access):
            return [str(access)]
        case Loop(_, index):
            return [index, *evaluated]
        case _:
            return [*read, *evaluated]


def node_writes(node: Node, *, is_return: bool = False) -> tuple[Access, ...]:
    """What a node writes; a call writes when its block returns."""
    if isinstance(node.kind, BlockCall):
        return node.kind.outputs if is_return else ()
    return node_uses(node.kind).writes


# --- details ----------------------------------------------------------------------------------------------------------


def op_details(own: BoundOp, kind: Op, call: Call) -> dict[str, Any]:
    """The operands and parameters of an op."""
    given = {name for name, _ in kind.attrs}
    return {
        "inputs": [
            {"name": str(operand), "dtype": stored.name, "shape": list(type_.shape)}
            for operand, stored, type_ in zip(own.operands, own.stored, call.inputs, strict=True)
            if stored is not None and type_ is not None
        ],
        "attrs": {name: plain(value) for name, value in call.params.items() if name in given or value is not None},
    }


def tensor_details(name: str, dtype: str, value: Array) -> dict[str, Any]:
    """A tensor that was written: its type, and statistics of its values."""
    return {"name": name, "dtype": dtype, "shape": list(value.shape), **statistics(value)}


def plain(value: Any) -> Any:
    """The value of a parameter as a JSON value."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else value_text(value)
    return [plain(element) for element in value] if isinstance(value, tuple) else value_text(value)


def statistics(value: Array) -> dict[str, Any]:
    """Minimum, maximum and mean of an array's numbers, the counts of NaN and infinities, and a digest of its bytes.

    >>> statistics(np.array([1.0, np.nan, 3.0]))["nan"]
    1
    """
    contiguous = np.ascontiguousarray(value)
    digest = crc32(contiguous.reshape(-1).view(np.uint8).data) if contiguous.size else 0
    numbers = contiguous.astype(np.float64).reshape(-1)
    invalid = np.isnan(numbers)
    valid = numbers[~invalid] if invalid.any() else numbers
    with np.errstate(all="ignore"):
        summary = [float(valid.min()), float(valid.max()), float(valid.mean())] if valid.size else [None] * 3
    every = max(1, numbers.size // _SAMPLES)
    return {
        "min": plain_number(summary[0]),
        "max": plain_number(summary[1]),
        "mean": plain_number(summary[2]),
        "nan": int(invalid.sum()),
        "inf": int(np.isinf(numbers).sum()),
        "digest": f"{digest:08x}",
        "sample": [plain_number(one) for one in numbers[::every][:_SAMPLES].tolist()],
    }


def plain_number(value: float | None) -> float | str | None:
    """A number as strict JSON: NaN and infinities become words."""
    return value if value is None or np.isfinite(value) else value_text(value)
