"""Ops, copies and counters: nodes that compute become kernels, nodes that move become moves."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from openinfer.check.access import access_rank, part_quant
from openinfer.check.bound import FromInit, FromModel, FromPattern
from openinfer.check.params import parameter
from openinfer.dtypes import DTYPES, DType
from openinfer.ir import Access, Node, Op, Operand
from openinfer.ir.expr import Expr, Num
from openinfer.ir.text import node_head
from openinfer.loops.build import Builder, cast, load, pair
from openinfer.loops.dim import is_same, sizes_in
from openinfer.loops.ir import Buffer, Const, Kernel
from openinfer.oinf.quant import QuantParams
from openinfer.ops import Call, OpError, OpRecord, TensorType, complete, infer
from openinfer.ops.lower.kernel import QuantizationInput, lowered_call
from openinfer.synth.lower.access import Operands
from openinfer.synth.lower.op_sizes import ManyValuesError, OpSizes, extents_in
from openinfer.synth.lower.variables import Current, fill_step, refused
from openinfer.synth.program.ir import Action, BindSize, KernelStep, Move, TableStep, Value, Weight


class Nodes(Operands):
    """What each node without control flow does."""

    def _op(self, node: Node, kind: Op) -> tuple[Value, ...]:
        """A kernel; the values it gives."""
        own = self.bound.ops[node.index]
        operands = [
            None if operand is None else self._shaped(operand, node, dtype)
            for operand, dtype in zip(own.operands, own.stored, strict=True)
        ]
        types = tuple(
            None
            if operand is None or value is None
            else TensorType(value.dtype, value.shape, self._quant(operand, value))
            for operand, value in zip(own.operands, operands, strict=True)
        )
        wanted = tuple(self._wanted(output) for output in kind.outputs)
        call = self._inferred(node, own.record, Call(types, self._params(own.record, kind), wanted))
        lowered = lowered_call(own.record, call, own.stored)
        kernel = lowered.kernel
        inputs: list[Current] = [value for value in operands if value is not None]
        inputs += self._quantization(lowered.quantization, own.operands, operands)
        results = zip(kind.outputs, call.outputs, strict=True)
        outputs = tuple(self._result(output, found, node) for output, found in results)
        scratch = tuple(self._value(one.name, one.dtype, one.shape) for one in kernel.scratch)
        scalars = self._scalars(*(expr for one in inputs if isinstance(one, Weight) for expr in one.index))
        if all(_can_fit(value.shape, found.shape) for value, found in zip(outputs, call.outputs, strict=True)):
            self._emit(KernelStep(kernel, tuple(inputs), outputs, node.index, scratch, scalars))
        else:  # every step has failed by now: what is typed only while running was found to be wrong
            for value in outputs:
                self._emit(fill_step(value, 0, node.index))
        for output, value in zip(kind.outputs, outputs, strict=True):
            self._write(node, output, value)
        return outputs

    def _result(self, output: Access, found: TensorType, node: Node) -> Value:
        """The value an op gives. A variable's extents are those it declares, which may have no value until now."""
        variable = self.bound.vars[output.base]
        shape = found.shape
        if not variable.is_table and not (output.bracketed and output.indices):
            shape = self._shape(variable)
            if len(shape) == len(found.shape):
                self._bind_sizes(shape, found.shape, node, is_exact=variable.dims is not None)
            else:
                self._emit(BindSize(len(shape), len(found.shape), node.index))
            self._require_shape(variable)
        return self._value(output.base, found.dtype, shape)

    def _shaped(self, operand: Operand, node: Node, dtype: DType | None) -> Current:
        """An operand, which has a shape before the next one is read."""
        value = self._operand(operand, node, dtype)
        self._require_known(value.shape)
        self._require_operand(operand)
        return value

    def _require_operand(self, operand: Operand | None) -> None:
        if isinstance(operand, Access) and not operand.bracketed and operand.base in self.bound.vars:
            self._require_shape(self.bound.vars[operand.base])

    def _bind_sizes(self, declared: Sequence[int], found: Sequence[int], node: Node, *, is_exact: bool) -> None:
        """The extents of a variable are those of its new value; equal ones need no step.

        Those with one size come first: what a sum or product needs to know, they may decide.
        """
        for extent, own in sorted(zip(declared, found, strict=True), key=lambda pair: len(sizes_in(pair[0])) > 1):
            if not is_same(extent, own) or sizes_in(extent) - sizes_in(own):
                self._emit(BindSize(extent, own, node.index, is_exact))

    def _inferred(self, node: Node, record: OpRecord, call: Call) -> Call:
        """The call with its results. Lengths that only a run knows must fit whatever they are, not by accident."""
        try:
            found = infer(record, call)
        except OpError as error:
            raise refused(node, error.message, error.advice) from error
        sizes = OpSizes(record, call, found, self._declared(node))
        self._require_known(extents_in(call.params))
        self._require_sizes(node, sizes)
        if all(name.isidentifier() for name in sizes.used):
            return found
        sample = {name: max(1, self.sizes[name] - 1 - place) for place, name in enumerate(sizes.used)}
        if sizes.refusal(sample) is not None:
            message = f"a length in {node_head(node)} is known only while running, and must fit others"
            raise refused(node, message, "read the part into a variable first, whose dimensions are sizes")
        return found

    def _declared(self, node: Node) -> list[tuple[int, ...] | None]:
        """The shapes that the results of an op are compared with before it computes; None where the op gives them."""
        assert isinstance(node.kind, Op)
        variables = [self.bound.vars[output.base] for output in node.kind.outputs]
        return [None if one.dims is None or one.is_table else self._shape(one) for one in variables]

    def _require_sizes(self, node: Node, op: OpSizes) -> None:
        """Sizes for which the op has no result, such as windows that do not fit: the code must refuse them too."""
        try:
            for step in op.requirements(self.sizes, node.index):
                self._emit(step)
        except ManyValuesError as error:
            message = f"which values {error.size!r} can have in {node_head(node)} is not a matter of a least one"
            raise refused(node, message, f"let it be at most {error.most}") from error

    def _quant(self, operand: Operand, value: Current) -> QuantParams | None:
        """How an operand is quantized: as the variable that it names, whatever that has been given since."""
        source = self._quantized(operand, value)
        if source is None or self.bound.model is None:
            return None
        info = self.bound.model.tensors.get(next(name for name in source.names if name))
        quant = None if info is None else info.quant
        return part_quant(operand, quant) if isinstance(operand, Access) and self._is_part(operand) else quant

    def _quantized(self, operand: Operand, value: Current) -> Weight | None:
        """The tensor of the model, or the family, whose quantization is an operand's."""
        if isinstance(operand, Access) and operand.base in self.plain:
            variable = self.bound.vars[operand.base]
            origin = variable.origin
            return Weight((origin.name,), variable.dtype, variable.shape) if isinstance(origin, FromModel) else None
        found = self._read_entries.get(value) if isinstance(value, Value) else value
        return found if isinstance(found, Weight) else None

    def _quantization(
        self, asked: Sequence[QuantizationInput], operands: Sequence[Operand | None], values: Sequence[Current | None]
    ) -> list[Current]:
        """The scales and zero points of quantized operands, in the order the kernel takes them."""
        found: list[Current] = []
        for one in asked:
            operand, value = operands[one.slot], values[one.slot]
            source = None if operand is None or value is None else self._quantized(operand, value)
            assert source is not None
            found.append(replace(source, dtype=one.buffer.dtype, shape=one.buffer.shape, part=one.part))
        return found

    def _wanted(self, output: Access) -> TensorType | None:
        variable = self.bound.vars[output.base]
        if variable.dims is None and not output.bracketed:
            return None
        shape = (0,) * access_rank(output, variable) if output.bracketed else self._shape(variable)
        return TensorType(variable.dtype, shape)

    def _params(self, record: Any, kind: Op) -> dict[str, Any]:
        inputs = {spec.name for spec in record.signature.inputs}

        def named(name: str) -> Any:
            if name in self.bound.vars:
                return self.bound.constants.get(name)
            if name in self.sizes or name in self.bound.sizes:
                return self._size(name)
            model = self.bound.model
            return model.metadata[name] if model is not None and name in model.metadata_info else None

        given = {
            name: parameter(name, value, named, self._size)
            for name, value in kind.attrs
            if not (name in inputs and record.param(name) is None)
        }
        return complete(record, given)

    def _write(self, node: Node, access: Access, value: Value) -> None:
        variable = self.bound.vars[access.base]
        if variable.is_table:
            scalars = self._index_scalars(access.indices)
            self._emit(TableStep(Action.WRITE, self.tables[access.base], access.indices, value, node.index, scalars))
        elif isinstance(variable.origin, FromPattern):
            weight = self._family(access, variable, variable.origin.pattern, node)
            self._entry_write(access, weight, value, node)
        elif access.bracketed and access.indices:
            self._part_change(Action.WRITE, access, node, value, 0)
        else:
            self.current[access.base] = value

    # --- copies ---------------------------------------------------------------------------------------------------

    def _copy(self, node: Node, source: Operand, dst: Access) -> Current:
        """What is copied; a whole variable simply has that value from now on."""
        target = self.bound.vars[dst.base]
        shape = None if target.is_table or (dst.bracketed and dst.indices) else self._shape(target)
        value: Current
        if self.bound.is_index(source):
            value = self._operand(source, node)
        elif isinstance(source, Access) and self.bound.vars[source.base].is_table:
            value = self._table_read(source, node, shape, is_exact=target.dims is not None)
        elif isinstance(source, Access) and self._is_part(source):
            value = self._part_read(source, node, shape, is_exact=target.dims is not None)
        else:
            value = self._operand(source, node, target.dtype)
            self._require_known(value.shape)
            self._require_operand(source)
            if isinstance(value, Weight) and value.index:
                value = self._chosen_now(value, node)
            if shape is not None:
                self._bind_sizes(shape, value.shape, node, is_exact=target.dims is not None)
        if shape is not None:
            self._require_shape(target)
        variable = self.bound.vars[dst.base]
        if variable.is_table or (dst.bracketed and dst.indices) or isinstance(variable.origin, FromPattern):
            if isinstance(value, Weight):
                copy = self._value(dst.base, value.dtype, value.shape)
                self._emit(Move(value, copy, node.index))
                value = copy
            self._write(node, dst, value)
        else:
            self.current[dst.base] = value
        return value

    def _count(self, node: Node, name: str, amount: Expr, sign: int) -> Value:
        """A counter moves by a number, or by an integer that only a run knows."""
        by = None if isinstance(amount, Num) else self._integer(amount, node)
        value = self._read(name, node.index)
        result, inputs = self._value(name, value.dtype, ()), (value,) if by is None else (value, by)
        kernel = count_kernel(value.dtype, sign * amount.value if isinstance(amount, Num) else None, sign)
        scalars = self._scalars(*(value.index if isinstance(value, Weight) else ()))
        self._emit(KernelStep(kernel, inputs, (result,), node.index, scalars=scalars))
        self.current[name] = result
        return result

    def _reset(self, node: Node, access: Access) -> None:
        variable = self.bound.vars[access.base]
        if variable.is_table:
            scalars = self._index_scalars(access.indices)
            self._emit(TableStep(Action.RESET, self.tables[access.base], access.indices, None, node.index, scalars))
            return
        if isinstance(variable.origin, FromModel):
            original = Weight((variable.origin.name,), variable.dtype, variable.shape)
            if access.indices:
                self._part_change(Action.RESET, access, node, original, 0)
            else:
                self.current[access.base] = original
            return
        assert isinstance(variable.origin, FromInit)
        number = 0 if variable.origin.value is None else variable.origin.value.value
        if access.indices:
            self._part_change(Action.RESET, access, node, None, number)
            return
        self.current[access.base] = self._filled(variable, number, node.index)


def _can_fit(declared: Sequence[int], found: Sequence[int]) -> bool:
    """Whether some dynamic sizes make two shapes equal, as far as plain numbers tell."""
    pairs = zip(declared, found, strict=False)
    return len(declared) == len(found) and all(one == two or sizes_in(one) or sizes_in(two) for one, two in pairs)


def count_kernel(dtype: DType, amount: int | None, sign: int) -> Kernel:
    """Adds to a counter, which wraps at its width; without an amount, this is a second operand."""
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
        builder.fail(total.eq(missing), f"a counter would be what {dtype.name} does not have")
    builder.store(y, (), total)
    said = f"`y = x + {amount}`" if amount is not None else f"`y = x {'+' if sign > 0 else '-'} amount`"
    return Kernel("count", (x,) if amount is not None else (x, by), (y,), builder.body, (said,))


def _wrapped(number: int, dtype: DType) -> int:
    """An integer as the dtype has it: counters wrap, and so may what they count by."""
    least = int(dtype.minimum)
    return (number - least) % (1 << dtype.bits) + least
