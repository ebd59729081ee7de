"""Normalizes named arguments of ops to the form that the language uses.

In text, ``b=eps`` is a parameter if ``eps`` is a scalar constant, a number or unknown, and an input if it is any other
variable. Documents of other tools may differ; in this form they can be printed and read back.
"""

from collections.abc import Callable
from dataclasses import replace

from openinfer.ir.graph import Assign, BlockParamKind, Graph, Input, Loop, MemoryKind, Node, NodeKind, Op, Scope
from openinfer.ir.operand import Access, Literal, Operand
from openinfer.ir.values import AttrValue, VarValue


def as_written(graph: Graph) -> Graph:
    """The graph with named arguments as the language has them: scalar constants as parameters, the rest as inputs."""
    variables = graph.vars.values()
    scalars = {var.name for var in variables if var.kind is MemoryKind.CONSTANT and not var.dims}
    operands = {node.kind.name for node in graph.walk() if isinstance(node.kind, Assign)}
    operands |= {var.name for var in variables} - scalars
    params = (param for block in graph.blocks.values() for param in block.params or ())
    operands |= {param.name for param in params if param.kind is BlockParamKind.TENSOR}

    def settled(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(replace(node, kind=_settled(node.kind, scalars, operands, settled)) for node in nodes)

    if not any(_is_misplaced(node.kind, scalars, operands) for node in graph.walk()):
        return graph
    blocks = [replace(block, nodes=settled(block.nodes)) for block in graph.blocks.values()]
    return Graph.of(graph.sizes.values(), variables, blocks)


def _is_parameter(given: Input, scalars: set[str]) -> bool:
    operand = given.operand
    if given.name is None or not isinstance(operand, Access | Literal):
        return False
    return isinstance(operand, Literal) or (not operand.bracketed and operand.base in scalars)


def _parameter(operand: Operand) -> AttrValue:
    return operand.value if isinstance(operand, Literal) else VarValue(str(operand))


def _is_misplaced(kind: NodeKind, scalars: set[str], operands: set[str]) -> bool:
    return isinstance(kind, Op) and (
        any(_is_parameter(given, scalars) for given in kind.inputs)
        or any(isinstance(value, VarValue) and value.name in operands for _, value in kind.attrs)
    )


def _settled(
    kind: NodeKind, scalars: set[str], operands: set[str], settled: Callable[[tuple[Node, ...]], tuple[Node, ...]]
) -> NodeKind:
    if isinstance(kind, Loop | Scope):
        return replace(kind, body=settled(kind.body))
    if not isinstance(kind, Op):
        return kind
    inputs = [given for given in kind.inputs if not _is_parameter(given, scalars)]
    attrs: list[tuple[str, AttrValue]] = [
        (str(given.name), _parameter(given.operand)) for given in kind.inputs if _is_parameter(given, scalars)
    ]
    for name, value in kind.attrs:
        if isinstance(value, VarValue) and value.name in operands:
            inputs.append(Input(Access(value.name), name))
        else:
            attrs.append((name, value))
    return replace(kind, inputs=tuple(inputs), attrs=tuple(attrs))
