"""Integers in index expressions: loop indices, scalar variables, sizes."""

from collections.abc import Callable

from openinfer.ir.expr import Expr
from openinfer.synth.program.ir import Value
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.integers import Integer, IntegerPrinter, number
from openinfer.synth.targets.cstyle.host.sizes import Sizes


class Indices:
    """Index expressions in the function that is being printed; ``pointer`` says how it names a scalar's memory."""

    def __init__(self, file: HostFile, sizes: Sizes, pointer: Callable[[Value], str]) -> None:
        self._file = file
        self._sizes = sizes
        self._pointer = pointer
        self._integers = IntegerPrinter(self._named, file.needs)

    def integer(self, expr: Expr) -> Integer:
        """An expression."""
        return self._integers.integer(expr)

    def _named(self, name: str) -> Integer:
        """A name in an index expression: a loop index, then a scalar variable, then a size."""
        for index, found in reversed(self._file.now.loops):
            if index == name:
                return found
        program = self._file.program
        if name in program.bound.vars:
            constant = program.bound.constants.get(name)
            return self._scalar(program.homes[name]) if constant is None else number(int(constant))
        return self._sizes.any_size(name)

    def _scalar(self, home: Value) -> Integer:
        dtype, pointer = home.dtype, self._pointer(home)
        if dtype.name == "u64":
            call = f"oi_index_u64(*{pointer}, &bad)"
            return Integer(call, 0, (1 << 63) - 1, can_fail=True, function="oi_index_u64")
        least, most = int(dtype.minimum), int(dtype.maximum)
        if dtype.is_packed:
            load = f"oi_load_{dtype.name}"
            return Integer(f"(int64_t){load}({pointer}, 0)", least, most, function=load)
        return Integer(f"(int64_t)*{pointer}", least, most)
