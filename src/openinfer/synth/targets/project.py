"""What a project is, whatever language it is written in: its options, its files, and what others ask of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from openinfer.ops import Array
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.program.ir import Program
from openinfer.synth.targets.cstyle.library import KernelLibrary

Files = dict[str, str | bytes]
"""The files of a project, by their paths."""
Weights = Literal["file", "array", "incbin"]
FieldKind = Literal["pointer", "pointers", "int32", "int64"]


@dataclass(frozen=True)
class ProjectOptions:
    """What a project is for.

    ``weights``: a file that is read at run time, an array in the code, or a file that the assembler includes.
    ``flags``: what the compiler is told about the device. ``isa``: its instruction set; ``cc``: the compiler that makes
    code for it, where that is not the usual one. ``index_bits``: the width of positions in code, where they fit.
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
    """One step: what goes in and what must come out, as arrays by name; a refused one must fail.

    ``tolerance`` is relative to the largest magnitude of an output; None means what is usual for its dtype. Integers
    are compared exactly.
    """

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    tolerance: float | None = None
    begins: bool = False
    """Whether the state is the initial one before it."""
    is_refused: bool = False
    looser: float = 1.0
    """How much larger than usual the tolerance is, where none is given."""


@dataclass(frozen=True)
class Field:
    """A field of a struct: its name, its C declaration, and what kind of thing it is for those who fill it."""

    name: str
    text: str
    kind: FieldKind
    count: int = 1


class EmittedProject(Protocol):
    """A program as files, and the facts about them that plans and reports need."""

    @property
    def name(self) -> str:
        """What files and functions begin with."""

    @property
    def options(self) -> ProjectOptions:
        """What it is for."""

    @property
    def build_options(self) -> ProjectOptions:
        """The options with all that the compiler must be told."""

    @property
    def placed(self) -> Placed:
        """What was printed."""

    @property
    def program(self) -> Program:
        """The program of ``placed``."""

    @property
    def kernels(self) -> KernelLibrary:
        """The functions of kernels, and their calls in the order of the source."""

    @property
    def saved_bytes(self) -> int | None:
        """The bytes of a saved state; None where tables can grow."""

    @property
    def graph_hash(self) -> str:
        """The SHA-256 of the graph's canonical text."""

    @property
    def model_hash(self) -> str | None:
        """The SHA-256 of the model's file."""

    def code(self) -> dict[str, str]:
        """The sources that a compiler needs, without the weights and without the names of graph and model."""

    def files(self, golden: Sequence[Golden] = ()) -> Files:
        """All files but the plan, by their paths; golden values make a self-test."""


class RunnableProject(EmittedProject, Protocol):
    """A project that compilers of this machine make a library of, with functions that take a context."""

    @property
    def blob(self) -> bytes:
        """The weights."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The files of the code that are compiled."""

    @property
    def shaders(self) -> Mapping[str, str]:
        """The shaders that become headers first, by their paths, and what each is called in its header."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """What the sources are linked with."""

    @property
    def kernel_flags(self) -> tuple[str, ...]:
        """What the compiler of kernels is told, where it is not that of the other sources."""

    @property
    def trace_flags(self) -> tuple[str, ...]:
        """What a compiler is told so that steps say what they do."""

    @property
    def inputs(self) -> list[Field]:
        """The fields of the struct of inputs."""

    @property
    def outputs(self) -> list[Field]:
        """The fields of the struct of outputs."""

    @property
    def traced_context(self) -> list[Field]:
        """The fields of the context, those included that are there for traces alone."""

    @property
    def reported(self) -> tuple[Reported, ...]:
        """What the lines that trace say, in the order of the source."""

    def timed_code(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The code with a clock around every call of a kernel, and which files of it are compiled."""
