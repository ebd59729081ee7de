"""Graphs of these tests, bound in one line, and what binding them finds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.lang.sketches import sketch

from openinfer import BoundGraph, Graph, ModelLoader, bind, graph
from openinfer.check import check
from openinfer.check.sizes import mentioned_sizes
from openinfer.errors import Diagnostic

Sizes = Mapping[str, int]


def bound(text: str, model: ModelLoader | None = None, sizes: Sizes | None = None) -> BoundGraph:
    """A graph bound to a model."""
    built = graph(text)
    return bind(built, model, mentioned(built, sizes))


def problems(text: str, model: ModelLoader | None = None, sizes: Sizes | None = None) -> tuple[Diagnostic, ...]:
    """Everything that binding a graph finds; the text by itself is fine."""
    built = sketch(text)
    return check(built, model, mentioned(built, sizes)).problems


def mentioned(built: Graph, sizes: Sizes | None) -> Sizes | None:
    """The sizes that a graph has, of those that all graphs of a test share."""
    return sizes and {name: value for name, value in sizes.items() if name in mentioned_sizes(built)}


def codes(text: str, model: ModelLoader | None = None, sizes: Sizes | None = None) -> list[str]:
    """The codes of everything that binding a graph finds."""
    return [str(problem.code) for problem in problems(text, model, sizes)]


def messages(text: str, model: ModelLoader | None = None, sizes: Sizes | None = None) -> list[str]:
    """The messages of everything that binding a graph finds."""
    return [problem.message for problem in problems(text, model, sizes)]


def marked(problem: Diagnostic) -> str:
    """The text that a problem's carets stand under."""
    shown = problem.render().splitlines()
    line, carets = shown[3].partition("| ")[2], shown[4].partition("| ")[2]
    return line[carets.index("^") : carets.rindex("^") + 1]


def types(graph_: BoundGraph) -> dict[str, str]:
    """The types of all variables."""
    return {name: str(variable.type) for name, variable in graph_.vars.items()}


def floats(*shape: int) -> npt.NDArray[Any]:
    """An f32 array of ones."""
    return np.ones(shape, np.float32)
