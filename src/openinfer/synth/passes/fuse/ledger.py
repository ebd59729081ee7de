"""The fusion ledger: which kernels were fused, which were not, and why."""

from dataclasses import dataclass

from openinfer.synth.program.refusal import Refusal


@dataclass(frozen=True)
class LedgerEntry:
    """A producer and a reader of its result: the bytes of memory saved by fusing them, or why they were not fused.

    >>> LedgerEntry(3, 5, (Refusal("a barrier lies between them"),)).reason
    'a barrier lies between them'
    """

    producer: int
    consumer: int
    refusals: tuple[Refusal, ...] = ()
    """Why they are not fused: the constraint that keeps them apart, or else why each rule does not apply."""
    bytes_saved: int = 0

    @property
    def is_fused(self) -> bool:
        """Whether they are one kernel."""
        return not self.refusals

    @property
    def reason(self) -> str:
        """The reason, in words."""
        return "; ".join(refusal.text for refusal in self.refusals) or "one kernel"


@dataclass(frozen=True)
class InexactNode:
    """A node that is computed outside its op's error bound, because the user allows it."""

    node: int
    form: str
    """The method of computation."""
    bound: str
    """The largest measured deviation from the exact result."""


class Ledger:
    """Collects entries: for each body first what was fused, in that order, then what was not."""

    def __init__(self) -> None:
        self._entries: list[LedgerEntry] = []
        self._refused: set[LedgerEntry] = set()

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries so far."""
        return tuple(self._entries)

    def fused(self, producer: int, consumer: int, bytes_saved: int) -> None:
        """Record that two nodes were fused."""
        self._entries.append(LedgerEntry(producer, consumer, bytes_saved=bytes_saved))

    def refused(self, producer: int, consumer: int, refusals: tuple[Refusal, ...]) -> None:
        """Record that two nodes were not fused; once, however many values connect them."""
        entry = LedgerEntry(producer, consumer, refusals)
        if entry not in self._refused:
            self._refused.add(entry)
            self._entries.append(entry)
