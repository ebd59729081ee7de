"""Plans checks of dynamic sizes: how they are bound, and what must hold before memory of such a size is touched."""

from collections.abc import Iterable, Iterator, Sequence

from openinfer.errors import Code
from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, names, quotients
from openinfer.loops.dim import Dim, expr_of, form, sizes_in, span
from openinfer.synth.memory.checks.certain import Certain, Compared, EvenChecked, RangeChecked
from openinfer.synth.memory.checks.records import (
    Agrees,
    BindsAmong,
    BindsSize,
    Computable,
    Even,
    InRange,
    Known,
    Refused,
    Room,
    SizeCheck,
    WhenKnown,
)
from openinfer.synth.program.failures import BAD_LENGTH, BAD_SIZE, NO_SHAPE, FailureNumbers, no_result
from openinfer.synth.program.integers import Computed, computed, constant
from openinfer.synth.program.ir import Comparison, Program, RefuseSizes, RequireSize, Value


class SizePlanner:
    """Plans checks of sizes at the current point of a block; each method yields the checks there, in order."""

    def __init__(self, program: Program, numbers: FailureNumbers, now: Certain) -> None:
        self._program = program
        self._numbers = numbers
        self._now = now

    def size(self, name: str) -> Computed:
        """The range of a size, whether dynamic or constant."""
        if name in self._program.sizes:
            return Computed(0, self._program.sizes[name])
        return constant(self._program.bound.sizes[name])

    def _extent(self, extent: int) -> Computed:
        return computed(expr_of(extent), self.size)

    # --- values of sizes ------------------------------------------------------------------------------------------

    def known(self, sizes: Iterable[str], node: int) -> Iterator[SizeCheck]:
        """Sizes have values."""
        for size in sorted(set(sizes) - self._now.known):
            yield Known(size, self._numbers.number(node, BAD_SIZE))
            self._now.known.add(size)

    def agree(self, extent: int, node: int, *, is_exact: bool) -> Iterator[SizeCheck]:
        """An extent equals the actual length; a size that is not bound yet is bound from it."""
        sizes = sizes_in(extent)
        unknown = sorted(sizes - self._now.known)
        # Identically written slices share one length: another length is a mismatch, as for any tensor.
        is_size = any(self._program.is_named(size) or size in unknown for size in sizes)
        failure = self._numbers.number(node, BAD_SIZE if is_size else BAD_LENGTH)
        if len(sizes) == 1 and unknown:
            (size,) = unknown
            yield BindsSize(size, extent, failure)
            self._now.known.add(size)
            if not self._program.is_named(size):
                return
        else:
            for size in filter(self._program.is_named, unknown):
                if not _is_affine(expr_of(extent), size):
                    continue
                yield BindsAmong(size, extent, tuple(one for one in unknown if one != size), failure)
            yield from self.known(unknown, node)
        for quotient in quotients(expr_of(extent)) if is_exact else ():
            yield from self._even(quotient, node)
        yield Agrees(extent, failure)

    def is_extent(self, extent: int, node: int) -> Iterator[SizeCheck]:
        """An extent equals the actual length, and its sizes are bound already."""
        yield from self.known(sizes_in(extent), node)
        yield Agrees(extent, self._numbers.number(node, BAD_LENGTH))

    def room(self, extent: int, most: int | None, node: int) -> Iterator[SizeCheck]:
        """An unnamed length is at most the bound of its axis, even if it is shared with a longer axis."""
        is_unnamed = any(not self._program.is_named(size) for size in sizes_in(extent))
        if is_unnamed and most is not None and most < int(extent):
            yield Room(most, self._numbers.number(node, BAD_SIZE))

    # --- extents --------------------------------------------------------------------------------------------------

    def guard(self, values: Iterable[Value], node: int) -> Iterator[SizeCheck]:
        """Values about to be written have valid extents, and no more elements than memory was planned for."""
        for value in values:
            for extent in value.shape:
                yield from self.known(sizes_in(extent), node)
                yield from self._in_range(extent, node)
            for quotient in self._quotients(value):
                yield from self._even(quotient, node)

    def when_known(self, values: Sequence[Value]) -> WhenKnown | None:
        """The condition that sizes of values are bound and make valid shapes; None if that is certain.

        A variable without a shape in this step cannot be accessed, so it needs no initial value.
        """
        extents = {form(one): one for value in values for one in value.shape}
        unknown = sorted({size for one in extents.values() for size in sizes_in(one)} - self._now.known)
        rests = dict.fromkeys(one for value in values for one in self._quotients(value))
        kept = tuple(one for one in rests if EvenChecked(one) not in self._now.checked)
        found = [self._extent(one) for one in extents.values()]
        if not (unknown or kept or any(one.least < 0 or one.can_fail for one in found)):
            return None
        return WhenKnown(tuple(unknown), tuple(extents.values()), kept)

    def assume(self, when: WhenKnown) -> None:
        """Assume that the condition holds from here on."""
        self._now.known.update(when.unknown)
        self._now.checked.update(map(EvenChecked, when.quotients))

    def _in_range(self, extent: int, node: int) -> Iterator[SizeCheck]:
        _least, most = span(extent)
        key = RangeChecked(expr_of(extent), most)
        if not isinstance(extent, Dim) or key in self._now.checked:
            return
        self._now.checked.add(key)
        found = self._extent(extent)
        if found.least < 0 or found.most > most or found.can_fail:
            failure = self._numbers.number(node, NO_SHAPE)
            yield InRange(extent, most, found.least < 0, found.most > most, failure)

    def _quotients(self, value: Value) -> Iterator[BinaryExpr]:
        """The divisions in a variable's declared dimensions, which must have no remainder."""
        variable = self._program.bound.vars.get(value.variable or "")
        if variable is None or not variable.is_dynamic or variable.is_table:
            return
        for dim in variable.dims or ():
            yield from (one for one in quotients(dim) if set(names(one)) & self._program.sizes.keys())

    def _even(self, quotient: BinaryExpr, node: int) -> Iterator[SizeCheck]:
        if EvenChecked(quotient) in self._now.checked:
            return
        self._now.checked.add(EvenChecked(quotient))
        yield from self.known(set(names(quotient)) & self._program.sizes.keys(), node)
        yield Even(quotient, self._numbers.number(node, NO_SHAPE))

    # --- sizes that ops reject ------------------------------------------------------------------------------------

    def require(self, step: RequireSize) -> Iterator[SizeCheck]:
        """A size has a value that the op accepts."""
        yield from self.known(sizes_in(step.size), step.node)
        for quotient in quotients(expr_of(step.size)):
            yield from self._even(quotient, step.node)
        yield from self._in_range(step.size, step.node)
        size = expr_of(step.size)
        if step.least:
            few = (Comparison("<", size, Num(step.least)),)
            yield from self._refused(few, step.code, step.node, is_small=True)
        if step.excluded:
            kept = sorted({*range(step.least, int(step.size) + 1)} - {*step.excluded})
            if len(step.excluded) <= len(kept):
                none = tuple(Comparison("==", size, Num(value)) for value in step.excluded)
                yield from self._refused(none, step.code, step.node, is_any=True)
            else:
                others = tuple(Comparison("!=", size, Num(value)) for value in kept)
                yield from self._refused(others, step.code, step.node)

    def refuse(self, step: RefuseSizes) -> Iterator[SizeCheck]:
        """Sizes fit each other. Comparisons are in an order in which each one guards the next."""
        for one in step.refused:
            yield from self.known({*names(one.left), *names(one.right)}, step.node)
        yield from self._refused(step.refused, step.code, step.node)
        sides = (computed(side, self.size) for one in step.refused for side in (one.left, one.right))
        if any(side.can_fail for side in sides):
            yield Computable(self._numbers.number(step.node, NO_SHAPE))

    def _refused(
        self, found: tuple[Comparison, ...], code: Code, node: int, *, is_any: bool = False, is_small: bool = False
    ) -> Iterator[SizeCheck]:
        """A check that fails the step, unless it has been made before."""
        key = Compared(found, is_any and len(found) > 1)
        if key not in self._now.checked:
            self._now.checked.add(key)
            yield Refused(found, is_any, self._numbers.number(node, no_result(code, is_small=is_small)))


def _is_affine(expr: Expr, size: str) -> bool:
    """Whether an expression is affine in a size for any values of the other sizes."""
    if size not in names(expr):
        return True
    match expr:
        case Neg(operand):
            return _is_affine(operand, size)
        case BinaryExpr(op, left, right):
            is_once = op in "+-" or (op == "*" and not (size in names(left) and size in names(right)))
            return is_once and _is_affine(left, size) and _is_affine(right, size)
        case _:
            return True
