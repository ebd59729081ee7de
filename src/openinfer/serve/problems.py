"""Errors of requests, and the HTTP and gRPC status of each code."""

from dataclasses import dataclass

from openinfer.errors import Code, Diagnostic, OpenInferError, ServingError


@dataclass(frozen=True)
class WireStatus:
    """An HTTP status, and the name of a gRPC status."""

    http: int
    grpc: str


_STATUSES = {
    Code.BAD_REQUEST: WireStatus(400, "INVALID_ARGUMENT"),
    Code.UNKNOWN_MODEL: WireStatus(404, "NOT_FOUND"),
    Code.QUEUE_FULL: WireStatus(429, "RESOURCE_EXHAUSTED"),
    Code.DEADLINE: WireStatus(504, "DEADLINE_EXCEEDED"),
    Code.UNAUTHORIZED: WireStatus(401, "UNAUTHENTICATED"),
    Code.REQUEST_TOO_LARGE: WireStatus(413, "RESOURCE_EXHAUSTED"),
    Code.BAD_SEQUENCE: WireStatus(409, "FAILED_PRECONDITION"),
    Code.INTERRUPTED: WireStatus(499, "CANCELLED"),
    Code.BAD_STATE: WireStatus(409, "FAILED_PRECONDITION"),
    Code.OUT_OF_MEMORY: WireStatus(503, "RESOURCE_EXHAUSTED"),
    Code.WRITE_FAILED: WireStatus(507, "RESOURCE_EXHAUSTED"),
    Code.WORKER_LOST: WireStatus(503, "UNAVAILABLE"),
    Code.NO_GPU: WireStatus(503, "UNAVAILABLE"),
    Code.BUSY: WireStatus(500, "INTERNAL"),
}
_OF_INPUTS = WireStatus(400, "INVALID_ARGUMENT")


def status_of(error: OpenInferError) -> WireStatus:
    """The status of an error; codes without an entry are blamed on the inputs."""
    return _STATUSES.get(error.code, _OF_INPUTS)


def bad_request(message: str, advice: str | None = None) -> ServingError:
    """The error of an invalid request."""
    return ServingError(Diagnostic(Code.BAD_REQUEST, message, None, advice))


def require_size(size: int, most: int) -> None:
    """Refuse a request that is too large."""
    if size > most:
        message = f"a request has at most {most:,} bytes here"
        raise ServingError(Diagnostic(Code.REQUEST_TOO_LARGE, message, None, "openinfer serve --max-request-bytes N"))


def told(error: OpenInferError) -> str:
    """An error in one line: its codes, messages and help. Locations in the server's files are not disclosed."""
    return "; ".join(
        f"{one.code}: {one.message}{f' ({one.help})' if one.help else ''}" for one in error.diagnostics[:4]
    )
