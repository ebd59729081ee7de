"""Normalisations that exporters decompose, and ops that fold into weights."""

import numpy as np

from openinfer.importing.draft import DraftOp, DraftOperand, DraftStep, KnownTensor
from openinfer.importing.idioms.activations import IdiomRewrite
from openinfer.importing.idioms.matching import (
    Matches,
    first,
    fits,
    flat,
    is_vector,
    last_axis_only,
    made,
    number,
    orders,
    pair,
    params,
)


def layer_norm(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """``(x - mean) / sqrt(var + eps)`` over the last axis."""
    centred, eps = _over_root(matches, root)
    if centred is None or eps is None:
        return None
    difference = matches.maker(centred, "sub")
    if difference is None:
        return None
    x, mean = pair(difference)
    average = matches.maker(mean, "mean_axis")
    if average is None or average.inputs[0] is not x or not last_axis_only(average):
        return None
    return [made("layer_norm", [x], {"eps": eps}, root)]


def rms_norm(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """``x / sqrt(mean(x * x) + eps)`` over the last axis."""
    x, eps = _over_root(matches, root)
    return None if x is None or eps is None else [made("rms_norm", [x], {"eps": eps}, root)]


def _over_root(matches: Matches, root: DraftOp) -> tuple[DraftOperand | None, float | None]:
    """The x and eps of ``x / sqrt(mean(x ** 2) + eps)``, however the quotient is written."""
    if root.op == "div":
        x, size = pair(root)
        return _checked(x, _mean_square(matches, matches.inner(size, "sqrt")))
    if root.op != "mul":
        return None, None
    for x, other in orders(root):
        inverse = matches.inner(other, "recip", "rsqrt", "div")
        if inverse is None:
            continue
        if inverse.op == "rsqrt":
            found = _mean_square(matches, inverse)
        elif inverse.op == "recip":
            found = _mean_square(matches, matches.inner(first(inverse), "sqrt"))
        else:
            one, size = pair(inverse)
            found = _mean_square(matches, matches.inner(size, "sqrt")) if number(one) == 1 else None
        if found is not None:
            return _checked(x, found)
    return None, None


def _checked(x: DraftOperand, found: tuple[DraftOperand, float] | None) -> tuple[DraftOperand | None, float | None]:
    return (x, found[1]) if found is not None and found[0] is x else (None, None)


def _mean_square(matches: Matches, step: DraftOp | None) -> tuple[DraftOperand, float] | None:
    """The squared value and the epsilon in the root of a mean of squares."""
    total = None if step is None else matches.inner(first(step), "add")
    if total is None:
        return None
    for mean, eps in orders(total):
        average, value = matches.inner(mean, "mean_axis"), number(eps)
        if average is None or value is None or value <= 0 or not last_axis_only(average):
            continue
        square = matches.inner(first(average), "square", "mul", "pow")
        if square is None or (square.op == "pow" and number(square.inputs[1]) != 2):
            continue
        if square.op == "mul" and square.inputs[0] is not square.inputs[1]:
            continue
        return first(square), float(np.float64(str(np.float32(value))))
    return None


def scaled_norm(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """A norm without weights times a vector, which becomes its gamma."""
    if root.op != "mul":
        return None
    for value, gamma in orders(root):
        norm = matches.inner(value, "layer_norm", "rms_norm")
        if norm is None or len(norm.inputs) > 1 or not is_vector(gamma, first(norm).shape[-1]):
            continue
        steps: list[DraftStep] = []
        step = made(norm.op, [first(norm), flat(gamma, root, steps)], params(norm), root)
        if fits(step):
            return [*steps, step]
    return None


def shifted_norm(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """A norm with gamma plus a vector, which becomes its beta."""
    if root.op != "add":
        return None
    for value, beta in orders(root):
        norm = matches.inner(value, "layer_norm")
        if norm is None or len(norm.inputs) != 2 or not is_vector(beta, first(norm).shape[-1]):
            continue
        steps: list[DraftStep] = []
        step = made(norm.op, [*norm.inputs, flat(beta, root, steps)], params(norm), root)
        if fits(step):
            return [*steps, step]
    return None


# --- folding into weights ---------------------------------------------------------------------------------------------

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")


def folded_batch_norm(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """Fold a batch norm into the known weights and bias of a convolution."""
    if root.op != "batch_norm" or params(root)["axis"] != 1:
        return None
    conv = matches.inner(first(root), *_CONVOLUTIONS)
    statistics = [one for one in root.inputs[1:] if isinstance(one, KnownTensor)]
    if conv is None or len(statistics) != 4:
        return None
    weights, bias = conv.inputs[1], conv.inputs[2] if len(conv.inputs) > 2 else None
    if not isinstance(weights, KnownTensor) or not (bias is None or isinstance(bias, KnownTensor)):
        return None
    gamma, beta, mean, var = (one.array.astype(np.float64) for one in statistics)
    factor = gamma / np.sqrt(var + params(root)["eps"])
    shape = (-1, *(1,) * (weights.array.ndim - 1))
    scaled = weights.array.astype(np.float64) * factor.reshape(shape)
    shift = beta + ((0 if bias is None else bias.array.astype(np.float64)) - mean) * factor
    inputs = [first(conv), _known(scaled, weights), _known(shift, statistics[1])]
    return [made(conv.op, inputs, dict(conv.params), root)]


def _known(array: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", like: KnownTensor) -> KnownTensor:
    return KnownTensor(like.dtype, array.astype(like.dtype.array), like.hint)


def conv_bias(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """A convolution plus one number per channel, which becomes its bias."""
    if root.op != "add":
        return None
    for value, bias in orders(root):
        conv = matches.inner(value, *_CONVOLUTIONS, "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
        if conv is None or len(conv.inputs) > 2 or not isinstance(bias, KnownTensor):
            continue
        shape, channels = value.shape, value.shape[1]
        padded = (1,) * (len(shape) - len(bias.shape)) + tuple(bias.shape)
        if len(padded) == len(shape) and padded == (1, channels, *(1,) * (len(shape) - 2)):
            vector = KnownTensor(bias.dtype, bias.array.reshape(-1), bias.hint)
            return [made(conv.op, [*conv.inputs, vector], dict(conv.params), root)]
    return None


def linear(matches: Matches, root: DraftOp) -> IdiomRewrite:
    """A product with a known matrix plus a known vector becomes ``linear``."""
    if root.op != "add":
        return None
    for value, bias in orders(root):
        product = matches.inner(value, "matmul")
        if product is None or product.params:
            continue
        x, weights = pair(product)
        if not isinstance(weights, KnownTensor) or len(weights.shape) != 2 or not isinstance(bias, KnownTensor):
            continue
        if x.dtype.kind != "float" or not is_vector(bias, weights.shape[1]) or len(bias.shape) > len(x.shape):
            continue
        rows = KnownTensor(weights.dtype, np.ascontiguousarray(weights.array.T), weights.hint)
        vector = KnownTensor(bias.dtype, bias.array.reshape(-1), bias.hint)
        step = made("linear", [x, rows, vector], {}, root)
        if fits(step):
            return [step]
    return None
