"""The C driver: the functions of every project's header, over two callbacks that access the circuit's bus."""

from dataclasses import replace
from functools import cache
from importlib.resources import files as resources

from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.failures import DEVICE_STATUS, LOST_DEVICE, NO_DRIVER, OTHER_WEIGHTS, SMALL_MEMORY
from openinfer.synth.targets.c.device_side import DeviceSide
from openinfer.synth.targets.c.entry import EntryPrinter
from openinfer.synth.targets.c.host_source import HostSource
from openinfer.synth.targets.c.memory_calls import MemoryCalls
from openinfer.synth.targets.c.source import SourcePrinters, source_printers
from openinfer.synth.targets.c.tables import table_definition, table_function
from openinfer.synth.targets.cstyle.host.function import Function
from openinfer.synth.targets.vhdl.map import CircuitMap
from openinfer.synth.targets.vhdl.stops import StopPrinter
from openinfer.synth.targets.vhdl.traces import TraceStops

_CALLS = MemoryCalls()


@cache
def resource(folder: str, name: str) -> str:
    """The text of a resource file shared by all projects."""
    return (resources("openinfer.synth.targets.vhdl") / folder / name).read_text(encoding="utf-8")


def bus_header(name: str) -> str:
    """The header of what a host program provides: functions that access the bus."""
    guard = f"OPENINFER_{name.upper()}_BUS_H"
    body = resource("driver", "bus.h").replace("oi_bus", f"{name}_bus").replace("OI_", f"{name.upper()}_BUS_")
    return f"""
#ifndef {guard}
#define {guard}

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{body}
/* Sets the bus of the instances initialised from now on; the struct is copied. */
void {name}_attach(const {name}_bus *bus);

/* The clocks that the last step of an instance took, counted by the circuit. */
uint32_t {name}_cycles(const void *device);

#ifdef __cplusplus
}}
#endif

#endif
"""


