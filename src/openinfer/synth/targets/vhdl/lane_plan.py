"""Which contractions run on lanes, and how their weights are laid out for them.

A lane does one multiply-add per clock. All lanes get the same element of the changing operand, and each has a weight of
its own. So a word of their memory has one weight per lane, and words follow the order of the terms. Lanes run along an
index that only weights have: the features of a convolution or a linear layer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from openinfer.loops.dim import Dim
from openinfer.loops.intervals import Interval, product_interval
from openinfer.loops.ir import Binary, Buffer, Const, Contraction, Kernel, Load, Scalar, ScalarVar, visit
from openinfer.loops.text import kernel_text
from openinfer.loops.used import offset, used_variables
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import KernelStep, Value, Weight
from openinfer.synth.targets.vhdl.contents import WeightContents, WeightNumbers
from openinfer.synth.targets.vhdl.ranges import of_dtype

_FACTOR_BITS = 18
_MOST_LANES = 64


@dataclass(frozen=True)
class LaneProduct:
    """A contraction that lanes compute: operand ``a`` changes, operand ``b`` is a weight."""

    contraction: Contraction
    weight_at: int
    """The kernel input that is the weight."""
    lane: ScalarVar | None
    """The index that lanes run along; None if one lane does all the work."""

    @property
    def features(self) -> int:
        """The number of results along the lane index."""
        own = self.contraction
        return 1 if self.lane is None else own.extents[own.free.index(self.lane)]

    @property
    def terms(self) -> int:
        """The number of terms of a sum."""
        return prod(self.contraction.reduced)

    @property
    def outer(self) -> list[tuple[ScalarVar, int]]:
        """The other indices of a result, and their extents."""
        own = self.contraction
        return [(var, one) for var, one in zip(own.free, own.extents, strict=True) if var != self.lane]

    @property
    def chosen(self) -> list[tuple[ScalarVar, int]]:
        """The outer indices that select weights: groups."""
        used = used_variables(*self.contraction.b_index)
        return [(var, one) for var, one in self.outer if var.name in used and one > 1]

    def blocks(self, lanes: int) -> list[int]:
        """The number of busy lanes in each block of features."""
        return [min(lanes, self.features - first) for first in range(0, self.features, lanes)]


@dataclass(frozen=True)
class LaneShape:
    """The lanes of a circuit: their number, their widths, and the depth of their memory."""

    count: int
    factor_bits: int
    """Of the element that all lanes get, including its sign."""
    weight_bits: int
    sum_bits: int
    words: int

    @property
    def address_bits(self) -> int:
        """The width of a word address."""
        return max(self.words.bit_length(), 1)


@dataclass(frozen=True)
class LanePlan:
    """The contractions that run on lanes, by kernel text, and the words of their weights."""

    shape: LaneShape
    products: Mapping[str, LaneProduct]
    bases: Mapping[tuple[str, Weight], int]
    """The first word of a weight, by kernel text and weight."""
    words: tuple[int, ...]
    """The lowest bits of a word are the weight of the first lane."""

    @property
    def behind_one(self) -> "LanePlan":
        """The same plan with an unused word in front."""
        shape = replace(self.shape, words=self.shape.words + 1)
        return LanePlan(shape, self.products, {key: at + 1 for key, at in self.bases.items()}, (0, *self.words))


def lane_plan(placed: Placed, contents: WeightContents, multipliers: int | None, bits: int | None) -> LanePlan | None:
    """The plan of a program's lanes; None if nothing runs on lanes."""
    most_bits = min(bits or _FACTOR_BITS, _FACTOR_BITS)
    steps = [step for step in placed.program.steps() if isinstance(step, KernelStep)]
    found: dict[str, LaneProduct] = {}
    refused: set[str] = set()
    for step in steps:
        text, own = kernel_text(step.kernel), lane_product(step, most_bits)
        if own is None:
            refused.add(text)
        else:
            found[text] = own
    found = {text: one for text, one in found.items() if text not in refused}
    if not found:
        return None
    count = _lane_count(list(found.values()), min(multipliers or _MOST_LANES, _MOST_LANES))
    words: list[int] = []
    bases: dict[tuple[str, Weight], int] = {}
    ends = contents.by_kernel
    weight_bits = max(_signed_bits(ends[text][one.contraction.b.name]) for text, one in found.items())
    for step in steps:
        text = kernel_text(step.kernel)
        if text in found:
            one = found[text]
            weight = step.inputs[one.weight_at]
            assert isinstance(weight, Weight)
            if (text, weight) not in bases:
                bases[text, weight] = len(words)
                words += _words(one, next(contents.numbers(weight)), count, weight_bits)
    shape = LaneShape(
        count=count,
        factor_bits=max(_signed_bits(of_dtype(one.contraction.a.dtype)) for one in found.values()),
        weight_bits=weight_bits,
        sum_bits=max(_signed_bits(sum_range(one, ends[text])) for text, one in found.items()),
        words=len(words),
    )
    return LanePlan(shape, found, bases, tuple(words))


def _signed_bits(ends: Interval) -> int:
    """The bits of a signed number within an interval."""
    least, most = ends
    return max(most.bit_length(), (-least - 1).bit_length() if least < 0 else 0) + 1


def sum_range(one: LaneProduct, contents: dict[str, Interval]) -> Interval:
    """The range of a sum: that of its dtype, at most."""
    own = one.contraction
    term = product_interval(of_dtype(own.a.dtype), contents[own.b.name])
    least, most = min(term[0], 0) * one.terms, max(term[1], 0) * one.terms
    full = of_dtype(own.accumulator)
    return (least, most) if full[0] <= least and most <= full[1] else full


