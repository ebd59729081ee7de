"""The public header of a project: memory sizes, inputs and outputs with their shapes, functions."""

from collections.abc import Sequence
from dataclasses import dataclass

from openinfer.synth.program.failures import DEVICE_STATUS, STATUS
from openinfer.synth.targets.c.fields import trace_fields
from openinfer.synth.targets.cstyle.host.function import PAD
from openinfer.synth.targets.project import Field


def struct(name: str, fields: Sequence[Field]) -> str:
    """A struct type; one without fields gets a byte, since C has no empty structs."""
    lines = [field.text if field.text.startswith("#") else PAD + field.text for field in fields]
    lines = lines or [f"{PAD}char nothing;"]
    return "\n".join(["typedef struct {", *lines, f"}} {name};"]) + "\n"


@dataclass(frozen=True)
class HeaderFacts:
    """The facts that the header states."""

    name: str
    banner: str
    alignment: int
    arena: int
    undo: int
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
#define {upper}_STATE_ID 0x{facts.state_id:08x}u /* programs with the same one can exchange states */
#define {upper}_WEIGHT_BYTES {facts.weights}
#define {upper}_WEIGHT_CRC32 0x{facts.crc:08x}u
{_optional(upper, facts)}#define {upper}_MAX_RANK {facts.rank}

typedef enum {{
{statuses}
}} {name}_status;

/* What a step reads. The memory is the caller's and must stay as it is until the step is over. */
{struct(f"{name}_inputs", facts.inputs)}
/* What a step gives. The memory is the arena's or the state's: it is valid until the next step. */
{struct(f"{name}_outputs", facts.outputs)}
/* A tensor that was asked for by its name. Strides count elements. Elements of fewer than 8 bits share bytes, the first
   in the lowest bits, except in tables, where each has a byte: bits says how many it takes. A table for which there is
   no memory yet has no data: all its elements are initial. */
typedef struct {{
    const void *data;
    const char *dtype;
    int32_t rank, bits;
    int64_t shape[{upper}_MAX_RANK], strides[{upper}_MAX_RANK];
}} {name}_tensor;

#ifdef {upper}_TRACE
/* Compiled with -D{upper}_TRACE, a step says what it does: a call for every value that a node has written and that is
   in memory, else one without a value. Values that were fused away, or that nothing reads, have no memory. */
typedef struct {{
    int32_t node;           /* as the simulator numbers them */
    int32_t output;         /* which of the node's results */
    int32_t point;          /* the number of the trace point in the code */
    const char *variable;   /* the graph's name of it, or NULL */
    const char *dtype;      /* NULL: there is no value */
    int32_t rank;
    const int64_t *shape;
    const int64_t *strides; /* how many elements apart along each axis; NULL: it is row-major */
    const void *data;       /* NULL: it has no memory, or lies among the weights */
    int32_t depth;          /* how many loops of the block are around the node */
    const int64_t *indices; /* and where they stand, the outermost first */
}} {name}_event;
typedef void {name}_trace_function(void *user, const {name}_event *event);
#endif

{_interrupt_type(facts)}{_instance(facts)}
{struct(f"{name}_context", [*facts.context, *trace_fields(name)])}
{_functions(facts)}
#ifdef {upper}_TRACE
/* Sets the trace callback; NULL disables it. To be called after {name}_init, with the same -D in every file. */
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
    return f"""/* Memory for init. What it stands for lies on a device, from the first time on that an instance gets it;
   the pointer itself is of no other use. Instances that are given the same memory are on the same device. It is given
   back when no instance has it any more. NULL: there is no memory. */
void *{name}_memory(size_t bytes);
void {name}_release(void *memory);

/* Prepares an instance on a device with such memory, and resets it. {stateless}The weights, any memory,
   are copied to the device. Returns {upper}_OK or what is wrong, as all functions do. */"""


def _interrupt_type(facts: HeaderFacts) -> str:
    if not facts.is_interruptible:
        return ""
    return f"""/* Whether a running step is to end: anything but 0 ends it. */
typedef int {facts.name}_interrupt_function(void *user);

"""


def _instance(facts: HeaderFacts) -> str:
    """The comment about contexts and threads."""
    if facts.is_hosted:
        busy = f"{facts.name.upper()}_ERROR_BUSY"
        return f"""/* One instance. Everything in here is private. A context takes one call at a time: a second one,
   from another thread or a callback, returns {busy}. Several instances can run at the same time. */"""
    return """/* One instance. Everything in here is private. A context takes one call at a time: it is up to the caller
   that threads and interrupts make no second one. Several instances can run at the same time. */"""


