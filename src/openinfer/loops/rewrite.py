"""Rewriting kernels: expressions and statements with parts replaced."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import is_

from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Alloc,
    Bind,
    Buffer,
    Combine,
    Const,
    Contraction,
    Exchange,
    Fail,
    For,
    If,
    Kernel,
    Leave,
    Let,
    Load,
    Local,
    LoopKind,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
    Store,
    Structure,
    TileStep,
    While,
    WideLoad,
    WideStore,
    assigned_by,
    children,
    rebuilt,
    scalars,
    visit,
    walk,
)
from openinfer.loops.simplify import simplified, truth

Statements = tuple[Statement, ...]
Change = Callable[[Scalar], Scalar | None]
"""The replacement of an expression, or None to keep it; its operands have already been changed."""


def changed(value: Scalar, change: Change) -> Scalar:
    """Rewrite the parts of an expression with a function, innermost first."""
    parts = children(value)
    inner = tuple(changed(part, change) for part in parts)
    own = value if all(map(is_, parts, inner)) else rebuilt(value, inner)
    found = change(own)
    return own if found is None else found


def replaced(value: Scalar, parts: Mapping[Scalar, Scalar]) -> Scalar:
    """Substitute some of the variables or elements of an expression."""
    return changed(value, parts.get)


def with_bodies(statement: Statement, change: Callable[[Statements], Statements]) -> Statement:
    """Change the bodies directly inside a statement: the body of a loop, both branches of a condition."""
    match statement:
        case For() | While():
            body = change(statement.body)
            return statement if body is statement.body else replace(statement, body=body)
        case If(cond=cond, then=then, otherwise=otherwise):
            one, other = change(then), change(otherwise)
            return statement if one is then and other is otherwise else If(cond, one, other)
        case _:
            return statement


def map_statements(statements: Statements, change: Callable[[Statement], Iterable[Statement]]) -> Statements:
    """Replace every statement, nested ones included, by the results of a function; innermost first.

    >>> x, nothing = ScalarVar("x"), Let(ScalarVar("unused"), Const(1, INDEX))
    >>> loop = For(ScalarVar("i"), Const(4, INDEX), (nothing, Let(x, Const(2, INDEX))))
    >>> map_statements((loop,), lambda one: () if one == nothing else (one,))[0].body == (Let(x, Const(2, INDEX)),)
    True
    """

    def inside(body: Statements) -> Statements:
        return map_statements(body, change)

    found = tuple(made for statement in statements for made in change(with_bodies(statement, inside)))
    return statements if _are_same(found, statements) else found


def _are_same(found: Sequence[object], before: Sequence[object]) -> bool:
    """Whether nothing changed: most passes leave most of a kernel alone, and it need not be rebuilt."""
    return len(found) == len(before) and all(map(is_, found, before))


def changed_statements(statements: Statements, change: Change) -> Statements:
    """Rewrite all expressions in statements."""
    return map_statements(statements, lambda one: (with_scalars(one, lambda value: changed(value, change)),))


def with_scalars(statement: Statement, apply: Callable[[Scalar], Scalar]) -> Statement:
    """Change the expressions directly in a statement."""
    match statement:
        case For(extent=extent):
            made = apply(extent)
            return statement if made is extent else replace(statement, extent=made)
        case While(cond=cond) | If(cond=cond):
            made = apply(cond)
            return statement if made is cond else replace(statement, cond=made)
        case Let(value=value) | Local(value=value) | SetLocal(value=value):
            made = apply(value)
            return statement if made is value else replace(statement, value=made)
        case Store(buffer=buffer, index=index, value=value):
            places, made = tuple(map(apply, index)), apply(value)
            return statement if made is value and _are_same(places, index) else Store(buffer, places, made)
        case Combine():
            return replace(statement, values=tuple(map(apply, statement.values)))
        case Exchange():
            return replace(statement, values=tuple(map(apply, statement.values)), row=apply(statement.row))
        case Leave():
            return replace(statement, row=apply(statement.row))
        case WideLoad():
            return replace(statement, index=tuple(map(apply, statement.index)))
        case WideStore():
            index, values = tuple(map(apply, statement.index)), tuple(map(apply, statement.values))
            return replace(statement, index=index, values=values)
        case Contraction():
            return replace(
                statement,
                out_index=tuple(map(apply, statement.out_index)),
                a_index=tuple(map(apply, statement.a_index)),
                b_index=tuple(map(apply, statement.b_index)),
                epilogue=apply(statement.epilogue),
                valid=None if statement.valid is None else apply(statement.valid),
                a_value=None if statement.a_value is None else apply(statement.a_value),
                b_value=None if statement.b_value is None else apply(statement.b_value),
            )
        case Structure() | TileStep():
            return statement.with_parts(apply)
        case _:
            return statement


def with_buffers(kernel: Kernel, mapping: Mapping[str, Buffer]) -> Kernel:
    """Replace buffers by name; an input that becomes an output is no longer an input."""

    def swap(buffer: Buffer) -> Buffer:
        return mapping.get(buffer.name, buffer)

    def change(value: Scalar) -> Scalar | None:
        return replace(value, buffer=swap(value.buffer)) if isinstance(value, Load) else None

    def own(statement: Statement) -> tuple[Statement]:
        match statement:
            case Store() | Alloc() | WideLoad() | WideStore():
                return (replace(statement, buffer=swap(statement.buffer)),)
            case Exchange():
                return (replace(statement, memory=tuple(map(swap, statement.memory))),)
            case Contraction():
                return (replace(statement, out=swap(statement.out), a=swap(statement.a), b=swap(statement.b)),)
            case Structure() | TileStep():
                return (statement.with_parts(swap=swap),)
            case _:
                return (statement,)

    outputs = tuple(swap(buffer) for buffer in kernel.outputs)
    inputs = [swap(buffer) for buffer in kernel.inputs]
    kept = tuple(buffer for buffer in dict.fromkeys(inputs) if buffer not in outputs)
    body = changed_statements(map_statements(kernel.body, own), change)
    return replace(kernel, inputs=kept, outputs=outputs, body=body)


def renamed(statements: Statements, names: Mapping[str, ScalarVar]) -> Statements:
    """Rename variables, both where they are bound and where they are used."""

    def change(value: Scalar) -> Scalar | None:
        return names.get(value.name) if isinstance(value, ScalarVar) else None

    def binder(var: ScalarVar) -> ScalarVar:
        return names.get(var.name, var)

    def own(statement: Statement) -> tuple[Statement]:
        match statement:
            case For():
                return (replace(statement, index=binder(statement.index)),)
            case Let() | Local() | SetLocal():
                return (replace(statement, var=binder(statement.var)),)
            case WideLoad():
                return (replace(statement, variables=tuple(map(binder, statement.variables))),)
            case Combine():
                parts = statement.variables, statement.others, statement.before
                one, other, before = (tuple(map(binder, part)) for part in parts)
                return (replace(statement, variables=one, others=other, before=before),)
            case Contraction():
                free, bound = tuple(map(binder, statement.free)), tuple(map(binder, statement.bound))
                return (replace(statement, free=free, bound=bound),)
            case Structure():
                return (statement.with_parts(bind=binder),)
            case _:
                return (statement,)

    return changed_statements(map_statements(statements, own), change)


def variables_of(body: Statements) -> Iterator[ScalarVar]:
    """The variables that statements bind, in order."""
    return (var for statement in walk(body) for var in binders(statement))


def binders(statement: Statement) -> tuple[ScalarVar, ...]:
    """The variables that a statement itself binds."""
    match statement:
        case For(index=var) | Let(var=var) | Local(var=var):
            return (var,)
        case Contraction(free=free, bound=bound):
            return (*free, *bound)
        case WideLoad(variables=variables) | Combine(others=variables):
            return variables
        case Structure():
            return tuple(axis.index for axis in statement.axes)
        case _:
            return ()


def straightened(statements: Statements) -> Statements:
    """Remove zero-trip loops, and replace single-iteration loops by their bodies.

    Expressions are simplified, conditions with a known outcome folded, and statements after a certain failure dropped.
    All allocations stay: the memory that a kernel is given does not depend on whether loops run.
    """
    made = without_unused(_reached(_straightened(_without_aliases(_straightened(statements)))))
    inside = {inner for one in made for inner in walk((one,)) if isinstance(inner, Alloc) and inner is not one}
    memory = (one for one in walk(statements) if isinstance(one, Alloc) and one not in inside)
    return (*memory, *(one for one in made if not isinstance(one, Alloc)))


def _straightened(statements: Statements) -> Statements:
    def own(statement: Statement) -> Statements:
        one = statement if isinstance(statement, Structure) else with_scalars(statement, simplified)
        match one:
            case If(cond=cond, then=then, otherwise=otherwise) if truth(cond) is not None:
                return then if truth(cond) else otherwise
            case SetLocal(var=var, value=value) if value == var:
                # A sum whose terms are 0. Compilers warn about self-assignment.
                return ()
            case Contraction():
                assert isinstance(statement, Contraction)
                return _simpler(one if _has_factors(one) else statement)
            case For(bind=Bind.GROUP | Bind.TEAM, extent=Const(value=1)):
                # These loops determine the groups of a team, and the threads of a group.
                return (one,)
            case For(index=index, extent=Const(value=rounds), body=body) if rounds in (0, 1) and type(rounds) is int:
                # With a constant index, inner loops may become zero-trip or single-iteration loops.
                return _straightened(_with_index(body, index, 0)) if rounds else ()
            case _:
                return (one,)

    return map_statements(statements, own)


def _reached(statements: Statements) -> Statements:
    """Drop what follows an unconditional failure, in every body."""
    last = next((at for at, one in enumerate(statements) if isinstance(one, Fail)), len(statements))
    return tuple(with_bodies(one, _reached) for one in statements[: last + 1])


def _simpler(one: Contraction) -> Statements:
    """Drop a condition that always holds; a contraction without terms, or with an unused sum, becomes stores."""
    if any(map(_is_empty, one.extents)):
        return ()
    total = ScalarVar(ACCUMULATOR, one.accumulator)
    is_valid = None if one.valid is None else truth(one.valid)
    has_terms = is_valid is not False and not any(map(_is_empty, one.reduced))
    is_read = has_terms and any(part == total for part in visit(one.epilogue))
    if one.template is not None or is_read:
        return (replace(one, valid=None) if is_valid else one,)
    made = replaced(one.epilogue, {total: Const(0, one.accumulator)})
    body: Statements = (Store(one.out, one.out_index, made),)
    for variable, extent in zip(reversed(one.free), reversed(one.extents), strict=True):
        body = (For(variable, Const(extent, INDEX), body, LoopKind.PARALLEL),)
    return body


def _is_empty(extent: int) -> bool:
    return type(extent) is int and extent == 0


def _has_factors(one: Contraction) -> bool:
    """Whether both factors still load from their buffers, without which they are not factors."""
    return all(
        any(isinstance(part, Load) and part.buffer == buffer for part in visit(factor))
        for buffer, factor in zip((one.a, one.b), one.factors, strict=True)
    )


def _without_aliases(statements: Statements) -> Statements:
    """Inline names for constants and for variables that keep their value."""
    assigned = {var for one in walk(statements) for var in assigned_by(one)}

    def inside(body: Statements, known: Mapping[Scalar, Scalar]) -> Statements:
        found, made = dict(known), []
        for statement in body:
            one = with_scalars(statement, lambda value: replaced(value, found)) if found else statement
            if isinstance(one, Let) and isinstance(one.value, ScalarVar | Const) and one.value not in assigned:
                found[one.var] = one.value
            else:
                made.append(with_bodies(one, lambda part: inside(part, found)))
        return tuple(made)

    return inside(statements, {})


def at_index(body: Statements, index: ScalarVar, value: int) -> Statements:
    """The body of a loop for one value of its index, simplified; variables that only later statements read stay."""
    return _straightened(_without_aliases(_straightened(_with_index(body, index, value))))


def _with_index(body: Statements, index: ScalarVar, value: int) -> Statements:
    return changed_statements(body, lambda part: Const(value, INDEX) if part == index else None)


def without_unused(statements: Statements) -> Statements:
    """Remove names and variables that nothing reads, and the loops and conditions left empty."""
    while True:
        read = {part for one in walk(statements) for value in scalars(one) for part in visit(value)}
        kept = _without_unread(statements, read)
        if kept == statements:
            return statements
        statements = kept


def _without_unread(statements: Statements, read: Collection[Scalar]) -> Statements:
    def own(one: Statement) -> Statements:
        match one:
            case Let() | Local() | SetLocal() if one.var not in read:
                return ()
            case For(body=()) | If(then=(), otherwise=()):
                return ()
            case _:
                return (one,)

    return map_statements(statements, own)
