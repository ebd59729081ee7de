"""Complex tensors as pairs of a real and an imaginary operand, until the graph is real again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import pi, prod, sqrt
from typing import Any

from openinfer.dtypes import DType
from openinfer.importing.aten.context import TABLE, AtenContext, AtenResults, aten_op
from openinfer.importing.draft import DraftOperand
from openinfer.importing.emitter import Emitter
from openinfer.importing.problems import Unsupported
from openinfer.loops.dim import is_symbolic


@dataclass(frozen=True)
class ComplexOperand:
    """A tensor of complex numbers."""

    real: DraftOperand
    imag: DraftOperand


_Complex = Callable[[AtenContext], AtenResults]
_COMPLEX: dict[str, _Complex] = {}
_PRODUCERS = ("aten._fft_r2c", "aten.view_as_complex", "aten.complex", "aten.polar")
"""Ops that produce complex numbers from real ones."""
_LINEAR = (
    "view", "reshape", "_unsafe_view", "view_copy", "_reshape_copy", "flatten", "unflatten", "permute", "permute_copy",
    "transpose", "t", "transpose_copy", "swapaxes", "squeeze", "squeeze_copy", "unsqueeze", "unsqueeze_copy", "expand",
    "expand_copy", "broadcast_to", "slice", "slice_copy", "narrow", "narrow_copy", "select", "select_copy", "unbind",
    "unbind_copy", "cat", "concat", "stack", "split", "split_with_sizes", "chunk", "repeat", "tile",
    "repeat_interleave", "flip", "roll", "pad", "constant_pad_nd", "index_select", "gather", "index", "clone", "alias",
    "contiguous", "detach", "sum", "mean", "neg", "cumsum", "lift_fresh_copy", "unfold", "diagonal",
)  # fmt: skip
"""Ops that act on the real and the imaginary part independently."""


def is_complex(n: AtenContext) -> bool:
    """Whether a node reads or produces complex numbers."""
    makes = n.node.op in _PRODUCERS or (n.node.op == "aten._to_copy" and n.node.is_complex)
    return makes or any(_has_complex(one) for one in n.values.values())


def _has_complex(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_complex, value))
    return isinstance(value, ComplexOperand)


def complex_results(n: AtenContext) -> AtenResults:
    """Translate a node that involves complex numbers."""
    if n.node.op == "_operator.getitem":
        return n.values["0"][n.values["1"]]
    found = _COMPLEX.get(n.node.op)
    if found is not None:
        return found(n)
    if n.node.op.removeprefix("aten.") not in _LINEAR:
        raise Unsupported("it has no translation for complex numbers", "compute with torch.view_as_real")
    real, imag = (_of_part(n, part) for part in ("real", "imag"))
    if isinstance(real, tuple):
        return tuple(ComplexOperand(*pair) for pair in zip(real, imag, strict=True))
    return ComplexOperand(real, imag)


def _of_part(n: AtenContext, part: str) -> AtenResults:
    """Apply the op to the real or the imaginary part alone."""

    def chosen(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(chosen, value))
        return getattr(value, part) if isinstance(value, ComplexOperand) else value

    values = {name: chosen(value) for name, value in n.values.items()}
    dtype = _part_dtype(n)
    node = replace(n.node, dtypes=(dtype,) * len(n.node.dtypes), common=dtype)
    return TABLE[n.node.op](replace(n, node=node, values=values))


def _part_dtype(n: AtenContext) -> DType:
    for value in n.values.values():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, ComplexOperand):
                return one.real.dtype
    raise Unsupported("its operands are not complex")


def _complex_op(*names: str) -> Callable[[_Complex], _Complex]:
    def register(function: _Complex) -> _Complex:
        for name in names:
            _COMPLEX[f"aten.{name}"] = function
        return function

    return register


@aten_op(
    "view_as_complex",
    "view_as_real",
    "complex",
    "polar",
    "real",
    "imag",
    "angle",
    "_conj_physical",
    "conj",
    "conj_physical",
    "_fft_r2c",
    "_fft_c2c",
    "_fft_c2r",
)
def _of_real_numbers(n: AtenContext) -> AtenResults:
    """Complex ops applied to real tensors."""
    if n.node.op == "aten.angle":
        x, zero = n.x, n.emit.scalar(0, n.x.dtype)
        return n.emit.op("where", n.emit.op("lt", x, zero), n.emit.scalar(pi, x.dtype), n.emit.op("mul", x, zero))
    if n.node.op == "aten.imag":
        return _zeros(n.emit, n.x)
    return n.x


def _operand(n: AtenContext, name: str) -> ComplexOperand:
    found = n.values.get(name)
    if not isinstance(found, ComplexOperand):
        raise Unsupported(f"its argument {name!r} is not complex")
    return found


def _zeros(emit: Emitter, like: DraftOperand) -> DraftOperand:
    return emit.full(emit.scalar(0, like.dtype), like.shape)


# --- conversion from and to real numbers ------------------------------------------------------------------------------


def _pairs(emit: Emitter, x: ComplexOperand) -> DraftOperand:
    return emit.op("stack", x.real, x.imag, axis=len(x.real.shape))


def _parts(emit: Emitter, pairs: DraftOperand) -> ComplexOperand:
    axis = len(pairs.shape) - 1
    return ComplexOperand(
        *(
            emit.op("squeeze", emit.op("slice", pairs, starts=(at,), ends=(at + 1,), axes=(axis,)), axes=(axis,))
            for at in (0, 1)
        )
    )


@_complex_op("view_as_complex")
def _view_as_complex(n: AtenContext) -> AtenResults:
    return _parts(n.emit, n.x)


@_complex_op("view_as_real")
def _view_as_real(n: AtenContext) -> AtenResults:
    return _pairs(n.emit, _operand(n, "self"))


@_complex_op("complex")
def _of_parts(n: AtenContext) -> AtenResults:
    return ComplexOperand(n.tensor("real"), n.tensor("imag"))


@_complex_op("polar")
def _polar(n: AtenContext) -> AtenResults:
    size, angle = n.tensor("abs"), n.tensor("angle")
    return ComplexOperand(*(n.emit.op("mul", size, n.emit.op(name, angle)) for name in ("cos", "sin")))


@_complex_op("_to_copy")
def _converted(n: AtenContext) -> AtenResults:
    found = n.values["self"]
    if isinstance(found, ComplexOperand):
        if not n.node.is_complex:
            raise Unsupported("it drops imaginary parts", "take .real")
        return found
    return ComplexOperand(found, _zeros(n.emit, found))


@_complex_op("real")
def _real_part(n: AtenContext) -> AtenResults:
    return _operand(n, "self").real


@_complex_op("imag")
def _imaginary_part(n: AtenContext) -> AtenResults:
    return _operand(n, "self").imag


@_complex_op("abs")
def _abs(n: AtenContext) -> AtenResults:
    return n.emit.op("sqrt", _squared(n.emit, _operand(n, "self")))


def _squared(emit: Emitter, x: ComplexOperand) -> DraftOperand:
    return emit.op("add", *(emit.op("mul", one, one) for one in (x.real, x.imag)))


@_complex_op("angle")
def _angle(n: AtenContext) -> AtenResults:
    x = _operand(n, "self")
    return n.emit.op("atan2", x.imag, x.real)


@_complex_op("_conj", "_conj_physical", "conj", "conj_physical")
def _conjugate(n: AtenContext) -> AtenResults:
    x = _operand(n, "self")
    return ComplexOperand(x.real, n.emit.op("neg", x.imag))


@_complex_op("resolve_conj", "resolve_neg")
def _unchanged(n: AtenContext) -> AtenResults:
    return _operand(n, "self")


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _two(n: AtenContext) -> tuple[ComplexOperand, ComplexOperand | None, DraftOperand | None, bool]:
    """The complex operand, the other one (complex or real), and whether the two were swapped."""
    one, other = n.values["self"], n.values["other"]
    is_swapped = not isinstance(one, ComplexOperand)
    if is_swapped:
        one, other = other, one
    assert isinstance(one, ComplexOperand)
    if isinstance(other, ComplexOperand):
        return one, other, None, is_swapped
    return one, None, n.as_operand(other, one.real.dtype), is_swapped


@_complex_op("mul")
def _mul(n: AtenContext) -> AtenResults:
    one, other, factor, _ = _two(n)
    if other is None:
        return ComplexOperand(*(n.emit.op("mul", part, factor) for part in (one.real, one.imag)))
    return _product(n.emit, one, other)


def _product(emit: Emitter, one: ComplexOperand, other: ComplexOperand) -> ComplexOperand:
    def times(left: DraftOperand, right: DraftOperand) -> DraftOperand:
        return emit.op("mul", left, right)

    return ComplexOperand(
        emit.op("sub", times(one.real, other.real), times(one.imag, other.imag)),
        emit.op("add", times(one.real, other.imag), times(one.imag, other.real)),
    )


@_complex_op("add", "sub")
def _sum(n: AtenContext) -> AtenResults:
    if n.values.get("alpha", 1) != 1:
        raise Unsupported("it scales one of its operands", "multiply before")
    name = n.node.op.removeprefix("aten.")
    one, other, number, is_swapped = _two(n)
    if other is not None:
        return ComplexOperand(n.emit.op(name, one.real, other.real), n.emit.op(name, one.imag, other.imag))
    if number is None or (is_swapped and name == "sub"):
        raise Unsupported("it subtracts a complex from a real number", "multiply by -1, and add")
    real = n.emit.op(name, one.real, number)
    return ComplexOperand(real, n.emit.op("add", one.imag, _zeros(n.emit, real)))


@_complex_op("div")
def _div(n: AtenContext) -> AtenResults:
    one, other, number, is_swapped = _two(n)
    if other is not None:
        return _quotient(n.emit, *((other, one) if is_swapped else (one, other)))
    assert number is not None
    if is_swapped:
        return _quotient(n.emit, ComplexOperand(number, _zeros(n.emit, number)), one)
    return ComplexOperand(*(n.emit.op("div", part, number) for part in (one.real, one.imag)))


@_complex_op("reciprocal")
def _reciprocal(n: AtenContext) -> AtenResults:
    x = _operand(n, "self")
    below = _squared(n.emit, x)
    return ComplexOperand(n.emit.op("div", x.real, below), n.emit.op("div", n.emit.op("neg", x.imag), below))


def _quotient(emit: Emitter, one: ComplexOperand, divisor: ComplexOperand) -> ComplexOperand:
    above = _product(emit, one, ComplexOperand(divisor.real, emit.op("neg", divisor.imag)))
    below = _squared(emit, divisor)
    return ComplexOperand(*(emit.op("div", part, below) for part in (above.real, above.imag)))


@_complex_op("exp")
def _exp(n: AtenContext) -> AtenResults:
    x = _operand(n, "self")
    size = n.emit.op("exp", x.real)
    return ComplexOperand(*(n.emit.op("mul", size, n.emit.op(name, x.imag)) for name in ("cos", "sin")))


# --- Fourier transforms -----------------------------------------------------------------------------------------------


def _axes(n: AtenContext, rank: int) -> tuple[int, ...]:
    return tuple(n.axis(one, rank) for one in n.ints("dim"))


def _transformed(emit: Emitter, pairs: DraftOperand, axes: Sequence[int], *, inverse: bool) -> DraftOperand:
    """Transform pairs along each axis; an inverse transform divides by the number of points."""
    rank = len(pairs.shape) - 1
    for axis in axes:
        pairs = emit.op("ifft" if inverse else "fft", pairs, axis=axis - rank)
    return pairs


def _scaled(n: AtenContext, pairs: DraftOperand, lengths: Sequence[int], *, divided: bool) -> DraftOperand:
    """Scale as the node normalizes: not at all, by one over the root of the number of points, or by one over it."""
    way = n.integer("normalization")
    if way == (2 if divided else 0):
        return pairs
    if any(map(is_symbolic, lengths)):
        raise Unsupported("it normalizes by a dynamic size")
    count = float(prod(lengths))
    factor = {0: 1.0, 1: 1 / sqrt(count), 2: 1 / count}[way] * (count if divided else 1.0)
    return n.emit.op("mul", pairs, n.emit.scalar(factor, pairs.dtype))


@_complex_op("_fft_r2c")
def _of_real(n: AtenContext) -> AtenResults:
    """Transform the last axis first, which halves it; then the others."""
    x = n.x
    axes = _axes(n, len(x.shape))
    lengths = [x.shape[axis] for axis in axes]
    if n.flag("onesided", default=True):
        order = [*(one for one in range(len(x.shape)) if one != axes[-1]), axes[-1]]
        half = n.emit.op("rfft", n.emit.transpose(x, order))
        back = [order.index(one) for one in range(len(order))]
        pairs = n.emit.transpose(half, [*back, len(back)])
        pairs = _transformed(n.emit, pairs, axes[:-1], inverse=False)
    else:
        pairs = _transformed(n.emit, _pairs(n.emit, ComplexOperand(x, _zeros(n.emit, x))), axes, inverse=False)
    return _parts(n.emit, _scaled(n, pairs, lengths, divided=False))


@_complex_op("_fft_c2c")
def _of_complex(n: AtenContext) -> AtenResults:
    x = _operand(n, "self")
    axes = _axes(n, len(x.real.shape))
    inverse = not n.flag("forward", default=True)
    pairs = _transformed(n.emit, _pairs(n.emit, x), axes, inverse=inverse)
    return _parts(n.emit, _scaled(n, pairs, [x.real.shape[axis] for axis in axes], divided=inverse))


@_complex_op("_fft_c2r")
def _to_real(n: AtenContext) -> AtenResults:
    x = _operand(n, "self")
    rank = len(x.real.shape)
    axes = _axes(n, rank)
    length = n.integer("last_dim_size")
    lengths = [*(x.real.shape[axis] for axis in axes[:-1]), length]
    pairs = _transformed(n.emit, _pairs(n.emit, x), axes[:-1], inverse=True)
    order = [*(one for one in range(rank) if one != axes[-1]), axes[-1]]
    real = n.emit.op("irfft", n.emit.transpose(pairs, [*order, rank]), n=length)
    back = [order.index(one) for one in range(rank)]
    return _scaled(n, n.emit.transpose(real, back), lengths, divided=True)
