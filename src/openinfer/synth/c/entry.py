"""The public functions of a project in C: init, reset, step, state, fetch, errors."""

from dataclasses import dataclass

from openinfer.check.bound import FromInit, FromModel
from openinfer.synth.c.fetch import fetch_function
from openinfer.synth.c.function import Failure
from openinfer.synth.c.names import string
from openinfer.synth.c.source import StepPrinter
from openinfer.synth.c.tables import TableLayout, element_bits
from openinfer.synth.place import MemoryPlan
from openinfer.synth.program import Program, Value, Weight
from openinfer.synth.weights import WeightLayout

MAGIC = b"OINFST01"
SAVED_HEAD = 48
_LONGEST = 300


@dataclass(frozen=True)
class EntryPrinter:
    """Prints the functions that the header declares."""

    name: str
    program: Program
    memory: MemoryPlan
    weights: WeightLayout
    printer: StepPrinter
    output_fields: dict[str, str]
    output_sizes: list[str]
    state_hash: bytes
    can_tear: bool

    @property
    def upper(self) -> str:
        """The prefix of macros."""
        return self.name.upper()

    @property
    def _growing(self) -> list[TableLayout]:
        return [layout for layout in self.printer.tables.values() if layout.heap is not None]

    def _fail(self, status: str, reason: str) -> str:
        place = self.printer.failures.setdefault(Failure(-1, status, reason), len(self.printer.failures))
        return f"return fail(c, {self.upper}_{status}, {place});"

    def functions(self) -> str:
        """All functions, behind the blocks."""
        parts = [self._init(), self._reset(), self._step(), self._save(), self._load()]
        parts.append(fetch_function(self.name, self.program, self.printer, self._fail))
        if self._growing:
            parts.insert(1, self._free())
        if self.printer.threads > 1:
            parts.insert(1, self._threads())
        self.printer.needs |= {"oi_crc32", "oi_same_text"}
        return "\n".join(parts)

    def plumbing(self) -> str:
        """How failures are recorded, in front of everything that can fail."""
        name, upper = self.name, self.upper
        overlap = ""
        if self.program.inputs:
            overlap = f"""
/* Whether a pointer points into memory that a step writes. */
static bool is_ours(const {name}_context *c, const void *p)
{{
    const uintptr_t at = (uintptr_t)p, arena = (uintptr_t)c->arena, state = (uintptr_t)c->state;
    return (at >= arena && at - arena < {upper}_ARENA_BYTES) || (at >= state && at - state < {upper}_STATE_BYTES);
}}
"""
        return f"""_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "floats are IEEE 754");
_Static_assert({upper}_ARENA_BYTES < SIZE_MAX && {upper}_STATE_BYTES < SIZE_MAX && {upper}_WEIGHT_BYTES < SIZE_MAX,
               "this machine can address the memory");
_Static_assert({upper}_ARENA_BYTES % {upper}_ALIGNMENT == 0, "the arena is whole cache lines");
_Static_assert({upper}_STATE_BYTES % {upper}_ALIGNMENT == 0, "the state is whole cache lines");

/* Records what went wrong; every function up to the caller's then returns. */
static int fail({name}_context *c, {name}_status status, int32_t failure)
{{
    c->status = (int32_t)status;
    c->failure = failure;
    return 1;
}}
{overlap}"""

    def errors(self) -> str:
        """``last_error`` with all messages; printed last, when all of them are known."""
        lines = []
        for failure in self.printer.failures:
            where = self.printer.where(failure.node)
            text = f"{where}: {failure.reason}" if where else failure.reason
            lines.append(f"        {string(text[:_LONGEST])},")
        messages = "\n".join(lines)
        return f"""
const char *{self.name}_last_error(const {self.name}_context *c)
{{
    static const char *const messages[] = {{
{messages}
    }};
    return c->status == {self.upper}_OK ? "" : messages[c->failure];
}}
"""

    # --- init and reset -------------------------------------------------------------------------------------------

    def _init(self) -> str:
        name, upper = self.name, self.upper
        small = self._fail("ERROR_MEMORY", "the arena or the state is too small").replace("return ", "")
        crooked = self._fail("ERROR_MEMORY", "memory does not begin at a multiple of 64").replace("return ", "")
        wrong = self._fail("ERROR_WEIGHTS", "the weights have another size").replace("return ", "")
        weights = f"if (weight_bytes != {upper}_WEIGHT_BYTES) {{ {wrong} return {upper}_ERROR_WEIGHTS; }}"
        return f"""int {name}_init({name}_context *c, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
        const void *weights, size_t weight_bytes)
{{
    *c = ({name}_context){{ 0 }};
    if (arena == NULL || arena_bytes < {upper}_ARENA_BYTES || state == NULL || state_bytes < {upper}_STATE_BYTES) {{
        {small}
        return {upper}_ERROR_MEMORY;
    }}
    {weights}
    const uintptr_t low = (uintptr_t)arena | (uintptr_t)state | ({upper}_WEIGHT_BYTES > 0 ? (uintptr_t)weights : 0);
    if (low % {upper}_ALIGNMENT != 0 || ({upper}_WEIGHT_BYTES > 0 && weights == NULL)) {{
        {crooked}
        return {upper}_ERROR_MEMORY;
    }}
    c->arena = arena;
    c->state = state;
    c->weights = weights;
    memset(state, 0, {upper}_STATE_BYTES);
    return {name}_reset(c);
}}

int {name}_check_weights(const void *weights, size_t weight_bytes)
{{
    if (weight_bytes != {upper}_WEIGHT_BYTES) return {upper}_ERROR_WEIGHTS;
    return oi_crc32(0, weights, weight_bytes) == {upper}_WEIGHT_CRC32 ? {upper}_OK : {upper}_ERROR_WEIGHTS;
}}
"""

    def _threads(self) -> str:
        name, upper = self.name, self.upper
        fail = self._fail("ERROR_THREADS", "threads cannot be started, or have been already").replace("return ", "")
        return f"""int {name}_start_threads({name}_context *c)
{{
    oi_team *const team = c->team == NULL ? oi_team_start({upper}_THREADS) : NULL;
    if (team == NULL) {{
        {fail}
        return {upper}_ERROR_THREADS;
    }}
    c->team = team;
    return {upper}_OK;
}}

void {name}_stop_threads({name}_context *c)
{{
    oi_team_stop(c->team);
    c->team = NULL;
}}
"""

    def _free(self) -> str:
        name, upper = self.name, self.upper
        self.printer.needs.add("oi_table_grow")
        cases = "\n".join(
            f"    if (table == {layout.heap}) return !oi_table_grow(&(const oi_grid[]){{ grid{layout.number}(c) }}[0], "
            f"&part) ? {upper}_ERROR_MEMORY : {upper}_OK;"
            for layout in self._growing
        )
        return f"""void {name}_free({name}_context *c)
{{
    for (int i = 0; i < {self.printer.heaps}; ++i) {{
        free(c->heap[i]);
        c->heap[i] = NULL;
    }}
    c->arena = NULL;
}}

int {name}_reserve({name}_context *c, int table, const int64_t *cells)
{{
    oi_part part = {{ {{ 0 }}, {{ 0 }} }};
    static const int axes[] = {{ {", ".join(str(layout.axes) for layout in self._growing)} }};
    if (table < 0 || table >= {self.printer.heaps}) return {upper}_ERROR_NAME;
    for (int axis = 0; axis < axes[table]; ++axis) part.count[axis] = cells[axis];
{cases}
    return {upper}_ERROR_NAME;
}}
"""

    def _reset(self) -> str:
        lines = [line for home in self.printer.state_offsets for line in self._initial(home)]
        for layout in self.printer.tables.values():
            self.printer.needs.add("oi_table_clear")
            lines += [f"const oi_grid own{layout.number} = grid{layout.number}(c);"]
            lines += [f"oi_table_clear(&own{layout.number});"]
        body = "".join(f"    {line}\n" for line in lines)
        return f"""int {self.name}_reset({self.name}_context *c)
{{
{body}    c->status = {self.upper}_OK;
    c->is_broken = 0;
    c->has_outputs = 0;
    return {self.upper}_OK;
}}
"""

    def _initial(self, home: Value) -> list[str]:
        """The initial value of a persistent variable."""
        origin = self.program.bound.vars[str(home.variable)].origin
        offset = self.printer.state_offsets[home]
        if home.nbytes == 0:
            return []
        if isinstance(origin, FromModel):
            source = self.weights.offset(Weight((origin.name,), home.dtype, home.shape), origin.name)
            return [f"memcpy(c->state + {offset}, c->weights + {source}, {home.nbytes});"]
        assert isinstance(origin, FromInit)
        element = element_bits(home.dtype, origin)
        if element == 0:
            return [f"memset(c->state + {offset}, 0, {home.nbytes});"]
        count = 1
        for extent in home.shape:
            count *= int(extent)
        self.printer.needs.add("oi_element")
        return [f"oi_fill(c->state + {offset}, {home.dtype.bits}, 0, {count}, UINT64_C(0x{element:x}));"]

    # --- steps ----------------------------------------------------------------------------------------------------

    def _step(self) -> str:
        name, upper, printer = self.name, self.upper, self.printer
        fields = printer.size_fields
        sizes = [
            f"c->{fields[size]} = {f'in->{fields[size]}' if size in printer.input_sizes else '-1'};"
            for size in self.program.sizes
        ]
        checks = printer.input_checks()
        results = [
            f"out->{self.output_fields[key]} = {printer.location(value)};"
            for key, value in self.program.outputs.items()
        ]
        results += [f"out->{printer.size_fields[size]} = c->{printer.size_fields[size]};" for size in self.output_sizes]
        unused = "" if results else "    (void)out;\n"
        unread = "" if self.program.inputs or self.printer.input_sizes else "    (void)in;\n"
        missing = self._fail("ERROR_INPUT", "there are no inputs or outputs: a pointer is NULL")
        pointers = [f"{one} == NULL" for one, has in (("in", self.program.inputs), ("out", results)) if has]
        checks = [f"    if ({' || '.join(pointers)}) {missing}"] * bool(pointers) + [
            *(f"    {line}" for line in sizes),
            *checks,
        ]
        ready = f"""static int is_ready({name}_context *c, const {name}_inputs *in, const {name}_outputs *out)
{{
{unread}{unused}    if (c->is_broken) {self._fail("ERROR_STATE", "the last step failed: reset or load the state first")}
{chr(10).join(checks)}
    return 0;
}}
"""
        return f"""/* Whether a step can begin: the inputs are there, and their sizes are in range. */
{ready}
int {name}_step({name}_context *c, const {name}_inputs *in, {name}_outputs *out)
{{
    c->has_outputs = 0;
    if (is_ready(c, in, out)) return c->status;
    c->in = in;
{self._lines(self._run())}    c->in = NULL;
    c->status = {upper}_OK;
    c->has_outputs = 1;
{self._lines(results)}    return {upper}_OK;
}}
"""

    def _run(self) -> list[str]:
        """The call of the entry block, and what becomes of the state if it fails."""
        block, undo = self.printer.block_name("entry"), self.printer.undo
        if undo is None:
            broken = ["c->is_broken = 1;"] * self.can_tear
            return [*broken, f"if ({block}(c)) return c->status;", *["c->is_broken = 0;"] * self.can_tear]
        has_heap = bool(self._growing)
        take_back = "oi_take_back_heap" if has_heap else "oi_take_back"
        self.printer.needs |= {take_back}
        offsets = self.printer.state_offsets
        forget = ["oi_go_on(&undo);"] * has_heap
        if self.can_tear:
            failed = [f"if (!undo.is_full) {take_back}(&undo);", "c->is_broken = undo.is_full;", *forget]
        else:
            failed = [f"{take_back}(&undo);"]
        return [
            f"unsigned char *const memory = c->arena + {self.upper}_ARENA_BYTES - {self.upper}_UNDO_BYTES;",
            f"oi_undo undo = {{ memory, {self.upper}_UNDO_BYTES, 0, false }};",
            *(f"oi_keep(&undo, c->state + {offsets[home]}, {home.nbytes});" for home in undo.homes),
            "c->undo = &undo;",
            f"const int has_failed = {block}(c);",
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

    def _save(self) -> str:
        name, upper = self.name, self.upper
        codes = [f"0x{byte:02x}" for byte in (*MAGIC, *self.state_hash)]
        magic = ",\n    ".join(", ".join(codes[start : start + 12]) for start in (0, 12))
        sizes, copies = [], []
        for layout in self._growing:
            self.printer.needs.add("oi_table_bytes")
            room = f"(const int64_t *)(const void *)(c->state + {layout.extents_at + 8 * layout.axes})"
            has_memory = f"c->heap[{layout.heap}] != NULL && oi_table_bytes(&table{layout.number}, {room}, &own)"
            sizes += [f"if ({has_memory}) total += own;"]
            copies += [
                f"if ({has_memory}) {{",
                f"    memcpy(at, c->heap[{layout.heap}], own);",
                "    at += own;",
                "}",
            ]
        own = ["size_t own = 0;"] * bool(self._growing)
        unused = [] if self._growing else ["(void)c;"]
        small = self._fail("ERROR_MEMORY", "the saved state does not fit the memory given for it")
        broken = self._fail("ERROR_STATE", "the last step failed: there is no state to save")
        return f"""/* A saved state begins with what it is, how long it is, and the CRC-32 of the rest. */
static const unsigned char saved_head[24] = {{
    {magic},
}};

size_t {name}_saved_bytes(const {name}_context *c)
{{
    size_t total = {SAVED_HEAD} + {upper}_STATE_BYTES;
{self._lines([*own, *sizes, *unused])}    return total;
}}

static int put_state({name}_context *c, unsigned char *to, size_t bytes)
{{
    const uint64_t total = {name}_saved_bytes(c);
    if (c->is_broken) {broken}
    if (to == NULL || bytes < total) {small}
    unsigned char *at = to + {SAVED_HEAD};
    memset(to, 0, {SAVED_HEAD});
    memcpy(to, saved_head, sizeof saved_head);
    memcpy(to + 24, &total, 8);
    memcpy(at, c->state, {upper}_STATE_BYTES);
    at += {upper}_STATE_BYTES;
{self._lines([*own, *copies])}    const uint32_t crc = oi_crc32(0, to + {SAVED_HEAD}, (size_t)(at - to) - {SAVED_HEAD});
    memcpy(to + 32, &crc, 4);
    return 0;
}}

int {name}_save_state({name}_context *c, void *to, size_t bytes)
{{
    return put_state(c, to, bytes) ? c->status : {upper}_OK;
}}
"""

    def _load(self) -> str:
        name, upper = self.name, self.upper
        foreign = self._fail("ERROR_STATE", "this is no state of this program, or it is damaged")
        lines = []
        if self._growing:
            self.printer.needs.add("oi_table_bytes")
            memory = self._fail("ERROR_MEMORY", "there is no memory for the tables of the state")
            lines += [f"unsigned char *made[{self.printer.heaps}] = {{ 0 }};"]
            lines += [f"size_t own[{self.printer.heaps}] = {{ 0 }}, rest = bytes - {SAVED_HEAD} - {upper}_STATE_BYTES;"]
            for layout in self._growing:
                lines += self._loaded_table(layout, foreign)
            lines += [
                "bool is_short = rest != 0;",
                "const unsigned char *at = state + " + f"{upper}_STATE_BYTES;",
                f"for (int i = 0; i < {self.printer.heaps} && !is_short; ++i) {{",
                "    if (own[i] == 0) continue;",
                "    made[i] = malloc(own[i]);",
                "    if (made[i] != NULL) memcpy(made[i], at, own[i]);",
                "    is_short = made[i] == NULL;",
                "    at += own[i];",
                "}",
                f"for (int i = 0; i < {self.printer.heaps}; ++i) {{",
                "    free(is_short ? made[i] : c->heap[i]);",
                "    if (!is_short) c->heap[i] = made[i];",
                "}",
                f"if (is_short) {memory}",
            ]
            length = f"bytes < {SAVED_HEAD} + {upper}_STATE_BYTES || total != bytes"
        else:
            length = f"bytes != {SAVED_HEAD} + {upper}_STATE_BYTES || total != bytes"
        return f"""static int take_state({name}_context *c, const unsigned char *from, size_t bytes)
{{
    uint64_t total = 0;
    uint32_t crc = 0;
    if (from == NULL || bytes < {SAVED_HEAD}) {foreign}
    if (memcmp(from, saved_head, sizeof saved_head) != 0) {foreign}
    memcpy(&total, from + 24, 8);
    memcpy(&crc, from + 32, 4);
    if ({length}) {foreign}
    if (oi_crc32(0, from + {SAVED_HEAD}, bytes - {SAVED_HEAD}) != crc) {foreign}
    const unsigned char *const state = from + {SAVED_HEAD};
{self._lines(lines)}    memcpy(c->state, state, {upper}_STATE_BYTES);
    return 0;
}}

int {name}_load_state({name}_context *c, const void *from, size_t bytes)
{{
    if (take_state(c, from, bytes)) return c->status;
    c->status = {upper}_OK;
    c->is_broken = 0;
    c->has_outputs = 0;
    return {upper}_OK;
}}
"""

    @staticmethod
    def _loaded_table(layout: TableLayout, foreign: str) -> list[str]:
        axes, heap, number = layout.axes, layout.heap, layout.number
        has_room = " && ".join(f"room{number}[{axis}] != 0" for axis in range(axes))
        return [
            f"int64_t room{number}[{axes}];",
            f"memcpy(room{number}, state + {layout.extents_at + 8 * axes}, sizeof room{number});",
            f"if (!oi_table_bytes(&table{number}, room{number}, &own[{heap}]) || own[{heap}] > rest) {foreign}",
            f"if (!({has_room})) own[{heap}] = 0;",
            f"rest -= own[{heap}];",
        ]
