"""The public functions of a project in C: init, reset, step, state, fetch, errors.

With an operating system, a context enforces one call at a time: each public function is then a wrapper that marks the
context as busy.
"""

from dataclasses import dataclass

from openinfer.check.bound import FromInit, FromModel
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.state import element_bits
from openinfer.synth.program.failures import (
    BROKEN_STEP,
    NO_POINTER,
    NO_THREADS,
    OTHER_WEIGHTS,
    SMALL_MEMORY,
    Mistake,
    unaligned,
)
from openinfer.synth.program.ir import Program, Value, Weight
from openinfer.synth.targets.c.device_side import DeviceSide
from openinfer.synth.targets.c.fetch import fetch_function
from openinfer.synth.targets.c.memory_calls import MemoryCalls
from openinfer.synth.targets.c.pointers import byte_at
from openinfer.synth.targets.c.public import Parameter, PublicFunction
from openinfer.synth.targets.c.source import SourcePrinters
from openinfer.synth.targets.c.states import StatePrinter
from openinfer.synth.targets.cstyle.names import string

_LONGEST = 300


@dataclass(frozen=True)
class EntryPrinter:
    """Prints the functions that the header declares."""

    name: str
    placed: Placed
    printers: SourcePrinters
    state_hash: bytes
    device: DeviceSide | None = None
    """The differences where steps launch kernels on a device."""

    @property
    def upper(self) -> str:
        """The prefix of macros."""
        return self.name.upper()

    @property
    def program(self) -> Program:
        """The program that is printed."""
        return self.placed.program

    def _fail(self, what: Mistake) -> str:
        return self.printers.file.fail(self.printers.file.of_caller(what))

    def _failed(self, what: Mistake) -> str:
        return self.printers.file.failed(self.printers.file.of_caller(what))

    def functions(self) -> str:
        """All functions, which follow the blocks."""
        states = StatePrinter(self.name, self.placed, self.printers.file, self.state_hash)
        init = self._init() if self.device is None else self.device.init
        parts = [init, self._checked_weights(), self._reset(), self._step(), states.functions(), self._states()]
        parts.append(self._fetch())
        if self.placed.state.growing or self.device is not None:
            parts.insert(2, self._free())
        if self.placed.threads > 1:
            parts.insert(2, self._threads())
        if self.placed.is_interruptible:
            parts.insert(2, self._limits())
        self.printers.file.needs |= {"oi_crc32", "oi_same_text"}
        return "\n".join(parts)

    def _public(self, function: str, body: str, *parameters: Parameter) -> str:
        """A function of the header, wrapped to admit one call at a time where calls can be concurrent."""
        text = PublicFunction(self.name, function, body, parameters)
        return text.text(is_alone=not self.placed.rules.is_hosted)

    def plumbing(self) -> str:
        """Static assertions, and the functions that record failures, in front of everything that can fail."""
        name, upper = self.name, self.upper
        overlap = ""
        if self.program.inputs:
            overlap = f"""
/* Whether a pointer is into memory that a step writes. */
static bool is_ours(const {name}_context *c, const void *p)
{{
{self._ours()}}}
"""
        one_call = self._one_call() if self.placed.rules.is_hosted else ""
        watched = self._watched() if self.placed.is_interruptible else ""
        return f"""_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "floats must be IEEE 754");
_Static_assert({upper}_ARENA_BYTES < SIZE_MAX && {upper}_STATE_BYTES < SIZE_MAX && {upper}_WEIGHT_BYTES < SIZE_MAX,
               "the memory must be addressable");
_Static_assert({upper}_ARENA_BYTES % {upper}_ALIGNMENT == 0, "the arena must be a multiple of the alignment");
_Static_assert({upper}_STATE_BYTES % {upper}_ALIGNMENT == 0, "the state must be a multiple of the alignment");

{self._recorded()}{overlap}{one_call}{watched}"""

    def _recorded(self) -> str:
        if self.device is not None:
            return self.device.plumbing
        return f"""/* Records a failure; returns 1, which every caller passes on. */
static int fail({self.name}_context *c, {self.name}_status status, int32_t failure)
{{
    c->status = (int32_t)status;
    c->failure = failure;
    return 1;
}}
"""

    def _ours(self) -> str:
        """The body of ``is_ours``: tests the memory that a step writes, the arena and the state if there is one."""
        upper = self.upper
        shown = "" if self.device is None else "    if (oi_is_shown(c->device, p)) return true;\n"
        if not self.placed.has_state:
            return f"""{shown}    const uintptr_t at = (uintptr_t)p, arena = (uintptr_t)c->arena;
    return at >= arena && at - arena < {upper}_ARENA_BYTES;
"""
        places = "const uintptr_t at = (uintptr_t)p, arena = (uintptr_t)c->arena, state = (uintptr_t)c->state;"
        return f"""{shown}    {places}
    return (at >= arena && at - arena < {upper}_ARENA_BYTES) || (at >= state && at - state < {upper}_STATE_BYTES);
"""

    def _one_call(self) -> str:
        name = self.name
        return f"""
/* One call at a time: a second one, from another thread or a callback, is refused before it changes anything. */
static bool enter({name}_context *c) {{ return __atomic_exchange_n(&c->is_busy, 1, __ATOMIC_ACQUIRE) == 0; }}

static void leave({name}_context *c) {{ __atomic_store_n(&c->is_busy, 0, __ATOMIC_RELEASE); }}
"""

    def _watched(self) -> str:
        name, upper = self.name, self.upper
        return f"""
/* Whether the caller interrupts the step. The callback runs at most ten times a second; if iterations are
   short, the clock is read only every eighth time. */
static bool is_interrupted({name}_context *c)
{{
    struct timespec now;
    if (timespec_get(&now, TIME_UTC) == 0) return false;
    const int64_t time = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, passed = time - c->looked;
    c->countdown = passed >= 0 && passed < 10 ? 8 : 1;
    c->looked = time;
    if (time >= c->asked && time - c->asked < 100) return false;
    c->asked = time;
    return c->interrupt(c->interrupt_user) != 0;
}}

/* Called before a block or a loop iteration of this many nodes; fails if the budget is exceeded or the step
   interrupted. */
static int is_over({name}_context *c, int64_t nodes, int32_t failure)
{{
    c->nodes += nodes;
    if (c->budget >= 0 && c->nodes > c->budget) return fail(c, {upper}_ERROR_BUDGET, failure + 1);
    if (c->interrupt == NULL || --c->countdown > 0) return 0;
    return is_interrupted(c) ? fail(c, {upper}_ERROR_INTERRUPTED, failure) : 0;
}}
"""

    def errors(self) -> str:
        """``failed_node`` and ``last_error`` with all messages."""
        lines = []
        nodes = ", ".join(str(failure.node) for failure in self.placed.failures.rows)
        for failure in self.placed.failures.rows:
            where = self.printers.file.where(failure.node)
            text = f"{where}: {failure.reason}" if where else failure.reason
            lines.append(f"        {string(text[:_LONGEST])},")
        messages = "\n".join(lines)
        return f"""
int32_t {self.name}_failed_node(const {self.name}_context *c)
{{
    static const int32_t nodes[] = {{ {nodes} }};
    return c->status == {self.upper}_OK ? -1 : nodes[c->failure];
}}

const char *{self.name}_last_error(const {self.name}_context *c)
{{
#ifdef {self.upper}_NO_MESSAGES
    return c->status == {self.upper}_OK ? "" : "failed";
#else
    static const char *const messages[] = {{
{messages}
    }};
    return c->status == {self.upper}_OK ? "" : messages[c->failure];
#endif
}}
"""

    # --- init and reset -------------------------------------------------------------------------------------------

    def _init(self) -> str:
        name, upper = self.name, self.upper
        small = self._failed(SMALL_MEMORY)
        misaligned = self._failed(unaligned(self.placed.rules.alignment))
        wrong = self._failed(OTHER_WEIGHTS)
        budget = "    c->budget = -1;\n" if self.placed.is_interruptible else ""
        too_small, low = f"arena == NULL || arena_bytes < {upper}_ARENA_BYTES", "(uintptr_t)arena"
        state, cleared = "    (void)state; /* Nothing is persistent. */\n    (void)state_bytes;\n", ""
        if self.placed.has_state:
            too_small += f" || state == NULL || state_bytes < {upper}_STATE_BYTES"
            low += " | (uintptr_t)state"
            state, cleared = "    c->state = state;\n", f"    memset(state, 0, {upper}_STATE_BYTES);\n"
        weights = f"if (weight_bytes != {upper}_WEIGHT_BYTES) {{ {wrong}; return {upper}_ERROR_WEIGHTS; }}"
        return f"""int {name}_init({name}_context *c, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
        const void *weights, size_t weight_bytes)
{{
    *c = ({name}_context){{ 0 }};
    if ({too_small}) {{
        {small};
        return {upper}_ERROR_MEMORY;
    }}
    {weights}
    const uintptr_t low = {low} | ({upper}_WEIGHT_BYTES > 0 ? (uintptr_t)weights : 0);
    if (low % {upper}_ALIGNMENT != 0 || ({upper}_WEIGHT_BYTES > 0 && weights == NULL)) {{
        {misaligned};
        return {upper}_ERROR_MEMORY;
    }}
    c->arena = arena;
{state}    c->weights = weights;
{budget}{cleared}    return {name}_reset(c);
}}
"""

    def _checked_weights(self) -> str:
        name, upper = self.name, self.upper
        return f"""int {name}_check_weights(const void *weights, size_t weight_bytes)
{{
    if (weight_bytes != {upper}_WEIGHT_BYTES) return {upper}_ERROR_WEIGHTS;
    return oi_crc32(0, weights, weight_bytes) == {upper}_WEIGHT_CRC32 ? {upper}_OK : {upper}_ERROR_WEIGHTS;
}}
"""

    def _threads(self) -> str:
        name, upper = self.name, self.upper
        fail = self._failed(NO_THREADS)
        start = f"""    oi_team *const team = c->team == NULL ? oi_team_start({upper}_THREADS) : NULL;
    if (team == NULL) {{
        {fail};
        return {upper}_ERROR_THREADS;
    }}
    c->team = team;
    return {upper}_OK;
"""
        return f"""{self._public("start_threads", start)}
void {name}_stop_threads({name}_context *c)
{{
    oi_team_stop(c->team);
    c->team = NULL;
}}
"""

    def _limits(self) -> str:
        name = self.name
        return f"""void {name}_set_interrupt({name}_context *c, {name}_interrupt_function *function, void *user)
{{
    c->interrupt = function;
    c->interrupt_user = user;
}}

void {name}_set_budget({name}_context *c, int64_t nodes)
{{
    c->budget = nodes;
}}
"""

    def _free(self) -> str:
        if not self.placed.state.growing:
            assert self.device is not None
            return f"void {self.name}_free({self.name}_context *c)\n{{\n{self._lines(list(self.device.free))}}}\n"
        return self._free_tables()

    def _free_tables(self) -> str:
        name, upper = self.name, self.upper
        closed = "" if self.device is None else self._lines(list(self.device.free))
        self.printers.file.needs.add("oi_table_grow")
        cases = "\n".join(
            f"    if (table == {layout.heap}) return !oi_table_grow(&(const oi_grid[]){{ grid{layout.number}(c) }}[0], "
            f"&part) ? {upper}_ERROR_MEMORY : {upper}_OK;"
            for layout in self.placed.state.growing
        )
        parameters = (Parameter("int", "table"), Parameter("const int64_t *", "cells"))
        reserve = f"""    oi_part part = {{ {{ 0 }}, {{ 0 }} }};
    static const int axes[] = {{ {", ".join(str(layout.axes) for layout in self.placed.state.growing)} }};
    if (table < 0 || table >= {len(self.placed.state.growing)}) return {upper}_ERROR_NAME;
    for (int axis = 0; axis < axes[table]; ++axis) part.count[axis] = cells[axis];
{cases}
    return {upper}_ERROR_NAME;
"""
        count = len(self.placed.state.growing)
        freed = f"""\
    for (int i = 0; i < {count}; ++i) {{
        free(c->heap[i]);
        c->heap[i] = NULL;
    }}
"""
        if count == 1:
            freed = "    free(c->heap[0]);\n    c->heap[0] = NULL;\n"
        return f"""void {name}_free({name}_context *c)
{{
{freed}{closed}    c->arena = NULL;
}}

{self._public("reserve", reserve, *parameters)}"""

    def _reset(self) -> str:
        calls = MemoryCalls() if self.device is None else self.device.memory
        lines = [line for home in self.placed.state.homes for line in self._initial(home)]
        for layout in self.placed.state.tables.values():
            self.printers.file.needs.add(calls.clear)
            lines += [f"const oi_grid own{layout.number} = grid{layout.number}(c);"]
            lines += [f"{calls.clear}({calls.queue}&own{layout.number});"]
        lines += ["if (settle(c)) return c->status;"] * (self.device is not None)
        body = "".join(f"    {line}\n" for line in lines)
        reset = f"""{body}    c->status = {self.upper}_OK;
    c->is_broken = 0;
    c->has_outputs = 0;
    return {self.upper}_OK;
"""
        return self._public("reset", reset)

    def _initial(self, home: Value) -> list[str]:
        """The lines that give a persistent variable its initial value."""
        origin = self.program.bound.vars[str(home.variable)].origin
        if home.nbytes == 0:
            return []
        place = byte_at("c->state", self.placed.state.homes[home])
        if isinstance(origin, FromModel):
            source = self.placed.weights.offset(Weight((origin.name,), home.dtype, home.shape), origin.name)
            calls = MemoryCalls() if self.device is None else self.device.memory
            copy = f"{calls.copy}({calls.queue}"
            return [f"{copy}{place}, {byte_at('c->weights', source)}, {home.nbytes});"]
        assert isinstance(origin, FromInit)
        element = element_bits(home.dtype, origin)
        count = 1
        for extent in home.shape:
            count *= int(extent)
        if self.device is not None:
            facts = f"{home.dtype.bits}, {count}, UINT64_C(0x{element:x})"
            return [f"oi_set(c->device, {place}, {facts});"]
        if element == 0:
            return [f"memset({place}, 0, {home.nbytes});"]
        self.printers.file.needs.add("oi_fill")
        return [f"oi_fill({place}, {home.dtype.bits}, 0, {count}, UINT64_C(0x{element:x}));"]

    # --- steps ----------------------------------------------------------------------------------------------------

    def _step(self) -> str:
        name, upper, printers = self.name, self.upper, self.printers
        names = self.placed.names
        fields = names.sizes
        sizes = [
            f"c->{fields[size]} = {f'in->{names.input_sizes[size]}' if size in names.input_sizes else '-1'};"
            for size in self.program.sizes
        ]
        checks = printers.blocks.input_checks()
        places = {key: printers.pointers.location(value) for key, value in self.program.outputs.items()}
        results = [f"out->{names.outputs[key]} = {_shown(place, self.device)};" for key, place in places.items()]
        results += [f"out->{field} = c->{fields[size]};" for size, field in names.output_sizes.items()]
        unused = "" if results else "    (void)out;\n"
        unread = "" if self.program.inputs or names.input_sizes else "    (void)in;\n"
        missing = self._fail(NO_POINTER)
        pointers = [f"{one} == NULL" for one, has in (("in", self.program.inputs), ("out", results)) if has]
        checks = [f"    if ({' || '.join(pointers)}) {missing}"] * bool(pointers) + [
            *(f"    {line}" for line in sizes),
            *checks,
        ]
        ready = f"""/* Checks that a step can begin: inputs are present, and their sizes in range. Returns 1 if not. */
static int is_ready({name}_context *c, const {name}_inputs *in, const {name}_outputs *out)
{{
{unread}{unused}    if (c->is_broken) {self._fail(BROKEN_STEP)}
{chr(10).join(checks)}
    return 0;
}}
"""
        copied = [] if self.device is None else self.device.inputs
        begin = ["c->nodes = 0;", "c->countdown = 1;"] * self.placed.is_interruptible
        if self.placed.threads > 1:
            begin.append(f"c->team = oi_team_here(c->team, {upper}_THREADS);")
        step = f"""    c->has_outputs = 0;
    if (is_ready(c, in, out)) return c->status;
    c->in = in;
{self._lines([*begin, *copied, *self._run()])}    c->in = NULL;
    c->status = {upper}_OK;
    c->has_outputs = 1;
{self._lines(results)}    return {upper}_OK;
"""
        given = Parameter(f"const {name}_inputs *", "in"), Parameter(f"{name}_outputs *", "out")
        return f"{ready}\n{self._public('step', step, *given)}"

    def _run(self) -> list[str]:
        """The call of the entry block; if it fails, the state is rolled back or marked as broken."""
        block, undo = self.printers.blocks.functions.name("entry"), self.placed.rollback
        ended = "" if self.device is None else " || ended(c)"
        if undo is None:
            broken = ["c->is_broken = 1;"] * self.placed.can_tear
            return [*broken, f"if ({block}(c){ended}) return c->status;", *["c->is_broken = 0;"] * self.placed.can_tear]
        has_heap = bool(self.placed.state.growing)
        roll_back = "oi_roll_back_heap" if has_heap else "oi_roll_back"
        self.printers.file.needs |= {roll_back}
        offsets = self.placed.state.homes
        forget = ["oi_commit(&undo);"] * has_heap
        more, keep = ("", "oi_keep") if self.device is None else (self.device.undo, "oi_keep_there")
        if self.placed.can_tear:
            failed = [f"if (!undo.is_full) {roll_back}(&undo);", "c->is_broken = undo.is_full;", *forget]
        else:
            failed = [f"{roll_back}(&undo);"]
        return [
            f"unsigned char *const memory = c->arena + {self.upper}_ARENA_BYTES - {self.upper}_UNDO_BYTES;",
            f"oi_undo undo = {{ memory, {self.upper}_UNDO_BYTES, 0, false{more} }};",
            *(f"{keep}(&undo, {byte_at('c->state', offsets[home])}, {home.nbytes});" for home in undo.homes),
            "c->undo = &undo;",
            f"const int has_failed = {block}(c){ended};",
            "c->undo = NULL;",
            "if (has_failed) {",
            *(f"    {line}" for line in failed),
            "    return c->status;",
            "}",
            *forget,
        ]

    @staticmethod
    def _lines(lines: list[str]) -> str:
        return "".join(f"    {line}\n" for line in lines)

    # --- state ----------------------------------------------------------------------------------------------------

    def _states(self) -> str:
        ok, size = f"{self.upper}_OK", Parameter("size_t", "bytes")
        save = f"    return put_state(c, to, bytes) ? c->status : {ok};\n"
        load = f"    return take_state(c, from, bytes) ? c->status : {ok};\n"
        saved = self._public("save_state", save, Parameter("void *", "to"), size)
        return f"{saved}\n{self._public('load_state', load, Parameter('const void *', 'from'), size)}"

    def _fetch(self) -> str:
        before, body = fetch_function(self.name, self.placed, self.printers)
        given = Parameter("const char *", "name"), Parameter(f"{self.name}_tensor *", "tensor")
        return "\n".join([*before, self._public("fetch", body, *given)])


def _shown(place: str, device: DeviceSide | None) -> str:
    """Where the caller finds an output."""
    return place if device is None else f"oi_shown(c->device, {place})"
