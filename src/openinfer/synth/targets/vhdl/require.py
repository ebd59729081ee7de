"""What a circuit does not compute is refused at its node (E805)."""

from openinfer.errors import Code, Diagnostic
from openinfer.ir import Graph, Op
from openinfer.ir.text import node_head
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
