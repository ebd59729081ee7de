"""What the driver does at a trace stop: it reads the values that nodes have written, and reports them."""

from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.program.ir import Value
from openinfer.synth.targets.c.source import SourcePrinters
from openinfer.synth.targets.c.trace_points import trace_code
from openinfer.synth.targets.cstyle.host.function import Function
from openinfer.synth.targets.vhdl.map import CircuitMap
from openinfer.synth.targets.vhdl.traces import TraceStop, TraceStops


class StopPrinter:
    """Prints the function that the driver calls at a stop; it is only compiled for traces."""

    def __init__(self, traces: TraceStops, places: CircuitMap) -> None:
        self._traces = traces
        self._places = places

    @property
    def largest(self) -> int:
        """The size of the largest reported value in bytes."""
        values = [row.value.nbytes for row in self._traces.reported if isinstance(row.value, Value)]
        return max(values, default=0) or 1

    def text(self, name: str, printers: SourcePrinters) -> str:
        """The table of all rows, and the function."""
        printers.file.now = Function()
        fields = printers.file.placed.names.sizes
        lines = [f"    c->{fields[size]} = oi_number(d, {at});" for at, size in enumerate(self._places.sizes)]
        cases = [self._case(number, stop, printers) for number, stop in enumerate(self._traces.stops)]
        bad = ["    int bad = 0;"] * printers.file.now.has_bad
        body = "\n".join([*bad, *lines, "    switch (stop) {", *cases, "    default: break;", "    }"])
        return f"""{trace_code(name, self._traces.reported)}
#ifdef {name.upper()}_TRACE
{self._weights()}/* The circuit has stopped: reports what nodes have written. */
static void oi_stopped({name}_context *c, uint32_t stop)
{{
    oi_circuit *const d = c->device;
    (void)d;
{body}
}}
#endif
"""

    def _weights(self) -> str:
        """The function that maps a circuit's weight address to the host's copy, if a stop reports any weight."""
        if not any("rom" in stop.memories for stop in self._traces.stops):
            return ""
        rows = ", ".join(f"{{ {here}, {first} }}" for first, _, here in self._places.rom.kept)
        return f"""static const unsigned char *oi_weight(const unsigned char *weights, int64_t address)
{{
    static const struct {{ int64_t here, there; }} kept[] = {{ {rows} }};
    size_t at = sizeof kept / sizeof *kept - 1;
    while (at > 0 && kept[at].here > address) --at;
    return weights + (address - kept[at].here + kept[at].there);
}}

"""

    def _case(self, number: int, stop: TraceStop, printers: SourcePrinters) -> str:
        """The report of one stop."""
        sizes = len(self._places.sizes)
        shown = sum(memory is not None for memory in stop.memories)
        indices = stop.rows[0].indices
        lines = [f"    case {number}: {{"]
        lines += [
            f"        const int64_t index{at} = oi_number(d, {sizes + shown + at});" for at in range(len(indices))
        ]
        addresses = iter(range(sizes, sizes + shown))
        for at, (row, memory) in enumerate(zip(stop.rows, stop.memories, strict=True)):
            data = "NULL"
            if memory is not None:
                assert isinstance(row.value, Value)
                data = f"oi_number(d, {next(addresses)})"
                if memory == "rom":
                    data = f"oi_weight(c->weights, {data})"
                else:
                    data = f"oi_value(d, {data}, {printers.sizes.nbytes(row.value)}, {row.value.nbytes})"
            lines.append(f"        TRACE({stop.first + at}, {data}, {_numbers(row, printers)});")
        return "\n".join([*lines, "        break;", "    }"])


def _numbers(row: Reported, printers: SourcePrinters) -> str:
    """The extents of a value, then the loop indices."""
    extents = [] if row.value is None else [printers.sizes.extent(extent).text for extent in row.value.shape]
    return ", ".join([*extents, *(f"index{at}" for at in range(len(row.indices)))]) or "0"
