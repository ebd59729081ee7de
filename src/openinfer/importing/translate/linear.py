"""Products: matrix multiplication, convolution, einsum."""

from dataclasses import replace
from typing import Any

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.importing.draft import DraftOperand, KnownTensor, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.importing.translate.narrow_convolution import narrow_convolved
from openinfer.importing.translate.windows import Window, shortened, window_of
from openinfer.loops.dim import form, is_same


@onnx_op("MatMul")
def _matmul(n: NodeContext) -> NodeResults:
    return n.emit.op("matmul", n.x, n.input(1))


@onnx_op("Gemm")
def _gemm(n: NodeContext) -> NodeResults:
    """``alpha * a * b + beta * c``; becomes ``linear`` where possible if ``b`` is a stored weight."""
    a, b, c = n.x, n.input(1), n.optional(2)
    alpha, beta = n.real("alpha", 1.0), n.real("beta", 1.0)
    trans_a, trans_b = bool(n.integer("transA", 0)), bool(n.integer("transB", 0))
    c = c if beta else None
    fits = c is None or (len(c.shape) == 1 and is_same(c.shape[0], b.shape[0 if trans_b else 1]))
    if alpha == beta == 1 and not trans_a and fits and (trans_b or isinstance(b, KnownTensor)):
        weights = b if trans_b else n.emit.transpose(b, (1, 0))
        if isinstance(b, KnownTensor) and b.codes is not None and isinstance(weights, KnownTensor) and not trans_b:
            transposed = replace(b.codes, values=np.ascontiguousarray(b.codes.values.T), axis=1 - b.codes.axis)
            weights = replace(weights, codes=transposed)
        return n.emit.op("linear", a, weights, c)
    product = n.emit.op("matmul", a, b, transpose_a=trans_a or None, transpose_b=trans_b or None)
    if alpha != 1:
        product = n.emit.op("mul", product, n.emit.scalar(alpha, product.dtype))
    if c is None:
        return product
    scaled = c if beta == 1 else n.emit.op("mul", c, n.emit.scalar(beta, c.dtype))
    return n.emit.op("add", product, scaled)


@onnx_op("Einsum")
def _einsum(n: NodeContext) -> NodeResults:
    equation = n.text("equation", "").replace(" ", "")
    given = [one for one in n.operands if one is not None]
    if "..." in equation:
        equation = without_dots(equation, [len(one.shape) for one in given])
    return n.emit.op("einsum", *given, equation=equation)


