"""Reductions, running sums and sorting."""

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.importing.draft import I64, DraftOperand, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.loops.dim import is_symbolic

_INPUT_SINCE = {"ReduceSum": 13}
"""The opset since which axes are an input, where it is not 18."""
_PLAIN = {
    "ReduceSum": "sum_axis",
    "ReduceMean": "mean_axis",
    "ReduceProd": "prod_axis",
    "ReduceMax": "max_axis",
    "ReduceMin": "min_axis",
    "ReduceLogSumExp": "logsumexp_axis",
}


@onnx_op(*_PLAIN)
def _reduce(n: NodeContext) -> NodeResults:
    return _reduced(n, _PLAIN[n.node.op], n.x)


@onnx_op("ReduceL1")
def _l1(n: NodeContext) -> NodeResults:
    return _reduced(n, "sum_axis", n.emit.op("abs", n.x))


@onnx_op("ReduceL2")
def _l2(n: NodeContext) -> NodeResults:
    if n.x.dtype.kind == "float":
        return n.emit.op("sqrt", _reduced(n, "sum_axis", n.emit.op("square", n.x)))
    real = n.emit.cast(_reduced(n, "sum_axis", n.emit.op("square", n.x)), DTYPES["f64"])
    return n.emit.cast(n.emit.op("sqrt", real), n.x.dtype)


@onnx_op("ReduceLogSum")
def _log_sum(n: NodeContext) -> NodeResults:
    return n.emit.op("log", _reduced(n, "sum_axis", n.x))


@onnx_op("ReduceSumSquare")
def _sum_square(n: NodeContext) -> NodeResults:
    return _reduced(n, "sum_axis", n.emit.op("square", n.x))


def _reduced(n: NodeContext, op: str, x: DraftOperand) -> DraftOperand:
    axes = n.axes(1, _INPUT_SINCE.get(n.node.op, 18))
    if not axes:
        if n.integer("noop_with_empty_axes", 0):
            return x
        axes = None
    places = None if axes is None else tuple(sorted(n.axis(one) for one in axes))
    keep = bool(n.integer("keepdims", 1)) or None
    if op in ("max_axis", "min_axis") and x.dtype.kind == "bool":
        op = "any_axis" if op == "max_axis" else "all_axis"
    if op in ("mean_axis", "logsumexp_axis") and x.dtype.kind != "float":
        return _integer_reduced(n, op, x, places, keep=keep)
    return n.emit.op(op, x, axes=places, keepdims=keep)


def _integer_reduced(
    n: NodeContext,
    op: str,
    x: DraftOperand,
    places: tuple[int, ...] | None,
    *,
    keep: bool | None,
) -> DraftOperand:
    wide = n.emit.cast(x, DTYPES["f64"])
    found = n.emit.op(op, wide, axes=places, keepdims=keep)
    return n.emit.cast(found, x.dtype)


@onnx_op("ArgMax", "ArgMin")
def _arg(n: NodeContext) -> NodeResults:
    op = "argmax_axis" if n.node.op == "ArgMax" else "argmin_axis"
    first = None if not n.integer("select_last_index", 0) else False
    keep = bool(n.integer("keepdims", 1)) or None
    return n.emit.op(op, n.x, axis=n.axis(n.integer("axis", 0)), select_first=first, keepdims=keep)


@onnx_op("CumSum", "CumProd")
def _cumulative(n: NodeContext) -> NodeResults:
    axis = n.axis(n.known_number(1, "the axis"))
    exclusive, reverse = (bool(n.integer(name, 0)) or None for name in ("exclusive", "reverse"))
    op = "cumsum" if n.node.op == "CumSum" else "cumprod"
    return n.emit.op(op, n.x, axis=axis, exclusive=exclusive, reverse=reverse)


@onnx_op("TopK")
def _topk(n: NodeContext) -> NodeResults:
    k = n.known_number(1, "k") if n.opset >= 10 else n.integer("k", 1)
    axis = n.axis(n.integer("axis", -1))
    if is_symbolic(k):
        raise Unsupported("k depends on a size")
    largest = None if n.integer("largest", 1) else False
    values, indices = n.emit.ops("topk", n.x, k=int(k), axis=axis - n.rank, largest=largest)
    return (values, n.emit.cast(indices, I64))


@onnx_op("Det")
def _det(n: NodeContext) -> NodeResults:
    """Determinants of matrices up to 3 x 3, by their minors."""
    size = n.x.shape[-1]
    if is_symbolic(size) or size > 3 or n.x.shape[-2] != size:
        raise Unsupported("determinants of matrices larger than 3 x 3 have no op here")

    def at(row: int, column: int) -> DraftOperand:
        line = n.emit.op("gather", n.x, known(np.int64(row)), axis=n.rank - 2)
        return n.emit.op("gather", line, known(np.int64(column)), axis=n.rank - 2)

    def minor(rows: tuple[int, ...], columns: tuple[int, ...]) -> DraftOperand:
        if len(rows) == 1:
            return at(rows[0], columns[0])
        total: DraftOperand | None = None
        for place, column in enumerate(columns):
            rest = (*columns[:place], *columns[place + 1 :])
            term = n.emit.op("mul", at(rows[0], column), minor(rows[1:], rest))
            total = term if total is None else n.emit.op("sub" if place % 2 else "add", total, term)
        assert total is not None
        return total

    return minor(tuple(range(size)), tuple(range(size)))
