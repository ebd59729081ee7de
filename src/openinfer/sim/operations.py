"""Prepares op nodes for execution: reading operands, calling the kernel, writing results."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from openinfer.check.access import access_rank
from openinfer.check.bound import BoundGraph, BoundOp, BoundVar, FromPattern
from openinfer.check.params import parameter
from openinfer.check.sizes import SizeError
from openinfer.errors import Diagnostic, GraphError
from openinfer.ir import Access, ModelRef, Node, Op, Operand
from openinfer.oinf.quant import QuantParams
from openinfer.ops import Array, Call, OpError, ReferenceKernel, TensorType, complete, infer
from openinfer.sim.backend import Backend, NodeKernel
from openinfer.sim.memory import evaluated_shape
from openinfer.sim.operands import CompiledOperands, Judge, Quant, ReadArray, TaskAction, WriteArray

if TYPE_CHECKING:
    from openinfer.sim.task import Task

_MOST_KERNELS = 1024


class NodeKernels:
    """The kernels of a graph's nodes. Everything that a device cannot compute is reported together."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._made: list[tuple[Node, NodeKernel]] = []
        self._problems: list[Diagnostic] = []

    def of(self, node: Node, own: BoundOp, call: Call) -> NodeKernel:
        """The kernel of a node whose types are known before a step runs."""
        try:
            made = self.backend.kernel(own.record, call, own.stored)
        except OpError as error:
            self._refuse(node, error)
            return ReferenceKernel(own.record, call, own.stored)
        self._made.append((node, made))
        return made

    def prepare(self) -> None:
        """Prepare all kernels."""
        problems = self.backend.prepare([kernel for _, kernel in self._made])
        for (node, _), error in zip(self._made, problems, strict=True):
            if error is not None:
                self._refuse(node, error)
        if self._problems:
            raise GraphError(*self._problems)

    def _refuse(self, node: Node, error: OpError) -> None:
        self._problems.append(Diagnostic(error.code, error.message, node.span, error.advice))


def op_action(bound: BoundGraph, operands: CompiledOperands, kernels: NodeKernels, node: Node) -> TaskAction:
    """The action that runs an op node."""
    kind, own = node.kind, bound.ops[node.index]
    assert isinstance(kind, Op)
    what = f"the result of '{own.record.name}'"
    operated = list(zip(own.operands, own.stored, strict=True))
    if own.call is not None and not own.is_dynamic and not _varies(bound, own):
        kernel = kernels.of(node, own, own.call)
        readers = [None if operand is None else operands.reader(operand, dtype) for operand, dtype in operated]
        writers = [operands.writer(output, what) for output in kind.outputs]
        return _plain_action(bound, own, kind, kernel) or _static_action(kernel, readers, writers)
    readers = [None if operand is None else operands.length_checked(operand, dtype) for operand, dtype in operated]
    quants = [operands.quant(operand) for operand in own.operands]
    judges = [operands.judge(output, what) for output in kind.outputs]
    writers = [
        operands.writer(output, what, is_judged=judge is not None)
        for output, judge in zip(kind.outputs, judges, strict=True)
    ]
    return DynamicOp(bound, node, kernels.backend, readers, quants, judges, writers)


def _varies(bound: BoundGraph, own: BoundOp) -> bool:
    """Whether operands may be quantized differently from one call to the next."""
    return any(
        (
            isinstance(operand, Access)
            and not bound.is_index(operand)
            and isinstance(bound.vars[operand.base].origin, FromPattern)
        )
        or (isinstance(operand, ModelRef) and operand.formatted)
        for operand in own.operands
        if operand is not None
    ) and any(kind is not None and kind.quant is not None for kind in (own.call.inputs if own.call else ()))


def _plain_action(bound: BoundGraph, own: BoundOp, kind: Op, kernel: NodeKernel) -> TaskAction | None:
    """The fast path for the common case: variables in, one variable out."""
    if len(kind.outputs) != 1 or not _is_plain(bound, kind.outputs[0]):
        return None
    names: list[str | None] = []
    for operand in own.operands:
        if operand is not None and not _is_plain(bound, operand):
            return None
        names.append(operand.base if isinstance(operand, Access) else None)
    target = kind.outputs[0].base

    def run(task: "Task") -> None:
        values = task.values
        (values[target],) = kernel([None if name is None else values[name] for name in names])

    return run


