"""The comment above the function of a kernel: the nodes it computes, the algorithms, and the parameters."""

from collections.abc import Callable

from openinfer.loops.ir import Buffer
from openinfer.synth.program.ir import FOLDED, StepOperand, Weight
from openinfer.synth.targets.cstyle.library import UsedKernel
from openinfer.synth.targets.cstyle.names import comment

_MOST_NODES = 12
"""The most nodes that are written out; of the others, only the numbers are."""


def kernel_doc(used: UsedKernel, title: Callable[[int], str]) -> str:
    """The comment above a kernel; ``title`` describes a node in words."""
    groups = [_nodes(used, title), list(used.code.doc), _parameters(used)]
    lines = [line for group in groups if group for line in ("", *group)]
    return "\n".join(["/*", *(f" * {line}" if line else " *" for line in lines[1:]), " */", ""])


def _nodes(used: UsedKernel, title: Callable[[int], str]) -> list[str]:
    numbers = sorted({node for step in used.steps for node in (step.nodes or (step.node,)) if title(node)})
    lines = [comment(title(node)) for node in numbers[:_MOST_NODES]]
    rest = numbers[_MOST_NODES:]
    if rest:
        lines.append(f"Node{'s' * (len(rest) > 1)} {', '.join(map(str, rest))}")
    return lines


def _parameters(used: UsedKernel) -> list[str]:
    """The parameters in use: types, and how weights are stored where that differs from the model."""
    own, unused, stored = (*used.kernel.inputs, *used.kernel.outputs), frozenset(used.code.unused), _stored(used)
    return [
        f"{shown.name}: {shown.dtype.name}[{', '.join(map(repr, shown.shape))}]{stored.get(buffer.name, _apart(shown))}"
        for buffer, shown in zip(own, used.code.parameters, strict=True)
        if shown.name not in unused
    ]


def _apart(buffer: Buffer) -> str:
    """The strides of a parameter that is not row-major."""
    return "" if buffer.strides is None else f", strides [{', '.join(map(repr, buffer.strides))}]"


def _stored(used: UsedKernel) -> dict[str, str]:
    """Notes on parameters that are weights, where they are the same in all calls."""
    found: dict[str, set[str]] = {}
    for step in used.steps:
        for buffer, operand in zip(step.kernel.inputs, step.inputs, strict=True):
            found.setdefault(buffer.name, set()).add(_weight_words(operand))
    alike = {name: next(iter(words)) for name, words in found.items() if len(words) == 1}
    return {name: f", {words}" for name, words in alike.items() if words}


def _weight_words(operand: StepOperand) -> str:
    match operand:
        case Weight(packing=packing) if packing is not None and packing.words:
            return f"weights {packing.words}"
        case Weight(part=part) if part == FOLDED:
            return "precomputed from weights"
        case _:
            return ""
