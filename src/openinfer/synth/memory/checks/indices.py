"""Checks of index expressions: whether they can be computed, and whether they choose something that is there."""

from collections.abc import Iterable
from dataclasses import replace

from openinfer.ir.expr import Expr
from openinfer.synth.memory.checks.certain import Certain
from openinfer.synth.memory.checks.records import ChosenTensor, IndexFailure, IndexSpan
from openinfer.synth.memory.checks.sizes import SizePlanner
from openinfer.synth.memory.weights import WeightLayout
from openinfer.synth.program.failures import BY_ZERO, NO_TENSOR, TOO_LONG, FailureNumbers
from openinfer.synth.program.integers import Computed, computed, constant, scalar
from openinfer.synth.program.ir import Program, StepOperand, Weight


class IndexPlanner:
    """Checks of index expressions, where a block stands."""

    def __init__(
        self, program: Program, weights: WeightLayout, numbers: FailureNumbers, sizes: SizePlanner, now: Certain
    ) -> None:
        self._program = program
        self._weights = weights
        self._numbers = numbers
        self._sizes = sizes
        self._now = now

    def integer(self, expr: Expr) -> Computed:
        """What an expression can be."""
        return computed(expr, self._named)

    def failure(self, integers: Iterable[Computed], node: int) -> IndexFailure | None:
        """The failures of expressions that are computed, where they can fail."""
        return self._failed(node) if any(one.can_fail for one in integers) else None

    def operand(self, operand: StepOperand, node: int) -> ChosenTensor | None:
        """A weight that indices choose is there."""
        if not isinstance(operand, Weight) or not operand.index:
            return None
        found = self.chosen(operand, node)
        return self.missing(found, node) if self._weights.places(operand).has_gaps else found

    def chosen(self, weight: Weight, node: int) -> ChosenTensor:
        """Indices choose none outside a family; those are looked at that could."""
        axes = zip(weight.index, weight.firsts, weight.extents, strict=True)
        spans = [self._span(expr, first, first + extent - 1) for expr, first, extent in axes]
        kept = tuple(one for one in spans if one.can_be_below or one.can_be_above)
        if any(self.integer(one.expr).faults for one in kept):
            failed = self._failed(node)
            return ChosenTensor(kept, replace(failed, otherwise=self._numbers.number(node, NO_TENSOR)))
        return ChosenTensor(kept, self._numbers.number(node, NO_TENSOR) if kept else None)

    def missing(self, found: ChosenTensor, node: int) -> ChosenTensor:
        """A family may have no tensor at the indices, even if none is outside."""
        return replace(found, gap=self._numbers.number(node, NO_TENSOR))

    def _span(self, expr: Expr, first: int, last: int) -> IndexSpan:
        found = self.integer(expr)
        return IndexSpan(expr, first, last, found.least < first or bool(found.faults), found.most > last)

    def _failed(self, node: int) -> IndexFailure:
        return IndexFailure(self._numbers.number(node, BY_ZERO), self._numbers.number(node, TOO_LONG))

    def _named(self, name: str) -> Computed:
        """A name in an index expression: a loop index, then a scalar variable, then a size."""
        for index, found in reversed(self._now.loops):
            if index == name:
                return found
        if name in self._program.bound.vars:
            value = self._program.bound.constants.get(name)
            return scalar(self._program.homes[name].dtype) if value is None else constant(int(value))
        return self._sizes.size(name)