class DriverSource:
    """Prints the driver of a program."""

    def __init__(self, host: HostSource, places: CircuitMap, traces: TraceStops) -> None:
        self._host = host
        self._name = host.name
        self._upper = host.name.upper()
        self._placed: Placed = host.placed
        self._places = places
        self._stops = StopPrinter(traces, places)
        self.printers: SourcePrinters = source_printers(host.placed, host.name)

    def text(self) -> str:
        """The source."""
        placed, printers, name = self._placed, self.printers, self._name
        device = DeviceSide(
            plumbing=self._plumbing(),
            init=self._init(),
            free=(f"{name}_oi_close(c->device);", "c->device = NULL;"),
            inputs=self._inputs(),
            memory=_CALLS,
            undo="",
        )
        entry = EntryPrinter(name, placed, printers, self._host.state_hash, device)
        functions = entry.functions()
        layouts = placed.state.tables.values()
        tables = [table_definition(layout) + table_function(layout, name, "NULL") for layout in layouts]
        printers.file.needs |= {"oi_grid"} if tables else set()
        includes = [
            "",
            f'#include "{name}.h"',
            f'#include "{name}_bus.h"',
            "#include <stdlib.h>",
            '#include "runtime.h"',
            "",
        ]
        parts = ["\n".join(includes), self._device(), entry.plumbing(), *tables]
        parts += [self._stops.text(name, self.printers), self._block(), functions]
        return "\n".join(parts) + entry.errors()

    def _device(self) -> str:
        """The circuit's side: the code that all programs share, and its exported functions."""
        name, upper, places = self._name, self._upper, self._places
        text = resource("driver", "device.c").replace("oi_bus", f"{name}_bus")
        for word in ("CONTROL", "ADDRESS", "DATA", "FAILURE", "CYCLES", "STOP", "CHOICE", "NUMBER", "IDENTITY"):
            text = text.replace(f"OI_{word}", f"{upper}_BUS_{word}")
        text = text.replace("NAME_context", f"{name}_context").replace("OI_TRACE", f"{upper}_TRACE")
        text = text.replace("OI_LARGEST", str(self._stops.largest))
        text = text.replace("OI_STATE_BYTES", f"{upper}_STATE_BYTES").replace("OI_ARENA_AT", str(places.arena_at))
        return f"""{text}
#define oi_shown(device, at) (at)
#define oi_is_shown(device, at) 0

void {name}_attach(const {name}_bus *bus) {{ attached = *bus; }}

uint32_t {name}_cycles(const void *device)
{{
    oi_circuit *const d = (oi_circuit *)(uintptr_t)device;
    unsigned char bytes[4] = {{ 0 }};
    for (uint8_t i = 0; i < 4; ++i) oi_read(d, (uint8_t)({upper}_BUS_CYCLES + i), bytes + i, 1);
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}}

/* For programs that inspect a state: `look` copies from the circuit to the mirror, `upload` the other way. */
int32_t {name}_oi_look(void *device, const void *at, size_t bytes);
void {name}_oi_upload(void *device, const void *at, size_t bytes);
int32_t {name}_oi_settle(void *device);
void {name}_oi_close(void *device);
int32_t {name}_oi_look(void *device, const void *at, size_t bytes)
{{
    oi_circuit *const d = device;
    return oi_receive(d, oi_place(d, at), (void *)(uintptr_t)at, bytes) ? {self._lost} : -1;
}}

void {name}_oi_upload(void *device, const void *at, size_t bytes)
{{
    oi_circuit *const d = device;
    oi_send(d, oi_place(d, at), at, bytes);
}}

int32_t {name}_oi_settle(void *device)
{{
    return ((oi_circuit *)device)->is_lost ? {self._lost} : -1;
}}

void {name}_oi_close(void *device)
{{
#ifdef {upper}_TRACE
    if (device != NULL) free(((oi_circuit *)device)->seen);
#endif
    free(device);
}}

/* Fetches an output of a step, unless its sizes have no values. */
__attribute__((unused)) static void oi_show(void *device, const void *at, size_t bytes, size_t most)
{{
    if (bytes <= most) {name}_oi_look(device, at, bytes);
}}

#define oi_upload {name}_oi_upload
"""

    @property
    def _lost(self) -> int:
        return self.printers.file.of_caller(LOST_DEVICE)

    def _plumbing(self) -> str:
        name = self._name
        numbers = list(DEVICE_STATUS)
        statuses = ", ".join(str(numbers.index(row.mistake.status)) for row in self._placed.failures.rows)
        shown = "".join(f"    {line}\n" for line in self._shown())
        put = f"    {name}_oi_upload(c->device, c->state, {self._upper}_STATE_BYTES);\n" * self._placed.has_state
        return f"""/* Records a failure of the circuit or its bus. Returns 0 if there is none: `failure` is negative. */
static int has_failed({name}_context *c, int32_t failure)
{{
    static const int32_t statuses[] = {{ {statuses} }};
    if (failure < 0) return 0;
    c->status = statuses[failure];
    c->failure = failure;
    return 1;
}}

/* Uploads the mirrored state to the circuit. */
__attribute__((unused)) static int settle({name}_context *c)
{{
{put}    return has_failed(c, {name}_oi_settle(c->device));
}}

/* Copies a range of the circuit's memory to the mirror. */
__attribute__((unused)) static int look({name}_context *c, const void *at, size_t bytes)
{{
    return has_failed(c, {name}_oi_look(c->device, at, bytes));
}}

/* Fetches the outputs of a step, the values of sizes and the extents of tables. */
static int ended({name}_context *c)
{{
{shown}    return has_failed(c, {name}_oi_settle(c->device));
}}

/* Records what went wrong. */
static int fail({name}_context *c, {name}_status status, int32_t failure)
{{
    c->status = (int32_t)status;
    c->failure = failure;
    return 1;
}}
"""

    def _shown(self) -> list[str]:
        """The lines that fetch the results of a step."""
        name, placed, places = self._name, self._placed, self._places
        self.printers.file.now = Function()
        fields = placed.names.sizes
        lines = [
            f"oi_receive(c->device, {places.sizes_at + 8 * at}, &c->{fields[size]}, 8);"
            for at, size in enumerate(places.sizes)
        ]
        outputs = [
            f"oi_show(c->device, {self.printers.pointers.location(value)}, {self.printers.sizes.nbytes(value)}, "
            f"{value.nbytes});"
            for value in placed.program.outputs.values()
            if value.nbytes
        ]
        for layout in placed.state.tables.values():
            lines.append(f"{name}_oi_look(c->device, c->state + {layout.extents_at}, {8 * layout.axes});")
            if layout.has_matrices:
                nbytes = layout.cells_at(layout.capacity)
                lines.append(f"{name}_oi_look(c->device, c->state + {layout.memory_at}, {nbytes});")
        return [*["int bad = 0;"] * self.printers.file.now.has_bad, *lines, *outputs]

    def _inputs(self) -> tuple[str, ...]:
        """The lines that copy the inputs of a step to the circuit."""
        placed, places = self._placed, self._places
        self.printers.file.now = Function()
        names, offsets = placed.names.inputs, placed.input_offsets
        lines = [
            f"oi_send(c->device, {places.arena_at + offsets[value]}, in->{names[key]}, "
            f"{self.printers.sizes.nbytes(value)});"
            for key, value in placed.program.inputs.items()
            if value.nbytes
        ]
        return (*["int bad = 0;"] * self.printers.file.now.has_bad, *lines)

    def _block(self) -> str:
        """The entry block, which the circuit runs."""
        name, places, fields = self._name, self._places, self._placed.names.sizes
        sizes = "".join(
            f"    oi_send(c->device, {places.sizes_at + 8 * at}, &c->{fields[size]}, 8);\n"
            for at, size in enumerate(places.sizes)
        )
        return f"""/* Runs a step in the circuit, which rolls back a step that fails. */
static int {self.printers.blocks.functions.name("entry")}({name}_context *c)
{{
    int32_t failure;
{sizes}    if (oi_step(c, &failure)) failure = {self._lost};
    return has_failed(c, failure);
}}
"""

    def _init(self) -> str:
        name, upper, file, placed = self._name, self._upper, self.printers.file, self._placed
        small = f"arena == NULL || arena_bytes < {upper}_ARENA_BYTES"
        state = "    (void)state; /* Nothing outlives a step. */\n    (void)state_bytes;\n"
        given = "NULL"
        if placed.has_state:
            small += f" || state == NULL || state_bytes < {upper}_STATE_BYTES"
            state, given = f"    c->state = state;\n    memset(state, 0, {upper}_STATE_BYTES);\n", "state"
        missing = file.failed(file.of_caller(NO_DRIVER))
        # Every reset restores initial values, and the caller's weights may be gone by then.
        weights = f"    memcpy(d + 1, weights, {upper}_WEIGHT_BYTES);\n" * bool(placed.weights.size)
        return f"""void *{name}_memory(size_t bytes) {{ return calloc(1, bytes + 64); }}

void {name}_release(void *memory) {{ free(memory); }}

int {name}_init({name}_context *c, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
        const void *weights, size_t weight_bytes)
{{
    unsigned char identity = 0;
    *c = ({name}_context){{ 0 }};
    if ({small}) {{
        {file.failed(file.of_caller(SMALL_MEMORY))};
        return {upper}_ERROR_MEMORY;
    }}
    if (weight_bytes != {upper}_WEIGHT_BYTES || ({upper}_WEIGHT_BYTES > 0 && weights == NULL)) {{
        {file.failed(file.of_caller(OTHER_WEIGHTS))};
        return {upper}_ERROR_WEIGHTS;
    }}
    oi_circuit *const d = calloc(1, sizeof *d + {upper}_WEIGHT_BYTES);
    if (d == NULL) {{
        {file.failed(file.of_caller(SMALL_MEMORY))};
        return {upper}_ERROR_MEMORY;
    }}
    *d = (oi_circuit){{ .bus = attached, .arena = arena, .state = {given} }};
    const int has_bus = d->bus.bus_read != NULL && d->bus.bus_write != NULL;
    if (!has_bus || oi_read(d, {upper}_BUS_IDENTITY, &identity, 1) || identity != 0x4f) {{
        free(d);
        {missing};
        return {upper}_ERROR_DEVICE;
    }}
    c->device = d;
    c->arena = arena;
    c->weights = (const unsigned char *)(d + 1);
{weights}{state}    return {name}_reset(c);
}}
"""


def quiet(placed: Placed) -> Placed:
    """The program as the host sees it: failing steps have no effect, since the circuit rolls them back."""
    return replace(placed, can_tear=False)
