"""Factors of contractions that are stored in few bits: integers, or 16-bit floats.

Integers stand for ``(integer - zero) * scale``, with ``zero`` and ``scale`` constant along the sum: such a scale is in
the epilogue (``openinfer.loops.scales``).
"""

from dataclasses import dataclass
from math import prod

from openinfer.loops.affine import variables
from openinfer.loops.ir import Binary, Buffer, Cast, Contraction, Load, Scalar
from openinfer.loops.scales import LEAST, is_outside

STORED = ("i8", "u8", "i4", "u4")
"""Integers that panels can store unchanged: they are converted where they are multiplied."""
HALVES = ("f16", "bf16")
"""Floats that panels can store unchanged, in the same way."""
SCALES = ("f32", "f16")
"""The dtypes of group scales that vectors can load."""


@dataclass(frozen=True)
class GroupScales:
    """The scale of integers and the offset that is then added: both are the same for all terms of a group."""

    size: int
    """The number of terms in a group."""
    scale: Load
    offset: Load | None

    @property
    def loads(self) -> tuple[Load, ...]:
        """The scale, and the offset if there is one."""
        return (self.scale,) if self.offset is None else (self.scale, self.offset)


@dataclass(frozen=True)
class Integers:
    """A factor that is a stored integer minus a value that depends on no index or only on free indices.

    With ``groups`` it is multiplied with a value that changes from group to group along the sum.
    """

    zero: Scalar | None
    groups: GroupScales | None = None


def are_half_floats(one: Contraction, buffer: Buffer) -> bool:
    """Whether a factor is unconverted 16-bit floats, with 32-bit accumulators."""
    value = one.a_value if buffer == one.a else one.b_value
    return value is None and buffer.dtype.name in HALVES and one.accumulator.name == "f32"


def integers_of(one: Contraction, buffer: Buffer) -> Integers | None:
    """A factor as stored integers; None if it is something else."""
    value = one.a_value if buffer == one.a else one.b_value
    if (
        value is None
        or buffer.dtype.name not in STORED
        or one.accumulator.name != "f32"
        or prod(map(int, one.reduced)) < LEAST
    ):
        return None
    grouped = _in_groups(value, one)
    match value if grouped is None else grouped[0]:
        case Cast(Load(own)) if own == buffer and grouped is not None:
            return Integers(None, grouped[1])
        case Binary("sub", Cast(Load(own)), zero) if own == buffer and is_outside(zero, one):
            return None if grouped is not None else Integers(zero)
        case Cast(Load(own)) if own == buffer:
            return Integers(None)
        case _:
            return None


def _in_groups(value: Scalar, one: Contraction) -> tuple[Scalar, GroupScales] | None:
    """An integer and its scales, if these change only with the first of two inner indices."""
    offset: Scalar | None = None
    match value:
        case Binary("add", Binary("mul", number, scale), offset):
            pass
        case Binary("mul", number, scale):
            pass
        case _:
            return None
    if len(one.bound) != 2 or not isinstance(scale, Load) or not isinstance(offset, Load | None):
        return None
    found = GroupScales(int(one.reduced[1]), scale, offset)
    inner = {var.name for var in one.bound}
    first = one.bound[0].name
    is_known = all(own.buffer.dtype.name in SCALES and variables(own) & inner == {first} for own in found.loads)
    return (number, found) if is_known else None
