"""The public header of a project: memory sizes, inputs and outputs with their shapes, functions."""

from collections.abc import Sequence
from dataclasses import dataclass

from openinfer.synth.program.failures import DEVICE_STATUS, STATUS
from openinfer.synth.targets.c.fields import trace_fields
from openinfer.synth.targets.cstyle.host.function import PAD
from openinfer.synth.targets.project import Field


def struct(name: str, fields: Sequence[Field]) -> str:
    """A struct type; one without fields gets a byte, since C has no empty structs."""
    lines = [field.text if field.is_directive else PAD + field.text for field in fields]
    lines = lines or [f"{PAD}char nothing;"]
    return "\n".join(["typedef struct {", *lines, f"}} {name};"]) + "\n"


@dataclass(frozen=True)
class HeaderFacts:
    """The facts that the header states."""

    name: str
    banner: str
    alignment: int
    arena: int
    rollback: int
    can_tear: bool
    state: int
    weights: int
    crc: int
    saved: int | None
    state_id: int
    rank: int
    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]
    context: tuple[Field, ...]
    has_heap: bool
    is_hosted: bool
    is_interruptible: bool
    threads: int
    embeds_weights: bool
    on_device: bool = False


def header(facts: HeaderFacts) -> str:
    """The text of the header."""
    name, upper = facts.name, facts.name.upper()
    statuses = "\n".join(
        f"    {upper}_{status} = {number}, /* {about.format(alignment=facts.alignment)} */"
        if about
        else f"    {upper}_{status} = {number},"
        for number, (status, about) in enumerate((DEVICE_STATUS if facts.on_device else STATUS).items())
    )
    return f"""{facts.banner}
#ifndef OPENINFER_{upper}_H
#define OPENINFER_{upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_ALIGNMENT {facts.alignment}
#define {upper}_ARENA_BYTES {facts.arena}
#define {upper}_STATE_BYTES {facts.state}
#define {upper}_STATE_ID 0x{facts.state_id:08x}u /* programs with the same ID can exchange states */
#define {upper}_WEIGHT_BYTES {facts.weights}
#define {upper}_WEIGHT_CRC32 0x{facts.crc:08x}u
{_optional(upper, facts)}#define {upper}_MAX_RANK {facts.rank}

typedef enum {{
{statuses}
}} {name}_status;

/* The inputs of a step. The caller owns the memory and must not change it during the step. */
{struct(f"{name}_inputs", facts.inputs)}
/* The outputs of a step. The instance owns the memory, which is valid until the next step. */
{struct(f"{name}_outputs", facts.outputs)}
/* A tensor that was fetched by name. Strides count elements. Elements of fewer than 8 bits are packed, the first in the
   lowest bits, except in tables, where each takes a byte: bits is the storage size of an element. If data is NULL, the
   table has no memory yet: all its elements are initial. */
typedef struct {{
    const void *data;
    const char *dtype;
    int32_t rank, bits;
    int64_t shape[{upper}_MAX_RANK], strides[{upper}_MAX_RANK];
}} {name}_tensor;

#ifdef {upper}_TRACE
/* Compiled with -D{upper}_TRACE, a step calls back after every node: once for each of its results
   in memory, or once without a value. Values that were fused away or are unused have no memory. */
typedef struct {{
    int32_t node;           /* numbered as in the simulator */
    int32_t output;         /* the index of the node's result */
    int32_t point;          /* the number of the trace point in the code */
    const char *variable;   /* the name in the graph, or NULL */
    const char *dtype;      /* NULL: no value */
    int32_t rank;
    const int64_t *shape;
    const int64_t *strides; /* in elements; NULL: row-major */
    const void *data;       /* NULL: not in memory, or a weight */
    int32_t depth;          /* the number of loops of the block around the node */
    const int64_t *indices; /* of these loops, outermost first */
}} {name}_event;
typedef void {name}_trace_function(void *user, const {name}_event *event);
#endif

{_interrupt_type(facts)}{_instance(facts)}
{struct(f"{name}_context", [*facts.context, *trace_fields(name)])}
{_functions(facts)}
#ifdef {upper}_TRACE
/* Sets the trace callback; NULL disables it. Call it after init, and compile all files with the same -D. */
void {name}_set_trace({name}_context *c, {name}_trace_function *function, void *user);
#endif

#ifdef __cplusplus
}}
#endif

#endif
"""


def _on_device(facts: HeaderFacts, stateless: str) -> str:
    """The declarations for device memory, and the comment on ``NAME_init``, which takes it."""
    name, upper = facts.name, facts.name.upper()
    return f"""/* Returns a handle of device memory for init, or NULL if out of memory. The memory is allocated on
   the device of the first instance that uses it; instances with the same handle are on the same device. It is freed
   when it is released and no instance uses it any more. */
void *{name}_memory(size_t bytes);
void {name}_release(void *memory);

/* Initialises and resets an instance in such memory. {stateless}The weights, in any host memory,
   are copied to the device. Returns {upper}_OK or an error, as all functions that return int do. */"""


def _interrupt_type(facts: HeaderFacts) -> str:
    if not facts.is_interruptible:
        return ""
    return f"""/* Called during a step: any result but 0 interrupts it. */
typedef int {facts.name}_interrupt_function(void *user);

"""


