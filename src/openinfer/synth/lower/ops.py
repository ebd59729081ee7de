"""Lowers ops to kernels."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from openinfer.check.access import access_rank, part_quant
from openinfer.check.bound import BoundGraph, FromModel
from openinfer.check.params import parameter
from openinfer.dtypes import DType
from openinfer.ir import Access, Node, Op, Operand
from openinfer.ir.text import node_head
from openinfer.loops.dim import sizes_in
from openinfer.loops.expand import plain
from openinfer.loops.ir import Structure
from openinfer.oinf.quant import QuantParams
from openinfer.ops import Call, OpError, OpRecord, TensorType, complete, infer
from openinfer.ops.lower.kernel import QuantizationInput, lowered_call
from openinfer.synth.lower.access import Accesses
from openinfer.synth.lower.emission import Emission, fill_step, refused
from openinfer.synth.lower.families import Families
from openinfer.synth.lower.op_sizes import ManyValuesError, OpSizes, extents_in
from openinfer.synth.lower.slice_lengths import ADVICE, MUST_FIT, Read, SliceLengths
from openinfer.synth.lower.variables import VariableValues
from openinfer.synth.program.ir import BindSize, KernelStep, StepOperand, Value, Weight


class Ops:
    """Lowers ops."""

    def __init__(
        self,
        bound: BoundGraph,
        emission: Emission,
        variables: VariableValues,
        families: Families,
        accesses: Accesses,
        kept: frozenset[type[Structure]],
        short: Collection[tuple[str, str]],
    ) -> None:
        self._bound = bound
        self._emission = emission
        self._shapes = emission.shapes
        self._variables = variables
        self._families = families
        self._accesses = accesses
        self._kept = kept
        """The structured statements to keep; all others are lowered to loops."""
        self._short = short

    def op(self, node: Node, kind: Op) -> tuple[Value, ...]:
        """Lower an op to a kernel; returns its results."""
        own = self._bound.ops[node.index]
        first_step = self._emission.count
        operands: Sequence[StepOperand | None] = [
            None if operand is None else self._shaped(operand, node, dtype)
            for operand, dtype in zip(own.operands, own.stored, strict=True)
        ]
        types = tuple(
            None
            if operand is None or value is None
            else TensorType(value.dtype, value.shape, self._quant(operand, value, node))
            for operand, value in zip(own.operands, operands, strict=True)
        )
        wanted = tuple(self._wanted(output) for output in kind.outputs)
        given = Call(types, self._params(own.record, kind), wanted)
        read = Read(own.record, given, operands, self._shapes.lengths(node))
        read = SliceLengths(self._emission, node, read, first_step).settled()
        call, operands = self._inferred(node, own.record, read.call), read.operands
        lowered = lowered_call(own.record, call, own.stored, self._short)
        kernel = plain(lowered.kernel, self._kept)
        inputs: list[StepOperand] = [value for value in operands if value is not None]
        inputs += self._quantization(lowered.quantization, own.operands, operands)
        results = zip(kind.outputs, call.outputs, strict=True)
        outputs = tuple(self._result(output, found, node) for output, found in results)
        scratch = tuple(self._emission.value(one.name, one.dtype, one.shape) for one in kernel.scratch)
        scalars = self._variables.scalars(*(expr for one in inputs if isinstance(one, Weight) for expr in one.index))
        if all(_can_fit(value.shape, found.shape) for value, found in zip(outputs, call.outputs, strict=True)):
            self._emission.emit(KernelStep(kernel, tuple(inputs), outputs, node.index, scratch, scalars))
        else:  # unreachable when running: the size checks emitted before this fail in every step
            for value in outputs:
                self._emission.emit(fill_step(value, 0, node.index))
        for output, value in zip(kind.outputs, outputs, strict=True):
            self._accesses.write(node, output, value)
        return outputs

    def _result(self, output: Access, found: TensorType, node: Node) -> Value:
        """The value of a result. A variable's extents are those it declares, which may first be bound here."""
        variable = self._bound.vars[output.base]
        shape = found.shape
        if not variable.is_table and not (output.bracketed and output.indices):
            shape = self._shapes.of(variable)
            if len(shape) == len(found.shape):
                self._emission.bind_sizes(shape, found.shape, node, is_exact=variable.dims is not None)
            else:
                self._emission.emit(BindSize(len(shape), len(found.shape), node.index))
            self._emission.require_shape(variable)
        return self._emission.value(output.base, found.dtype, shape)

    def _shaped(self, operand: Operand, node: Node, dtype: DType | None) -> StepOperand:
        """Read an operand and require its shape, before the next one is read."""
        value = self._accesses.operand(operand, node, dtype)
        self._emission.require_known(value.shape)
        self._accesses.require_shape(operand)
        return value

    def _inferred(self, node: Node, record: OpRecord, call: Call) -> Call:
        """The call with inferred results. It must be valid for all run-time lengths, not by coincidence."""
        lengths = self._shapes.lengths(node)
        message = MUST_FIT.format(node_head(node))
        try:
            found = infer(record, call)
        except OpError as error:
            if lengths:
                raise refused(node, message, ADVICE) from error
            raise refused(node, error.message, error.advice) from error
        sizes = OpSizes(record, call, found, self._declared(node))
        self._emission.require_known(extents_in(call.params))
        self._require_sizes(node, sizes)
        if not sizes.fits_whatever_lengths_are(self._shapes.sizes, lengths):
            raise refused(node, message, ADVICE)
        return found

    def _declared(self, node: Node) -> list[tuple[int, ...] | None]:
        """The declared shapes that the op's results must have; None where the op determines the shape."""
        assert isinstance(node.kind, Op)
        variables = [self._bound.vars[output.base] for output in node.kind.outputs]
        return [None if one.dims is None or one.is_table else self._shapes.of(one) for one in variables]

    def _require_sizes(self, node: Node, op: OpSizes) -> None:
        """Emit checks for sizes that the op rejects, such as windows that do not fit."""
        try:
            for step in op.requirements(self._shapes.sizes, node.index):
                self._emission.emit(step)
        except ManyValuesError as error:
            message = f"the values of {error.size!r} that {node_head(node)} accepts do not simply begin at a least one"
            raise refused(node, message, f"let it be at most {error.most}") from error

    def _quant(self, operand: Operand, value: StepOperand, node: Node) -> QuantParams | None:
        """The quantization of an operand: that of the variable it names, whatever has been assigned to it since."""
        source = self._quantized(operand, value)
        if source is None or self._bound.model is None:
            return None
        infos = [self._bound.model.tensors.get(name) for name in source.names if name]
        quant = None if infos[0] is None else infos[0].quant
        if len({None if one is None else _kind_of(one.quant) for one in infos}) > 1:
            message = f"the tensors that {operand} can be are quantized in different ways"
            raise refused(node, message, "quantize all of them with the same scheme, axis and group size")
        return part_quant(operand, quant) if isinstance(operand, Access) and self._accesses.is_part(operand) else quant

    def _quantized(self, operand: Operand, value: StepOperand) -> Weight | None:
        """The model tensor or family whose quantization applies to an operand."""
        if isinstance(operand, Access) and operand.base in self._variables.plain:
            variable = self._bound.vars[operand.base]
            origin = variable.origin
            return Weight((origin.name,), variable.dtype, variable.shape) if isinstance(origin, FromModel) else None
        found = self._families.origins.get(value) if isinstance(value, Value) else value
        return found if isinstance(found, Weight) else None

    def _quantization(
        self,
        asked: Sequence[QuantizationInput],
        operands: Sequence[Operand | None],
        values: Sequence[StepOperand | None],
    ) -> list[StepOperand]:
        """The scales and zero points of quantized operands, in the kernel's operand order."""
        found: list[StepOperand] = []
        for one in asked:
            operand, value = operands[one.slot], values[one.slot]
            source = None if operand is None or value is None else self._quantized(operand, value)
            assert source is not None
            found.append(replace(source, dtype=one.buffer.dtype, shape=one.buffer.shape, part=one.part))
        return found

    def _wanted(self, output: Access) -> TensorType | None:
        variable = self._bound.vars[output.base]
        if variable.dims is None and not output.bracketed:
            return None
        shape = (0,) * access_rank(output, variable) if output.bracketed else self._shapes.of(variable)
        return TensorType(variable.dtype, shape)

    def _params(self, record: Any, kind: Op) -> dict[str, Any]:
        inputs = {spec.name for spec in record.signature.inputs}

        def named(name: str) -> Any:
            if name in self._bound.vars:
                return self._bound.constants.get(name)
            if name in self._shapes.sizes or name in self._bound.sizes:
                return self._shapes.size(name)
            model = self._bound.model
            return model.metadata[name] if model is not None and name in model.metadata_info else None

        given = {
            name: parameter(name, value, named, self._shapes.size)
            for name, value in kind.attrs
            if not (name in inputs and record.param(name) is None)
        }
        return complete(record, given)


def _kind_of(quant: QuantParams | None) -> tuple[object, ...]:
    """The part of a quantization that code depends on: everything but the numbers."""
    if quant is None:
        return ()
    return quant.scheme, quant.scale.axis, quant.scale.group, quant.scale_dtype.name, quant.zero_point is None


def _can_fit(declared: Sequence[int], found: Sequence[int]) -> bool:
    """Whether some dynamic sizes can make two shapes equal; only plain numbers are compared."""
    pairs = zip(declared, found, strict=False)
    return len(declared) == len(found) and all(one == two or sizes_in(one) or sizes_in(two) for one, two in pairs)
