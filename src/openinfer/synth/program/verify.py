"""Verifies programs, whichever pass made them: kernels are sound, operands fit, values are written before use.

Problems are messages for pass authors; a program that has any never reaches a target.
"""

from collections.abc import Iterator, Sequence
from math import prod

from openinfer.errors import counted
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, Kernel
from openinfer.loops.verify import verify
from openinfer.synth.program.ir import (
    BlockParams,
    BranchStep,
    CallStep,
    KernelStep,
    LoopStep,
    Move,
    Program,
    Step,
    StepOperand,
    TableStep,
    Value,
    Weight,
    steps_in,
)
from openinfer.synth.program.liveness import definitions, uses


class InvariantError(AssertionError):
    """A pass produced an invalid program: a bug of this package, not of the graph."""


class Verifier:
    """Checks programs between passes; skips kernels that it has already verified."""

    def __init__(self) -> None:
        self._sound: dict[int, Kernel] = {}

    def verified(self, program: Program, after: str) -> Program:
        """The program if it is valid; otherwise raises an error that names the step that produced it."""
        problems = list(self.problems(program))
        if problems:
            message = f"after {after}: " + "; ".join(problems[:5])
            raise InvariantError(message)
        return program

    def problems(self, program: Program) -> Iterator[str]:
        """The problems of a program, as sentences."""
        if "entry" not in program.blocks:
            yield "there is no block 'entry'"
        writers: dict[Value, str] = {}
        for name, steps in program.blocks.items():
            where = f"in block {name!r}"
            for step in steps_in(steps):
                yield from self._step(program, step, where)
                for value in definitions(step):
                    if not value.is_home and value in writers:
                        yield f"{value.name} is written twice, {writers[value]} and {where}"
                    writers[value] = where
            yield from _read_before_written(program, steps, where)
        for name, value in program.outputs.items():
            if not value.is_home and value not in writers:
                yield f"the output {name!r} is {value.name}, which nothing writes"

    def _step(self, program: Program, step: Step, where: str) -> Iterator[str]:
        match step:
            case KernelStep():
                yield from (f"{problem} {where}" for problem in self._call(step))
            case Move(src=src, dst=dst):
                if src.dtype is not dst.dtype:
                    yield f"a move from {src.dtype.name} to {dst.name}, which is {dst.dtype.name}, {where}"
            case BranchStep():
                targets = [one for one in (step.then_block, step.else_block) if one is not None]
                yield from (
                    f"a branch to {one!r}, which is not a block, {where}"
                    for one in targets
                    if one not in program.blocks
                )
            case CallStep(block=block):
                if block not in program.blocks:
                    yield f"a call of {block!r}, which is not a block, {where}"
                yield from (f"{problem} {where}" for problem in _called(step, program.params.get(block, BlockParams())))
            case TableStep(table=table):
                if program.tables.get(table.variable.name) is not table:
                    yield f"an unknown table {table.variable.name!r} {where}"
        for value in definitions(step):
            if value.storage.is_read_only:
                yield f"{value.name} is written, which is the caller's or the model's, {where}"

    def _call(self, step: KernelStep) -> Iterator[str]:
        kernel = step.kernel
        if id(kernel) not in self._sound:
            problems = verify(kernel)
            yield from (f"kernel {kernel.name}: {problem}," for problem in problems)
            if not problems:
                self._sound[id(kernel)] = kernel
        yield from _fits(kernel, "input", kernel.inputs, step.inputs)
        yield from _fits(kernel, "output", kernel.outputs, step.outputs)
        scratch = kernel.scratch if step.schedule is None else step.schedule.scratch
        needed, given = sum(map(_nbytes, scratch)), sum(map(_nbytes, step.scratch))
        if len(scratch) != len(step.scratch) or given < needed:
            yield f"kernel {kernel.name} needs {counted(needed, 'byte')} of scratch and gets {given}"


def _called(step: CallStep, params: BlockParams) -> Iterator[str]:
    """Mismatches between a block's parameters and a call's arguments."""
    if len(step.integers) != len(params.indices):
        yield f"{step.block!r} has {counted(len(params.indices), 'index')} and is called with {len(step.integers)}"
    for role, wanted, given in (("argument", params.args, step.args), ("result", params.results, step.results)):
        if len(wanted) != len(given):
            yield f"{step.block!r} has {counted(len(wanted), role)} and is called with {len(given)}"
            continue
        for one, own in zip(wanted, given, strict=True):
            if one.dtype is not own.dtype or not _can_be_same(one.shape, own.shape):
                yield f"{step.block!r} has the {role} {one!r} and is called with {own!r}"


def _nbytes(memory: Buffer | Value) -> int:
    return memory.dtype.nbytes(prod(map(int, memory.shape)))


def _fits(kernel: Kernel, role: str, buffers: Sequence[Buffer], operands: Sequence[StepOperand]) -> Iterator[str]:
    if len(buffers) != len(operands):
        yield f"kernel {kernel.name} has {len(buffers)} {role}s and gets {len(operands)}"
        return
    for buffer, operand in zip(buffers, operands, strict=True):
        if buffer.dtype is not operand.dtype or not _can_be_same(buffer.shape, operand.shape):
            given = operand.names[0] if isinstance(operand, Weight) else operand.name
            want = f"{buffer.dtype.name}{list(buffer.shape)}"
            yield f"kernel {kernel.name} wants {want} as {role} {buffer.name}, not {given}"


def _can_be_same(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether shapes may be equal: a run checks symbolic extents, and lengths of slices have their own bounds."""
    return len(one) == len(other) and all(
        left == right or is_symbolic(left) or is_symbolic(right) for left, right in zip(one, other, strict=True)
    )


def _read_before_written(program: Program, steps: Sequence[Step], where: str) -> Iterator[str]:
    """Reads of values that are not written yet. Homes have values before a block starts, and empty ones have none."""
    inputs = {*program.inputs.values(), *(one for params in program.params.values() for one in params.args)}

    def walk(body: Sequence[Step], known: set[Value]) -> Iterator[str]:
        for step in body:
            for value in uses(step):
                if not (value.is_home or value.is_empty) and value not in known and value not in inputs:
                    yield f"{value.name} is read before it is written, {where}"
            if isinstance(step, LoopStep):
                yield from walk(step.body, set(known))
            known |= set(definitions(step))

    return walk(steps, set())
