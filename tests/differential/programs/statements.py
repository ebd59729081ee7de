"""Statements of random programs that have no body: ops, transfers, tables, slices, counters."""

from collections.abc import Callable, Sequence

from tests.differential.programs.making import Env, Making
from tests.differential.programs.numbers import FLOATS, INTEGERS, TERNARY, limits
from tests.differential.programs.tree import (
    Access,
    Assign,
    Barrier,
    Count,
    Decl,
    Dim,
    Dims,
    Expr,
    Index,
    Kind,
    Read,
    Reset,
    Slice,
    Statement,
    Transfer,
    Write,
    dim,
    dim_sum,
    dim_times,
)

Body = list[Statement]
NUMBERS = (*INTEGERS, *FLOATS)


# --- integers ---------------------------------------------------------------------------------------------------------


def term(making: Making, env: Env) -> Expr:
    """A name or a small number for an index expression."""
    names: list[Expr] = [name for name, _ in env.indices]
    names += making.integers(env)
    names += [size for size in making.sizes if size not in making.free_sizes]
    return making.pick(names) if names and making.chance(0.85) else making.number(0, 3)


def expression(making: Making, env: Env) -> Expr:
    """A term, or two of them."""
    first = term(making, env)
    if making.chance(0.6):
        return first
    operator = making.pick("++-*/%")
    second: Expr = making.number(1, 3) if operator in "*/%" else term(making, env)
    return (operator, first, second)


def index(making: Making, env: Env, bound: int | None) -> Expr:
    """An index below a bound; sometimes one that only a running step can judge."""
    room = bound or 4
    choice = making.rng.random()
    known = [name for name, end in env.indices if end is not None and end <= room]
    if known and choice < 0.35:
        return making.pick(known)
    if choice < 0.55:
        return making.number(0, room - 1)
    counters = [name for name in making.integers(env) if name[0] in "nm"]
    if counters and choice < 0.68:
        return making.pick(counters)
    return ("%", expression(making, env), making.number(max(1, room - 1), room))


def part(making: Making, env: Env, extent: int | None, *, whole: float = 0.3) -> tuple[Slice, int | None]:
    """A slice and its length, where that is always the same."""
    if making.chance(whole):
        return Slice(), extent
    room = extent or 4
    if making.chance(0.5):
        start = making.number(0, room - 1)
        end = making.number(start, room)
        return Slice(start, end), end - start
    if making.chance(0.3) and extent is not None:
        return Slice(making.pick((None, 0)), -1), max(0, extent - 1)
    start_at = index(making, env, room)
    if making.chance(0.4):
        return Slice(start_at, ("+", start_at, 1)), 1
    return Slice(making.pick((None, 0, 1)), ("%", expression(making, env), room + 1)), None


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
    name = _any(making, env, lambda one: one == kind)
    return None if name is None else Access(name)


def bounds(decl: Decl) -> list[int | None]:
    """What the indices of a table stay below."""
    fixed = dict(decl.fixed)
    return [decl.entries or fixed.get(name) for name in decl.indices]


def pointwise(making: Making, env: Env, body: Body) -> None:
    """An op on two operands of the same kind, or one that is stretched."""
    name = _any(making, env, lambda kind: kind.dtype in (*NUMBERS, *TERNARY, "bool"))
    if name is None:
        return
    kind = env.readable[name]
    other_kind = kind
    if kind.dims and making.chance(0.2):
        other_kind = Kind(kind.dtype, kind.dims[making.number(1, len(kind.dims)) :])
    other = Access(name) if making.chance(0.15) else _operand(making, env, other_kind)
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
        making.emit(env, body, op, (Access(name), other), kind, div_by_zero_mask=making.number(0, 1))
    else:
        making.emit(env, body, op, (Access(name), other), kind)


def compare(making: Making, env: Env, body: Body) -> None:
    """A comparison; of scalars it gives a condition."""
    scalar = making.chance(0.7)
    name = _any(making, env, lambda kind: kind.dtype in NUMBERS and (not kind.dims or not scalar))
    if name is None:
        return
    kind = env.readable[name]
    other = _operand(making, env, kind)
    if other is not None:
        op = making.pick(("eq", "ne", "lt", "le", "gt", "ge"))
        making.emit(env, body, op, (Access(name), other), Kind("bool", kind.dims))


def select(making: Making, env: Env, body: Body) -> None:
    condition = _any(making, env, lambda kind: kind.dtype == "bool")
    name = _any(making, env, lambda kind: True)
    if condition is None or name is None:
        return
    kind = env.readable[name]
    if env.readable[condition].dims not in ((), kind.dims):
        return
    other = _operand(making, env, kind)
    if other is not None:
        making.emit(env, body, "where", (Access(condition), Access(name), other), kind)


