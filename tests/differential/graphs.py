"""Random graphs that are valid, from a seed: every op with every dtype, and everything that nodes can stand in."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tests.differential.making import STEPS, Making, Node
from tests.differential.structures import KEEPERS, STRUCTURES, add_mutable
from tests.differential.uses import Use, checked, drawn, hand

from openinfer.dtypes import DTYPES
from openinfer.oinf import TensorSpec
from openinfer.ops import Array, TensorType


@dataclass(frozen=True)
class RandomGraph:
    """A graph, the model it needs, and the inputs of each step."""

    seed: int
    head: str
    body: str
    blocks: str
    results: tuple[str, ...]
    """Everything that nodes write, besides what is persistent."""
    last: tuple[str, ...]
    """What nobody reads, and a little more: with only these returned nothing is computed in vain."""
    nodes: tuple[Node, ...]
    tensors: dict[str, TensorSpec]
    inputs: list[dict[str, Array]]
    pairs: tuple[tuple[str, str], ...]

    def text(self, outputs: Sequence[str]) -> str:
        """The graph that returns some of its variables."""
        returned = f"return {', '.join(outputs)};" if outputs else "return;"
        return f"{self.head}\nblock entry {{\n    {self.body}\n    {returned}\n}}\n{self.blocks}\n"


def random_graph(seed: int, *, has_heap: bool = True) -> RandomGraph:
    """The graph of a seed; without a heap its tables have bounds."""
    making = Making(np.random.default_rng([78, seed]), has_heap)
    _sizes(making)
    pairs = hand(seed)
    uses = _uses(making, pairs)
    _mutables(making, uses)
    making.sections["persistent"].append("step: i32;")
    while uses:
        count = int(making.rng.integers(1, 6))
        making.pick(STRUCTURES)(making, uses[:count])
        uses = uses[count:]
        if making.chance(0.35):
            making.pick(KEEPERS)(making)
    making.lines.append("cache.increment step;")
    return _finished(seed, making, pairs)


def _sizes(making: Making) -> None:
    """A dynamic size, in half of the graphs: at its bound, at one, at nothing, in between."""
    making.step_sizes = [{} for _ in range(STEPS)]
    if making.chance(0.5):
        bound = int(making.pick((2, 5, 9, 16, 17, 33)))
        making.sizes["T"] = bound
        values = [bound, 1, int(making.rng.integers(1, bound + 1)), int(making.rng.integers(0, bound + 1))]
        making.step_sizes = [{"T": values[place]} for place in making.rng.permutation(STEPS)]


def _uses(making: Making, pairs: Sequence[tuple[str, str]]) -> list[Use]:
    size = "T" if making.sizes else None
    uses = [drawn(making.rng, *pair, size, making.sizes.get("T", 1)) for pair in pairs]
    return [_reduced(making, uses[place]) for place in making.rng.permutation(len(uses))]


def _reduced(making: Making, use: Use) -> Use:
    """A test of every element, or, for some, of all of them together."""
    if use.record.name not in ("is_finite", "is_nan", "is_inf", "is_neg") or making.chance(0.7):
        return use
    whole = checked(use.record, use.arrays, use.types, use.params, (TensorType(DTYPES["bool"], ()),))
    return whole or use


def _mutables(making: Making, uses: Sequence[Use]) -> None:
    """Variables that nodes may write, of types that results have."""
    kinds = [kind for use in uses if not use.is_dynamic for kind in use.outputs]
    for kind in kinds:
        if making.chance(0.25):
            add_mutable(making, replace(kind, shape=tuple(map(int, kind.shape))))


def _finished(seed: int, making: Making, pairs: tuple[tuple[str, str], ...]) -> RandomGraph:
    sizes = " ".join(f"{name} <= {bound};" for name, bound in making.sizes.items())
    sections = [f"{name} {{ {' '.join(lines)} }}" for name, lines in making.sections.items() if lines]
    head = "\n".join([*([f"sizes {{ {sizes} }}"] if sizes else []), *sections])
    unread = [name for name in making.results if name not in making.read]
    last = [name for name in making.results if name in unread or making.chance(0.1)]
    return RandomGraph(
        seed,
        head,
        "\n    ".join(making.lines),
        "\n".join(making.blocks),
        tuple(making.results),
        tuple(last or making.results[-1:]),
        tuple(making.nodes),
        making.tensors,
        [{name: values[step] for name, values in making.inputs.items()} for step in range(STEPS)],
        pairs,
    )
