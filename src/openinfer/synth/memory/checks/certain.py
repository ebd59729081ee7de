"""What is certain where the next step stands: it need not be checked again."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from openinfer.ir.expr import BinaryExpr, Expr
from openinfer.synth.program.integers import Computed
from openinfer.synth.program.ir import Comparison


@dataclass(frozen=True)
class RangeChecked:
    """An extent is not negative, and no larger than there is memory for."""

    extent: Expr
    most: int


@dataclass(frozen=True)
class EvenChecked:
    """A division has no remainder."""

    quotient: BinaryExpr


@dataclass(frozen=True)
class Compared:
    """Comparisons are not all true; or none of them is, if any is refused."""

    comparisons: tuple[Comparison, ...]
    is_any: bool


@dataclass
class Certain:
    """What is certain in a block, as far as its steps have been planned."""

    known: set[str] = field(default_factory=set)
    """Sizes that have values."""
    checked: set[Hashable] = field(default_factory=set)
    loops: list[tuple[str, Computed]] = field(default_factory=list)
    """The indices of the loops around, outermost first."""
    aside: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each consumer that has run the sizes that it may have bound."""

    @contextmanager
    def maybe(self) -> Iterator[None]:
        """Steps that may not run: what is certain in them is not so afterwards."""
        known, checked = set(self.known), set(self.checked)
        yield
        self.known, self.checked = known, checked
