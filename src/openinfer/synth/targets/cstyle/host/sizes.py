"""Dynamic sizes: how they get values, and what is checked before memory of such a size is touched."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir.expr import BinaryExpr, Expr, Num, Ref, names, quotients
from openinfer.loops.dim import Dim, expr_of, form, sizes_in, span
from openinfer.synth.program.failures import BAD_LENGTH, BAD_SIZE, NO_SHAPE, Mistake, no_result
from openinfer.synth.program.ir import RefuseSizes, RequireSize, Value
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.integers import Integer, IntegerPrinter, can_fail, number
from openinfer.synth.targets.cstyle.host.solve import is_line, replaced, solved

_FOUND = ""
"""What the extent that was found is called among sizes."""


@dataclass(frozen=True)
class _InRange:
    """An extent is not negative, and no larger than there is memory for."""

    extent: Expr
    most: int


@dataclass(frozen=True)
class _Even:
    """A division has no remainder."""

    quotient: BinaryExpr


class SizePrinter:
    """Extents in the function that is being printed, and the checks of them."""

    def __init__(self, file: HostFile) -> None:
        self._file = file
        self._program = file.program
        self._integers = IntegerPrinter(self._size, file.needs)

    def extent(self, extent: int) -> Integer:
        """An extent, anywhere a context is at hand."""
        found = self._integers.integer(expr_of(extent))
        self._file.now.computes(found)
        return found

    def place(self, size: str) -> str:
        """Where the value of a dynamic size is; it is negative as long as there is none."""
        return f"c->{self._file.placed.names.sizes[size]}"

    def _size(self, name: str) -> Integer:
        return Integer(self.place(name), 0, self._program.sizes[name])

    def any_size(self, name: str) -> Integer:
        """A size, whether it is dynamic or a number."""
        return self._size(name) if name in self._program.sizes else number(self._program.bound.sizes[name])

    def agree(self, extent: int, actual: Integer, node: int, depth: int, *, is_exact: bool) -> None:
        """An extent is what was found; a size that has no value yet gets it from there."""
        sizes = sizes_in(extent)
        unknown = sorted(sizes - self._file.now.known)
        # Slices that are written alike are one length to the op: another one does not fit, as no tensor's would.
        is_size = any(self._program.is_named(size) or size in unknown for size in sizes)
        fail = self._file.fail(node, BAD_SIZE if is_size else BAD_LENGTH)
        if len(sizes) == 1 and unknown:
            (size,) = unknown
            self._bind(size, extent, actual, fail, depth)
            self._file.now.known.add(size)
            if not self._program.is_named(size):
                return
        else:
            for size in unknown:
                self._bind_among(size, extent, actual, fail, depth)
            self.require_known(unknown, node, depth)
        for quotient in quotients(expr_of(extent)) if is_exact else ():
            self._require_even(quotient, node, depth)
        self._file.line(depth, f"if ({actual.text} != {self.extent(extent).text}) {fail}")

    def require_room(self, extent: int, actual: Integer, most: int | None, node: int, depth: int) -> None:
        """A length without a name is no more than its axis can have, even if it is written as that of a longer one."""
        is_unnamed = any(not self._program.is_named(size) for size in sizes_in(extent))
        if is_unnamed and most is not None and most < int(extent):
            self._file.line(depth, f"if ({actual.text} > {most}) {self._file.fail(node, BAD_SIZE)}")

    def _bind(self, size: str, extent: int, actual: Integer, fail: str, depth: int) -> None:
        most, place = self._program.sizes[size], self.place(size)
        if not self._program.is_named(size):
            # The length of a slice belongs to its node alone: it is another one whenever the node runs.
            self._file.line(depth, f"if ({actual.text} > {min(most, int(extent))}) {fail}")
            self._file.line(depth, f"{place} = {actual.text};")
            return
        found = solved(expr_of(extent), size, actual.text, most)
        if found is None:
            message = f"the size {size!r} is to be found from '{extent!r}'"
            raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, "let a dimension be the size itself"))
        self._file.line(depth, f"if ({place} < 0 && {found.condition}) {place} = {found.value};")
        self._file.line(depth, f"if ({place} < 0) {fail}")

    def _bind_among(self, size: str, extent: int, actual: Integer, fail: str, depth: int) -> None:
        """Solve a dimension over several sizes for one of them, if that is the one that has no value yet."""
        ends = [replaced(expr_of(extent), size, Num(value)) for value in (0, 1)]
        if not self._program.is_named(size) or not is_line(expr_of(extent), size):
            return
        printer = IntegerPrinter(lambda name: actual if name == _FOUND else self._size(name), self._file.needs)
        rest = printer.integer(BinaryExpr("-", Ref(_FOUND), ends[0]))
        slope = printer.integer(BinaryExpr("-", ends[1], ends[0]))
        others = sorted(sizes_in(extent) - self._file.now.known - {size})
        place = self.place(size)
        tests = [f"{place} < 0", *(f"{self.place(one)} >= 0" for one in others)]
        self._file.needs.add("oi_size_of")
        value = f"oi_size_of({rest.text}, {slope.text}, {self._program.sizes[size]})"
        self._file.line(depth, f"if ({' && '.join(tests)}) {place} = {value};")
        self._file.now.computes(rest, slope)
        if can_fail((rest, slope)):
            self._file.line(depth, f"if (bad) {fail}")

    def require_known(self, sizes: Iterable[str], node: int, depth: int) -> None:
        """Sizes have values."""
        for size in sorted(set(sizes) - self._file.now.known):
            fail = self._file.fail(node, BAD_SIZE)
            self._file.line(depth, f"if ({self.place(size)} < 0) {fail}")
            self._file.now.known.add(size)

    def guard(self, values: Iterable[Value], node: int, depth: int) -> None:
        """Values about to be written have extents, and no more elements than there is memory for."""
        for value in values:
            for extent in value.shape:
                self.require_known(sizes_in(extent), node, depth)
                self._require_range(extent, node, depth)
            for quotient in self._quotients(value):
                self._require_even(quotient, node, depth)

    def if_known(
        self, values: Sequence[Value], depth: int, then: Callable[[int], None], otherwise: Callable[[int], None]
    ) -> None:
        """What is done if the sizes have values, and ones that make shapes of the values; and if they have none yet.

        A variable that nothing can write in this step, since it has no shape, needs no initial value.
        """
        now = self._file.now
        extents = {form(one): one for value in values for one in value.shape}
        unknown = sorted({size for one in extents.values() for size in sizes_in(one)} - now.known)
        conditions = [f"{self.place(size)} >= 0" for size in unknown]
        found = [self.extent(one) for one in extents.values()]
        conditions += [f"{one.text} >= 0" for one in found if one.least < 0]
        rests = {_Even(one): self._rest(one) for value in values for one in self._quotients(value)}
        rests = {one: rest for one, rest in rests.items() if one not in now.checked}
        conditions += [f"{rest.text} == 0" for rest in rests.values()]
        found += rests.values()
        conditions += ["!bad"] * can_fail(found)
        if not conditions:
            then(depth)
            return
        now.line(depth, f"if ({' && '.join(conditions)}) {{")
        with now.maybe():
            now.known.update(unknown)
            now.checked.update(rests)
            then(depth + 1)
        if unknown:
            is_unknown = " || ".join(f"{self.place(size)} < 0" for size in unknown)
            now.line(depth, "} else {" if len(conditions) == len(unknown) else f"}} else if ({is_unknown}) {{")
            otherwise(depth + 1)
        now.line(depth, "}")
        if can_fail(found):
            now.line(depth, "bad = 0;")

    def require(self, step: RequireSize, depth: int) -> None:
        """A size has a value that an op has a result for."""
        self.require_known(sizes_in(step.size), step.node, depth)
        for quotient in quotients(expr_of(step.size)):
            self._require_even(quotient, step.node, depth)
        self._require_range(step.size, step.node, depth)
        text = self.extent(step.size).text
        if step.least:
            self._check(f"{text} < {step.least}", no_result(step.code, is_small=True), step.node, depth)
        if step.excluded:
            kept = sorted({*range(step.least, int(step.size) + 1)} - {*step.excluded})
            check = " && ".join(f"{text} != {value}" for value in kept)
            if len(step.excluded) <= len(kept):
                check = " || ".join(f"{text} == {value}" for value in step.excluded)
            self._check(check, no_result(step.code, is_small=False), step.node, depth)

    def refuse(self, step: RefuseSizes, depth: int) -> None:
        """Sizes that do not fit each other. Comparisons stand in the order in which one makes sure of the next."""
        sides = [(one, self._integers.integer(one.left), self._integers.integer(one.right)) for one in step.refused]
        check = " && ".join(f"{left.text} {one.op} {right.text}" for one, left, right in sides) or "true"
        for one in step.refused:
            self.require_known({*names(one.left), *names(one.right)}, step.node, depth)
        self._check(check, no_result(step.code, is_small=False), step.node, depth)
        integers = [side for _, left, right in sides for side in (left, right)]
        self._file.now.computes(*integers)
        if can_fail(integers):
            self._file.line(depth, f"if (bad) {self._file.fail(step.node, NO_SHAPE)}")

    def _check(self, check: str, what: Mistake, node: int, depth: int) -> None:
        """A check that fails a step, unless it has been made before."""
        if check not in self._file.now.checked:
            self._file.now.checked.add(check)
            self._file.line(depth, f"if ({check}) {self._file.fail(node, what)}")

    def _require_range(self, extent: int, node: int, depth: int) -> None:
        _least, most = span(extent)
        key = _InRange(expr_of(extent), most)
        if not isinstance(extent, Dim) or key in self._file.now.checked:
            return
        self._file.now.checked.add(key)
        found = self.extent(extent)
        checks = [f"{found.text} < 0"] * (found.least < 0)
        checks += [f"{found.text} > {most}"] * (found.most > most)
        checks += ["bad"] * found.can_fail
        if checks:
            self._file.line(depth, f"if ({' || '.join(checks)}) {self._file.fail(node, NO_SHAPE)}")

    def _quotients(self, value: Value) -> Iterator[BinaryExpr]:
        """The divisions in the declared dimensions of a variable, which must be even."""
        variable = self._program.bound.vars.get(value.variable or "")
        if variable is None or not variable.is_dynamic or variable.is_table:
            return
        for dim in variable.dims or ():
            yield from (one for one in quotients(dim) if set(names(one)) & self._program.sizes.keys())

    def _require_even(self, quotient: BinaryExpr, node: int, depth: int) -> None:
        if _Even(quotient) in self._file.now.checked:
            return
        self._file.now.checked.add(_Even(quotient))
        self.require_known(set(names(quotient)) & self._program.sizes.keys(), node, depth)
        left = self._rest(quotient)
        check = f"{left.text} != 0" + (" || bad" if left.can_fail else "")
        self._file.line(depth, f"if ({check}) {self._file.fail(node, NO_SHAPE)}")

    def _rest(self, quotient: BinaryExpr) -> Integer:
        """The remainder of a division."""
        found = IntegerPrinter(self.any_size, self._file.needs).integer(BinaryExpr("%", quotient.left, quotient.right))
        self._file.now.computes(found)
        return found

    def nbytes(self, value: Value) -> str:
        """How many bytes a value has."""
        count: int = 1
        for extent in value.shape:
            count = extent * count
        if not isinstance(count, Dim):
            return str(value.dtype.nbytes(count))
        text, bits = self.extent(count).text, value.dtype.bits
        if bits % 8 == 0:
            return f"(size_t){text}" if bits == 8 else f"(size_t){text} * {bits // 8}"
        return f"((size_t){text} * {bits} + 7) / 8"