def without_dots(equation: str, ranks: list[int]) -> str:
    """Replace ``...`` by letters, aligned at the last axis."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    free = [one for one in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if one not in equation]
    counts = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=False) if "..." in term]
    if len(terms) != len(ranks) or not counts or min(counts) < 0 or len(free) < max(counts):
        raise Unsupported(f"its equation {equation!r:.60} does not fit its inputs")
    if len(set(counts)) > 1:
        raise Unsupported("the axes of its ... broadcast", "write the equation without ...")
    letters = "".join(reversed(free[: counts[0]]))
    if not arrow:
        used = "".join(terms).replace(".", "")
        right = "..." + "".join(sorted(one for one in set(used) if used.count(one) == 1))
    return ",".join(term.replace("...", letters) for term in terms) + "->" + right.replace("...", letters)


# --- convolutions -----------------------------------------------------------------------------------------------------


@onnx_op("Conv")
def _conv(n: NodeContext) -> NodeResults:
    return convolved(n, n.x, n.input(1), n.optional(2))


def convolved(
    n: NodeContext, x: DraftOperand, w: DraftOperand, bias: DraftOperand | None, **extra: object
) -> DraftOperand:
    """A convolution over one to three spatial axes."""
    spatial = x.shape[2:]
    kernel = w.shape[2:]
    _require_spatial(len(spatial), len(kernel))
    window = window_of(n, tuple(kernel), tuple(spatial))
    groups = n.integer("group", 1)
    op = f"conv{len(spatial)}d"
    return n.emit.op(op, x, w, bias, **window.params(), groups=None if groups == 1 else groups, **extra)


def _require_spatial(count: int, kernel: int) -> None:
    if count != kernel or not 1 <= count <= 3:
        raise Unsupported(f"it has {count} spatial axes and a kernel of {kernel}; 1 to 3 are supported")


@onnx_op("ConvTranspose")
def _conv_transpose(n: NodeContext) -> NodeResults:
    x, w, bias = n.x, n.input(1), n.optional(2)
    spatial, kernel = x.shape[2:], w.shape[2:]
    _require_spatial(len(spatial), len(kernel))
    window, extra = _transposed_window(n, tuple(kernel), tuple(spatial))
    groups = n.integer("group", 1)
    return n.emit.op(
        f"conv_transpose{len(spatial)}d",
        x,
        w,
        bias,
        **window.params(),
        groups=None if groups == 1 else groups,
        output_padding=shortened(extra, 0),
    )


def _transposed_window(
    n: NodeContext, kernel: tuple[int, ...], spatial: tuple[int, ...]
) -> tuple[Window, tuple[int, ...]]:
    """The window and the output padding; if an output shape is requested, the padding follows from it."""
    count = len(kernel)
    strides, dilations = (n.ints(name) or (1,) * count for name in ("strides", "dilations"))
    extra = n.ints("output_padding") or (0,) * count
    auto = n.text("auto_pad", "NOTSET")
    wanted = n.ints("output_shape")
    if wanted is None and auto in ("NOTSET", "", "VALID"):
        pads = (n.ints("pads") or (0,) * (2 * count)) if auto != "VALID" else (0,) * (2 * count)
        return Window(kernel, strides, dilations, pads[:count], pads[count:]), extra
    shape = (
        wanted[-count:] if wanted is not None else tuple(own * one for own, one in zip(spatial, strides, strict=True))
    )
    begins, ends, more = [], [], []
    for own, size, stride, dilation, added, result in zip(
        spatial, kernel, strides, dilations, extra, shape, strict=True
    ):
        total = form(stride * (own - 1) + added + (size - 1) * dilation + 1 - result)
        if not isinstance(total, int):
            raise Unsupported("its padding depends on a size", "fix the size: --size NAME=VALUE")
        more.append(added + max(-total, 0))
        total = max(total, 0)
        half = total // 2
        upper = auto == "SAME_UPPER"
        begins.append(half if upper else total - half)
        ends.append(total - half if upper else half)
    return Window(kernel, strides, dilations, tuple(begins), tuple(ends)), tuple(more)


# --- integers ---------------------------------------------------------------------------------------------------------

I32 = DTYPES["i32"]
I8 = DTYPES["i8"]
MOST_CODES = 255
"""The largest difference between two codes of an 8-bit dtype."""


@onnx_op("MatMulInteger")
def _matmul_integer(n: NodeContext) -> NodeResults:
    return centred_product(n, (n.x, n.optional(2)), (n.input(1), n.optional(3)))


QuantizedOperand = tuple[DraftOperand, DraftOperand | None]
"""Quantized values and their zero point."""


def centred_product(n: NodeContext, left: QuantizedOperand, right: QuantizedOperand) -> DraftOperand:
    """The product of two quantized matrices minus their zero points, in i32."""
    narrow = _narrow(*right) if left[0].dtype.bits == 8 else None
    point = left[1]
    if narrow is None or (point is not None and any(not is_same(one, 1) for one in point.shape)):
        return integer_product(n, centred(n, *left, rows=True), centred(n, *right, rows=False))
    # With a = s + 128 and b = t + c: (a - z) * b = s * t + c * sum(s) - (z - 128) * sum(b): both factors have 8 bits.
    small, excess = narrow
    a: DraftOperand = left[0]
    shift: DraftOperand = known(np.int32(0))
    if a.dtype.name == "u8":
        a = n.emit.op("bitcast", n.emit.op("xor", a, n.emit.scalar(128, a.dtype)), to=I8)
        shift = known(np.int32(-128))
    product = n.emit.op("matmul", a, small, acc=(I32,))
    # Kept even if the excess is 0: another layer of the same loop may have one. If none has, cleanup removes it.
    rows = n.emit.op("sum_axis", a, axes=(len(a.shape) - 1,), keepdims=True, acc=(I32,))
    product = n.emit.op("add", product, n.emit.op("mul", rows, known(excess, I32, "excess")))
    if point is not None:
        shift = n.emit.op("add", n.emit.cast(n.emit.reshape(point, ()), I32), shift)
    if isinstance(shift, KnownTensor) and not np.any(shift.array):
        return product
    sums = known(
        small.array.astype(np.int32).sum(axis=-2, dtype=np.int32) + excess * np.int32(small.shape[0]),
        I32,
        "column_sums",
    )
    return n.emit.op("sub", product, n.emit.op("mul", sums, shift))


def _narrow(b: DraftOperand, point: DraftOperand | None) -> tuple[KnownTensor, Any] | None:
    """Known two-dimensional weights minus their zero point, split into an i8 tensor and an excess to add.

    The excess is 0 if all of them fit i8. Otherwise it is a number for all columns, or one per column.
    """
    if not isinstance(b, KnownTensor) or len(b.shape) != 2 or not (point is None or isinstance(point, KnownTensor)):
        return None
    if b.has_sizes:
        return None
    values = b.array.astype(np.int32) - (0 if point is None else point.array.astype(np.int32))
    if values.size == 0 or values.shape != b.shape:
        return None
    least, most = values.min(axis=0), values.max(axis=0)
    if (most - least).max() > MOST_CODES:
        return None
    if least.min() >= -128 and most.max() <= 127:
        excess: Any = np.int32(0)
    elif most.max() - least.min() <= MOST_CODES:
        excess = np.int32(least.min() + 128)
    else:
        excess = least + np.int32(128)
    return KnownTensor(I8, (values - excess).astype(np.int8), b.hint), excess


def integer_product(n: NodeContext, a: DraftOperand, b: DraftOperand) -> DraftOperand:
    """An exact product of integers in i32; factors of the same 8-bit dtype are not widened."""
    if a.dtype is b.dtype and a.dtype.bits == 8:
        return n.emit.op("matmul", a, b, acc=(I32,))
    return n.emit.op("matmul", n.emit.cast(a, I32), n.emit.cast(b, I32))


def centred(n: NodeContext, x: DraftOperand, point: DraftOperand | None, *, rows: bool) -> DraftOperand:
    """Quantized values minus their zero point, in i32; unchanged if the zero point is 0 or omitted.

    A one-dimensional zero point belongs to the rows of the first factor, or to the columns of the second.
    """
    if point is None or is_zero(point):
        return x
    offset = n.emit.cast(point, I32)
    if len(offset.shape) == 1 and rows:
        offset = n.emit.reshape(offset, (offset.shape[0], 1)) if not is_same(offset.shape[0], 1) else offset
    return n.emit.op("sub", n.emit.cast(x, I32), offset)


def is_zero(point: DraftOperand) -> bool:
    """Whether a zero point is known to be zero."""
    return isinstance(point, KnownTensor) and not point.has_sizes and not np.any(point.array)


@onnx_op("ConvInteger")
def _conv_integer(n: NodeContext) -> NodeResults:
    return integer_convolved(n, n.x, n.input(1), n.optional(2), n.optional(3), None)


def integer_convolved(
    n: NodeContext,
    x: DraftOperand,
    w: DraftOperand,
    x_point: DraftOperand | None,
    w_point: DraftOperand | None,
    bias: DraftOperand | None,
) -> DraftOperand:
    """A convolution of quantized values in i32; padding counts as the zero point, which is 0 when centred."""
    if x.dtype is not w.dtype or not all(point is None or is_zero(point) for point in (x_point, w_point)):
        narrow = narrow_convolved(n, x, w, x_point, w_point)
        if narrow is not None and bias is not None:
            narrow = n.emit.op("add", narrow, n.emit.reshape(bias, (bias.shape[0], *(1,) * (len(w.shape) - 2))))
        if narrow is not None:
            return narrow
    a = centred(n, x, x_point, rows=False)
    if w_point is not None and len(w_point.shape) == 1 and not is_zero(w_point):
        shape = (w_point.shape[0], *(1,) * (len(w.shape) - 1))
        w_point = n.emit.reshape(w_point, shape if not is_same(w_point.shape[0], 1) else ())
    b = centred(n, w, w_point, rows=False)
    if a.dtype is b.dtype and a.dtype.bits == 8:
        return convolved(n, a, b, bias, acc=(I32,))
    return convolved(n, n.emit.cast(a, I32), n.emit.cast(b, I32), bias)
