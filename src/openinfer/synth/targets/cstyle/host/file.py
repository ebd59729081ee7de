"""A file of host code in the making: what all who print into it share."""

from openinfer.errors import Span
from openinfer.ir import Node
from openinfer.ir.text import node_head
from openinfer.synth.memory.checks.records import IndexFailure
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.failures import Mistake
from openinfer.synth.program.integers import Computed
from openinfer.synth.program.ir import Program
from openinfer.synth.targets.cstyle.host.function import Function
from openinfer.synth.targets.cstyle.host.integers import fits_narrow
from openinfer.synth.targets.cstyle.host.lists import NumberLists


class HostFile:
    """The program of a file, the function that is being printed, and what the file needs so far."""

    def __init__(self, placed: Placed, name: str, index_bits: int = 64) -> None:
        self.placed = placed
        self.name = name
        """What functions and macros begin with."""
        self.now = Function()
        """The function that is being printed."""
        self.needs: set[str] = set()
        """The runtime's functions that are called."""
        self.lists = NumberLists(index_bits)
        self._has_narrow = index_bits == 32 and placed.weights.size < 1 << 31  # which indices multiply up to
        self.nodes: dict[int, Node] = {node.index: node for node in placed.program.bound.graph.walk()}

    @property
    def program(self) -> Program:
        """What is printed."""
        return self.placed.program

    def line(self, depth: int, text: str) -> None:
        """One more line of the function."""
        self.now.line(depth, text)

    def narrows(self, *ranges: Computed) -> bool:
        """Whether an index of these ranges has 32 bits."""
        return self._has_narrow and all(map(fits_narrow, ranges))

    # --- nodes ----------------------------------------------------------------------------------------------------

    def source_line(self, node: int) -> int | None:
        """The line of the source that a node stands on."""
        span = self.nodes[node].span if node in self.nodes else None
        return span.source.position(span.start)[0] if isinstance(span, Span) else None

    def where(self, node: int) -> str:
        """A node in words."""
        if node not in self.nodes:
            return ""
        line = self.source_line(node)
        number = f"node {node}" if line is None else f"node {node}, line {line}"
        return f"{number}: {node_head(self.nodes[node])}"

    def title(self, node: int) -> str:
        """A node in words that a comment begins with."""
        words = self.where(node)
        return words[:1].upper() + words[1:]

    # --- failures -------------------------------------------------------------------------------------------------

    def failed(self, number: int) -> str:
        """The call that records a failure."""
        return self._failed(number, str(number))

    def fail(self, number: int) -> str:
        """The statement that ends a function with a failure."""
        return f"return {self.failed(number)};"

    def fail_either(self, condition: str, number: int, other: int) -> str:
        """The same for that of two failures which a condition says."""
        return f"return {self._failed(number, f'{condition} ? {number} : {other}')};"

    def fail_bad(self, failure: IndexFailure) -> str:
        """The same where an index expression could not be computed, or, if it could, with what else is wrong."""
        if failure.otherwise is None:
            return self.fail_either("bad == 2", failure.by_zero, failure.too_long)
        chosen = f"bad == 2 ? {failure.by_zero} : bad ? {failure.too_long} : {failure.otherwise}"
        return f"return {self._failed(failure.otherwise, chosen)};"

    def of_caller(self, what: Mistake) -> int:
        """The number of a mistake that no node is about."""
        return self.placed.failures.number(-1, what)

    def _failed(self, number: int, text: str) -> str:
        status = self.placed.failures.rows[number].mistake.status
        return f"fail(c, {self.name.upper()}_{status}, {text})"
