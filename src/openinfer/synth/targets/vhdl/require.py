"""What a circuit does not compute is refused at its node (E805); memory that a device does not have, too (E801)."""

from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir import Graph, Op
from openinfer.ir.text import node_head
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import KernelStep

_ADVICE = "quantize the graph (openinfer quantize), and compute in integers there; floats can only be moved"


def refusal(graph: Graph, step: KernelStep, what: str) -> Diagnostic:
    """The error of a kernel that computes with something else than integers."""
    wanted = step.nodes or (step.node,)
    nodes = [node for node in graph.walk() if node.index in wanted]
    names = dict.fromkeys(node.kind.op if isinstance(node.kind, Op) else node_head(node) for node in nodes)
    subject = " with ".join(names) or "the graph"
    span = next((node.span for node in nodes), None)
    return Diagnostic(Code.MISSING_FEATURE, f"{subject} {what}, and a circuit has integers only", span, _ADVICE)


def no_room(placed: Placed, nbytes: int, lanes: int) -> GraphError:
    """The error of a program whose state and arena no memory of the device takes: what is largest is named."""
    state = [(home.nbytes, str(home.variable)) for home in placed.state.homes]
    state += [(layout.size, name) for name, layout in placed.state.tables.items()]
    found = [(own, name, "of the state") for own, name in state]
    found += [(value.nbytes, str(value.variable or value.name), "of the arena") for value in placed.memory.offsets]
    own, name, where = max(found, default=(0, "", ""))
    variable = placed.program.bound.vars.get(name)
    span = None if variable is None or variable.decl is None else variable.decl.span
    twice = ", the state twice because steps can fail" if placed.can_tear else ""
    message = (
        f"what changes takes {nbytes:,} bytes{twice}, in {lanes} memories of bytes, and the device has no blocks for "
        f"them; "
        f"{name!r} is the largest {where}: {own:,} bytes"
    )
    advice = "smaller sizes and bounds make it smaller; or take a device with more memory (fpga.blocks)"
    return GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, span, advice))
