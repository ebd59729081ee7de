"""The conditions on dynamic sizes under which an op has the result that its kernel computes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from openinfer.errors import Code
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim, at, sizes_in
from openinfer.ops import Call, OpError, OpRecord, infer
from openinfer.synth.lower.requirements import Refusals, likely
from openinfer.synth.program.ir import RefuseSizes, RequireSize

_SMALL_SIZES = 64
_MOST_SIZES = 1024
"""Limits such as window sizes are smaller than this; larger sizes are not tried."""
_Bad = Mapping[str, Mapping[int, Code]]
"""For each size, the values that an op rejects, with the error codes."""


class ManyValuesError(Exception):
    """Too many values to try."""

    def __init__(self, size: str) -> None:
        super().__init__(size)
        self.size = size
        self.most = _MOST_SIZES


@dataclass(frozen=True)
class OpSizes:
    """One op call on shapes with dynamic sizes."""

    record: OpRecord
    call: Call
    found: Call
    """The call with the results that the kernel computes."""
    declared: Sequence[tuple[int, ...] | None]
    """The declared shapes of the results; None where a variable takes whatever shape the op gives."""

    @property
    def used(self) -> list[str]:
        """The dynamic sizes in operands and parameters."""
        types = [kind for kind in self.call.inputs if kind is not None]
        extents = [extent for kind in types for extent in kind.shape] + list(extents_in(self.call.params))
        return sorted({name for one in extents for name in sizes_in(one)})

    def requirements(self, bounds: Mapping[str, int], node: int) -> Iterator[RequireSize | RefuseSizes]:
        """The steps that reject the sizes for which the op has no such result."""
        used = {name: bounds[name] for name in self.used}
        if not used:
            return
        together = Refusals(self.refusal, used)
        judged = together.deciding if together.is_exact else used
        try:
            alone = self._one_by_one(used, judged)
        except ManyValuesError:
            if not together.is_exact:
                raise
            alone = None
        if alone is not None and _say_the_same(alone, together, judged):
            for name, bad in alone.items():
                yield from _requirements(Dim(used[name], Ref(name)), bad, node)
            return
        for refused, code in together.conditions():
            yield RefuseSizes(refused, node, code)

    def refusal(self, sizes: Mapping[str, int]) -> Code | None:
        """The error code with which the op rejects sizes; None if it has the expected results."""
        try:
            other = infer(self.record, at_sizes(self.call, sizes))
            wanted = [tuple(at(extent, sizes) for extent in kind.shape) for kind in self.found.outputs]
        except OpError as error:
            return error.code
        except ZeroDivisionError:
            return Code.BAD_SHAPE
        for place, (kind, shape) in enumerate(zip(other.outputs, wanted, strict=True)):
            if kind.shape != shape:
                return self._disagreement(place, kind.shape, shape)
        return None

    def fits_whatever_lengths_are(self, bounds: Mapping[str, int], lengths: Collection[str]) -> bool:
        """Whether the op accepts any run-time length: it compares lengths with nothing, and broadcasts no 1 to them."""
        used = {name: bounds[name] for name in self.used}
        if not used.keys() & lengths:
            return True
        for name in used.keys() & lengths:
            if self.refusal({**used, name: max(1, used[name] - 1)}) is not None:
                return False
        return not any(self._is_another_shape({**used, name: min(1, most)}) for name, most in used.items())

    def _is_another_shape(self, sizes: Mapping[str, int]) -> bool:
        """Whether the op has a result at these sizes, but not the one that the kernel computes."""
        try:
            infer(self.record, at_sizes(self.call, sizes))
        except (OpError, ZeroDivisionError):
            return False
        return self.refusal(sizes) is not None

    def _disagreement(self, place: int, given: Sequence[int], wanted: Sequence[int]) -> Code:
        """The error code of a result that contradicts its declaration: a size conflict or a shape mismatch."""
        declared = self.declared[place] if place < len(self.declared) else None
        if declared is None:
            return Code.SIZE_CONFLICT
        if len(given) != len(wanted):
            return Code.SHAPE_MISMATCH
        wrong = [sizes_in(own) for one, other, own in zip(given, wanted, declared, strict=True) if one != other]
        return Code.SIZE_CONFLICT if min(wrong, key=lambda sizes: len(sizes) > 1) else Code.SHAPE_MISMATCH

    def _one_by_one(self, used: Mapping[str, int], judged: Mapping[str, int]) -> _Bad:
        """The values of each size that are rejected while the others are at their bounds."""
        found: dict[str, dict[int, Code]] = {}
        for name, most in judged.items():

            def refused_in(values: range, name: str = name) -> dict[int, Code]:
                every = ((value, self.refusal({**used, name: value})) for value in values)
                return {value: code for value, code in every if code is not None}

            bad = refused_in(range(min(most, _SMALL_SIZES)))
            if len(bad) > _least(bad):  # not just a minimum: a number of heads must divide another, say
                if most > _MOST_SIZES:
                    raise ManyValuesError(name)
                bad |= refused_in(range(_SMALL_SIZES, most))
            found[name] = bad
        return found


def _say_the_same(alone: _Bad, together: Refusals, judged: Mapping[str, int]) -> bool:
    """Whether checking sizes one by one, in order, gives the same answers."""
    if not together.is_exact:
        return True  # nothing more precise is known
    for sizes in likely(judged):
        codes = (alone[name].get(value) for name, value in sizes.items())
        if together.code(sizes) is not next((code for code in codes if code is not None), None):
            return False
    return True


def _least(bad: Mapping[int, Code]) -> int:
    """The smallest accepted value, if only smaller ones are rejected."""
    return next((place for place, value in enumerate(bad) if place != value), len(bad))


def _requirements(size: Dim, bad: Mapping[int, Code], node: int) -> Iterator[RequireSize]:
    """The checks of a size, given the values that an op rejects: a minimum, and single values above it."""
    start, least = 0, _least(bad)
    for code, values in groupby(range(least), bad.__getitem__):
        start += len(list(values))
        yield RequireSize(size, start, node, (), code)
    others = [value for value in bad if value >= least]
    for code in dict.fromkeys(bad[value] for value in others):
        yield RequireSize(size, 0, node, tuple(value for value in others if bad[value] is code), code)


def extents_in(value: Any) -> Iterator[int]:
    """The symbolic numbers in parameters."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple):
        for part in value:
            yield from extents_in(part)
    elif isinstance(value, Dim):
        yield value


def at_sizes(call: Call, sizes: Mapping[str, int]) -> Call:
    """A call with numbers substituted for dynamic sizes."""

    def settled(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(settled, value))
        return at(value, sizes) if isinstance(value, Dim) and sizes_in(value) <= sizes.keys() else value

    inputs = tuple(None if kind is None else replace(kind, shape=settled(kind.shape)) for kind in call.inputs)
    wanted = tuple(None if kind is None else replace(kind, shape=settled(kind.shape)) for kind in call.wanted)
    return replace(
        call, inputs=inputs, params={name: settled(value) for name, value in call.params.items()}, wanted=wanted
    )
