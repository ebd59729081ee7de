"""Programs judged: what the interpreter says against the simulator and generated code, step by step, bit for bit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.differential.building import WatchedModule
from tests.differential.programs.interpret import Machine
from tests.differential.programs.numbers import FLOATS, Array, FailedError
from tests.differential.programs.tree import Program, consumers

from openinfer import ModelLoader, Simulator
from openinfer.errors import OpenInferError
from openinfer.ir import Graph
from openinfer.oinf import TensorSpec, save_file


@dataclass(frozen=True)
class Outcome:
    """What a step must give: outputs, or codes with one of which it fails; and all that is persistent afterwards."""

    outputs: Mapping[str, Array | None]
    codes: frozenset[str]
    persistent: Mapping[str, Array]


class DifferenceError(AssertionError):
    """Something is not what the interpreter says; ``kind`` is the same for the same sort of difference."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def outcomes(program: Program) -> list[Outcome]:
    """The steps of a program, interpreted."""
    machine = Machine(program)
    found = []
    for step in program.steps:
        machine.prepare(step.before)
        codes = frozenset[str]()
        outputs: Mapping[str, Array | None] = {}
        try:
            outputs = machine.step(step.inputs)
        except FailedError as failure:
            codes = frozenset(failure.codes)
        found.append(Outcome(outputs, codes, machine.persistent()))
    return found


def model_of(program: Program, folder: Path) -> ModelLoader | None:
    """The model of a program, in a file."""
    if not program.tensors:
        return None
    path = folder / f"{program.seed}.oinf"
    # Small integers are held in more bytes than they have.
    tensors = {name: TensorSpec(_stored(dtype, array), dtype) for name, (dtype, array) in program.tensors.items()}
    save_file(path, tensors)
    return ModelLoader.open(path)


def _stored(dtype: str, array: Array) -> Array:
    if dtype in FLOATS or dtype == "bool":
        return array
    return array.astype(
        {"u32": np.uint32, "u16": np.uint16, "u8": np.uint8}.get(dtype, np.int64) if dtype[0] == "u" else np.int64
    )


class Subject:
    """Something that runs programs: an executor, or a module with memory that is watched."""

    def __init__(self, name: str, runner: Any, watched: WatchedModule | None = None) -> None:
        self.name = name
        self._runner = runner
        self._watched = watched
        self._saved: bytes | None = None

    def prepare(self, action: str) -> None:
        """What comes before a step."""
        if action == "save":
            self._saved = self._runner.save_state()
        elif action == "load" and self._saved is not None:
            self._runner.load_state(self._saved)
        elif action == "reset":
            self._runner.reset()
        elif action == "restore":
            saved = self._runner.save_state()
            self._runner.reset()
            self._runner.load_state(saved)

    def run(self, inputs: Mapping[str, Array]) -> str | None:
        """One step: the code with which it fails."""
        try:
            self._runner.insert(inputs)
            if self._watched is not None:
                self._watched.run_step()
            else:
                self._runner.run_step()
        except OpenInferError as error:
            return str(error.code)
        return None

    def value(self, name: str) -> Array | None:
        """A variable, or None where it has none."""
        try:
            return self._runner.fetch(name)
        except OpenInferError:
            return None


def judge(program: Program, wanted: Sequence[Outcome], subject: Subject) -> None:
    """Run all steps and compare everything that can be seen."""
    for place, (step, outcome) in enumerate(zip(program.steps, wanted, strict=True)):
        subject.prepare(step.before)
        code = subject.run(step.inputs)
        where = f"{subject.name}, step {place}"
        should = "/".join(sorted(outcome.codes))
        if (code is not None) is not bool(outcome.codes):
            kind = "does not fail" if code is None else "fails"
            raise DifferenceError(f"{subject.name} {kind}", f"{where}: {code}, and should be {should or None}")
        if code is not None and code not in outcome.codes and not consumers(program):
            raise DifferenceError(f"{subject.name} fails as {code}, not {should}", where)
        for name, value in (*outcome.outputs.items(), *outcome.persistent.items()):
            found = subject.value(name)
            if (found is None) is not (value is None) or (value is not None and not same(found, value)):
                what = "output" if name in outcome.outputs else "state"
                raise DifferenceError(
                    f"{subject.name} {what}", f"{where}, {name}: {_shown(found)}, not {_shown(value)}"
                )


def _shown(value: Array | None) -> str:
    return "nothing" if value is None else f"{np.asarray(value).tolist()} {list(np.shape(value))}"


def same(found: Array, wanted: Array) -> bool:
    """Whether two arrays agree to the last bit, except for what a NaN says besides."""
    if found.shape != wanted.shape:
        return False
    if wanted.dtype.kind == "f":
        if found.dtype != wanted.dtype:
            return False
        is_nan = np.isnan(wanted)
        return bool(
            np.array_equal(np.isnan(found), is_nan)
            and np.array_equal(found[~is_nan], wanted[~is_nan])
            and np.array_equal(np.signbit(found[~is_nan]), np.signbit(wanted[~is_nan]))
        )
    return bool(np.array_equal(found.astype(wanted.dtype), wanted))


def simulator(parsed: Graph, model: ModelLoader | None, scheduler: str = "sequential") -> Subject:
    """The simulator with a program."""
    executor = Simulator(model, scheduler=scheduler).with_trace("off").make_executor(parsed)
    return Subject("simulator" if scheduler == "sequential" else f"{scheduler} simulator", executor)
