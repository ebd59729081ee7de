"""Matrix products, and the arithmetic that every contraction shares: accumulators, exact integers, error bounds."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from string import ascii_letters
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import Advice, Code, counted
from openinfer.ops.cases import anything, binary, case, extremes, random
from openinfer.ops.infer import accumulated
from openinfer.ops.numeric import leaving, wrapped
from openinfer.ops.record import EXACT, REQUIRED, SUM, Call, Case, OpCost, Param, op
from openinfer.ops.shapes import broadcast_pair, bytes_moved, gamma, multiplied, per_element
from openinfer.ops.types import (
    NUMBERS,
    TERNARY,
    WITH_ACC,
    OpError,
    Shape,
    TensorType,
    dtypes,
    parameter_error,
    shape_error,
)

FAMILY = "Linear"
OPERANDS = NUMBERS + TERNARY
ACC = Param(
    "acc",
    "dtypes",
    None,
    "The dtype of the sum, and of the result for integers; or the dtypes of the sum and the result.",
)

# --- what every contraction shares ------------------------------------------------------------------------------------


def contracted_dtype(call: Call) -> tuple[DType, ...]:
    """The dtype of a contraction's result; t1 and t2 are not closed under addition and need ``acc``."""
    output = accumulated(call)[1]
    if output.values:
        message = f"a sum of {output.name} values is not {output.name}"
        raise parameter_error("acc", message, Advice("acc=i32 gives an i32 result", WITH_ACC))
    return (output,)


def biased_dtype(call: Call) -> tuple[DType, ...]:
    """As ``contracted_dtype``; a bias, the third input, has the dtype of the operands or of the result."""
    (output,) = contracted_dtype(call)
    bias = bias_of(call)
    if bias is not None and bias.dtype not in (call.dtype(0), output):
        names = " or ".join(dict.fromkeys((call.dtype(0).name, output.name)))
        raise OpError(Code.WRONG_DTYPE, f"the bias is {names} here, not {bias}", 2)
    return (output,)


def bias_of(call: Call) -> TensorType | None:
    """The type of the third input, if it is there."""
    return call.inputs[2] if len(call.inputs) > 2 else None


def require_bias(call: Call, channels: int) -> None:
    """A bias has one element for each output channel."""
    bias = bias_of(call)
    if bias is not None and bias.shape != (channels,):
        raise shape_error(f"the bias is {bias}, but {call.input(1)} makes {channels} channels", 2)


def opened(call: Call, *arrays: Array) -> list[Array]:
    """Operands in the type that products are summed in: the accumulator's, or their own where that is wider."""
    if arrays[0].dtype.kind != "f":
        return list(arrays)
    kind = np.promote_types(arrays[0].dtype, accumulated(call)[0].compute.array)
    return [array.astype(kind, copy=False) for array in arrays]


def closed(call: Call, total: Array) -> Array:
    """A sum as its accumulator holds it."""
    accumulator = accumulated(call)[0]
    return leaving(accumulator)(total) if total.dtype.kind == "f" else wrapped(total, accumulator)


