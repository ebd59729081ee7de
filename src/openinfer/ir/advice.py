"""What to write where a graph uses a name that it does not declare."""

from openinfer.ir.graph import Graph, Node, Op
from openinfer.ir.operand import Access, Operand

VARYING = "a size that varies has a name and a bound: sizes { N <= 64; }, then f32[N]"


def how_to_declare(name: str, node: Node, graph: Graph) -> str:
    """How the result of a node is declared: with a type, or by the op that computes it."""
    kind = node.kind
    if isinstance(kind, Op):
        sources: tuple[Operand, ...] = tuple(given.operand for given in kind.inputs)
        shape = "[...]"
    else:
        source = getattr(kind, "src", None)
        sources = () if source is None else (source,)
        shape = _shape(sources, graph)
    declared = f"declare it before: assign {name}: {_dtype(sources, graph)}{shape};"
    if not isinstance(kind, Op) or len(kind.outputs) > 1:
        return declared
    arguments = ", ".join([*map(str, sources), *("..." for _ in kind.attrs[:1])])
    return f"{declared}  or let the op do it: {name} = op {kind.op}({arguments});"


def _dtype(sources: tuple[Operand, ...], graph: Graph) -> str:
    known = (graph.vars.get(source.base) for source in sources if isinstance(source, Access))
    return next((variable.dtype.name for variable in known if variable is not None), "f32")


def _shape(sources: tuple[Operand, ...], graph: Graph) -> str:
    source = sources[0] if sources else None
    variable = graph.vars.get(source.base) if isinstance(source, Access) else None
    if variable is None or (isinstance(source, Access) and source.bracketed):
        return "[...]"
    return f"[{', '.join(map(str, variable.dims))}]" if variable.dims else ""
