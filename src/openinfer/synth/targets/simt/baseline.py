"""The baseline schedule, always correct: outermost parallel loops become threads, which run all else serially.

Each top-level parallel loop of a kernel is a launch; the statements between two such loops are a launch of one thread.
Every launch recomputes the cheap values it uses; all other values are passed through memory. A launch that relies on
what an earlier one wrote or checked comes after it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from openinfer.loops.blocked import BLOCK, blocked
from openinfer.loops.expand import expanded
from openinfer.loops.ir import ACCUMULATOR, Alloc, Buffer, Contraction, Kernel, ScalarVar, Statement
from openinfer.loops.rewrite import Statements, map_statements, renamed, straightened, variables_of
from openinfer.synth.targets.simt.launches import Launch, Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.merged import merged
from openinfer.synth.targets.simt.segments import LaunchPart, free_name, handed_on, segments_of
from openinfer.synth.targets.simt.threads import THREAD, ThreadLoop, launch_kernel


@dataclass(frozen=True)
class Formed:
    """The body of a launch, as loops over groups and threads."""

    body: Statements
    threads: int
    form: str
    memory: tuple[Buffer, ...] = ()
    """Private arrays of threads that live in memory."""
    most_terms: int = BLOCK
    """Terms per f32 accumulator at most; longer sums are blocked."""


LaunchForm = Callable[[LaunchPart, SimtMachine, set[str]], Formed | None]
"""A launch form: makes a launch of a segment, avoiding the given names; None if the form does not apply."""


def baseline(kernel: Kernel, machine: SimtMachine) -> Launches:
    """A kernel without structures as launches."""
    return formed(kernel, straightened(without_contractions(kernel)), machine)


def formed(kernel: Kernel, body: Statements, machine: SimtMachine, *forms: LaunchForm) -> Launches:
    """Statements of a kernel as launches, each in the first form that applies; without forms, none are merged."""
    given = (*kernel.inputs, *kernel.outputs)
    shared = tuple(one.buffer for one in body if isinstance(one, Alloc))
    taken = {one.name for one in (*given, *kernel.scratch, *shared)} | {var.name for var in variables_of(body)}
    segments = handed_on([*segments_of([one for one in body if not isinstance(one, Alloc)])], taken)
    found: list[Launch] = []
    scratch = [*shared, *(buffer for one in segments for buffer in one.kept)]
    can_fail = False
    for number, segment in enumerate(segments):
        made = next(filter(None, (form(segment, machine, set(taken)) for form in forms)), None)
        made = made or _threads(segment, machine, taken, number)
        scratch += made.memory
        memory = {one.name: one for one in (*given, *scratch)}
        name = kernel.name if len(segments) == 1 else f"{kernel.name}_{number + 1}"
        launch = launch_kernel(replace(kernel, name=name), blocked(made.body, made.most_terms), memory)
        found.append(Launch(launch, made.threads, can_fail, made.form))
        can_fail = can_fail or launch.can_fail
    if forms:
        found = merged(found, segments, machine, {one.name: one for one in (*given, *scratch)})
    return Launches(kernel, tuple(found), tuple(dict.fromkeys(scratch)))


def _threads(segment: LaunchPart, machine: SimtMachine, taken: set[str], number: int) -> Formed:
    *before, last = segment.body
    if isinstance(last, Contraction):
        segment = replace(segment, body=(*before, *_expanded(last, taken)))
    made = ThreadLoop(segment, machine, free_name(THREAD, taken), f"own{number}_")
    return Formed(made.body, made.count, "threads", tuple(made.memory))


def without_contractions(
    kernel: Kernel, expand: Callable[[Contraction, set[str]], Statements | None] = lambda _one, _taken: None
) -> Statements:
    """The body of a kernel with contractions replaced by what ``expand`` makes of them, or else by plain loops.

    ``expand`` must avoid the names it is given. Each accumulator has its own name, so that two may share a scope.
    """
    taken = {var.name for var in variables_of(kernel.body)}
    taken |= {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}

    def own(statement: Statement) -> Statements:
        if not isinstance(statement, Contraction):
            return (statement,)
        found = expand(statement, taken)
        if found is not None:
            return found
        return _expanded(statement, taken)

    return map_statements(kernel.body, own)


def _expanded(one: Contraction, taken: set[str]) -> Statements:
    name = free_name(ACCUMULATOR, taken)
    taken.add(name)
    return renamed(expanded(one), {ACCUMULATOR: ScalarVar(name, one.accumulator)})
