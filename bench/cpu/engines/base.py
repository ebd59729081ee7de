"""What all engines have in common: their protocol, and the files that they read.

Inputs lie where the engine reads them, outputs where it writes them: a step copies nothing that the engine would not
copy in a program of its own. A constructor imports the engine and reads the inputs, which are the caller's; ``load``
does all that depends on the model. An engine with a format of its own also has ``convert``, which runs beforehand, in
another process.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

Array = Any
ONNX = "model.onnx"
RESULT = "result"
"""A file with the name of the result that is compared."""


class Engine(Protocol):
    """What the worker knows of an engine. ``step`` is set by ``load``."""

    name: ClassVar[str]
    step: Callable[[], Any]

    def __init__(self, folder: Path, model: str, threads: int) -> None: ...

    def load(self) -> None:
        """Bring the model to where it can take a step."""

    def output(self) -> Array:
        """The result of the last step."""


def read(path: Path) -> dict[str, Array]:
    """Arrays by their names."""
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def feeds(folder: Path) -> dict[str, Array]:
    """The inputs of the ONNX model."""
    return read(folder / "feeds.npz")


class CannotError(Exception):
    """A model that an engine cannot run; the message says why."""
