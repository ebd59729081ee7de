"""What a project is, in any language: its options, its files, and the interface that other code relies on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from openinfer.ops import Array
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.program.ir import Program

if TYPE_CHECKING:
    from openinfer.synth.targets.cstyle.library import KernelLibrary

Files = dict[str, str | bytes]
"""The files of a project, by path."""
Weights = Literal["file", "array", "incbin"]
FieldKind = Literal["pointer", "pointers", "int32", "int64"]


@dataclass(frozen=True)
class ProjectOptions:
    """What a project is built for.

    ``weights``: a file that is read at run time, an array in the code, or a file that the assembler includes.
    ``flags``: compiler flags for the device. ``isa``: its instruction set; ``cc``: its compiler, where that is not the
    default one. ``index_bits``: the width of positions in code, where they fit.
    """

    name: str = "model"
    weights: Weights = "file"
    device: str = "cpu"
    flags: tuple[str, ...] = ()
    isa: str = "generic"
    index_bits: int = 64
    cc: str | None = None


@dataclass(frozen=True)
class Golden:
    """One step of a self-test: its inputs and expected outputs, by name; a refused step must fail.

    ``tolerance`` is relative to the largest magnitude of an output; None means the default for its dtype. Integers are
    compared exactly.
    """

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    tolerance: float | None = None
    begins: bool = False
    """Whether the state is reset before the step."""
    is_refused: bool = False
    looser: float = 1.0
    """A factor on the default tolerance, where none is given."""


@dataclass(frozen=True)
class Field:
    """A field of a struct: its name, its C declaration, and its kind, for code that fills it."""

    name: str
    text: str
    kind: FieldKind
    count: int = 1
    is_directive: bool = False
    """Whether a directive of the preprocessor comes first, which is not indented."""


class EmittedProject(Protocol):
    """A program as files, and the facts about them that plans and reports need."""

    @property
    def name(self) -> str:
        """The prefix of files and functions."""

    @property
    def options(self) -> ProjectOptions:
        """What the project is built for."""

    @property
    def build_options(self) -> ProjectOptions:
        """The options, with every flag that the compiler needs."""

    @property
    def placed(self) -> Placed:
        """The placed program that was printed."""

    @property
    def program(self) -> Program:
        """The program of ``placed``."""

    @property
    def kernels(self) -> "KernelLibrary":
        """The functions of kernels, and the calls to them in source order."""

    @property
    def saved_bytes(self) -> int | None:
        """The bytes of a saved state; None if tables can grow."""

    @property
    def graph_hash(self) -> str:
        """The SHA-256 of the graph's canonical text."""

    @property
    def model_hash(self) -> str | None:
        """The SHA-256 of the model's file."""

    def code(self) -> dict[str, str]:
        """The sources that a compiler needs, without the weights and without the names of graph and model."""

    def files(self, golden: Sequence[Golden] = ()) -> Files:
        """All files but the plan, by path; golden values add a self-test."""


class RunnableProject(EmittedProject, Protocol):
    """A project that compilers on this machine build into a library, with functions that take a context."""

    @property
    def blob(self) -> bytes:
        """The weights."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The source files to compile."""

    @property
    def shaders(self) -> Mapping[str, str]:
        """The shaders that become headers first: paths, and the name of each shader in its header."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries that the sources are linked with."""

    @property
    def kernel_flags(self) -> tuple[str, ...]:
        """Flags for the compiler of kernels, where that is not the compiler of the other sources."""

    @property
    def trace_flags(self) -> tuple[str, ...]:
        """Compiler flags that make steps emit traces."""

    @property
    def inputs(self) -> list[Field]:
        """The fields of the struct of inputs."""

    @property
    def outputs(self) -> list[Field]:
        """The fields of the struct of outputs."""

    @property
    def traced_context(self) -> list[Field]:
        """The fields of the context, including those that exist only for traces."""

    @property
    def reported(self) -> tuple[Reported, ...]:
        """What the trace lines report, in source order."""

    def timed_code(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The code with a clock around every kernel call, and which of its files to compile."""
