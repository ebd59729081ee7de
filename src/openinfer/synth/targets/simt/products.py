"""What products have in common; contractions of a large factor with few vectors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from openinfer.loops.affine import position, variables
from openinfer.loops.build import cast, index, math
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Binary,
    Bind,
    Buffer,
    Cast,
    Const,
    Contraction,
    For,
    Let,
    Load,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
    visit,
)
from openinfer.loops.rewrite import Statements, changed, map_statements, replaced
from openinfer.loops.scales import factored
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.packed import PACKED
from openinfer.synth.targets.simt.wide import FreshNames, WideLoop

_MOST_VECTORS = 8
_UNROLLED = 4
"""Terms per iteration: with fewer, a compiler does not load the next factors in time."""


@dataclass(frozen=True)
class VectorProduct:
    """A contraction of a large factor with few vectors."""

    one: Contraction
    large: Buffer
    factor: Scalar
    """The large factor."""
    vector: Scalar
    """The factor that holds the vectors."""
    rows: tuple[tuple[ScalarVar, int], ...]
    """Free indices of the large factor, with their extents."""
    inside: tuple[tuple[ScalarVar, int], ...]
    """Indices that only the vectors have, with their extents."""
    width: int
    """Elements of the large factor per access."""
    scale: Scalar | None = None
    """What multiplies the sum of the terms of an access."""

    @property
    def is_packed(self) -> bool:
        """Whether the large factor is made of integers, which are converted."""
        return self.large.dtype.kind != "float"

    @property
    def along(self) -> ScalarVar:
        """The reduction index."""
        return self.one.bound[0]

    @property
    def length(self) -> int:
        """Terms per sum."""
        return self.one.reduced[0]

    @property
    def places(self) -> list[dict[Scalar, Scalar]]:
        """The vectors, each as values of the ``inside`` indices."""
        found = product(*(range(extent) for _, extent in self.inside))
        names = [var for var, _ in self.inside]
        return [{var: Const(at, INDEX) for var, at in zip(names, place, strict=True)} for place in found]


def with_fused_sums(body: Statements, machine: SimtMachine) -> Statements:
    """Turns f32 multiply-adds into ``fma``, with a single rounding, if the device has an instruction for it."""

    def fused(one: Statement) -> Statements:
        match one:
            case SetLocal(var, Binary("add", left, Binary("mul", a, b))) if left == var and var.dtype.name == "f32":
                return (SetLocal(var, math("fma", a, b, var)),)
            case _:
                return (one,)

    return map_statements(body, fused) if machine.fuses else body


def over_terms(term: ScalarVar, count: int, body: Statements, machine: SimtMachine, names: FreshNames) -> For:
    """A loop that adds terms, a few of them unrolled where code can ask for that."""
    if not machine.unrolls or count % _UNROLLED:
        return For(term, index(count), body)
    first, turn = names.var("first"), names.var("turn")
    inner = For(turn, index(_UNROLLED), (Let(term, first * _UNROLLED + turn), *body), bind=Bind.UNROLL)
    return For(first, index(count // _UNROLLED), (inner,))


def vector_product(one: Contraction, machine: SimtMachine) -> VectorProduct | None:
    """A contraction as such a product; None if it is not one, or too small to be worth it."""
    one = _with_one_index(one)
    extents = (*one.extents, *one.reduced)
    if one.valid is not None or len(one.bound) != 1 or any(map(is_symbolic, extents)) or one.a == one.b:
        return None
    large = one.a if prod(one.a.shape) > prod(one.b.shape) else one.b
    is_packed = large.dtype.kind != "float"
    one = factored(one) if is_packed else one
    factor, vector = one.factors if large == one.a else one.factors[::-1]
    if is_packed and not _is_number(factor, large, one):
        return None
    used, pairs = variables(factor), tuple(zip(one.free, one.extents, strict=True))
    rows = tuple(pair for pair in pairs if pair[0].name in used)
    inside = tuple(pair for pair in pairs if pair[0].name not in used)
    along = position(large, one.index_of(large))
    if along is None or along.stride(one.bound[0]) != 1 or {var.name for var, _ in rows} & variables(vector):
        return None
    scale, divisors = None, set(_divisors(factor, one.bound[0]))
    if is_packed:
        factor, scale = _without_scale(factor, large, one.bound[0])
    total = ScalarVar(ACCUMULATOR, one.accumulator)
    step = SetLocal(total, Binary("add", total, cast(factor, one.accumulator)))
    loop = WideLoop(one.bound[0], (step,), machine.unaligned)
    width = loop.width(one.reduced[0])
    if is_packed:
        least = max(machine.subgroup, 1)
        while width > 1 and (any(number % width for number in divisors) or one.reduced[0] // width < least):
            width //= 2
        if not loop.is_wide(Load(large, one.index_of(large)), width):
            return None
        factor = _with_exact_products(factor) if machine.fuses else factor
    is_long = width > 1 and one.reduced[0] // width >= machine.subgroup > 0
    is_enough = prod(extent for _, extent in rows) >= machine.units
    is_few = prod(extent for _, extent in inside) <= _MOST_VECTORS
    made = VectorProduct(one, large, factor, vector, rows, inside, width, scale)
    return made if is_long and is_enough and is_few else None


def _with_one_index(one: Contraction) -> Contraction:
    """A sum over groups and their elements as one over all terms, if positions are what the two add up to."""
    if len(one.bound) != 2:
        return one
    (group, element), (count, size) = one.bound, one.reduced
    if is_symbolic(count) or is_symbolic(size):
        return one
    known: dict[Scalar, Scalar] = {group * index(size) + element: element}

    def joined(value: Scalar) -> Scalar:
        return replaced(changed(value, lambda part: _TERM if part in known else None), {group: _TERM // size})

    a, b = (None if value is None else joined(value) for value in (one.a_value, one.b_value))
    a_index, b_index = (tuple(map(joined, where)) for where in (one.a_index, one.b_index))
    if element.name in variables(*(value for value in (a, b) if value is not None), *a_index, *b_index):
        return one
    back: dict[Scalar, Scalar] = {_TERM: element}
    return replace(
        one,
        bound=(element,),
        reduced=(count * size,),
        a_index=tuple(replaced(part, back) for part in a_index),
        b_index=tuple(replaced(part, back) for part in b_index),
        a_value=None if a is None else replaced(a, back),
        b_value=None if b is None else replaced(b, back),
    )


_TERM = ScalarVar(" term")


# --- integers ---------------------------------------------------------------------------------------------------------


def _is_number(factor: Scalar, large: Buffer, one: Contraction) -> bool:
    """Whether integers of a buffer are only read as f32."""
    read = sum(isinstance(part, Load) and part.buffer == large for part in visit(factor))
    real = [part for part in visit(factor) if isinstance(part, Cast) and part.dtype.name == "f32"]
    cast_to = sum(isinstance(part.operand, Load) and part.operand.buffer == large for part in real)
    return large.dtype.name in PACKED and one.accumulator.name == "f32" and read == cast_to > 0


def _divisors(value: Scalar, along: ScalarVar) -> Iterator[int]:
    """The sizes of groups of terms that share something."""
    for part in visit(value):
        match part:
            case Binary("div", left, Const(int(divisor))) if left == along:
                yield divisor


def _without_scale(factor: Scalar, large: Buffer, along: ScalarVar) -> tuple[Scalar, Scalar | None]:
    """A factor, and what multiplies it that whole groups of terms share."""
    match factor:
        case Binary("mul", left, right):
            number, scale = (left, right) if large in _buffers(left) else (right, left)
            known: dict[Scalar, Scalar] = {along // divisor: index(0) for divisor in _divisors(scale, along)}
            is_shared = along.name not in variables(replaced(scale, known)) and large not in _buffers(scale)
            return (number, scale) if is_shared and scale.dtype.name == "f32" else (factor, None)
        case _:
            return factor, None


def _buffers(value: Scalar) -> set[Buffer]:
    return {part.buffer for part in visit(value) if isinstance(part, Load)}


def _with_exact_products(factor: Scalar) -> Scalar:
    """A scaled integer plus an offset in one instruction, if the product has no more digits than f32 holds."""
    match factor:
        case Binary("add", Binary("mul", Cast(Load()) as number, Load(buffer) as scale), offset):
            return math("fma", number, scale, offset) if buffer.dtype.bits <= 16 else factor
        case _:
            return factor


# --- rows -------------------------------------------------------------------------------------------------------------


def with_adjacent_rows(products: Sequence[VectorProduct], count: int) -> list[VectorProduct]:
    """The products, once for each of ``count`` adjacent rows, which then share what is read of the vectors."""
    return [_at_row(one, place, count) for place in range(count) for one in products] if count > 1 else [*products]


def _at_row(product: VectorProduct, place: int, count: int) -> VectorProduct:
    one, (var, extent) = product.one, product.rows[-1]
    known: dict[Scalar, Scalar] = {var: var * count + place}
    out_index = tuple(replaced(part, known) for part in one.out_index)
    return replace(
        product,
        one=replace(one, out_index=out_index, epilogue=replaced(one.epilogue, known)),
        factor=replaced(product.factor, known),
        scale=None if product.scale is None else replaced(product.scale, known),
        rows=(*product.rows[:-1], (var, extent // count)),
    )
