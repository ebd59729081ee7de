"""The trace hook in generated code: a line behind every node, which is nothing unless the code is compiled for traces.

A line names a row of a table (the node, which of its results, its type) and gives what only the run knows: where the
value is, its extents, and the indices of the loops around. Kernels, their order and all memory are the same with and
without it; so a value is reported only if nothing has taken its memory yet.
"""

from openinfer.check.events import node_writes
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import (
    BranchStep,
    CallStep,
    LoopStep,
    Mark,
    Operand,
    PartStep,
    Step,
    Value,
)
from openinfer.synth.program.liveness import definitions, lives_of
from openinfer.synth.targets.c.fresh import FreshValues
from openinfer.synth.targets.c.operands import OperandPrinter
from openinfer.synth.targets.cstyle.names import string
from openinfer.synth.targets.project import Reported

_WIDEST = 120


class MarkPrinter(OperandPrinter):
    """Prints the lines, and collects the rows of the table."""

    def __init__(self, placed: Placed, name: str) -> None:
        super().__init__(placed, name)
        self.reported: list[Reported] = []
        self._alive = lives_of(placed.program).at_marks
        self._fresh = FreshValues(placed.memory)

    def _begin(self, block: str) -> None:
        """A block begins: what outlives steps is there, if nothing has run yet."""
        self._fresh = FreshValues(self._plan, self._placed.state.homes if block == "entry" else ())

    def _follow(self, step: Step) -> None:
        """A step has been printed: what it writes is there, and what lay in the same memory is not any more."""
        if isinstance(step, BranchStep | CallStep | LoopStep):
            self._fresh = FreshValues(self._plan)
            return
        # A part of a table that is read where it lies has no memory of its own, and is there as long as it is needed.
        written = set(definitions(step)) - self._plan.views
        if isinstance(step, PartStep) and step.action.is_change and isinstance(step.whole, Value):
            written.add(step.whole)
        self._fresh.write(written)

    def _mark(self, step: Mark, depth: int) -> None:
        indices = tuple(name for name, _ in self._now.loops)
        names = [str(access) for access in node_writes(self._nodes[step.node])]
        rows = [
            Reported(step.node, place, names[place], value, indices)
            for place, value in enumerate(step.values)
            if self._is_there(step, value)
        ]
        for row in rows or [Reported(step.node, 0, "", None, indices)]:
            self._report(row, depth)

    def _is_there(self, mark: Mark, operand: Operand) -> bool:
        """Whether the value is in memory where the mark stands; of weights, only Python has them in one piece."""
        if not isinstance(operand, Value):
            return True
        return self._is_input(operand) or operand in self._alive.get(id(mark), ()) or operand in self._fresh

    def _report(self, row: Reported, depth: int) -> None:
        data = self._pointer(row.value) if isinstance(row.value, Value) else "NULL"
        extents = [] if row.value is None else [self.extent(extent).text for extent in row.value.shape]
        numbers = ", ".join([*extents, *(found.text for _, found in self._now.loops)]) or "0"
        self._beside(depth, f"TRACE({len(self.reported)}, {data}, {numbers});")
        self.reported.append(row)

    def _beside(self, depth: int, text: str) -> None:
        """A statement behind the call that the last line is, if it fits there: it should not be in a reader's way."""
        last = self._now.lines[-1] if self._now.lines else ""
        if self._now.call_depth == depth and len(last) + len(text) < _WIDEST:
            self._now.lines[-1] = f"{last} {text}"
            return
        self._call_line(depth, text)

    def trace_code(self) -> str:
        """What the lines are, in front of all blocks."""
        name, upper = self._name, self._name.upper()
        rows = "\n".join(f"    {_row(row)}" for row in self.reported)
        return f"""#ifdef {upper}_TRACE
/* For each line that traces: node, result, extents, indices of loops, and what it is. */
static const struct {{
    int32_t node, output, rank, depth;
    const char *variable, *dtype;
}} traced[] = {{
{rows}
}};

static void trace({name}_context *c, int32_t place, const void *data, const int64_t *numbers)
{{
    if (c->trace == NULL) return;
    const {name}_event event = {{
        traced[place].node, traced[place].output, place, traced[place].variable, traced[place].dtype,
        traced[place].rank, numbers, data, traced[place].depth, numbers + traced[place].rank,
    }};
    c->trace(c->trace_user, &event);
}}

void {name}_set_trace({name}_context *c, {name}_trace_function *function, void *user)
{{
    c->trace = function;
    c->trace_user = user;
}}

#define TRACE(place, data, ...) trace(c, place, data, (const int64_t[]){{ __VA_ARGS__ }})
#else
#define TRACE(place, data, ...) ((void)c, (void)(data))
#endif
"""


def _row(one: Reported) -> str:
    """A row of the table in C."""
    if one.value is None:
        return f"{{ {one.node}, {one.output}, 0, {len(one.indices)}, NULL, NULL }},"
    written, dtype = string(one.name), string(one.value.dtype.name)
    return f"{{ {one.node}, {one.output}, {one.rank}, {len(one.indices)}, {written}, {dtype} }},"
