"""The functions that steps call to move memory: C's own, or those for device memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from openinfer.synth.program.ir import Action


def _tables() -> Mapping[Action, str]:
    return {Action.READ: "oi_table_read", Action.WRITE: "oi_table_write", Action.RESET: "oi_table_reset"}


@dataclass(frozen=True)
class MemoryCalls:
    """The names of functions that do the same on every target."""

    queue: str = ""
    """The first argument of each, with a comma: the queue that records launches."""
    copy: str = "memcpy"
    tables: Mapping[Action, str] = field(default_factory=_tables)
    """Functions that access a slice of a table."""
    clear: str = "oi_table_clear"
    """Resets a whole table to its initial state."""
    folds: bool = False
    """Whether accesses that are always in bounds bypass the functions for tables, for smaller code."""
    part: str = "oi_tensor_part"
    """Accesses a slice of a tensor."""
