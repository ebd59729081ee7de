"""The ledger of fusion: which kernels were joined, which were not, and why."""

from dataclasses import dataclass

from openinfer.synth.program.refusal import Refusal


@dataclass(frozen=True)
class LedgerEntry:
    """Two nodes of which one reads what the other computes: the bytes that need no memory, or why they were not joined.

    >>> LedgerEntry(3, 5, (Refusal("a barrier lies between them"),)).reason
    'a barrier lies between them'
    """

    producer: int
    consumer: int
    refusals: tuple[Refusal, ...] = ()
    """Why they are not joined: what keeps them apart, or else what each of the rules lacks."""
    bytes_saved: int = 0

    @property
    def is_fused(self) -> bool:
        """Whether they are one kernel."""
        return not self.refusals

    @property
    def reason(self) -> str:
        """Why (not), in words."""
        return "; ".join(refusal.text for refusal in self.refusals) or "one kernel"


@dataclass(frozen=True)
class InexactNode:
    """A node that is computed in a way which its op's bound does not cover, because the user allows it."""

    node: int
    form: str
    """How it is computed."""
    bound: str
    """How far from the exact result its results were found to be at most."""


class Ledger:
    """The entries: of each body what was joined, in that order, and then what is left apart."""

    def __init__(self) -> None:
        self._entries: list[LedgerEntry] = []
        self._refused: set[LedgerEntry] = set()

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Everything so far."""
        return tuple(self._entries)

    def fused(self, producer: int, consumer: int, bytes_saved: int) -> None:
        """Two nodes were joined."""
        self._entries.append(LedgerEntry(producer, consumer, bytes_saved=bytes_saved))

    def refused(self, producer: int, consumer: int, refusals: tuple[Refusal, ...]) -> None:
        """Two nodes were not joined; said once, however many values are between them."""
        entry = LedgerEntry(producer, consumer, refusals)
        if entry not in self._refused:
            self._refused.add(entry)
            self._entries.append(entry)
