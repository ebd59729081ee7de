"""Fourier transforms."""

import numpy as np

from openinfer.importing.draft import DraftOperand, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.loops.dim import is_same


@onnx_op("DFT")
def _dft(n: NodeContext) -> NodeResults:
    """The last axis has extent 1 for real numbers and 2 for complex ones."""
    if n.opset >= 20:
        axis = n.known_number(2, "the axis") if n.optional(2) is not None else -2
    else:
        axis = n.integer("axis", 1)
    axis = n.axis(axis)
    length = n.known_number(1, "the length") if n.optional(1) is not None else None
    x = n.x
    if is_same(x.shape[-1], 1):
        x = n.emit.op("pad", x, pads=(*(0,) * n.rank, *(0,) * (n.rank - 1), 1))
    inverse, onesided = bool(n.integer("inverse", 0)), bool(n.integer("onesided", 0))
    if inverse and onesided:
        return _inverse_of_half(n, axis, length)
    found = n.emit.op("ifft" if inverse else "fft", x, axis=axis - (n.rank - 1), n=length)
    return _half(n, found, axis) if onesided else found


def _inverse_of_half(n: NodeContext, axis: int, length: int | None) -> DraftOperand:
    """Real numbers from half a spectrum; the transformed axis is moved last in between."""
    order = [*(one for one in range(n.rank - 1) if one != axis), axis, n.rank - 1]
    real = n.emit.op("irfft", n.emit.transpose(n.x, order), n=length)
    back = [order[:-1].index(one) for one in range(n.rank - 1)]
    return n.emit.op("unsqueeze", n.emit.transpose(real, back), axes=(n.rank - 1,))


def _half(n: NodeContext, x: DraftOperand, axis: int) -> DraftOperand:
    return n.emit.op("slice", x, starts=(0,), ends=(x.shape[axis] // 2 + 1,), axes=(axis,))


@onnx_op("STFT")
def _stft(n: NodeContext) -> NodeResults:
    """The transform of real signals; half the spectrum by default."""
    hop = n.known_number(1, "the step")
    window = n.optional(2)
    frame = n.known_number(3, "the length of a frame") if n.optional(3) is not None else None
    if frame is None:
        if window is None:
            raise Unsupported("neither a window nor a length of frames is given")
        frame = window.shape[0]
    x = n.x
    if n.rank == 3:
        if not is_same(x.shape[-1], 1):
            raise Unsupported("its signal is complex")
        x = n.emit.op("squeeze", x, axes=(2,))
    if window is None:
        window = n.emit.full(n.emit.scalar(1, x.dtype), (frame,))
    half = n.emit.op("stft", x, window, frame=int(frame), hop=int(hop))
    return half if n.integer("onesided", 1) else _whole(n, half, int(frame))


def _whole(n: NodeContext, half: DraftOperand, frame: int) -> DraftOperand:
    """The whole spectrum of real numbers from its first half: the second is the first, reversed and conjugated."""
    axis = len(half.shape) - 2
    inner = n.emit.op("slice", half, starts=(1,), ends=((frame + 1) // 2,), axes=(axis,))
    signs = known(np.array([1, -1], half.dtype.array), half.dtype)
    return n.emit.op("concat", half, n.emit.op("mul", n.emit.op("flip", inner, axes=(axis,)), signs), axis=axis)
