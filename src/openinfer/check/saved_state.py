"""Persistent memory as a model file: plain variables by name, tables as ``NAME.table[.INDEX...]``.

The simulator and compiled code write and read the same files, so that one can continue where the other stopped. A file
contains the SHA-256 of all its other bytes, so that every changed bit is detected.
"""

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from math import prod
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.errors import Code, Diagnostic, ExecutionError, FileSpan, OpenInferError, counted
from openinfer.ir import MemoryKind
from openinfer.oinf.authoring import named_metadata, tensor_entry
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.package import Package
from openinfer.oinf.writer import write_package
from openinfer.ops import Array
from openinfer.tensor import Tensor

_SIGNATURE = "openinfer.state"
_CHECKSUM = "openinfer.state.sha256"
_NO_CHECKSUM = "0" * 64
"""The placeholder for the checksum while it is computed."""
_TABLE = ".table"
_ROOM = 1 << 28
_ROOM_FOR_EACH_BYTE = 64
"""The maximum memory of a state with many matrices: a constant plus a multiple of its file size."""
MatrixKey = tuple[int, ...]
"""The indices that select a matrix of a table; empty if the table is a single grid."""
Plain = Mapping[str, Array]
Tables = Mapping[str, Mapping[MatrixKey, Array]]
Fits = Callable[[str, MatrixKey, tuple[int, ...]], bool]
"""Whether a table can hold an array of a shape under a key."""


def _persistent(bound: BoundGraph) -> list[BoundVar]:
    return [variable for variable in bound.vars.values() if variable.kind is MemoryKind.PERSISTENT]


def signature(bound: BoundGraph) -> str:
    """What graphs that can exchange states have in common: a hash of the types of their persistent variables."""
    lines = []
    for variable in sorted(_persistent(bound), key=lambda one: one.name):
        decl = variable.decl
        assert decl is not None
        lines.append(f"{variable.name} {variable.dtype} {variable.shape} {decl.table_indices} {decl.auto_dim}")
    return sha256("\n".join(lines).encode()).hexdigest()


def _package(bound: BoundGraph, plain: Plain, tables: Tables) -> Package:
    entries = []
    for variable in _persistent(bound):
        if variable.is_table:
            for key, data in tables[variable.name].items():
                name = ".".join([variable.name + _TABLE, *map(str, key)])
                entries.append(tensor_entry(name, Tensor.from_numpy(data, variable.dtype)))
        else:
            stored = Tensor.from_numpy(np.array(plain[variable.name], order="C"), variable.dtype)
            entries.append(tensor_entry(variable.name, stored))
    marks = {_SIGNATURE: signature(bound), _CHECKSUM: _NO_CHECKSUM}
    unsigned = Package.of({}, {key: named_metadata(key, text) for key, text in marks.items()}, entries, 2)
    digest = sha256()
    unsigned.write(digest.update, None)
    marks[_CHECKSUM] = digest.hexdigest()
    return Package.of({}, {key: named_metadata(key, text) for key, text in marks.items()}, entries, 2)


def saved_bytes(bound: BoundGraph, plain: Plain, tables: Tables) -> bytes:
    """A state as the bytes of a file."""
    sink = io.BytesIO()

    def write(data: Any) -> None:
        sink.write(data)

    _package(bound, plain, tables).write(write, None)
    return sink.getvalue()


def save(bound: BoundGraph, plain: Plain, tables: Tables, path: str | os.PathLike[str]) -> None:
    """Write a state to a file, atomically."""
    given: object = path
    if not isinstance(given, str | os.PathLike):
        message = f"a state is written to a path, not to {type(given).__name__}"
        raise ExecutionError(Diagnostic(Code.BAD_STATE, message))
    write_package(path, _package(bound, plain, tables))


def loaded(
    bound: BoundGraph, state: bytes | bytearray | str | os.PathLike[str], fits: Fits
) -> tuple[dict[str, Array], dict[str, dict[MatrixKey, Array]]]:
    """The plain variables and tables of a saved state, checked to fit the graph."""
    if isinstance(state, str | os.PathLike):
        return _read(bound, fits, os.fspath(state), os.fspath(state))
    given: object = state
    if not isinstance(given, bytes | bytearray | memoryview):
        message = f"a state is the bytes that save_state gave, or the path of a file, not {type(given).__name__}"
        raise ExecutionError(Diagnostic(Code.BAD_STATE, message))
    try:
        with TemporaryDirectory() as folder:
            path = os.path.join(folder, "state.oinf")
            with open(path, "wb") as file:
                file.write(state)
            return _read(bound, fits, path, "<state>")
    except OSError as error:
        message = f"cannot write a temporary file for the state: {error.strerror or error}"
        advice = "TMPDIR can name another folder for temporary files; load_state also takes the path of a file"
        raise ExecutionError(Diagnostic(Code.WRITE_FAILED, message, None, advice)) from error


