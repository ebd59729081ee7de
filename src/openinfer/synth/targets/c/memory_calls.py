"""What is called where a step moves memory: C's own functions, unless memory is a device's."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from openinfer.synth.program.ir import Action


def _tables() -> Mapping[Action, str]:
    return {Action.READ: "oi_table_read", Action.WRITE: "oi_table_write", Action.RESET: "oi_table_reset"}


@dataclass(frozen=True)
class MemoryCalls:
    """The names of functions that do the same on every target."""

    queue: str = ""
    """The first argument of each, with a comma: what launches are recorded in."""
    copy: str = "memcpy"
    tables: Mapping[Action, str] = field(default_factory=_tables)
    """Works on a part of a table."""
    clear: str = "oi_table_clear"
    """All of a table as it was in the beginning."""
    folds: bool = False
    """Whether what is always inside a table is copied without the functions for tables: code is small then."""
    part: str = "oi_tensor_part"
    """Works on a part of a tensor."""
