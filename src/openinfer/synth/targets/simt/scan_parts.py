"""Parts of scans: how totals are combined, and the statements that combine them, load terms and store results."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from openinfer.loops.affine import position
from openinfer.loops.build import cast, index, select, unary
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    Binary,
    Buffer,
    Combine,
    Const,
    For,
    If,
    Let,
    Load,
    Local,
    Scalar,
    ScalarVar,
    Scan,
    SetLocal,
    Space,
    Statement,
    Store,
    WideLoad,
    visit,
)
from openinfer.loops.rewrite import Statements, binders, replaced
from openinfer.synth.targets.simt.partials import shared_type
from openinfer.synth.targets.simt.team import as_words
from openinfer.synth.targets.simt.threads import int_extent, nest
from openinfer.synth.targets.simt.wide import FreshNames, KeptElements, WideCopies, WideLoop

Totals: TypeAlias = tuple[Scalar, ...]
"""The variables of a total; of a float product: the product, and whether all factors are finite (0 or NaN)."""
TotalVars: TypeAlias = tuple[ScalarVar, ...]
_MOST_STRETCHES = 128
"""Totals of floats that are added one after the other."""


@dataclass(frozen=True)
class LoneScan:
    """Parallel loops whose entire body is a scan, and what an iteration computes before it."""

    loops: tuple[For, ...]
    lets: Statements
    scan: Scan

    @property
    def rows(self) -> int:
        """The number of iterations."""
        total = 1
        for one in self.loops:
            total = total * int_extent(one.extent)
        return total

    @property
    def is_across(self) -> bool:
        """Whether adjacent rows are contiguous in memory and the elements of a row are not."""
        if not self.loops or self.lets:
            return False
        found = [position(self.scan.out.buffer, self.scan.out.index)]
        loads = (part for part in visit(self.scan.term) if isinstance(part, Load))
        found += [position(part.buffer, part.index) for part in loads]
        known = [one for one in found if one is not None]
        across = [one.stride(self.loops[-1].index) for one in known]
        along = [one.stride(self.scan.axis.index) for one in known]
        is_near = any(not is_symbolic(step) and abs(step) == 1 for step in along)
        return found[0] is not None and not is_near and all(not is_symbolic(step) and step in (0, 1) for step in across)


def lone_scan(one: Statement) -> LoneScan | None:
    """A statement as a scan in parallel loops; None if it is anything else."""
    loops = tuple(nest(one))
    *lets, last = loops[-1].body if loops else (one,)
    if not isinstance(last, Scan) or not all(isinstance(each, Let) for each in lets):
        return None
    return LoneScan(loops, tuple(lets), last)


@dataclass
class Folded:
    """Collects the statements of a scan."""

    scan: Scan
    names: FreshNames
    statements: list[Statement] = field(default_factory=list)

    @property
    def _has_flag(self) -> bool:
        return self.scan.op == "mul" and self.scan.accumulator.kind == "float"

    @property
    def neutral(self) -> Totals:
        """The total of no terms."""
        first = Const(self.scan.initial, self.scan.accumulator)
        return (first, Const(0, self.scan.accumulator)) if self._has_flag else (first,)

    def of(self, term: Scalar) -> Totals:
        """The total of one term. For products of floats, 0 times a factor is NaN if the factor is not finite."""
        return (term, term * 0) if self._has_flag else (term,)

    def value(self, total: Totals) -> Scalar:
        """The value of a total. A product of finite factors is a number: 0 times an overflow is 0."""
        if not self._has_flag:
            return total[0]
        return select(unary("isnan", total[0]) & ~unary("isnan", total[1]), 0, total[0])

    def joined(self, *parts: Totals | None) -> Totals:
        """Totals combined, first to last; None is the total of no terms."""
        known = [one for one in parts if one is not None]
        found = known[0] if known else self.neutral
        for one in known[1:]:
            pairs = zip((self.scan.op, "add"), found, one, strict=False)
            found = tuple(Binary(op, left, right) for op, left, right in pairs)
        return found

    # --- statements -----------------------------------------------------------------------------------------------

    def add(self, *statements: Statement) -> None:
        """Appends statements."""
        self.statements += statements

    def let(self, hint: str, values: Totals) -> Totals:
        """Names for values; a variable keeps its name."""
        found: list[Scalar] = []
        for value in values:
            if isinstance(value, ScalarVar):
                found.append(value)
                continue
            var = self.names.var(hint, value.dtype)
            self.statements.append(Let(var, value))
            found.append(var)
        return tuple(found)

    def local(self, hint: str, values: Totals) -> TotalVars:
        """Variables with initial values."""
        found = tuple(self.names.var(hint, value.dtype) for value in values)
        self.statements += (Local(var, value) for var, value in zip(found, values, strict=True))
        return found

    def assign(self, variables: TotalVars, values: Totals) -> None:
        """Assigns to variables that do not depend on each other's new values."""
        self.statements += (SetLocal(var, value) for var, value in zip(variables, values, strict=True))

    def choice(self, cond: Scalar, then: Totals, otherwise: Totals) -> Totals:
        """One of two totals."""
        return tuple(select(cond, one, other) for one, other in zip(then, otherwise, strict=True))

    def combine(self, totals: Sequence[TotalVars], width: int, before: Sequence[TotalVars] = ()) -> None:
        """Combines totals over threads of a subgroup."""
        variables = tuple(var for one in totals for var in one)
        others = tuple(tuple(self.names.var(f"{var.name}_other", var.dtype) for var in one) for one in totals)
        values = (value for one, other in zip(totals, others, strict=True) for value in self.joined(one, other))
        flat = tuple(var for one in others for var in one)
        earlier = tuple(var for one in before for var in one)
        self.statements.append(Combine(variables, flat, tuple(values), width, earlier))

    def shared(self, shape: tuple[int, ...]) -> tuple[Buffer, ...]:
        """Shared memory for totals."""
        return tuple(
            Buffer(self.names.name("shared_totals"), shared_type(part.dtype), shape, Space.GROUP)
            for part in self.neutral
        )

    def put(self, memory: Sequence[Buffer], at: tuple[Scalar, ...], total: Totals) -> Iterator[Statement]:
        """Stores a total in shared memory."""
        for buffer, part in zip(memory, total, strict=True):
            yield Store(buffer, at, cast(part, buffer.dtype))

    def got(self, memory: Sequence[Buffer], at: tuple[Scalar, ...]) -> Totals:
        """A total in shared memory."""
        pairs = zip(memory, self.neutral, strict=True)
        return tuple(cast(Load(buffer, at), part.dtype) for buffer, part in pairs)