def lane_product(step: KernelStep, most_bits: int) -> LaneProduct | None:
    """A kernel as a product on lanes, or None if it is not one."""
    if len(step.kernel.body) != 1 or not isinstance(step.kernel.body[0], Contraction):
        return None
    own = step.kernel.body[0]
    if own.a_value is not None or own.b_value is not None or own.a.name == own.b.name:
        return None
    operands = {buffer.name: operand for buffer, operand in zip(step.kernel.inputs, step.inputs, strict=True)}
    if isinstance(operands.get(own.a.name), Weight):
        own = _swapped(own)
    a, b = operands.get(own.a.name), operands.get(own.b.name)
    if not isinstance(a, Value) or not isinstance(b, Weight) or b.index or len(b.names) != 1 or b.packing is not None:
        return None
    if any(isinstance(one, Dim) or one < 1 for one in (*own.extents, *own.reduced)):
        return None
    if not _are_narrow(own, most_bits) or not _is_straight(own) or not all(map(_is_evaluable, own.b_index)):
        return None
    return LaneProduct(own, _input(step.kernel, own.b), _lane(own))


def _are_narrow(own: Contraction, most_bits: int) -> bool:
    """Whether the factors fit multipliers; elements that share a byte cannot be read one per clock."""
    kinds = {one.kind for one in (own.a.dtype, own.b.dtype, own.accumulator)}
    if not kinds <= {"int", "uint"} or own.a.dtype.bits < 8:
        return False
    return all(one.bits + (one.kind == "uint") <= most_bits for one in (own.a.dtype, own.b.dtype))


def _is_straight(own: Contraction) -> bool:
    """Whether results can follow every few clocks: no divisions, no floats, no elements that share bytes."""
    parts = [*visit(own.epilogue), *([] if own.valid is None else visit(own.valid))]
    touched = [own.out.dtype, *(one.buffer.dtype for one in parts if isinstance(one, Load))]
    if any(isinstance(one, Binary) and one.op in ("div", "rem") for one in parts):
        return False
    return all(one.bits >= 8 and one.kind != "float" for one in touched)


def _swapped(own: Contraction) -> Contraction:
    return replace(own, a=own.b, b=own.a, a_index=own.b_index, b_index=own.a_index)


def _input(kernel: Kernel, buffer: Buffer) -> int:
    return next(at for at, one in enumerate(kernel.inputs) if one.name == buffer.name)


def _lane(own: Contraction) -> ScalarVar | None:
    """The longest result index that the weight has and the other operand has not."""
    other = used_variables(*own.a_index, *([] if own.valid is None else [own.valid]))
    weight = used_variables(*own.b_index)
    found = [
        (extent, var)
        for var, extent in zip(own.free, own.extents, strict=True)
        if var.name in weight and var.name not in other and extent > 1
    ]
    return max(found, key=lambda one: one[0])[1] if found else None


def _lane_count(products: Sequence[LaneProduct], most: int) -> int:
    """The lowest number of lanes that reaches the fewest clocks."""

    def clocks(count: int) -> int:
        return sum(prod(one for _, one in each.outer) * len(each.blocks(count)) * each.terms for each in products)

    return min(range(1, most + 1), key=lambda count: (clocks(count), count))


def _words(one: LaneProduct, numbers: WeightNumbers, lanes: int, bits: int) -> list[int]:
    """The words of a weight: for each group, block of features and term, one number per lane."""
    own = one.contraction
    features = np.arange(-(-one.features // lanes) * lanes).reshape(-1, 1, lanes)
    axes = one.chosen
    rank = len(axes) + 3
    known: dict[str, WeightNumbers] = {}
    for place, (var, extent) in enumerate(axes):
        known[var.name] = np.arange(extent).reshape([-1 if axis == place else 1 for axis in range(rank)])
    if one.lane is not None:
        known[one.lane.name] = np.minimum(features, one.features - 1).reshape((1,) * len(axes) + features.shape)
    terms = np.indices(own.reduced).reshape(len(own.reduced), -1)
    for var, column in zip(own.bound, terms, strict=True):
        known[var.name] = column.reshape((1,) * (rank - 2) + (-1, 1))
    for var in own.free:
        known.setdefault(var.name, np.zeros((1,) * rank, np.int64))
    at = np.broadcast_to(
        _evaluated(offset(own.b, own.b_index), known),
        (*(extent for _, extent in axes), len(one.blocks(lanes)), one.terms, lanes),
    )
    there = np.broadcast_to((features < one.features).reshape((1,) * len(axes) + features.shape), at.shape)
    rows = np.where(there, numbers[at], 0).reshape(-1, lanes) & ((1 << bits) - 1)
    return [sum(int(value) << (bits * lane) for lane, value in enumerate(row)) for row in rows]


_EVALUATED: dict[str, Callable[[WeightNumbers, WeightNumbers], WeightNumbers]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.floor_divide,
    "rem": np.remainder,
    "min": np.minimum,
    "max": np.maximum,
}


def _is_evaluable(index: Scalar) -> bool:
    """Whether an index can be evaluated at compile time."""
    return all(
        isinstance(one, Const | ScalarVar) or (isinstance(one, Binary) and one.op in _EVALUATED) for one in visit(index)
    )


def _evaluated(value: Scalar, known: dict[str, WeightNumbers]) -> WeightNumbers:
    """Evaluate an index for all values of its variables."""
    match value:
        case Const(number):
            return np.asarray(int(number), np.int64)
        case ScalarVar(name):
            return known[name]
        case Binary(op, left, right):
            return _EVALUATED[op](_evaluated(left, known), _evaluated(right, known))
        case _:
            raise TypeError(value)
