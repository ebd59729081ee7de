"""Reduction loops in C: adjacent iterations accumulate in separate lanes, which compilers vectorize."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from openinfer.loops.blocked import LANES
from openinfer.loops.ir import INDEX, Binary, For, ScalarVar, SetLocal, visit, walk
from openinfer.loops.ir import scalars as scalars_of
from openinfer.loops.reduction import Reduction, reductions
from openinfer.loops.rewrite import at_index, renamed
from openinfer.synth.targets.cpu.emit.parts import count_of
from openinfer.synth.targets.cstyle.integers import INTEGERS
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter
from openinfer.synth.targets.cstyle.statements import has_choices
from openinfer.synth.targets.cstyle.templates import KernelWriter

_PLACES = ("lane", *map(str, range(2)), *(f"lane + {1 << bit}" for bit in range(1, LANES.bit_length() - 1)))
"""The subscripts of lanes, in loops over them and at the end."""
_IN_VECTORS = "#pragma GCC unroll 1 /* if unrolled, gcc 12 does not vectorize selects */"


def print_lanes(loop: For, writer: KernelWriter, depth: int) -> None:
    """A reduction loop: its lanes, the remaining iterations, and the combined result."""
    scalars, extent, found = writer.scalars, writer.scalars.operand(loop.extent), reductions(loop)
    scalars.counts(loop.index)
    writer.note(f"Reductions run in {LANES} lanes, whose results are combined by halves.")
    kinds = {one: _type(one, scalars) for one in found}
    count = count_of(loop.extent)
    whole = f"{extent} / {LANES} * {LANES}" if count is None else str(count // LANES * LANES)
    writer.line(depth, "{")
    for one in found:
        writer.line(depth + 1, f"{kinds[one]} {one.var.name}_lanes[{LANES}];")
    for one in found:
        first = f"{_lane(one, 'lane').name} = {scalars.text(one.first)};"
        writer.line(depth + 1, f"for ({scalars.widths.of((0, LANES))} lane = 0; lane < {LANES}; ++lane) {first}")
    _in_lanes(loop, found, whole, writer, depth + 1)
    _remaining(loop, count, whole, writer, depth + 1)
    for line in _joined(found, scalars):
        writer.line(depth + 1, line)
    writer.line(depth, "}")


def _in_lanes(loop: For, found: Sequence[Reduction], whole: str, writer: KernelWriter, depth: int) -> None:
    """The iterations that fill all lanes."""
    index, most = loop.index.name, max(writer.scalars.widths.interval(loop.extent)[1], 0)
    kind, lane = writer.scalars.counts(loop.index, most=most), writer.scalars.widths.of((0, LANES))
    lanes = {one.var.name: _lane(one, "lane") for one in found}
    writer.line(depth, f"for ({kind} {index}_0 = 0; {index}_0 < {whole}; {index}_0 += {LANES}) {{")
    if has_choices(loop.body):
        writer.line(depth + 1, _IN_VECTORS)
    writer.line(depth + 1, f"for ({lane} lane = 0; lane < {LANES}; ++lane) {{")
    used = (one for statement in walk(loop.body) for value in scalars_of(statement) for one in visit(value))
    if loop.index in used:
        writer.line(depth + 2, f"const {kind} {index} = {index}_0 + lane;")
    writer.body(renamed(loop.body, lanes), depth + 2)
    writer.line(depth + 1, "}")
    writer.line(depth, "}")


def _remaining(loop: For, count: int | None, whole: str, writer: KernelWriter, depth: int) -> None:
    """The iterations that do not fill all lanes."""
    if count is None or count % LANES > 1:
        writer.loop(loop, whole, writer.scalars.operand(loop.extent), depth)
    elif count % LANES == 1:
        writer.body(at_index(loop.body, loop.index, count - 1), depth)


def _joined(found: Sequence[Reduction], scalars: ScalarPrinter) -> Iterator[str]:
    """Combines the lanes by halves, since a serial sum would be latency-bound, and then with the initial value."""
    for one in found:
        half = LANES // 2
        while half:
            places = ("0", "1") if half == 1 else ("lane", f"lane + {half}")
            low, high = (_lane(one, place) for place in places)
            head = "" if half == 1 else f"for ({scalars.widths.of((0, LANES))} lane = 0; lane < {half}; ++lane) "
            yield head + scalars.assigned(SetLocal(low, replace(one, var=low).joined(high)))
            half //= 2
    for one in found:
        yield scalars.assigned(SetLocal(one.var, one.joined(_lane(one, "0"))))


def _type(one: Reduction, scalars: ScalarPrinter) -> str:
    """The type of a lane."""
    op = one.update.value.op if isinstance(one.update.value, Binary) else ""
    names = [_lane(one, place).name for place in _PLACES]
    kind = scalars.widths.partial(one.var, names, is_product=op == "mul")
    # gcc 12 miscompiles vectorized signed lanes that are added as unsigned values (-O3 with AVX2 or AVX-512).
    dtype = one.var.dtype
    if op not in ("add", "mul") or dtype.kind != "int" or dtype is INDEX:
        return kind
    scalars.widths.unsigned.update(names)
    return INTEGERS[f"u{dtype.bits}"]


def _lane(one: Reduction, place: str) -> ScalarVar:
    return ScalarVar(f"{one.var.name}_lanes[{place}]", one.var.dtype)