def cast(making: Making, env: Env, body: Body) -> None:
    name = _any(making, env, lambda kind: True)
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
    params = {}
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


def transfer(making: Making, env: Env, body: Body) -> None:
    name = _any(making, env, lambda kind: True)
    if name is None:
        return
    source = _operand(making, env, env.readable[name])
    known = making.variables(env, lambda kind: kind == env.readable[name], written=True)
    if source is not None and known:
        body.append(Transfer(source, Access(making.pick(known))))


# --- tables -----------------------------------------------------------------------------------------------------------


def _caches(making: Making, env: Env, *, written: bool = False) -> list[Decl]:
    names = env.tables & env.writable if written else env.tables
    return [making.decls[name] for name in sorted(names) if making.decls[name].is_cache]


def access(making: Making, env: Env, decl: Decl) -> tuple[Access, Kind | None]:
    """An entry, a slice or a matrix of a table; its kind, where that is always the same."""
    shape = decl.kind.dims
    if making.chance(0.08):
        return Access(decl.name, ()), None
    if decl.auto_dim:
        return _matrix_access(making, env, decl)
    indices: list[Index] = []
    front: list[Dim | None] = []
    for bound in bounds(decl):
        if making.chance(0.75):
            indices.append(index(making, env, bound))
            continue
        chosen, length = part(making, env, bound, whole=0.15)
        # A slice without ends, or from the end, is as long as the table has become.
        is_known = chosen.end is not None and not (isinstance(chosen.end, int) and chosen.end < 0)
        indices.append(chosen)
        front.append(dim(length) if is_known and length is not None else None)
    known = [one for one in front if one is not None]
    kind = Kind(decl.kind.dtype, (*known, *shape)) if len(known) == len(front) else None
    return Access(decl.name, tuple(indices)), kind


def _matrix_access(making: Making, env: Env, decl: Decl) -> tuple[Access, Kind | None]:
    fixed = dict(decl.fixed)
    keys = [index(making, env, fixed.get(name)) for name in decl.indices if name not in decl.auto_dim]
    grown = len(decl.auto_dim)
    rest = decl.kind.dims[grown:]
    inner: list[Index] = []
    dims: list[Dim | None] = []
    if making.chance(0.4):
        for name, own in zip(decl.auto_dim, decl.kind.dims, strict=False):
            more = making.number(0, fixed.get(name, 3)) if making.chance(0.6) else index(making, env, fixed.get(name))
            inner.append(more)
            dims.append(dim_sum(own, dim(more)) if isinstance(more, int) else None)
    else:
        for name, own in zip(decl.auto_dim, decl.kind.dims, strict=False):
            reach = own[0] + fixed.get(name, 2)
            if making.chance(0.3) and grown > 1 and not any(isinstance(one, Slice) is False for one in inner):
                inner.append(index(making, env, reach))
                continue
            chosen, length = part(making, env, reach, whole=0.3)
            is_known = chosen.end is not None and not (isinstance(chosen.end, int) and chosen.end < 0)
            inner.append(chosen)
            dims.append(dim(length) if is_known and length is not None else None)
        if not any(isinstance(one, Slice) for one in inner):
            inner[0] = Slice(0, 1)
            dims = [dim(1)]
    known = [one for one in dims if one is not None]
    kind = Kind(decl.kind.dtype, (*known, *rest)) if len(known) == len(dims) else None
    return Access(decl.name, (*keys, *inner)), kind


def _loose(making: Making, decl: Decl, place: Access) -> Kind | None:
    """A kind for a slice whose length only a running step knows: its first axis has a size of its own."""
    if not making.free_sizes or place.indices is None:
        return None
    slices = [one for one in place.indices if isinstance(one, Slice)]
    if decl.auto_dim:
        keys = len(decl.indices) - len(decl.auto_dim)
        inner = place.indices[keys:]
        if not inner or (len(inner) == 1 and len(decl.auto_dim) == 1):
            return (
                Kind(decl.kind.dtype, (dim(making.pick(making.free_sizes)), *decl.kind.dims[1:]))
                if not keys or inner
                else None
            )
        return None
    if place.indices == ():
        slices = [Slice()] * len(decl.indices)
    if len(slices) != 1:
        return None
    return Kind(decl.kind.dtype, (dim(making.pick(making.free_sizes)), *decl.kind.dims))


