"""C functions in the making: their lines, the memory they name, what can fail in them, where state lies."""

from dataclasses import dataclass, field

from openinfer.errors import Code, Diagnostic, GraphError, GraphPlace, Span
from openinfer.ir.text import node_head
from openinfer.loops.dim import sizes_in
from openinfer.synth.memory.place import MemoryPlan
from openinfer.synth.memory.rollback import Undo
from openinfer.synth.memory.weights import WeightLayout
from openinfer.synth.program.ir import Program, Store, Table, Value
from openinfer.synth.targets.c.failures import BY_ZERO, TOO_LONG, Failure, Mistake
from openinfer.synth.targets.c.integers import Integer
from openinfer.synth.targets.c.lists import NumberLists
from openinfer.synth.targets.c.tables import TableLayout, table_layout
from openinfer.synth.targets.cstyle.names import field as field_name

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

    def __init__(self, program: Program, plan: MemoryPlan, weights: WeightLayout, name: str, *, heap: bool) -> None:
        self._program = program
        self._plan = plan
        self._weights = weights
        self._name = name
        self._nodes = {node.index: node for node in program.bound.graph.walk()}
        self._now = Function()
        self.needs: set[str] = set()
        self.lists = NumberLists()
        self.failures: dict[Failure, int] = {}
        self.undo: Undo | None = None
        """What a step keeps in order to be taken back."""
        self.is_interruptible = False
        """Whether a step asks, where blocks and turns of loops begin, if it is to end."""
        self.size_fields = {size: field_name("s_", size, place) for place, size in enumerate(program.sizes)}
        self.size_fields |= {size: f"s_{size}" for size in program.sizes if not size.isidentifier()}
        self.input_fields = {key: field_name("v_", key, place) for place, key in enumerate(program.inputs)}
        self.input_sizes = sorted(
            {size for value in program.inputs.values() for extent in value.shape for size in sizes_in(extent)}
        )
        self._lay_out(heap=heap)

    def _lay_out(self, *, heap: bool) -> None:
        """The state: plain variables, then tables; those without bounds have memory of their own."""
        self.state_offsets: dict[Value, int] = {}
        offset = 0
        for home in self._program.homes.values():
            if home.store is Store.STATE:
                self.state_offsets[home] = offset
                offset += -(-home.nbytes // 64) * 64
        self.tables: dict[str, TableLayout] = {}
        self.heaps = 0
        for place, (key, table) in enumerate(self._program.tables.items()):
            own = None
            if None in table.bounds:
                _require_heap(table, heap=heap)
                own = self.heaps
                self.heaps += 1
            self.tables[key] = table_layout(table, place, offset, own)
            offset += self.tables[key].size
        self.state_size = offset

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
        return self.failures.setdefault(Failure(node, what), len(self.failures))

    def _fail_bad(self, node: int, otherwise: Mistake = TOO_LONG) -> str:
        """What is wrong where an index expression could not be computed, or, if it could, what else is."""
        if otherwise is TOO_LONG:
            return self._fail_either(node, "bad == 2", BY_ZERO, TOO_LONG)
        zero, long = (self._failure(node, what) for what in (BY_ZERO, TOO_LONG))
        places = f"bad == 2 ? {zero} : bad ? {long} : {self._failure(node, otherwise)}"
        return f"return fail(c, {self._name.upper()}_{otherwise.status}, {places});"

    def span_of(self, node: int) -> GraphPlace | None:
        """Where a node stands in the source."""
        return self._nodes[node].span if node in self._nodes else None


def _require_heap(table: Table, *, heap: bool) -> None:
    if heap:
        return
    decl = table.variable.decl
    message = f"the table {table.variable.name!r} can grow without bound, and there is no heap"
    advice = "bound its indices with @fixed(...)"
    raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, decl.span if decl else None, advice))
