"""Persistent memory as a model file: plain variables under their names, tables under ``NAME.table[.INDEX...]``."""

import io
import os
from hashlib import sha256
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.errors import Code, Diagnostic, ExecutionError, FileSpan, OpenInferError
from openinfer.ir import MemoryKind
from openinfer.oinf.authoring import named_metadata, tensor_entry
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.package import Package
from openinfer.oinf.writer import write_package
from openinfer.ops import Array
from openinfer.sim.memory import Memory
from openinfer.sim.sizes import StepSizes
from openinfer.tensor import Tensor

_SIGNATURE = "openinfer.state"
_TABLE = ".table"
Tables = dict[str, dict[tuple[int, ...], Array]]


def _persistent(bound: BoundGraph) -> list[BoundVar]:
    return [variable for variable in bound.vars.values() if variable.kind is MemoryKind.PERSISTENT]


def signature(bound: BoundGraph) -> str:
    """What two graphs that can exchange states have in common: the types of their persistent variables."""
    lines = []
    for variable in sorted(_persistent(bound), key=lambda one: one.name):
        decl = variable.decl
        assert decl is not None
        lines.append(f"{variable.name} {variable.dtype} {variable.shape} {decl.table_indices} {decl.auto_dim}")
    return sha256("\n".join(lines).encode()).hexdigest()


def _package(bound: BoundGraph, memory: Memory) -> Package:
    entries = []
    for variable in _persistent(bound):
        if variable.is_table:
            for key, data in memory.tables[variable.name].dump().items():
                name = ".".join([variable.name + _TABLE, *map(str, key)])
                entries.append(tensor_entry(name, Tensor.from_numpy(data, variable.dtype)))
        else:
            value = memory.initial(variable.name, StepSizes(bound))
            stored = Tensor.from_numpy(np.array(value, order="C"), variable.dtype)
            entries.append(tensor_entry(variable.name, stored))
    metadata = {_SIGNATURE: named_metadata(_SIGNATURE, signature(bound))}
    return Package.of({}, metadata, entries, 2)


def state_bytes(bound: BoundGraph, memory: Memory) -> bytes:
    """The state as the bytes of a file."""
    sink = io.BytesIO()

    def write(data: Any) -> None:
        sink.write(data)

    _package(bound, memory).write(write, None)
    return sink.getvalue()


def write_state(bound: BoundGraph, memory: Memory, path: str | os.PathLike[str]) -> None:
    """The state as a file, which appears complete or not at all."""
    write_package(path, _package(bound, memory))


def load_state(bound: BoundGraph, memory: Memory, state: bytes | str | os.PathLike[str]) -> None:
    """Replace persistent memory by a saved one; nothing changes unless all of it fits."""
    if isinstance(state, bytes):
        with TemporaryDirectory() as folder:
            path = os.path.join(folder, "state.oinf")
            with open(path, "wb") as file:
                file.write(state)
            plain, tables = _read(bound, memory, path, "<state>")
    else:
        plain, tables = _read(bound, memory, os.fspath(state), os.fspath(state))
    memory.persistent = plain
    for name, grids in tables.items():
        memory.tables[name].restore(grids)


def _read(bound: BoundGraph, memory: Memory, path: str, name: str) -> tuple[dict[str, Array], Tables]:
    try:
        with ModelLoader.open(path, copy=True) as model:
            return _contents(bound, memory, model, name)
    except OpenInferError as error:
        if isinstance(error, ExecutionError):
            raise
        raise ExecutionError(*error.diagnostics) from error


def _contents(bound: BoundGraph, memory: Memory, model: ModelLoader, name: str) -> tuple[dict[str, Array], Tables]:
    if model.metadata.get(_SIGNATURE) != signature(bound):
        raise _misfit(name, "it was saved by a graph with other persistent variables, or is no state at all")
    plain: dict[str, Array] = {}
    tables: Tables = {variable.name: {} for variable in _persistent(bound) if variable.is_table}
    for info in model.tensors.values():
        base, _, rest = info.name.partition(_TABLE)
        variable = bound.vars.get(base)
        if variable is None or variable.dtype is not info.dtype:
            raise _misfit(name, f"its entry {info.name!r} does not belong to this graph")
        array = model.load(info.name).to_numpy().copy()
        if not variable.is_table:
            if array.shape != variable.shape:
                raise _misfit(name, f"its entry {info.name!r} is {info.type_text}, not {variable.type}")
            plain[base] = array
            continue
        key = _key(rest)
        if key is None or not memory.tables[base].fits(key, array.shape):
            raise _misfit(name, f"its entry {info.name!r} does not fit the table {base!r}")
        tables[base][key] = array
    return plain, tables


def _key(text: str) -> tuple[int, ...] | None:
    parts = text.split(".")[1:]
    return (
        tuple(map(int, parts)) if all(part.isascii() and part.isdigit() and len(part) < 16 for part in parts) else None
    )


def _misfit(name: str, reason: str) -> ExecutionError:
    return ExecutionError(Diagnostic(Code.BAD_STATE, f"the state {name!r} does not fit: {reason}", FileSpan(name)))
