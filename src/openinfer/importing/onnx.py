"""``import_onnx``: an ONNX file as a graph and a model file, stage by stage."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from openinfer.check import bind
from openinfer.collection import collection_paused
from openinfer.errors import Code, Diagnostic, FileSpan, GraphError, ImportingError
from openinfer.importing.cleanup import cleaned
from openinfer.importing.identifiers import identifier
from openinfer.importing.idioms import with_idioms
from openinfer.importing.layers import with_loops
from openinfer.importing.lowering import Lowered, lowered
from openinfer.importing.names import with_names
from openinfer.importing.onnx_read import read_onnx
from openinfer.importing.options import ImportOptions, sizes_given
from openinfer.importing.states import with_states
from openinfer.importing.translation import translated
from openinfer.ir.text import graph_text
from openinfer.oinf.atomic import atomic_file, write_failed
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.writer import save_file
from openinfer.tensor import Tensor


@dataclass(frozen=True)
class Imported:
    """What an import wrote, and what the names of the file are called in the graph."""

    graph: str
    """The path of the graph."""
    model: str
    """The path of the model file."""
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    states: Mapping[str, str]
    """The variable of each state, by the name of its input and that of its output."""

    def facts(self) -> dict[str, Any]:
        """The report as plain values, for ``--json``."""
        return {
            "graph": self.graph,
            "model": self.model,
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "states": dict(self.states),
        }


def import_onnx(  # noqa: PLR0913  (as many as the command has)
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    sizes: Mapping[str, int | str] | None = None,
    states: Sequence[tuple[str, str]] = (),
    fixed: Mapping[str, Any] | None = None,
    loops: bool = True,
    idioms: bool = True,
) -> Imported:
    """Import an ONNX model: write ``NAME.oig`` and ``NAME.oinf`` into a folder and say what things are called.

    ``sizes`` gives every symbolic dimension a number, or ``"<=64"`` to keep it dynamic up to a bound; a dimension
    without a name is called ``input[0]``. ``states`` are pairs of an output and the input that it is in the next step;
    ``*`` in both stands for the same text. ``fixed`` makes inputs constants. Without ``loops``
    repeated layers are written one after the other, and without ``idioms`` patterns such as a written-out layer norm
    stay as they are.
    """
    choices = sizes_given(sizes or {})
    options = ImportOptions(name, choices, tuple(states), dict(fixed or {}), loops=loops, idioms=idioms)
    return run_import(os.fspath(path), os.fspath(folder), options)


def run_import(path: str, folder: str, options: ImportOptions) -> Imported:
    """Convert, check and write; nothing is written unless all of it is right."""
    found = converted(path, options)
    stem = identifier(options.name or os.path.splitext(os.path.basename(path))[0], "model")
    return _written(found, path, folder, stem)


def converted(path: str, options: ImportOptions) -> Lowered:
    """The stages: read, translate, tie states, recognise patterns, name, find loops, lower."""
    with collection_paused():
        draft = translated(read_onnx(path), options)
        draft = cleaned(with_states(draft, options.states))
        if options.idioms:
            draft = with_idioms(draft)
        draft = with_names(draft)
        if options.loops:
            draft = with_loops(draft)
        return lowered(draft)


def _written(found: Lowered, path: str, folder: str, stem: str) -> Imported:
    graph_path, model_path = (os.path.join(folder, f"{stem}.{end}") for end in ("oig", "oinf"))
    is_new = not os.path.isdir(folder)
    temporary = os.path.join(folder, f".{stem}.{os.getpid()}.oinf")
    try:
        os.makedirs(folder, exist_ok=True)
        save_file(temporary, {name: Tensor.from_numpy(array, dtype) for name, (dtype, array) in found.tensors.items()})
        _require_sound(found, temporary, path)
        with atomic_file(graph_path) as sink:
            sink.write(graph_text(found.graph, found.comments).encode())
        os.replace(temporary, model_path)
    except OSError as error:
        raise write_failed(model_path, error) from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)
        if is_new:
            with suppress(OSError):  # that it is not empty, where all went well
                os.rmdir(folder)
    return Imported(graph_path, model_path, found.inputs, found.outputs, found.states)


def _require_sound(found: Lowered, model_path: str, path: str) -> None:
    """Refuse a graph that does not fit its model: the importer's own mistake, found before anything is written."""
    try:
        with ModelLoader.open(model_path) as model:
            bind(found.graph, model)
    except GraphError as error:
        notes = tuple(one.message for one in error.diagnostics[:5])
        message = f"the graph made of {path!r} is not sound: {notes[0]}"
        raise ImportingError(Diagnostic(Code.UNSUPPORTED_NODE, message, FileSpan(path), notes=notes[1:])) from error
