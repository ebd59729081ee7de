"""Files that appear under their name only once they are complete and on disk."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from openinfer.errors import Code, Diagnostic, FileSpan, OinfError


class Sink:
    """Writes whole buffers to a descriptor and counts the bytes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.position = 0

    def write(self, data: Any) -> None:
        """Write all of a buffer."""
        rest = memoryview(data).cast("B")
        while rest:
            count = os.write(self._descriptor, rest[: 1 << 30])
            self.position += count
            rest = rest[count:]


@contextmanager
def atomic_file(path: str) -> Iterator[Sink]:
    """A sink whose bytes replace ``path`` if the block succeeds, and vanish if it does not.

    The bytes go to a temporary file in the same folder, are flushed to disk and renamed over ``path``; then the folder
    is flushed, so that after a crash the name holds the old file or the new one. A symbolic link stays as it is; its
    target is replaced.
    """
    try:
        target = os.path.realpath(path)
        folder = os.path.dirname(target)
        # Not derived from the target's name, which may already be as long as the file system allows.
        temporary = os.path.join(folder, f".oinf-{uuid4().hex}.tmp")
        mode = require_replaceable(target)
    except (OSError, ValueError) as error:
        raise write_failed(path, error) from error
    try:
        # An interrupt arrives when a call returns: the file may then exist while its descriptor is unknown.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            if mode is not None:  # open would apply the umask
                os.fchmod(descriptor, mode)
            yield Sink(descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise write_failed(path, error) from error
        raise
    _sync_folder(path, folder)


def require_replaceable(target: str) -> int | None:
    """The permissions of the file to replace, which must be a regular one; None if there is no file."""
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        message = "exists and is not a regular file"
        raise OSError(0, message)
    return stat.S_IMODE(status.st_mode)


def _sync_folder(path: str, folder: str) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise write_failed(path, error) from error


def write_failed(path: str, error: Exception) -> OinfError:
    """The typed error for an operating system error while writing ``path``."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return OinfError(Diagnostic(Code.WRITE_FAILED, f"cannot write {path!r}: {reason}", FileSpan(path)))
