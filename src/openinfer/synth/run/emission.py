"""Writes a project into a folder; at any time it holds the old project, the new one, or one that refuses to build.

Everything is first staged beside the project. Then ``src/kernels.c``, which every build compiles, is replaced by a file
that no compiler accepts, the other files by the new ones, and finally ``src/kernels.c`` by the new one. Only renames
happen while the project is neither old nor new, and a build during that time fails.

Files that do not belong to the project are left alone, and nothing is written through symbolic links.
"""

import errno
import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from openinfer.errors import OinfError
from openinfer.oinf.atomic import Sink, write_failed

_STAGING = ".openinfer-new"
_GATES = ("src/kernels.c", "src/device.c", "rtl/oi.vhd")
"""Every build compiles one of these files: replacing it makes the project the new one."""
_CLOSED = b'#error "this project was only partly written: write it again, with openinfer synth or plan.emit"\n'
_BANNER = b"Made by OpenInfer"
_DEVICE_FILES = (
    "src/device.h",
    "src/inside.h",
    "src/recorder.c",
    "src/moves.c",
    "src/shaders.c",
    "shaders/support.glsl",
)
_KERNEL_FILES = ("src/kernels.h", "src/support.h", *_DEVICE_FILES)
_OPTIONAL = ("src/weights.c", "src/weights.S", "selftest/main.c", "bare/startup.c", "bare/mps2.ld", *_KERNEL_FILES)
"""Files that not every project has."""
_SHADERS = "shaders"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL)
"""Errors of file systems that cannot lock folders."""
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.ENXIO)
"""Errors of reading a file that is not one of ours."""


def write_project(folder: str | os.PathLike[str], files: Mapping[str, bytes]) -> list[Path]:
    """Write the files of a project, by relative path, into a folder, which is created if necessary."""
    place = os.fspath(folder)
    try:
        with _opened(place) as target:
            target.require_writable(files)
            with target.staged(files) as staged:
                _swap(place, staged)
    except (OSError, ValueError) as error:
        raise write_failed(place, error) from error
    return [Path(place) / path for path in files]


def _swap(place: str, staged: "_Staged") -> None:
    try:
        staged.swap()
    except OSError as error:
        failed = write_failed(place, error).diagnostics[0]
        advice = "the existing project may not build until it is written again"
        raise OinfError(replace(failed, help=advice)) from error


