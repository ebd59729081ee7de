"""Plans checks of index expressions: whether they can be computed, and whether they select something that exists."""

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
    """Plans checks of index expressions at the current point of a block."""

    def __init__(
        self, program: Program, weights: WeightLayout, numbers: FailureNumbers, sizes: SizePlanner, now: Certain
    ) -> None:
        self._program = program
        self._weights = weights
        self._numbers = numbers
        self._sizes = sizes
        self._now = now

    def integer(self, expr: Expr) -> Computed:
        """The range of an expression."""
        return computed(expr, self._named)

    def failure(self, integers: Iterable[Computed], node: int) -> IndexFailure | None:
        """The failures of computing expressions; None if they cannot fail."""
        return self._failed(node) if any(one.can_fail for one in integers) else None

    def operand(self, operand: StepOperand, node: int) -> ChosenTensor | None:
        """The check that a weight selected by indices exists."""
        if not isinstance(operand, Weight) or not operand.index:
            return None
        found = self.chosen(operand, node)
        return self.missing(found, node) if self._weights.places(operand).has_gaps else found

    def chosen(self, weight: Weight, node: int) -> ChosenTensor:
        """The check that indices stay within a family; only those that could leave it are checked."""
        axes = zip(weight.index, weight.firsts, weight.extents, strict=True)
        spans = [self._span(expr, first, first + extent - 1) for expr, first, extent in axes]
        kept = tuple(one for one in spans if one.can_be_below or one.can_be_above)
        if any(self.integer(one.expr).faults for one in kept):
            failed = self._failed(node)
            return ChosenTensor(kept, replace(failed, otherwise=self._numbers.number(node, NO_TENSOR)))
        return ChosenTensor(kept, self._numbers.number(node, NO_TENSOR) if kept else None)

    def missing(self, found: ChosenTensor, node: int) -> ChosenTensor:
        """The check extended to gaps in a family: indices in range may select no tensor."""
        return replace(found, gap=self._numbers.number(node, NO_TENSOR))

    def _span(self, expr: Expr, first: int, last: int) -> IndexSpan:
        found = self.integer(expr)
        return IndexSpan(expr, first, last, found.least < first or bool(found.faults), found.most > last)

    def _failed(self, node: int) -> IndexFailure:
        return IndexFailure(self._numbers.number(node, BY_ZERO), self._numbers.number(node, TOO_LONG))

    def _named(self, name: str) -> Computed:
        """The range of a name in an index expression: a loop index, else a scalar variable, else a size."""
        for index, found in reversed(self._now.loops):
            if index == name:
                return found
        if name in self._program.bound.vars:
            value = self._program.bound.constants.get(name)
            return scalar(self._program.homes[name].dtype) if value is None else constant(int(value))
        return self._sizes.size(name)
