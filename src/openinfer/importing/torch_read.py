"""Reads exported programs into plain records: tensors as arrays, arguments by name, sizes as extents."""

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from openinfer.dtypes import DTYPES, Array, DType
from openinfer.importing.problems import Unsupported, bad_model
from openinfer.importing.torch_export import op_name, torch_package
from openinfer.importing.torch_model import AtenGraph, AtenInput, AtenNode, AtenOutput, AtenProgram, InputRole, ValueRef
from openinfer.importing.torch_sizes import ProgramSizes

_DTYPES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "float8_e5m2": "f8",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool",
}  # fmt: skip
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def dtype_of(torch_dtype: Any) -> DType | None:
    """The dtype of the language for a torch dtype, or None."""
    name = _DTYPES.get(str(torch_dtype).removeprefix("torch."))
    return None if name is None else DTYPES[name]


def read_program(program: Any, name: str, names: Mapping[int, Mapping[int, str]], leaves: list[Any]) -> AtenProgram:
    """The records of a program. ``names`` are dimension names by tensor and axis, ``leaves`` the example inputs."""
    try:
        return _Reader(program, name).program(names, leaves)
    except Unsupported as error:
        raise bad_model(name, error.reason, error.advice) from error


class _Reader:
    """Reads one program."""

    def __init__(self, program: Any, name: str) -> None:
        self._program = program
        self._name = name
        self._torch = torch_package()
        self._sizes = ProgramSizes(program.range_constraints)

    def program(self, names: Mapping[int, Mapping[int, str]], leaves: list[Any]) -> AtenProgram:
        signature = self._program.graph_signature
        placeholders = {node.name: node for node in self._program.graph.nodes if node.op == "placeholder"}
        self._name_sizes(placeholders, names, leaves)
        written = set(signature.buffers_to_mutate.values())
        inputs = [
            self._input(spec, placeholders[spec.arg.name], written)
            for spec in signature.input_specs
            if spec.kind.name != "TOKEN"  # tokens only order effects
            and getattr(spec.arg, "name", None) in placeholders
            and _is_tensor(placeholders[spec.arg.name])
        ]
        nodes = [self._node(node) for node in self._program.graph.nodes if node.op == "call_function"]
        outputs = self._outputs()
        self._sizes.require_bounds()
        return AtenProgram(self._name, tuple(inputs), tuple(nodes), tuple(outputs), self._sizes.dynamic)

    # --- inputs ---------------------------------------------------------------------------------------------------

    def _name_sizes(
        self, placeholders: Mapping[str, Any], names: Mapping[int, Mapping[int, str]], leaves: list[Any]
    ) -> None:
        """Name dimensions as the caller does, or else by input and axis."""
        given = [spec.arg for spec in self._program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
        tensors = [(placeholders.get(getattr(arg, "name", "")), place) for place, arg in enumerate(given)]
        for named in (True, False):
            for node, place in tensors:
                if node is None or not _is_tensor(node):
                    continue
                own = names.get(id(leaves[place]), {}) if place < len(leaves) else {}
                for axis, extent in enumerate(node.meta["val"].shape):
                    if not named or axis in own:
                        self._sizes.name(extent, own.get(axis, f"{node.name}_{axis}"))

    def _input(self, spec: Any, node: Any, written: set[str]) -> AtenInput:
        value = node.meta["val"]
        label = spec.target or node.name
        if value.dtype == self._torch.complex64 and spec.kind.name != "USER_INPUT" and spec.target not in written:
            return self._complex(spec, node, label)
        dtype = dtype_of(value.dtype)
        if dtype is None:
            raise bad_model(self._name, f"{label!r} has the dtype {value.dtype}, which is not supported")
        shape = tuple(self._sizes.extent(one) for one in value.shape)
        if spec.kind.name == "USER_INPUT":
            return AtenInput(node.name, label, InputRole.GIVEN, dtype, shape)
        role = InputRole.STATE if spec.target in written else InputRole.KNOWN
        return AtenInput(node.name, label, role, dtype, shape, array_of(self._torch, self._tensor(spec), dtype))

    def _complex(self, spec: Any, node: Any, label: str) -> AtenInput:
        """A complex tensor as two real ones."""
        pairs = array_of(self._torch, self._torch.view_as_real(self._tensor(spec).resolve_conj()), DTYPES["f32"])
        real, imaginary = (np.ascontiguousarray(pairs[..., part]) for part in (0, 1))
        return AtenInput(node.name, label, InputRole.KNOWN, DTYPES["f32"], real.shape, real, imaginary)

    def _tensor(self, spec: Any) -> Any:
        for source in (self._program.state_dict, self._program.constants):
            if spec.target in source:
                return source[spec.target]
        raise bad_model(self._name, f"it has no tensor {spec.target!r}")

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _node(self, node: Any) -> AtenNode:
        found = node.meta.get("val")
        results = found if isinstance(found, list | tuple) else (found,)
        return AtenNode(
            node.name,
            op_name(node.target),
            getattr(node.target, "_overloadname", ""),
            self._arguments(node),
            tuple(dtype_of(one.dtype) if hasattr(one, "dtype") else None for one in results),
            self._extents(results[0]) if results else (),
            self._common(node),
            bool(results) and getattr(getattr(results[0], "dtype", None), "is_complex", False),
            _modules(node),
            _line(node),
        )

    def _extents(self, value: Any) -> tuple[int | None, ...]:
        return tuple(map(self._extent, getattr(value, "shape", ())))

    def _extent(self, extent: Any) -> int | None:
        try:
            return self._sizes.extent(extent)
        except Unsupported:
            return None

    def _arguments(self, node: Any) -> dict[str, Any]:
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return {str(place): self._value(one) for place, one in enumerate(node.args)} | {
                name: self._value(one) for name, one in node.kwargs.items()
            }
        found: dict[str, Any] = {}
        for place, argument in enumerate(schema.arguments):
            if place < len(node.args):
                found[argument.name] = self._value(node.args[place])
            elif argument.name in node.kwargs:
                found[argument.name] = self._value(node.kwargs[argument.name])
            elif argument.has_default_value():
                found[argument.name] = self._value(argument.default_value)
        return found

    def _value(self, value: Any) -> Any:
        if isinstance(value, self._torch.fx.Node):
            return self._inner(value) if value.op == "get_attr" else ValueRef(value.name)
        if isinstance(value, list | tuple):
            return tuple(map(self._value, value))
        if isinstance(value, self._torch.dtype):
            return dtype_of(value) or str(value)
        if isinstance(value, self._torch.SymInt):
            return self._sizes.extent(value)
        return value if isinstance(value, bool | int | float | str) else None

    def _inner(self, node: Any) -> AtenGraph:
        """The graph that a branch or a loop runs."""
        graph = getattr(node.graph.owning_module, node.target).graph
        inputs = tuple(one.name for one in graph.nodes if one.op == "placeholder")
        nodes = tuple(self._node(one) for one in graph.nodes if one.op == "call_function")
        (output,) = (one.args[0] for one in graph.nodes if one.op == "output")
        results = self._value(output)
        return AtenGraph(inputs, nodes, results if isinstance(results, tuple) else (results,))

    def _common(self, node: Any) -> DType | None:
        """The dtype that the first two arguments are promoted to, if they are tensors or numbers."""
        given = [one.meta.get("val") if isinstance(one, self._torch.fx.Node) else one for one in node.args[:2]]
        if not given or not any(isinstance(one, self._torch.Tensor) for one in given):
            return None
        plain = [
            1 if isinstance(one, self._torch.SymInt) else 0.5 if isinstance(one, self._torch.SymFloat) else one
            for one in given
        ]
        if len(plain) < 2 or not all(isinstance(one, self._torch.Tensor | int | float) for one in plain):
            return dtype_of(next(one.dtype for one in plain if isinstance(one, self._torch.Tensor)))
        return dtype_of(self._torch.result_type(plain[0], plain[1]))

    # --- outputs --------------------------------------------------------------------------------------------------

    def _outputs(self) -> list[AtenOutput]:
        labels = iter(_labels(self._torch, self._program))
        found = []
        for spec in self._program.graph_signature.output_specs:
            value = ValueRef(spec.arg.name) if hasattr(spec.arg, "name") and not hasattr(spec.arg, "value") else None
            match spec.kind.name:
                case "USER_OUTPUT":
                    label = next(labels)
                    plain = getattr(spec.arg, "value", None)
                    if value is not None or plain is not None:
                        found.append(AtenOutput(label, plain if value is None else value))
                case "BUFFER_MUTATION":
                    found.append(AtenOutput(spec.target, value, spec.target))
        return found


def _is_tensor(node: Any) -> bool:
    return hasattr(node.meta.get("val"), "dtype") and hasattr(node.meta["val"], "shape")


def array_of(torch: Any, tensor: Any, dtype: DType) -> Array:
    """The elements of a tensor."""
    plain = tensor.detach().cpu().contiguous()
    if dtype.name in ("bf16", "f8"):
        bits = torch.uint16 if dtype.bits == 16 else torch.uint8
        return np.array(plain.view(bits).numpy()).view(dtype.array)
    return np.array(plain.numpy())


def _modules(node: Any) -> tuple[str, ...]:
    """The paths in ``nn_module_stack``, each relative to the module around it."""
    found: list[str] = []
    around = ""
    for path, _kind in (node.meta.get("nn_module_stack") or {}).values():
        own = re.sub(r"@\d+", "", str(path))
        if not own or own.startswith("_empty") or own == around:
            continue
        inner = own.removeprefix(f"{around}.") if around else own
        found.append(inner)
        around = own
    return tuple(found)


def _line(node: Any) -> str:
    """The innermost line of the stack outside of PyTorch, else the innermost line."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if f"{os.sep}torch{os.sep}" not in frame[0] and not frame[0].startswith("torch/")]
    path, number = (own or frames or [("", "")])[-1]
    return f"{path}:{number}" if path else ""


def _labels(torch: Any, program: Any) -> list[str]:
    """The labels of results, made of the keys that lead to them."""
    spec = program.call_spec.out_spec
    if spec is None:
        return []
    pytree = torch.utils._pytree
    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    found = []
    for keys, _leaf in pytree.tree_flatten_with_path(tree)[0]:
        words = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in keys]
        if not words or words[0].isdigit():
            words.insert(0, "output")
        found.append(".".join(words))
    return found
