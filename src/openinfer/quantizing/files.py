"""The files of an integer graph: written side by side, whole or not at all."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from openinfer.ir.text import CommentKey, Comments
from openinfer.oinf.atomic import atomic_file, write_failed
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.writer import save_file
from openinfer.quantizing.writing import WrittenGraph


@dataclass(frozen=True)
class StagedFiles:
    """A model under a name that nobody looks for, and where it and its graph go when all is well."""

    temporary: str
    graph: str
    model: str

    def publish(self, text: str) -> None:
        """Write the graph, and give the model its name."""
        with atomic_file(self.graph) as sink:
            sink.write(text.encode())
        os.replace(self.temporary, self.model)


@contextmanager
def staged(folder: str, stem: str, source: ModelLoader, tensors: Mapping[str, Any]) -> Iterator[StagedFiles]:
    """The model of an integer graph, written but not yet in its place; it vanishes where that does not happen."""
    graph, model = (os.path.join(folder, f"{stem}.{end}") for end in ("oig", "oinf"))
    temporary = os.path.join(folder, f".{stem}.{os.getpid()}.oinf")
    is_new = not os.path.isdir(folder)
    try:
        os.makedirs(folder, exist_ok=True)
        save_file(temporary, tensors, sizevars=source.sizevars, metadata=source.stored_metadata())
        yield StagedFiles(temporary, graph, model)
    except OSError as error:
        raise write_failed(model, error) from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)
        if is_new:
            with suppress(OSError):  # that it is not empty, where all went well
                os.rmdir(folder)


def carried(comments: Comments, written: WrittenGraph) -> Comments:
    """The comments of a float graph, with the nodes of the integer graph that theirs have become."""
    places: dict[int, int] = {}
    for index, olds in enumerate(written.origins):
        for node in olds:
            places.setdefault(node, index)

    def key(old: CommentKey) -> CommentKey | None:
        if old[0] not in ("node", "end of node"):
            return old
        return (old[0], places[old[1]]) if isinstance(old[1], int) and old[1] in places else None

    found = Comments()
    for one, other in (
        (comments.leading, found.leading),
        (comments.trailing, found.trailing),
        (comments.dangling, found.dangling),
    ):
        for old, lines in one.items():
            new = key(old)
            if new is not None:
                other[new] = [*other.get(new, ()), *lines]
    return found
