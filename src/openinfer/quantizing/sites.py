"""What an analysis of a graph hands on: layers, sites whose values get codes, and the groups of sites of one scale."""

from collections.abc import Mapping
from dataclasses import dataclass

from openinfer.ir import Access, Operand
from openinfer.quantizing.kinds import TABLES

CodeDefinition = tuple[int, str]
"""A node, and a variable that it writes."""


@dataclass(frozen=True)
class CodeSite:
    """A value that gets codes: what a node has written to a variable, or what it is about to read."""

    node: int
    access: Access
    is_read: bool = False


@dataclass(frozen=True)
class QuantLayer:
    """A node with stored weights, or a product of two values, that is computed in integers."""

    node: int
    op: str
    label: str
    sites: tuple[CodeSite, ...]
    """The operands that get codes: one, or both factors of a product; none for rows of a table."""
    path: tuple[str, ...]
    """The indices of the loops over layers around it, outermost first."""
    weights: Access | None = None
    axis: int = 0
    """The axis of the weights along which channels lie, each with a scale."""
    bias: Access | None = None

    @property
    def is_in_floats(self) -> bool:
        """Whether only the weights are codes: rows of a table, or arithmetic that stays in floats."""
        return not self.sites

    @property
    def weight_slot(self) -> int:
        """Which of its operands the weights are."""
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
    """Sites that share scale and zero point, since values move between them unchanged."""

    number: int
    sites: tuple[CodeSite, ...]
    path: tuple[str, ...]
    """The indices of the loops over layers that all its sites are in: each layer has a scale of its own."""
    is_symmetric: bool
    """Whether zero has the code zero."""


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
    """Those of them that nothing reads as numbers."""
    moved: frozenset[int]
    """Nodes that move codes instead of numbers."""
    folded: Mapping[int, int]
    """Nodes that set what is negative to zero, by the layer whose sums they take: it becomes part of the rounding."""
    decoded: frozenset[tuple[int, str]]
    """Nodes and variables: computed in floats, but read from codes."""
    operands: Mapping[tuple[int, int], CodeSite]
    """By node and place of the operand: the site whose codes a node reads."""

    def written(self, node: int, name: str) -> CodeGroup | None:
        """The group of what a node writes to a variable, where it has codes."""
        return self.group_of.get(CodeSite(node, Access(name)))


@dataclass(frozen=True)
class OperandPlace:
    """An operand of a node."""

    node: int
    slot: int
    operand: Operand
