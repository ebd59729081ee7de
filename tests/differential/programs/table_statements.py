"""Statements of random programs about persistent memory: tables, matrices, parts of tensors, counters."""

from tests.differential.programs.expressions import NUMBERS, Body, bounds, expression, index, part
from tests.differential.programs.making import Env, Making
from tests.differential.programs.numbers import TERNARY
from tests.differential.programs.tree import (
    Access,
    Assign,
    Count,
    Decl,
    Dim,
    Index,
    Kind,
    Op,
    Read,
    Reset,
    Slice,
    Statement,
    Transfer,
    Write,
    dim,
    dim_sum,
    expr_names,
)


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


def _is_open(making: Making, one: Index) -> bool:
    """Whether only a running step knows the length: lengths of numbers and sizes are compared beforehand."""
    if isinstance(one, Slice) and one.end is None:
        return True
    ends = (one.start, one.end) if isinstance(one, Slice) else (one,)
    names = {name for end in ends for name in expr_names(end)}
    return bool(names) and not names & making.sizes.keys()


def _loose(making: Making, decl: Decl, place: Access) -> Kind | None:
    """A kind for a slice whose length only a running step knows: its first axis has a size of its own."""
    if not making.free_sizes or place.indices is None:
        return None
    slices = [one for one in place.indices if isinstance(one, Slice)]
    if not all(_is_open(making, one) for one in (place.indices if decl.auto_dim else slices)):
        return None
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
        name = making.temporary(env, kind)
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
        _loose_write(making, env, body, decl, place)
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


def _loose_write(making: Making, env: Env, body: Body, decl: Decl, place: Access) -> None:
    """A slice whose length only a running step knows is written with something that may have that length."""
    slices = [one for one in place.indices or () if isinstance(one, Slice)]
    if decl.auto_dim or len(slices) != 1 or not _is_open(making, slices[0]):
        return
    known = making.variables(env, lambda one: one.dtype == decl.kind.dtype and one.dims[1:] == decl.kind.dims)
    known = [name for name in known if len(env.readable[name].dims) == len(decl.kind.dims) + 1]
    if known:
        body.append(Write(making.pick(known), place))


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
        amount = making.pick((None, None, None, 2, 3, expression(making, env)))
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
    """A part of a tensor that is no table: read, written, reset, or an operand and result of ops."""
    names = [name for name, kind in env.readable.items() if kind.dims]
    if not names:
        return
    name = making.pick(names)
    place, own = _part_of(making, env, name)
    decl = making.decls.get(name)
    is_kept = decl is not None and decl.section == "persistent"
    is_written = name in env.writable
    if own is None:
        if is_kept and is_written and making.chance(0.5):
            body.append(Reset(place))
        return
    others = [one for one in making.variables(env, lambda kind: kind == own) if one != name]
    if is_written and making.chance(0.5):
        if others:
            other = making.pick(others)
            ops: list[Statement] = [
                Transfer(Access(other), place),
                Write(other, place) if is_kept else Transfer(Access(other), place),
            ]
            if own.dtype in NUMBERS:
                ops.append(Op("sub", (place, Access(other)), (place,)))
            body.append(making.pick(ops))
    elif making.chance(0.5):
        op = "neg" if own.dtype in (*NUMBERS, *TERNARY) else "not"
        making.emit(env, body, op, (place,), own, infers=False)
    else:
        targets = [one for one in others if one in env.writable]
        if targets:
            target = making.pick(targets)
            body.append(Read(place, target) if is_kept else Transfer(place, Access(target)))


def _part_of(making: Making, env: Env, name: str) -> tuple[Access, Kind | None]:
    """A part of a tensor, and its kind where that is always the same."""
    kind = env.readable[name]
    indices: list[Index] = []
    dims: list[Dim | None] = []
    for own in kind.dims:
        extent, counts = own
        if counts:
            # Where the extent is a size of the step, an index may be too much for it.
            room = extent + sum(making.sizes[size] * count for size, count in counts)
            chosen: Index = Slice() if making.chance(0.6) else index(making, env, room)
            dims += [own] if isinstance(chosen, Slice) else []
            indices.append(chosen)
        elif making.chance(0.5) and extent:
            indices.append(index(making, env, extent))
        else:
            chosen, length = part(making, env, extent) if extent else (Slice(), 0)
            indices.append(chosen)
            dims.append(None if length is None else dim(length))
    known = tuple(one for one in dims if one is not None)
    place = Access(name, tuple(indices))
    return place, Kind(kind.dtype, known) if len(known) == len(dims) else None