def contract(a: Array, b: Array) -> Array:
    """The matrix product of two arrays: floats through BLAS, integers exactly, modulo 2**64 as i64.

    >>> contract(np.array([[2**62, 1]]), np.array([[4], [7]]))
    array([[7]])
    """
    if a.dtype.kind == "f":
        return _product(a, b)
    if _magnitude(a) * _magnitude(b) * a.shape[-1] < 2**53:
        # Every partial sum is an integer that f64 has.
        return _product(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    return _product(a.astype(np.int64), b.astype(np.int64))


def _product(a: Array, b: Array) -> Array:
    if b.ndim == 2 and a.ndim > 2 and a.size:
        # One large product is faster than one for each matrix of the batch.
        return np.matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    return np.matmul(a, b)


def _magnitude(array: Array) -> int:
    return max(int(array.max(initial=0)), -int(array.min(initial=0)))


def error_bound(call: Call, terms: int, magnitudes: Array) -> Any:
    """The error of a sum of ``terms`` products, where ``magnitudes`` are the sums of their magnitudes.

    Few are added up in any order, many in blocks.
    """
    accumulator = accumulated(call)[0]
    if accumulator.kind != "float":
        return 0.0
    return gamma(multiplied(terms), accumulator) * magnitudes + terms * accumulator.least_positive


def accumulators(dtype: DType) -> list[dict[str, Any]]:
    """The ``acc`` parameters that test cases use for operands of a dtype."""
    if dtype.kind == "float":
        choices = ["", "f32", "f64", "f32 f32", "f64 f16", "bf16"]
    else:
        choices = [*[""][: not dtype.values], "i32", "i64", "u8", "i4", "i32 i8", "i8 i32", "u16 i2"]
    return [{"acc": dtypes(names)} if names else {} for names in choices]


# --- matmul -----------------------------------------------------------------------------------------------------------


def _matrix(call: Call, slot: int) -> Shape:
    """The shape of an operand as a stack of matrices: vectors are rows on the left and columns on the right."""
    kind, flag = call.input(slot), ("transpose_a", "transpose_b")[slot]
    shape = kind.shape
    if not shape:
        raise shape_error(f"'matmul' multiplies vectors and matrices, not {kind}", slot)
    if len(shape) == 1:
        if call.params[flag]:
            raise parameter_error(flag, f"'{flag}' is for matrices, not {kind}")
        return (1, *shape) if slot == 0 else (*shape, 1)
    return (*shape[:-2], shape[-1], shape[-2]) if call.params[flag] else shape


def _matmul_shape(call: Call) -> tuple[Shape, ...]:
    left, right = _matrix(call, 0), _matrix(call, 1)
    if left[-1] != right[-2]:
        message = (
            f"{call.input(0)} has {counted(left[-1], 'column')} and {call.input(1)} has {counted(right[-2], 'row')}"
        )
        swapped = [name for name in ("transpose_a", "transpose_b") if call.params[name]]
        raise shape_error(message + (f", with {' and '.join(swapped)}" if swapped else ""), 1)
    batch = broadcast_pair(left[:-2], right[:-2])
    if batch is None:
        raise shape_error(f"the batches of {call.input(0)} and {call.input(1)} do not broadcast", 1)
    rows = left[-2:-1] if len(call.shape(0)) > 1 else ()
    columns = right[-1:] if len(call.shape(1)) > 1 else ()
    return ((*batch, *rows, *columns),)


def _matmul_cost(call: Call) -> OpCost:
    return OpCost(2 * call.outputs[0].size * _matrix(call, 0)[-1], *bytes_moved(call))


def _multiplied(call: Call, a: Array, b: Array) -> Array:
    left = np.swapaxes(a, -1, -2) if call.params["transpose_a"] else a.reshape(_matrix(call, 0))
    right = np.swapaxes(b, -1, -2) if call.params["transpose_b"] else b.reshape(_matrix(call, 1))
    return contract(left, right).reshape(call.outputs[0].shape)


def _matmul_bound(call: Call, a: Array, b: Array) -> Any:
    return error_bound(call, _matrix(call, 0)[-1], _multiplied(call, np.abs(a), np.abs(b)))


_MATMUL_SHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((3, 7), (7, 5)),
    ((7,), (7,)),
    ((7,), (7, 5)),
    ((3, 7), (7,)),
    ((2, 3, 4), (4, 5)),
    ((4, 5), (2, 5, 3)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((5,), (2, 5, 3)),
    ((1, 1), (1, 1)),
    ((17, 33), (33, 9)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((0,), (0,)),
    ((2, 0, 3), (3, 2)),
)
_TRANSPOSED: tuple[tuple[Shape, Shape, dict[str, Any]], ...] = (
    ((7, 3), (7, 5), {"transpose_a": True}),
    ((2, 3, 7), (5, 7), {"transpose_b": True}),
    ((4, 3), (2, 5, 4), {"transpose_a": True, "transpose_b": True}),
)


def spread_values(rng: np.random.Generator, dtype: DType, shape: Shape) -> Array:
    """Operands of test contractions: every integer, and floats whose sums stay finite."""
    return random(rng, dtype, shape) if dtype.kind == "float" else anything(rng, dtype, shape)


def _matmul_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    choices = accumulators(dtype)
    for one, other in _MATMUL_SHAPES:
        yield case(dtype, spread_values(rng, dtype, one), spread_values(rng, dtype, other), **choices[0])
    for one, other, flags in _TRANSPOSED:
        yield case(dtype, spread_values(rng, dtype, one), spread_values(rng, dtype, other), **flags, **choices[0])
    for chosen in choices[1:]:
        yield case(dtype, spread_values(rng, dtype, (3, 5)), spread_values(rng, dtype, (5, 2)), **chosen)
    values = extremes(dtype)
    yield case(dtype, values.reshape(-1, 1), values.reshape(1, -1), **choices[0])


@op(
    FAMILY,
    "a: T~, b: T~ -> T",
    Param("transpose_a", "bool", default=False, doc="Whether the last two axes of `a` are exchanged first."),
    Param("transpose_b", "bool", default=False, doc="Whether the last two axes of `b` are exchanged first."),
    ACC,
    shape=_matmul_shape,
    dtype=contracted_dtype,
    cost=_matmul_cost,
    tolerance=SUM,
    bound=_matmul_bound,
    cases=_matmul_cases,
    T=OPERANDS,
)
def matmul(call: Call, a: Array, b: Array) -> Array:
    """The matrix product over the last two axes, `y[..., i, j] = sum_k a[..., i, k] * b[..., k, j]`.

    Leading axes broadcast; a vector is a row on the left and a column on the right, and its axis is not in the result.
    """
    return closed(call, _multiplied(call, *opened(call, a, b)))


# --- linear -----------------------------------------------------------------------------------------------------------


def _linear_shape(call: Call) -> tuple[Shape, ...]:
    x, w = call.input(0), call.input(1)
    if len(w.shape) != 2:
        raise shape_error(f"the weights of 'linear' are [out, in], not {w}", 1)
    if not x.shape or x.shape[-1] != w.shape[1]:
        raise shape_error(f"the last axis of {x} is not the {counted(w.shape[1], 'input')} of {w}", 0)
    require_bias(call, w.shape[0])
    return ((*x.shape[:-1], w.shape[0]),)


def _linear_total(x: Array, w: Array, bias: Array | None) -> Array:
    total = contract(np.atleast_2d(x), w.T).reshape(*x.shape[:-1], w.shape[0])
    if bias is not None:
        total += bias.astype(total.dtype, copy=False)
    return total


def _linear_bound(call: Call, x: Array, w: Array, bias: Array | None = None) -> Any:
    magnitudes = _linear_total(np.abs(x), np.abs(w), None if bias is None else np.abs(bias))
    return error_bound(call, x.shape[-1] + (bias is not None), magnitudes)


def _linear_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    choices = accumulators(dtype)
    for x, w in (
        ((3, 7), (5, 7)),
        ((7,), (5, 7)),
        ((2, 3, 4), (1, 4)),
        ((0, 4), (3, 4)),
        ((3, 0), (2, 0)),
        ((1,), (1, 1)),
    ):
        arrays = spread_values(rng, dtype, x), spread_values(rng, dtype, w)
        yield case(dtype, *arrays, None, **choices[0])
        own = dtype if not dtype.values else dtypes("i32")[0]
        yield Case((*arrays, spread_values(rng, own, w[:1])), (dtype, dtype, own), choices[0])
    for chosen in choices[1:]:
        output = chosen["acc"][-1] if dtype.kind != "float" or len(chosen["acc"]) > 1 else dtype
        arrays = spread_values(rng, dtype, (2, 9)), spread_values(rng, dtype, (4, 9))
        yield Case((*arrays, spread_values(rng, output, (4,))), (dtype, dtype, output), chosen)
    values = extremes(dtype).reshape(-1, 1)
    yield case(dtype, values, values, None, **choices[0])


@op(
    FAMILY,
    "x: T~, w: T~, bias?: B -> T",
    ACC,
    shape=_linear_shape,
    dtype=biased_dtype,
    cost=lambda call: OpCost(2 * call.outputs[0].size * call.shape(0)[-1], *bytes_moved(call)),
    tolerance=SUM,
    bound=_linear_bound,
    cases=_linear_cases,
    T=OPERANDS,
    B=OPERANDS,
)
def linear(call: Call, x: Array, w: Array, bias: Array | None = None) -> Array:
    """A dense layer with weights [out, in], `y[..., o] = sum_i x[..., i] * w[o, i] + bias[o]`.

    The bias has the dtype of the operands or that of the result, and is added in the accumulator.
    """
    inputs, weights = opened(call, x, w)
    return closed(call, _linear_total(inputs, weights, bias))


# --- outer ------------------------------------------------------------------------------------------------------------


@op(
    FAMILY,
    "a: T, b: T -> T",
    shape=lambda call: (call.shape(0) + call.shape(1),),
    cost=per_element(1),
    tolerance=EXACT,
    cases=binary(),
    T=OPERANDS,
)
def outer(_call: Call, a: Array, b: Array) -> Array:
    """Every product of an element of `a` with one of `b`, `y[i..., j...] = a[i...] * b[j...]`. Integers wrap."""
    return np.multiply.outer(a, b)


# --- einsum -----------------------------------------------------------------------------------------------------------


def _equation(text: str) -> tuple[list[str], str]:
    """The labels of each operand and of the result."""
    equation = text.replace(" ", "")
    if "." in equation:
        raise parameter_error("equation", f"the equation {text!r} has an ellipsis", "give every axis a letter")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    strange = next((letter for letter in left.replace(",", "") + right if letter not in ascii_letters), None)
    if strange is not None:
        message = f"the equation {text!r} has {strange!r} where a letter should be"
        raise parameter_error("equation", message, 'write it like "ij,jk->ik"')
    counts = Counter("".join(terms))
    result = right if arrow else "".join(sorted(label for label, count in counts.items() if count == 1))
    for label in result:
        if label not in counts:
            raise parameter_error("equation", f"the result of {text!r} has {label!r}, which no operand has")
    if len(set(result)) < len(result):
        raise parameter_error("equation", f"the result of {text!r} has a letter twice")
    return terms, result


def _extents(call: Call) -> dict[str, int]:
    """The extent of each label."""
    terms, _ = _equation(call.params["equation"])
    if len(terms) != len(call.inputs):
        message = (
            f"the equation {call.params['equation']!r} is for {len(terms)} operands, and there are {len(call.inputs)}"
        )
        raise parameter_error("equation", message)
    extents: dict[str, int] = {}
    for slot, term in enumerate(terms):
        kind = call.input(slot)
        if len(term) != len(kind.shape):
            raise shape_error(f"{kind} has {len(kind.shape)} axes, but the equation says {term!r}", slot)
        for label, extent in zip(term, kind.shape, strict=True):
            if extents.setdefault(label, extent) != extent:
                message = f"{label!r} is {extents[label]} for an operand before, but {extent} in {kind}"
                raise shape_error(message, slot)
    return extents


def _einsum_shape(call: Call) -> tuple[Shape, ...]:
    extents = _extents(call)
    return (tuple(extents[label] for label in _equation(call.params["equation"])[1]),)


def _diagonal(array: Array, term: str) -> tuple[Array, str]:
    """An operand in which each label is one axis."""
    for label in set(term):
        while term.count(label) > 1:
            first = term.index(label)
            second = term.index(label, first + 1)
            array = np.diagonal(array, 0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + label
    return array, term


def _only(array: Array, term: str, keep: str) -> tuple[Array, str]:
    """An operand summed over the labels that nothing else has."""
    gone = tuple(axis for axis, label in enumerate(term) if label not in keep)
    if not gone:
        return array, term
    kind = None if array.dtype.kind == "f" else np.int64
    return array.sum(axis=gone, dtype=kind), "".join(label for label in term if label in keep)


def _paired(a: Array, left: str, b: Array, right: str, keep: str) -> tuple[Array, str]:
    """Two operands contracted over the labels they share and nothing else has."""
    a, left = _only(a, left, right + keep)
    b, right = _only(b, right, left + keep)
    both = [label for label in left if label in right]
    batch = [label for label in both if label in keep]
    summed = [label for label in both if label not in keep]
    rows, columns = [one for one in left if one not in right], [one for one in right if one not in left]
    size = dict(zip(left + right, a.shape + b.shape, strict=True))
    lengths = [prod(size[label] for label in group) for group in (batch, rows, summed, columns)]
    first = a.transpose([left.index(label) for label in batch + rows + summed])
    second = b.transpose([right.index(label) for label in batch + summed + columns])
    total = contract(
        first.reshape(lengths[0], lengths[1], lengths[2]), second.reshape(lengths[0], lengths[2], lengths[3])
    )
    labels = batch + rows + columns
    return total.reshape([size[label] for label in labels]), "".join(labels)


def _summed(call: Call, arrays: Sequence[Array]) -> Array:
    terms, result = _equation(call.params["equation"])
    total, labels = _diagonal(arrays[0], terms[0])
    for position, (array, term) in enumerate(zip(arrays[1:], terms[1:], strict=True), start=2):
        total, labels = _paired(total, labels, *_diagonal(array, term), "".join(terms[position:]) + result)
    total, labels = _only(total, labels, result)
    return total.transpose([labels.index(label) for label in result])


def _einsum_bound(call: Call, *arrays: Array) -> Any:
    size, (terms, result) = _extents(call), _equation(call.params["equation"])
    count = prod(extent for label, extent in size.items() if label not in result)
    # A product of n factors is rounded n - 1 times before it is summed.
    return error_bound(call, count + len(terms) - 1, _summed(call, [np.abs(array) for array in arrays]))


def _einsum_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    choices = accumulators(dtype)
    for equation, *shapes in (
        ("ij,jk->ik", (3, 5), (5, 2)),
        ("ij,jk", (3, 5), (5, 2)),
        ("ba, cb", (2, 3), (4, 2)),
        ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
        ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 1, 4)),
        ("i,j->ji", (3,), (2,)),
        ("ij,ij->", (3, 4), (3, 4)),
        ("ij->ji", (3, 4)),
        ("ii", (4, 4)),
        ("iji->j", (3, 2, 3)),
        ("ij,k->i", (2, 3), (4,)),
        ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
        ("i,i,i->i", (5,), (5,), (5,)),
        (",", (), ()),
        ("", ()),
        ("ij,jk->ik", (0, 3), (3, 2)),
        ("ij,jk->ik", (2, 0), (0, 3)),
    ):
        yield case(dtype, *(spread_values(rng, dtype, shape) for shape in shapes), equation=equation, **choices[0])
    for chosen in choices[1:]:
        arrays = spread_values(rng, dtype, (3, 4)), spread_values(rng, dtype, (4, 2))
        yield case(dtype, *arrays, equation="ab,bc->ca", **chosen)
    yield case(dtype, extremes(dtype), extremes(dtype), equation="i,j->ij", **choices[0])


@op(
    FAMILY,
    "operands...: T -> T",
    Param("equation", "str", REQUIRED, 'A letter for each axis of each operand and of the result: "ij,jk->ik".'),
    ACC,
    shape=_einsum_shape,
    dtype=contracted_dtype,
    cost=lambda call: OpCost(len(call.inputs) * prod(_extents(call).values()), *bytes_moved(call)),
    tolerance=SUM,
    bound=_einsum_bound,
    cases=_einsum_cases,
    T=OPERANDS,
)
def einsum(call: Call, *operands: Array) -> Array:
    """A sum of products in Einstein's notation: `ij,jk->ik` means `y[i, k] = sum_j a[i, j] * b[j, k]`.

    Letters that the result does not have are summed over; a letter twice in an operand means its diagonal. Without
    `->` the result has the letters that occur once, in alphabetical order. A letter has one extent everywhere.
    Operands are contracted in pairs from the left.
    """
    return closed(call, _summed(call, opened(call, *operands)))
