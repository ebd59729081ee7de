"""The inputs and outputs of a model, as its clients see them."""

from collections.abc import Mapping
from dataclasses import dataclass

from openinfer.check.bound import BoundGraph
from openinfer.dtypes import DType
from openinfer.errors import Code, Diagnostic, ServingError, nearest
from openinfer.ir import MemoryKind
from openinfer.loops.dim import Dim
from openinfer.ops import Array
from openinfer.serve.datatypes import wire_array, wire_name
from openinfer.serve.messages import GivenTensor, InferRequest
from openinfer.serve.problems import bad_request
from openinfer.synth.plan import Plan
from openinfer.synth.program.batch import batch_bound


@dataclass(frozen=True)
class ServedTensor:
    """An input or output: its dtype and extents; dynamic extents are -1."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def datatype(self) -> str:
        """The datatype it is sent as."""
        return wire_name(self.dtype)

    def facts(self) -> dict[str, object]:
        """Its description in the protocol."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


@dataclass(frozen=True)
class ModelInterface:
    """The inputs and outputs of a model."""

    inputs: Mapping[str, ServedTensor]
    outputs: Mapping[str, ServedTensor]
    batch_size: int | None
    """The bound of the dynamic size that is the first extent of all inputs and outputs; None if there is none."""
    is_stateful: bool

    def accepted(self, request: InferRequest) -> dict[str, Array]:
        """The inputs of a request, checked for their names and datatypes."""
        for name, given in request.inputs.items():
            wanted = self.inputs.get(name)
            if wanted is None:
                advice = nearest(name, self.inputs) or f"inputs are {', '.join(self.inputs) or 'none'}"
                raise bad_request(f"there is no input {name[:80]!r}", advice)
            if given.datatype != wanted.datatype:
                message = f"the input {name!r} is {wanted.datatype}, not {given.datatype}"
                raise ServingError(Diagnostic(Code.WRONG_DTYPE, message))
        missing = [name for name in self.inputs if name not in request.inputs]
        if missing:
            raise bad_request(f"the request has no input {missing[0]!r}")
        unknown = [name for name in request.outputs if name not in self.outputs]
        if unknown:
            raise bad_request(f"there is no output {unknown[0][:80]!r}", f"outputs are {', '.join(self.outputs)}")
        return {name: request.inputs[name].array for name in self.inputs}

    def answered(self, found: Mapping[str, Array], wanted: tuple[str, ...]) -> dict[str, GivenTensor]:
        """Outputs as they are sent."""
        names = wanted or tuple(self.outputs)
        tensors = {name: self.outputs[name] for name in names}
        return {name: GivenTensor(one.datatype, wire_array(found[name], one.dtype)) for name, one in tensors.items()}


def interface_of(plan: Plan) -> ModelInterface:
    """The interface of a plan's graph."""
    bound, program = plan.project.program.bound, plan.project.program
    extents = {name: tuple(one.shape) for name, one in (*program.inputs.items(), *program.outputs.items())}
    kinds = {one.kind for one in bound.vars.values()}
    return ModelInterface(
        {name: _tensor(bound, name, extents[name]) for name in program.inputs},
        {name: _tensor(bound, name, extents[name]) for name in bound.output_names if name in program.outputs},
        batch_bound(program),
        MemoryKind.PERSISTENT in kinds,
    )


def _tensor(bound: BoundGraph, name: str, extents: tuple[int, ...]) -> ServedTensor:
    shape = tuple(-1 if isinstance(extent, Dim) else extent for extent in extents)
    return ServedTensor(name, bound.vars[name].dtype, shape)
