"""Products of dequantized values become products of the codes, exact in i32, with a scale applied to the result."""

from dataclasses import dataclass

import numpy as np

from openinfer.dtypes import DTYPES, Array
from openinfer.importing.draft import (
    DraftOp,
    DraftOperand,
    DraftParam,
    DraftStep,
    DraftValue,
    KnownTensor,
    QuantizedCodes,
    known,
)
from openinfer.importing.idioms.activations import IdiomRewrite
from openinfer.importing.idioms.matching import Matches, first, fits, made, new, number, pair, params
from openinfer.loops.dim import is_symbolic

I8, I32, F32 = (DTYPES[name] for name in ("i8", "i32", "f32"))
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_MOST_FACTORS = 1 << 16
"""Sums of more products of 8-bit codes than this could overflow i32."""
_WHOLE = 1e-3
"""How far a bias, in steps of the product, may be from a whole number."""


@dataclass(frozen=True)
class _Codes:
    """8-bit codes with one scale, and their zero point."""

    values: DraftOperand
    scale: float
    point: int


def integer_product(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """A product of dequantized codes: replaced by a product of the codes in i32 and a scale for its result."""
    if root.op not in (*_CONVOLUTIONS, "linear", "matmul") or root.outputs[0].dtype is not F32:
        return None
    codes = _codes_of(matches, first(root))
    if codes is None:
        return None
    weights = root.inputs[1]
    if isinstance(weights, KnownTensor):
        return None if weights.codes is None else _with_weights(root, codes, weights.codes)
    return _of_both(matches, root, codes)


def _codes_of(matches: Matches, operand: DraftOperand) -> _Codes | None:
    """The codes that a value was dequantized from, else None."""
    step = matches.maker(operand, "dequantize")
    if step is None or len(step.inputs) < 2:
        return None
    scale, point = number(step.inputs[1]), number(step.inputs[2]) if len(step.inputs) > 2 else 0.0
    if scale is None or point is None or first(step).dtype.name not in ("i8", "u8"):
        return None
    return _Codes(first(step), scale, int(point))


def _of_both(matches: Matches, root: DraftOp, left: _Codes) -> IdiomRewrite:
    """Both factors are computed: neither may have a zero point, and both must be i8."""
    right = _codes_of(matches, pair(root)[1])
    depth = left.values.shape[-1]
    if root.op != "matmul" or right is None or left.point or right.point or is_symbolic(depth):
        return None
    if left.values.dtype is not I8 or right.values.dtype is not I8 or depth > _MOST_FACTORS:
        return None
    product = new("matmul", [left.values, right.values], {**dict(root.params), "acc": (I32,)}, root)
    scale = known(np.float32(np.float32(left.scale) * np.float32(right.scale)))
    return [product, made("dequantize", [product.outputs[0], scale], {}, root)]


def _with_weights(root: DraftOp, x: _Codes, weights: QuantizedCodes) -> IdiomRewrite:
    """The second factor is stored: its codes become the weights of the graph, and its sums part of the bias."""
    values, axis = weights.values, 0
    if root.op == "matmul":
        if root.params or values.ndim != 2:
            return None
        values, axis = np.ascontiguousarray(values.T), 1
    channels = values.shape[0]
    scales = np.float32(x.scale) * weights.scale.astype(np.float32)
    if scales.ndim and (weights.axis % values.ndim != axis or scales.shape != (channels,)):
        return None
    if values.size // max(channels, 1) > _MOST_FACTORS:
        return None
    bias = root.inputs[2] if len(root.inputs) > 2 else None
    if not (bias is None or isinstance(bias, KnownTensor)):
        return None
    steps: list[DraftStep] = []
    source, point = _signed(x, root, steps)
    given = dict(root.params)
    if point and root.op in _CONVOLUTIONS:
        source, given = _padded(root, source, point, steps)
    whole = np.zeros(channels, np.int64) if bias is None else _whole(bias.array, scales)
    added = None if whole is not None else bias
    offset = (0 if whole is None else whole) - point * values.reshape(channels, -1).astype(np.int64).sum(axis=1)
    if np.abs(offset).max(initial=0) >= 1 << 30:
        return None
    own = known(offset.astype(np.int32), hint="" if bias is None else bias.hint) if np.any(offset) else None
    op = "linear" if root.op == "matmul" else root.op
    product = new(op, [source, known(values, I8, weights.hint), own], {**given, "acc": (I32,)}, root)
    return [*steps, product, *_scaled(root, product, scales, added)]


def _signed(x: _Codes, like: DraftOp, steps: list[DraftStep]) -> tuple[DraftOperand, int]:
    """The codes as i8: u8 codes are shifted down by 128, and so is their zero point."""
    if x.values.dtype is I8:
        return x.values, x.point
    flipped = new("xor", [x.values, known(np.uint8(128))], {}, like)
    signed = new("bitcast", [_value(flipped)], {"to": I8}, like)
    steps += [flipped, signed]
    return _value(signed), x.point - 128


def _padded(
    root: DraftOp, source: DraftOperand, point: int, steps: list[DraftStep]
) -> tuple[DraftOperand, dict[str, DraftParam]]:
    """Codes padded explicitly with the zero point, where the convolution would pad with zeros."""
    given, count = dict(root.params), len(source.shape) - 2
    pads = params(root)["pads"]
    pads = pads * (2 * count) if len(pads) == 1 else pads
    if any(pads):
        step = new("pad", [source], {"pads": (0, 0, *pads[:count], 0, 0, *pads[count:]), "value": point}, root)
        steps.append(step)
        source = _value(step)
    return source, {name: value for name, value in given.items() if name != "pads"}


def _whole(bias: Array, scales: Array) -> Array | None:
    """A bias in steps of the product if those are whole numbers, else None."""
    found = bias.astype(np.float64) / np.where(scales == 0, 1, scales).astype(np.float64)
    near = np.round(found)
    if not np.all(np.isfinite(found)) or np.abs(near).max(initial=0) >= 1 << 30:
        return None
    allowed = _WHOLE + np.abs(near) * 2.0**-21  # the rounding error of a whole number in floats of 24 bits
    return near.astype(np.int64) if np.all(np.abs(found - near) <= allowed) else None


def _scaled(root: DraftOp, product: DraftOp, scales: Array, bias: KnownTensor | None) -> list[DraftStep]:
    """The result in real numbers, plus a bias that is not a whole number of steps."""
    rank = len(root.outputs[0].shape)
    axis = 1 if root.op in _CONVOLUTIONS else rank - 1
    given = {"axis": axis} if scales.ndim and axis else {}
    if bias is None:
        return [made("dequantize", [_value(product), known(scales)], given, root)]
    real = new("dequantize", [_value(product), known(scales)], given, root)
    shape = (-1, *(1,) * (rank - 1 - axis))
    return [real, made("add", [_value(real), KnownTensor(F32, bias.array.reshape(shape), bias.hint)], {}, root)]


def _value(step: DraftOp) -> DraftValue:
    found = step.outputs[0]
    assert isinstance(found, DraftValue)
    assert fits(step)
    return found