def table_read(making: Making, env: Env, body: Body) -> None:
    """What a table holds, into a variable."""
    caches = _caches(making, env)
    if not caches:
        return
    decl = making.pick(caches)
    place, kind = access(making, env, decl)
    if kind is None:
        kind = _loose(making, decl, place)
    if kind is None:
        return
    known = making.variables(env, lambda one: one == kind, written=True)
    if known and (making.chance(0.7) or not env.is_entry):
        name = making.pick(known)
    elif env.is_entry and len(making.temporaries) <= 16:
        name = making.name("r_")
        making.temporaries[name] = kind
        env.readable[name] = kind
        env.writable.add(name)
        body.append(Assign(name, kind))
    else:
        return
    body.append(Read(place, name) if making.chance(0.8) else Transfer(place, Access(name)))
    if decl.kind == kind and making.chance(0.4):
        _table_to_table(making, env, body, name)


def _table_to_table(making: Making, env: Env, body: Body, name: str) -> None:
    """What was read from one table is written to another."""
    kind = env.readable[name]
    others = [decl for decl in _caches(making, env, written=True) if decl.kind == kind and not decl.auto_dim]
    if others:
        decl = making.pick(others)
        body.append(Write(name, Access(decl.name, tuple(index(making, env, bound) for bound in bounds(decl)))))


def table_write(making: Making, env: Env, body: Body) -> None:
    """A value into a table, by a cache node, an op or a transfer."""
    caches = _caches(making, env, written=True)
    if not caches:
        return
    decl = making.pick(caches)
    place, kind = access(making, env, decl)
    if kind is None:
        return
    known = making.variables(env, lambda one: one == kind)
    if not known:
        known = making.variables(env, lambda one: one == decl.kind)
        if not known or decl.auto_dim:
            return
        place = Access(decl.name, tuple(index(making, env, bound) for bound in bounds(decl)))
    name = making.pick(known)
    if making.chance(0.75):
        body.append(Write(name, place))
    else:
        body.append(Transfer(Access(name), place))


def prefix_write(making: Making, env: Env, body: Body) -> None:
    """An entry of a prefix table gets another value for this step."""
    tables = [making.decls[name] for name in sorted(env.tables & env.writable) if making.decls[name].entries]
    if not tables:
        return
    decl = making.pick(tables)
    known = making.variables(env, lambda one: one == decl.kind)
    if known:
        chosen = (
            ("%", expression(making, env), decl.entries) if making.chance(0.5) else making.number(0, decl.entries - 1)
        )
        body.append(Transfer(Access(making.pick(known)), Access(decl.name, (chosen,))))


def counter(making: Making, env: Env, body: Body) -> None:
    names = [
        name
        for name in making.integers(env)
        if name in env.writable and name in making.decls and making.decls[name].section == "persistent"
    ]
    if names:
        amount = making.pick((None, None, None, 2, 3))
        body.append(Count(making.pick(names), amount, down=making.chance(0.2)))


def reset(making: Making, env: Env, body: Body) -> None:
    """A persistent variable, a table, or a part of one back to what it was at first."""
    names = [
        name for name in sorted(env.writable) if name in making.decls and making.decls[name].section == "persistent"
    ]
    if not names:
        return
    decl = making.decls[making.pick(names)]
    if decl.is_plain or making.chance(0.3):
        body.append(Reset(Access(decl.name)))
        return
    place, _ = access(making, env, decl)
    indices = place.indices
    if indices and making.chance(0.3):
        indices = indices[: making.number(1, len(indices))]
    body.append(Reset(Access(decl.name, indices)))


def plain_part(making: Making, env: Env, body: Body) -> None:
    """A part of a persistent tensor read, written or reset."""
    names = [
        name
        for name, kind in env.readable.items()
        if kind.dims and name in making.decls and making.decls[name].section == "persistent"
    ]
    if not names:
        return
    name = making.pick(names)
    kind = env.readable[name]
    indices: list[Index] = []
    dims: list[Dim | None] = []
    for extent, _ in kind.dims:
        if making.chance(0.5):
            indices.append(index(making, env, extent))
        else:
            chosen, length = part(making, env, extent)
            indices.append(chosen)
            dims.append(None if length is None else dim(length))
    known = tuple(one for one in dims if one is not None)
    place = Access(name, tuple(indices))
    if len(known) < len(dims):
        if name in env.writable and making.chance(0.5):
            body.append(Reset(place))
        return
    own = Kind(kind.dtype, known)
    if making.chance(0.5) and name in env.writable:
        sources = making.variables(env, lambda one: one == own)
        if sources:
            body.append(Write(making.pick(sources), place))
    elif making.chance(0.5):
        making.emit(env, body, "neg" if kind.dtype in (*NUMBERS, *TERNARY) else "not", (place,), own)
    else:
        targets = making.variables(env, lambda one: one == own, written=True)
        targets = [one for one in targets if one != name]
        if targets:
            body.append(Read(place, making.pick(targets)))


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
