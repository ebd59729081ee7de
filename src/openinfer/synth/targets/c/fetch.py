"""Access to values by name, in C: outputs, persistent variables, tables."""

from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.state import TableLayout
from openinfer.synth.program.failures import UNKNOWN_NAME
from openinfer.synth.program.ir import Storage, Value
from openinfer.synth.targets.c.source import SourcePrinters
from openinfer.synth.targets.cstyle.host.integers import can_fail
from openinfer.synth.targets.cstyle.names import string


def fetch_function(name: str, placed: Placed, printers: SourcePrinters) -> tuple[list[str], str]:
    """The functions that ``NAME_fetch`` needs, and its body.

    Before the first step, the name of a persistent output finds the variable itself.
    """
    program, tables = placed.program, placed.state.tables
    lines: list[str] = []
    failure = printers.file.of_caller(UNKNOWN_NAME)
    unknown = printers.file.fail(failure)
    for key, value in program.outputs.items():
        lines += _tensor(name, key, value, printers, unknown, "c->has_outputs && ")
    homes = {key: home for key, home in program.homes.items() if home.storage is Storage.STATE}
    shown = (*program.outputs.values(), *homes.values())
    lines += [line for key, home in homes.items() for line in _tensor(name, key, home, printers, unknown)]
    on_device = placed.rules.on_device
    lines += [line for key, layout in tables.items() for line in _table(key, layout, on_device=on_device)]
    has_any = bool(lines)
    head = 'if (name == NULL) name = "";' if has_any else "(void)name;\n    (void)tensor;"
    if can_fail(printers.sizes.extent(extent) for value in shown for extent in value.shape):
        head = f"int bad = 0; /* set if an extent cannot be computed */\n    {head}"
    body = "".join(f"    {line}\n" for line in lines)
    text = f"""    {head}
{body}    {printers.file.failed(failure)};
    return {name.upper()}_ERROR_NAME;
"""
    parts = [_dense(name)] * bool(program.outputs or homes) + [_shown_table(name)] * bool(tables)
    printers.file.needs |= {"oi_select"} if tables else set()
    return parts, text


def _tensor(
    name: str, key: str, value: Value, printers: SourcePrinters, unknown: str, condition: str = ""
) -> list[str]:
    sizes = [printers.sizes.extent(one) for one in value.shape]
    facts = f'{printers.pointers.location(value)}, "{value.dtype.name}", {len(sizes)}, {value.dtype.bits}'
    shape = ", ".join(one.text for one in sizes) or "0"
    return [
        f"if ({condition}oi_same_text(name, {string(key)})) {{",
        f"    *tensor = ({name}_tensor){{ {facts}, {{ {shape} }}, {{ 0 }} }};",
        *[f"    if (bad) {unknown}"] * can_fail(sizes),
        *[f"    {_looked(printers.pointers.location(value), value.nbytes)}"] * printers.file.placed.rules.on_device,
        "    return dense(tensor);",
        "}",
    ]


def _looked(place: str, nbytes: int) -> str:
    """The line that makes device memory visible to the host."""
    return f"if (look(c, {place}, {nbytes})) return c->status;"


def _table(key: str, layout: TableLayout, *, on_device: bool) -> list[str]:
    entry = layout.table.entry
    sizes = ", ".join(map(str, entry)) or "0"
    facts = f'grid{layout.number}(c), "{layout.table.variable.dtype.name}", {len(entry)}, entry, tensor'
    return [
        f"if (oi_same_text(name, {string(key)})) {{",
        f"    static const int64_t entry[] = {{ {sizes} }};",
        *[f"    {_looked(f'c->state + {layout.memory_at}', layout.nbytes(layout.capacity))}"]
        * (on_device and layout.heap is None),
        f"    return shown_table({facts});",
        "}",
    ]


def _dense(name: str) -> str:
    return f"""/* Sets the strides of a contiguous tensor. */
static int dense({name}_tensor *tensor)
{{
    int64_t stride = 1;
    for (int axis = tensor->rank; axis-- > 0;) {{
        tensor->strides[axis] = stride;
        stride *= tensor->shape[axis];
    }}
    return {name.upper()}_OK;
}}
"""


def _shown_table(name: str) -> str:
    return f"""/* A table as a tensor: its extents and those of an entry, with strides that follow its capacity. */
static int shown_table(oi_grid grid, const char *dtype, int rank, const int64_t *entry, {name}_tensor *tensor)
{{
    const oi_table *const t = grid.table;
    const unsigned char *const memory = oi_memory(&grid);
    const void *const cells = memory == NULL ? NULL : memory + oi_cells_at(t, grid.capacity);
    oi_part all = {{ {{ 0 }}, {{ 0 }} }};
    int64_t stride = 1;
    *tensor = ({name}_tensor){{ cells, dtype, t->axes + rank, oi_cell_bits(t), {{ 0 }}, {{ 0 }} }};
    for (int axis = 0; axis < t->axes; ++axis) tensor->shape[axis] = all.count[axis] = oi_extent(&grid, &all, axis);
    for (int axis = 0; axis < rank; ++axis) tensor->shape[t->axes + axis] = entry[axis];
    for (int axis = t->axes + rank; axis-- > 0;) {{
        tensor->strides[axis] = stride;
        stride *= axis < t->axes ? grid.capacity[axis] : tensor->shape[axis];
    }}
    return {name.upper()}_OK;
}}
"""
