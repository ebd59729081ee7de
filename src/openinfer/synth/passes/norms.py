"""Lowers batch norms whose statistics are in the model to a product and a sum per channel.

``(x - mean) / sqrt(var + eps) * gamma + beta`` has a division per element. With ``a = gamma / sqrt(var + eps)`` and ``b
= beta - mean * a``, computed here in f64, ``x * a + b`` rounds differently but stays within the op's error bound. It
can then be fused into the convolution or product before it, like a bias.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from openinfer.dtypes import DTYPES, Array
from openinfer.loops.build import Builder, load
from openinfer.loops.ir import Buffer, Kernel, LoopKind
from openinfer.ops.shapes import axis_of
from openinfer.synth.program.ir import FOLDED, KernelStep, Program, StepOperand, Weight
from openinfer.tensor import Tensor

_NAME = "batch_norm"
_TYPES = (DTYPES["f32"], DTYPES["f64"])
_DOC = (
    "Each channel with a given mean and variance, `y = x * a + b`.",
    "`a = gamma / sqrt(var + eps)` and `b = beta - mean * a` are computed beforehand; the bound of the op covers it.",
)


def folded_norm(
    program: Program, step: KernelStep, array: Callable[[StepOperand], Array | None]
) -> tuple[KernelStep, dict[str, Tensor]] | None:
    """The replacement of a batch norm step, and the tensors that it reads; None for other steps.

    ``array`` returns the constant value of an operand, if the model has one.
    """
    own = program.bound.ops.get(step.node)
    if own is None or own.call is None or own.record.name != _NAME or not step.kernel.inputs:
        return None  # a step that fills its operand beforehand belongs to the node, too
    x, out = step.kernel.inputs[0], step.kernel.outputs[0]
    if any(buffer.dtype is not x.dtype for buffer in (*step.kernel.inputs, out)) or x.dtype not in _TYPES:
        return None
    known = [array(operand) for operand in step.inputs[1:]]
    arrays = [one.astype(np.float64) for one in known if one is not None]
    if len(arrays) != len(known) or len(arrays) != len(step.kernel.inputs) - 1:
        return None
    factors = _factors(arrays, own.call.params["eps"])
    tensors = [one.astype(x.dtype.array) for one in factors]
    if not all(np.isfinite(one).all() for one in tensors):
        return None
    names = [f"node {step.node}, {part}" for part in ("factors", "shifts")]
    kernel = _kernel(x, out, axis_of(own.call.params["axis"], len(x.shape)))
    weights = [Weight((name,), x.dtype, one.shape, part=FOLDED) for name, one in zip(names, tensors, strict=True)]
    made = {name: Tensor.from_numpy(one, x.dtype) for name, one in zip(names, tensors, strict=True)}
    return replace(step, kernel=kernel, inputs=(step.inputs[0], *weights)), made


def _factors(arrays: list[Array], eps: float) -> tuple[Array, Array]:
    gamma, beta, mean, var = arrays
    with np.errstate(all="ignore"):
        factor = gamma / np.sqrt(var + eps)
        return factor, beta - mean * factor


def _kernel(x: Buffer, out: Buffer, axis: int) -> Kernel:
    a, b = (Buffer(name, x.dtype, (x.shape[axis],)) for name in ("a", "b"))
    builder = Builder()
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        channel = where[axis]
        builder.store(out, where, load(x, *where) * load(a, channel) + load(b, channel))
    return Kernel(_NAME, (x, a, b), (out,), builder.body, _DOC)
