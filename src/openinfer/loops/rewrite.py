"""Kernels made of kernels: expressions and statements with parts replaced."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from openinfer.loops.ir import (
    INDEX,
    Assign,
    Buffer,
    Const,
    Contraction,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Scalar,
    Statement,
    Store,
    Var,
    While,
    children,
    rebuilt,
    scalars,
    visit,
    walk,
)

Change = Callable[[Scalar], Scalar | None]
"""What an expression becomes, or None where it stays as it is (its parts already changed)."""


def changed(value: Scalar, change: Change) -> Scalar:
    """An expression with the parts that a function changes, innermost first."""
    parts = children(value)
    inner = tuple(changed(part, change) for part in parts)
    own = value if all(one is other for one, other in zip(parts, inner, strict=True)) else rebuilt(value, inner)
    found = change(own)
    return own if found is None else found


def changed_statements(statements: tuple[Statement, ...], change: Change) -> tuple[Statement, ...]:
    """Statements with all their expressions changed."""
    return tuple(_changed_statement(statement, change) for statement in statements)


def _changed_statement(statement: Statement, change: Change) -> Statement:
    def apply(value: Scalar) -> Scalar:
        return changed(value, change)

    match statement:
        case For():
            return replace(statement, extent=apply(statement.extent), body=changed_statements(statement.body, change))
        case While():
            return While(apply(statement.cond), changed_statements(statement.body, change))
        case If():
            then, otherwise = (changed_statements(one, change) for one in (statement.then, statement.otherwise))
            return If(apply(statement.cond), then, otherwise)
        case Let() | Local() | Assign():
            return replace(statement, value=apply(statement.value))
        case Store():
            return replace(statement, index=tuple(map(apply, statement.index)), value=apply(statement.value))
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
        case _:
            return statement


def with_buffers(kernel: Kernel, mapping: Mapping[str, Buffer]) -> Kernel:
    """The kernel with buffers, by their names, replaced by others; an input that is then written is none any more."""

    def swap(buffer: Buffer) -> Buffer:
        return mapping.get(buffer.name, buffer)

    def change(value: Scalar) -> Scalar | None:
        return replace(value, buffer=swap(value.buffer)) if isinstance(value, Load) else None

    def statements(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        found: list[Statement] = []
        for one in body:
            statement = one
            match statement:
                case Store():
                    statement = replace(statement, buffer=swap(statement.buffer))
                case Contraction():
                    statement = replace(statement, out=swap(statement.out), a=swap(statement.a), b=swap(statement.b))
                case For() | While():
                    statement = replace(statement, body=statements(statement.body))
                case If():
                    then, otherwise = statements(statement.then), statements(statement.otherwise)
                    statement = replace(statement, then=then, otherwise=otherwise)
            found.append(statement)
        return tuple(found)

    outputs = tuple(swap(buffer) for buffer in kernel.outputs)
    inputs = [swap(buffer) for buffer in kernel.inputs]
    kept = tuple(buffer for buffer in dict.fromkeys(inputs) if buffer not in outputs)
    body = changed_statements(statements(kernel.body), change)
    return replace(kernel, inputs=kept, outputs=outputs, body=body)


def renamed(statements: tuple[Statement, ...], names: Mapping[str, Var]) -> tuple[Statement, ...]:
    """Statements with variables replaced, where they are bound and where they are used."""

    def change(value: Scalar) -> Scalar | None:
        return names.get(value.name) if isinstance(value, Var) else None

    def binders(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        found: list[Statement] = []
        for one in body:
            statement = one
            match statement:
                case For():
                    index = names.get(statement.index.name, statement.index)
                    statement = replace(statement, index=index, body=binders(statement.body))
                case While():
                    statement = replace(statement, body=binders(statement.body))
                case If():
                    statement = If(statement.cond, binders(statement.then), binders(statement.otherwise))
                case Let() | Local() | Assign():
                    statement = replace(statement, var=names.get(statement.var.name, statement.var))
                case Contraction():
                    free = tuple(names.get(var.name, var) for var in statement.free)
                    bound = tuple(names.get(var.name, var) for var in statement.bound)
                    statement = replace(statement, free=free, bound=bound)
            found.append(statement)
        return tuple(found)

    return changed_statements(binders(statements), change)


def straightened(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Statements without loops that are none: one of a single round is its body, one of no rounds is nothing."""
    return without_unused(_straightened(statements))


def _straightened(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
    found: list[Statement] = []
    for one in statements:
        match one:
            case For(index=index, extent=Const(value=rounds), body=body) if rounds in (0, 1) and type(rounds) is int:
                found += _straightened(_at_first(body, index)) if rounds else ()
            case For() | While():
                found.append(replace(one, body=_straightened(one.body)))
            case If():
                found.append(If(one.cond, _straightened(one.then), _straightened(one.otherwise)))
            case _:
                found.append(one)
    return tuple(found)


def _at_first(body: tuple[Statement, ...], index: Var) -> tuple[Statement, ...]:
    return changed_statements(body, lambda part: Const(0, INDEX) if part == index else None)


def without_unused(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Statements without the names for values, and the variables, that nothing reads."""
    while True:
        read = {part for one in walk(statements) for value in scalars(one) for part in visit(value)}
        kept = _without_unread(statements, read)
        if kept == statements:
            return statements
        statements = kept


def _without_unread(statements: tuple[Statement, ...], read: Collection[Scalar]) -> tuple[Statement, ...]:
    found: list[Statement] = []
    for one in statements:
        statement = one
        match statement:
            case Let() | Local() | Assign() if statement.var not in read:
                continue
            case For() | While():
                statement = replace(statement, body=_without_unread(statement.body, read))
                if isinstance(statement, For) and not statement.body:
                    continue
            case If():
                then, otherwise = _without_unread(statement.then, read), _without_unread(statement.otherwise, read)
                statement = If(statement.cond, then, otherwise)
        found.append(statement)
    return tuple(found)
