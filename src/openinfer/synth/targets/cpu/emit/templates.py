"""What CPU schedules add to the kernel printer: tiles, lanes, shares of parts, and long sums in blocks."""

from dataclasses import replace
from typing import TypeGuard

from openinfer.loops.blocked import BLOCK, blocked
from openinfer.loops.cse import with_names
from openinfer.loops.expand import expanded
from openinfer.loops.ir import Bind, Contraction, Kernel, Statement
from openinfer.loops.rewrite import map_statements
from openinfer.synth.targets.cpu.byte_taps import ByteTaps
from openinfer.synth.targets.cpu.channel_taps import ChannelTaps
from openinfer.synth.targets.cpu.emit.byte_tap_tiles import byte_tap_lines
from openinfer.synth.targets.cpu.emit.channel_tiles import channel_lines
from openinfer.synth.targets.cpu.emit.contraction import tiled
from openinfer.synth.targets.cpu.emit.lanes import print_lanes
from openinfer.synth.targets.cpu.emit.parts import print_rolled, print_share
from openinfer.synth.targets.cpu.emit.sums import side_by_side
from openinfer.synth.targets.cpu.emit.tap_tiles import tap_lines
from openinfer.synth.targets.cpu.emit.word_windows import window_lines
from openinfer.synth.targets.cpu.product import without_single
from openinfer.synth.targets.cpu.run_on import run_on
from openinfer.synth.targets.cpu.taps import CpuTaps
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.cpu.word_taps import WordTaps
from openinfer.synth.targets.cstyle.templates import KernelWriter, Templates, as_loops, simplest

_NAMES = {"n0", "m0", "m1", "row", "rows", "column", "columns", "tile", "to", "from", "start", "run", "height"}
_NAMES |= {"begin", "end", "zero", "first", "byte", "half", "whole", "taps", "transposed"}
_NAMES |= {"panel", "k0", "step", "acc", "part", "lane", "k", "sums", "flips"}
_NAMES |= {"seen", "apart", "next"}
_NAMES |= {"plane", "channel", "line", "last", "own", "sum", "made"}


_BLOCKED = f"Long sums are accumulated in blocks of {BLOCK} terms, which bounds the rounding error."


def _prepared(kernel: Kernel) -> Kernel:
    buffers = (*kernel.inputs, *kernel.outputs, *kernel.scratch)
    plain = map_statements(kernel.body, lambda one: (without_single(one) if _is_untiled(one) else one,))
    body = run_on(simplest(plain))
    in_blocks = blocked(body)
    named = with_names(in_blocks, {one.name for one in buffers} | _NAMES)
    return replace(kernel, body=named, doc=(*kernel.doc, *[_BLOCKED] * (in_blocks != body)))


def _is_untiled(statement: Statement) -> TypeGuard[Contraction]:
    return isinstance(statement, Contraction) and statement.template is None


def _contraction(one: Contraction, writer: KernelWriter, depth: int) -> None:
    """A contraction in tiles, if it has any; else with contiguous accumulators if possible, or as plain loops."""
    lines = _lines(one, writer)
    if lines is None:
        loops = expanded(one)
        in_blocks = blocked(loops)
        if in_blocks != loops:
            writer.note(_BLOCKED)
        as_loops(with_names(in_blocks, {one.out.name}), one, writer, depth)
        return
    for line in lines:
        writer.line(depth, line)


def _lines(one: Contraction, writer: KernelWriter) -> list[str] | None:
    match one:
        case Contraction(template=CpuTile() as tile):
            return tiled(one, tile, writer.scalars, writer.parts)
        case Contraction(template=CpuTaps() as taps):
            return tap_lines(one, taps, writer.scalars)
        case Contraction(template=ChannelTaps() as taps):
            return channel_lines(one, taps, writer.scalars)
        case Contraction(template=ByteTaps() as taps):
            return byte_tap_lines(one, taps, writer.scalars)
        case Contraction(template=WordTaps() as taps):
            return window_lines(one, taps, writer.scalars)
        case _:
            return side_by_side(one, writer.scalars)


CPU = Templates(
    prepared=_prepared,
    contraction=_contraction,
    loops={Bind.LANES: print_lanes, Bind.PART: print_share, Bind.ROLLED: print_rolled},
    names=frozenset(_NAMES),
)
