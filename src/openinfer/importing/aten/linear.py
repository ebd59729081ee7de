"""Products: matrix multiplication, convolution, einsum."""

from typing import Any

from openinfer.importing.aten.context import FIX, AtenContext, AtenResults, aten_op, paired, word
from openinfer.importing.draft import DraftOperand, KnownTensor
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.linear import without_dots
from openinfer.importing.translate.windows import Window, shortened
from openinfer.loops.dim import is_same, is_symbolic


@aten_op("linear")
def _linear(n: AtenContext) -> AtenResults:
    return n.emit.op("linear", n.x, n.tensor("weight"), n.optional("bias"))


@aten_op("matmul", "mm", "bmm", "mv", "dot")
def _matmul(n: AtenContext) -> AtenResults:
    one, other = list(n.values)[:2]
    return n.emit.op("matmul", n.tensor(one), n.tensor(other))


@aten_op("addmm", "baddbmm", "addmv", "addbmm")
def _addmm(n: AtenContext) -> AtenResults:
    """``beta * self + alpha * (a @ b)``; becomes ``linear`` where possible if ``b`` is a stored weight."""
    _, one, other = list(n.values)[:3]
    a, b, c = n.tensor(one), n.tensor(other), n.tensor("self")
    alpha, beta = n.real("alpha", 1.0), n.real("beta", 1.0)
    fits = len(c.shape) == 1 and len(b.shape) == 2 and is_same(c.shape[0], b.shape[1])
    if alpha == beta == 1 and fits and isinstance(b, KnownTensor):
        return n.emit.op("linear", a, n.emit.transpose(b, (1, 0)), c)
    if word(n) == "addbmm":
        raise Unsupported("a sum over a batch of products has no translation", "write it as a matmul and a sum")
    product = n.emit.op("matmul", a, b)
    if alpha != 1:
        product = n.emit.op("mul", product, n.emit.scalar(alpha, n.dtype))
    if beta == 0:
        return product
    scaled = c if beta == 1 else n.emit.op("mul", c, n.emit.scalar(beta, n.dtype))
    return n.emit.op("add", product, scaled)


@aten_op("einsum")
def _einsum(n: AtenContext) -> AtenResults:
    equation = n.text("equation").replace(" ", "")
    given = n.tensors("tensors")
    if "..." in equation:
        equation = without_dots(equation, [len(one.shape) for one in given])
    return n.emit.op("einsum", *given, equation=equation)


# --- convolutions -----------------------------------------------------------------------------------------------------


@aten_op("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _convolution(n: AtenContext) -> AtenResults:
    weight = n.tensor("weight")
    count = len(weight.shape) - 2
    if n.rank == count + 1:  # without a batch
        found = _convolved(n, n.emit.op("unsqueeze", n.x, axes=(0,)), weight, count)
        return n.emit.op("squeeze", found, axes=(0,))
    return _convolved(n, n.x, weight, count)


def _convolved(n: AtenContext, x: DraftOperand, weight: DraftOperand, count: int) -> DraftOperand:
    strides, dilations = (paired(n.numbers(name, (1,)), count) for name in ("stride", "dilation"))
    begins, ends = _padding(n, tuple(weight.shape[2:]), strides, dilations)
    is_transposed = n.flag("transposed") or "transpose" in word(n)
    window = Window(tuple(weight.shape[2:]), strides, dilations, begins, ends)
    groups = n.integer("groups", 1)
    extra: dict[str, Any] = {"groups": None if groups == 1 else groups}
    if is_transposed:
        extra["output_padding"] = shortened(paired(n.numbers("output_padding", (0,)), count), 0)
    op = f"conv_transpose{count}d" if is_transposed else f"conv{count}d"
    return n.emit.op(op, x, weight, n.optional("bias"), **window.params(), **extra)


def _padding(
    n: AtenContext, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    given = n.values.get("padding", 0)
    if not isinstance(given, str):
        pads = paired(n.numbers("padding", (0,)), len(kernel))
        return pads, pads
    if given == "valid":
        return (0,) * len(kernel), (0,) * len(kernel)
    if any(map(is_symbolic, kernel)) or any(one != 1 for one in strides):
        raise Unsupported(f"padding {given!r} with this kernel has no translation", FIX)
    totals = [(size - 1) * dilation for size, dilation in zip(kernel, dilations, strict=True)]
    return tuple(one // 2 for one in totals), tuple(one - one // 2 for one in totals)
