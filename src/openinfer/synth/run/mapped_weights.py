"""Weights as a memory-mapped file in the cache: pages are read from disk on use, and evicted when memory is short.

The file is written one tensor at a time, so neither writing nor reading it needs memory for all of it. Its name is a
hash of the model and the layout, and it appears under that name only when complete.
"""

import hashlib
import mmap
import os
from pathlib import Path

import numpy as np

from openinfer.errors import Code, Diagnostic, ExecutionError, FileSpan
from openinfer.ops import Array
from openinfer.synth.run.cache import cache_entry, cache_folder
from openinfer.synth.targets.project import RunnableProject

_NAME = "weights.bin"
_WRITTEN = 64 << 20


def mapped_weights(project: RunnableProject) -> Array:
    """The weights of a project, mapped read-only from a file."""
    try:
        with cache_entry(_digest(project), _NAME) as entry:
            if not _is_whole(entry.library, project.placed.weights.size):
                with entry.workplace() as place:
                    _write(place / _NAME, project)
                    os.replace(place / _NAME, entry.library)
            return _mapped(entry.library)
    except OSError as error:
        folder = str(cache_folder() or "")
        message = f"the weights cannot be mapped from the cache {folder!r}: {error.strerror or error}"
        advice = "set OPENINFER_CACHE to a folder with enough space; weights='held' needs none"
        raise ExecutionError(Diagnostic(Code.WRITE_FAILED, message, FileSpan(folder), advice)) from error


def _digest(project: RunnableProject) -> str:
    """A hash that is equal for projects with the same bytes of weights."""
    layout = project.placed.weights
    places = [(key, piece.offset, piece.nbytes) for key, piece in layout.pieces.items()]
    folded = [hashlib.sha256(one.raw().data).hexdigest() for _, one in sorted(project.program.folded.items())]
    parts = ("weights", project.model_hash, layout.size, places, folded)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]


def _is_whole(path: Path, nbytes: int) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size == nbytes


def _write(path: Path, project: RunnableProject) -> None:
    """Write the file, flushing it on the way: dirty pages take up memory."""
    with path.open("wb") as file:
        for chunk in project.placed.weights.chunks():
            for start in range(0, len(chunk), _WRITTEN):
                file.write(chunk[start : start + _WRITTEN])
                if start:
                    os.fdatasync(file.fileno())
        file.flush()
        os.fsync(file.fileno())


def _mapped(path: Path) -> Array:
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
