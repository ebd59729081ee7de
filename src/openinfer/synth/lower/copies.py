"""Lowers copies and counters: nodes that copy become moves, counters become kernels."""

from openinfer.check.bound import BoundGraph, BoundVar, FromPattern
from openinfer.dtypes import DTYPES, DType
from openinfer.ir import Access, Node, Operand
from openinfer.ir.expr import Expr, Num
from openinfer.loops.build import Builder, cast, load, pair
from openinfer.loops.ir import Buffer, Const, Kernel
from openinfer.synth.lower.access import Accesses
from openinfer.synth.lower.emission import Emission
from openinfer.synth.lower.variables import VariableValues
from openinfer.synth.program.ir import KernelStep, Move, StepOperand, Value, Weight, WeightCheck


class Copies:
    """Lowers nodes that copy and count."""

    def __init__(self, bound: BoundGraph, emission: Emission, variables: VariableValues, accesses: Accesses) -> None:
        self._bound = bound
        self._emission = emission
        self._shapes = emission.shapes
        self._variables = variables
        self._accesses = accesses

    def copy(self, node: Node, source: Operand, dst: Access) -> StepOperand:
        """Lower a copy and return the copied value; a whole variable just takes on that value."""
        target = self._bound.vars[dst.base]
        is_whole = not target.is_table and not (dst.bracketed and dst.indices)
        value = self._source(node, source, target, is_whole=is_whole)
        if isinstance(value, Weight) and value.index:
            value = self._variables.chosen_now(value, node)
        return self._given(node, dst, value)

    def argument(self, node: Node, source: Operand, param: BoundVar) -> StepOperand:
        """The argument for a parameter; a check is emitted if its index may select no tensor."""
        value = self._source(node, source, param, is_whole=True)
        if isinstance(value, Weight) and value.can_miss:
            self._emission.emit(WeightCheck(value, node.index, self._variables.scalars(*value.index)))
        return value

    def result(self, node: Node, value: Value, dst: Access) -> None:
        """Write what a block has returned."""
        target = self._bound.vars[dst.base]
        if not target.is_table and not (dst.bracketed and dst.indices):
            self._emission.require_known(value.shape)
            shape = self._shapes.of(target)
            self._emission.bind_sizes(shape, value.shape, node, is_exact=target.dims is not None)
            self._emission.require_shape(target)
        self._given(node, dst, value)

    def _source(self, node: Node, source: Operand, target: BoundVar, *, is_whole: bool) -> StepOperand:
        """The value that a node copies to a variable, or to a slice of one."""
        shape = self._shapes.of(target) if is_whole else None
        value: StepOperand
        if self._bound.is_index(source):
            value = self._accesses.operand(source, node)
        elif isinstance(source, Access) and self._bound.vars[source.base].is_table:
            value = self._accesses.table_read(source, node, shape, is_exact=target.dims is not None)
        elif isinstance(source, Access) and self._accesses.is_part(source):
            value = self._accesses.part_read(source, node, shape, is_exact=target.dims is not None)
        else:
            value = self._accesses.operand(source, node, target.dtype)
            self._emission.require_known(value.shape)
            self._accesses.require_shape(source)
            if shape is not None:
                self._emission.bind_sizes(shape, value.shape, node, is_exact=target.dims is not None)
        if shape is not None:
            self._emission.require_shape(target)
        return value

    def _given(self, node: Node, dst: Access, value: StepOperand) -> StepOperand:
        """Write a value to what is accessed; a write to a part of something needs the value in memory."""
        target = self._bound.vars[dst.base]
        if target.is_table or (dst.bracketed and dst.indices) or isinstance(target.origin, FromPattern):
            if isinstance(value, Weight):
                copy = self._emission.value(dst.base, value.dtype, value.shape)
                self._emission.emit(Move(value, copy, node.index))
                value = copy
            self._accesses.write(node, dst, value)
        else:
            self._variables.current[dst.base] = value
        return value

    def count(self, node: Node, name: str, amount: Expr, sign: int) -> Value:
        """Add to a counter: a constant, or an integer known only at run time."""
        by = None if isinstance(amount, Num) else self._accesses.integer(amount, node)
        value = self._variables.read(name, node.index)
        result, inputs = self._emission.value(name, value.dtype, ()), (value,) if by is None else (value, by)
        kernel = count_kernel(value.dtype, sign * amount.value if isinstance(amount, Num) else None, sign)
        scalars = self._variables.scalars(*(value.index if isinstance(value, Weight) else ()))
        self._emission.emit(KernelStep(kernel, inputs, (result,), node.index, scalars=scalars))
        self._variables.current[name] = result
        return result


def count_kernel(dtype: DType, amount: int | None, sign: int) -> Kernel:
    """Adds to a counter, which wraps at its width; with ``amount`` None, the amount is a second operand."""
    x, by, y = Buffer("x", dtype, ()), Buffer("amount", DTYPES["i64"], ()), Buffer("y", dtype, ())
    builder = Builder()
    if amount is not None:
        total = load(x) + Const(_wrapped(amount, dtype), dtype.compute)
    else:
        moved = cast(load(by), dtype.compute)
        total = load(x) + moved if sign > 0 else load(x) - moved
    if dtype.values:
        half = Const(1 << (dtype.bits - 1), dtype.compute)
        total = builder.let(pair("and", total + half, (1 << dtype.bits) - 1) - half)
        (missing,) = {*range(-int(half.value), int(half.value))} - {*dtype.values}
        builder.fail(total.eq(missing), f"a counter would leave the values of {dtype.name}")
    builder.store(y, (), total)
    said = f"`y = x + {amount}`" if amount is not None else f"`y = x {'+' if sign > 0 else '-'} amount`"
    return Kernel("count", (x,) if amount is not None else (x, by), (y,), builder.body, (said,))


def _wrapped(number: int, dtype: DType) -> int:
    """An integer wrapped into the dtype's range, as counters wrap."""
    least = int(dtype.minimum)
    return (number - least) % (1 << dtype.bits) + least
