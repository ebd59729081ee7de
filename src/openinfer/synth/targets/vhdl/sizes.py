"""Dynamic sizes in the sequencer: how they are bound, and the checks before memory of such a size is accessed."""

from collections.abc import Callable
from math import prod

from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir.expr import BinaryExpr, Num, Ref
from openinfer.loops.dim import Dim, expr_of
from openinfer.loops.ir import Binary, Scalar, Select
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
    SizeChecks,
    WhenKnown,
)
from openinfer.synth.program.integers import Computed
from openinfer.synth.program.ir import Program, Value
from openinfer.synth.targets.cstyle.host.solve import linear, replaced
from openinfer.synth.targets.vhdl.code import SequencerCode, conjunction, disjunction, integer
from openinfer.synth.targets.vhdl.frame import ProgramNames
from openinfer.synth.targets.vhdl.integers import FoundInteger, IndexCode

_FOUND = ""
"""The name of the found extent among sizes."""


class SizeCode:
    """Computes and checks extents."""

    def __init__(self, program: Program, code: SequencerCode, names: ProgramNames) -> None:
        self._program = program
        self._code = code
        self._names = names
        self._integers = IndexCode(code, names.size)

    def extent(self, extent: int) -> Scalar:
        """The value of an extent."""
        return self._integers.integer(expr_of(extent)).value

    def nbytes(self, value: Value) -> Scalar:
        """The size of a value in bytes."""
        count = prod(value.shape)
        if not isinstance(count, Dim):
            return integer(value.dtype.nbytes(count))
        bits = value.dtype.bits
        found = self.extent(count)
        return self._code.let(found * (bits // 8) if bits >= 8 else (found * bits + 7) // 8)

    def check(self, checks: SizeChecks, found: Scalar | None = None) -> None:
        """Emit checks of sizes; some of them concern a found length."""
        for one in checks:
            self._integers.begin()
            self._check(one, found)

    def _is_bad(self) -> Scalar:
        return self._integers.bad.ne(0)

    def _check(self, one: SizeCheck, found: Scalar | None) -> None:
        code = self._code
        match one:
            case Known(size):
                code.fail_if(self._names.sizes[size] < 0, one.failure)
            case InRange():
                extent = self.extent(one.extent)
                tests = [extent < 0] * one.can_be_negative + [extent > one.most] * one.can_be_more
                code.fail_if(disjunction([*tests, self._is_bad()]), one.failure)
            case Even(quotient):
                rest = self._rest(quotient)
                code.fail_if(disjunction([rest.ne(0), self._is_bad()]), one.failure)
            case Refused():
                code.fail_if(self._refused(one), one.failure)
            case Computable():
                pass  # an integer that could not be computed has already failed
            case Room(most):
                assert found is not None
                code.fail_if(found > most, one.failure)
            case Agrees(extent_):
                assert found is not None
                code.fail_if(found.ne(self.extent(extent_)), one.failure)
            case BindsSize() | BindsAmong():
                assert found is not None
                self._bind(one, found)

    def _rest(self, quotient: BinaryExpr) -> Scalar:
        return self._integers.integer(BinaryExpr("%", quotient.left, quotient.right)).value

    def _refused(self, one: Refused) -> Scalar:
        compared = {
            "==": lambda left, right: left.eq(right),
            "!=": lambda left, right: left.ne(right),
            "<": lambda left, right: left < right,
            ">=": lambda left, right: left >= right,
        }
        sides = [
            compared[each.op](self._integers.integer(each.left).value, self._integers.integer(each.right).value)
            for each in one.comparisons
        ]
        return disjunction(sides) if one.is_any else conjunction(sides)

    def _bind(self, one: BindsSize | BindsAmong, found: Scalar) -> None:
        """Bind a size that has no value yet by solving an extent for it."""
        code, size = self._code, self._names.sizes[one.size]
        most = self._program.sizes[one.size]
        if isinstance(one, BindsSize) and not self._program.is_named(one.size):
            # The length of a slice belongs to its node alone and is rebound whenever the node runs.
            code.fail_if(found > min(most, int(one.extent)), one.failure)
            code.set(size, found)
            return
        if isinstance(one, BindsSize):
            with code.when(size < 0):
                code.set(size, self._solved(one, found, most))
            code.fail_if(size < 0, one.failure)
            return
        with code.when(conjunction([size < 0, *(self._names.sizes[other] >= 0 for other in one.others)])):
            code.set(size, self._solved_among(one, found, most))

    def _solved(self, one: BindsSize, found: Scalar, most: int) -> Scalar:
        """The size for which an extent has the found value, if there is one up to a bound; else -1."""
        line = linear(expr_of(one.extent), one.size)
        if line is None or line[0] <= 0:
            message = f"the size {one.size!r} cannot be computed from the dimension '{one.extent!r}'"
            raise GraphError(
                Diagnostic(Code.NOT_SYNTHESIZED, message, None, "declare an input with the size itself as a dimension")
            )
        slope, first = line
        over = slope.denominator * first.denominator
        rest = self._code.let(found * over - int(first * over))
        return self._whole(rest, integer(int(slope * over)), most)

    def _whole(self, rest: Scalar, by: Scalar, most: int) -> Scalar:
        """The quotient if it is exact and within the bound; else -1."""
        quotient, left = self._code.let(rest // by), self._code.let(rest % by)
        is_good = conjunction([left.eq(0), quotient >= 0, quotient <= most])
        return Select(is_good, quotient, integer(-1))

    def _solved_among(self, one: BindsAmong, found: Scalar, most: int) -> Scalar:
        """Like `_solved`, for an extent over several sizes of which all others have values."""
        expr = expr_of(one.extent)
        ends = [replaced(expr, one.size, Num(value)) for value in (0, 1)]

        def named(name: str) -> FoundInteger:
            return FoundInteger(found, Computed(0, 2**62)) if name == _FOUND else self._names.size(name)

        computed = IndexCode(self._code, named)
        rest = computed.integer(BinaryExpr("-", Ref(_FOUND), ends[0])).value
        slope = computed.integer(BinaryExpr("-", ends[1], ends[0])).value
        self._code.fail_if(computed.bad.ne(0), one.failure)
        by = self._code.let(Select(slope.eq(0), integer(1), slope))
        flat = Select(rest.eq(0), integer(0), integer(-1))
        return Select(slope.eq(0), flat, self._whole(rest, by, most))

    # --- initial values -------------------------------------------------------------------------------------------

    def if_known(self, when: WhenKnown | None, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Run ``then`` if the sizes have values that form valid shapes, ``otherwise`` if they have none yet."""
        if when is None:
            then()
            return
        code = self._code
        is_known = code.let(conjunction([self._names.sizes[size] >= 0 for size in when.unknown]))
        self._integers.begin()
        with code.when(is_known):
            found = [self.extent(one) for one in when.extents]
            rests = [self._rest(one) for one in when.quotients]
            tests = [*(one >= 0 for one in found), *(rest.eq(0) for rest in rests), self._integers.bad.eq(0)]
            with code.when(conjunction(tests)):
                then()
        if when.unknown:
            with code.when(Binary("xor", is_known, integer(0).eq(0))):
                otherwise()
