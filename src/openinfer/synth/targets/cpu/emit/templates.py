"""What CPU schedules add to the printer of kernels: tiles, lanes, shares of parts, long sums in blocks."""

from typing import TypeGuard

from openinfer.loops.cse import with_names
from openinfer.loops.expand import expanded
from openinfer.loops.ir import Bind, Contraction, Kernel, Statement
from openinfer.loops.rewrite import map_statements, straightened
from openinfer.synth.targets.cpu.blocked import blocked
from openinfer.synth.targets.cpu.emit.contraction import tiled
from openinfer.synth.targets.cpu.emit.lanes import print_lanes
from openinfer.synth.targets.cpu.emit.parts import print_share
from openinfer.synth.targets.cpu.emit.sums import side_by_side
from openinfer.synth.targets.cpu.product import without_single
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.cstyle.templates import KernelWriter, Templates, as_loops

_NAMES = {"n0", "m0", "m1", "row", "rows", "column", "columns", "tile", "to", "from", "start", "run", "height"}
_NAMES |= {"begin", "end", "zero", "first", "byte", "half", "whole", "taps", "turned"}
_NAMES |= {"panel", "k0", "step", "acc", "part", "lane", "k", "sums", "flips"}


def _body(kernel: Kernel) -> tuple[Statement, ...]:
    buffers = (*kernel.inputs, *kernel.outputs, *kernel.scratch)
    body = map_statements(kernel.body, lambda one: (without_single(one) if _is_untiled(one) else one,))
    return with_names(blocked(straightened(body)), {one.name for one in buffers} | _NAMES)


def _is_untiled(statement: Statement) -> TypeGuard[Contraction]:
    return isinstance(statement, Contraction) and not isinstance(statement.template, CpuTile)


def _contraction(one: Contraction, writer: KernelWriter, depth: int) -> None:
    """A contraction in tiles, if it has one; else as sums side by side where that can be, or one after the other."""
    lines = _lines(one, writer)
    if lines is None:
        as_loops(with_names(blocked(expanded(one)), {one.out.name}), one, writer, depth)
        return
    for line in lines:
        writer.line(depth, line)


def _lines(one: Contraction, writer: KernelWriter) -> list[str] | None:
    match one:
        case Contraction(template=CpuTile() as tile):
            return tiled(one, tile, writer.scalars, writer.parts)
        case _:
            return side_by_side(one, writer.scalars)


CPU = Templates(
    body=_body,
    contraction=_contraction,
    loops={Bind.LANES: print_lanes, Bind.PART: print_share},
    names=frozenset(_NAMES),
)
