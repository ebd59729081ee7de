"""Functions in the making: their lines, and the memory they name."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from openinfer.synth.program.ir import Value
from openinfer.synth.targets.cstyle.host.integers import Integer

PAD = "    "
_COLUMN = 72
"""Comments that would stand further to the right are not aligned."""


@dataclass(frozen=True)
class Declaration:
    """A name that a function begins with: its declaration, and what it is."""

    name: str
    code: str
    about: str

    def text(self, width: int) -> str:
        """The line, with its comment at a column."""
        return f"{self.code:<{width}} /* {self.about} */"


_BAD = Declaration("bad", "int bad = 0;", "1: an index overflowed; 2: it divided by zero")


@dataclass
class Function:
    """A function in the making: what it names, and its lines."""

    lines: list[str] = field(default_factory=list)
    memory: dict[Hashable, Declaration] = field(default_factory=dict)
    """The memory it works on, by what that is."""
    loops: list[tuple[str, Integer]] = field(default_factory=list)
    """The indices that it is called with, and those of the loops around, outermost first."""
    chosen: dict[str, Integer] = field(default_factory=dict)
    """Integers that it is called with and that say which tensors of the model its arguments are."""
    given: dict[Value, str] = field(default_factory=dict)
    """The parameters that are addresses."""
    used: set[str] = field(default_factory=set)
    """The parameters that its lines name."""
    aside: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """For each consumer that has run the sizes that it may have bound, and what the values it found are called."""
    has_bad: bool = False
    """Whether an integer in it can set ``bad``."""
    _counts: Counter[str] = field(default_factory=Counter)

    def line(self, depth: int, text: str) -> None:
        """One more line."""
        self.lines.append(PAD * depth + text)

    def fresh(self, prefix: str) -> str:
        """A name that nothing else in the function has: the prefix and the next number."""
        self._counts[prefix] += 1
        return f"{prefix}{self._counts[prefix] - 1}"

    def computes(self, *integers: Integer) -> None:
        """Integers that are computed in it; they may set ``bad``, which it then declares."""
        self.has_bad = self.has_bad or any(one.can_fail for one in integers)

    def declarations(self) -> list[str]:
        """The lines it begins with; comments stand under each other, where these are not too far to the right."""
        declared = [*self.memory.values(), *[_BAD] * self.has_bad]
        width = max((len(one.code) for one in declared if len(one.code) <= _COLUMN), default=0)
        return [PAD + one.text(width) for one in declared]