def _read(
    bound: BoundGraph, fits: Fits, path: str, name: str
) -> tuple[dict[str, Array], dict[str, dict[MatrixKey, Array]]]:
    try:
        with ModelLoader.open(path, copy=True) as model:
            return _contents(bound, fits, model, name)
    except ExecutionError:
        raise
    except OpenInferError as error:
        # The temporary file is gone, and its name would mean nothing to the user.
        found = [one if path == name else replace(one, span=FileSpan(name)) for one in error.diagnostics]
        raise ExecutionError(*found) from error


def _contents(
    bound: BoundGraph, fits: Fits, model: ModelLoader, name: str
) -> tuple[dict[str, Array], dict[str, dict[MatrixKey, Array]]]:
    if model.metadata.get(_SIGNATURE) != signature(bound):
        raise _misfit(name, "it was saved by a graph with other persistent variables, or is not a state at all")
    _require_checksum(model, name)
    wanted = {variable.name: variable for variable in _persistent(bound)}
    plain: dict[str, Array] = {}
    tables: dict[str, dict[MatrixKey, Array]] = {variable.name: {} for variable in wanted.values() if variable.is_table}
    for info in model.tensors.values():
        base, separator, rest = info.name.partition(_TABLE)
        variable = wanted.get(base)
        if variable is None or variable.dtype is not info.dtype or variable.is_table != bool(separator):
            raise _misfit(name, f"its entry {info.name!r} does not belong to this graph")
        array = model.load(info.name).to_numpy().copy()
        if not variable.is_table:
            if array.shape != variable.shape:
                raise _misfit(name, f"its entry {info.name!r} is {info.type_text}, not {variable.type}")
            plain[base] = array
            continue
        key = _key(rest)
        if key is None or not fits(base, key, array.shape):
            raise _misfit(name, f"its entry {info.name!r} does not fit the table {base!r}")
        tables[base][key] = array
    _require_complete(wanted, plain, tables, name)
    for base, parts in tables.items():
        _require_backed(wanted[base], parts, model.file_size, name)
    return plain, tables


def _require_checksum(model: ModelLoader, name: str) -> None:
    """Refuse a file in which any bit has changed."""
    stored = model.metadata.get(_CHECKSUM)
    if not isinstance(stored, str):
        raise _misfit(name, "it has no checksum: it is damaged, or was saved by an earlier version")
    data = bytes(model.payload(0, model.file_size).data)
    before, found, after = data.partition(stored.encode())
    digest = sha256(before)
    digest.update(_NO_CHECKSUM.encode())
    digest.update(after)
    if len(found) != len(_NO_CHECKSUM) or digest.hexdigest() != stored:
        raise _misfit(name, "it is damaged: its checksum is wrong")


def _require_backed(variable: BoundVar, parts: Mapping[MatrixKey, Array], file_size: int, name: str) -> None:
    """Refuse keys so large that a few bytes would claim much memory: matrices have room for all keys below theirs.

    If all indices have bounds, the graph itself limits the memory.
    """
    assert variable.decl is not None
    if not parts or set(variable.decl.table_indices) <= set(variable.fixed):
        return
    keys = [max(column) + 1 for column in zip(*parts, strict=True)]
    extents = [max(column) for column in zip(*(array.shape for array in parts.values()), strict=True)]
    claimed = prod(keys) * (prod(extents) * max(variable.dtype.bits // 8, 1) + 8 * len(extents))
    if claimed > _ROOM + _ROOM_FOR_EACH_BYTE * file_size:
        reason = f"its table {variable.name!r} would need {counted(claimed, 'byte')}, and the file has {file_size}"
        raise _misfit(name, reason)


def _require_complete(wanted: Mapping[str, BoundVar], plain: Mapping[str, Array], tables: Tables, name: str) -> None:
    """Refuse a state that lacks a value; only tables of matrices chosen by indices may be empty."""
    for variable in wanted.values():
        assert variable.decl is not None
        is_optional = set(variable.decl.auto_dim) != set(variable.decl.table_indices) and variable.decl.auto_dim
        if variable.name not in plain and not tables.get(variable.name) and not is_optional:
            raise _misfit(name, f"it has no value for {variable.name!r}")


def _key(text: str) -> tuple[int, ...] | None:
    """The indices in ``.0.12``; None if the text is not in this canonical form."""
    first, *parts = text.split(".")
    if first or not all(part.isascii() and part.isdigit() and len(part) < 16 for part in parts):
        return None
    key = tuple(map(int, parts))
    return key if [str(part) for part in key] == parts else None


def _misfit(name: str, reason: str) -> ExecutionError:
    return ExecutionError(Diagnostic(Code.BAD_STATE, f"the state {name!r} does not fit: {reason}", FileSpan(name)))
