"""A file opened for reading: mapped, or copied piece by piece for files that others may change.

If another process truncates a mapped file, the next access kills this process. ``CopiedFile`` never maps: missing
bytes are a typed error.
"""

import mmap
import os
import stat
from typing import Any, Protocol

import numpy as np

from openinfer.dtypes import Bytes
from openinfer.errors import ByteSpan, Code, Diagnostic, FileSpan, OinfError, counted

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_CONTEXT_ROW = 16
_QUICK_REGION = 16 << 20


class ModelFile(Protocol):
    """What the parser and the model need from an open file."""

    path: str
    size: int

    def region(self, end: int) -> Any:
        """A buffer with the bytes from 0 up to at least ``end``, whose slices are ``bytes``."""

    def view(self, offset: int, count: int) -> Bytes:
        """Bytes as a read-only array; zero-copy if the file is mapped."""

    def read(self, offset: int, count: int) -> bytes:
        """A copy of a few bytes."""

    def close(self) -> None:
        """Release the descriptor and the mapping; views handed out before stay valid."""


def open_model_file(path: str, *, copy: bool) -> "MappedFile | CopiedFile":
    """Open a regular file (symbolic links are followed) for mapping or for copying."""
    descriptor, size = open_regular(path)
    try:
        return CopiedFile(path, descriptor, size) if copy else MappedFile(path, descriptor, size)
    except (OSError, ValueError) as error:  # ValueError: the file has shrunk since its size was read
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _not_a_model(path, f"cannot map {path!r}: {reason}") from error


def open_regular(path: str) -> tuple[int, int]:
    """The descriptor and the size of a regular file; anything else is a typed error."""
    try:
        return open_plain(path)
    except (OSError, ValueError) as error:
        raise _not_a_model(path, f"cannot open {path!r}: {reason_of(error)}") from error


def open_plain(path: str) -> tuple[int, int]:
    """The descriptor and the size of a regular file; ``OSError`` or ``ValueError`` for anything else.

    A pipe could block forever, and a device has no end.
    """
    # O_NONBLOCK: opening a pipe must not wait for a writer before it can be refused.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            message = f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, not a regular file"
            raise OSError(0, message)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status.st_size


def read_plain(path: str, most: int) -> bytes:
    """The bytes of a regular file, at most ``most + 1`` of them."""
    descriptor, _ = open_plain(path)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most + 1)


def reason_of(error: Exception) -> str:
    """The reason that an operating system error gives."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class CopiedFile:
    """A file whose bytes are copied on every access."""

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self._descriptor = descriptor

    def region(self, end: int) -> Any:
        """A copy of the bytes from 0 up to ``end``."""
        return self.read(0, min(end, self.size))

    def view(self, offset: int, count: int) -> Bytes:
        """A copy of the bytes, as a read-only array."""
        try:
            copied = np.empty(count, np.uint8)
        except MemoryError as error:
            raise self._too_large(offset, count) from error
        self._fill(memoryview(copied.data), offset)
        copied.flags.writeable = False
        return copied

    def read(self, offset: int, count: int) -> bytes:
        """A copy of a few bytes."""
        try:
            buffer = bytearray(count)
        except MemoryError as error:
            raise self._too_large(offset, count) from error
        self._fill(memoryview(buffer), offset)
        return bytes(buffer)

    def _fill(self, buffer: memoryview, offset: int) -> None:
        done = 0
        while done < len(buffer):
            count = os.preadv(self._descriptor, [buffer[done:]], offset + done)
            if count == 0:
                raise self._shrunk(offset + done)
            done += count

    def require_unchanged(self) -> None:
        """Refuse to continue with a file that has shrunk since it was opened."""
        size = os.fstat(self._descriptor).st_size
        if size < self.size:
            raise self._shrunk(size)

    def _too_large(self, offset: int, count: int) -> OinfError:
        return _not_a_model(
            self.path, f"not enough memory for a copy of {counted(count, 'byte')} from byte {offset} on"
        )

    def _shrunk(self, offset: int) -> OinfError:
        return OinfError(
            Diagnostic(
                Code.FILE_SIZE_MISMATCH,
                f"the file was cut off at byte {offset} while it was open; it had {counted(self.size, 'byte')}",
                ByteSpan(self.path, "file_size", offset),
                help="open it with copy=True if other programs may change it",
            )
        )

    def close(self) -> None:
        """Release the descriptor."""
        descriptor, self._descriptor = self._descriptor, -1  # first: an interrupt must not close it twice
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        CopiedFile.close(self)


class MappedFile(CopiedFile):
    """A file mapped into memory."""

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        super().__init__(path, descriptor, size)
        # An empty file cannot be mapped; it is refused as too short before anything is read.
        self._map = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b""
        self._array: Bytes = np.frombuffer(self._map, np.uint8)

    def region(self, end: int) -> Any:
        """A copy if that is cheap (slices of bytes are faster than slices of a mapping), else the mapping."""
        return super().region(end) if end <= _QUICK_REGION else self._map

    def view(self, offset: int, count: int) -> Bytes:
        """The mapped bytes themselves."""
        return self._array[offset : offset + count]

    def close(self) -> None:
        """Release the descriptor; the mapping lives as long as the views handed out."""
        super().close()
        self._array = np.empty(0, np.uint8)
        self._map = b""


def byte_span(file: ModelFile, field_name: str, offset: int, length: int, entry: str | None = None) -> ByteSpan:
    """A byte range of a model file, with the rows of bytes around it."""
    first = offset // _CONTEXT_ROW * _CONTEXT_ROW
    last = min(file.size, max(first + _CONTEXT_ROW, -(-(offset + min(length, 24)) // _CONTEXT_ROW) * _CONTEXT_ROW))
    context = file.read(first, last - first) if first < last else b""
    return ByteSpan(file.path, field_name, offset, length, entry, context, first)


def _not_a_model(path: str, message: str) -> OinfError:
    return OinfError(Diagnostic(Code.NOT_A_MODEL_FILE, message, FileSpan(path)))
