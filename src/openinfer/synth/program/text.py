"""Prints programs, for people and tests: what a pipeline step has made of a graph.

Names match the generated code: ``t4`` is a value, ``k0`` a kernel, which is printed once even if called repeatedly. The
number after ``#`` is the graph node that a line comes from. Marks, which compute nothing, are not printed.
"""

from collections.abc import Iterator, Sequence

from openinfer.check.bound import BoundGraph, FromCaller, FromInit, FromModel, FromPattern, Origin
from openinfer.ir import Index, Single
from openinfer.loops.ir import Kernel
from openinfer.loops.text import definition_text
from openinfer.synth.program.ir import (
    Action,
    BindSize,
    BranchStep,
    CallStep,
    EntryStep,
    Fence,
    IntegerStep,
    JoinSizes,
    KernelStep,
    LoopStep,
    Mark,
    Move,
    PartStep,
    Program,
    RefuseSizes,
    RequireSize,
    Step,
    StepOperand,
    Table,
    TableStep,
    Value,
    WeightCheck,
)


def bound_text(bound: BoundGraph) -> str:
    """A bound graph: its sizes, the type and origin of every variable, and the canonical source."""
    lines = [f"size {name} = {value}" for name, value in sorted(bound.sizes.items())]
    lines += [f"size {name} <= {value}" for name, value in sorted(bound.bounds.items())]
    for variable in bound.vars.values():
        kind = f"{variable.dtype.name}[{', '.join(map(str, variable.shape))}]"
        lines.append(f"{variable.kind.value} {variable.name}: {kind}{_origin(variable.origin)}")
    return "\n".join([*lines, "", bound.graph.to_text()])


def _origin(origin: Origin) -> str:
    match origin:
        case FromCaller():
            return " from the caller"
        case FromModel(name):
            return f' from "{name}"'
        case FromPattern(pattern):
            return f' from "{pattern}"'
        case FromInit(value):
            return f" = {0 if value is None else value.value}"


def program_text(program: Program) -> str:
    """A program: its memory, its blocks with their steps, and every kernel."""
    return _Printer(program).text()


