"""Repeated layers as one loop: the same ops once, weights in prefix tables, caches with an index for the layer."""

from dataclasses import replace

from openinfer.importing.draft import Draft, DraftLoop, walk
from openinfer.importing.identifiers import Identifiers
from openinfer.importing.layers.build import Built, LoopBuilder
from openinfer.importing.layers.memory import with_layered_states
from openinfer.importing.layers.repeats import Repeat, repeats, signatures, with_first

_MOST_LOOPS = 16


def with_loops(draft: Draft) -> Draft:
    """The draft with its repeated layers as loops."""
    indices = Identifiers(step.index for step in walk(draft.steps) if isinstance(step, DraftLoop))
    index = indices.unique("l")  # one for all: loops over layers do not contain each other
    for _ in range(_MOST_LOOPS):
        found = _with_best(draft, index)
        if found is None:
            break
        draft = found
    return with_layered_states(draft)


def _with_best(draft: Draft, index: str) -> Draft | None:
    """The draft with the loop that leaves out most and carries least, or None where there is none."""
    numbers = signatures(draft.steps)
    best: tuple[tuple[int, ...], Built] | None = None
    for repeat in repeats(numbers):
        if best is not None and repeat.saved + repeat.period < -best[0][0]:
            break
        for candidate, own in _variants(draft, numbers, repeat):
            built = LoopBuilder(candidate, own.start, own.period, own.count).build(index)
            if built is not None and (best is None or _score(own, built) < best[0]):
                best = (_score(own, built), built)
    if best is None:
        return None
    for value, hint in best[1].hints:
        value.hint = hint
    return best[1].draft


def _score(repeat: Repeat, built: Built) -> tuple[int, ...]:
    return (-repeat.saved, built.carried, built.nameless, repeat.start)


def _variants(draft: Draft, numbers: list[int], repeat: Repeat) -> list[tuple[Draft, Repeat]]:
    """The repeat as it is, and with one more window in front."""
    longer = with_first(draft.steps, numbers, repeat)
    own = [(draft, repeat)]
    if longer is not None:
        own.insert(0, (replace(draft, steps=tuple(longer[0])), longer[1]))
    return own
