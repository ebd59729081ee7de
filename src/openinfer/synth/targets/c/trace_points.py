"""The trace hook in generated code: lines after nodes, which do nothing unless the code is compiled with traces.

A line names a row of a table (the node, which of its results, its type) and passes what is only known at run time: the
value's address, its extents, and the indices of the enclosing loops. Consecutive nodes that leave no value in memory
share a line.
"""

from collections.abc import Iterable

from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.targets.cstyle.names import string


def trace_code(name: str, reported: Iterable[Reported]) -> str:
    """The definitions behind trace lines, in front of all blocks."""
    upper = name.upper()
    rows = "\n".join(f"    {_row(row)}" for row in reported)
    return f"""#ifdef {upper}_TRACE
/* The trace points: node, result, rank, loop depth, name and dtype of the value, and its strides. */
static const struct {{
    int32_t node, output, rank, depth;
    const char *variable, *dtype;
    const int64_t *strides;
}} traced[] = {{
{rows}
}};

static void trace({name}_context *c, int32_t point, const void *data, const int64_t *numbers)
{{
    if (c->trace == NULL) return;
    const {name}_event event = {{
        traced[point].node, traced[point].output, point, traced[point].variable, traced[point].dtype,
        traced[point].rank, numbers, traced[point].strides, data, traced[point].depth, numbers + traced[point].rank,
    }};
    c->trace(c->trace_user, &event);
}}

void {name}_set_trace({name}_context *c, {name}_trace_function *function, void *user)
{{
    c->trace = function;
    c->trace_user = user;
}}

#define TRACE(point, data, ...) trace(c, point, data, (const int64_t[]){{ __VA_ARGS__ }})
#define TRACE_NODES(first, last, ...) \\
    for (int32_t point = first; point <= last; ++point) trace(c, point, NULL, (const int64_t[]){{ __VA_ARGS__ }})
#else
#define TRACE(point, data, ...) ((void)c, (void)(data))
#define TRACE_NODES(first, last, ...) ((void)c)
#endif
"""


def _row(one: Reported) -> str:
    """A row of the table in C."""
    if one.value is None:
        return f"{{ {one.node}, {one.output}, 0, {len(one.indices)}, NULL, NULL, NULL }},"
    written, dtype = string(one.name), string(one.value.dtype.name)
    strides = "NULL" if one.strides is None else f"(const int64_t[]){{ {', '.join(map(str, one.strides))} }}"
    return f"{{ {one.node}, {one.output}, {one.rank}, {len(one.indices)}, {written}, {dtype}, {strides} }},"
