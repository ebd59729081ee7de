"""What a launch may do while earlier launches still run: only read memory that none of them writes."""

from collections.abc import Iterator, Sequence

from openinfer.loops.ir import (
    Bind,
    Fail,
    For,
    If,
    Kernel,
    Load,
    Ready,
    Space,
    Statement,
    Store,
    WideLoad,
    WideStore,
    bodies,
    scalars,
    visit,
    walk,
)

_OWN = (Space.OWN, Space.GROUP)


def early_problems(kernel: Kernel) -> Iterator[str]:
    """The problems, in words, of a launch that waits for earlier launches itself."""
    count = _waits(kernel.body)
    if count:
        yield from _before(kernel.body)
    if count > 1:
        yield f"a launch waits {count} times for those before it"


def _waits(body: Sequence[Statement]) -> int:
    """How often a thread waits at most."""
    return sum(isinstance(one, Ready) or max(map(_waits, bodies(one)), default=0) for one in body)


def _before(body: Sequence[Statement]) -> Iterator[str]:
    """The problems of the statements up to the wait, which all threads must reach."""
    for one in body:
        if isinstance(one, Ready):
            return
        if isinstance(one, If) and _waits((one,)):
            yield from dict.fromkeys((*_before(one.then), *_before(one.otherwise)))
            return
        if _waits((one,)):
            if not isinstance(one, For) or one.bind not in (Bind.GROUP, Bind.THREAD):
                yield "not every thread waits for the launches before"
                return
            yield from _before(one.body)
            return
        yield from _touched(one)
    yield "not every thread waits for the launches before"


def _touched(one: Statement) -> Iterator[str]:
    for part in walk((one,)):
        loads = [each.buffer for value in scalars(part) for each in visit(value) if isinstance(each, Load)]
        if isinstance(part, WideLoad):
            loads.append(part.buffer)
        for buffer in loads:
            if buffer.space not in (Space.WEIGHTS, *_OWN):
                yield f"'{buffer.name}' is read before the launches that may write it have ended"
        if isinstance(part, Store | WideStore) and part.buffer.space not in _OWN:
            yield f"'{part.buffer.name}' is written before the launches that may read it have ended"
        if isinstance(part, Fail):
            yield "a launch fails before it knows whether an earlier one has"
