"""What is wrong, where, and what to do about it; and the exceptions that carry it."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from openinfer.errors.advice import Advice, Fix
from openinfer.errors.codes import Code
from openinfer.errors.spans import ByteSpan, Place

_LONGEST_MISSPELT = 200


@dataclass(frozen=True)
class Diagnostic:
    """One error or warning.

    >>> print(Diagnostic(Code.NO_DATA, "tensor 'w' has no data").render())
    error[E723]: tensor 'w' has no data
    """

    code: Code
    message: str
    span: Place | None = None
    help: str | None = None
    notes: tuple[str, ...] = ()

    def render(self) -> str:
        """The diagnostic as plain text with its source line and carets."""
        from openinfer.errors.render import render

        return render(self)

    def facts(self) -> dict[str, object]:
        """The diagnostic as plain values, for ``--json``."""
        place = self.span.facts() if self.span is not None else {}
        return {
            "code": str(self.code),
            "severity": "warning" if self.code.is_warning else "error",
            "message": self.message,
            **place,
            "help": self.help,
            "notes": list(self.notes),
        }


class OpenInferError(Exception):
    """The root of everything OpenInfer raises on purpose: one or more diagnostics.

    >>> error = OpenInferError(Diagnostic(Code.NO_DATA, "tensor 'w' has no data"))
    >>> error.code
    <Code.NO_DATA: 'E723'>
    """

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.diagnostics = diagnostics

    @property
    def code(self) -> Code:
        """The code of the first diagnostic."""
        return self.diagnostics[0].code

    @property
    def message(self) -> str:
        """The one-line message of the first diagnostic."""
        return self.diagnostics[0].message

    def __str__(self) -> str:
        return "\n".join(diagnostic.render() for diagnostic in self.diagnostics)


class TensorError(OpenInferError):
    """A value, shape or dtype that a tensor cannot have."""


class OinfError(OpenInferError):
    """A model or weights file that cannot be read, written or trusted."""

    @property
    def _byte_span(self) -> ByteSpan | None:
        span = self.diagnostics[0].span
        return span if isinstance(span, ByteSpan) else None

    @property
    def field(self) -> str | None:
        """The field of the file that is wrong, such as ``tensors[2].data_nbytes``."""
        return self._byte_span.field_name if self._byte_span else None

    @property
    def offset(self) -> int | None:
        """The byte at which that field starts."""
        return self._byte_span.offset if self._byte_span else None

    @property
    def entry(self) -> str | None:
        """The size variable, metadata key or tensor the field belongs to, where there is one."""
        return self._byte_span.entry if self._byte_span else None


class GraphError(OpenInferError):
    """Graph source or JSON that is not a graph, or not a sensible one."""


class DeviceError(OpenInferError):
    """A device description, or what was measured on a device, that cannot be read or makes no sense."""


class ExecutionError(OpenInferError):
    """A step, or a call around one, that could not be carried out. It left everything as it was before."""


class ImportingError(OpenInferError):
    """A model of another format that cannot be imported, or not as asked."""


class ServingError(OpenInferError):
    """A request that is answered with an error, or a server that cannot be started as asked."""


class BatchError(OpenInferError):
    """A run over files that cannot begin or go on."""


class MissingExtraError(OpenInferError):
    """An optional dependency is needed and not installed."""


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """A help line naming the candidates that look most like a misspelt name.

    >>> nearest("wieght", ["weight", "bias"])
    "did you mean 'weight'?"
    """
    if len(name) > _LONGEST_MISSPELT:
        return None
    matches = get_close_matches(name, candidates, n=3, cutoff=0.6)
    if not matches:
        return None
    return Advice(
        f"did you mean {' or '.join(repr(match) for match in matches)}?", *(Fix(match, name) for match in matches)
    )