class _Printer:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._kernels: dict[str, str] = {}

    def text(self) -> str:
        program = self._program
        lines = [f"size {name} <= {bound}" for name, bound in program.sizes.items()]
        lines += [f"input {key} = {_value(one)}" for key, one in program.inputs.items()]
        lines += [f"{home.storage.value} {key} = {_value(home)}" for key, home in program.homes.items()]
        lines += [f"table {key} = {_table(table)}" for key, table in program.tables.items()]
        lines += [f"output {key} = {one.name}" for key, one in program.outputs.items()]
        parts = ["\n".join(lines)] if lines else []
        for name, steps in program.blocks.items():
            parts.append("\n".join([f"block {name}{self._params(name)} {{", *self._body(steps, 1), "}"]))
        parts += [f"{name} = {text}".removesuffix("\n") for text, name in self._kernels.items()]
        return "\n\n".join(parts) + "\n"

    def _params(self, block: str) -> str:
        params = self._program.params.get(block)
        if params is None:
            return ""
        into = f" -> {', '.join(map(_value, params.results))}" if params.results else ""
        return f"({', '.join([*map(_value, params.args), *(index.name for index in params.indices)])}){into}"

    def _body(self, steps: Sequence[Step], depth: int) -> Iterator[str]:
        pad = "    " * depth
        for step in steps:
            if isinstance(step, Mark):
                continue
            nodes = (step.nodes if isinstance(step, KernelStep) else ()) or (step.node,)
            known = ", ".join(str(node) for node in nodes if node >= 0)
            said = f"  # {known}" if known else ""
            if isinstance(step, LoopStep):
                name = f"{step.name} " if step.name else ""
                yield f"{pad}loop {name}{step.index} in {step.start}..{step.end} {{{said}"
                yield from self._body(step.body, depth + 1)
                yield f"{pad}}}"
            else:
                yield f"{pad}{self._step(step)}{said}"

    def _step(self, step: Step) -> str:
        match step:
            case KernelStep():
                made = ", ".join(map(_value, step.outputs))
                inputs = ", ".join(map(operand_text, step.inputs))
                scratch = f" with {', '.join(map(_value, step.scratch))}" if step.scratch else ""
                parts = f" in {step.parts} parts" if step.parts > 1 else ""
                return f"{made} = {self._kernel(step.kernel)} {step.kernel.name}({inputs}){scratch}{parts}"
            case Move(src=src, dst=dst):
                return f"{_value(dst)} = {operand_text(src)}"
            case BranchStep(cond=None, then_block=then):
                return f"run {then}"
            case BranchStep(cond=cond, then_block=then, else_block=otherwise):
                assert cond is not None
                return f"if {cond.name} run {then}" + (f" else {otherwise}" if otherwise is not None else "")
            case CallStep(block=block) if block in self._program.params:
                given = ", ".join([*map(operand_text, step.args), *map(str, step.integers)])
                return f"{', '.join(map(_value, step.results))}{' = ' if step.results else ''}call {block}({given})"
            case CallStep(block=block):
                return f"run {block} with what it awaits"
            case JoinSizes(block=block):
                return f"require the sizes of {block}"
            case BindSize(declared, found):
                return f"require {declared!r} == {found!r}"
            case RequireSize():
                values = [f"{step.size!r} >= {step.least}", *(f"{step.size!r} != {one}" for one in step.excluded)]
                return f"require {' and '.join(values)}"
            case RefuseSizes(refused):
                return f"refuse {' and '.join(map(str, refused))}"
            case TableStep(action, table, indices, value):
                return _access(action, table.variable.name, indices, value)
            case PartStep(action, whole, indices, value):
                return _access(action, operand_text(whole), indices, value, step.initial)
            case EntryStep(action, family, index, value):
                entries = f'("{family.entries.names[0]}" .. "{family.entries.names[-1]}")'
                part = f"{entries}[{', '.join(map(str, index))}]"
                if action is Action.CHECK:
                    return f"check {part}"
                return f"{_value(value)} = {part}" if action is Action.READ else f"{part} = {value.name}"
            case WeightCheck(weight):
                return f"check {operand_text(weight)}"
            case IntegerStep(expr, value):
                return f"{_value(value)} = {expr}"
            case Fence():
                return "fence"
            case _:
                raise TypeError(step)

    def _kernel(self, kernel: Kernel) -> str:
        return self._kernels.setdefault(definition_text(kernel), f"k{len(self._kernels)}")


def _access(action: Action, whole: str, indices: Sequence[Index], value: StepOperand | None, initial: float = 0) -> str:
    chosen = ", ".join(
        str(one.value) if isinstance(one, Single) else f"{_end(one.start)}..{_end(one.end)}" for one in indices
    )
    part = f"{whole}[{chosen}]" if indices else whole
    if action is Action.READ:
        assert isinstance(value, Value)
        return f"{_value(value)} = {part}"
    if action is Action.CHECK:
        return f"check {part}"
    if action is Action.RESET:
        return f"reset {part}" + (f" to {operand_text(value)}" if value is not None else f" to {initial}")
    assert value is not None
    return f"{part} = {operand_text(value)}"


def _end(expr: object) -> str:
    return "" if expr is None else str(expr)


def _value(value: Value) -> str:
    return f"{value.name}: {value.dtype.name}[{', '.join(map(repr, value.shape))}]"


def _table(table: Table) -> str:
    bounds = ", ".join("any" if bound is None else str(bound) for bound in table.bounds)
    return f"{table.variable.dtype.name}[{', '.join(map(str, table.entry))}] x ({bounds})"


def operand_text(operand: StepOperand) -> str:
    """An operand of a step: the name of a value, or the model tensors it may be."""
    if isinstance(operand, Value):
        return operand.name
    part = "" if operand.part == "data" else f"{operand.part} of "
    packed = " in panels" if operand.packing is not None else ""
    if not operand.index:
        return f'{part}"{operand.names[0]}"{packed}'
    chosen = ", ".join(map(str, operand.index))
    return f'{part}("{operand.names[0]}" .. "{operand.names[-1]}")[{chosen}]{packed}'
