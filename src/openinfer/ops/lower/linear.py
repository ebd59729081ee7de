"""Matrix products and sums of products: contractions, with the bias and the roundings in their epilogue."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openinfer.dtypes import DType
from openinfer.loops.build import Builder, Position, broadcast_index, cast, index, rounded
from openinfer.loops.ir import ACCUMULATOR, Buffer, Contraction, LoopKind, Scalar, ScalarVar, visit
from openinfer.ops.infer import accumulated
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.types import F32, F64

# --- what every contraction shares ------------------------------------------------------------------------------------


def sum_dtype(call: Call) -> DType:
    """The type that products are summed in: the accumulator's, or the operands' where that is wider."""
    accumulator = accumulated(call)[0].compute
    if accumulator.kind != "float":
        return accumulator
    return F64 if F64 in (accumulator, call.dtype(0).compute) else F32


def closed(call: Call, total: Scalar) -> Scalar:
    """A sum as its accumulator holds it, in the compute type of the result."""
    accumulator, output = accumulated(call)
    return cast(rounded(cast(total, accumulator.compute), accumulator), output.compute)


@dataclass(frozen=True)
class Indices:
    """The indices of a contraction: those of the result, and those that are summed over."""

    free: tuple[ScalarVar, ...]
    extents: tuple[int, ...]
    bound: tuple[ScalarVar, ...]
    reduced: tuple[int, ...]


def indices(builder: Builder, extents: Sequence[int], reduced: Sequence[int]) -> Indices:
    """New ones for these extents."""
    free = tuple(builder.fresh("i") for _ in extents)
    return Indices(free, tuple(extents), tuple(builder.fresh("k") for _ in reduced), tuple(reduced))


def contract(
    call: Call,
    builder: Builder,
    over: Indices,
    out: tuple[Buffer, Sequence[Position]],
    factors: tuple[tuple[KernelInput, Sequence[Position]], tuple[KernelInput, Sequence[Position]]],
    epilogue: Callable[[Scalar], Scalar],
    valid: Scalar | None = None,
    b_value: Scalar | None = None,
) -> None:
    """``out = epilogue(sum of the products of two factors)``, each at its coordinates.

    ``b_value`` is given where the second factor is dequantized in another way than an element at its coordinates.
    """
    dtype = sum_dtype(call)
    add_products(builder, over, out, factors, epilogue(ScalarVar(ACCUMULATOR, dtype)), valid, b_value)


def add_products(
    builder: Builder,
    over: Indices,
    out: tuple[Buffer, Sequence[Position]],
    factors: tuple[tuple[KernelInput, Sequence[Position]], tuple[KernelInput, Sequence[Position]]],
    epilogue: Scalar,
    valid: Scalar | None = None,
    b_value: Scalar | None = None,
) -> None:
    """The same with the epilogue as an expression over the sum, whose type says what is added up in."""
    (a, a_place), (b, b_place) = ((operand, tuple(map(index, place))) for operand, place in factors)
    (accumulator,) = {one.dtype for one in visit(epilogue) if isinstance(one, ScalarVar) and one.name == ACCUMULATOR}
    builder.add(
        Contraction(
            out=out[0],
            a=a.buffer,
            b=b.buffer,
            free=over.free,
            extents=over.extents,
            bound=over.bound,
            reduced=over.reduced,
            out_index=tuple(map(index, out[1])),
            a_index=a_place,
            b_index=b_place,
            accumulator=accumulator,
            epilogue=epilogue,
            valid=valid,
            a_value=None if a.dequantize is None else a[a_place],
            b_value=None if b.dequantize is None else b_value or b[b_place],
        )
    )


def group_extents(operand: KernelInput, axis: int) -> tuple[int, int] | None:
    """How many groups an operand has along an axis, and their size, where all have the same."""
    groups = operand.groups
    if groups is None or groups.axis != axis or operand.shape[axis] % groups.size:
        return None
    return operand.shape[axis] // groups.size, groups.size


def finished(call: Call, bias: KernelInput | None, channel: Position) -> Callable[[Scalar], Scalar]:
    """The epilogue that adds a bias to the sum before it is rounded."""

    def epilogue(total: Scalar) -> Scalar:
        return closed(call, total if bias is None else total + cast(bias[channel], total.dtype))

    return epilogue


# --- products of matrices ---------------------------------------------------------------------------------------------


@lowers("matmul")
def matmul(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """Free indices are the batch, the row and the column; a vector has no row or column of its own."""
    a, b = inputs
    assert a is not None
    assert b is not None
    (out,) = outputs
    transposed_a, transposed_b = call.params["transpose_a"], call.params["transpose_b"]
    if transposed_a or transposed_b:
        at = "k, i" if transposed_a else "i, k", "j, k" if transposed_b else "k, j"
        builder.summarize(
            f"The matrix product over two axes, `y[..., i, j] = sum_k a[..., {at[0]}] * b[..., {at[1]}]`."
        )
    over = indices(builder, out.shape, (a.shape[-2] if transposed_a else a.shape[-1],))
    (k,), rest = over.bound, list(over.free)
    column = (rest.pop(),) if len(b.shape) > 1 else ()
    row = (rest.pop(),) if len(a.shape) > 1 else ()
    left = (k, *row) if transposed_a else (*row, k)
    right = (*column, k) if transposed_b else (k, *column)
    factors = (
        (a, (*broadcast_index(rest, a.shape[:-2]), *left)),
        (b, (*broadcast_index(rest, b.shape[:-2]), *right)),
    )
    contract(call, builder, over, (out, over.free), factors, finished(call, None, 0))


@lowers("linear")
def linear(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """Rows of the input times rows of the weights."""
    x, w, bias = (*inputs, None)[:3]
    assert x is not None
    assert w is not None
    (out,) = outputs
    groups = group_extents(w, 1)
    over = indices(builder, out.shape, groups or x.shape[-1:])
    *rows, feature = over.free
    if groups:
        group, element = over.bound
        k: Scalar = group * groups[1] + element
        value = w.in_group((feature, k), (feature, group))
    else:
        (k,), value = over.bound, None
    factors = (x, (*rows, k)), (w, (feature, k))
    contract(call, builder, over, (out, over.free), factors, finished(call, bias, feature), b_value=value)


@lowers("outer")
def outer(_call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """Every product of two elements."""
    a, b = inputs
    assert a is not None
    assert b is not None
    (out,) = outputs
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        count = len(a.shape)
        builder.store(out, where, a[where[:count]] * b[where[count:]])


# --- Einstein's notation ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Term:
    """An operand and a letter for each of its axes."""

    operand: KernelInput
    labels: str

    @property
    def extents(self) -> dict[str, int]:
        """The extent of each letter."""
        return dict(zip(self.labels, self.operand.shape, strict=True))

    def place(self, at: dict[str, ScalarVar]) -> tuple[ScalarVar, ...]:
        """Where the element for these letters is."""
        return tuple(at[label] for label in self.labels)


def _equation(text: str) -> tuple[list[str], str]:
    """The letters of each operand and of the result; without an arrow, of those that occur once."""
    left, arrow, right = text.replace(" ", "").partition("->")
    once = sorted(label for label, count in Counter(left.replace(",", "")).items() if count == 1)
    return left.split(","), right if arrow else "".join(once)


def _scratch(call: Call, builder: Builder, labels: str, extents: dict[str, int]) -> tuple[Term, Buffer]:
    """Memory for a sum that another one goes on with; it is not rounded in between."""
    memory = builder.buffer(sum_dtype(call), [extents[label] for label in labels], "part")
    return Term(KernelInput(memory, memory.dtype), labels), memory


def _sum(call: Call, builder: Builder, term: Term, result: str, out: Buffer, close: Callable[[Scalar], Scalar]) -> None:
    """The sum of one operand over the letters that the result lacks."""
    summed = [label for label in dict.fromkeys(term.labels) if label not in result]
    dtype = sum_dtype(call)
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        at = dict(zip(result, where, strict=True))
        if not summed:
            builder.store(out, where, close(cast(term.operand[term.place(at)], dtype)))
            return
        total = builder.local(0, dtype)
        with builder.loops([term.extents[label] for label in summed]) as inner:
            at |= dict(zip(summed, inner, strict=True))
            builder.assign(total, total + cast(term.operand[term.place(at)], dtype))
        builder.store(out, where, close(total))


def _only(call: Call, builder: Builder, term: Term, keep: str) -> Term:
    """An operand summed over the letters that nothing else has."""
    kept = "".join(label for label in dict.fromkeys(term.labels) if label in keep)
    if set(kept) == set(term.labels):
        return term
    part, memory = _scratch(call, builder, kept, term.extents)
    _sum(call, builder, term, kept, memory, lambda total: total)
    return part


def _product(
    call: Call, builder: Builder, a: Term, b: Term, result: str, out: Buffer, close: Callable[[Scalar], Scalar]
) -> None:
    """Two operands contracted over the letters that the result lacks."""
    extents = a.extents | b.extents
    summed = [label for label in extents if label not in result]
    over = indices(builder, out.shape, [extents[label] for label in summed])
    at = dict(zip([*result, *summed], [*over.free, *over.bound], strict=True))
    factors = (a.operand, a.place(at)), (b.operand, b.place(at))
    contract(call, builder, over, (out, over.free), factors, close)


@lowers("einsum")
def einsum(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """Operands are contracted in pairs from the left; what all but the last pair give is kept in scratch memory."""
    (out,) = outputs
    labels, result = _equation(call.params["equation"])
    terms = [Term(operand, own) for operand, own in zip(inputs, labels, strict=True) if operand is not None]
    close = finished(call, None, 0)
    total = terms[0]
    if len(terms) == 1:
        _sum(call, builder, total, result, out, close)
    for position, term in enumerate(terms[1:], start=2):
        later = "".join(labels[position:]) + result
        total = _only(call, builder, total, term.labels + later)
        other = _only(call, builder, term, total.labels + later)
        if position == len(terms):
            _product(call, builder, total, other, result, out, close)
            return
        kept = "".join(label for label in dict.fromkeys(total.labels + other.labels) if label in later)
        part, memory = _scratch(call, builder, kept, total.extents | other.extents)
        _product(call, builder, total, other, kept, memory, lambda value: value)
        total = part
