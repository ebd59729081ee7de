"""What random programs are made of, so that it can be counted."""

from collections.abc import Iterator

from tests.differential.programs.interpret import Machine
from tests.differential.programs.numbers import FLOATS, TERNARY, FailedError
from tests.differential.programs.tree import (
    Access,
    Assign,
    Branch,
    Count,
    Literal,
    Loop,
    Op,
    Program,
    Read,
    Reset,
    Slice,
    Statement,
    Transfer,
    Write,
    Yield,
    consumers,
    walk,
)

PACKED = {"i4", "u4", "i2", "u2", "i1", "u1", *TERNARY}


def _of_declarations(program: Program) -> Iterator[str]:
    for decl in program.decls:
        yield decl.section
        if decl.is_cache:
            kind = "matrix" if decl.auto_dim else "table"
            yield f"fixed {kind}" if decl.fixed else f"growing {kind}"
        if decl.entries:
            yield "prefix table"
        if decl.kind.dtype in PACKED:
            yield "packed dtype"
        if decl.kind.dtype in FLOATS:
            yield "floats"
    if program.sizes:
        yield "dynamic size"


def _accesses(statement: Statement) -> Iterator[Access]:
    match statement:
        case Op(_, inputs, outputs):
            yield from (one for one in inputs if isinstance(one, Access))
            yield from outputs
        case Transfer(source, target):
            yield from (source, target)
        case Read(place, _) | Write(_, place) | Reset(place):
            yield place
        case _:
            pass


def _of_statements(program: Program) -> Iterator[str]:
    indices = {one.index for body in program.blocks.values() for one in walk(body) if isinstance(one, Loop)}
    tables = {decl.name: decl for decl in program.decls if not decl.is_plain}
    for name, body in program.blocks.items():
        for statement in walk(body):
            match statement:
                case Loop(_, _, _, end, own):
                    yield "loop" if isinstance(end, int) else "loop bounded by data"
                    if any(isinstance(one, Loop) for one in walk(own)):
                        yield "nested loop"
                case Branch(_, None, _):
                    yield "called block"
                case Branch():
                    yield "branch"
                case Op(_, inputs, outputs, _, inferred):
                    if inferred:
                        yield "inferred temporary"
                    if any(one in inputs for one in outputs):
                        yield "op into its operand"
                    if any(isinstance(one, Literal) for one in inputs):
                        yield "literal operand"
                    if any(isinstance(one, Access) and one.base in indices for one in inputs):
                        yield "loop index as operand"
                    if len(inferred) > 1:
                        yield "several inferred results"
                case Assign():
                    yield "declared temporary"
                case Transfer(_, Access(base)) if base in tables and tables[base].entries:
                    yield "prefix table written"
                case Transfer():
                    yield "transfer"
                case Count(_, amount, _):
                    yield "counter" if amount is None or isinstance(amount, int) else "counter moved by an expression"
                case Reset():
                    yield "reset"
                case Yield() if name == "entry":
                    yield "yield"
                case _:
                    pass
            for one in _accesses(statement):
                if any(isinstance(index, Slice) for index in one.indices or ()):
                    yield "slice of a table" if one.base in tables else "slice of a tensor"


def _of_runs(program: Program) -> Iterator[str]:
    machine = Machine(program)
    for step in program.steps:
        if step.before:
            yield f"{step.before} between steps"
        machine.prepare(step.before)
        try:
            machine.step(step.inputs)
        except FailedError as error:
            yield "failing step"
            yield f"failing with {error.code}"


def constructs(program: Program) -> set[str]:
    """The constructs that a program has."""
    found = {*_of_declarations(program), *_of_statements(program), *_of_runs(program)}
    if len(consumers(program)) > 1:
        found.add("several consumers")
    handed = [name for one in program.blocks["entry"] if isinstance(one, Yield) for name in one.names]
    if len(handed) > len(set(handed)):
        found.add("yielded again")
    return found


CONSTRUCTS = (
    "dynamic", "volatile", "constant", "persistent", "fixed table", "growing table", "fixed matrix", "growing matrix",
    "prefix table", "prefix table written", "counter", "slice of a table", "slice of a tensor", "reset", "loop",
    "loop bounded by data", "nested loop", "branch", "called block", "yield", "several consumers", "yielded again",
    "inferred temporary",
    "declared temporary", "several inferred results", "op into its operand", "literal operand", "loop index as operand",
    "counter moved by an expression", "transfer", "dynamic size", "packed dtype", "floats", "failing step",
    "failing with E312", "failing with E313", "failing with E505", "failing with E507", "failing with E308",
    "save between steps", "load between steps", "reset between steps", "restore between steps",
)  # fmt: skip
"""What there must be some of among programs."""
