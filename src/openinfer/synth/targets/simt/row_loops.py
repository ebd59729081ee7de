"""Recognizes row loops: threads may run their iterations in any order, and synchronize after each loop."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openinfer.loops.affine import Affine, position
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    INDEX,
    Buffer,
    Const,
    Fail,
    For,
    If,
    Let,
    Load,
    Local,
    LoopKind,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
    Store,
    scalars,
    visit,
    walk,
)
from openinfer.loops.reduction import Reduction, reductions
from openinfer.loops.rewrite import Statements, renamed, replaced


@dataclass(frozen=True)
class RowLoop:
    """A perfect loop nest with constant extents, whose iterations may run in any order."""

    indices: tuple[ScalarVar, ...]
    extents: tuple[int, ...]
    body: Statements
    reductions: tuple[Reduction, ...]
    scales: tuple[tuple[ScalarVar, Scalar], ...] = ()
    """Accumulators to which the sum of the iterations of one access is added after a multiplication."""
    edge: "RowLoop | None" = None
    """Iterations beside these that have no whole chunks."""

    def renamed(self, names: Mapping[str, ScalarVar]) -> "RowLoop":
        """The loop with other variables."""
        scales = tuple((names.get(var.name, var), scale) for var, scale in self.scales)
        edge = None if self.edge is None else self.edge.renamed(names)
        return replace(self, body=renamed(self.body, names), scales=scales, edge=edge)

    @property
    def shape(self) -> tuple[Scalar, ...]:
        """The extents as constants: a dynamic one never equals a number."""
        return tuple(Const(extent, INDEX) for extent in self.extents)

    @property
    def loads(self) -> Iterator[Affine]:
        """The positions that it loads from, where these are affine."""
        for part in (part for one in self.body for value in scalars(one) for part in visit(value)):
            found = position(part.buffer, part.index) if isinstance(part, Load) else None
            if found is not None:
                yield found

    def alike(self, where: Sequence[Scalar]) -> tuple[Scalar, ...]:
        """An index in canonical variables, the same for all loops over the same extents."""
        names: dict[Scalar, Scalar] = {var: ScalarVar(f" {place}") for place, var in enumerate(self.indices)}
        return tuple(replaced(part, names) for part in where)


RowItem = Statement | RowLoop


def row_items(body: Sequence[Statement]) -> list[RowItem] | None:
    """The statements of a row, with loops as ``RowLoop``; None if any other statement is among them."""
    found: list[RowItem] = []
    for one in body:
        match one:
            case For():
                loop = row_loop(one)
                if loop is None:
                    return None
                found.append(loop)
            case Let() | Local() | SetLocal() | Store() | If(then=(Fail(),), otherwise=()):
                found.append(one)
            case _:
                return None
    return found if is_consistent(found) else None


def row_loop(loop: For) -> RowLoop | None:
    """A loop as a row loop; None if it cannot be one."""
    nested = [loop]
    while len(nested[-1].body) == 1 and isinstance(nested[-1].body[0], For):
        nested.append(nested[-1].body[0])
    body = nested[-1].body
    if any(one.bind is not None or not isinstance(one.extent, Const) for one in nested):
        return None
    if not all(isinstance(one, Let | Store | SetLocal) for one in body):
        return None
    found = reductions(nested[-1])
    if not found and any(isinstance(one, SetLocal) for one in body):
        return None
    if any(each.var.dtype is INDEX for each in found):
        return None
    indices = tuple(one.index for one in nested)
    extents = tuple(one.extent.value for one in nested if isinstance(one.extent, Const))
    made = RowLoop(indices, tuple(one for one in extents if isinstance(one, int)), body, found)
    is_parallel = all(one.kind is LoopKind.PARALLEL for one in nested)
    return made if is_parallel or _is_independent(made) else None


def _is_independent(one: RowLoop) -> bool:
    """Whether each iteration stores to distinct elements."""
    for store in (each for each in one.body if isinstance(each, Store)):
        found = position(store.buffer, store.index)
        if found is None or any(is_symbolic(step) for step in found.strides.values()):
            return False
        inner = {each.var.name for each in one.body if isinstance(each, Let)}
        if inner & found.strides.keys():
            return False
        pairs = [(abs(found.stride(var)), extent) for var, extent in zip(one.indices, one.extents, strict=True)]
        reach = 0
        for step, extent in sorted(pairs, key=lambda pair: pair[0]):
            if is_symbolic(extent) and len(pairs) > 1:
                return False
            if step <= reach:
                return False
            reach += step * (extent - 1)
    return True


def is_consistent(items: Sequence[RowItem]) -> bool:
    """Whether only one thread accesses each element that a row writes.

    A written buffer is accessed either at one index, by loops of the same shape, or only in stores, which the row's
    first thread runs.
    """
    written = {one.buffer.name for item in items for one in _statements(item) if isinstance(one, Store)}
    seen: dict[str, tuple[object, ...]] = {}
    for item in items:
        for buffer, where in accesses(item):
            if buffer.name not in written:
                continue
            own = (item.shape, item.alike(where)) if isinstance(item, RowLoop) else ("first",)
            if seen.setdefault(buffer.name, own) != own:
                return False
            if not isinstance(item, RowLoop) and not isinstance(item, Store):
                return False
    return True


def _statements(item: RowItem) -> Iterator[Statement]:
    yield from item.body if isinstance(item, RowLoop) else walk((item,))


def accesses(item: RowItem) -> Iterator[tuple[Buffer, tuple[Scalar, ...]]]:
    """The elements that a statement or a loop stores and loads."""
    for one in _statements(item):
        if isinstance(one, Store):
            yield one.buffer, one.index
        for part in (part for value in scalars(one) for part in visit(value)):
            if isinstance(part, Load):
                yield part.buffer, part.index
