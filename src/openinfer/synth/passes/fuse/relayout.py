"""What the rules share about kernels that only reorder the elements of a tensor."""

from openinfer.loops.ir import Buffer, Load, Scalar
from openinfer.synth.passes.fuse.pointwise import Pointwise, expression, pointwise_form
from openinfer.synth.program.ir import KernelStep, Weight
from openinfer.synth.program.refusal import Refusal

ScalarCoordinates = tuple[Scalar, ...]

_LINE = 64
"""In bytes. Shorter rows are faster to read when contiguous, as whole cache lines are used."""
SHORT_ROWS = Refusal("rows are shorter than {} bytes", (_LINE,))


def has_long_rows(buffer: Buffer) -> bool:
    """Whether a row is at least as long as a cache line."""
    return bool(buffer.shape) and buffer.dtype.nbytes(int(buffer.shape[-1])) >= _LINE


def moved_element(form: Pointwise, like: Buffer) -> Load | None:
    """The source element of a kernel that only moves elements, without changing their dtype."""
    source = expression(form)
    return source if isinstance(source, Load) and source.buffer.dtype is like.dtype else None


def widened_element(form: Pointwise, like: Buffer) -> Load | None:
    """The source element of a kernel that only widens elements, as a load from the stored dtype does anyway."""
    source = expression(form)
    if not isinstance(source, Load):
        return None
    stored = source.buffer.dtype
    return source if stored.kind == "float" and stored is not like.dtype and stored.compute is like.dtype else None


def reads_weight(call: KernelStep) -> bool:
    """Whether a call reads one model tensor and nothing else."""
    return len(call.inputs) == 1 and isinstance(call.inputs[0], Weight)


def widens_weight(call: KernelStep) -> bool:
    """Whether a call only widens the elements of a model tensor."""
    form = pointwise_form(call.kernel) if reads_weight(call) else None
    return form is not None and widened_element(form, call.kernel.outputs[0]) is not None
