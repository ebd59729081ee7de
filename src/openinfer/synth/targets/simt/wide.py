"""Runs several iterations on contiguous elements at once, with a single wide access for each load and store."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from openinfer.dtypes import DType
from openinfer.loops.affine import position
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    INDEX,
    Binary,
    Buffer,
    Const,
    If,
    Let,
    Load,
    Math,
    Scalar,
    ScalarVar,
    SetLocal,
    Space,
    Statement,
    Store,
    WideLoad,
    WideStore,
    children,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements, changed, changed_statements, replaced, with_scalars
from openinfer.synth.targets.simt.segments import free_name

_ACCESS_BITS = 128
_MOST, _MOST_PACKED = 16, 32
"""Iterations at once at most, and the same if elements share bytes."""
_MOST_LONG = 8
"""Iterations at once at most, if the body is long."""


@dataclass
class FreshNames:
    """Unused names for variables and buffers."""

    taken: set[str]

    def var(self, hint: str, dtype: DType = INDEX) -> ScalarVar:
        """A variable with an unused name based on ``hint``."""
        return ScalarVar(self.name(hint), dtype)

    def name(self, hint: str) -> str:
        """An unused name based on ``hint``."""
        found = free_name(hint, self.taken)
        self.taken.add(found)
        return found


@dataclass(frozen=True)
class WideCopies:
    """Unrolled iterations: loads for all of them first, wide stores last."""

    first: Statements
    body: Statements
    last: Statements
    loaded: Mapping[Load, tuple[Scalar, ...]] = field(default_factory=dict)
    """The values of loads that are wide or were in registers before."""
    stored: Mapping[int, tuple[Scalar, ...]] = field(default_factory=dict)
    """The values of stores that are kept in registers, by statement number."""

    @property
    def statements(self) -> Statements:
        """All statements."""
        return (*self.first, *self.body, *self.last)


@dataclass(frozen=True)
class WideLoop:
    """The body of a loop over an index, of which several iterations run at once."""

    index: ScalarVar
    body: Statements
    unaligned: frozenset[str] = frozenset()
    """Buffers that may start anywhere."""
    _varying: dict[Scalar, None] = field(default_factory=dict)
    """Variables that differ between iterations."""

    def __post_init__(self) -> None:
        self._varying[self.index] = None
        written = self._stored
        for one in self.body:
            parts = [part for value in scalars(one) for part in visit(value)]
            is_read = any(isinstance(part, Load) and part.buffer.name in written for part in parts)
            if isinstance(one, Let) and (is_read or any(part in self._varying for part in parts)):
                self._varying[one.var] = None

    @property
    def _stored(self) -> set[str]:
        return {one.buffer.name for one in walk(self.body) if isinstance(one, Store)}

    @property
    def is_long(self) -> bool:
        """Whether the body calls math functions."""
        return any(isinstance(part, Math) for one in walk(self.body) for value in scalars(one) for part in visit(value))

    # --- width --------------------------------------------------------------------------------------------------------

    def width(self, extent: int, *, has_tail: bool = False) -> int:
        """The number of iterations at once: 16 bytes of the smallest elements, if their layout allows it."""
        bits = [buffer.dtype.bits for buffer, index in self._accesses() if self._step(buffer, index) == 1]
        if not bits or is_symbolic(extent):
            return 1
        most = _MOST_LONG if self.is_long else _MOST if min(bits) >= 8 else _MOST_PACKED
        # Adjacent threads write contiguously; what they read is at most two accesses apart.
        written = [one.buffer.dtype.bits for one in self.body if isinstance(one, Store)]
        largest = max((*written, max(bits) // 2, 8)) if written else min(bits)
        found = min(_ACCESS_BITS // min(bits), _ACCESS_BITS // largest, most)
        found = max(found, 32) if min(bits) == 1 else found
        while found > 1:
            is_whole = extent >= found if has_tail else extent % found == 0
            if is_whole and any(self._is_wide(buffer, index, found) for buffer, index in self._accesses()):
                return found
            found //= 2
        return 1

    def _accesses(self) -> Iterator[tuple[Buffer, tuple[Scalar, ...]]]:
        """The accesses of statements outside branches."""
        for one in self.body:
            if isinstance(one, Store):
                yield one.buffer, one.index
            if isinstance(one, Let | Store | SetLocal):
                parts = (part for value in scalars(one) for part in visit(value))
                yield from ((part.buffer, part.index) for part in parts if isinstance(part, Load))

    def _step(self, buffer: Buffer, index: tuple[Scalar, ...]) -> int | None:
        found = position(buffer, index)
        return None if found is None else found.stride(self.index)

    def _is_wide(self, buffer: Buffer, index: tuple[Scalar, ...], width: int) -> bool:
        """Whether ``width`` iterations, from a multiple of ``width``, access whole, aligned words."""
        if buffer.space in (Space.OWN, Space.GROUP) or buffer.name in self.unaligned or self._is_read_again(buffer):
            return False
        found = position(buffer, index)
        if found is None or width * buffer.dtype.bits % 32 or is_symbolic(found.first) or found.first % width:
            return False
        steps = dict(found.strides)
        own = steps.pop(self.index.name, 0)
        if is_symbolic(own) or own != 1 or any(ScalarVar(name) in self._varying for name in steps):
            return False
        return all(not is_symbolic(step) and step % width == 0 for step in steps.values())

    def _is_read_again(self, buffer: Buffer) -> bool:
        """Whether a buffer is loaded from after a store to it."""
        is_stored = False
        for one in walk(self.body):
            parts = (part for value in scalars(one) for part in visit(value))
            if is_stored and any(isinstance(part, Load) and part.buffer.name == buffer.name for part in parts):
                return True
            is_stored = is_stored or (isinstance(one, Store) and one.buffer.name == buffer.name)
        return False

    # --- copies -------------------------------------------------------------------------------------------------------

    def copies(self, start: Scalar, width: int, names: FreshNames, kept: "KeptElements | None" = None) -> WideCopies:
        """``width`` iterations from ``start``, which is a multiple of ``width``."""
        kept = kept or KeptElements()
        wide: dict[Load, tuple[Scalar, ...]] = dict(kept.known)
        first: list[Statement] = []
        same: dict[Scalar, Scalar] = {}
        shared: dict[Scalar, Scalar] = {}
        for one in self.body:
            if isinstance(one, Let) and one.var not in self._varying:
                made = names.var(one.var.name, one.var.dtype)
                first.append(Let(made, replaced(one.value, same)))
                same[one.var] = made
        begin = {**same, self.index: start}
        for part in dict.fromkeys(self._uniform(width)):
            made = names.var("same" if isinstance(part, Binary) else part.buffer.name, part.dtype)
            seen = changed(part, shared.get)
            first.append(Let(made, replaced(seen, begin)))
            shared |= {part: made, seen: made}
        for load in dict.fromkeys((*(self._wide_loads(width) if width > 1 else ()), *kept.named)):
            if load not in wide:
                own = tuple(names.var(f"{load.buffer.name}_{place}", load.dtype) for place in range(width))
                first += self.loaded(load, own, begin)
                wide[load] = own
        return self._written(first, wide, begin, width, names, shared, kept)

    def is_wide(self, load: Load, width: int) -> bool:
        """Whether ``width`` iterations can load in one access."""
        return width * load.buffer.dtype.bits <= _ACCESS_BITS and self._is_wide(load.buffer, load.index, width)

    def has_wide_stores(self, width: int) -> bool:
        """Whether ``width`` iterations can run each store as one access."""
        stores = [one for one in self.body if isinstance(one, Store)]
        is_small = all(width * one.buffer.dtype.bits <= _ACCESS_BITS for one in stores)
        return is_small and all(self._is_wide_store(one, width) for one in stores)

    def loaded(self, load: Load, own: tuple[ScalarVar, ...], begin: Mapping[Scalar, Scalar]) -> Iterator[Statement]:
        """The loads of several iterations, as one access if possible."""
        start = begin[self.index]
        if len(own) > 1 and self._is_wide(load.buffer, load.index, len(own)):
            yield WideLoad(own, load.buffer, tuple(replaced(part, begin) for part in load.index))
            return
        for place, var in enumerate(own):
            known: dict[Scalar, Scalar] = {**begin, self.index: start + place if place else start}
            yield Let(var, replaced(load, known))

    def _uniform(self, width: int) -> Iterator[Binary | Load]:
        """What ``width`` iterations have in common: quotients of the index, and loads at these; inner ones first."""
        found: set[Scalar] = set()
        stored = self._stored

        def is_same(part: Scalar) -> bool:
            return part in found or (part not in self._varying and all(map(is_same, children(part))))

        def look(part: Scalar) -> Iterator[Binary | Load]:
            for inner in children(part):
                yield from look(inner)
            match part:
                case Binary("div", left, Const(divisor)) if left == self.index and _divides(width, divisor):
                    found.add(part)
                    yield part
                case Load(buffer, index) if width > 1 and buffer.name not in stored and all(map(is_same, index)):
                    found.add(part)
                    yield part

        for one in self.body:
            is_plain = isinstance(one, Store | SetLocal) or (isinstance(one, Let) and one.var in self._varying)
            for value in scalars(one) if is_plain else ():
                yield from look(value)

    def _wide_loads(self, width: int) -> Iterator[Load]:
        for one in self.body:
            if isinstance(one, Let | Store | SetLocal):
                for part in (part for value in scalars(one) for part in visit(value)):
                    if isinstance(part, Load) and self._is_wide(part.buffer, part.index, width):
                        yield part

    def _written(
        self,
        first: list[Statement],
        wide: Mapping[Load, tuple[Scalar, ...]],
        begin: Mapping[Scalar, Scalar],
        width: int,
        names: FreshNames,
        shared: Mapping[Scalar, Scalar],
        kept: "KeptElements",
    ) -> WideCopies:
        body: list[Statement] = []
        stored: dict[int, list[Scalar]] = {}
        for place in range(width):
            known = {**begin, self.index: begin[self.index] + place}
            loads: dict[Scalar, Scalar] = dict(shared)
            loads |= {load: found[place] for load, found in wide.items()}
            for number, one in enumerate(self.body):
                if isinstance(one, Let) and one.var not in self._varying:
                    continue
                copy = _substituted(_substituted(one, loads), known)
                if isinstance(copy, Let):
                    known[copy.var] = made = names.var(copy.var.name, copy.var.dtype)
                    copy = Let(made, copy.value)
                if isinstance(copy, Store) and (number in kept.stores or self._is_wide_store(one, width)):
                    value = _named(copy.value, body, names, copy.buffer)
                    stored.setdefault(number, []).append(value)
                    copy = Store(copy.buffer, copy.index, value)
                if number not in kept.dropped and not self._is_wide_store(one, width):
                    body.append(copy)
        last: list[Statement] = []
        for number, values in stored.items():
            store = self.body[number]
            if isinstance(store, Store) and number not in kept.dropped and self._is_wide_store(store, width):
                index = tuple(replaced(part, begin) for part in store.index)
                last.append(WideStore(store.buffer, index, tuple(values)))
        found = {number: tuple(values) for number, values in stored.items() if number in kept.stores}
        return WideCopies(tuple(first), tuple(body), tuple(last), wide, found)

    def _is_wide_store(self, one: Statement, width: int) -> bool:
        return isinstance(one, Store) and width > 1 and self._is_wide(one.buffer, one.index, width)


@dataclass(frozen=True)
class KeptElements:
    """Elements that earlier loops left in registers, and those that later loops need."""

    known: Mapping[Load, tuple[Scalar, ...]] = field(default_factory=dict)
    """Loads whose values are in registers, for each iteration."""
    named: Collection[Load] = ()
    """Loads whose values get names, wide or not."""
    stores: Collection[int] = ()
    """Statement numbers of stores whose values get names."""
    dropped: Collection[int] = ()
    """Statement numbers of stores to leave out: a later loop overwrites them."""


def _divides(width: int, divisor: float) -> bool:
    return width > 1 and type(divisor) is int and divisor % width == 0


def _named(value: Scalar, body: list[Statement], names: FreshNames, buffer: Buffer) -> Scalar:
    if isinstance(value, ScalarVar):
        return value
    made = names.var(f"{buffer.name}_out", value.dtype)
    body.append(Let(made, value))
    return made


def _substituted(one: Statement, parts: Mapping[Scalar, Scalar]) -> Statement:
    if not parts:
        return one
    made = with_scalars(one, lambda value: changed(value, parts.get))
    if isinstance(made, If):
        then, otherwise = (changed_statements(body, parts.get) for body in (made.then, made.otherwise))
        made = If(made.cond, then, otherwise)
    return made
