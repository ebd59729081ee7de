"""The stages that all importers share: states, idioms, names, loops, the graph as text, and the files."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openinfer.check import bind
from openinfer.errors import Code, Diagnostic, FileSpan, GraphError, ImportingError
from openinfer.importing.cleanup import cleaned
from openinfer.importing.draft import Draft
from openinfer.importing.idioms import with_idioms, without_neutral_integers
from openinfer.importing.layers import with_loops
from openinfer.importing.lowering import Lowered, lowered
from openinfer.importing.names import with_names
from openinfer.importing.options import ImportOptions
from openinfer.importing.outputs import without_outputs
from openinfer.importing.states import StatePair, with_states
from openinfer.ir import Graph
from openinfer.ir.text import graph_text
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.staging import staged_model
from openinfer.oinf.writer import save_file
from openinfer.tensor import Tensor


@dataclass(frozen=True)
class Imported:
    """What an import wrote, and the names that the graph gives to the names in the file."""

    graph: str
    """The path of the graph."""
    model: str
    """The path of the model file."""
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    states: Mapping[str, str]
    """The variable of each state, by the name of its input and by that of its output."""
    prefill: str | None = None
    """The path of the graph that takes several tokens per step, if there is one."""

    def facts(self) -> dict[str, Any]:
        """The report as plain values, for ``--json``."""
        return {
            "graph": self.graph,
            "model": self.model,
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "states": dict(self.states),
            **({} if self.prefill is None else {"prefill": self.prefill}),
        }


def finished(draft: Draft, options: ImportOptions, states: Sequence[StatePair] = ()) -> Lowered:
    """Lower a draft to a graph, stage by stage: tie states, recognise idioms, assign names, find loops, lower."""
    draft = cleaned(without_outputs(with_states(draft, options.states, states), options.dropped))
    if options.idioms:
        draft = with_idioms(draft)
    draft = with_names(draft)
    if options.loops:
        draft = with_loops(draft)
    if options.idioms:
        draft = without_neutral_integers(draft)
    return lowered(draft)


def written(found: Lowered, path: str, folder: str, stem: str) -> Imported:
    """Check a graph against its model and write both; ``path`` is the source file, for messages."""
    graph_path, model_path = (os.path.join(folder, f"{stem}.{end}") for end in ("oig", "oinf"))
    tensors = {name: Tensor.from_numpy(array, dtype) for name, (dtype, array) in found.tensors.items()}
    with staged_model(model_path) as staged:
        save_file(staged.temporary, tensors)
        require_sound(found.graph, staged.temporary, path)
        staged.publish({graph_path: graph_text(found.graph, found.comments)})
    return Imported(graph_path, model_path, found.inputs, found.outputs, found.states)


def require_sound(made: Graph, model_path: str, path: str) -> None:
    """Reject a graph that does not fit its model: a bug of the importer, caught before anything is written."""
    try:
        with ModelLoader.open(model_path) as model:
            bind(made, model)
    except GraphError as error:
        notes = tuple(one.message for one in error.diagnostics[:5])
        message = f"the graph made from {path!r} is invalid: {notes[0]}"
        rounds = error.diagnostics[0].code is Code.BAD_SHAPE
        advice = "make sizes multiples, or give them a least value: --size 'NAME=8+n' --size 'n<=BOUND'"
        found = Diagnostic(Code.UNSUPPORTED_NODE, message, FileSpan(path), advice if rounds else None, notes[1:])
        raise ImportingError(found) from error
