"""Dynamic sizes: how they get values, and what is checked before memory of such a size is touched."""

from collections.abc import Callable

from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir.expr import BinaryExpr, Num, Ref
from openinfer.loops.dim import Dim, expr_of
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
    SizeChecks,
    WhenKnown,
)
from openinfer.synth.program.integers import Computed
from openinfer.synth.program.ir import Value
from openinfer.synth.targets.cstyle.code import Rank
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.integers import Integer, IntegerPrinter, can_fail, number
from openinfer.synth.targets.cstyle.host.solve import replaced, solved

_FOUND = ""
"""What the extent that was found is called among sizes."""


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
        return Integer(self.place(name), Computed(0, self._program.sizes[name]))

    def any_size(self, name: str) -> Integer:
        """A size, whether it is dynamic or a number."""
        return self._size(name) if name in self._program.sizes else number(self._program.bound.sizes[name])

    # --- checks ---------------------------------------------------------------------------------------------------

    def check(self, checks: SizeChecks, depth: int, found: Integer | None = None) -> None:
        """Checks of sizes, some of them about a length that was found."""
        for one in checks:
            fail = self._file.fail(one.failure)
            match one:
                case Known(size):
                    self._file.line(depth, f"if ({self.place(size)} < 0) {fail}")
                case InRange():
                    self._file.line(depth, f"if ({self._out_of_range(one)}) {fail}")
                case Even(quotient):
                    left = self._rest(quotient)
                    check = f"{left.text} != 0" + (" || bad" if left.can_fail else "")
                    self._file.line(depth, f"if ({check}) {fail}")
                case Refused():
                    self._file.line(depth, f"if ({self._refused(one)}) {fail}")
                case Computable():
                    self._file.line(depth, f"if (bad) {fail}")
                case _:
                    assert found is not None
                    self._found(one, found, fail, depth)

    def _found(self, one: Room | BindsSize | BindsAmong | Agrees, found: Integer, fail: str, depth: int) -> None:
        """A check of a length that was found."""
        match one:
            case Room(most):
                self._file.line(depth, f"if ({found.text} > {most}) {fail}")
            case BindsSize():
                self._bind(one, found, fail, depth)
            case BindsAmong():
                self._bind_among(one, found, fail, depth)
            case Agrees(extent):
                self._file.line(depth, f"if ({found.text} != {self.extent(extent).text}) {fail}")

    def _bind(self, one: BindsSize, found: Integer, fail: str, depth: int) -> None:
        most, place = self._program.sizes[one.size], self.place(one.size)
        if not self._program.is_named(one.size):
            # The length of a slice belongs to its node alone: it is another one whenever the node runs.
            self._file.line(depth, f"if ({found.text} > {min(most, int(one.extent))}) {fail}")
            self._file.line(depth, f"{place} = {found.text};")
            return
        solution = solved(expr_of(one.extent), one.size, found.code, most)
        if solution is None:
            message = f"the size {one.size!r} cannot be computed from the dimension '{one.extent!r}'"
            raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, "make the size itself a dimension"))
        self._file.line(depth, f"if ({place} < 0 && {solution.condition}) {place} = {solution.value};")
        self._file.line(depth, f"if ({place} < 0) {fail}")

    def _bind_among(self, one: BindsAmong, found: Integer, fail: str, depth: int) -> None:
        """Solve a dimension over several sizes for one of them, if that is the one that has no value yet."""
        ends = [replaced(expr_of(one.extent), one.size, Num(value)) for value in (0, 1)]
        printer = IntegerPrinter(lambda name: found if name == _FOUND else self._size(name), self._file.needs)
        rest = printer.integer(BinaryExpr("-", Ref(_FOUND), ends[0]))
        slope = printer.integer(BinaryExpr("-", ends[1], ends[0]))
        place = self.place(one.size)
        tests = [f"{place} < 0", *(f"{self.place(other)} >= 0" for other in one.others)]
        self._file.needs.add("oi_size_of")
        value = f"oi_size_of({rest.text}, {slope.text}, {self._program.sizes[one.size]})"
        self._file.line(depth, f"if ({' && '.join(tests)}) {place} = {value};")
        self._file.now.computes(rest, slope)
        if can_fail((rest, slope)):
            self._file.line(depth, f"if (bad) {fail}")

    def _out_of_range(self, one: InRange) -> str:
        found = self.extent(one.extent)
        checks = [f"{found.text} < 0"] * one.can_be_negative
        checks += [f"{found.text} > {one.most}"] * one.can_be_more
        checks += ["bad"] * found.can_fail
        return " || ".join(checks)

    def _refused(self, one: Refused) -> str:
        integer = self._integers.integer
        sides = [(integer(each.left), each.op, integer(each.right)) for each in one.comparisons]
        self._file.now.computes(*(side for left, _, right in sides for side in (left, right)))
        word = " || " if one.is_any else " && "
        return word.join(f"{left.text} {op} {right.text}" for left, op, right in sides) or "true"

    def if_known(
        self, when: WhenKnown | None, depth: int, then: Callable[[int], None], otherwise: Callable[[int], None]
    ) -> None:
        """What is done if the sizes have values, and ones that make shapes; and if they have none yet."""
        if when is None:
            then(depth)
            return
        now = self._file.now
        conditions = [f"{self.place(size)} >= 0" for size in when.unknown]
        found = [self.extent(one) for one in when.extents]
        conditions += [f"{one.text} >= 0" for one in found if one.range.least < 0]
        rests = [self._rest(one) for one in when.quotients]
        conditions += [f"{rest.text} == 0" for rest in rests]
        conditions += ["!bad"] * can_fail([*found, *rests])
        now.line(depth, f"if ({' && '.join(conditions)}) {{")
        then(depth + 1)
        if when.unknown:
            is_unknown = " || ".join(f"{self.place(size)} < 0" for size in when.unknown)
            now.line(depth, "} else {" if len(conditions) == len(when.unknown) else f"}} else if ({is_unknown}) {{")
            otherwise(depth + 1)
        now.line(depth, "}")
        if can_fail([*found, *rests]):
            now.line(depth, "bad = 0;")

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
        text, bits = self.extent(count).code.inside(Rank.UNARY), value.dtype.bits
        if bits % 8 == 0:
            return f"(size_t){text}" if bits == 8 else f"(size_t){text} * {bits // 8}"
        return f"((size_t){text} * {bits} + 7) / 8"
