"""Records where the values of a draft are computed and last read, once for every way to cut it into layers."""

from collections.abc import Mapping
from dataclasses import dataclass

from openinfer.importing.draft import Draft, DraftOp, DraftOperand, base_of, operands, walk


@dataclass(frozen=True)
class DraftReads:
    """The last step that reads each value and the op that computes it, by the id of the value."""

    last: Mapping[int, int]
    computed: Mapping[int, int]

    def is_read_from(self, value: DraftOperand, place: int) -> bool:
        """Whether a step at or after a position reads a value; outputs come after all steps."""
        return self.last.get(id(value), -1) >= place

    def is_computed_before(self, value: DraftOperand, place: int) -> bool:
        """Whether an op before a position computes a value."""
        return self.computed.get(id(value), place) < place


def reads_of(draft: Draft) -> DraftReads:
    """Record all reads in one pass."""
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
