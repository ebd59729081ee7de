"""Writes a model and its graphs into one folder: all of them appear, or none."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from openinfer.oinf.atomic import atomic_file, write_failed


@dataclass(frozen=True)
class StagedModel:
    """A model under a temporary name, until its graphs exist too."""

    temporary: str
    """Where to write the model."""
    path: str
    """Where it is published."""

    def publish(self, graphs: Mapping[str, str]) -> None:
        """Write graphs, given as text by path, and rename the model to its final path."""
        for path, text in graphs.items():
            with atomic_file(path) as sink:
                sink.write(text.encode())
        os.replace(self.temporary, self.path)


@contextmanager
def staged_model(path: str) -> Iterator[StagedModel]:
    """A temporary path for a model, removed unless the model is published; a new folder is removed with it."""
    folder, name = os.path.split(path)
    is_new = not os.path.isdir(folder or ".")
    temporary = os.path.join(folder, f".{name.removesuffix('.oinf')}.{os.getpid()}.oinf")
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
        yield StagedModel(temporary, path)
    except OSError as error:
        raise write_failed(path, error) from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)
        if is_new:
            with suppress(OSError):  # fails if it is not empty, after success
                os.rmdir(folder)
