"""``--output NAME[=@FILE]``: values of a run that are kept, shown, and written once all of them exist.

``@y.npy`` holds the value after the last step; ``@y.npy[]`` the values of all steps, stacked along a new first axis.
Several outputs may share an ``.npz``, each under its variable's name or the name after a colon.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import typer

from openinfer.check.bound import BoundGraph
from openinfer.check.events import statistics
from openinfer.cli.arrays import is_archive, require_writable, split_place, write_archive, write_array
from openinfer.dtypes import Array
from openinfer.errors import Code, Diagnostic, ExecutionError, nearest
from openinfer.oinf.atomic import write_failed
from openinfer.sim import Executor, format_truncated


@dataclass(frozen=True)
class Wanted:
    """A variable to keep, and where to write it; ``stacked`` keeps it after every step."""

    name: str
    path: str | None = None
    key: str = ""
    stacked: bool = False


def parsed_outputs(texts: Iterable[str] | None, state_path: str | None = None) -> list[Wanted]:
    """Parse ``NAME`` and ``NAME=@FILE`` options; a malformed one is wrong usage.

    >>> parsed_outputs(["y", "z=@z.npz:last"])[1]
    Wanted(name='z', path='z.npz', key='last', stacked=False)
    """
    found: list[Wanted] = []
    for text in texts or ():
        name, equals, place = text.partition("=")
        if not equals:
            found.append(Wanted(name))
            continue
        path, key = split_place(place.removeprefix("@").removesuffix("[]"))
        if not name or not place.startswith("@") or not path.lower().endswith((".npy", ".npz")):
            reason = "write it as NAME, NAME=@FILE.npy or NAME=@FILE.npz:KEY"
            raise _bad_option(f"cannot understand {text[:200]!r}: {reason}")
        wanted = Wanted(name, path, (key or name) if is_archive(path) else "", place.endswith("[]"))
        found.append(wanted)
    _require_apart(found, state_path)
    return found


def _require_apart(wanted: Iterable[Wanted], state_path: str | None) -> None:
    """Reject two outputs with the same destination, however it is spelled."""
    state = [] if state_path is None else [(_real(state_path), "")]
    places = [(_real(one.path), one.key) for one in wanted if one.path is not None] + state
    for place, count in Counter(places).items():
        if count > 1 or (place[1] and (place[0], "") in places):
            raise _bad_option(f"two things are to be written to {place[0]!r}")


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError) as error:
        raise write_failed(path, error) from error


def _bad_option(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="--output")


def default_outputs(bound: BoundGraph) -> list[Wanted]:
    """What the graph returns."""
    return [Wanted(name) for name in bound.output_names]


@dataclass
class Kept:
    """The values of one output so far."""

    wanted: Wanted
    dtype: str
    values: list[Array] = field(default_factory=list)

    def keep(self, executor: Executor) -> None:
        """Keep the value after a step."""
        if not self.wanted.stacked:
            self.values.clear()
        value = executor.fetch(self.wanted.name)
        if self.values and value.shape != self.values[0].shape:
            message = f"{self.wanted.name!r} is {list(value.shape)} in step {len(self.values)}"
            message += f" and {list(self.values[0].shape)} before, so that the values cannot be stacked"
            raise ExecutionError(Diagnostic(Code.SHAPE_MISMATCH, message, None, "leave out the [] of the output"))
        self.values.append(value)

    @property
    def array(self) -> Array:
        """The last value, or all of them stacked."""
        return np.stack(self.values) if self.wanted.stacked else self.values[-1]

    def facts(self) -> dict[str, Any]:
        """The value with its statistics, as plain values."""
        array = self.array
        found = {"name": self.wanted.name, "dtype": self.dtype, "shape": list(array.shape), **statistics(array)}
        if self.wanted.path is not None:
            found["file"] = self.wanted.path + (f":{self.wanted.key}" if self.wanted.key else "")
        return found

    def line(self) -> str:
        """The value as a line of text."""
        facts = self.facts()
        numbers = [f"{name} {_short(facts[name])}" for name in ("min", "max", "mean") if facts[name] is not None]
        numbers += [f"{name} {facts[name]}" for name in ("nan", "inf") if facts[name]]
        place = f"  -> {facts['file']}" if "file" in facts else ""
        shape = f"[{', '.join(map(str, facts['shape']))}]" if facts["shape"] else ""
        return f"{facts['name']}: {self.dtype}{shape} = {format_truncated(self.array)}  {', '.join(numbers)}{place}"


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


class Results:
    """Everything that is kept of a run: outputs, and persistent memory if it is to be saved."""

    def __init__(self, executor: Executor, wanted: list[Wanted], state_path: str | None) -> None:
        self._executor = executor
        self._state_path = state_path
        for one in wanted:
            _require_value(executor.bound, one.name)
        for path in filter(None, [*(one.path for one in wanted), state_path]):
            require_writable(path)
        self._kept = [Kept(one, executor.bound.vars[one.name].dtype.name) for one in wanted]
        self._nodes: list[int] = []

    def keep(self, _step: int) -> None:
        """Keep the values after a step."""
        for one in self._kept:
            one.keep(self._executor)
        self._nodes.append(len(self._executor.events) + self._executor.dropped_events)

    def write(self) -> Iterator[str]:
        """Write the files one by one, each completely or not at all; yields the path of each finished file."""
        archives: dict[str, dict[str, Array]] = {}
        for one in self._kept:
            path = one.wanted.path
            if path is not None and is_archive(path):
                archives.setdefault(path, {})[one.wanted.key] = one.array
            elif path is not None:
                write_array(path, one.array)
                yield path
        for path, arrays in archives.items():
            write_archive(path, arrays)
            yield path
        if self._state_path is not None:
            self._executor.save_state(self._state_path)
            yield self._state_path

    def facts(self, seconds: list[float]) -> dict[str, Any]:
        """The run as plain values. The number of executed nodes is known only if they were recorded."""
        bound = self._executor.bound
        return {
            "ok": True,
            "sizes": dict(bound.sizes),
            "bounds": dict(bound.bounds),
            "steps": len(seconds),
            "seconds": sum(seconds),
            "step_seconds": seconds,
            "nodes": sum(self._nodes) if all(self._nodes) else None,
            "outputs": [one.facts() for one in self._kept],
            "state": self._state_path,
        }

    def json(self, seconds: list[float]) -> str:
        """The run as JSON."""
        return json.dumps(self.facts(seconds), indent=2, allow_nan=False)

    def text(self, seconds: list[float]) -> str:
        """The run as text."""
        lines = [one.line() for one in self._kept]
        lines += [f"state -> {self._state_path}"] if self._state_path is not None else []
        count = len(seconds)
        return "\n".join([*lines, f"{count} step{'s' * (count != 1)} in {sum(seconds) * 1000:.3f} ms"])


def _require_value(bound: BoundGraph, name: str) -> None:
    variable = bound.vars.get(name)
    if variable is None:
        advice = nearest(name, bound.vars)
        raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, f"there is no variable {name!r}", None, advice))
    if variable.decl is not None and variable.decl.pattern is not None:
        message = f"{name!r} is a family of model tensors, not one value"
        raise ExecutionError(Diagnostic(Code.BAD_INDEXING, message, variable.decl.span))
