"""Launches that do not depend on each other as one: its first threads do what the first did, the next ones the next.

So the parts of a concatenation are written at the same time, without a barrier in between. This is for short launches
without loops: in others, threads that need few registers would have as many as those that need most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from openinfer.loops.build import index, pair
from openinfer.loops.dim import is_symbolic
from openinfer.loops.intervals import Interval, interval
from openinfer.loops.ir import (
    INDEX,
    Bind,
    Buffer,
    Const,
    Contraction,
    For,
    If,
    Let,
    LoopKind,
    ScalarVar,
    Store,
    Structure,
    WideLoad,
    WideStore,
    walk,
)
from openinfer.loops.rewrite import Statements, renamed, variables_of
from openinfer.synth.targets.simt.launches import Launch
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.threads import launch_kernel
from openinfer.synth.targets.simt.wide import FreshNames

_MOST = 8
"""Launches in one at most."""


def merged(
    found: Sequence[Launch], parts: Sequence[LaunchPart], machine: SimtMachine, memory: Mapping[str, Buffer]
) -> list[Launch]:
    """Launches with adjacent independent ones merged. ``parts`` are what they do."""
    made: list[_Run] = []
    for launch, part in zip(found, parts, strict=True):
        if made and made[-1].takes(launch, part, machine):
            made[-1] = _Run((*made[-1].launches, launch), (*made[-1].parts, part))
        else:
            made.append(_Run((launch,), (part,)))
    return [one.launch(memory) for one in made]


@dataclass(frozen=True)
class _Run:
    """Launches that become one, and what they do."""

    launches: tuple[Launch, ...]
    parts: tuple[LaunchPart, ...]

    def takes(self, other: Launch, part: LaunchPart, machine: SimtMachine) -> bool:
        """Whether another launch can run at the same time as all of these."""
        if len(self.launches) == _MOST or not all(map(_is_short, (*self.launches, other))):
            return False
        if sum(one.threads for one in self.launches) + other.threads > machine.most_threads:
            return False
        pairs = zip(self.launches, self.parts, strict=True)
        return all(_are_independent(one, own, other, part) for one, own in pairs)

    def launch(self, memory: Mapping[str, Buffer]) -> Launch:
        """All of them as one."""
        first = self.launches[0]
        if len(self.launches) == 1:
            return first
        loops = [_threads_of(one) for one in self.launches]
        names = FreshNames({*memory, *(var.name for one in loops for var in variables_of((one,)))})
        thread, start = names.var("thread"), sum(one.threads for one in self.launches)
        body: Statements = ()
        for launch, loop in zip(reversed(self.launches), reversed(loops), strict=True):
            start -= launch.threads
            own = {var.name: names.var(var.name, var.dtype) for var in variables_of((loop,))}
            # It is not negative here, which only the maximum tells.
            place = pair("max", thread - start, index(0)) if start else thread
            inside = (Let(own[loop.index.name], place), *renamed(loop.body, own))
            body = (If(thread < index(start + launch.threads), inside, body),) if body else inside
        count = sum(one.threads for one in self.launches)
        whole = For(thread, index(count), body, LoopKind.PARALLEL, Bind.THREAD)
        forms = " and ".join(dict.fromkeys(one.form for one in self.launches))
        return replace(first, kernel=launch_kernel(first.kernel, (whole,), memory), threads=count, form=forms)


def _threads_of(launch: Launch) -> For:
    (loop,) = launch.kernel.body
    assert isinstance(loop, For)
    return loop


def _is_short(launch: Launch) -> bool:
    """Whether threads work on their own, run no loops, have no memory, and cannot fail."""
    body = launch.kernel.body
    if len(body) != 1 or not isinstance(body[0], For) or body[0].bind is not Bind.THREAD or launch.kernel.can_fail:
        return False
    is_plain = all(isinstance(one, Let | Store | WideLoad | WideStore | If) for one in walk(body[0].body))
    return is_plain and not is_symbolic(launch.threads) and not launch.is_guarded


def _are_independent(one: Launch, part: LaunchPart, other: Launch, other_part: LaunchPart) -> bool:
    read, other_read = ({each.name for each in launch.kernel.inputs} for launch in (one, other))
    written, other_written = ({each.name for each in launch.kernel.outputs} for launch in (one, other))
    if written & other_read or other_written & read:
        return False
    return all(_are_apart(name, part.body, other_part.body) for name in written & other_written)


def _are_apart(name: str, body: Statements, other: Statements) -> bool:
    """Whether two launches surely write different elements of a buffer."""
    if any(isinstance(one, Contraction | Structure) for one in walk((*body, *other))):
        return False  # They store without a statement that says where.
    return all(
        any(low > other_high or other_low > high for (low, high), (other_low, other_high) in zip(a, b, strict=True))
        for a, b in product(_places(name, body), _places(name, other))
    )


def _places(name: str, body: Statements) -> list[list[Interval]]:
    """The ranges of the indices at which a buffer is stored to."""
    known: dict[str, Interval] = {}
    found: list[list[Interval]] = []
    for one in walk(body):
        match one:
            case For(ScalarVar(index_name), Const(int(extent))):
                known[index_name] = (0, max(extent - 1, 0))
            case Let(ScalarVar(own, dtype), value) if dtype is INDEX:
                known[own] = interval(value, known)
            case Store(buffer=buffer) if buffer.name == name:
                found.append([interval(where, known) for where in one.index])
    return found
