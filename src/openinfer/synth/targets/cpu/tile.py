"""How a processor computes a contraction: in tiles of sums that stay in vector registers."""

from dataclasses import dataclass, field
from typing import Any, Literal

from openinfer.loops.ir import Buffer, Contraction, Template


@dataclass(frozen=True)
class CpuTile(Template):
    """How a contraction is computed in tiles of sums that stay in registers.

    ``left`` is memory for ``block`` rows of the factor with the rows, ``right`` for one panel of the other; without
    them the factors are read where they lie. With ``is_left_converted`` the rows of a tile are copied just before they
    are multiplied: floats of 16 bits become wider ones. With ``is_direct`` only an incomplete panel is copied. With
    ``has_panels`` the other factor already is in panels: ``[..., panel, inner index, column in the panel]``. With
    ``is_transposed`` rows are contiguous in the result, not columns; they are windows then, and so they are with
    ``has_windows``. Of a kernel in several parts, ``divided`` says
    what each part has a share of.

    Of bytes, four inner indices form a group: ``[..., row, inner index]`` without ``left``, and ``[..., panel, group,
    column in the panel, inner index in the group]``. ``lines`` is memory for a panel before it is in groups. With
    ``is_flipped`` the bytes of the rows have the other sign, which is corrected in the result. With ``widened`` rows or
    columns are copied as 16 bits, in ``left`` or in ``right``, and the bytes of the other factor are in panels.
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
    """What should be divided, if anything is, where that was measured; None leaves it to the rule."""
    gain: float | None = field(default=None, compare=False)
    """How many times as fast as by rule the tile was measured to be; None where a rule chose it."""

    @property
    def text(self) -> str:
        """The tile in words, as part of a kernel's text."""
        found = f"in tiles of {self.rows} x {self.columns} by {self.lanes}"
        found += ", transposed," if self.is_transposed else " of windows" if self.has_windows else ""
        found += " of columns as they lie" if self.is_direct else ""
        return found if self.divided is None else f"{found} with {self.divided} divided"

    @property
    def memory(self) -> tuple[Buffer, ...]:
        """The memory that it uses, which is allocated before the contraction."""
        return tuple(one for one in (self.left, self.right, self.lines) if one is not None)

    @property
    def reads_windows(self) -> bool:
        """Whether rows are windows, which are read where they lie."""
        return self.is_transposed or self.has_windows

    @property
    def prepares_factors(self) -> bool:
        """Bytes change their sign beforehand, or as they are copied."""
        return self.is_flipped

    @property
    def facts(self) -> dict[str, Any]:
        """The tile in a plan, and what chose it: a rule, or measuring, with what was gained by it."""
        return {
            "rows": self.rows,
            "columns": self.columns,
            "divided": self.divided,
            "chosen_by": "rule" if self.gain is None else "measurement",
            "gain": self.gain,
        }


def tile_of(one: Contraction) -> CpuTile | None:
    """The tile of a contraction that is computed in tiles."""
    return one.template if isinstance(one.template, CpuTile) else None