def _limits(facts: HeaderFacts) -> str:
    """The declarations for steps that end early."""
    if not facts.is_interruptible:
        return ""
    name, upper = facts.name, facts.name.upper()
    return f"""
/* A function that a step asks now and then whether to end, or NULL, as in the beginning. The thread that runs the step
   calls it when a block or an iteration of a graph loop begins, ten times a second at most; a single kernel is not
   interrupted. The step then returns {upper}_ERROR_INTERRUPTED, and counts as one that failed. */
void {name}_set_interrupt({name}_context *c, {name}_interrupt_function *function, void *user);

/* The nodes that a step may execute before it ends with {upper}_ERROR_BUDGET, or -1 for any number, as in the
   beginning. They are counted as the simulator counts them, a block or an iteration of a loop at a time. */
void {name}_set_budget({name}_context *c, int64_t nodes);
"""


def _failed_step(facts: HeaderFacts) -> str:
    """The comment about steps that fail."""
    if not facts.can_tear:
        return "/* Runs one step. If it fails, it has not happened: persistent variables are as they were before. */"
    undefined = "persistent variables are undefined, and\n   steps are refused until they are reset or loaded. */"
    if facts.undo:
        return (
            "/* Runs one step. If it fails, it has not happened: persistent variables are as they were before. Only if"
            f"\n   {facts.name.upper()}_UNDO_BYTES are not enough to put back what it has changed, {undefined}"
        )
    return (
        "/* Runs one step. If it fails because of an input or a size of the inputs, nothing has happened; if it fails"
        f"\n   later, {undefined}"
    )


def _optional(upper: str, facts: HeaderFacts) -> str:
    saved = "" if facts.saved is None else f"#define {upper}_SAVED_BYTES {facts.saved}\n"
    if facts.undo:
        saved += f"#define {upper}_UNDO_BYTES {facts.undo} /* of the arena, for what a step changes */\n"
    return saved if facts.threads == 1 else f"{saved}#define {upper}_THREADS {facts.threads}\n"


def _functions(facts: HeaderFacts) -> str:
    name, upper = facts.name, facts.name.upper()
    heap = ""
    if facts.on_device and not facts.has_heap:
        heap = f"""
/* Gives back what init has made; the context must be initialised again before it is used. */
void {name}_free({name}_context *c);
"""
    if facts.has_heap:
        made = "what init has made, and " * facts.on_device
        heap = f"""
/* Gives back {made}the memory of tables that grow; the context must be initialised again before it is used. */
void {name}_free({name}_context *c);

/* Makes room for a number of cells along each axis of a table that grows, the first of which is table 0. */
int {name}_reserve({name}_context *c, int table, const int64_t *cells);
"""
    threads = ""
    if facts.threads > 1:
        threads = f"""
/* Starts {upper}_THREADS - 1 threads that help the one that calls {name}_step. Without them it does all the work
   alone, with the same results. They must be stopped before the context is initialised again or thrown away. In a
   child that is forked, the first step starts threads of its own; a child that was forked while another thread was in
   a call finds the context busy. */
int {name}_start_threads({name}_context *c);
void {name}_stop_threads({name}_context *c);
"""
    stateless = "" if facts.state else "Nothing is persistent: the state is NULL, of 0 bytes.\n   "
    embedded = ""
    if facts.embeds_weights:
        embedded = f"""
/* The weights, part of the program. */
extern const unsigned char {name}_weights[];
"""
    init = f"""/* Prepares an instance with memory of the caller's, which begins at multiples of {upper}_ALIGNMENT, and
   resets it. {stateless}The weights are only read, and can be shared by instances. Returns {upper}_OK or what is wrong,
   as all functions do. */"""
    return f"""{_on_device(facts, stateless) if facts.on_device else init}
int {name}_init({name}_context *c, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
        const void *weights, size_t weight_bytes);
{threads}{heap}
/* Whether these are the weights that the code was made for: their size and CRC-32. */
int {name}_check_weights(const void *weights, size_t weight_bytes);
{embedded}
/* Puts persistent variables back to their initial values. */
int {name}_reset({name}_context *c);

{_failed_step(facts)}
int {name}_step({name}_context *c, const {name}_inputs *in, {name}_outputs *out);
{_limits(facts)}
/* Persistent variables as bytes, for programs with the same {upper}_STATE_ID on machines with the same byte order. Such
   programs can also be given the same memory for their state, and make their steps one after the other, unless tables
   grow without bounds. A state that load_state refuses has changed nothing; it may come from anywhere. */
size_t {name}_saved_bytes(const {name}_context *c);
int {name}_save_state({name}_context *c, void *to, size_t bytes);
int {name}_load_state({name}_context *c, const void *from, size_t bytes);

/* An output of the last step, or a persistent variable; of a table, all that it holds. Valid until the next step. */
int {name}_fetch({name}_context *c, const char *name, {name}_tensor *tensor);

/* What went wrong last, and where in the graph; never NULL. A call that is refused because another is running leaves
   this to the other. Compiled with -D{upper}_NO_MESSAGES, the code has no texts, and only says that something did. */
const char *{name}_last_error(const {name}_context *c);

/* The node of the graph where that was, as the simulator numbers them; -1 where no node was running. */
int32_t {name}_failed_node(const {name}_context *c);
"""
