"""What CPU schedules add to the printer of kernels: tiles, lanes, shares of parts, long sums in blocks."""

from openinfer.loops.expand import expanded
from openinfer.loops.ir import Bind, Contraction, Kernel, Statement
from openinfer.loops.rewrite import straightened
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
    return blocked(straightened(kernel.body))


def _contraction(one: Contraction, writer: KernelWriter, depth: int) -> None:
    """A contraction in tiles, if it has one; else as sums side by side where that can be, or one after the other."""
    lines = _lines(one, writer)
    if lines is None:
        plain = without_single(one)
        as_loops(blocked(expanded(plain)), plain, writer, depth)
        return
    for line in lines:
        writer.line(depth, line)


def _lines(one: Contraction, writer: KernelWriter) -> list[str] | None:
    match one:
        case Contraction(template=CpuTile() as tile):
            return tiled(one, tile, writer.scalars, writer.parts)
        case _:
            return side_by_side(without_single(one), writer.scalars)


CPU = Templates(
    body=_body,
    contraction=_contraction,
    loops={Bind.LANES: print_lanes, Bind.PART: print_share},
    names=frozenset(_NAMES),
)