@dataclass
class StretchLoads:
    """What a thread loads of a stretch, and the terms that it makes of that."""

    places: list[tuple[ScalarVar, Scalar | None]] = field(default_factory=list)
    """Where its elements are; for some threads only under a condition."""
    loads: list[Statement] = field(default_factory=list)
    found: list[tuple[Statements, tuple[Scalar, ...]]] = field(default_factory=list)
    """Further statements, and terms."""

    def take(self, place: ScalarVar, inside: Scalar | None, found: tuple[Statements, Statements, Totals]) -> None:
        """Adds adjacent elements."""
        loads, body, values = found
        if not any(isinstance(one, WideLoad) for one in loads):
            loads, body = (*loads, *body), ()  # Elements are loaded one by one, where terms are made of them.
        self.places.append((place, inside))
        self.loads += loads
        self.found.append((body, values))

    @property
    def loaded(self) -> TotalVars:
        """The variables that are loaded."""
        wide = tuple(var for one in self.loads if isinstance(one, WideLoad) for var in one.variables)
        return wide or tuple(one for _, values in self.found for one in values if isinstance(one, ScalarVar))

    def terms(self, code: Folded) -> list[list[Totals]]:
        """The terms, with neutral ones where there is no element."""
        terms: list[list[Totals]] = []
        for (_, inside), (body, values) in zip(self.places, self.found, strict=True):
            code.add(*body)
            own = [code.of(value) for value in values]
            if inside is not None:
                own = [code.let("term", code.choice(inside, one, code.neutral)) for one in own]
            terms.append(own)
        return terms


