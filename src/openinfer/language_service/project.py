"""The model and sizes that a graph is checked with: from a comment in it, or from ``openinfer.toml`` beside it.

The comment holds command-line options: ``// openinfer: --model mlp.oinf --size B=4 --input x=randn:0``. The file has
``model``, ``sizes``, ``inputs`` and ``steps``, for all graphs in its folder or, below ``[graphs."mlp.oig"]``, for one;
it applies to subfolders, too. Paths are relative to the file that contains them. The comment takes precedence over
the file.
"""

import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from openinfer.errors import Code, Diagnostic, GraphError, OinfError, Source, Span, nearest
from openinfer.oinf.options import size_options

PROJECT_FILE = "openinfer.toml"
_COMMENT = re.compile(r"^[ \t]*//[ \t]*openinfer:(?P<options>[^\n]*)", re.MULTILINE)
_OPTIONS = {"--model": "model", "-m": "model", "--size": "size", "--input": "input", "-i": "input", "--steps": "steps"}
_KEYS = ("model", "sizes", "inputs", "steps")


@dataclass(frozen=True)
class Surroundings:
    """The model, sizes and inputs of a graph, and problems with how they are given."""

    model: str | None = None
    """The path of the model."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    """By name, in the forms that ``--input`` accepts."""
    steps: int | None = None
    problems: tuple[Diagnostic, ...] = ()

    def over(self, other: "Surroundings") -> "Surroundings":
        """These settings, completed by the others where these have none."""
        return Surroundings(
            self.model or other.model,
            {**other.sizes, **self.sizes},
            {**other.inputs, **self.inputs},
            self.steps or other.steps,
            (*other.problems, *self.problems),
        )

    def required(self) -> "Surroundings":
        """These settings; raises if there are problems with them."""
        if self.problems:
            raise GraphError(*self.problems)
        return self


def surroundings_of(path: str | None, text: str) -> Surroundings:
    """The surroundings of a graph. A text without a path has no project file."""
    source = Source(path or "<graph>", text)
    folder = None if path is None else Path(path).resolve().parent
    said = _said_in(source, folder)
    if path is None or folder is None:
        return said
    project = _project_file(folder)
    if project is None:
        return said
    return said.over(_read(str(project), project.stat().st_mtime_ns, str(Path(path).resolve())))


# --- the comment ------------------------------------------------------------------------------------------------------


def _said_in(source: Source, folder: Path | None) -> Surroundings:
    found = Surroundings()
    for match in _COMMENT.finditer(source.text):
        span = Span(source, match.start("options") + 1, match.end())
        try:
            words = shlex.split(match["options"])
        except ValueError as error:
            return replace(found, problems=(*found.problems, _wrong(f"invalid options: {error}", span)))
        found = _options(words, span, folder).over(found)
    return found


def _options(words: list[str], span: Span, folder: Path | None) -> Surroundings:
    given: dict[str, list[str]] = {"model": [], "size": [], "input": [], "steps": []}
    todo = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    while todo:
        option = todo.pop(0)
        if option not in _OPTIONS:
            advice = nearest(option, _OPTIONS) or f"there are {', '.join(one for one in _OPTIONS if one[1] == '-')}"
            return Surroundings(problems=(_wrong(f"there is no option {option!r:.60} here", span, advice),))
        if not todo:
            return Surroundings(problems=(_wrong(f"a value is missing behind {option}", span),))
        given[_OPTIONS[option]].append(todo.pop(0))
    problems: list[Diagnostic] = []
    model = None if not given["model"] else _path(given["model"][-1], folder)
    pairs = [one.partition("=") for one in given["input"]]
    steps = given["steps"][-1] if given["steps"] else None
    if steps is not None and not re.fullmatch("[1-9][0-9]{0,8}", steps):
        problems.append(_wrong(f"the number of steps is {steps!r:.60}, not an integer of at least 1", span))
        steps = None
    try:
        sizes = size_options(given["size"])
    except OinfError as error:
        sizes = {}
        problems.append(_wrong(error.message, span, error.diagnostics[0].help))
    inputs = {name: value for name, _, value in pairs}
    return Surroundings(model, sizes, inputs, None if steps is None else int(steps), tuple(problems))


# --- the file ---------------------------------------------------------------------------------------------------------


def _project_file(folder: Path) -> Path | None:
    return next((one / PROJECT_FILE for one in (folder, *folder.parents) if (one / PROJECT_FILE).is_file()), None)


@lru_cache(maxsize=64)
def _read(project: str, changed_at: int, graph: str) -> Surroundings:
    """The settings of a project file for a graph; ``changed_at`` is there to miss the cache when the file changes."""
    del changed_at
    folder = Path(project).parent
    try:
        text = Path(project).read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return Surroundings(problems=(_wrong(f"cannot read {project!r}: {error}", None),))
    graphs = document.pop("graphs", {})
    name = os.path.relpath(graph, folder).replace(os.sep, "/")
    if not isinstance(graphs, dict):
        return Surroundings(problems=(_wrong(f"'graphs' in {project!r} is not a table", None),))
    return _table(graphs.get(name, {}), project, folder).over(_table(document, project, folder))


def _table(table: Any, project: str, folder: Path) -> Surroundings:
    if not isinstance(table, dict):
        return Surroundings(problems=(_wrong(f"what {project!r} says about a graph is not a table", None),))
    problems = [
        _wrong(f"there is no {key!r:.60} in {project!r}", None, nearest(key, _KEYS))
        for key in table
        if key not in _KEYS
    ]
    model, sizes, inputs, steps = (table.get(key) for key in _KEYS)
    for key, value, wanted, is_right in (
        ("model", model, "a path", isinstance(model, str)),
        ("sizes", sizes, "a table of numbers", _is_table(sizes, int)),
        ("inputs", inputs, "a table of strings", _is_table(inputs, str)),
        ("steps", steps, "a number from 1 on", isinstance(steps, int) and steps > 0),
    ):
        if value is not None and not is_right:
            problems.append(_wrong(f"{key!r} in {project!r} is not {wanted}", None))
    return Surroundings(
        _path(model, folder) if isinstance(model, str) else None,
        {name: value for name, value in sizes.items() if type(value) is int} if isinstance(sizes, dict) else {},
        {name: value for name, value in inputs.items() if type(value) is str} if isinstance(inputs, dict) else {},
        steps if isinstance(steps, int) and steps > 0 else None,
        tuple(problems),
    )


def _is_table(value: object, element: type) -> bool:
    return isinstance(value, dict) and all(type(one) is element for one in value.values())


def _path(path: str, folder: Path | None) -> str:
    return path if folder is None else str(folder / path)


def _wrong(message: str, span: Span | None, advice: str | None = None) -> Diagnostic:
    return Diagnostic(Code.BAD_PROJECT, message, span, advice)
