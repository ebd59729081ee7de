"""A file of host code in the making: what all who print into it share."""

from openinfer.errors import Span
from openinfer.ir import Node
from openinfer.ir.text import node_head
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.failures import BY_ZERO, TOO_LONG, Failures, Mistake
from openinfer.synth.program.ir import Program
from openinfer.synth.targets.cstyle.host.function import Function
from openinfer.synth.targets.cstyle.host.lists import NumberLists


class HostFile:
    """The program of a file, the function that is being printed, and what the file needs so far."""

    def __init__(self, placed: Placed, name: str) -> None:
        self.placed = placed
        self.name = name
        """What functions and macros begin with."""
        self.now = Function()
        """The function that is being printed."""
        self.needs: set[str] = set()
        """The runtime's functions that are called."""
        self.lists = NumberLists()
        self.failures = Failures()
        self.nodes: dict[int, Node] = {node.index: node for node in placed.program.bound.graph.walk()}

    @property
    def program(self) -> Program:
        """What is printed."""
        return self.placed.program

    def line(self, depth: int, text: str) -> None:
        """One more line of the function."""
        self.now.line(depth, text)

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
        place = f"node {node}" if line is None else f"node {node}, line {line}"
        return f"{place}: {node_head(self.nodes[node])}"

    # --- failures -------------------------------------------------------------------------------------------------

    def failure(self, node: int, what: Mistake) -> int:
        """The number of a mistake at a node; -1 stands for what no node is about."""
        return self.failures.number(node, what)

    def failed(self, node: int, what: Mistake) -> str:
        """The call that records a mistake."""
        return self._failed(what, str(self.failure(node, what)))

    def fail(self, node: int, what: Mistake) -> str:
        """The statement that ends a function with a mistake."""
        return f"return {self.failed(node, what)};"

    def fail_either(self, node: int, condition: str, what: Mistake, other: Mistake) -> str:
        """The same for that of two mistakes which a condition says."""
        chosen = f"{condition} ? {self.failure(node, what)} : {self.failure(node, other)}"
        return f"return {self._failed(what, chosen)};"

    def fail_bad(self, node: int, otherwise: Mistake = TOO_LONG) -> str:
        """The same where an index expression could not be computed, or, if it could, with what else is wrong."""
        if otherwise is TOO_LONG:
            return self.fail_either(node, "bad == 2", BY_ZERO, TOO_LONG)
        zero, long = (self.failure(node, what) for what in (BY_ZERO, TOO_LONG))
        chosen = f"bad == 2 ? {zero} : bad ? {long} : {self.failure(node, otherwise)}"
        return f"return {self._failed(otherwise, chosen)};"

    def _failed(self, what: Mistake, number: str) -> str:
        return f"fail(c, {self.name.upper()}_{what.status}, {number})"
