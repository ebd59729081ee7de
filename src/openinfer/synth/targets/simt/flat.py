"""Flat launches: every thread computes a few contiguous elements, independently of the others."""

from dataclasses import replace

from openinfer.loops.build import index
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import For, If, Let, Statement, Store
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.threads import THREAD, ThreadLoop, int_extent, nest
from openinfer.synth.targets.simt.wide import FreshNames, WideLoop


def flat(part: LaunchPart, machine: SimtMachine, taken: set[str]) -> Formed | None:
    """A perfect nest of parallel loops: a thread runs the iterations of the innermost that share a wide access."""
    *before, last = part.body
    if not part.is_parallel or not isinstance(last, For):
        return None
    loops = tuple(nest(last))
    inner = loops[-1]
    extent = int_extent(inner.extent)
    if is_symbolic(extent) or not all(isinstance(one, Let | Store) for one in inner.body):
        return None
    names = FreshNames(taken)
    loop = WideLoop(inner.index, inner.body, machine.unaligned)
    width = loop.width(extent, has_tail=len(loops) == 1)
    if width == 1:
        return None
    chunk, (full, rest) = names.var("chunk"), divmod(extent, width)
    body = loop.copies(chunk * width, width, names).statements
    if rest:
        # Elements after the last full access get a thread each.
        alone = Let(inner.index, chunk + (full * width - full))
        body = (If(chunk < full, body, (alone, *inner.body)),)
    made: Statement = For(chunk, index(full + rest), body, inner.kind)
    for one in reversed(loops[:-1]):
        made = replace(one, body=(made,))
    threads = ThreadLoop(replace(part, body=(*before, made)), machine, names.name(THREAD), "own_")
    return Formed(threads.body, threads.count, f"flat: {width} elements a thread", tuple(threads.memory))
