"""The host side of a project for a device, in C: how an instance gets a device, and how failures there are detected."""

from openinfer.synth.memory.alignment import aligned
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.failures import DEVICE_STATUS, NO_DRIVER, OTHER_WEIGHTS, SMALL_MEMORY, Mistake
from openinfer.synth.targets.c.device_side import DeviceSide
from openinfer.synth.targets.c.source import SourcePrinters
from openinfer.synth.targets.cstyle.host.function import Function
from openinfer.synth.targets.gpu.calls import MEMORY_CALLS

_SLOT = 64
"""The alignment of the copies of outputs, in bytes."""
_LOOKED_AT = 256
"""The most bytes of a value that the host reads while a step runs: ``SCALAR`` of the recorder."""


def device_side(placed: Placed, printers: SourcePrinters, name: str, lanes: int) -> DeviceSide:
    """How the functions of a project differ from C alone, on a device with subgroups of ``lanes`` threads."""
    return DeviceSide(
        plumbing=_plumbing(placed, printers, name),
        init=_init(placed, printers, name, lanes),
        free=("oi_close(c->device);", "c->device = NULL;"),
        inputs=_inputs(placed, printers),
        memory=MEMORY_CALLS,
        undo=", c->device, 0",
    )


def _plumbing(placed: Placed, printers: SourcePrinters, name: str) -> str:
    numbers = list(DEVICE_STATUS)
    statuses = ", ".join(str(numbers.index(row.mistake.status)) for row in placed.failures.rows)
    upper = name.upper()
    shown = "".join(f"    {line}\n" for line in _shown(placed, printers))
    return f"""/* Records a failure, unless its number is negative, and returns whether it is one. */
static int has_failed({name}_context *c, int32_t failure)
{{
    static const int32_t statuses[] = {{ {statuses} }};
    if (failure < 0) return 0;
    c->status = statuses[failure];
    c->failure = failure;
    return 1;
}}

/* Waits for all launches and returns whether one has failed. */
static int settle({name}_context *c) {{ return has_failed(c, oi_settle(c->device)); }}

/* Updates the mirror of device memory and returns whether a launch has failed. */
__attribute__((unused)) static int look({name}_context *c, const void *at, size_t bytes)
{{
    return has_failed(c, oi_look(c->device, at, bytes));
}}

/* Waits for the end of a step and for its outputs, and returns whether a launch has failed. */
static int ended({name}_context *c)
{{
{shown}    return has_failed(c, oi_finish(c->device));
}}

/* Records a failure, unless an earlier launch has failed. */
static int fail({name}_context *c, {name}_status status, int32_t failure)
{{
    if (settle(c)) return 1;
    c->status = (int32_t)status;
    c->failure = failure;
    return 1;
}}

#ifndef LAUNCH
#define LAUNCH(kernel, groups, failure, count, ...) \\
    oi_launch(c->device, kernel, groups, failure, count, __VA_ARGS__)
#endif
#ifdef {upper}_TRACE
#define TRACE_SETTLED if (settle(c)) return 1
#define TRACE_LOOK(at, bytes) if (look(c, at, bytes)) return 1
#else
#define TRACE_SETTLED ((void)c)
#define TRACE_LOOK(at, bytes) ((void)(at))
#endif
"""


