"""What projects with a host in C share, whatever runs their kernels."""

from openinfer.synth.targets.c.fields import trace_fields
from openinfer.synth.targets.c.host_source import HostSource
from openinfer.synth.targets.project import Field


class HostedProject:
    """The facts about a project that depend on its host alone."""

    def __init__(self, host: HostSource) -> None:
        self._host = host
        self.name = host.name
        self.placed = host.placed
        self.program = host.program
        self.options = host.options

    @property
    def saved_bytes(self) -> int | None:
        """The bytes of a saved state; None if tables can grow."""
        return self._host.saved_bytes

    @property
    def inputs(self) -> list[Field]:
        """The fields of the struct of inputs."""
        return self._host.structs.inputs

    @property
    def outputs(self) -> list[Field]:
        """The fields of the struct of outputs."""
        return self._host.structs.outputs

    @property
    def traced_context(self) -> list[Field]:
        """The fields of the context, including those that exist only for traces."""
        return [*self._host.structs.context, *trace_fields(self.name)]

    @property
    def kernel_flags(self) -> tuple[str, ...]:
        """Flags for the compiler of kernels, where that is not the compiler of the host."""
        return ()

    @property
    def trace_flags(self) -> tuple[str, ...]:
        """Compiler flags that make steps emit traces."""
        return (f"-D{self.name.upper()}_TRACE",)

    @property
    def blob(self) -> bytes:
        """The weights."""
        return self._host.blob

    @property
    def graph_hash(self) -> str:
        """The SHA-256 of the graph's canonical text."""
        return self._host.graph_hash

    @property
    def model_hash(self) -> str | None:
        """The SHA-256 of the model's file."""
        return self._host.model_hash
