"""The ledger of fusion: which kernels were joined, which were not, and why."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LedgerEntry:
    """Two nodes, whether they were joined, why (not), and the bytes that need no memory."""

    producer: int
    consumer: int
    is_fused: bool
    reason: str
    bytes_saved: int = 0


class Ledger:
    """The entries in the order in which kernels are tried; a refusal is said once, however often it is tried again."""

    def __init__(self) -> None:
        self._entries: list[LedgerEntry] = []
        self._refused: set[LedgerEntry] = set()

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Everything so far."""
        return tuple(self._entries)

    def fused(self, producer: int, consumer: int, bytes_saved: int) -> None:
        """Two nodes were joined."""
        entry = LedgerEntry(producer, consumer, is_fused=True, reason="one kernel", bytes_saved=bytes_saved)
        self._entries.append(entry)

    def refused(self, producer: int, consumer: int, reason: str) -> None:
        """Two nodes were not joined."""
        entry = LedgerEntry(producer, consumer, is_fused=False, reason=reason)
        if entry not in self._refused:
            self._refused.add(entry)
            self._entries.append(entry)
