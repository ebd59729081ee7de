"""Refusals: operations that no circuit computes, reported at their node (E805), and memory the device lacks (E801)."""

from openinfer.check.bound import BoundGraph
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir import Node, Op
from openinfer.ir.text import node_head
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import KernelStep

_ADVICE = "quantize the graph (openinfer quantize), so that it computes in integers; a circuit can only move floats"

MOST_BYTES = 2**31 - 1
"""The largest size of a circuit's memory."""


def refusal(bound: BoundGraph, step: KernelStep, what: str) -> Diagnostic:
    """The error of a kernel that computes with anything but integers; names only the nodes with floats, if any."""
    wanted = step.nodes or (step.node,)
    nodes = [node for node in bound.graph.walk() if node.index in wanted]
    nodes = [node for node in nodes if _has_floats(bound, node)] or nodes
    names = dict.fromkeys(node.kind.op if isinstance(node.kind, Op) else node_head(node) for node in nodes)
    subject = " with ".join(names) or "the graph"
    span = next((node.span for node in nodes), None)
    return Diagnostic(Code.MISSING_FEATURE, f"{subject} {what}, and a circuit has integers only", span, _ADVICE)


def _has_floats(bound: BoundGraph, node: Node) -> bool:
    """Whether a node reads floats or writes a float variable."""
    own = bound.ops.get(node.index)
    read = () if own is None else own.stored
    written = [bound.vars[name].dtype for name in bound.effects[node.index].writes if name in bound.vars]
    return any(one is not None and one.kind == "float" for one in (*read, *written))


def too_large(nbytes: int) -> GraphError:
    """The error of a memory beyond 31-bit addresses, the widest that VHDL constants allow."""
    message = f"a circuit's memory has at most {MOST_BYTES:,} bytes, and this one needs {nbytes:,}"
    return GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, "reduce the sizes and bounds"))


def no_room(placed: Placed, nbytes: int, lanes: int) -> GraphError:
    """The error of a program whose state and arena fit no memory of the device; names the largest item."""
    state = [(home.nbytes, str(home.variable)) for home in placed.state.homes]
    state += [(layout.size, name) for name, layout in placed.state.tables.items()]
    found = [(own, name, "of the state") for own, name in state]
    found += [(value.nbytes, str(value.variable or value.name), "of the arena") for value in placed.memory.offsets]
    own, name, where = max(found, default=(0, "", ""))
    variable = placed.program.bound.vars.get(name)
    span = None if variable is None or variable.decl is None else variable.decl.span
    twice = ", the state twice because steps can fail" if placed.can_tear else ""
    message = (
        f"the state and the arena take {nbytes:,} bytes{twice}, in {lanes} byte-wide memories, "
        f"and the device has no blocks for them; "
        f"{name!r} is the largest {where}: {own:,} bytes"
    )
    advice = "reduce the sizes and bounds, or choose a device with more memory (fpga.blocks)"
    return GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, span, advice))
