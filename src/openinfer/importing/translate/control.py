"""Branches on a condition: resolved at import if it is known, otherwise kept as branches."""

from openinfer.importing.draft import KnownTensor
from openinfer.importing.flow import branched, require_bool
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op


@onnx_op("If")
def _if(n: NodeContext) -> NodeResults:
    """A condition known at import selects one branch; otherwise both become blocks."""
    cond = n.x
    then_graph, else_graph = n.graph("then_branch"), n.graph("else_branch")
    if isinstance(cond, KnownTensor):
        if cond.array.size != 1:
            raise Unsupported("its condition is not a single value")
        return n.subgraphs.inline(then_graph if cond.array.reshape(-1)[0] else else_graph, ())
    require_bool(cond)
    flag = n.emit.value(n.emit.reshape(cond, ()))
    bodies = []
    with n.subgraphs.conditional(n.node):
        for graph in (then_graph, else_graph):
            n.emit.bodies.open()
            results = n.subgraphs.inline(graph, ())
            bodies.append((n.emit.bodies.close(), results))
    return branched(n.emit, flag, bodies[0], bodies[1], "fix its condition: --fix INPUT=VALUE")
