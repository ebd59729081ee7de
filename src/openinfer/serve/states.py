"""Saved sessions: one file each, named by a hash of the sequence id, so that no id becomes a path."""

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import time

from openinfer.errors import Code, Diagnostic, FileSpan, ServingError
from openinfer.serve.pool import StepModule

_SUFFIX = ".oinf"


class StateFolder:
    """The saved sessions of one version of a model."""

    def __init__(self, folder: str, model: str, version: str, kept: float) -> None:
        self._folder = Path(folder) / sha256(f"{model}\0{version}".encode()).hexdigest()[:32]
        self._kept = kept
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            message = f"states cannot be kept in {folder!r}: {error.strerror or error}"
            raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, FileSpan(folder))) from error

    def _path(self, sequence: str) -> Path:
        return self._folder / f"{sha256(sequence.encode('utf-8', 'surrogatepass')).hexdigest()}{_SUFFIX}"

    def found(self, sequence: str) -> Path | None:
        """The file of a session if it was saved, else None."""
        path = self._path(sequence)
        return path if path.is_file() else None

    def save(self, sequence: str, module: StepModule) -> None:
        """Write the state of a session atomically."""
        module.save_state(self._path(sequence))

    def remove(self, sequence: str) -> None:
        """Delete the state of a session that has ended."""
        with suppress(OSError):
            self._path(sequence).unlink(missing_ok=True)

    def remove_old(self) -> None:
        """Delete states that are older than the time they are kept."""
        oldest = time() - self._kept
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.name.endswith(_SUFFIX) and entry.stat(follow_symlinks=False).st_mtime < oldest:
                        os.unlink(entry.path)
