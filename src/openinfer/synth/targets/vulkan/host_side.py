"""The host's side of a Vulkan project, in C: how an instance comes to its device, and how failures are found there."""

from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.failures import DEVICE_STATUS, NO_DRIVER, OTHER_WEIGHTS, SMALL_MEMORY, Mistake
from openinfer.synth.targets.c.device_side import DeviceSide
from openinfer.synth.targets.c.source import SourcePrinters
from openinfer.synth.targets.cstyle.host.function import Function


def device_side(placed: Placed, printers: SourcePrinters, name: str, lanes: int) -> DeviceSide:
    """What the functions of a project do otherwise than in C, on a device whose subgroups have so many threads."""
    free = ("oi_close(c->device);", "c->device = NULL;")
    return DeviceSide(_plumbing(placed, name), _init(placed, printers, name, lanes), free, _inputs(placed, printers))


def _plumbing(placed: Placed, name: str) -> str:
    numbers = list(DEVICE_STATUS)
    statuses = ", ".join(str(numbers.index(row.mistake.status)) for row in placed.failures.rows)
    upper = name.upper()
    return f"""/* Waits for all that was launched; whether something of that has failed. */
static int settle({name}_context *c)
{{
    static const int32_t statuses[] = {{ {statuses} }};
    const int32_t failure = oi_settle(c->device);
    if (failure < 0) return 0;
    c->status = statuses[failure];
    c->failure = failure;
    return 1;
}}

/* Records what went wrong, unless something that was launched before has failed. */
static int fail({name}_context *c, {name}_status status, int32_t failure)
{{
    if (settle(c)) return 1;
    c->status = (int32_t)status;
    c->failure = failure;
    return 1;
}}

#ifndef LAUNCH
#define LAUNCH(shader, groups, failure, count, ...) \\
    oi_launch(c->device, shader, groups, failure, count, __VA_ARGS__)
#endif
#ifdef {upper}_TRACE
#define TRACE_SETTLED if (settle(c)) return 1
#else
#define TRACE_SETTLED ((void)c)
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
        cleared = f"    c->state = mapped.state;\n    memset(c->state, 0, {upper}_STATE_BYTES);\n"
    cleared += "    c->budget = -1;\n" * placed.is_interruptible
    sizes = f"{upper}_ARENA_BYTES, {upper}_STATE_BYTES, {upper}_WEIGHT_BYTES"
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
    const oi_given from = {{ arena, {given}, weights, {sizes}, {name}_shaders, OI_SHADERS, {first}, {lanes} }};
    oi_mapped mapped = {{ NULL, NULL, NULL }};
    oi_queue *queue = NULL;
    const oi_problem problem = oi_open(&from, &mapped, &queue);
    if (problem != OI_GOOD) {{
        fail(c, problem < OI_NO_MEMORY ? {upper}_ERROR_DEVICE : {upper}_ERROR_MEMORY, {first} + (int32_t)problem);
        return c->status;
    }}
    c->device = queue;
    c->arena = mapped.arena;
    c->weights = mapped.weights;
{cleared}    return {name}_reset(c);
}}
"""


def _inputs(placed: Placed, printers: SourcePrinters) -> tuple[str, ...]:
    """The lines that copy the inputs of a step, of which only the sizes have been looked at."""
    names = placed.names.inputs
    printers.file.now = Function()
    lines = [
        f"memcpy(c->arena + {placed.input_offsets[value]}, in->{names[key]}, {printers.sizes.nbytes(value)});"
        for key, value in placed.program.inputs.items()
        if value.nbytes
    ]
    return (*["int bad = 0;"] * printers.file.now.has_bad, *lines)
