"""Integers in index expressions: loop indices, scalar variables, sizes."""

from collections.abc import Callable, Iterable

from openinfer.ir.expr import Expr
from openinfer.synth.program.integers import scalar
from openinfer.synth.program.ir import Value
from openinfer.synth.targets.cstyle.code import Rank
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.integers import WIDE, Integer, IntegerPrinter, number
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter


class IndexPrinter:
    """Index expressions in the function that is being printed; ``pointer`` says how it names a scalar's memory.

    ``looked_at`` is told of scalars, and where the lines stand that read them, before these are printed.
    """

    def __init__(
        self,
        file: HostFile,
        sizes: SizePrinter,
        pointer: Callable[[Value], str],
        looked_at: Callable[[Value, int], None] = lambda _value, _depth: None,
    ) -> None:
        self._file = file
        self._sizes = sizes
        self._pointer = pointer
        self._looked_at = looked_at
        self._read: list[Value] = []
        self._integers = IntegerPrinter(self._named, file.needs, self._temporary)

    def integers(self, exprs: Iterable[Expr], depth: int) -> list[Integer]:
        """Expressions that the next lines compute, in this order; the function names all memory that they read."""
        self._read = []
        found = self._integers.integers(exprs)
        for scalar_read in dict.fromkeys(self._read):
            self._looked_at(scalar_read, depth)
        for line in (line for one in found for line in one.before):
            self._file.line(depth, line)
        self._file.now.computes(*found)
        return found

    def integer(self, expr: Expr, depth: int) -> Integer:
        """One expression."""
        (found,) = self.integers([expr], depth)
        return found

    def _temporary(self) -> str:
        return self._file.now.fresh("left")

    def _named(self, name: str) -> Integer:
        """A name in an index expression: a loop index, then a scalar variable, then a size."""
        now = self._file.now
        for index, found in (*reversed(now.loops), *now.chosen.items()):
            if index == name:
                now.used.add(found.text)
                return found
        program = self._file.program
        if name in program.bound.vars:
            constant = program.bound.constants.get(name)
            return self._scalar(program.homes[name]) if constant is None else number(int(constant))
        return self._sizes.any_size(name)

    def _scalar(self, home: Value) -> Integer:
        dtype, name, found = home.dtype, self._pointer(home), scalar(home.dtype)
        self._read.append(home)
        if found.can_fail:
            return Integer(f"oi_index_u64(*{name}, &bad)", found, function="oi_index_u64")
        load = f"oi_load_{dtype.name}" if dtype.is_packed else ""
        text = f"{load}({name}, 0)" if load else f"*{name}"
        if self._file.narrows(found):  # C computes with less than 32 bits in 32.
            return Integer(text, found, function=load, rank=Rank.ATOM if load else Rank.UNARY, is_narrow=True)
        return Integer(f"({WIDE}){text}", found, function=load, rank=Rank.UNARY)
