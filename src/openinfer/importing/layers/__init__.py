"""Rolls repeated layers into loops: ops appear once, weights in prefix tables, caches with a layer index."""

from dataclasses import replace

from openinfer.importing.draft import Draft, DraftLoop, walk
from openinfer.importing.identifiers import Identifiers
from openinfer.importing.layers.build import LoopBuilder, LoopCost
from openinfer.importing.layers.memory import with_layered_states
from openinfer.importing.layers.reads import reads_of
from openinfer.importing.layers.repeats import Repeat, repeats, signatures, with_first

_MOST_LOOPS = 16


def with_loops(draft: Draft) -> Draft:
    """The draft with its repeated layers rolled into loops."""
    indices = Identifiers(step.index for step in walk(draft.steps) if isinstance(step, DraftLoop))
    index = indices.unique("l")  # one for all: loops over layers do not nest
    for _ in range(_MOST_LOOPS):
        found = _with_best(draft, index)
        if found is None:
            break
        draft = found
    return with_layered_states(draft)


def _with_best(draft: Draft, index: str) -> Draft | None:
    """The draft with the loop that saves the most steps and carries the least, or None if there is none."""
    numbers = signatures(draft.steps)
    reads = reads_of(draft)
    best: tuple[tuple[int, ...], LoopBuilder] | None = None
    for repeat in repeats(numbers):
        if best is not None and repeat.saved + repeat.period < -best[0][0]:
            break
        for candidate, own in _variants(draft, numbers, repeat):
            builder = LoopBuilder(candidate, reads if candidate is draft else reads_of(candidate), own)
            cost = builder.plan(index)
            if cost is not None and (best is None or _score(own, cost) < best[0]):
                best = (_score(own, cost), builder)
    return None if best is None else best[1].build()


def _score(repeat: Repeat, cost: LoopCost) -> tuple[int, ...]:
    return (-repeat.saved, cost.carried, cost.nameless, repeat.start)


def _variants(draft: Draft, numbers: list[int], repeat: Repeat) -> list[tuple[Draft, Repeat]]:
    """The repeat, preceded by a variant with one more window in front if there is one."""
    longer = with_first(draft.steps, numbers, repeat)
    own = [(draft, repeat)]
    if longer is not None:
        own.insert(0, (replace(draft, steps=tuple(longer[0])), longer[1]))
    return own
