"""``import_onnx``: an ONNX file as a graph and a model file, stage by stage."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from openinfer.collection import collection_paused
from openinfer.importing.finish import Imported, finished, written
from openinfer.importing.identifiers import identifier
from openinfer.importing.lowering import Lowered
from openinfer.importing.onnx_read import read_onnx
from openinfer.importing.options import ImportOptions, sizes_given
from openinfer.importing.translation import translated


def import_onnx(  # noqa: PLR0913  (as many as the command has)
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    sizes: Mapping[str, int | str] | None = None,
    states: Sequence[tuple[str, str]] = (),
    fixed: Mapping[str, Any] | None = None,
    drop: Sequence[str] = (),
    loops: bool = True,
    idioms: bool = True,
) -> Imported:
    """Import an ONNX model: write ``NAME.oig`` and ``NAME.oinf`` into a folder and return the names in them.

    ``sizes`` gives every symbolic dimension a number, or ``"<=64"`` to keep it dynamic up to a bound; a dimension
    without a name is called ``input[0]``. ``states`` are pairs of an output and the input that receives it in the next
    step; ``*`` in both stands for the same text. ``fixed`` turns inputs into constants. ``drop`` names unwanted
    outputs, with ``*`` for any text: they are removed with everything that only they need. Without ``loops`` repeated
    layers are written out one after the other, and without ``idioms`` patterns such as a decomposed layer norm stay
    as they are.
    """
    choices = sizes_given(sizes or {})
    options = ImportOptions(name, choices, tuple(states), dict(fixed or {}), tuple(drop), loops=loops, idioms=idioms)
    return run_import(os.fspath(path), os.fspath(folder), options)


def run_import(path: str, folder: str, options: ImportOptions) -> Imported:
    """Convert, check and write; nothing is written unless every check passes."""
    found = converted(path, options)
    stem = identifier(options.name or os.path.splitext(os.path.basename(path))[0], "model")
    return written(found, path, folder, stem)


def converted(path: str, options: ImportOptions) -> Lowered:
    """Read and translate a file, then run the stages that all importers share."""
    with collection_paused():
        return finished(translated(read_onnx(path), options), options)
