"""Where the values of a draft are computed and last read, so that every way to cut it into layers asks only once."""

from collections.abc import Mapping
from dataclasses import dataclass

from openinfer.importing.draft import Draft, DraftOp, DraftOperand, base_of, operands, walk


@dataclass(frozen=True)
class DraftReads:
    """Of values by their identity: the last step that reads each, and the op that computes it."""

    last: Mapping[int, int]
    computed: Mapping[int, int]

    def is_read_from(self, value: DraftOperand, place: int) -> bool:
        """Whether a step at a place or behind it reads a value; outputs stand behind all steps."""
        return self.last.get(id(value), -1) >= place

    def is_computed_before(self, value: DraftOperand, place: int) -> bool:
        """Whether an op in front of a place computes a value."""
        return self.computed.get(id(value), place) < place


def reads_of(draft: Draft) -> DraftReads:
    """One pass over all steps."""
    last: dict[int, int] = {}
    computed: dict[int, int] = {}
    for place, step in enumerate(draft.steps):
        for inner in walk((step,)):
            for one in operands(inner):
                last[id(base_of(one))] = place
        if isinstance(step, DraftOp) and step.declares:
            computed |= {id(one): place for one in step.outputs}
    for port in draft.outputs:
        last[id(base_of(port.operand))] = len(draft.steps)
    return DraftReads(last, computed)