def _instance(facts: HeaderFacts) -> str:
    """The comment about contexts and threads."""
    if facts.is_hosted:
        busy = f"{facts.name.upper()}_ERROR_BUSY"
        return f"""/* An instance. All fields are private. A context takes one call at a time: a second one, from
   another thread or a callback, returns {busy}. Several instances can run concurrently. */"""
    return """/* An instance. All fields are private. A context takes one call at a time: the caller must prevent
   a second one from threads and interrupts. Several instances can run concurrently. */"""


def _limits(facts: HeaderFacts) -> str:
    """The declarations for steps that end early."""
    if not facts.is_interruptible:
        return ""
    name, upper = facts.name, facts.name.upper()
    return f"""
/* Sets a function that can interrupt steps; NULL, the default, removes it. The thread that runs a step calls it before
   blocks and iterations of graph loops, at most ten times a second; kernels are not interrupted.
   The step then fails with {upper}_ERROR_INTERRUPTED. */
void {name}_set_interrupt({name}_context *c, {name}_interrupt_function *function, void *user);

/* Limits the nodes that a step executes; -1, the default, means no limit. A step that exceeds it fails
   with {upper}_ERROR_BUDGET. Nodes are counted as in the simulator, a block or a loop iteration at a time. */
void {name}_set_budget({name}_context *c, int64_t nodes);
"""


def _failed_step(facts: HeaderFacts) -> str:
    """The comment about steps that fail."""
    if not facts.can_tear:
        return "/* Runs one step. A step that fails has no effect: persistent variables keep their values. */"
    undefined = "persistent variables\n   are undefined, and steps are refused until they are reset or loaded. */"
    if facts.rollback:
        return (
            "/* Runs one step. A step that fails is rolled back: persistent variables keep their values. But if its"
            f"\n   undo log exceeds {facts.name.upper()}_UNDO_BYTES, {undefined}"
        )
    return (
        f"/* Runs one step. If an input or its size is invalid, the step has no effect. If it fails later, {undefined}"
    )


def _optional(upper: str, facts: HeaderFacts) -> str:
    saved = "" if facts.saved is None else f"#define {upper}_SAVED_BYTES {facts.saved}\n"
    if facts.rollback:
        saved += f"#define {upper}_UNDO_BYTES {facts.rollback} /* of the arena, for the undo log of a step */\n"
    return saved if facts.threads == 1 else f"{saved}#define {upper}_THREADS {facts.threads}\n"


def _functions(facts: HeaderFacts) -> str:
    name, upper = facts.name, facts.name.upper()
    heap = ""
    if facts.on_device and not facts.has_heap:
        heap = f"""
/* Frees what init has allocated; initialise the context again before using it. */
void {name}_free({name}_context *c);
"""
    if facts.has_heap:
        made = "what init has allocated, and " * facts.on_device
        heap = f"""
/* Frees {made}the memory of growing tables; initialise the context again before using it. */
void {name}_free({name}_context *c);

/* Reserves memory for this many cells along each axis of a growing table. Growing tables are numbered from 0. */
int {name}_reserve({name}_context *c, int table, const int64_t *cells);
"""
    threads = ""
    if facts.threads > 1:
        threads = f"""
/* Starts {upper}_THREADS - 1 threads, which share the work of {name}_step with its caller.
   Results are the same without them. Stop them before the context is initialised again or discarded. In a forked
   child, the first step starts new threads; if another thread was in a call during the fork, the child finds the
   context busy. */
int {name}_start_threads({name}_context *c);
void {name}_stop_threads({name}_context *c);
"""
    stateless = "" if facts.state else "Nothing is persistent: pass NULL and 0 as the state.\n   "
    embedded = ""
    if facts.embeds_weights:
        embedded = f"""
/* The weights, linked into the program. */
extern const unsigned char {name}_weights[];
"""
    init = f"""/* Initialises and resets an instance in the caller's memory, aligned to {upper}_ALIGNMENT.
   {stateless}The weights are only read, and can be shared by instances. Returns {upper}_OK or an error,
   as all functions that return int do. */"""
    return f"""{_on_device(facts, stateless) if facts.on_device else init}
int {name}_init({name}_context *c, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
        const void *weights, size_t weight_bytes);
{threads}{heap}
/* Checks that the code was generated for these weights, by their size and CRC-32. */
int {name}_check_weights(const void *weights, size_t weight_bytes);
{embedded}
/* Resets persistent variables to their initial values. */
int {name}_reset({name}_context *c);

{_failed_step(facts)}
int {name}_step({name}_context *c, const {name}_inputs *in, {name}_outputs *out);
{_limits(facts)}
/* Saves and loads persistent variables, for programs with the same {upper}_STATE_ID
   on machines with the same byte order. Such programs can also share the memory of the state and run steps in turn,
   unless tables grow without bounds. load_state validates untrusted data; if it fails, it changes nothing. */
size_t {name}_saved_bytes(const {name}_context *c);
int {name}_save_state({name}_context *c, void *to, size_t bytes);
int {name}_load_state({name}_context *c, const void *from, size_t bytes);

/* Finds an output of the last step, a persistent variable or a whole table by name. Valid until the next step. */
int {name}_fetch({name}_context *c, const char *name, {name}_tensor *tensor);

/* The message of the last error, and where in the graph it occurred; never NULL. A call that is refused because another
   is running does not change it. Compiled with -D{upper}_NO_MESSAGES, all errors read "failed". */
const char *{name}_last_error(const {name}_context *c);

/* The node of the last error, numbered as in the simulator; -1 if no node was running. */
int32_t {name}_failed_node(const {name}_context *c);
"""
