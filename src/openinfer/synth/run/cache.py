"""The cache of compiled modules: one folder per module, named by the hash of its inputs.

Loading a library runs its code. The cache must therefore belong to the user, and a library is loaded only if it is byte
for byte the one that was built; a damaged one is rebuilt.
"""

import fcntl
import hashlib
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from openinfer.errors import Code, Diagnostic, ExecutionError, FileSpan

LIBRARY = "module.so"
_RECORD = "module.sha256"
_WORKPLACE = "building"
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS = 100
_MOST_RECORD = 256
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> Path | None:
    """The folder of compiled modules: ``OPENINFER_CACHE``, or the usual cache folder.

    Everything in it can be rebuilt, so it can be deleted at any time. None if the user has no home.
    """
    own = os.environ.get("OPENINFER_CACHE")
    if own:
        if not os.path.isabs(own):
            raise _unsafe(own, "its path is not absolute", "OPENINFER_CACHE must begin with a slash")
        return Path(own)
    # A relative XDG_CACHE_HOME is ignored, as its specification demands.
    root = os.environ.get("XDG_CACHE_HOME", "")
    home = _home()
    if os.path.isabs(root):
        return Path(root) / "openinfer"
    return Path(home) / ".cache" / "openinfer" if os.path.isabs(home) else None


def _home() -> str:
    home = os.environ.get("HOME")
    if home:
        return home
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def own_cache() -> Path:
    """The cache folder, created if necessary (else ``OSError``). One that others could write to is an error."""
    folder = cache_folder()
    if folder is None:
        message = "there is no home folder"
        raise FileNotFoundError(message)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.stat(folder)
    if found.st_uid != os.geteuid() or os.lstat(folder).st_uid not in (os.geteuid(), 0):
        advice = "OPENINFER_CACHE can name a folder of your own"
        raise _unsafe(str(folder), "it belongs to another user", advice)
    if found.st_mode & _WRITABLE_BY_OTHERS:
        advice = f"check its contents, or delete it; then: chmod go-w {folder}"
        raise _unsafe(str(folder), "other users can write to it", advice)
    return folder


def _unsafe(path: str, reason: str, advice: str) -> ExecutionError:
    message = f"the cache of compiled modules, {path!r}, cannot be trusted: {reason}"
    return ExecutionError(Diagnostic(Code.UNSAFE_CACHE, message, FileSpan(path), advice))


@dataclass(frozen=True)
class CacheEntry:
    """The folder of one module, locked against other processes."""

    folder: Path
    name: str = LIBRARY
    """The name of its file."""

    @property
    def library(self) -> Path:
        """The path of the library, whether it exists or not."""
        return self.folder / self.name

    @property
    def record(self) -> bytes:
        """The record of the library's content, written when it was stored."""
        with _opened(self.folder / _RECORD) as file:
            return file.read(_MOST_RECORD)

    def is_whole(self) -> bool:
        """Whether the library exists and is unchanged since it was stored."""
        try:
            record = self.record
            with _opened(self.library) as file:
                size = os.fstat(file.fileno()).st_size
                return record.startswith(self._size(size)) and record == self._record(file)
        except OSError:
            return False

    def _size(self, size: int) -> bytes:
        return f"{self.folder.name} {size} ".encode("ascii")

    def _record(self, library: Any) -> bytes:
        digest = hashlib.file_digest(library, "sha256").hexdigest()
        return self._size(library.tell()) + f"{digest}\n".encode("ascii")

    @contextmanager
    def workplace(self) -> Iterator[Path]:
        """A folder to build in, which is removed afterwards."""
        place = self.folder / _WORKPLACE
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def keep(self, library: Path) -> None:
        """Move a library from the workplace into this entry, flushed to disk with a record of its content."""
        _flush(library)
        for name in (self.name, _RECORD):
            if (self.folder / name).is_dir():
                _remove(self.folder / name)
        record = library.with_name(_RECORD)
        with _opened(library) as file:
            record.write_bytes(self._record(file))
        library.rename(self.library)
        _flush(record)
        record.rename(self.folder / _RECORD)
        _flush(self.folder)


@contextmanager
def cache_entry(digest: str, name: str = LIBRARY) -> Iterator[CacheEntry]:
    """The locked entry of a digest; other processes wait. An entry that stays empty is removed.

    Raises ``OSError`` if the cache cannot be written or locked.
    """
    folder = own_cache() / digest
    descriptor = _locked(folder)
    try:
        _remove(folder / _WORKPLACE)  # left by a build that was killed
        yield CacheEntry(folder, name)
    finally:
        with suppress(OSError):
            folder.rmdir()
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _locked(folder: Path) -> int:
    """A locked descriptor of an entry's folder; one that others could write to is emptied first."""
    for _ in range(_ATTEMPTS):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        try:
            descriptor = os.open(folder, _OPEN_FOLDER)
        except FileNotFoundError:
            continue
        except OSError:  # not a folder, or unreadable
            _remove(folder)
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_at(folder, descriptor):
            if not os.fstat(descriptor).st_mode & _WRITABLE_BY_OTHERS:
                return descriptor
            _remove(folder)
        os.close(descriptor)  # another process has removed it while we waited
    message = "its entry keeps being removed"
    raise OSError(0, message)


def _is_at(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(folder), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    """Remove a file, link or folder."""
    with suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
            shutil.rmtree(path)
        else:
            path.unlink()


def _opened(path: Path) -> BinaryIO:
    """A file opened for reading; fails on links, and does not block on pipes."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK))


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
