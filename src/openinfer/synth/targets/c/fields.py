"""The fields of a project's structs: inputs, outputs, and the context."""

from collections.abc import Mapping
from dataclasses import dataclass

from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import Value
from openinfer.synth.targets.c.dialect import stored_type
from openinfer.synth.targets.cstyle.host.function import PAD
from openinfer.synth.targets.cstyle.names import comment
from openinfer.synth.targets.project import Field


@dataclass(frozen=True)
class Structs:
    """The fields of a project's structs."""

    name: str
    placed: Placed

    @property
    def inputs(self) -> list[Field]:
        """The fields of the struct of inputs."""
        names = self.placed.names
        found = [tensor_field(names.inputs[key], key, value) for key, value in self.placed.program.inputs.items()]
        return [*found, *self._size_fields(names.input_sizes)]

    @property
    def outputs(self) -> list[Field]:
        """The fields of the struct of outputs."""
        names = self.placed.names
        found = [tensor_field(names.outputs[key], key, value) for key, value in self.placed.program.outputs.items()]
        return [*found, *self._size_fields(names.output_sizes)]

    def _size_fields(self, fields: Mapping[str, str]) -> list[Field]:
        return [size_field(field, size, self.placed.program.sizes[size]) for size, field in fields.items()]

    @property
    def context(self) -> list[Field]:
        """The fields of the context."""
        heaps = len(self.placed.state.growing)
        found = [
            Field("arena", "unsigned char *arena;", "pointer"),
            Field("state", "unsigned char *state;", "pointer"),
            Field("weights", "const unsigned char *weights;", "pointer"),
            Field("in", f"const {self.name}_inputs *in;", "pointer"),
        ]
        if self.placed.rules.on_device:
            found.append(Field("device", "void *device; /* the device and its recorded launches */", "pointer"))
        if self.placed.rollback is not None:
            found.append(Field("undo", "void *undo; /* the undo log of the running step */", "pointer"))
        if self.placed.threads > 1:
            found.append(Field("team", "void *team; /* the threads, once started */", "pointer"))
        if heaps:
            found.append(Field("heap", f"unsigned char *heap[{heaps}]; /* tables that grow */", "pointers", heaps))
        found += [
            Field("status", "int32_t status, failure; /* the last error */", "int32"),
            Field("failure", "", "int32"),
            Field("is_broken", "int32_t is_broken, has_outputs;", "int32"),
            Field("has_outputs", "", "int32"),
        ]
        if self.placed.rules.is_hosted:
            found.append(Field("is_busy", "int32_t is_busy; /* a call is running */", "int32"))
        if self.placed.is_interruptible:
            found += [
                Field("interrupt", f"{self.name}_interrupt_function *interrupt;", "pointer"),
                Field("interrupt_user", "void *interrupt_user;", "pointer"),
                Field("budget", "int64_t budget, nodes; /* nodes that the step may execute, and has */", "int64"),
                Field("nodes", "", "int64"),
                Field("countdown", "int64_t countdown, looked, asked; /* when to read the clock next */", "int64"),
                Field("looked", "", "int64"),
                Field("asked", "", "int64"),
            ]
        return [*found, *self._size_fields(self.placed.names.sizes)]


def tensor_field(name: str, variable: str, value: Value) -> Field:
    """A pointer to a tensor; a comment gives its type, and its name in the graph where that differs."""
    shape = ", ".join(map(repr, value.shape))
    named = "" if name == variable else f"{variable}: "
    about = comment(f"{named}{value.dtype.name}[{shape}]{_packing(value)}")
    return Field(name, f"const {stored_type(value.dtype)} *{name}; /* {about} */", "pointer")


def _packing(value: Value) -> str:
    if value.dtype.is_packed:
        return f", {8 // value.dtype.bits} elements per byte, the first in the lowest bits"
    return ", as raw bits" if value.dtype.is_small_float else ""


def size_field(name: str, size: str, bound: int) -> Field:
    """A dynamic size."""
    named = "" if name == size else f"{comment(size)}, "
    return Field(name, f"int64_t {name}; /* {named}at most {bound} */", "int64")


def trace_fields(name: str) -> list[Field]:
    """The last fields of a context, which exist if the code is compiled with traces."""
    begin = f"#ifdef {name.upper()}_TRACE\n{PAD}{name}_trace_function *trace;"
    end = "void *trace_user;\n#endif"
    return [Field("trace", begin, "pointer", is_directive=True), Field("trace_user", end, "pointer")]
