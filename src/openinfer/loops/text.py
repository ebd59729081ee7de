"""Kernels as text, for people and tests."""

from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Alloc,
    Attend,
    Axis,
    Binary,
    Bits,
    Buffer,
    Cast,
    Combine,
    Compare,
    Const,
    Contraction,
    Exchange,
    Fail,
    For,
    GroupBarrier,
    If,
    Kernel,
    Leave,
    Let,
    Load,
    Local,
    Math,
    Order,
    Ready,
    Result,
    Round,
    Scalar,
    ScalarVar,
    Scan,
    Select,
    SetLocal,
    Statement,
    Store,
    Structure,
    TileStep,
    Unary,
    Unfailed,
    While,
    WideLoad,
    WideStore,
)
from openinfer.loops.tile_steps import tile_text

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def scalar_text(value: Scalar) -> str:
    """An expression on one line."""
    match value:
        case Const(number, dtype):
            return repr(number) if dtype is INDEX else f"{number!r}:{dtype.name}"
        case ScalarVar(name):
            return name
        case Load(buffer, index):
            return f"{buffer.name}[{', '.join(map(scalar_text, index))}]"
        case Unary(op, operand):
            return f"{op}({scalar_text(operand)})"
        case Binary(op, left, right):
            if op in _SIGNS:
                return f"({scalar_text(left)} {_SIGNS[op]} {scalar_text(right)})"
            return f"{op}({scalar_text(left)}, {scalar_text(right)})"
        case Compare(op, left, right):
            return f"({scalar_text(left)} {_COMPARISONS[op]} {scalar_text(right)})"
        case Select(cond, then, otherwise):
            return f"({scalar_text(cond)} ? {scalar_text(then)} : {scalar_text(otherwise)})"
        case Cast(operand, dtype):
            return f"{dtype.name}({scalar_text(operand)})"
        case Bits(operand, dtype, storage):
            return f"bits.{storage.name + '.' if storage else ''}{dtype.name}({scalar_text(operand)})"
        case Round(operand, storage):
            return f"round.{storage.name}({scalar_text(operand)})"
        case Math(function, args):
            return f"{function}({', '.join(map(scalar_text, args))})"
        case _:
            raise TypeError(value)


def _lines(statements: tuple[Statement, ...], depth: int) -> list[str]:
    pad = "    " * depth
    found: list[str] = []
    for statement in statements:
        match statement:
            case For(variable, extent, body, kind, bind):
                head = f"{kind} {variable.name} < {scalar_text(extent)}"
                found.append(f"{pad}{head} {{" if bind is None else f"{pad}{head} @{bind} {{")
                found += [*_lines(body, depth + 1), f"{pad}}}"]
            case While(cond, body):
                found += [f"{pad}while {scalar_text(cond)} {{", *_lines(body, depth + 1), f"{pad}}}"]
            case If(cond, then, otherwise):
                found += [f"{pad}if {scalar_text(cond)} {{", *_lines(then, depth + 1)]
                if otherwise:
                    found += [f"{pad}}} else {{", *_lines(otherwise, depth + 1)]
                found.append(f"{pad}}}")
            case Let(variable, value):
                found.append(f"{pad}let {variable.name}: {variable.dtype.name} = {scalar_text(value)}")
            case Local(variable, value):
                found.append(f"{pad}var {variable.name}: {variable.dtype.name} = {scalar_text(value)}")
            case SetLocal(variable, value):
                found.append(f"{pad}{variable.name} = {scalar_text(value)}")
            case Store(buffer, index, value):
                found.append(f"{pad}{buffer.name}[{', '.join(map(scalar_text, index))}] = {scalar_text(value)}")
            case Alloc(buffer):
                found.append(f"{pad}alloc {_parameter(buffer)}")
            case Fail(reason):
                found.append(f"{pad}fail {reason!r}")
            case Contraction():
                found += [pad + line for line in _contraction(statement)]
            case Structure():
                found += [pad + line for line in structure_text(statement)]
            case GroupBarrier() | Exchange() | Leave() | Ready() | Unfailed() | Combine() | WideLoad() | WideStore():
                found.append(pad + _of_threads(statement))
            case TileStep():
                found.append(pad + tile_text(statement, scalar_text))
    return found


