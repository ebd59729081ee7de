"""Nodes that create tensors from nothing or from a shape."""

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.importing.differences import behind, difference
from openinfer.importing.draft import I64, DraftOperand, KnownTensor, extent, known
from openinfer.importing.emitter import integers
from openinfer.importing.extents import tidied
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.loops.dim import is_same, is_symbolic, larger

_MOST_COUNTED = 1 << 20
"""Longer ranges are counted by the graph."""


@onnx_op("Constant")
def _constant(n: NodeContext) -> NodeResults:
    tensor = n.tensor("value") or n.tensor("sparse_value")
    if tensor is not None:
        return KnownTensor(tensor.dtype, tensor.array, n.node.outputs[0])
    for name, dtype in (("value_int", "i64"), ("value_ints", "i64"), ("value_float", "f32"), ("value_floats", "f32")):
        if n.has(name):
            return known(np.asarray(n.node.attributes[name], DTYPES[dtype].array), DTYPES[dtype])
    raise Unsupported("its value is not a tensor of numbers")


@onnx_op("ConstantOfShape")
def _constant_of_shape(n: NodeContext) -> NodeResults:
    tensor = n.tensor("value")
    value = (
        known(np.float32(0)) if tensor is None else KnownTensor(tensor.dtype, tensor.array.reshape(-1)[:1].reshape(()))
    )
    return n.emit.full(value, n.known_ints(0, "the shape"))


