"""Chooses tiles by measurement: races the likely candidates of every product of a program on this machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from openinfer.synth.program.ir import KernelStep, Program
from openinfer.synth.targets.cpu.choices import Choice, ProductShape
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cpu.schedule import Schedule
from openinfer.synth.targets.project import RunnableProject
from openinfer.synth.tuning.race import Measure, Race, calls_in, fewer, race_of, raced, weight_bytes
from openinfer.synth.tuning.records import Processor, Record, Tuned, possible_tiles

_WORTH = 1.03
"""The smallest speedup over the default rule that counts: less is noise."""
_SHAPES = 10
"""The most tile shapes to try."""
_HEIGHTS = 2
"""The most heights to try for each width."""
_FINALISTS = 2
KernelCalls = Sequence[KernelStep]


@dataclass(frozen=True)
class Workshop:
    """The target that candidates are built for, and how."""

    target: CpuMachine
    divide: Divide
    project: Callable[[Program], RunnableProject]
    """Turns a program of candidates into a runnable project."""

    @property
    def processor(self) -> Processor:
        """The processor that choices apply to."""
        return Processor.of(self.target, self.divide.threads or 1)

    def made(
        self, program: Program, calls: KernelCalls, choices: Mapping[ProductShape, Choice | None]
    ) -> list[KernelStep]:
        """Schedule calls with the chosen tiles, or with the default rule's where nothing is chosen."""
        alone = replace(program, blocks={"entry": (*calls,)})
        done = self.divide.run(Schedule(self.target, choices.get).run(alone))
        return [step for step in done.blocks["entry"] if isinstance(step, KernelStep)]

    def products(self, program: Program) -> dict[ProductShape, list[KernelStep]]:
        """The products of a program, and the calls that compute them."""
        found: dict[ProductShape, list[KernelStep]] = {}
        for call in calls_in(program):
            asked: list[ProductShape] = []
            Schedule(self.target, asked.append).run(replace(program, blocks={"entry": (call,)}))
            for shape in dict.fromkeys(asked):
                found.setdefault(shape, []).append(call)
        return found


@dataclass(frozen=True)
class Trial:
    """A product whose tile is to be chosen."""

    program: Program
    shape: ProductShape
    calls: KernelCalls
    workshop: Workshop
    is_warm: bool

    def distinct(self, choices: Sequence[Choice]) -> dict[Choice | None, list[KernelStep]]:
        """The default rule, as None, and the choices that produce distinct kernels."""
        found: dict[Choice | None, list[KernelStep]] = {}
        for choice in (None, *choices):
            made = self.workshop.made(self.program, self.calls, {self.shape: choice})
            kernels = [step.kernel for step in made]
            if all(kernels != [step.kernel for step in other] for other in found.values()):
                found[choice] = made
        return found

    def race(self, candidates: Sequence[KernelCalls]) -> Race:
        """A race of the candidates."""
        return race_of(self.program, candidates, self.workshop.project, is_warm=self.is_warm)


@dataclass(frozen=True)
class Tune:
    """The pass: measures products that have no record yet."""

    seconds: float = 1.0
    """The seconds per product; spent twice, once on all candidates and once on the best of them."""
    measure: Measure = raced
    after_product: Callable[[int, int, Record], None] = lambda _done, _total, _record: None
    """Called after each measured product: the number done, the total, and the result."""

    def run(self, program: Program, known: Tuned, workshop: Workshop) -> Tuned:
        """The known records, extended by those of a program that is about to be scheduled."""
        everything = workshop.products(program)
        before = known.choices(workshop.processor)
        products = {shape: calls for shape, calls in everything.items() if shape not in before}
        is_warm = weight_bytes([call for calls in everything.values() for call in calls]) <= workshop.target.l2
        for done, (shape, calls) in enumerate(products.items(), 1):
            trial = Trial(program, shape, fewer(calls), workshop, is_warm)
            record = Record(processor=workshop.processor, product=shape, choice=self._best(trial))
            known = known.including(record)
            self.after_product(done, len(products), record)
        return known

    def _best(self, trial: Trial) -> Choice | None:
        """The fastest tile, if it beats the default rule's. Finalists are measured again: some were just lucky."""
        first = self._times(trial, candidates(trial.shape, trial.workshop.processor))
        finalists = [*sorted(first, key=first.__getitem__)[:_FINALISTS], *joined(first)]
        times = self._times(trial, list(dict.fromkeys(finalists)))
        best = min(times, key=times.__getitem__, default=None)
        if best is None or 1 / times[best] < _WORTH:
            return None
        return best.model_copy(update={"gain": round(1 / times[best], 3)})

    def _times(self, trial: Trial, choices: Sequence[Choice]) -> dict[Choice, float]:
        """The times of choices relative to the default rule in the same round: medians.

        A choice that is not faster in three out of four rounds counts as no faster.
        """
        distinct = trial.distinct(choices)
        others = [choice for choice in distinct if choice is not None]
        if not others:
            return {}
        rounds = np.array(self.measure(trial.race(list(distinct.values())), self.seconds))
        middle, high = np.percentile(rounds[:, 1:] / rounds[:, :1], (50, 75), axis=0)
        shares = np.where(high < 1, middle, np.maximum(middle, 1))
        return dict(zip(others, map(float, shares), strict=True))


def candidates(shape: ProductShape, processor: Processor) -> list[Choice]:
    """The candidates: the tile shapes expected to be fastest, and the other options for the first of them."""
    tiles = possible_tiles(shape, processor)
    heights: dict[int, list[int]] = {}
    for rows, vectors in tiles:
        heights.setdefault(vectors, []).append(rows)
    likely = [tile for tile in tiles if tile[0] in heights[tile[1]][:_HEIGHTS]][:_SHAPES]
    found = [Choice(rows=rows, vectors=vectors) for rows, vectors in likely]
    if shape.right == "lies":
        found += [found[0].model_copy(update={"copies": copies}) for copies in (True, False)]
    # If the columns are weights, the threads have written the rows themselves, which a race of one kernel does not
    # reproduce.
    if processor.threads > 1 and shape.right != "panels":
        found += [found[0].model_copy(update={"divided": what}) for what in ("rows", "columns")]
    return found


def joined(times: Mapping[Choice, float]) -> list[Choice]:
    """The fastest shape combined with other options that beat the rule; empty if that is nothing new."""
    shapes = [choice for choice in times if choice.copies is None and choice.divided is None]
    fast = sorted((choice for choice in times if choice not in shapes and times[choice] < 1), key=times.__getitem__)
    if not shapes or not fast:
        return []
    shape = min(shapes, key=times.__getitem__)
    copies = next((choice.copies for choice in fast if choice.copies is not None), None)
    divided = next((choice.divided for choice in fast if choice.divided is not None), None)
    return [shape.model_copy(update={"copies": copies, "divided": divided})]
