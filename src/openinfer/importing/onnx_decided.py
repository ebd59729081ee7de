"""Advice for refused branches: which inputs of the model decide them."""

from collections.abc import Iterator

from openinfer.errors import printable
from openinfer.importing.onnx_model import OnnxGraph, OnnxNode

_MOST_NAMED = 3


def branch_advice(graph: OnnxGraph, branch: OnnxNode) -> str | None:
    """Which inputs to fix so that only one branch remains; None if no input decides, or many do."""
    own = {info.name for info in graph.inputs if info.name not in graph.tensors}
    producers = {name: node for node in _all_nodes(graph) for name in node.outputs if name}
    found: list[str] = []
    seen: set[str] = set()
    open_names = list(branch.inputs[:1])
    while open_names:
        name = open_names.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in own:
            found.append(name)
        elif name in producers and producers[name].op not in ("Shape", "Size"):
            open_names += producers[name].inputs
    if not 0 < len(found) <= _MOST_NAMED:
        return None
    fixes = " ".join(f"--fix '{printable(name):.60}=VALUE'" for name in sorted(found))
    return f"it is in a branch of If node {printable(branch.title)!r:.60}; {fixes} leaves the branch that is taken"


def _all_nodes(graph: OnnxGraph) -> Iterator[OnnxNode]:
    for node in graph.nodes:
        yield node
        for value in node.attributes.values():
            if isinstance(value, OnnxGraph):
                yield from _all_nodes(value)
