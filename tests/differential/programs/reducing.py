"""A program that fails made smaller, as long as it fails the same way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.differential.programs.tree import Branch, Call, Loop, Program, Scope, Statement, walk

MOST_TRIES = 400
Fails = Callable[[Program], bool]


def reduced(program: Program, fails: Fails, most: int = MOST_TRIES) -> Program:
    """The smallest program that is found by leaving things out."""
    left = most
    is_smaller = True
    while is_smaller and left > 0:
        is_smaller = False
        for candidate in _smaller(program):
            left -= 1
            if fails(candidate):
                program, is_smaller = candidate, True
                break
            if left <= 0:
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less, the largest things first."""
    for place in range(len(program.steps) - 1, -1, -1):
        if len(program.steps) > 1:
            yield replace(program, steps=(*program.steps[:place], *program.steps[place + 1 :]))
    yield from _without_unused(program)
    bodies = [(name, body) for name, body in program.blocks.items()]
    for name, body in bodies:
        for size in (8, 4, 2, 1):
            if size <= len(body):
                for start in range(0, len(body), size):
                    yield _with_block(program, name, (*body[:start], *body[start + size :]))
    for name, body in bodies:
        for smaller in _inside(body):
            yield _with_block(program, name, smaller)
    for output in program.outputs:
        yield replace(program, outputs=tuple(one for one in program.outputs if one != output))
    for place, step in enumerate(program.steps):
        if step.before:
            plain = replace(step, before="")
            yield replace(program, steps=(*program.steps[:place], plain, *program.steps[place + 1 :]))


def _with_block(program: Program, name: str, body: Sequence[Statement]) -> Program:
    return program.with_blocks({**program.blocks, name: tuple(body)})


def _inside(body: Sequence[Statement]) -> Iterator[tuple[Statement, ...]]:
    """Bodies of loops and scopes with one statement less, or in place of them; branches without their other arm."""
    for place, statement in enumerate(body):
        before, after = tuple(body[:place]), tuple(body[place + 1 :])
        if isinstance(statement, Loop | Scope):
            if isinstance(statement, Scope):
                yield (*before, *statement.body, *after)
            for start in range(len(statement.body)):
                own = (*statement.body[:start], *statement.body[start + 1 :])
                yield (*before, replace(statement, body=own), *after)
            for own in _inside(statement.body):
                yield (*before, replace(statement, body=own), *after)
        elif isinstance(statement, Branch) and statement.condition is not None:
            yield (*before, Branch(statement.yes), *after)
            if statement.no is not None:
                yield (*before, Branch(statement.no), *after)


def _without_unused(program: Program) -> Iterator[Program]:
    """The program without blocks, variables, tensors and sizes that nothing mentions."""
    called = {"entry"}
    pending = ["entry", *(name for name, body in program.blocks.items() if str(body[:1]).startswith("(Await("))]
    while pending:
        name = pending.pop()
        called.add(name)
        for statement in walk(program.blocks[name]):
            if isinstance(statement, Call) and statement.block not in called:
                pending.append(statement.block)
            if isinstance(statement, Branch):
                pending += [one for one in (statement.yes, statement.no) if one is not None and one not in called]
    if len(called) < len(program.blocks):
        yield program.with_blocks({name: body for name, body in program.blocks.items() if name in called})
    text = str(program)
    for decl in program.decls:
        if text.count(decl.name) <= text.count(f"    {decl.name}:") + text.count(f"{decl.name}.") + text.count(
            f"    {decl.name}("
        ):
            steps = tuple(
                replace(step, inputs={name: value for name, value in step.inputs.items() if name != decl.name})
                for step in program.steps
            )
            yield replace(program, decls=tuple(one for one in program.decls if one is not decl), steps=steps)
    if program.tensors:
        used = {name: one for name, one in program.tensors.items() if _is_used(program, name)}
        if len(used) < len(program.tensors):
            yield replace(program, tensors=used)
    for size in program.sizes:
        yield replace(program, sizes={name: bound for name, bound in program.sizes.items() if name != size})


def _is_used(program: Program, tensor: str) -> bool:
    return any(
        tensor in {decl.tensor, *(f"{decl.name}.{entry}" for entry in range(decl.entries))} for decl in program.decls
    )
