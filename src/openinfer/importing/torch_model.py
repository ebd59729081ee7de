"""An exported PyTorch program as plain records: what ``torch.export`` says, before anything is made of it.

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
    """An argument that is an input, or the result of a node."""

    name: str


@dataclass(frozen=True)
class AtenNode:
    """A call. Arguments have the names of the op's schema; those of Python operators are ``0``, ``1`` and so on."""

    name: str
    op: str
    """The op without its overload: ``aten.add``, ``_operator.mul``."""
    overload: str
    arguments: Mapping[str, Any]
    """References, numbers, texts, dtypes and tuples of them."""
    dtypes: tuple[DType | None, ...]
    """Those of its results; None for what is not a tensor, or has no dtype here."""
    extents: tuple[int | None, ...]
    """The shape of its first result; None where that depends on data."""
    common: DType | None
    """The dtype that its operands have in common, by PyTorch's rules of promotion."""
    is_complex: bool = False
    """Whether its first result is of complex numbers."""
    modules: tuple[str, ...] = ()
    """The modules around it, each by its path in the one before."""
    line: str = ""
    """The file and line it came from."""

    @property
    def kind(self) -> str:
        """The op with its overload, as PyTorch writes it."""
        return f"{self.op}.{self.overload}" if self.overload else self.op

    @property
    def place(self) -> str:
        """The modules around it and its own name, as one path."""
        return "/" + "/".join((*self.modules, self.name))


@dataclass(frozen=True)
class AtenGraph:
    """A graph inside of a node: it sees what it is given, and nothing else."""

    inputs: tuple[str, ...]
    nodes: tuple[AtenNode, ...]
    outputs: tuple[Any, ...]
    """References, or numbers."""


class InputRole(Enum):
    """What an input of a program is."""

    GIVEN = "given"
    """The caller gives it."""
    KNOWN = "known"
    """A parameter, a buffer that nothing writes, or a constant."""
    STATE = "state"
    """A buffer that the program writes."""


@dataclass(frozen=True)
class AtenInput:
    """An input of a program: what nodes call it, and what people do."""

    name: str
    label: str
    role: InputRole
    dtype: DType
    shape: Shape
    array: Array | None = None
    """The elements, unless the caller gives them."""
    imaginary: Array | None = None
    """The imaginary parts of complex numbers, whose real parts are the elements."""


@dataclass(frozen=True)
class AtenOutput:
    """A result: what people call it, and what it is.

    ``state`` is the buffer that it becomes, if it is not for the caller.
    """

    label: str
    value: Any
    state: str | None = None


@dataclass(frozen=True)
class AtenProgram:
    """A whole program, nodes in order."""

    name: str
    inputs: tuple[AtenInput, ...]
    nodes: tuple[AtenNode, ...]
    outputs: tuple[AtenOutput, ...]
    sizes: Mapping[str, int]
    """The dynamic sizes by name."""