@dataclass
class _Target:
    """A project folder and its subfolders, held open by descriptors so that no link can replace them."""

    root: int
    folders: dict[str, int] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    """Folders that did not exist before."""

    def at(self, path: str) -> tuple[int, str]:
        """The descriptor of a file's folder, and the file's name in it."""
        folder, _, name = path.rpartition("/")
        return (self.folder(folder) if folder else self.root), name

    def folder(self, name: str) -> int:
        """The descriptor of a folder, which is created if necessary."""
        if name not in self.folders:
            try:
                os.mkdir(name, dir_fd=self.root)
                self.made.append(name)
            except FileExistsError:
                _require(name, self.root, stat.S_IFDIR, "a folder")
            self.folders[name] = os.open(name, _FOLDER, dir_fd=self.root)
        return self.folders[name]

    def require_writable(self, files: Mapping[str, bytes]) -> None:
        """Raise an error if any file cannot be replaced, before any is."""
        for path in files:
            where, name = self.at(path)
            _require(name, where, stat.S_IFREG, "a regular file", path)

    def stale(self, files: Mapping[str, bytes]) -> list[str]:
        """Files of the previous project that the new one does not have."""
        names = [path for old in self._old_name() for path in (f"include/{old}.h", f"src/{old}.c")]
        known = (*_GATES, *names, *_OPTIONAL, *self._shaders())
        return [path for path in known if path not in files and _BANNER in self._head(path, 200)]

    def _shaders(self) -> list[str]:
        """The shader files in the folder, of the previous project or anything else."""
        try:
            descriptor = os.open(_SHADERS, _FOLDER, dir_fd=self.root)
        except OSError as error:
            if error.errno in _NO_FILE:
                return []
            raise
        try:
            return sorted(f"{_SHADERS}/{name}" for name in os.listdir(descriptor) if name.endswith(".comp"))
        finally:
            os.close(descriptor)

    def _old_name(self) -> list[str]:
        try:
            name = json.loads(self._head("plan.json", 1 << 26))["name"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return []
        return [name] if isinstance(name, str) and re.fullmatch("[a-z][a-z0-9_]*", name) else []

    def _head(self, path: str, count: int) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with open(path, "rb", opener=lambda name, _: os.open(name, flags, dir_fd=self.root)) as file:
                return file.read(count)
        except OSError as error:
            if error.errno in _NO_FILE:
                return b""
            raise

    @contextmanager
    def staged(self, files: Mapping[str, bytes]) -> Iterator["_Staged"]:
        """Stage the files beside the project, flushed to disk; the staging folder is always removed."""
        _remove_staging(self.root)
        try:
            os.mkdir(_STAGING, 0o700, dir_fd=self.root)
            descriptor = os.open(_STAGING, _FOLDER, dir_fd=self.root)
            try:
                staged = _Staged(self, descriptor, tuple(files), self.stale(files))
                for path, content in ({"": _CLOSED} | dict(files)).items():
                    staged.write(path, content)
                yield staged
            finally:
                os.close(descriptor)
        finally:
            with suppress(OSError):
                _remove_staging(self.root)


@dataclass(frozen=True)
class _Staged:
    """A complete project, staged beside the one that it replaces."""

    target: _Target
    descriptor: int
    paths: tuple[str, ...]
    stale: Sequence[str]

    def _name(self, path: str) -> str:
        return str(self.paths.index(path)) if path else "closed"

    def write(self, path: str, content: bytes) -> None:
        """Write a file, with the permissions of the one that it replaces."""
        descriptor = os.open(self._name(path), _NEW_FILE, 0o666, dir_fd=self.descriptor)
        try:
            mode = None
            if path:
                where, name = self.target.at(path)
                mode = _require(name, where, stat.S_IFREG, "a regular file", path)
            if mode is not None:
                os.fchmod(descriptor, stat.S_IMODE(mode))
            Sink(descriptor).write(content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def swap(self) -> None:
        """Replace the old files by the new ones."""
        gate = next(path for path in _GATES if path in self.paths)
        folder = gate.rpartition("/")[0]
        self._move("", gate)
        self._flush(folder)
        for path in self.stale:
            where, name = self.target.at(path)
            os.unlink(name, dir_fd=where)
        for path in self.paths:
            if path != gate:
                self._move(path, path)
        self._flush(*self.target.folders)
        os.fsync(self.target.root)
        self._move(gate, gate)
        self._flush(folder)
        for folder in {path.rpartition("/")[0] for path in self.stale}:
            with suppress(OSError):  # other files are left in it
                os.rmdir(folder, dir_fd=self.target.root)

    def _move(self, path: str, to: str) -> None:
        where, name = self.target.at(to)
        os.rename(self._name(path), name, src_dir_fd=self.descriptor, dst_dir_fd=where)

    def _flush(self, *folders: str) -> None:
        for folder in folders:
            os.fsync(self.target.folders[folder])


@contextmanager
def _opened(place: str) -> Iterator[_Target]:
    """The project folder, locked against other writers; after an error, folders created here are removed."""
    path = place.rstrip("/") or ("/" if place else ".")
    if os.path.islink(path):
        message = "it is a symbolic link; give the folder that it points to"
        raise OSError(0, message)
    is_new = not os.path.lexists(path)
    os.makedirs(path, exist_ok=True)
    target = _Target(os.open(path, _FOLDER))
    try:
        _lock(target.root)
        yield target
    except BaseException:
        for name in target.made:
            with suppress(OSError):
                os.rmdir(name, dir_fd=target.root)
        if is_new:
            with suppress(OSError):
                os.rmdir(path)
        raise
    finally:
        with ExitStack() as closing:  # close all, even if closing one fails
            for descriptor in (target.root, *target.folders.values()):
                closing.callback(os.close, descriptor)


def _lock(root: int) -> None:
    try:
        fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        message = "another process is writing a project into it"
        raise OSError(0, message) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _require(name: str, where: int, kind: int, wanted: str, path: str = "") -> int | None:
    """The mode of a folder entry, which must be of the given kind; None if it does not exist."""
    try:
        mode = os.stat(name, dir_fd=where, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_IFMT(mode) != kind:
        found = "is a symbolic link" if stat.S_ISLNK(mode) else f"is not {wanted}"
        message = f"{path or name!r} in it {found}"
        raise OSError(0, message)
    return mode


def _remove_staging(root: int) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(_STAGING, dir_fd=root)
