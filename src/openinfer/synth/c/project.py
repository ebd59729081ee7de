"""The files of a C project: header, step function, kernels, weights."""

from openinfer.check.bound import FromInit, FromModel
from openinfer.loops.dim import sizes_in
from openinfer.synth.c.source import StepPrinter, comment
from openinfer.synth.c.support import support_code
from openinfer.synth.c.tables import REGION, table_functions
from openinfer.synth.c.types import literal, stored_type
from openinfer.synth.place import MemoryPlan, plan_memory
from openinfer.synth.program import Program, Store, Value, Weight
from openinfer.synth.weights import WeightLayout

INCLUDES = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n"


class Project:
    """A program with its memory planned and its text printed."""

    def __init__(self, program: Program, name: str) -> None:
        self.program = program
        self.name = name
        self.memory: MemoryPlan = plan_memory(self.program)
        self.weights = WeightLayout(self.program)
        self._initial = {home: self._initial_weight(home) for home in self._state_homes()}
        for weight in self._initial.values():
            if weight is not None:
                self.weights.include(weight)
        self.printer = StepPrinter(self.program, self.memory, self.weights, name)
        blocks = [block for block in self.program.blocks if block != "entry"]
        self._blocks = [self.printer.block(block) for block in (*blocks, "entry")]

    @property
    def arena_bytes(self) -> int:
        """The bytes of memory one step works in."""
        return max(self.memory.peak, 1)

    @property
    def state_bytes(self) -> int:
        """The bytes of memory that outlives steps."""
        return max(self.printer.state_size, 1)

    @property
    def input_sizes(self) -> list[str]:
        """The dynamic sizes that inputs have."""
        found: set[str] = set()
        for value in self.program.inputs.values():
            for extent in value.shape:
                found |= sizes_in(extent)
        return sorted(found)

    def files(self) -> dict[str, str | bytes]:
        """The files, by their paths."""
        return {
            f"include/{self.name}.h": self._header(),
            f"src/{self.name}.c": self._source(),
            "src/weights.bin": self.weights.blob(),
        }

    # --- state ----------------------------------------------------------------------------------------------------

    def _state_homes(self) -> list[Value]:
        return [home for home in self.program.homes.values() if home.store is Store.STATE]

    def _initial_weight(self, home: Value) -> Weight | None:
        origin = self.program.bound.vars[str(home.variable)].origin
        return Weight((origin.name,), home.dtype, home.shape) if isinstance(origin, FromModel) else None

    def _reset_lines(self) -> list[str]:
        lines = []
        for home in self._state_homes():
            offset, kind = self.printer.state_offsets[home], stored_type(home.dtype)
            weight = self._initial[home]
            if weight is not None:
                source = self.weights.offset(weight, weight.names[0])
                lines.append(f"memcpy(c->state + {offset}, c->weights + {source}, {home.nbytes});")
                continue
            origin = self.program.bound.vars[str(home.variable)].origin
            assert isinstance(origin, FromInit)
            number = 0 if origin.value is None else origin.value.value
            if not number:
                lines.append(f"memset(c->state + {offset}, 0, {home.nbytes});")
                continue
            store = self.printer.element_store(
                home, f"(({kind} *)(c->state + {offset}))", literal(number, home.dtype.compute)
            )
            count = home.nbytes * 8 // home.dtype.bits if not home.dtype.is_packed else _count(home)
            lines.append(f"for (int64_t i = 0; i < {count}; ++i) {store}")
        lines += [f"oi_reset_table{layout.number}(c);" for layout in self.printer.tables.values()]
        return lines

    # --- text -----------------------------------------------------------------------------------------------------

    def _source(self) -> str:
        program, name = self.program, self.name
        reset = "\n".join(f"    {line}" for line in self._reset_lines())
        tables = "".join(
            table_functions(layout, name, _initial_number(layout.table.variable.origin))
            for layout in self.printer.tables.values()
        )
        needs = {need for _, code in self.printer.kernels.printed.values() for need in code.needs} | self.printer.needs
        kernels = "\n".join(code.text for _, code in self.printer.kernels.printed.values())
        prototypes = "".join(f"static int block_{block}({name}_context *c);\n" for block in program.blocks)
        parts = [f'#include "{name}.h"\n', support_code(needs), kernels, _plumbing(name, has_tables=bool(tables))]
        parts += [tables, prototypes, *self._blocks, self._entry_points(reset)]
        return "\n".join(parts)

    def _header(self) -> str:
        name, upper, program = self.name, self.name.upper(), self.program
        inputs = "".join(_field(f"v_{key}", value) for key, value in program.inputs.items())
        inputs += "".join(f"    int64_t s_{size}; /* at most {program.sizes[size]} */\n" for size in self.input_sizes)
        outputs = "".join(_field(f"v_{key}", value) for key, value in program.outputs.items())
        sizes = "".join(f"    int64_t s_{size};\n" for size in program.sizes)
        memory = "void *arena, size_t arena_bytes, void *state, size_t state_bytes"
        return f"""#ifndef {upper}_H
#define {upper}_H

{INCLUDES}
#define {upper}_ARENA_BYTES {self.arena_bytes}
#define {upper}_STATE_BYTES {self.state_bytes}
#define {upper}_WEIGHT_BYTES {self.weights.size}

typedef struct {{
{inputs or "    char unused;"}}} {name}_inputs;

typedef struct {{
{outputs or "    char unused;"}}} {name}_outputs;

typedef struct {{
    unsigned char *arena;
    unsigned char *state;
    const unsigned char *weights;
    const {name}_inputs *in;
    int failed_node;
{sizes}}} {name}_context;

int {name}_init({name}_context *c, {memory},
        const void *weights, size_t weight_bytes);
int {name}_reset({name}_context *c);
int {name}_step({name}_context *c, const {name}_inputs *in, {name}_outputs *out);

#endif
"""

    def _entry_points(self, reset: str) -> str:
        name, upper, program = self.name, self.name.upper(), self.program
        results = "".join(
            f"    out->v_{key} = {self.printer.pointer(value)};\n" for key, value in program.outputs.items()
        )
        sizes = "".join(
            f"    c->s_{size} = {'in->s_' + size if size in self.input_sizes else '-1'};\n" for size in program.sizes
        )
        sizes += "".join(
            f"    if (in->s_{size} < 0 || in->s_{size} > {program.sizes[size]}) return oi_fail(c, -2);\n"
            for size in self.input_sizes
        )
        memory = "void *arena, size_t arena_bytes, void *state, size_t state_bytes"
        return f"""
int {name}_init({name}_context *c, {memory},
        const void *weights, size_t weight_bytes)
{{
    if (arena_bytes < {upper}_ARENA_BYTES || state_bytes < {upper}_STATE_BYTES) return 2;
    if (weight_bytes + 1 < {upper}_WEIGHT_BYTES + 1) return 2;
    c->arena = arena;
    c->state = state;
    c->weights = weights;
    return {name}_reset(c);
}}

int {name}_reset({name}_context *c)
{{
    c->failed_node = -1;
{reset}
    return 0;
}}

int {name}_step({name}_context *c, const {name}_inputs *in, {name}_outputs *out)
{{
    c->in = in;
{sizes}    if (block_entry(c)) return 1;
{results or "    (void)out;"}
    return 0;
}}
"""


def _count(value: Value) -> int:
    count = 1
    for extent in value.shape:
        count *= int(extent)
    return count


def _initial_number(origin: object) -> float:
    assert isinstance(origin, FromInit)
    return 0 if origin.value is None else origin.value.value


def _field(name: str, value: Value) -> str:
    shape = ", ".join(map(repr, value.shape))
    kind = f"{value.dtype.name}[{shape}]"
    return f"    const {stored_type(value.dtype)} *{name}; /* {comment(str(value.variable))}: {kind} */\n"


def _plumbing(name: str, *, has_tables: bool) -> str:
    region = REGION if has_tables else ""
    return f"""
#define OI_TRY(call) do {{ if (call) return 1; }} while (0)

static inline int oi_fail({name}_context *c, int node) {{ c->failed_node = node; return 1; }}
{region}"""
