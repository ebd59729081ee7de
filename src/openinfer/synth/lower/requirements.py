"""Turns the shape rule of an op into conditions: the dynamic sizes for which the op has no result.

A rule compares extents, and ``traced`` records these comparisons. This module explores every outcome that some sizes
produce, so that the conditions hold for all sizes, not just for those that were tried.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np

from openinfer.errors import Code
from openinfer.ir.expr import evaluate, names
from openinfer.synth.lower.traced import Path
from openinfer.synth.program.ir import Comparison

SizeRule = Callable[[Mapping[str, int]], Code | None]
"""The error code with which an op rejects sizes, or None."""
Condition = tuple[tuple[Comparison, ...], Code]
"""Sizes for which all comparisons hold are rejected with the code."""
_MOST_RUNS = 128
_MOST_POINTS = 1 << 16
_MOST_LIKELY = 1024
_CHECKS = 24


@dataclass(frozen=True)
class _Fork:
    """A comparison, and the subtree for either outcome."""

    asked: Comparison
    yes: "_Tree"
    no: "_Tree"


_Tree = _Fork | Code | None
"""None: the op accepts the sizes."""


@dataclass(frozen=True)
class _RuleRun:
    asked: tuple[Comparison, ...]
    answers: tuple[bool, ...]
    code: Code | None


class Refusals:
    """The sizes that a rule rejects, as comparisons of expressions over dynamic sizes."""

    def __init__(self, rule: SizeRule, bounds: Mapping[str, int]) -> None:
        self._rule = rule
        self._bounds = bounds
        self._asked: dict[str, None] = {}
        """The sizes that the rule has compared; its result does not depend on the others."""
        self._points: _Points | None = None
        self._runs: list[_RuleRun] = []
        self._never: set[tuple[bool, ...]] = set()
        """Outcomes that no tried sizes produce."""
        is_followed = self._explore()
        self._tree = self._grown(()) if is_followed else None
        self.is_exact = is_followed and self._is_confirmed()
        """Whether the conditions match the rule: it may compute in ways that cannot be traced."""

    def code(self, sizes: Mapping[str, int]) -> Code | None:
        """The error code that the conditions give for sizes."""
        tree = self._tree
        while isinstance(tree, _Fork):
            tree = tree.yes if _holds(tree.asked, sizes) else tree.no
        return tree

    @property
    def deciding(self) -> Mapping[str, int]:
        """The sizes that the conditions depend on, with their bounds."""
        found = set(_names(self._tree))
        return {name: most for name, most in self._bounds.items() if name in found}

    def conditions(self) -> list[Condition]:
        """The conditions under which sizes are rejected, each with its code."""
        return list(_refused(self._tree, ()))

    def _explore(self) -> bool:
        """Run the rule until every outcome that some sizes produce has been explored."""
        self._run(self._bounds)
        while len(self._runs) < _MOST_RUNS:
            found = next(self._open_ends(), None)
            if found is None:
                return self._is_consistent()
            run, place = found
            answers = (*run.answers[:place], not run.answers[place])
            sizes = self._sizes_with(run.asked[: place + 1], answers)
            if sizes is None:
                self._never.add(answers)
            else:
                self._run(sizes)
                if self._runs[-1].answers[: place + 1] != answers:
                    return False
        return False

    def _run(self, sizes: Mapping[str, int]) -> None:
        path = Path()
        code = self._rule({name: path.size(name, value, self._bounds[name]) for name, value in sizes.items()})
        self._runs.append(_RuleRun(tuple(asked for asked, _ in path.taken), tuple(one for _, one in path.taken), code))
        for asked, _ in path.taken:
            self._asked |= dict.fromkeys((*names(asked.left), *names(asked.right)))

    def _open_ends(self) -> Iterator[tuple[_RuleRun, int]]:
        """Runs and positions in them where the opposite outcome has not been explored."""
        followed = {run.answers[:length] for run in self._runs for length in range(len(run.answers) + 1)}
        for run in self._runs:
            for place, answer in enumerate(run.answers):
                other = (*run.answers[:place], not answer)
                if other not in followed and other not in self._never:
                    yield run, place

    def _is_consistent(self) -> bool:
        """Whether equal outcomes always lead to the same next comparison."""
        seen: dict[tuple[bool, ...], object] = {}
        for run in self._runs:
            for place, asked in enumerate((*run.asked, run.code)):
                if seen.setdefault(run.answers[:place], asked) != asked:
                    return False
        return True

    def _sizes_with(self, asked: Sequence[Comparison], answers: Sequence[bool]) -> dict[str, int] | None:
        """Sizes that produce these outcomes."""
        points = self._choice.values
        found: Any = np.ones(len(next(iter(points.values()))), bool)
        with np.errstate(all="ignore"):
            for one, answer in zip(asked, answers, strict=True):
                found &= _holds(one, points) == answer
        places = np.flatnonzero(found)
        if not places.size:
            return None
        return {**self._bounds, **{name: int(values[places[-1]]) for name, values in points.items()}}

    @property
    def _choice(self) -> "_Points":
        """Candidate values for the sizes that matter."""
        if self._points is None or len(self._points.values) < len(self._asked):
            self._points = _Points.of({name: most for name, most in self._bounds.items() if name in self._asked})
        return self._points

    def _grown(self, answers: tuple[bool, ...]) -> _Tree:
        run = next((one for one in self._runs if one.answers[: len(answers)] == answers), None)
        if run is None:
            return Code.SIZE_CONFLICT  # no known sizes lead here
        if len(run.answers) == len(answers):
            return run.code
        ends = [(*answers, answer) for answer in (True, False)]
        possible = [end for end in ends if end not in self._never or not self._choice.is_everything]
        yes, no = self._grown(possible[0]), self._grown(possible[-1])
        return yes if yes == no else _Fork(run.asked[len(answers)], yes, no)

    def _is_confirmed(self) -> bool:
        numbers = np.random.default_rng(0)
        for place in range(_CHECKS):
            reach = (2, 8, 64, max(self._bounds.values()))[place % 4]
            sizes = {name: int(numbers.integers(min(bound, reach) + 1)) for name, bound in self._bounds.items()}
            if self._rule(sizes) is not self.code(sizes):
                return False
        return True


def likely(bounds: Mapping[str, int]) -> list[dict[str, int]]:
    """Sizes at which rules are likely to change their answers."""
    each = [
        sorted({min(one, most) for one in (0, 1, 2, 3, 4, 7, most // 2, most - 1, most)} - {-1})
        for most in bounds.values()
    ]
    return [dict(zip(bounds, point, strict=True)) for point in islice(product(*each), _MOST_LIKELY)]


@dataclass(frozen=True)
class _Points:
    """Candidate sizes, the bounds last."""

    values: Mapping[str, Any]
    is_everything: bool

    @staticmethod
    def of(bounds: Mapping[str, int]) -> "_Points":
        """All sizes if there are few enough; else likely ones, and axis-parallel lines through the space of sizes."""
        is_everything = prod(bound + 1 for bound in bounds.values()) <= _MOST_POINTS
        if is_everything:
            found = list(product(*(range(bound + 1) for bound in bounds.values())))
        else:
            found = [tuple(point.values()) for point in likely(bounds)]
            most = tuple(bounds.values())
            bases = (most, tuple(one // 2 for one in most))
            for axis, bound in enumerate(most):
                for value in range(min(bound, _MOST_POINTS >> 4) + 1):
                    found += [(*base[:axis], value, *base[axis + 1 :]) for base in bases]
            found.append(most)
        columns = np.array(found, np.int64).T
        return _Points(dict(zip(bounds, columns, strict=True)), is_everything)


def _holds(asked: Comparison, sizes: Mapping[str, Any]) -> Any:
    left, right = (evaluate(side, sizes.__getitem__) for side in (asked.left, asked.right))
    return left == right if asked.op == "==" else left < right


def _names(tree: _Tree) -> Iterator[str]:
    if isinstance(tree, _Fork):
        yield from (*names(tree.asked.left), *names(tree.asked.right), *_names(tree.yes), *_names(tree.no))


def _refused(tree: _Tree, taken: tuple[Comparison, ...]) -> Iterator[Condition]:
    if isinstance(tree, _Fork):
        yield from _refused(tree.yes, (*taken, tree.asked))
        yield from _refused(tree.no, (*taken, tree.asked.opposite))
    elif tree is not None:
        yield taken, tree