def each_stretch(
    code: Folded,
    count: int,
    load: Callable[[Scalar], StretchLoads],
    run: Callable[[Folded, Scalar, StretchLoads], None],
) -> None:
    """A loop over stretches, each of which is loaded while the one before is scanned."""
    turn, inside = code.names.var("stretch"), Folded(code.scan, code.names)
    own = load(turn)
    if is_symbolic(count) or count == 1:
        inside.add(*own.loads)
    else:
        first, following = load(index(0)), load(turn + 1)
        code.add(*first.loads)
        ahead = code.local("ahead", first.loaded)
        known = set(own.loaded)
        inside.add(*(one for one in own.loads if not (binders(one) and set(binders(one)) <= known)))
        inside.add(*(Let(var, value) for var, value in zip(own.loaded, ahead, strict=True)))
        kept = (SetLocal(var, value) for var, value in zip(ahead, following.loaded, strict=True))
        inside.add(If(turn + 1 < count, (*following.loads, *kept)))
    run(inside, turn, own)
    code.add(For(turn, index(count), tuple(inside.statements)))


@dataclass(frozen=True)
class Carry:
    """The total of all stretches before the current one; long sums of floats have one for some, and one for others."""

    inner: TotalVars
    outer: TotalVars | None = None
    block: int = 0
    """The stretches that ``inner`` has at most."""

    @classmethod
    def of(cls, code: Folded, stretches: int) -> "Carry":
        """The variables, before the first stretch, given their number."""
        inner = code.local("carry", code.neutral)
        if code.scan.op != "add" or code.scan.accumulator.kind != "float" or stretches <= _MOST_STRETCHES:
            return cls(inner)
        block = 1 << (stretches - 1).bit_length() // 2
        return cls(inner, code.local("carry", code.neutral), block)

    def before(self, code: Folded, turn: Scalar) -> Totals:
        """The total before a stretch."""
        if self.outer is None:
            return self.inner
        passed = Folded(code.scan, code.names)
        passed.assign(self.outer, code.joined(self.outer, self.inner))
        passed.assign(self.inner, code.neutral)
        code.add(If((turn % self.block).eq(0), tuple(passed.statements)))
        return code.let("carried", code.joined(self.outer, self.inner))

    def add(self, code: Folded, total: Totals) -> None:
        """Adds the total of a stretch."""
        code.assign(self.inner, code.joined(self.inner, total))


@dataclass(frozen=True)
class ScanElements:
    """The terms and results of a scan, for several contiguous elements at once."""

    scan: Scan
    index: ScalarVar
    """The index along which they are contiguous: of the scan, or of the rows around it."""
    extent: int
    names: FreshNames
    unaligned: frozenset[str]

    def width(self, most: int) -> int:
        """The elements of an access."""
        term = self.names.var("term", self.scan.accumulator)
        out = self.scan.out
        body = Let(term, self.scan.term), Store(out.buffer, out.index, replaced(out.value, {self.scan.total: term}))
        return min(WideLoop(self.index, body, self.unaligned).width(self.extent), most)

    @property
    def element_bits(self) -> int:
        """The bits of the largest element that is stored or loaded next to others."""
        loads = (part.buffer for part in visit(self.scan.term) if isinstance(part, Load))
        return max(buffer.dtype.bits for buffer in (self.scan.out.buffer, *loads))

    def terms(self, start: Scalar, width: int) -> tuple[Statements, Statements, tuple[Scalar, ...]]:
        """Loads, further statements, and the terms of ``width`` elements from ``start``."""
        memory = self._memory("terms")
        body = (Store(memory, (self.index,), self.scan.term),)
        made = WideLoop(self.index, body, self.unaligned).copies(
            start, width, self.names, KeptElements(stores=(0,), dropped=(0,))
        )
        pairs = [as_words(each, self.names) if isinstance(each, WideLoad) else (each, []) for each in made.first]
        unpacked = tuple(let for _, lets in pairs for let in lets)
        return tuple(each for each, _ in pairs), (*unpacked, *made.body), made.stored[0]

    def stores(self, start: Scalar, totals: Sequence[Scalar]) -> WideCopies:
        """Stores the results of elements from ``start``, given their totals."""
        out, total = self.scan.out, Load(self._memory("totals"), (self.index,))
        body = (Store(out.buffer, out.index, replaced(out.value, {self.scan.total: total})),)
        known: dict[Load, tuple[Scalar, ...]] = {total: tuple(totals)}
        loop = WideLoop(self.index, body, self.unaligned)
        return loop.copies(start, len(totals), self.names, KeptElements(known))

    def _memory(self, hint: str) -> Buffer:
        """Stands for elements in registers."""
        return Buffer(self.names.name(hint), self.scan.accumulator, (self.extent,), Space.OWN)
