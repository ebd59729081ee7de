"""Diagnostics: what is wrong, where, and how to fix it; and the exceptions that carry them."""

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
        """The diagnostic as plain text, with the source line and carets."""
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
    """The base class of all errors that OpenInfer raises deliberately; carries one or more diagnostics.

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
        """The invalid field of the file, such as ``tensors[2].data_nbytes``."""
        return self._byte_span.field_name if self._byte_span else None

    @property
    def offset(self) -> int | None:
        """The byte offset at which that field starts."""
        return self._byte_span.offset if self._byte_span else None

    @property
    def entry(self) -> str | None:
        """The size variable, metadata key or tensor that the field belongs to, if any."""
        return self._byte_span.entry if self._byte_span else None


class GraphError(OpenInferError):
    """Graph source or JSON that is not a valid graph."""


class DeviceError(OpenInferError):
    """A device description, or measurements of a device, that cannot be read or are inconsistent."""


class ExecutionError(OpenInferError):
    """A step, or a call before or after one, that failed. Everything is left as it was before."""


class ImportingError(OpenInferError):
    """A model in another format that cannot be imported, or not with the given options."""


class ServingError(OpenInferError):
    """A request that is answered with an error, or a server that cannot be started with the given options."""


class BatchError(OpenInferError):
    """A run over files that cannot start or continue."""


class MissingExtraError(OpenInferError):
    """An optional dependency that is required but not installed."""


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """A help line with the candidates that are most similar to a misspelt name; None if none are.

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
