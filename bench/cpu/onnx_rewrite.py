"""Nodes of an ONNX model in the form that translators want: recurrent steps written out, patterns as one node."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True)
class Node:
    """A node with one result that matters."""

    op: str
    inputs: tuple[str, ...]
    output: str
    own: dict[str, Any] = field(default_factory=dict)


def users_of(nodes: list[Node]) -> dict[str, list[Node]]:
    """The nodes that read each value."""
    found: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.inputs:
            found.setdefault(name, []).append(node)
    return found


def with_gelu(nodes: list[Node]) -> list[Node]:
    """The nodes with each ``gelu`` that is written as x * (erf(x / sqrt 2) + 1) / 2 as one."""
    made, users = {node.output: node for node in nodes}, users_of(nodes)
    gone: set[str] = set()
    found: dict[str, Node] = {}
    for node in nodes:
        if node.op == "Erf" and made[node.inputs[0]].op == "Div":
            x, chain = made[node.inputs[0]].inputs[0], [node]
            for op in ("Add", "Mul", "Mul"):
                chain += [one for one in users[chain[-1].output] if one.op == op][:1]
            if len(chain) == 4 and x in chain[-1].inputs:
                gone |= {node.inputs[0], *(one.output for one in chain[:-1])}
                found[chain[-1].output] = Node("Gelu", (x,), chain[-1].output)
    return [found.get(node.output, node) for node in nodes if node.output not in gone]


def with_bias(nodes: list[Node], constants: set[str], vectors: set[str], kept: set[str]) -> list[Node]:
    """Products with constant matrices as ``Linear``, with the vector that is added to them if only that reads them.

    Values in ``kept`` stay, since something is known of them.
    """
    users = users_of(nodes)
    gone: set[str] = set()
    found: dict[str, Node] = {}
    for node in nodes:
        if node.op == "MatMul" and node.inputs[1] in constants:
            after = users.get(node.output, [])
            others = [name for name in after[0].inputs if name != node.output] if len(after) == 1 else []
            if node.output not in kept and others and after[0].op == "Add" and others[0] in vectors:
                gone.add(node.output)
                found[after[0].output] = Node("Linear", (*node.inputs, others[0]), after[0].output)
            else:
                found[node.output] = Node("Linear", node.inputs, node.output)
    return [found.get(node.output, node) for node in nodes if node.output not in gone]


@dataclass(frozen=True)
class Step:
    """Writes steps of recurrent layers out, each as two products and what makes gates of them."""

    constants: dict[str, Array]
    shapes: dict[str, tuple[int, ...]]

    def written_out(self, node: Node) -> list[Node]:
        if node.op not in ("LSTM", "GRU"):
            return [node]
        width = node.own["hidden_size"]
        count = {"LSTM": 4, "GRU": 3}[node.op]
        nodes: list[Node] = []

        def add(op: str, *inputs: str, shape: tuple[int, ...] = (1, width), **own: Any) -> str:
            output = f"{node.output}.{len(nodes)}"
            self.shapes[output] = shape
            nodes.append(Node(op, inputs, output, own))
            return output

        def constant(name: str, value: Array) -> str:
            self.constants[f"{node.output}.{name}"] = np.ascontiguousarray(value)
            return f"{node.output}.{name}"

        def row(name: str) -> str:
            return add("Reshape", name, constant("row", np.array([1, width])))

        x, w, r, b, _, h = node.inputs[:6]
        bias = np.split(self.constants[b][0], 2)
        left_w, right_w = (constant(f"matrix_{name}", self.constants[name][0]) for name in (w, r))
        wide, state = (1, count * width), row(h)
        left = add("Gemm", row(x), left_w, constant("left", bias[0]), shape=wide, transB=1)
        right = add("Gemm", state, right_w, constant("right", bias[1]), shape=wide, transB=1)

        def gate(value: str, number: int) -> str:
            ends = (constant(f"end{one}", np.array([one * width])) for one in (number, number + 1))
            return add("Slice", value, *ends, constant("axis", np.array([1])))

        if node.op == "LSTM":
            total = add("Add", left, right, shape=wide)
            i, o, f = (add("Sigmoid", gate(total, number)) for number in range(3))
            kept, new = add("Mul", f, row(node.inputs[6])), add("Mul", i, add("Tanh", gate(total, 3)))
            result = add("Mul", o, add("Tanh", add("Add", kept, new)))
        else:
            z, r = (add("Sigmoid", add("Add", gate(left, at), gate(right, at))) for at in range(2))
            n = add("Tanh", add("Add", gate(left, 2), add("Mul", r, gate(right, 2))))
            result = add("Add", n, add("Mul", z, add("Sub", state, n)))
        return [*nodes, Node("Reshape", (result, constant("cube", np.array([1, 1, width]))), node.output)]
