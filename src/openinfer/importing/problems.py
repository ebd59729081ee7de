"""Refusals of an importer: raised where they are found, reported for all nodes together."""

from openinfer.errors import Code, Diagnostic, FileSpan, ImportingError


class Unsupported(Exception):  # noqa: N818  (a refusal, which the importer turns into a diagnostic)
    """A node that cannot be imported: the reason, and advice."""

    def __init__(self, reason: str, advice: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


class SkippedError(Exception):
    """A node whose operands are missing because of a problem already reported."""


def bad_file(path: str, reason: str, advice: str | None = None) -> ImportingError:
    """The error for a file that cannot be read as a model."""
    return ImportingError(Diagnostic(Code.BAD_IMPORT_FILE, f"cannot import {path!r}: {reason}", FileSpan(path), advice))


def bad_model(name: str, reason: str, advice: str | None = None, notes: tuple[str, ...] = ()) -> ImportingError:
    """The error for a model in memory that cannot be imported as a whole."""
    message = f"cannot import {name}: {reason}"
    return ImportingError(Diagnostic(Code.BAD_IMPORT_FILE, message, help=advice, notes=notes))


def bad_option(message: str, advice: str | None = None) -> ImportingError:
    """The error for an option that is malformed or does not apply to the model."""
    return ImportingError(Diagnostic(Code.BAD_IMPORT_OPTION, message, help=advice))
