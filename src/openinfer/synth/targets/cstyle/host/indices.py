"""Integers in index expressions: loop indices, scalar variables, sizes."""

from collections.abc import Callable, Iterable

from openinfer.ir.expr import Expr
from openinfer.synth.program.ir import Value
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.integers import TOO_LONG, Integer, IntegerPrinter, number
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter


class IndexPrinter:
    """Index expressions in the function that is being printed; ``pointer`` says how it names a scalar's memory."""

    def __init__(self, file: HostFile, sizes: SizePrinter, pointer: Callable[[Value], str]) -> None:
        self._file = file
        self._sizes = sizes
        self._integers = IntegerPrinter(lambda name: self._named(name, pointer), file.needs, self._temporary)
        self._unprinted = IntegerPrinter(lambda name: self._named(name, lambda _value: ""), set())

    def integers(self, exprs: Iterable[Expr], depth: int) -> list[Integer]:
        """Expressions that the next lines compute, in this order; the function names all memory that they read."""
        found = self._integers.integers(exprs)
        for line in (line for one in found for line in one.before):
            self._file.line(depth, line)
        self._file.now.computes(*found)
        return found

    def integer(self, expr: Expr, depth: int) -> Integer:
        """One expression."""
        (found,) = self.integers([expr], depth)
        return found

    def bounds(self, expr: Expr) -> Integer:
        """What an expression can be, and what can go wrong in it; nothing computes it."""
        return self._unprinted.integer(expr)

    def _temporary(self) -> str:
        return self._file.now.fresh("left")

    def _named(self, name: str, pointer: Callable[[Value], str]) -> Integer:
        """A name in an index expression: a loop index, then a scalar variable, then a size."""
        for index, found in reversed(self._file.now.loops):
            if index == name:
                return found
        program = self._file.program
        if name in program.bound.vars:
            constant = program.bound.constants.get(name)
            return _scalar(program.homes[name], pointer) if constant is None else number(int(constant))
        return self._sizes.any_size(name)


def _scalar(home: Value, pointer: Callable[[Value], str]) -> Integer:
    dtype, name = home.dtype, pointer(home)
    if dtype.name == "u64":
        call, function = f"oi_index_u64(*{name}, &bad)", "oi_index_u64"
        return Integer(call, 0, (1 << 63) - 1, can_fail=True, function=function, mistakes=TOO_LONG)
    least, most = int(dtype.minimum), int(dtype.maximum)
    if dtype.is_packed:
        load = f"oi_load_{dtype.name}"
        return Integer(f"(int64_t){load}({name}, 0)", least, most, function=load)
    return Integer(f"(int64_t)*{name}", least, most)