def _is_plain(bound: BoundGraph, operand: Operand) -> bool:
    if not isinstance(operand, Access) or operand.bracketed or bound.is_index(operand):
        return False
    return not bound.vars[operand.base].is_table


def _static_action(
    kernel: NodeKernel, readers: Sequence[ReadArray | None], writers: Sequence[WriteArray]
) -> TaskAction:
    def run(task: "Task") -> None:
        results = kernel([None if read is None else read(task) for read in readers])
        for write, result in zip(writers, results, strict=True):
            write(task, result)

    return run


class DynamicOp:
    """An op whose shapes, parameters or quantization vary between steps; kernels are created on demand."""

    def __init__(
        self,
        bound: BoundGraph,
        node: Node,
        backend: Backend,
        readers: Sequence[ReadArray | None],
        quants: Sequence[Quant],
        judges: Sequence[Judge | None],
        writers: Sequence[WriteArray],
    ) -> None:
        self._bound = bound
        assert isinstance(node.kind, Op)
        self._own = bound.ops[node.index]
        self._kind = node.kind
        self._backend = backend
        self._readers = readers
        self._quants = quants
        self._judges = judges
        self._writers = writers
        self._inputs = {spec.name for spec in self._own.record.signature.inputs}
        self._kernels: dict[Any, NodeKernel] = {}
        self.call: Call | None = None
        """The most recent call."""

    def __call__(self, task: "Task") -> None:
        """Run the op once."""
        arrays = [None if read is None else read(task) for read in self._readers]
        quants = [quant(task) for quant in self._quants]
        shapes = tuple(None if array is None else array.shape for array in arrays)
        key = (shapes, tuple(sorted(task.sizes.dynamic.items())), tuple(map(id, quants)))
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernel(task, arrays, quants)
            if len(self._kernels) >= _MOST_KERNELS:
                self._kernels.clear()
            self._kernels[key] = kernel
        self.call = kernel.call
        # Check shapes before computing: errors about elements only matter if the result fits its variable.
        for judge, kind in zip(self._judges, kernel.call.outputs, strict=True):
            if judge is not None:
                judge(task, kind.shape)
        for write, result in zip(self._writers, kernel(arrays), strict=True):
            write(task, result)

    def _kernel(self, task: "Task", arrays: list[Array | None], quants: list[QuantParams | None]) -> NodeKernel:
        types = tuple(
            None if array is None or dtype is None else TensorType(dtype, array.shape, quant)
            for array, dtype, quant in zip(arrays, self._own.stored, quants, strict=True)
        )
        wanted = tuple(self._wanted(task, output) for output in self._kind.outputs)
        call = infer(self._own.record, Call(types, self._params(task), wanted))
        return self._backend.kernel(self._own.record, call, self._own.stored)

    def _wanted(self, task: "Task", output: Access) -> TensorType | None:
        variable: BoundVar = self._bound.vars[output.base]
        if variable.dims is None or output.bracketed:
            return TensorType(variable.dtype, (0,) * access_rank(output, variable))
        shape = evaluated_shape(variable, task.sizes)
        # An unknown shape is at least known not to be a scalar's.
        return TensorType(variable.dtype, (0,) * len(variable.dims) if shape is None else shape)

    def _params(self, task: "Task") -> dict[str, Any]:
        def named(name: str) -> Any:
            if name in self._bound.vars:
                return self._bound.constants.get(name)
            try:
                return task.sizes.lookup(name)
            except (SizeError, KeyError):
                model = self._bound.model
                return model.metadata[name] if model is not None and name in model.metadata_info else None

        given = {
            name: parameter(name, value, named, task.sizes.lookup)
            for name, value in self._kind.attrs
            if not self._is_input(name)
        }
        return complete(self._own.record, given)

    def _is_input(self, name: str) -> bool:
        return name in self._inputs and self._own.record.param(name) is None
