"""Dynamic sizes in C: how they get values, and what is checked before memory of such a size is touched."""

from collections.abc import Iterable, Iterator

from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir.expr import Binary, Num, Ref, names, quotients
from openinfer.loops.dim import Dim, expr_of, sizes_in, span
from openinfer.synth.program.failures import BAD_LENGTH, BAD_SIZE, NO_SHAPE, Mistake, no_result
from openinfer.synth.program.ir import RefuseSizes, RequireSize, Value
from openinfer.synth.targets.c.function import FunctionPrinter
from openinfer.synth.targets.c.integers import Integer, IntegerPrinter, can_fail, number
from openinfer.synth.targets.c.solve import is_line, replaced, solved

_FOUND = ""
"""What the extent that was found is called among sizes."""


class SizePrinter(FunctionPrinter):
    """Extents, and the checks of them."""

    def extent(self, extent: int) -> Integer:
        """An extent in C, anywhere a context is at hand."""
        found = self._sizes_only.integer(expr_of(extent))
        self._now.has_bad = self._now.has_bad or found.can_fail
        return found

    @property
    def _sizes_only(self) -> IntegerPrinter:
        return IntegerPrinter(self._size, self.needs)

    def _size(self, name: str) -> Integer:
        return Integer(f"c->{self.size_fields[name]}", 0, self._program.sizes[name])

    def _agree(self, extent: int, actual: Integer, node: int, depth: int, *, is_exact: bool) -> None:
        """An extent is what was found; a size that has no value yet gets it from there."""
        fail = self._fail(node, BAD_SIZE if sizes_in(extent) else BAD_LENGTH)
        unknown = sorted(sizes_in(extent) - self._now.known)
        if len(sizes_in(extent)) == 1 and unknown:
            (size,) = unknown
            self._bind(size, extent, actual, fail, depth)
            self._now.known.add(size)
            if not size.isidentifier():
                return
        else:
            for size in unknown:
                self._bind_among(size, extent, actual, fail, depth)
            self._require_known(unknown, node, depth)
        for quotient in quotients(expr_of(extent)) if is_exact else ():
            self._require_even(quotient, node, depth)
        self._line(depth, f"if ({actual.text} != {self.extent(extent).text}) {fail}")

    def _bind(self, size: str, extent: int, actual: Integer, fail: str, depth: int) -> None:
        most, place = self._program.sizes[size], f"c->{self.size_fields[size]}"
        if not size.isidentifier():
            # The length of a slice belongs to its node alone: it is another one whenever the node runs.
            self._line(depth, f"if ({actual.text} > {min(most, int(extent))}) {fail}")
            self._line(depth, f"{place} = {actual.text};")
            return
        found = solved(expr_of(extent), size, actual.text, most)
        if found is None:
            message = f"the size {size!r} is to be found from '{extent!r}'"
            raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, "let a dimension be the size itself"))
        self._line(depth, f"if ({place} < 0 && {found.condition}) {place} = {found.value};")
        self._line(depth, f"if ({place} < 0) {fail}")

    def _bind_among(self, size: str, extent: int, actual: Integer, fail: str, depth: int) -> None:
        """Solve a dimension over several sizes for one of them, if that is the one that has no value yet."""
        ends = [replaced(expr_of(extent), size, Num(value)) for value in (0, 1)]
        if not size.isidentifier() or not is_line(expr_of(extent), size):
            return
        printer = IntegerPrinter(lambda name: actual if name == _FOUND else self._size(name), self.needs)
        rest = printer.integer(Binary("-", Ref(_FOUND), ends[0]))
        slope = printer.integer(Binary("-", ends[1], ends[0]))
        others = sorted(sizes_in(extent) - self._now.known - {size})
        place = f"c->{self.size_fields[size]}"
        tests = [f"{place} < 0", *(f"c->{self.size_fields[one]} >= 0" for one in others)]
        self.needs.add("oi_size_of")
        value = f"oi_size_of({rest.text}, {slope.text}, {self._program.sizes[size]})"
        self._line(depth, f"if ({' && '.join(tests)}) {place} = {value};")
        if can_fail((rest, slope)):
            self._now.has_bad = True
            self._line(depth, f"if (bad) {fail}")

    def _require_known(self, sizes: Iterable[str], node: int, depth: int) -> None:
        for size in sorted(set(sizes) - self._now.known):
            fail = self._fail(node, BAD_SIZE)
            self._line(depth, f"if (c->{self.size_fields[size]} < 0) {fail}")
            self._now.known.add(size)

    def _guard(self, values: Iterable[Value], node: int, depth: int) -> None:
        """Values about to be written have extents, and no more elements than there is memory for."""
        for value in values:
            for extent in value.shape:
                self._require_known(sizes_in(extent), node, depth)
                self._require_range(extent, node, depth)
            for quotient in self._quotients(value):
                self._require_even(quotient, node, depth)

    def _require_values(self, step: RequireSize, depth: int) -> None:
        self._require_known(sizes_in(step.size), step.node, depth)
        for quotient in quotients(expr_of(step.size)):
            self._require_even(quotient, step.node, depth)
        self._require_range(step.size, step.node, depth)
        text = self.extent(step.size).text
        if step.least:
            self._require(f"{text} < {step.least}", no_result(step.code, is_small=True), step.node, depth)
        if step.excluded:
            kept = sorted({*range(step.least, int(step.size) + 1)} - {*step.excluded})
            check = " && ".join(f"{text} != {value}" for value in kept)
            if len(step.excluded) <= len(kept):
                check = " || ".join(f"{text} == {value}" for value in step.excluded)
            self._require(check, no_result(step.code, is_small=False), step.node, depth)

    def _refuse_sizes(self, step: RefuseSizes, depth: int) -> None:
        """Sizes that do not fit each other. Comparisons stand in the order in which one makes sure of the next."""
        sides = [(one, self._sizes_only.integer(one.left), self._sizes_only.integer(one.right)) for one in step.refused]
        check = " && ".join(f"{left.text} {one.op} {right.text}" for one, left, right in sides) or "true"
        for one in step.refused:
            self._require_known({*names(one.left), *names(one.right)}, step.node, depth)
        self._require(check, no_result(step.code, is_small=False), step.node, depth)
        if any(can_fail((left, right)) for _, left, right in sides):
            self._now.has_bad = True
            self._line(depth, f"if (bad) {self._fail(step.node, NO_SHAPE)}")

    def _require(self, check: str, what: Mistake, node: int, depth: int) -> None:
        """A check that fails a step, unless it has been made before."""
        if check not in self._now.known:
            self._now.known.add(check)
            self._line(depth, f"if ({check}) {self._fail(node, what)}")

    def _require_range(self, extent: int, node: int, depth: int) -> None:
        _least, most = span(extent)
        key = f"{extent!r} <= {most}"
        if not isinstance(extent, Dim) or key in self._now.known:
            return
        self._now.known.add(key)
        found = self.extent(extent)
        checks = [f"{found.text} < 0"] * (found.least < 0)
        checks += [f"{found.text} > {most}"] * (found.most > most)
        checks += ["bad"] * found.can_fail
        if checks:
            self._line(depth, f"if ({' || '.join(checks)}) {self._fail(node, NO_SHAPE)}")

    def _quotients(self, value: Value) -> Iterator[Binary]:
        """The divisions in the declared dimensions of a variable, which must be even."""
        variable = self._program.bound.vars.get(value.variable or "")
        if variable is None or not variable.is_dynamic or variable.is_table:
            return
        for dim in variable.dims or ():
            yield from (one for one in quotients(dim) if set(names(one)) & self._program.sizes.keys())

    def _require_even(self, quotient: Binary, node: int, depth: int) -> None:
        if is_even(quotient) in self._now.known:
            return
        self._now.known.add(is_even(quotient))
        self._require_known(set(names(quotient)) & self._program.sizes.keys(), node, depth)
        left = self._rest(quotient)
        check = f"{left.text} != 0" + (" || bad" if left.can_fail else "")
        self._line(depth, f"if ({check}) {self._fail(node, NO_SHAPE)}")

    def _rest(self, quotient: Binary) -> Integer:
        """What a division leaves over."""
        found = IntegerPrinter(self._any_size, self.needs).integer(Binary("%", quotient.left, quotient.right))
        self._now.has_bad = self._now.has_bad or found.can_fail
        return found

    def _any_size(self, name: str) -> Integer:
        return self._size(name) if name in self._program.sizes else number(self._program.bound.sizes[name])

    def _nbytes(self, value: Value) -> str:
        count: int = 1
        for extent in value.shape:
            count = extent * count
        if not isinstance(count, Dim):
            return str(value.dtype.nbytes(count))
        text, bits = self.extent(count).text, value.dtype.bits
        if bits % 8 == 0:
            return f"(size_t){text}" if bits == 8 else f"(size_t){text} * {bits // 8}"
        return f"((size_t){text} * {bits} + 7) / 8"


def is_even(quotient: Binary) -> str:
    """How it is remembered that a division leaves nothing over."""
    return f"{quotient} is even"
