"""Overlapping launches: until earlier launches have ended, a launch only loads what none of them writes.

If a launch starts with loads of weights, these are in flight while it waits. Every launch waits, even one without
dependencies: the next launch assumes that everything before it has ended.
"""

from dataclasses import replace

from openinfer.loops.ir import (
    INDEX,
    Alloc,
    Bind,
    Buffer,
    Cast,
    Const,
    Exchange,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Ready,
    SetLocal,
    Space,
    Statement,
    Store,
    Unfailed,
    While,
    WideLoad,
    WideStore,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements, with_buffers
from openinfer.synth.targets.simt.launches import Launch, Launches


def with_weights(found: Launches, weights: frozenset[str]) -> Launches:
    """Launches with the inputs of these names marked as weights, which nothing writes."""

    def own(kernel: Kernel) -> Kernel:
        spaces = {one: Space.WEIGHTS if one.name in weights else Space.ARENA for one in kernel.inputs}
        return with_buffers(kernel, {one.name: replace(one, space=space) for one, space in spaces.items()})

    return replace(found, launches=tuple(replace(one, kernel=own(one.kernel)) for one in found.launches))


def with_ready(found: Launches) -> Launches:
    """Launches that wait for earlier ones themselves, as late as possible."""
    return replace(found, launches=tuple(map(_ready, found.launches)))


def with_short_ready(found: Launches) -> Launches:
    """The same for short launches only, of whose time barriers take much."""
    return replace(found, launches=tuple(_ready(one) if one.is_short else one for one in found.launches))


def _ready(one: Launch) -> Launch:
    return replace(one, kernel=_waiting(one.kernel))


def with_late_guards(found: Launches) -> Launches:
    """Launches that check for an earlier failure only before they write, where reading is safe without the check."""
    return replace(found, launches=tuple(replace(one, kernel=_late(one.kernel)) for one in found.launches))


def _late(kernel: Kernel) -> Kernel:
    """Reading without the check is safe if no index depends on data."""
    (*first, loop) = kernel.body
    if isinstance(loop, For) and loop.bind is Bind.TEAM and _is_known(loop):
        # No earlier launch still runs, so either all groups of a team end there, or none.
        inside = _late(replace(kernel, body=loop.body))
        return replace(kernel, body=(*first, replace(loop, body=inside.body)))
    if not isinstance(loop, For) or loop.bind is not Bind.GROUP or not _is_known(loop) or kernel.can_fail:
        return kernel
    *memory, threads = loop.body
    if not isinstance(threads, For) or threads.bind is not Bind.THREAD or any(map(_is_indexed, walk(threads.body))):
        return kernel
    place = next((at for at, one in enumerate(threads.body) if _writes(one)), 0)
    if place == 0:
        return kernel
    inner = replace(threads, body=(*threads.body[:place], Unfailed(), *threads.body[place:]))
    return replace(kernel, body=(*first, replace(loop, body=(*memory, inner))))


def _is_indexed(one: Statement) -> bool:
    """Whether an index or a loop bound depends, or might depend, on values in memory."""
    places = [part.index for value in scalars(one) for part in visit(value) if isinstance(part, Load)]
    places += [one.index] if isinstance(one, Store | WideLoad | WideStore) else []
    if isinstance(one, Let | Local | SetLocal) and one.var.dtype is INDEX:
        places.append((one.value,))
    if isinstance(one, For):
        places.append((one.extent,))
    if isinstance(one, While):
        return True
    return any(isinstance(part, Load | Cast) for where in places for at in where for part in visit(at))


def _writes(one: Statement) -> bool:
    """Whether a statement writes what others may see: memory outside of the group, or values that groups exchange."""
    inside = (Space.OWN, Space.GROUP)
    return any(
        isinstance(part, Exchange) or (isinstance(part, Store | WideStore) and part.buffer.space not in inside)
        for part in walk((one,))
    )


def _waiting(kernel: Kernel) -> Kernel:
    body = kernel.body
    if len(body) == 1 and isinstance(body[0], For) and body[0].bind is Bind.GROUP and _is_known(body[0]):
        group = body[0]
        *memory, threads = group.body
        if isinstance(threads, For) and threads.bind is Bind.THREAD and all(isinstance(one, Alloc) for one in memory):
            count = _ahead(threads.body)
            if count:
                ahead = tuple(map(_marked, threads.body[:count]))
                inner = replace(threads, body=(*ahead, Ready(), *threads.body[count:]))
                return replace(kernel, body=(replace(group, body=(*memory, inner)),))
    return replace(kernel, body=(Ready(), *body))


def _is_known(loop: For) -> bool:
    """Whether every thread enters the loop."""
    return isinstance(loop.extent, Const) and type(loop.extent.value) is int and loop.extent.value > 0


def _ahead(body: Statements) -> int:
    """The number of statements that can run before the launch waits, the last of them a load."""
    last = 0
    for place, one in enumerate(body):
        if not _is_early(one):
            break
        if isinstance(one, WideLoad) or any(isinstance(part, Load) for value in scalars(one) for part in visit(value)):
            last = place + 1
    return last


def _is_early(one: Statement) -> bool:
    if not isinstance(one, Let | WideLoad) or (isinstance(one, WideLoad) and not _is_constant(one.buffer)):
        return False
    loads = (part.buffer for value in scalars(one) for part in visit(value) if isinstance(part, Load))
    return all(map(_is_constant, loads))


def _is_constant(buffer: Buffer) -> bool:
    return buffer.space is Space.WEIGHTS


def _marked(one: Statement) -> Statement:
    return replace(one, is_ahead=True) if isinstance(one, WideLoad) else one
