"""Reductions, running sums and sorting."""

from math import inf

from openinfer.dtypes import DTYPES
from openinfer.importing.aten.context import AtenContext, AtenResults, aten_op, word
from openinfer.importing.aten.elementwise import binary
from openinfer.importing.draft import DraftOperand
from openinfer.importing.problems import Unsupported

_PLAIN = {"sum": "sum_axis", "mean": "mean_axis", "prod": "prod_axis", "logsumexp": "logsumexp_axis"}


@aten_op(*_PLAIN)
def _reduce(n: AtenContext) -> AtenResults:
    return reduced(n, _PLAIN[word(n)], n.cast(n.x, n.dtype))


def reduced(n: AtenContext, op: str, x: DraftOperand, **params: object) -> DraftOperand:
    """A reduction over the axes ``dim``; a scalar counts as a vector of one element."""
    axes = n.axes("dim")
    keep = n.flag("keepdim") or None
    if not axes:
        x, axes = n.emit.reshape(x, (1,)), (0,)
    whole = None if len(axes) == len(x.shape) else axes
    return n.emit.op(op, x, axes=whole, keepdims=keep if x is not n.x or n.rank else None, **params)


@aten_op("amax", "amin", "any", "all")
def _extreme(n: AtenContext) -> AtenResults:
    match word(n):
        case "any" | "all":
            return reduced(n, f"{word(n)}_axis", n.cast(n.x, DTYPES["bool"]))
        case _:
            return _extremes(n, word(n)[1:])


def _extremes(n: AtenContext, kind: str) -> DraftOperand:
    if n.x.dtype.kind == "bool":
        return reduced(n, "any_axis" if kind == "max" else "all_axis", n.x)
    return reduced(n, f"{kind}_axis", n.x)


@aten_op("max", "min")
def _max(n: AtenContext) -> AtenResults:
    """The extreme of two tensors, of all elements, or along an axis with indices."""
    if n.has("other"):
        return binary(n, word(n))
    if not n.has("dim"):
        return _extremes(n, word(n))
    return _extremes(n, word(n)), _position(n, n.reads(1))


def _position(n: AtenContext, wanted: bool = True) -> DraftOperand | None:  # noqa: FBT001, FBT002  (asked of the node)
    if not wanted:
        return None
    op = f"{word(n).removeprefix('arg')}"
    x = n.x if n.x.dtype.kind != "bool" else n.emit.cast(n.x, DTYPES["u8"])
    if not n.has("dim"):
        count: int = 1
        for one in n.x.shape:
            count = count * one
        flat = n.emit.reshape(x, (count,))
        return n.emit.op(f"arg{op}_axis", flat, axis=0)
    if not n.rank:
        return n.emit.scalar(0, DTYPES["i64"])
    axis = n.axis(n.integer("dim"))
    return n.emit.op(f"arg{op}_axis", x, axis=axis, keepdims=n.flag("keepdim") or None)


@aten_op("argmax", "argmin")
def _arg(n: AtenContext) -> AtenResults:
    found = _position(n)
    if found is not None and n.flag("keepdim") and not n.has("dim"):
        return n.emit.reshape(found, (1,) * n.rank)
    return found


@aten_op("var", "std", "var_mean", "std_mean")
def _variance(n: AtenContext) -> AtenResults:
    found = reduced(n, "var_axis", n.x, ddof=_correction(n))
    if word(n).startswith("std"):
        found = n.emit.op("sqrt", found)
    return (found, reduced(n, "mean_axis", n.x)) if word(n).endswith("_mean") else found


def _correction(n: AtenContext) -> int | None:
    given = n.real("correction", 1.0) if "correction" in n.values else float(n.flag("unbiased", default=True))
    if given != int(given):
        raise Unsupported(f"a correction of {given} has no translation")
    return int(given) or None


@aten_op("linalg_vector_norm", "norm")
def _norm(n: AtenContext) -> AtenResults:
    power = n.real("ord", 2.0) if "ord" in n.values else n.real("p", 2.0)
    x = n.cast(n.x, n.dtype)
    if abs(power) == inf:
        return reduced(n, "max_axis" if power > 0 else "min_axis", n.emit.op("abs", x))
    if power == 1:
        return reduced(n, "sum_axis", n.emit.op("abs", x))
    if power == 0:
        return reduced(n, "sum_axis", n.cast(n.cast(x, DTYPES["bool"]), n.dtype))
    return reduced(n, "norm_axis", x, p=None if power == 2 else power)


@aten_op("cumsum", "cumprod")
def _running(n: AtenContext) -> AtenResults:
    return n.emit.op(word(n), n.cast(n.x, n.dtype), axis=n.axis(n.integer("dim"))) if n.rank else n.x


@aten_op("topk")
def _topk(n: AtenContext) -> AtenResults:
    axis = n.axis(n.integer("dim", -1)) - n.rank
    return n.emit.ops("topk", n.x, k=n.integer("k"), axis=axis, largest=n.flag("largest", default=True))


@aten_op("sort")
def _sort(n: AtenContext) -> AtenResults:
    axis = n.axis(n.integer("dim", -1)) - n.rank
    return n.emit.ops("sort", n.x, axis=axis, descending=n.flag("descending") or None)


@aten_op("_cdist_forward")
def _distances(n: AtenContext) -> AtenResults:
    """The distance of every row of one matrix to every row of another."""
    one, other, power = n.tensor("x1"), n.tensor("x2"), n.real("p", 2.0)
    if power not in (1, 2):
        raise Unsupported(f"distances by the power {power} have no translation")
    apart = n.emit.op(
        "sub",
        n.emit.op("unsqueeze", one, axes=(len(one.shape) - 1,)),
        n.emit.op("unsqueeze", other, axes=(len(other.shape) - 2,)),
    )
    if power == 1:
        return n.emit.op("sum_axis", n.emit.op("abs", apart), axes=(-1,))
    return n.emit.op("norm_axis", apart, axes=(-1,))
