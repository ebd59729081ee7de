"""Statements of random programs that have no body: ops and transfers here, and those about persistent memory."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.differential.programs.expressions import NUMBERS, Body, bounds, index
from tests.differential.programs.making import MOST_TEMPORARIES, Env, Making, anything
from tests.differential.programs.numbers import FLOATS, INTEGERS, TERNARY
from tests.differential.programs.table_statements import (
    counter,
    plain_part,
    prefix_write,
    reset,
    table_read,
    table_write,
)
from tests.differential.programs.tree import (
    Access,
    Assign,
    Barrier,
    Dim,
    Dims,
    Kind,
    Literal,
    Op,
    Transfer,
    dim,
    dim_sum,
    dim_times,
)

# --- ops --------------------------------------------------------------------------------------------------------------


def _any(making: Making, env: Env, fits: Callable[[Kind], bool]) -> str | None:
    names = making.variables(env, fits)
    if not names:
        return None
    recent = names[-4:]
    return making.pick(recent) if making.chance(0.5) else making.pick(names)


def _operand(making: Making, env: Env, kind: Kind) -> Access | None:
    """Something of a kind: a variable, or an entry of a table."""
    tables = [
        making.decls[name]
        for name in sorted(env.tables)
        if making.decls[name].kind == kind and not making.decls[name].auto_dim
    ]
    if tables and making.chance(0.3):
        decl = making.pick(tables)
        return Access(decl.name, tuple(index(making, env, bound) for bound in bounds(decl)))
    if env.indices and kind == Kind("i64") and making.chance(0.5):
        return Access(making.pick(env.indices)[0])
    name = _any(making, env, lambda one: one == kind)
    return None if name is None else Access(name)


def _literal(making: Making, kind: Kind) -> Literal | None:
    """Sometimes a number that the dtype can hold."""
    if kind.dtype not in NUMBERS or not making.chance(0.12):
        return None
    value = making.values(kind.dtype, ())
    return Literal(float(value) if kind.dtype in FLOATS else int(value))


def pointwise(making: Making, env: Env, body: Body) -> None:
    """An op on two operands of the same kind, or one that is stretched."""
    name = _any(making, env, lambda kind: kind.dtype in (*NUMBERS, *TERNARY, "bool"))
    if name is None:
        return
    kind = env.readable[name]
    if env.indices and making.chance(0.1):
        making.emit(env, body, "cast", (Access(making.pick(env.indices)[0]),), Kind("i32"), to="i32")
        return
    other_kind = kind
    if kind.dims and making.chance(0.2):
        other_kind = Kind(kind.dtype, kind.dims[making.number(1, len(kind.dims)) :])
    other = _literal(making, kind) or (Access(name) if making.chance(0.15) else _operand(making, env, other_kind))
    if other is None:
        return
    if kind.dtype == "bool":
        ops: Sequence[str] = ("and", "or", "xor")
    elif kind.dtype in TERNARY:
        ops = ("mul", "min", "max")
    else:
        ops = ("add", "add", "add", "sub", "mul", "min", "max")
        if kind.dtype in INTEGERS and making.chance(0.15):
            ops = ("and", "or", "xor")
    own = (Access(name), other)
    making.emit(env, body, making.pick(ops), own if making.chance(0.7) else own[::-1], kind)


def unary(making: Making, env: Env, body: Body) -> None:
    name = _any(making, env, lambda kind: kind.dtype in (*NUMBERS, "t2"))
    if name is None:
        return
    kind = env.readable[name]
    op = making.pick(("relu", "neg", "abs", "square", "sign"))
    if op == "sign" and kind.dtype in FLOATS:
        op = "neg"
    making.emit(env, body, op, (Access(name),), kind)


def division(making: Making, env: Env, body: Body) -> None:
    """Integers divided, which fails by zero unless it says otherwise."""
    name = _any(making, env, lambda kind: kind.dtype in INTEGERS)
    if name is None:
        return
    kind = env.readable[name]
    other = _operand(making, env, kind)
    if other is None:
        return
    op = making.pick(("div", "floor_div", "rem", "mod"))
    if making.chance(0.6):
        making.emit(
            env,
            body,
            op,
            (Access(name), other),
            kind,
            div_by_zero_mask=0 if kind.dtype == "i1" else making.number(0, 1),
        )
    else:
        making.emit(env, body, op, (Access(name), other), kind)


def compare(making: Making, env: Env, body: Body) -> None:
    """A comparison; of scalars it gives a condition."""
    scalar = making.chance(0.7)
    name = _any(making, env, lambda kind: kind.dtype in NUMBERS and (not kind.dims or not scalar))
    if name is None:
        return
    kind = env.readable[name]
    other = _literal(making, kind) or _operand(making, env, kind)
    if other is not None:
        op = making.pick(("eq", "ne", "lt", "le", "gt", "ge"))
        making.emit(env, body, op, (Access(name), other), Kind("bool", kind.dims))


def select(making: Making, env: Env, body: Body) -> None:
    condition = _any(making, env, lambda kind: kind.dtype == "bool")
    name = _any(making, env, anything)
    if condition is None or name is None:
        return
    kind = env.readable[name]
    if env.readable[condition].dims not in ((), kind.dims):
        return
    other = _operand(making, env, kind)
    if other is not None:
        making.emit(env, body, "where", (Access(condition), Access(name), other), kind)


def cast(making: Making, env: Env, body: Body) -> None:
    name = _any(making, env, anything)
    if name is None:
        return
    kinds = [kind.dtype for kind in making.kinds] + ["i32", "i64"]
    to = making.pick(kinds)
    making.emit(env, body, "cast", (Access(name),), Kind(to, env.readable[name].dims), to=to)


def reduction(making: Making, env: Env, body: Body) -> None:
    """A sum or an extreme: of all elements, which may become an index or a bound, or over an axis."""
    name = _any(making, env, lambda kind: bool(kind.dims) and kind.dtype in (*INTEGERS, "bool"))
    if name is None:
        return
    kind = env.readable[name]
    params: dict[str, Any] = {}
    dims: tuple[Dim, ...] = ()
    if making.chance(0.6):
        axis = making.number(0, len(kind.dims) - 1)
        params["axes"] = (axis,)
        dims = tuple(one for place, one in enumerate(kind.dims) if place != axis)
    if kind.dtype == "bool":
        if making.chance(0.5):
            making.emit(env, body, making.pick(("any_axis", "all_axis")), (Access(name),), Kind("bool", dims), **params)
        else:
            making.emit(env, body, "sum_axis", (Access(name),), Kind("i32", dims), **params, acc="i32")
        return
    op = making.pick(("sum_axis", "sum_axis", "max_axis", "min_axis"))
    making.emit(env, body, op, (Access(name),), Kind(kind.dtype, dims), **params)


def movement(making: Making, env: Env, body: Body) -> None:
    """Ops that move elements."""
    name = _any(making, env, lambda kind: bool(kind.dims))
    if name is None:
        return
    kind, own = env.readable[name], Access(name)
    op = making.pick(("transpose", "flip", "concat", "slice", "reshape", "iota", "fill", "cumsum", "matmul", "split"))
    axis = making.number(0, len(kind.dims) - 1)
    if op == "flip":
        making.emit(env, body, op, (own,), kind, axes=(axis,))
    elif op == "transpose":
        making.emit(env, body, op, (own,), Kind(kind.dtype, kind.dims[::-1]))
    elif op == "concat":
        other = _operand(making, env, kind)
        dims = tuple(dim_sum(one, one) if place == axis else one for place, one in enumerate(kind.dims))
        if other is not None and len(dims) == len(kind.dims):
            making.emit(env, body, op, (own, other), Kind(kind.dtype, dims), axis=axis)
    elif op == "slice" and not kind.dims[axis][1]:
        start = making.number(0, kind.dims[axis][0])
        end = making.number(start, kind.dims[axis][0])
        dims = tuple(dim(end - start) if place == axis else one for place, one in enumerate(kind.dims))
        making.emit(env, body, op, (own,), Kind(kind.dtype, dims), starts=(start,), ends=(end,), axes=(axis,))
    elif op == "reshape" and len(kind.dims) == 2 and not kind.dims[1][1]:
        flat = dim_times(kind.dims[0], kind.dims[1][0])
        making.emit(env, body, op, (own,), Kind(kind.dtype, (flat,)), shape=Dims((flat,)))
    elif op in {"iota", "cumsum"} and kind.dtype in INTEGERS:
        making.emit(env, body, op, (own,), kind, axis=axis)
    elif op == "fill" and kind.dtype not in (*TERNARY, "bool"):
        value = float(making.number(-2, 2)) if kind.dtype in FLOATS else int(making.values(kind.dtype, ()))
        making.emit(env, body, op, (own,), kind, value=value)
    elif op == "matmul" and kind.dtype in INTEGERS and len(kind.dims) == 2:
        other = _operand(making, env, kind)
        if other is not None:
            dims = (kind.dims[0], kind.dims[0])
            making.emit(env, body, op, (own, other), Kind(kind.dtype, dims), transpose_b=True)
    elif op == "split" and env.is_entry and not kind.dims[axis][1] and len(making.temporaries) < MOST_TEMPORARIES:
        _split(making, env, body, own, axis)


def _split(making: Making, env: Env, body: Body, own: Access, axis: int) -> None:
    """Two parts of a tensor, both of them new."""
    kind = env.readable[own.base]
    first = making.number(0, kind.dims[axis][0])
    sizes = (first, kind.dims[axis][0] - first)
    kinds = tuple(
        Kind(kind.dtype, tuple(dim(size) if place == axis else one for place, one in enumerate(kind.dims)))
        for size in sizes
    )
    names = [making.temporary(env, one) for one in kinds]
    is_inferred = making.chance(0.6)
    body += [] if is_inferred else [Assign(name, one) for name, one in zip(names, kinds, strict=True)]
    params = (("axis", axis), ("sizes", sizes))
    body.append(Op("split", (own,), tuple(map(Access, names)), params, kinds if is_inferred else ()))


def transfer(making: Making, env: Env, body: Body) -> None:
    name = _any(making, env, anything)
    if name is None:
        return
    source = _operand(making, env, env.readable[name])
    known = making.variables(env, lambda kind: kind == env.readable[name], written=True)
    if source is not None and known:
        body.append(Transfer(source, Access(making.pick(known))))


def barrier(_making: Making, _env: Env, body: Body) -> None:
    body.append(Barrier())


SIMPLE: tuple[tuple[int, Callable[[Making, Env, Body], None]], ...] = (
    (18, pointwise),
    (6, unary),
    (2, division),
    (6, compare),
    (3, select),
    (5, cast),
    (7, reduction),
    (7, movement),
    (6, transfer),
    (14, table_read),
    (14, table_write),
    (4, prefix_write),
    (12, counter),
    (4, reset),
    (5, plain_part),
    (1, barrier),
)


def simple(making: Making, env: Env, body: Body) -> None:
    """One statement or a few, of any kind."""
    (chosen,) = making.rng.choices([one for _, one in SIMPLE], [weight for weight, _ in SIMPLE])
    chosen(making, env, body)
