"""Calibration inputs: arrays by the names of a graph's inputs, with samples along the first axis."""

import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

import numpy as np

from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.dtypes import Array
from openinfer.errors import Code, Diagnostic, ExecutionError, FileSpan, counted, nearest
from openinfer.ir import MemoryKind

SampleSource = str | PathLike[str] | Mapping[str, Array]


@dataclass(frozen=True)
class Samples:
    """What to insert before each step. An input is one array with a sample axis or a list of arrays."""

    arrays: Mapping[str, tuple[Array, ...] | Array]
    count: int

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return ({name: given[at] for name, given in self.arrays.items()} for at in range(self.count))

    def first(self, count: int) -> "Samples":
        """The first ``count`` samples, or all if there are fewer."""
        return Samples(self.arrays, min(count, self.count))


def bad_samples(message: str, place: str | None = None, advice: str | None = None) -> ExecutionError:
    """The error for calibration inputs that do not fit the graph."""
    return ExecutionError(Diagnostic(Code.BAD_CALIBRATION, message, FileSpan(place) if place else None, advice))


def samples_for(bound: BoundGraph, source: SampleSource) -> Samples:
    """The samples in a file or in memory, for every input of a graph; all inputs have the same number of samples."""
    path = None if isinstance(source, Mapping) else fspath(source)
    given = dict(source) if isinstance(source, Mapping) else _loaded(str(path))
    wanted = {name: one for name, one in bound.vars.items() if one.kind is MemoryKind.DYNAMIC}
    if not wanted:
        raise bad_samples("the graph has no inputs to calibrate with", path)
    found = {name: _samples(variable, given, path) for name, variable in wanted.items()}
    used = {key for name in wanted for key in given if key == name or _number(key, name) is not None}
    for name in given:
        if name not in used:
            advice = nearest(name, wanted) or f"inputs are {', '.join(wanted)}"
            raise bad_samples(f"there is no input {name!r} to calibrate with", path, advice)
    counts = {name: len(arrays) for name, arrays in found.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {counted(count, 'sample')}" for name, count in counts.items())
        raise bad_samples(f"inputs have different numbers of samples: {listed}", path)
    count = next(iter(counts.values()))
    if count == 0:
        raise bad_samples("there are no samples to calibrate with", path)
    return Samples(found, count)


def _loaded(path: str) -> dict[str, Array]:
    try:
        if Path(path).suffix.lower() != ".npz":
            raise bad_samples(f"{path!r} is not an .npz file", path, "numpy.savez('inputs.npz', x=array)")
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise bad_samples(f"cannot read {path!r}: {reason}", path) from error


def _number(key: str, name: str) -> int | None:
    """The number of a sample that has an array of its own: ``x.3``."""
    head, _, tail = key.rpartition(".")
    return int(tail) if head == name and tail.isdecimal() else None


def _samples(variable: BoundVar, given: Mapping[str, Array], path: str | None) -> tuple[Array, ...] | Array:
    name, rank = variable.name, len(variable.shape)
    if name in given:
        array = np.asarray(given[name])
        if array.ndim == rank + 1:
            return array
        if array.ndim == rank and rank and variable.shape[0] == 1:
            return array[:, np.newaxis]
        message = f"{name!r} is {variable.type}, and an array of {counted(array.ndim, 'axis')} has no axis of samples"
        advice = f"{counted(rank + 1, 'axis')}: samples first, then those of {name!r}"
        raise bad_samples(message, path, advice)
    numbered = sorted((number, key) for key in given if (number := _number(key, name)) is not None)
    if not numbered:
        advice = nearest(name, given) or f"numpy.savez('inputs.npz', {name}=array)"
        raise bad_samples(f"there are no samples of the input {name!r}", path, advice)
    return tuple(given[key] for _, key in numbered)
