"""A model and its graphs in one folder, written side by side: all of them appear, or none."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from openinfer.oinf.atomic import atomic_file, write_failed


@dataclass(frozen=True)
class StagedModel:
    """A model under a temporary name, until its graphs are there too."""

    temporary: str
    """Where the model is to be written."""
    path: str
    """Where it goes when all is well."""

    def publish(self, graphs: Mapping[str, str]) -> None:
        """Write graphs, texts by their paths, and give the model its name."""
        for path, text in graphs.items():
            with atomic_file(path) as sink:
                sink.write(text.encode())
        os.replace(self.temporary, self.path)


@contextmanager
def staged_model(path: str) -> Iterator[StagedModel]:
    """A place for a model that vanishes unless it is published, and a new folder with it."""
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
            with suppress(OSError):  # that it is not empty, where all went well
                os.rmdir(folder)
