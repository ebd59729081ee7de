"""How a processor computes a contraction: in tiles of accumulators that stay in vector registers."""

from dataclasses import dataclass, field
from typing import Any, Literal

from openinfer.loops.ir import Buffer, Contraction, Template


@dataclass(frozen=True)
class CpuTile(Template):
    """A contraction in tiles of accumulators that stay in registers.

    ``left`` is memory for ``block`` rows of the factor with the rows, ``right`` for one panel of the other; without
    them the factors are read in place. With ``is_left_converted`` the rows of a tile are copied just before they are
    multiplied, which widens 16-bit floats. With ``is_direct`` only an incomplete panel is copied. With ``has_panels``
    the other factor is already stored in panels: ``[..., panel, inner index, column in the panel]``. With
    ``is_transposed`` rows rather than columns are contiguous in the result; rows are windows then, as with
    ``has_windows``. ``divided`` says what the parts of a kernel partition.

    Bytes: four inner indices form a group: ``[..., row, inner index]`` without ``left``, and ``[..., panel, group,
    column in the panel, inner index in the group]``. ``lines`` is memory for a panel before it is grouped. With
    ``is_flipped`` the bytes of the rows have their sign bit flipped, which is corrected in the result. With ``widened``
    rows or columns are copied as 16-bit values, to ``left`` or ``right``, and the bytes of the other factor are in
    panels.
    """

    rows: int
    columns: int
    lanes: int
    block: int = 0
    has_panels: bool = False
    is_direct: bool = False
    is_transposed: bool = False
    has_windows: bool = False
    left: Buffer | None = None
    is_left_converted: bool = False
    right: Buffer | None = None
    divided: Literal["rows", "columns"] | None = None
    lines: Buffer | None = None
    is_flipped: bool = False
    widened: Literal["rows", "columns"] | None = None
    wanted: Literal["rows", "columns"] | None = field(default=None, compare=False)
    """What to partition, if anything, according to a measurement; None leaves it to the rules."""
    gain: float | None = field(default=None, compare=False)
    """The measured speedup over the rule's tile; None if a rule chose this one."""

    @property
    def text(self) -> str:
        """The tile in words, as part of a kernel's text."""
        found = f"in tiles of {self.rows} x {self.columns} by {self.lanes}"
        found += ", transposed," if self.is_transposed else " of windows" if self.has_windows else ""
        found += " of columns in place" if self.is_direct else ""
        return found if self.divided is None else f"{found} with {self.divided} divided"

    @property
    def memory(self) -> tuple[Buffer, ...]:
        """The scratch memory it uses, allocated before the contraction."""
        return tuple(one for one in (self.left, self.right, self.lines) if one is not None)

    @property
    def reads_windows(self) -> bool:
        """Whether rows are windows, read in place."""
        return self.is_transposed or self.has_windows

    @property
    def prepares_factors(self) -> bool:
        """Whether bytes are flipped ahead of time, or as they are copied."""
        return self.is_flipped

    @property
    def facts(self) -> dict[str, Any]:
        """The tile in a plan, with what chose it (a rule or a measurement) and the measured gain."""
        return {
            "rows": self.rows,
            "columns": self.columns,
            "divided": self.divided,
            "chosen_by": "rule" if self.gain is None else "measurement",
            "gain": self.gain,
        }


def tile_of(one: Contraction) -> CpuTile | None:
    """The tile of a contraction, if it has one."""
    return one.template if isinstance(one.template, CpuTile) else None