@onnx_op("Range")
def _range(n: NodeContext) -> NodeResults:
    """Built from a ramp, so that its length may depend on sizes."""
    start, limit, delta = n.x, n.input(1), n.input(2)
    if n.x.dtype.kind == "float":
        if not all(isinstance(one, KnownTensor) for one in (start, limit, delta)):
            raise Unsupported("its length depends on data", "fix what it depends on: --fix INPUT=VALUE")
        numbers = [float(one.array.reshape(-1)[0]) for one in (start, limit, delta) if isinstance(one, KnownTensor)]
        if numbers[2] == 0 or abs(numbers[1] - numbers[0]) > abs(numbers[2]) * _MOST_COUNTED:
            raise Unsupported("its range is infinite, or too long")
        return known(np.arange(*numbers, dtype=n.x.dtype.array), n.x.dtype)
    if not isinstance(start, KnownTensor):
        return _moving_range(n, start, limit, delta)
    (first,), (last,), (step,) = (integers(one, "its length") for one in (start, limit, delta))
    if is_same(step, 0):
        raise Unsupported("its step is 0")
    if is_symbolic(step) or (step < 0 and (is_symbolic(first) or is_symbolic(last))):
        raise Unsupported("its step depends on a size, or it counts down from a size")
    between = tidied(last - first if step > 0 else first - last, n.emit.sizes)
    count = larger(between if abs(step) == 1 else (between + abs(step) - 1) // abs(step), 0)
    if not is_symbolic(count) and count <= _MOST_COUNTED:
        offsets = known(np.arange(count, dtype=np.int64) * step)
        return n.emit.cast(n.emit.op("add", offsets, extent(first)) if not is_same(first, 0) else offsets, n.x.dtype)
    ramp = n.emit.ramp(count)
    ramp = ramp if step == 1 else n.emit.op("mul", ramp, known(np.int64(step)))
    ramp = ramp if is_same(first, 0) else n.emit.op("add", ramp, extent(first))
    return n.emit.cast(ramp, n.x.dtype)


def _moving_range(n: NodeContext, start: DraftOperand, limit: DraftOperand, delta: DraftOperand) -> DraftOperand:
    """A range with a data-dependent start and a known length.

    If it ends at an edge, ``min(start + 1, edge)``, it is shorter only if it starts at the edge: that stops the run.
    """
    (step,) = integers(delta, "its step")
    edge = _edge(n, limit)
    count = difference(n.emit, limit, start, edge)
    if step != 1 or count is None or is_symbolic(count) or not 1 <= count <= _MOST_COUNTED:
        raise Unsupported("its length is computed from data", "fix what it depends on: --fix INPUT=VALUE")
    first = n.emit.reshape(start, ())
    if edge is not None:
        first = n.emit.cast(n.emit.op("gather", n.emit.ramp(edge - count + 1), first), n.x.dtype)
    return n.emit.op("add", known(np.arange(count).astype(n.x.dtype.array), n.x.dtype), first)


def _edge(n: NodeContext, limit: DraftOperand) -> int | None:
    """The known upper bound in a limit of the form ``min(value, bound)``."""
    asked = n.emit.asked(behind(n.emit, limit))
    if asked is None or asked[0] != "min":
        return None
    found = [one.array.reshape(-1)[0] for one in asked[1] if isinstance(one, KnownTensor) and one.array.size == 1]
    return found[0] if len(found) == 1 and is_symbolic(found[0]) else int(found[0]) if len(found) == 1 else None


@onnx_op("EyeLike")
def _eye_like(n: NodeContext) -> NodeResults:
    dtype = n.dtype("dtype") if n.has("dtype") else n.x.dtype
    rows, columns = (n.emit.ramp(one) for one in n.x.shape)
    shifted = n.emit.op("add", rows, known(np.int64(n.integer("k", 0))))
    ones = n.emit.op("eq", n.emit.op("unsqueeze", shifted, axes=(1,)), n.emit.op("unsqueeze", columns, axes=(0,)))
    return n.emit.cast(ones, dtype)


@onnx_op("OneHot")
def _one_hot(n: NodeContext) -> NodeResults:
    """Negative indices count from the end, which ``one_hot`` does not support."""
    depth, values = n.known_number(1, "the depth"), n.input(2)
    ids = n.emit.cast(n.x, I64)
    size = known(np.int64(int(depth)))
    ids = n.emit.op("where", n.emit.op("lt", ids, known(np.int64(0))), n.emit.op("add", ids, size), ids)
    axis = n.axis(n.integer("axis", -1), n.rank + 1)
    hot = n.emit.op("one_hot", ids, depth=int(depth), axis=axis, to=DTYPES["f32"])
    off, on = (_element(n, values, place) for place in (0, 1))
    return n.emit.op("where", n.emit.op("ne", hot, known(np.float32(0))), on, off)


def _element(n: NodeContext, values: DraftOperand, place: int) -> DraftOperand:
    return n.emit.op("gather", values, known(np.int64(place)))


@onnx_op("MelWeightMatrix")
def _mel_weight_matrix(n: NodeContext) -> NodeResults:
    """Triangular filters over the bins of a spectrum, with corners evenly spaced on the mel scale."""
    bands, length, rate = (int(n.known_number(place, "the number of bands, or the rate")) for place in range(3))
    edges = [float(n.known_number(place, "the range of frequencies")) for place in (3, 4)]
    if not 0 < bands * length <= _MOST_COUNTED or rate < 1:
        raise Unsupported("its matrix has no elements, or too many")
    low, high = (2595 * np.log10(1 + edge / 700) for edge in edges)
    mels = np.arange(bands + 2) * ((high - low) / (bands + 2)) + low
    corners = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    found = np.zeros((length // 2 + 1, bands))
    for band in range(bands):
        first, peak, last = corners[band : band + 3]
        rising = np.arange(first, peak + 1)
        found[rising, band] = (rising - first) / (peak - first) if peak > first else 1.0
        falling = np.arange(peak, last)
        found[falling, band] = (last - falling) / (last - peak) if last > peak else 0.0
    dtype = n.dtype("output_datatype", 1)
    return known(found.astype(dtype.array), dtype)


@onnx_op("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
def _random(_node: NodeContext) -> NodeResults:
    raise Unsupported("it draws random numbers, and a graph gives the same result each time", "make it an input")
