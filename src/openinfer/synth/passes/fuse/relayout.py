"""Kernels that only put the elements of a tensor into another order: what the rules about them share."""

from openinfer.loops.ir import Buffer, Load, Scalar
from openinfer.synth.passes.fuse.pointwise import Pointwise, expression, pointwise_form
from openinfer.synth.program.ir import KernelStep, Weight
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


def widened_element(form: Pointwise, like: Buffer) -> Load | None:
    """The element that a kernel only makes wider, if that is all it does: as code reads it, it already is."""
    source = expression(form)
    if not isinstance(source, Load):
        return None
    stored = source.buffer.dtype
    return source if stored.kind == "float" and stored is not like.dtype and stored.compute is like.dtype else None


def reads_weight(call: KernelStep) -> bool:
    """Whether a call reads a tensor of the model, and nothing else."""
    return len(call.inputs) == 1 and isinstance(call.inputs[0], Weight)


def widens_weight(call: KernelStep) -> bool:
    """Whether a call only makes the elements of a tensor of the model wider."""
    form = pointwise_form(call.kernel) if reads_weight(call) else None
    return form is not None and widened_element(form, call.kernel.outputs[0]) is not None
