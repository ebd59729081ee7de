"""The result of an analysis: layers, sites whose values get codes, and groups of sites that share a scale."""

from collections.abc import Mapping
from dataclasses import dataclass

from openinfer.ir import Access, Operand
from openinfer.quantizing.kinds import TABLES

CodeDefinition = tuple[int, str]
"""A node, and a variable that it writes."""


@dataclass(frozen=True)
class CodeSite:
    """A value that gets codes: one that a node writes to a variable, or one that it is about to read."""

    node: int
    access: Access
    is_read: bool = False


@dataclass(frozen=True)
class QuantLayer:
    """A node with stored weights, or a product of two computed values, that becomes integer arithmetic."""

    node: int
    op: str
    label: str
    sites: tuple[CodeSite, ...]
    """The operands that get codes: one, or both factors of a product; none for table lookups."""
    path: tuple[str, ...]
    """The indices of the layer loops around it, outermost first."""
    weights: Access | None = None
    axis: int = 0
    """The channel axis of the weights; each channel has a scale."""
    bias: Access | None = None

    @property
    def is_in_floats(self) -> bool:
        """Whether only the weights are codes: table lookups, and arithmetic that stays in floats."""
        return not self.sites

    @property
    def weight_slot(self) -> int:
        """The position of the weights among the operands."""
        return 0 if self.op in TABLES else 1


@dataclass(frozen=True)
class FloatLayer:
    """A layer that stays in floats, and why."""

    node: int
    op: str
    label: str
    reason: str


@dataclass(frozen=True)
class CodeGroup:
    """Sites that share scale and zero point because values move between them unchanged."""

    number: int
    sites: tuple[CodeSite, ...]
    path: tuple[str, ...]
    """The indices of the layer loops that contain all its sites: each layer has its own scale."""
    is_symmetric: bool
    """Whether zero has the code 0."""


@dataclass(frozen=True)
class Analysis:
    """What is computed on codes, decided before any value is known."""

    layers: Mapping[int, QuantLayer]
    floats: tuple[FloatLayer, ...]
    groups: tuple[CodeGroup, ...]
    group_of: Mapping[CodeSite, CodeGroup]
    coded: frozenset[CodeDefinition]
    """Definitions that have codes."""
    only_coded: frozenset[CodeDefinition]
    """The coded definitions that nothing reads as numbers."""
    moved: frozenset[int]
    """Nodes that move codes instead of numbers."""
    folded: Mapping[int, int]
    """Nodes that clip negatives, with the layer whose sums they take: clipping becomes part of the rounding."""
    decoded: frozenset[tuple[int, str]]
    """Nodes that compute in floats, with the variables that they read as codes and dequantize."""
    operands: Mapping[tuple[int, int], CodeSite]
    """The site whose codes a node reads, by node and operand slot."""

    def written(self, node: int, name: str) -> CodeGroup | None:
        """The group of what a node writes to a variable, if that has codes."""
        return self.group_of.get(CodeSite(node, Access(name)))


@dataclass(frozen=True)
class OperandPlace:
    """An operand of a node."""

    node: int
    slot: int
    operand: Operand
