"""Kernels that only put the elements of a tensor into another order: what the rules about them share."""

from openinfer.loops.ir import Buffer, Load, Scalar
from openinfer.synth.passes.fuse.pointwise import Pointwise, expression
from openinfer.synth.program.refusal import Refusal

ScalarCoordinates = tuple[Scalar, ...]

_LINE = 64
"""Shorter rows, in bytes, are read faster when contiguous: whole cache lines are used."""
SHORT_ROWS = Refusal("rows are shorter than {} bytes", (_LINE,))


def has_long_rows(buffer: Buffer) -> bool:
    """Whether a row is at least as long as a cache line."""
    return bool(buffer.shape) and buffer.dtype.nbytes(int(buffer.shape[-1])) >= _LINE


def moved_element(form: Pointwise, like: Buffer) -> Load | None:
    """The element that a kernel only moves, if that is all it does, and leaves its type as it is."""
    source = expression(form)
    return source if isinstance(source, Load) and source.buffer.dtype is like.dtype else None
