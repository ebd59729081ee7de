"""Errors of requests, and the statuses that each code has in HTTP and gRPC."""

from dataclasses import dataclass

from openinfer.errors import Code, Diagnostic, OpenInferError, ServingError


@dataclass(frozen=True)
class WireStatus:
    """A status in HTTP, and the name of one in gRPC."""

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
    """How an error is answered: what is not the server's own fault is that of the inputs."""
    return _STATUSES.get(error.code, _OF_INPUTS)


def bad_request(message: str, advice: str | None = None) -> ServingError:
    """A request that cannot be understood."""
    return ServingError(Diagnostic(Code.BAD_REQUEST, message, None, advice))


def require_size(size: int, most: int) -> None:
    """Refuse a request of too many bytes."""
    if size > most:
        message = f"a request has at most {most:,} bytes here"
        raise ServingError(Diagnostic(Code.REQUEST_TOO_LARGE, message, None, "openinfer serve --max-request-bytes N"))


def told(error: OpenInferError) -> str:
    """An error in a line: its code, what is wrong, and what helps. Places in files of the server stay there."""
    return "; ".join(
        f"{one.code}: {one.message}{f' ({one.help})' if one.help else ''}" for one in error.diagnostics[:4]
    )
