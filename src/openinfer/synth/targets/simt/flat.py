"""Flat launches: every thread computes a few contiguous elements, independently of the others.

If these take long to compute, a thread loads several chunks of them before it begins: a unit has room for a limited
number of threads, and while they compute, too few loads would be in flight.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from openinfer.loops.build import index, unflat
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Binary, Bind, For, If, Let, LoopKind, Math, Scalar, ScalarVar, Statement, Store, scalars
from openinfer.loops.ir import visit as parts_of
from openinfer.loops.rewrite import Statements, renamed
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.threads import THREAD, ThreadLoop, int_extent, lets_of, nest
from openinfer.synth.targets.simt.wide import FreshNames, WideCopies, WideLoop

_MOST_ELEMENTS = 16
"""Elements of a thread at most, if they are in several chunks."""
_TIMES = {"exp": 1, "exp2": 1, "gelu": 4, "erf": 4, "erfc": 4}
"""How long functions take, in quotients; others take 2."""


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
    several = _Chunks.of(loops, loop, width, machine, names)
    if several is not None:
        form = f"flat: {several.count} times {width} elements a thread"
        return Formed((several.launch(tuple(before)),), several.threads, form)
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


def time_of(body: Statements) -> int:
    """How long an iteration takes, in quotients."""
    found = 0
    for value in (part for one in body for whole in scalars(one) for part in parts_of(whole)):
        if isinstance(value, Math):
            found += _TIMES.get(value.function, 2)
        elif isinstance(value, Binary) and value.op == "div" and value.dtype.kind == "float":
            found += 1
    return found


@dataclass(frozen=True)
class _Chunks:
    """Threads that compute several chunks each, a group's width apart: adjacent threads access adjacent chunks."""

    loop: WideLoop
    width: int
    outer: tuple[ScalarVar, ...]
    extents: tuple[int, ...]
    """Of the outer loops, and the chunks of the innermost."""
    count: int
    """Chunks of a thread."""
    group: int
    names: FreshNames

    @classmethod
    def of(
        cls, loops: Sequence[For], loop: WideLoop, width: int, machine: SimtMachine, names: FreshNames
    ) -> "_Chunks | None":
        """The chunks of a nest; None if each thread should have one."""
        extents = (*(int_extent(one.extent) for one in loops[:-1]), int_extent(loops[-1].extent) // width)
        if any(map(is_symbolic, extents)) or int_extent(loops[-1].extent) % width:
            return None
        made = cls(loop, width, tuple(one.index for one in loops[:-1]), extents, 1, machine.group, names)
        most, count = min(time_of(loop.body), _MOST_ELEMENTS // width), 1
        while 2 * count <= most and made.total >= 2 * count * machine.units * machine.busy:
            count *= 2
        made = replace(made, count=count)
        return made if count > 1 and made.threads <= machine.most_threads else None

    @property
    def total(self) -> int:
        """The chunks of all threads."""
        found = 1
        for extent in self.extents:
            found *= extent
        return found

    @property
    def threads(self) -> int:
        """The threads of the launch, in whole groups."""
        return -(-self.total // (self.count * self.group)) * self.group

    def launch(self, before: Statements) -> For:
        """The loop over threads."""
        thread, first = self.names.var(THREAD), self.names.var("first")
        start = thread // self.group * (self.group * self.count) + thread % self.group
        body: Statements = tuple(self._together(first))
        if self.total % (self.group * self.count):
            # The chunks of the last group may not exist.
            place = self.names.var("place")
            at = self.names.var("at")
            own = (Let(at, first + place * self.group), If(at < index(self.total), self._copies(at).statements))
            last = first + (self.count - 1) * self.group
            body = (If(last < index(self.total), body, (For(place, index(self.count), own),)),)
        whole = (*before, Let(first, start), *body)
        return For(thread, index(self.threads), whole, LoopKind.PARALLEL, Bind.THREAD)

    def _together(self, first: Scalar) -> Iterator[Statement]:
        """All chunks of a thread: their loads first."""
        made = [self._copies(first + place * self.group) for place in range(self.count)]
        yield from (statement for copies in made for statement in copies.first)
        yield from (statement for copies in made for statement in (*copies.body, *copies.last))

    def _copies(self, at: Scalar) -> WideCopies:
        """The chunk with a number."""
        outer = {var.name: self.names.var(var.name) for var in self.outer}
        chunk = self.names.var("chunk")
        made = self.loop.copies(chunk * self.width, self.width, self.names)
        lets = lets_of((*outer.values(), chunk), unflat(at, self.extents))
        first, body, last = (renamed(own, outer) for own in (made.first, made.body, made.last))
        return replace(made, first=(*lets, *first), body=body, last=last)
