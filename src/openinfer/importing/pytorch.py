"""``import_torch``: a PyTorch module as a graph and a model file, stage by stage."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from openinfer.collection import collection_paused
from openinfer.importing.aten import TABLE
from openinfer.importing.finish import Imported, finished, written
from openinfer.importing.identifiers import identifier
from openinfer.importing.lowering import Lowered
from openinfer.importing.options import ImportOptions
from openinfer.importing.torch_export import exported, torch_package
from openinfer.importing.torch_read import read_program
from openinfer.importing.torch_sizes import dimension_names
from openinfer.importing.torch_translation import translated_program


def import_torch(  # noqa: PLR0913  (what there is to say about a module)
    module: Any,
    example_inputs: Sequence[Any],
    folder: str | os.PathLike[str],
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str | None = None,
    states: Sequence[tuple[str, str]] = (),
    drop: Sequence[str] = (),
    loops: bool = True,
    idioms: bool = True,
) -> Imported:
    """Import a PyTorch module: write ``NAME.oig`` and ``NAME.oinf`` into a folder and return the names in them.

    The module is traced by ``torch.export`` with the example inputs; an ``ExportedProgram`` is taken as it is.
    ``dynamic_shapes`` is that of ``torch.export``; the ``max`` of each ``Dim`` becomes the bound of a dynamic size.
    Buffers that the module writes become persistent variables, initialised with their current values. ``states`` are
    pairs of an output and the input that receives it in the next step; ``*`` in both stands for the same text. ``drop``
    names unwanted outputs. Without ``loops`` repeated layers are written out one after the other, and without
    ``idioms`` patterns such as a decomposed norm stay as they are.
    """
    options = ImportOptions(name, {}, tuple(states), {}, tuple(drop), loops=loops, idioms=idioms)
    args, kwargs = tuple(example_inputs), dict(example_kwargs or {})
    title = type(module).__name__
    found = _converted(module, args, kwargs, dynamic_shapes, options)
    return written(found, title, os.fspath(folder), identifier(name or title.lower(), "model"))


def _converted(
    module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Any, options: ImportOptions
) -> Lowered:
    """Export and read a module, then run the stages that all importers share."""
    program = exported(module, args, kwargs, dynamic, TABLE)
    with collection_paused():
        names = dimension_names(module, args, kwargs, dynamic)
        leaves = torch_package().utils._pytree.tree_leaves((args, kwargs))
        records = read_program(program, type(module).__name__, names, leaves)
        draft, pairs = translated_program(records)
        return finished(draft, options, pairs)
