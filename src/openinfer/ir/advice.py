"""Advice for names that a graph uses and does not declare."""

import re

from openinfer.errors import Advice, Fix, FixPlace
from openinfer.ir.graph import Graph, Node, Op
from openinfer.ir.op_names import op_called
from openinfer.ir.operand import Access, Operand
from openinfer.ir.text import call_text

VARYING = "a size that varies has a name and a bound: sizes { N <= 64; }, then f32[N]"


def what_is_meant(call: Op, graph: Graph, *, may_search: bool) -> str:
    """Help for an unknown op: how to run the block of that name, or the op that was probably meant."""
    target = graph.blocks.get(call.op)
    if target is None:
        help_line = op_called(call.op) if may_search else "'openinfer ops' lists them"
        written = re.fullmatch(r"write  op (\w+)\(x, (.+)\)", help_line)
        if written is None or call.attrs:
            return help_line
        argument = Fix(written[2], place=FixPlace.ARGUMENT)
        return Advice(help_line, Fix(written[1], call.op, more=(argument,)))
    given, results = map(str, call.inputs), map(str, call.outputs)
    called = f"call {call.op}({', '.join(given)}) >> {', '.join(results)};"
    statement = called if target.params is not None else f"branch {call.op};"
    return Advice(f"{call.op!r} is a block: {statement}", Fix(statement, place=FixPlace.STATEMENT))


def how_to_declare(name: str, node: Node, graph: Graph) -> Advice:
    """How to declare the result of a node: with a type, or by letting the op infer it."""
    kind = node.kind
    if isinstance(kind, Op):
        sources: tuple[Operand, ...] = tuple(given.operand for given in kind.inputs)
        shape = "[...]"
    else:
        source = getattr(kind, "src", None)
        sources = () if source is None else (source,)
        shape = _shape(sources, graph)
    declaration = f"assign {name}: {_dtype(sources, graph)}{shape};"
    declared = f"declare it before: {declaration}"
    if not isinstance(kind, Op):
        return Advice(declared, *[Fix(declaration, place=FixPlace.BEFORE)] * ("..." not in shape))
    statement = f"{', '.join(map(str, kind.outputs))} = {call_text(kind)};"
    by_itself = Fix(statement, place=FixPlace.STATEMENT)
    if len(kind.outputs) > 1 or kind.outputs[0].bracketed:
        return Advice(declared)
    return Advice(f"{declared}  or let the op do it: {statement}", *[by_itself] * (not node.constraints))


def _dtype(sources: tuple[Operand, ...], graph: Graph) -> str:
    known = (graph.vars.get(source.base) for source in sources if isinstance(source, Access))
    return next((variable.dtype.name for variable in known if variable is not None), "f32")


def _shape(sources: tuple[Operand, ...], graph: Graph) -> str:
    source = sources[0] if sources else None
    variable = graph.vars.get(source.base) if isinstance(source, Access) else None
    if variable is None or (isinstance(source, Access) and source.bracketed):
        return "[...]"
    return f"[{', '.join(map(str, variable.dims))}]" if variable.dims else ""