def _init(placed: Placed, printers: SourcePrinters, name: str, lanes: int) -> str:
    upper, file = name.upper(), printers.file

    def failed(what: Mistake) -> str:
        return file.failed(file.of_caller(what))

    first = file.of_caller(NO_DRIVER)
    small = f"arena == NULL || arena_bytes < {upper}_ARENA_BYTES"
    unused = "    (void)state_bytes;\n"
    given, cleared = "NULL", "    (void)state; /* Nothing outlives a step. */\n"
    if placed.has_state:
        small += f" || state == NULL || state_bytes < {upper}_STATE_BYTES"
        given, unused = "state", ""
        cleared = "".join(f"    {line}\n" for line in _cleared(placed, upper))
    cleared += "    c->budget = -1;\n" * placed.is_interruptible
    offsets = placed.input_offsets
    first_input = min(offsets.values(), default=0)
    inputs = max((at + max(value.nbytes, 1) for value, at in offsets.items()), default=first_input) - first_input
    outputs = sum(aligned(value.nbytes, _SLOT) for value in placed.program.outputs.values())
    sizes = f"{upper}_ARENA_BYTES, {upper}_STATE_BYTES, {upper}_WEIGHT_BYTES, {first_input}, {inputs}, {outputs}"
    return f"""void *{name}_memory(size_t bytes) {{ return oi_memory_new(bytes); }}

void {name}_release(void *memory) {{ oi_memory_free(memory); }}

int {name}_init({name}_context *c, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
        const void *weights, size_t weight_bytes)
{{
    *c = ({name}_context){{ 0 }};
{unused}    if ({small}) {{
        {failed(SMALL_MEMORY)};
        return {upper}_ERROR_MEMORY;
    }}
    if (weight_bytes != {upper}_WEIGHT_BYTES || ({upper}_WEIGHT_BYTES > 0 && weights == NULL)) {{
        {failed(OTHER_WEIGHTS)};
        return {upper}_ERROR_WEIGHTS;
    }}
    const oi_given from = {{ arena, {given}, weights, {sizes}, {name}_kernels, OI_KERNELS, {first}, {lanes} }};
    oi_mirrors mirrors = {{ NULL, NULL, NULL }};
    oi_queue *queue = NULL;
    const oi_problem problem = oi_open(&from, &mirrors, &queue);
    if (problem != OI_GOOD) {{
        fail(c, problem < OI_NO_MEMORY ? {upper}_ERROR_DEVICE : {upper}_ERROR_MEMORY, {first} + (int32_t)problem);
        return c->status;
    }}
    c->device = queue;
    c->arena = mirrors.arena;
    c->weights = mirrors.weights;
{cleared}    return {name}_reset(c);
}}
"""


def _inputs(placed: Placed, printers: SourcePrinters) -> tuple[str, ...]:
    """The lines that copy the inputs of a step, of which only the sizes have been checked.

    Inputs that the host may read are copied into the mirror as well: device memory is slow to read.
    """
    names, offsets = placed.names.inputs, placed.input_offsets
    printers.file.now = Function()
    first = min(offsets.values(), default=0)
    lines = []
    for key, value in placed.program.inputs.items():
        if value.nbytes:
            what = f"in->{names[key]}, {printers.sizes.nbytes(value)}"
            lines.append(f"memcpy(oi_inputs(c->device) + {offsets[value] - first}, {what});")
            lines += [f"memcpy(c->arena + {offsets[value]}, {what});"] * (value.nbytes <= _LOOKED_AT)
    return (*["int bad = 0;"] * printers.file.now.has_bad, *lines)


def _shown(placed: Placed, printers: SourcePrinters) -> tuple[str, ...]:
    """The lines that request the outputs of a step."""
    printers.file.now = Function()
    lines = [
        f"oi_show(c->device, {printers.pointers.location(value)}, {printers.sizes.nbytes(value)}, {value.nbytes});"
        for value in placed.program.outputs.values()
        if value.nbytes
    ]
    return (*["int bad = 0;"] * printers.file.now.has_bad, *lines)


def _cleared(placed: Placed, upper: str) -> list[str]:
    """The lines that fill the state with zeros; only the host uses the extents of tables."""
    lines = ["c->state = mirrors.state;"]
    for layout in placed.state.tables.values():
        head = 8 * layout.axes * (1 if layout.heap is None else 2)
        owned = [(layout.extents_at, head)]
        if layout.heap is None and layout.has_matrices:
            owned.append((layout.memory_at, layout.cells_at(layout.capacity)))
        lines += [line for at, n in owned for line in _owned(at, n)]
    return [*lines, f"oi_set(c->device, c->state, 8, {upper}_STATE_BYTES, 0);"]


def _owned(at: int, nbytes: int) -> list[str]:
    return [f"oi_own(c->device, c->state + {at}, {nbytes});", f"memset(c->state + {at}, 0, {nbytes});"]
