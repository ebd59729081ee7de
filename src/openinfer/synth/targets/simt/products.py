"""What products have in common; contractions of a large factor with few vectors."""

from dataclasses import dataclass
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
    Const,
    Contraction,
    For,
    Let,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
)
from openinfer.loops.rewrite import Statements, map_statements
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.wide import FreshNames, WideLoop

_MOST_VECTORS = 8
_UNROLLED = 4
"""Terms per iteration: with fewer, a compiler does not load the next factors in time."""


@dataclass(frozen=True)
class VectorProduct:
    """A contraction of a large factor with few vectors."""

    one: Contraction
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
    extents = (*one.extents, *one.reduced)
    if one.valid is not None or len(one.bound) != 1 or any(map(is_symbolic, extents)) or one.a == one.b:
        return None
    large = one.a if prod(one.a.shape) > prod(one.b.shape) else one.b
    if large.dtype.kind != "float":
        return None  # unpacking integers takes longer than reading them, and rows have many more threads
    factor, vector = one.factors if large == one.a else one.factors[::-1]
    used, pairs = variables(factor), tuple(zip(one.free, one.extents, strict=True))
    rows = tuple(pair for pair in pairs if pair[0].name in used)
    inside = tuple(pair for pair in pairs if pair[0].name not in used)
    along = position(large, one.index_of(large))
    if along is None or along.stride(one.bound[0]) != 1 or {var.name for var, _ in rows} & variables(vector):
        return None
    total = ScalarVar(ACCUMULATOR, one.accumulator)
    step = SetLocal(total, Binary("add", total, cast(factor, one.accumulator)))
    width = WideLoop(one.bound[0], (step,), machine.unaligned).width(one.reduced[0])
    is_long = width > 1 and one.reduced[0] // width >= machine.subgroup > 0
    is_enough = prod(extent for _, extent in rows) >= machine.units
    is_few = prod(extent for _, extent in inside) <= _MOST_VECTORS
    return VectorProduct(one, factor, vector, rows, inside, width) if is_long and is_enough and is_few else None
