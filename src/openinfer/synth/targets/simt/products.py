"""Contractions whose one factor has few rows: a large factor times few vectors."""

from dataclasses import dataclass
from itertools import product
from math import prod

from openinfer.loops.affine import position, variables
from openinfer.loops.build import cast, math
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Binary,
    Const,
    Contraction,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
)
from openinfer.loops.rewrite import Statements, map_statements
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.wide import WideLoop

_MOST_VECTORS = 8


@dataclass(frozen=True)
class VectorProduct:
    """A contraction whose one factor has few rows."""

    one: Contraction
    factor: Scalar
    """The large factor."""
    vector: Scalar
    """The other one."""
    rows: tuple[tuple[ScalarVar, int], ...]
    """Indices of the large factor that are not summed over, and their extents."""
    inside: tuple[tuple[ScalarVar, int], ...]
    """Indices that only the other one has."""
    width: int
    """Elements of the large factor in an access."""

    @property
    def along(self) -> ScalarVar:
        """What is summed over."""
        return self.one.bound[0]

    @property
    def length(self) -> int:
        """How many terms a sum has."""
        return self.one.reduced[0]

    @property
    def places(self) -> list[dict[Scalar, Scalar]]:
        """The vectors, by their indices."""
        found = product(*(range(extent) for _, extent in self.inside))
        names = [var for var, _ in self.inside]
        return [{var: Const(at, INDEX) for var, at in zip(names, place, strict=True)} for place in found]


def with_fused_sums(body: Statements, machine: SimtMachine) -> Statements:
    """Sums of products in f32, each term of which is rounded once where a device does that in one instruction."""

    def fused(one: Statement) -> Statements:
        match one:
            case SetLocal(var, Binary("add", left, Binary("mul", a, b))) if left == var and var.dtype.name == "f32":
                return (SetLocal(var, math("fma", a, b, var)),)
            case _:
                return (one,)

    return map_statements(body, fused) if machine.fuses else body


def vector_product(one: Contraction, machine: SimtMachine) -> VectorProduct | None:
    """A contraction as such a product; None if it is another one, or too small to be worth it."""
    extents = (*one.extents, *one.reduced)
    if one.valid is not None or len(one.bound) != 1 or any(map(is_symbolic, extents)) or one.a == one.b:
        return None
    large = one.a if prod(one.a.shape) > prod(one.b.shape) else one.b
    if large.dtype.kind != "float":
        return None  # to unpack integers takes longer than to read them: many more threads do that in rows
    factor, vector = one.factors if large == one.a else one.factors[::-1]
    used, pairs = variables(factor), tuple(zip(one.free, one.extents, strict=True))
    rows = tuple(pair for pair in pairs if pair[0].name in used)
    inside = tuple(pair for pair in pairs if pair[0].name not in used)
    along = position(large, one.index_of(large))
    if along is None or along.step(one.bound[0]) != 1 or {var.name for var, _ in rows} & variables(vector):
        return None
    total = ScalarVar(ACCUMULATOR, one.accumulator)
    step = SetLocal(total, Binary("add", total, cast(factor, one.accumulator)))
    width = WideLoop(one.bound[0], (step,), machine.unaligned).width(one.reduced[0])
    is_long = width > 1 and one.reduced[0] // width >= machine.subgroup > 0
    is_enough = prod(extent for _, extent in rows) >= machine.units
    is_few = prod(extent for _, extent in inside) <= _MOST_VECTORS
    return VectorProduct(one, factor, vector, rows, inside, width) if is_long and is_enough and is_few else None
