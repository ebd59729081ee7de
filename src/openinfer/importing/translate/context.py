"""One node as its translator sees it, and the table of translators."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from openinfer.dtypes import DType
from openinfer.importing.draft import DraftOperand, KnownTensor
from openinfer.importing.emitter import Emitter, integers, number
from openinfer.importing.onnx_model import OnnxGraph, OnnxNode, OnnxTensor
from openinfer.importing.onnx_read import element_dtype
from openinfer.importing.problems import Unsupported

NodeResults = DraftOperand | tuple[DraftOperand | None, ...]
"""What a node yields: one operand, or one per output. None is an output it cannot yield, an error only if read."""


class Subgraphs(Protocol):
    """Translates the graphs inside a node."""

    def inline(self, graph: OnnxGraph, given: Sequence[DraftOperand]) -> tuple[DraftOperand, ...]:
        """Translate a graph with the given inputs, in place of the node."""

    def find(self, name: str) -> DraftOperand | None:
        """The value of a name in the graph around the node, or None."""

    def conditional(self, node: OnnxNode) -> AbstractContextManager[None]:
        """A context for translating branches: whatever is refused in them may be in one that is never taken."""

    def reported(self) -> int:
        """The number of problems reported so far."""

    def forget(self, reported: int) -> None:
        """Drop the problems reported since then."""


@dataclass(frozen=True)
class NodeContext:
    """A node with its operands resolved."""

    node: OnnxNode
    opset: int
    operands: tuple[DraftOperand | None, ...]
    emit: Emitter
    subgraphs: Subgraphs

    @property
    def x(self) -> DraftOperand:
        """The first input."""
        return self.input(0)

    def input(self, position: int) -> DraftOperand:
        """A required input."""
        found = self.optional(position)
        if found is None:
            raise Unsupported(f"its input {position} is missing")
        return found

    def optional(self, position: int) -> DraftOperand | None:
        """An input, or None if it is omitted."""
        return self.operands[position] if position < len(self.operands) else None

    @property
    def rank(self) -> int:
        """The number of dimensions of the first input."""
        return len(self.x.shape)

    def reads(self, position: int) -> bool:
        """Whether an output has a name, so that something may read it."""
        return position < len(self.node.outputs) and bool(self.node.outputs[position])

    # --- attributes -----------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether an attribute is given."""
        return self.node.attributes.get(name) is not None

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return int(self._typed(name, default, int))

    def real(self, name: str, default: float) -> float:
        """A float attribute; an integer is accepted."""
        found = self.node.attributes.get(name)
        value = float(found) if isinstance(found, int) else float(self._typed(name, default, float))
        single = np.float32(value)  # the precision of files: 0.01 must not read 0.009999999776482582
        return float(str(single)) if float(single) == value else value

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        return str(self._typed(name, default, str))

    def ints(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
        """A list of integers; an empty list does not become the default."""
        found = self.node.attributes.get(name)
        if found is None:
            return default
        if not isinstance(found, tuple) or not all(isinstance(one, int) for one in found):
            raise Unsupported(f"its attribute {name!r} is not a list of integers")
        return tuple(int(one) for one in found)

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of strings."""
        found = self.node.attributes.get(name)
        if found is not None and (not isinstance(found, tuple) or not all(isinstance(one, str) for one in found)):
            raise Unsupported(f"its attribute {name!r} is not a list of strings")
        return None if found is None else tuple(str(one) for one in found)

    def tensor(self, name: str) -> OnnxTensor | None:
        """A tensor attribute."""
        found = self.node.attributes.get(name)
        if found is not None and not isinstance(found, OnnxTensor):
            raise Unsupported(f"its attribute {name!r} is not a tensor")
        return found

    def graph(self, name: str) -> OnnxGraph:
        """A required graph attribute."""
        found = self.node.attributes.get(name)
        if not isinstance(found, OnnxGraph):
            raise Unsupported(f"it has no graph {name!r}")
        return found

    def dtype(self, name: str, default: int | None = None) -> DType:
        """An attribute that is an element type of ONNX."""
        code = self.integer(name, -1 if default is None else default)
        found = element_dtype(code)
        if found is None:
            raise Unsupported(f"the element type {code} of its attribute {name!r} has no dtype here")
        return found

    def _typed(self, name: str, default: Any, kind: type) -> Any:
        found = self.node.attributes.get(name)
        if found is None:
            return default
        if not isinstance(found, kind):
            raise Unsupported(f"its attribute {name!r} is not of type {kind.__name__}")
        return found

    # --- known inputs ---------------------------------------------------------------------------------------------

    def axis(self, value: int, rank: int | None = None) -> int:
        """An axis counted from the front."""
        own = self.rank if rank is None else rank
        if not -own <= value < max(own, 1):
            raise Unsupported(f"there is no axis {value} in {own} dimensions")
        return value % own if own else 0

    def axes(self, position: int, since: int) -> tuple[int, ...] | None:
        """Axes that are an input since an opset and were an attribute before; None if omitted."""
        if self.opset < since:
            return self.ints("axes")
        given = self.optional(position)
        return None if given is None else self.known_ints(position, "the list of axes")

    def known_ints(self, position: int, what: str) -> tuple[int, ...]:
        """The integers of a known input; sizes among them are ``Dim``."""
        return integers(self.input(position), what)

    def known_number(self, position: int, what: str) -> Any:
        """The number in a known input."""
        return number(self.input(position), what)

    def is_known(self, position: int) -> bool:
        """Whether an input is given and known."""
        return isinstance(self.optional(position), KnownTensor)


Translator = Callable[[NodeContext], NodeResults]
TABLE: dict[str, Translator] = {}
"""The translators by op type, with the domain and a colon in front unless it is ONNX's own."""


def onnx_op(*names: str) -> Callable[[Translator], Translator]:
    """Register a translator for op types."""

    def register(function: Translator) -> Translator:
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = function
        return function

    return register
