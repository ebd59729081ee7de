"""What a lowering sees of its operands: elements in the compute type, whatever is stored."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from openinfer.dtypes import DType
from openinfer.loops.build import Builder, Position, broadcast_index, cast, load
from openinfer.loops.ir import Buffer, Scalar
from openinfer.ops.record import OPS, Call

Dequantize: TypeAlias = Callable[[Scalar, tuple[Position, ...]], Scalar]
"""A stored integer, and where it stands, to the real number it means."""


@dataclass(frozen=True)
class ElementQuantization:
    """What the model stores to make a real number of an element."""

    scale: Scalar
    zero: Scalar | None = None
    offset: Scalar | None = None


Quantization: TypeAlias = Callable[[tuple[Position, ...]], ElementQuantization]
"""What the model stores for an element, by where it stands."""


@dataclass(frozen=True)
class Groups:
    """Runs of elements along an axis that share a scale."""

    axis: int
    size: int
    dequantize: Dequantize
    """As that of the input, by the position of the group."""


@dataclass(frozen=True)
class KernelInput:
    """An input of a kernel. ``dtype`` is what the op takes it for; ``dequantize`` makes that of what is stored."""

    buffer: Buffer
    dtype: DType
    dequantize: Dequantize | None = None
    quantization: Quantization | None = None
    """Only of a tensor of the model that stands for real numbers; asking makes its parameters inputs of the kernel."""
    groups: Groups | None = None
    """Of an input that is dequantized in groups."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents; they may be symbolic."""
        return self.buffer.shape

    def __getitem__(self, where: Position | tuple[Position, ...]) -> Scalar:
        """An element in the compute type of the op's dtype."""
        place = where if isinstance(where, tuple) else (where,)
        value: Scalar = load(self.buffer, *place)
        if self.dequantize is not None:
            value = self.dequantize(value, place)
        return cast(value, self.dtype.compute)

    def in_group(self, where: tuple[Position, ...], group: tuple[Position, ...]) -> Scalar:
        """An element whose group is known; ``group`` says where it is among the groups."""
        assert self.groups is not None
        value = self.groups.dequantize(load(self.buffer, *where), group)
        return cast(value, self.dtype.compute)

    def at(self, where: tuple[Position, ...]) -> Scalar:
        """The element that broadcasts to a position of the result."""
        return self[broadcast_index(where, self.shape)]


Lowering: TypeAlias = Callable[[Call, Builder, tuple[KernelInput | None, ...], tuple[Buffer, ...]], None]
"""Writes the loops of one call: inputs are read through operands, outputs are stored to buffers."""

LOWERINGS: dict[str, Lowering] = {}
"""The lowering of every op, by the op's name."""


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Make a function the lowering of ops."""

    def register(lowering: Lowering) -> Lowering:
        for name in names:
            own = OPS[name].name
            assert own not in LOWERINGS, own
            LOWERINGS[own] = lowering
        return lowering

    return register
