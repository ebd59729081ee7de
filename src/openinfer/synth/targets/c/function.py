"""C functions in the making: their lines, the memory they name, what can fail in them."""

from dataclasses import dataclass, field

from openinfer.errors import Span
from openinfer.ir.text import node_head
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.failures import BY_ZERO, TOO_LONG, Failures, Mistake
from openinfer.synth.targets.c.integers import Integer
from openinfer.synth.targets.c.lists import NumberLists

PAD = "    "


@dataclass
class Function:
    """A C function in the making: what it names, its lines, and what is certain where the next line stands."""

    lines: list[str] = field(default_factory=list)
    pointers: dict[str, str] = field(default_factory=dict)
    loops: list[tuple[str, Integer]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    """Sizes that have values, and extents that are in range."""
    aside: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """For each consumer that has run the sizes that it may have bound, and what the values it found are called."""
    count: int = 0
    has_bad: bool = False
    call_depth: int | None = None
    """How deep the last line stands, if it is a call."""


class FunctionPrinter:
    """What all printers of a program's blocks share."""

    def __init__(self, placed: Placed, name: str) -> None:
        self._placed = placed
        self._program = placed.program
        self._plan = placed.memory
        self._name = name
        self._nodes = {node.index: node for node in self._program.bound.graph.walk()}
        self._now = Function()
        self.needs: set[str] = set()
        self.lists = NumberLists()
        self.failures = Failures()
        self.size_fields = placed.names.sizes

    def _line(self, depth: int, text: str) -> None:
        self._now.lines.append(PAD * depth + text)
        self._now.call_depth = None

    def _call_line(self, depth: int, text: str) -> None:
        """A line that is a call, which another short one may stand behind."""
        self._line(depth, text)
        self._now.call_depth = depth

    def source_line(self, node: int) -> int | None:
        """The line of the source that a node stands on."""
        span = self._nodes[node].span if node in self._nodes else None
        return span.source.position(span.start)[0] if isinstance(span, Span) else None

    def where(self, node: int) -> str:
        """A node in words."""
        if node not in self._nodes:
            return ""
        line = self.source_line(node)
        place = f"node {node}" if line is None else f"node {node}, line {line}"
        return f"{place}: {node_head(self._nodes[node])}"

    def _fail(self, node: int, what: Mistake) -> str:
        return f"return fail(c, {self._name.upper()}_{what.status}, {self._failure(node, what)});"

    def _fail_either(self, node: int, condition: str, what: Mistake, other: Mistake) -> str:
        """Of two mistakes the one that a condition says."""
        chosen = f"{condition} ? {self._failure(node, what)} : {self._failure(node, other)}"
        return f"return fail(c, {self._name.upper()}_{what.status}, {chosen});"

    def _failure(self, node: int, what: Mistake) -> int:
        return self.failures.number(node, what)

    def _fail_bad(self, node: int, otherwise: Mistake = TOO_LONG) -> str:
        """What is wrong where an index expression could not be computed, or, if it could, what else is."""
        if otherwise is TOO_LONG:
            return self._fail_either(node, "bad == 2", BY_ZERO, TOO_LONG)
        zero, long = (self._failure(node, what) for what in (BY_ZERO, TOO_LONG))
        places = f"bad == 2 ? {zero} : bad ? {long} : {self._failure(node, otherwise)}"
        return f"return fail(c, {self._name.upper()}_{otherwise.status}, {places});"
