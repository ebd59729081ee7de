"""An exported PyTorch program as plain records: what ``torch.export`` says, before any interpretation.

Knows nothing of torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from openinfer.dtypes import Array, DType
from openinfer.ops.types import Shape


@dataclass(frozen=True)
class ValueRef:
    """An argument that refers to an input or to the result of a node."""

    name: str


@dataclass(frozen=True)
class AtenNode:
    """A call. Arguments are named by the schema of the op; those of Python operators are ``0``, ``1`` and so on."""

    name: str
    op: str
    """The op without overload: ``aten.add``, ``_operator.mul``."""
    overload: str
    arguments: Mapping[str, Any]
    """References, numbers, strings, dtypes and tuples of them."""
    dtypes: tuple[DType | None, ...]
    """The dtypes of its results; None for a result that is not a tensor or has no dtype here."""
    extents: tuple[int | None, ...]
    """The shape of its first result; None for extents that depend on data."""
    common: DType | None
    """The dtype that its operands are promoted to by PyTorch's rules."""
    is_complex: bool = False
    """Whether its first result is complex."""
    modules: tuple[str, ...] = ()
    """The enclosing modules, each by its path within the one before."""
    line: str = ""
    """The file and line it came from."""

    @property
    def kind(self) -> str:
        """The op with overload, as PyTorch writes it."""
        return f"{self.op}.{self.overload}" if self.overload else self.op

    @property
    def place(self) -> str:
        """The enclosing modules and the name of the node, as one path."""
        return "/" + "/".join((*self.modules, self.name))


@dataclass(frozen=True)
class AtenGraph:
    """A graph inside of a node: it sees its inputs and nothing else."""

    inputs: tuple[str, ...]
    nodes: tuple[AtenNode, ...]
    outputs: tuple[Any, ...]
    """References, or numbers."""


class InputRole(Enum):
    """The role of an input of a program."""

    GIVEN = "given"
    """Passed by the caller."""
    KNOWN = "known"
    """A parameter, a buffer that nothing writes, or a constant."""
    STATE = "state"
    """A buffer that the program writes."""


@dataclass(frozen=True)
class AtenInput:
    """An input of a program: its name in nodes, and its label for people."""

    name: str
    label: str
    role: InputRole
    dtype: DType
    shape: Shape
    array: Array | None = None
    """The elements, unless the caller passes them."""
    imaginary: Array | None = None
    """The imaginary parts of complex numbers, whose real parts are in ``array``."""


@dataclass(frozen=True)
class AtenOutput:
    """A result: its label for people, and its value.

    ``state`` is the buffer that it updates, if it is not for the caller.
    """

    label: str
    value: Any
    state: str | None = None


@dataclass(frozen=True)
class AtenProgram:
    """A whole program, with its nodes in order."""

    name: str
    inputs: tuple[AtenInput, ...]
    nodes: tuple[AtenNode, ...]
    outputs: tuple[AtenOutput, ...]
    sizes: Mapping[str, int]
    """The dynamic sizes by name."""
