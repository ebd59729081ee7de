"""Facts established at the current point of a block, which need not be checked again."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from openinfer.ir.expr import BinaryExpr, Expr
from openinfer.synth.program.integers import Computed
from openinfer.synth.program.ir import Comparison


@dataclass(frozen=True)
class RangeChecked:
    """An extent is not negative, and no larger than memory was planned for."""

    extent: Expr
    most: int


@dataclass(frozen=True)
class EvenChecked:
    """A division has no remainder."""

    quotient: BinaryExpr


@dataclass(frozen=True)
class Compared:
    """The comparisons do not all hold; with ``is_any``, none of them holds."""

    comparisons: tuple[Comparison, ...]
    is_any: bool


@dataclass
class Certain:
    """The facts established in a block by the steps planned so far."""

    known: set[str] = field(default_factory=set)
    """Sizes that have values."""
    checked: set[Hashable] = field(default_factory=set)
    loops: list[tuple[str, Computed]] = field(default_factory=list)
    """The indices of the enclosing loops, outermost first, with their ranges."""
    aside: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each consumer that has run, the sizes that it may have bound."""

    @contextmanager
    def maybe(self) -> Iterator[None]:
        """A scope for steps that may not run: facts established in it are dropped afterwards."""
        known, checked = set(self.known), set(self.checked)
        yield
        self.known, self.checked = known, checked
