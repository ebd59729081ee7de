"""``Predictor``: a compiled graph that maps columns to columns, in this process or as a Ray Data actor."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from openinfer.check.results import Outputs
from openinfer.dtypes import DType
from openinfer.errors import BatchError, Code, Diagnostic, counted, nearest
from openinfer.ir import MemoryKind
from openinfer.loops.dim import Dim
from openinfer.ops import Array
from openinfer.synth.program.batch import batch_bound
from openinfer.tensor import any_array
from openinfer.workers import Recipe


class Predictor:
    """A graph, compiled for the machine of this process, as a function of columns.

    For Ray Data: ``ds.map_batches(Predictor, fn_constructor_kwargs={"graph": "net.oig", "model": "net.oinf"},
    batch_format="numpy", concurrency=4)``. Each actor compiles for its own processor, once per machine.

    If the first extent of every input and output is one dynamic size, a step takes several rows; otherwise each row is
    a step of its own. ``columns`` maps inputs to columns whose names differ.
    """

    def __init__(
        self,
        graph: str | os.PathLike[str],
        model: str | os.PathLike[str] | None = None,
        *,
        device: str = "host",
        sizes: Mapping[str, int] | None = None,
        columns: Mapping[str, str] | None = None,
        threads: int = 1,
    ) -> None:
        recipe = Recipe(
            os.fspath(graph), None if model is None else os.fspath(model), device, dict(sizes or {}), threads
        )
        plan = recipe.plan(recipe.opened())
        self.identity = (plan.project.graph_hash, plan.project.model_hash, tuple(sorted((sizes or {}).items())))
        """Equal for runs of the same graph, model and sizes."""
        program = plan.project.program
        self._batch = batch_bound(program)
        values = (*program.inputs.items(), *program.outputs.items())
        self._extents = {
            name: tuple(-1 if isinstance(one, Dim) else one for one in value.shape) for name, value in values
        }
        self._module = recipe.built(plan)
        self._describe(columns or {})

    def _describe(self, columns: Mapping[str, str]) -> None:
        bound = self._module.bound
        if any(one.kind is MemoryKind.PERSISTENT for one in bound.vars.values()):
            message = "the graph has persistent memory: its results depend on the order of rows"
            raise BatchError(
                Diagnostic(Code.BAD_BATCH, message, None, "openinfer serve keeps a state for each sequence")
            )
        names = self._module.input_names
        unknown = [name for name in columns if name not in names]
        if unknown:
            advice = nearest(unknown[0], names) or f"inputs are {', '.join(names)}"
            raise BatchError(Diagnostic(Code.BAD_BATCH, f"there is no input {unknown[0]!r}", None, advice))
        if not names:
            raise BatchError(Diagnostic(Code.BAD_BATCH, "the graph has no inputs: every row would give the same"))
        self.inputs = {name: columns.get(name, name) for name in names}
        """The column of each input."""
        self.outputs = tuple(bound.output_names)

    def another(self) -> "Predictor":
        """Another instance for another thread, with the same weights."""
        found = object.__new__(Predictor)
        found.__dict__ |= self.__dict__
        found._module = self._module.another()
        return found

    def row_shape(self, name: str) -> tuple[int, ...]:
        """The shape of an input or output within a row; dynamic extents are -1."""
        return self._extents[name] if self._batch is None else self._extents[name][1:]

    def dtype(self, name: str) -> DType:
        """The dtype of an input or output."""
        return self._module.bound.vars[name].dtype

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The output columns for a batch of rows; columns that are not inputs are passed through."""
        missing = [column for column in self.inputs.values() if column not in batch]
        if missing:
            message = f"there is no column {missing[0]!r} for an input"
            advice = nearest(missing[0], batch) or "--column INPUT=COLUMN names the column of an input"
            raise BatchError(Diagnostic(Code.BAD_BATCH, message, None, advice))
        given = {name: batch[column] for name, column in self.inputs.items()}
        used = set(self.inputs.values())
        return {name: column for name, column in batch.items() if name not in used} | self.rows(given)

    def rows(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs for rows of inputs; each is an array, or a list of arrays if shapes differ."""
        count = _row_count(inputs)
        if self._batch is None:
            steps = [self._step({name: any_array(rows[at]) for name, rows in inputs.items()}) for at in range(count)]
            return {name: _stacked([one[name] for one in steps]) for name in self.outputs}
        parts = list(self._batches(inputs, count, self._batch))
        return {name: _joined([part[name] for part in parts]) for name in self.outputs}

    def _batches(self, inputs: Mapping[str, Any], count: int, most: int) -> Iterator[Mapping[str, Array]]:
        arrays = {name: _whole(name, rows) for name, rows in inputs.items()}
        for start in range(0, count, most):
            yield self._step({name: rows[start : start + most] for name, rows in arrays.items()})

    def _step(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        found = self._module(inputs)
        return dict(found.items()) if isinstance(found, Outputs) else {self.outputs[0]: found}


def _row_count(inputs: Mapping[str, Any]) -> int:
    """The number of rows that all columns have."""
    for name, rows in inputs.items():
        is_scalar = isinstance(rows, np.ndarray) and rows.ndim == 0
        if is_scalar or not hasattr(rows, "__len__") or isinstance(rows, str | bytes | Mapping):
            raise BatchError(Diagnostic(Code.BAD_BATCH, f"the rows of {name!r} are neither a list nor an array"))
    counts = {name: len(rows) for name, rows in inputs.items()}
    first = next(iter(counts))
    for name, count in counts.items():
        if count != counts[first]:
            message = f"{name!r} has {counted(count, 'row')}, and {first!r} has {counts[first]}"
            raise BatchError(Diagnostic(Code.BAD_BATCH, message))
    return counts[first]


def _whole(name: str, rows: Any) -> Array:
    """Rows as one array; listed rows must have the same shape."""
    if isinstance(rows, np.ndarray) and rows.dtype != object:
        return rows
    arrays = [any_array(row) for row in rows]
    if len({array.shape for array in arrays}) > 1:
        message = f"the rows of {name!r} have different shapes, but run as one step"
        raise BatchError(Diagnostic(Code.BAD_BATCH, message, None, "pad them, or give the graph a row each step"))
    return np.stack(arrays) if arrays else np.zeros(0)


def _joined(parts: list[Array]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0)


def _stacked(rows: list[Array]) -> Any:
    """Rows of the same shape as one array, others as a list."""
    return np.stack(rows) if len({row.shape for row in rows}) == 1 else rows