def _of_threads(one: GroupBarrier | Exchange | Leave | Ready | Unfailed | Combine | WideLoad | WideStore) -> str:
    match one:
        case Ready():
            return "ready"
        case Unfailed():
            return "unfailed"
        case GroupBarrier():
            return "barrier"
        case Exchange(values, memory, row, words, first):
            names, given = ", ".join(buffer.name for buffer in memory), ", ".join(map(scalar_text, values))
            return f"exchange {names} = {given} of {words.groups} groups at [{scalar_text(row)}, {first}]"
        case Leave(row, words):
            return f"leave {words.count} words at [{scalar_text(row)}]"
        case Combine(variables, others, values, width, before):
            pairs = " and ".join(f"{var.name}, {other.name}" for var, other in zip(variables, others, strict=True))
            ahead = f" before in {', '.join(var.name for var in before)}" if before else ""
            return f"combine {pairs} of {width} as {', '.join(map(scalar_text, values))}{ahead}"
        case WideLoad(variables, buffer, index):
            names = ", ".join(var.name for var in variables)
            ahead = "ahead " if one.is_ahead else ""
            return f"let {names} = {ahead}{buffer.name}[{', '.join(map(scalar_text, index))}..]"
        case WideStore(buffer, index, values):
            place = ", ".join(map(scalar_text, index))
            return f"{buffer.name}[{place}..] = {', '.join(map(scalar_text, values))}"


def _contraction(one: Contraction) -> list[str]:
    free = ", ".join(f"{var.name} < {extent!r}" for var, extent in zip(one.free, one.extents, strict=True))
    bound = ", ".join(f"{var.name} < {extent!r}" for var, extent in zip(one.bound, one.reduced, strict=True))
    term = " * ".join(map(scalar_text, one.factors))
    where = f" where {scalar_text(one.valid)}" if one.valid is not None else ""
    template = "" if one.template is None else f" {one.template.text}"
    return [
        f"contract {free} over {bound} in {one.accumulator.name}{template} {{",
        f"    acc += {term}{where}",
        f"    {one.out.name}[{', '.join(map(scalar_text, one.out_index))}] = {scalar_text(one.epilogue)}",
        "}",
    ]


def structure_text(one: Structure) -> list[str]:
    """The lines of a structured statement."""
    match one:
        case Scan():
            facts = f"{' exclusive' * one.is_exclusive}{' reversed' * one.is_reversed}"
            update = f"    {ACCUMULATOR} = {scalar_text(Binary(one.op, one.total, one.term))}"
            head = f"scan {_axis(one.axis)} in {one.accumulator.name}{facts} {{"
            return [head, update, *(f"    {_result(result)}" for result in one.results), "}"]
        case Order():
            facts = " descending" * one.is_descending
            head = f"order {_axis(one.axis)} by {scalar_text(one.key)}{facts} for {_axis(one.rank)} {{"
            return [head, *(f"    {_result(result)}" for result in one.results), "}"]
        case Attend():
            return _attend(one)
        case _:
            raise TypeError(one)


def _attend(one: Attend) -> list[str]:
    query, key, value = (scalar_text(element.scalar) for element in one.elements)
    until = "" if one.until is None else f" until {scalar_text(one.until)}"
    after = "" if one.after is None else f" after {scalar_text(one.after)}"
    return [
        f"attend {_axis(one.head)}, {_axis(one.row)} to {_axis(one.key)}{until}{after} in {one.accumulator.name} {{",
        f"    score {scalar_text(one.score)} of {query} * {key} over {_axis(one.depth)}",
        f"    mean of {value} for {_axis(one.column)}",
        f"    {_result(one.out)}",
        "}",
    ]


def _axis(one: Axis) -> str:
    return f"{one.index.name} < {one.extent!r}"


def _result(one: Result) -> str:
    return f"{one.buffer.name}[{', '.join(map(scalar_text, one.index))}] = {scalar_text(one.value)}"


def _parameter(buffer: Buffer) -> str:
    apart = "" if buffer.strides is None else f" strides [{', '.join(map(repr, buffer.strides))}]"
    return f"{buffer.name}: {buffer.dtype.name}[{', '.join(map(repr, buffer.shape))}]{apart}"


def kernel_text(kernel: Kernel) -> str:
    """A kernel as text."""
    return f"kernel {definition_text(kernel)}"


def definition_text(kernel: Kernel) -> str:
    """The same without the keyword."""
    head = f"{kernel.name}({', '.join(map(_parameter, kernel.inputs))})"
    head += f" -> {', '.join(map(_parameter, kernel.outputs))} {{"
    return "\n".join([head, *_lines(kernel.body, 1), "}"]) + "\n"
