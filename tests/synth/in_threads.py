"""Ops as graphs on several threads, through the whole pipeline: whether results have the bits of one thread.

Every case is a node of a graph, and once more with its other operands as weights. The graph becomes a program for one
thread and one for each number of threads, in which what can be divided is, however small. They are compiled into one
library and run with rubbish in their memory and canaries around it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tests.differential.building import Toolchain, library_of, watched
from tests.differential.uses import text_of
from tests.synth.in_c import answer, call_of

from openinfer import DeviceArch, Graph, ModelLoader, graph
from openinfer.dtypes import DType
from openinfer.oinf import TensorSpec, save_file
from openinfer.ops import Array, Call, Case, OpError, OpRecord, TensorType
from openinfer.ops.arguments import spec_of
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.target import Passes

WORTH = 200.0
"""Nanoseconds from which on large cases are divided, where kernels of real graphs must take 3,000."""
NODES = 48
"""Of a graph: the time of a compiler grows faster than a file."""


@dataclass(frozen=True)
class Asked:
    """A case, and which of its operands are weights."""

    record: OpRecord
    case: Case
    call: Call
    has_weights: bool = False

    @property
    def operands(self) -> list[tuple[int, Array, DType]]:
        """The operands that are there, and their places."""
        pairs = zip(self.case.arrays, self.case.dtypes, strict=True)
        return [(slot, array, kind) for slot, (array, kind) in enumerate(pairs) if array is not None and kind]

    @property
    def weights(self) -> frozenset[int]:
        """The places of operands that the model has."""
        return frozenset(slot for slot, _, _ in self.operands[1:]) if self.has_weights else frozenset()


@dataclass
class Answers:
    """What became of a case: its results on one thread, where others differ, and whether threads shared its work."""

    asked: Asked
    results: tuple[Array, ...] = ()
    differences: list[str] = field(default_factory=list)
    is_divided: bool = False


def asked(record: OpRecord, cases: Sequence[Case]) -> Iterator[Asked]:
    """The cases that have a result, as they are asked."""
    for case in cases:
        one = Asked(record, case, call_of(record, case))
        try:
            with np.errstate(all="ignore"):
                answer(one)
        except OpError:
            continue
        yield one
        if len(one.operands) > 1:
            yield Asked(record, case, one.call, has_weights=True)


def hosted(target: CpuMachine) -> DeviceArch:
    """A device with an operating system, which threads need, whose code assumes what a target has."""
    cpu = {
        "isa": target.isa,
        "vector_bits": target.vector_bits,
        "vector_registers": target.vector_registers,
        "fma": target.fma,
        "l1d_bytes": target.l1d,
        "l2_bytes": target.l2,
        "address_bits": target.index_bits,
    }
    features = {"hosted": True, "int8": target.dot}
    return DeviceArch.from_json({"device": {"type": "cpu", "api": "c"}, "cpu": cpu, "features": features})


@dataclass(frozen=True)
class Setting:
    """What programs are made for, in which numbers of threads, and how they are compiled."""

    device: DeviceArch
    threads: tuple[int, ...]
    toolchain: Toolchain
    worth: float = 0.0
    """The nanoseconds from which on a kernel is divided. Statements of less than that stay together, so that kernels
    of copies and products are divided in other ways than with 0."""

    def plans(self, model: ModelLoader, source: Graph) -> dict[int, Plan]:
        """The program for each number of threads."""
        found = {}
        for count in (1, *self.threads):
            passes = Passes(divide=Divide(count, worth=self.worth))
            found[count] = Synthesizer(self.device, name=f"on{count}", passes=passes).synthesize(model, source)
        return found


def answered(questions: Sequence[Asked], setting: Setting, folder: Path) -> list[Answers]:
    """What programs for one thread, and for each of several numbers of threads, make of these cases."""
    found = []
    for start in range(0, len(questions), NODES):
        own = folder / str(start)
        own.mkdir(parents=True)
        found += _graph_answered(questions[start : start + NODES], setting, own)
    return found


def _graph_answered(questions: Sequence[Asked], setting: Setting, folder: Path) -> list[Answers]:
    made = [_Node(place, one) for place, one in enumerate(questions)]
    source = graph(_text(made))
    save_file(folder / "model.oinf", {name: one for node in made for name, one in node.tensors.items()})
    inputs = {name: array for node in made for name, array in node.inputs.items()}
    found = [Answers(one) for one in questions]
    with ModelLoader.open(folder / "model.oinf") as model:
        plans = setting.plans(model, source)
        library = library_of([plan.project for plan in plans.values()], folder / "code", setting.toolchain)
        for count, plan in plans.items():
            module = watched(plan.project, library)
            module.module.insert(inputs)
            module.run_step()
            for node, answers in zip(made, found, strict=True):
                answers.is_divided |= node.place in _divided(plan)
                _note(answers, count, tuple(np.array(module.module.fetch(name)) for name in node.outputs))
    return found


def _note(answers: Answers, count: int, results: tuple[Array, ...]) -> None:
    if count == 1:
        answers.results = results
        return
    for number, (one, other) in enumerate(zip(answers.results, results, strict=True)):
        bits = [np.frombuffer(array.tobytes(), f"V{array.itemsize}") for array in (one, other)]
        places = np.flatnonzero(bits[0] != bits[1])
        if places.size:
            where = f"{len(places)} elements, first at {np.unravel_index(places[0], one.shape)}"
            answers.differences.append(f"result {number} has other bits on {count} threads: {where}")


def _divided(plan: Plan) -> frozenset[int]:
    """The nodes that threads share the work of."""
    steps = plan.placed.program.steps()
    return frozenset(one.node for one in steps if isinstance(one, KernelStep) and one.parts > 1)


class _Node:
    """A case as a node of a graph, with names that no other node has."""

    def __init__(self, place: int, one: Asked) -> None:
        self.place, self._asked = place, one
        self.outputs = [f"y{place}_{number}" for number in range(len(one.call.outputs))]

    def _name(self, slot: int) -> str:
        return f"x{self.place}_{slot}"

    @property
    def inputs(self) -> Mapping[str, Array]:
        one = self._asked
        return {self._name(slot): array for slot, array, _ in one.operands if slot not in one.weights}

    @property
    def tensors(self) -> Mapping[str, TensorSpec]:
        one = self._asked
        return {self._name(slot): TensorSpec(array, kind) for slot, array, kind in one.operands if slot in one.weights}

    def declared(self, kind: str) -> Iterator[str]:
        one = self._asked
        for slot, array, dtype in one.operands:
            if (kind == "constant") == (slot in one.weights):
                yield _declared(self._name(slot), TensorType(dtype, array.shape))

    @property
    def results(self) -> Iterator[str]:
        yield from (_declared(name, kind) for name, kind in zip(self.outputs, self._asked.call.outputs, strict=True))

    @property
    def line(self) -> str:
        one, given = self._asked, []
        for number, (slot, _, _) in enumerate(one.operands):
            # Behind an operand that is left out, others need their names.
            prefix = f"{spec_of(one.record, slot).name}=" if slot != number else ""
            given.append(prefix + self._name(slot))
        given += [f"{name}={text_of(value)}" for name, value in one.case.params.items() if value is not None]
        return f"op {one.record.name}({', '.join(given)}) >> {', '.join(self.outputs)};"


def _declared(name: str, kind: TensorType) -> str:
    shape = f"[{', '.join(map(str, kind.shape))}]" if kind.shape else ""
    return f"{name}: {kind.dtype.name}{shape};"


def _text(nodes: Sequence[_Node]) -> str:
    def section(name: str, lines: Sequence[str]) -> str:
        return f"{name} {{ {' '.join(lines)} }}" if lines else ""

    kinds = {name: [line for node in nodes for line in node.declared(name)] for name in ("dynamic", "constant")}
    kinds["volatile"] = [line for node in nodes for line in node.results]
    body = "\n    ".join(node.line for node in nodes)
    outputs = ", ".join(name for node in nodes for name in node.outputs)
    heads = "\n".join(section(name, lines) for name, lines in kinds.items())
    return f"{heads}\nblock entry {{\n    {body}\n    return {outputs};\n}}\n"
