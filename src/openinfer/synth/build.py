"""Compiling generated code on this machine, into a cache that is addressed by what went into it."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from openinfer.errors import Code, Diagnostic, ExecutionError, MissingExtraError

LIBRARY = "module.so"


def cache_folder() -> Path:
    """Where compiled modules are kept, by the hash of what they were made from.

    ``OPENINFER_CACHE`` or the usual folder for caches; nothing is ever changed in it, so it can be deleted at any time.
    """
    own = os.environ.get("OPENINFER_CACHE")
    if own:
        return Path(own)
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "openinfer"


def library_of(code: Mapping[str, str], sources: Sequence[str], cc: str, flags: Sequence[str]) -> Path:
    """The shared library made from some files, compiled unless the cache has it.

    Builds at the same time do not disturb each other: each compiles in a folder of its own, and the first to be ready
    gives it its final name. Where the cache cannot be written, a temporary folder takes its place.
    """
    path = shutil.which(cc)
    if path is None:
        message = f"there is no C compiler {cc!r} to build with"
        advice = "install one (apt-get install gcc), or name another: plan.build(cc='clang')"
        raise MissingExtraError(Diagnostic(Code.MISSING_TOOL, message, None, advice))
    parts = (_version(path), tuple(flags), tuple(sources), sorted(code.items()))
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:40]
    folder = cache_folder() / digest
    if (folder / LIBRARY).exists():
        return folder / LIBRARY
    building = _new_folder(folder.parent)
    _compile(code, sources, [path, *flags], building)
    return _settled(building, folder)


@cache
def _version(compiler: str) -> str:
    """What distinguishes a compiler from others: where it is and what it says of itself."""
    ended = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)  # noqa: S603  (the user's own compiler)
    return f"{compiler} {ended.stdout[:500]}"


def _new_folder(parent: Path) -> Path:
    """A new folder for one build, next to where it will end up; in a temporary place if that cannot be."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="building-", dir=parent))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="openinfer-"))


def _compile(code: Mapping[str, str], sources: Sequence[str], command: Sequence[str], folder: Path) -> None:
    try:
        for path, text in code.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="ascii", newline="\n")
        line = [*command, "-shared", "-fPIC", "-Iinclude", *sources, "-o", LIBRARY]
        ended = subprocess.run(line, capture_output=True, text=True, check=False, cwd=folder)  # noqa: S603  (the user's own compiler)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        message = f"the generated code cannot be compiled: {error.strerror}"
        raise ExecutionError(Diagnostic(Code.WRITE_FAILED, message)) from error
    if ended.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        message = f"the generated code does not compile: {ended.stderr[:2000]}"
        raise ExecutionError(Diagnostic(Code.NOT_SYNTHESIZED, message))


def _settled(building: Path, folder: Path) -> Path:
    """The library under its final name; if somebody else was faster, theirs, which is the same."""
    if building.parent != folder.parent:
        return building / LIBRARY
    try:
        building.rename(folder)
    except OSError:
        if not (folder / LIBRARY).exists():
            return building / LIBRARY
        shutil.rmtree(building, ignore_errors=True)
    return folder / LIBRARY
