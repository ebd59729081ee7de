"""What people pass at first: paths for graphs, text for paths, lists for names. Each is answered in our words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import openinfer
from openinfer import ModelLoader, OpenInferError, Simulator, graph, load_graph
from openinfer.oinf import save_file

TEXT = "dynamic { x: f32[2]; } volatile { y: f32[2]; } block entry { op relu(x) >> y; return y; }"
untyped: Any = save_file
loader: Any = ModelLoader
simulator: Any = Simulator

MISTAKES: list[tuple[str, Callable[[], Any], str, str]] = [
    ("a path for a text", lambda: graph("nets/net.oig"), "this is a path", "load_graph(path)"),
    ("a text for a path", lambda: load_graph(TEXT), "it is the text of a graph, not a path", "graph(text)"),
    ("a path for a model", lambda: simulator("net.oinf"), "expected a model, got str", "ModelLoader.open(path)"),
    ("the class for open", lambda: loader("net.oinf"), "ModelLoader takes an open file", "ModelLoader.open(path)"),
    ("a text for a graph", lambda: simulator().make_executor(TEXT), "expected a Graph, got str", "graph(text)"),
    ("a list of tensors", lambda: untyped("m.oinf", [np.ones(2)]), "tensors are given by name", '{"w": array}'),
    ("no such variable", lambda: Simulator().make_executor(graph(TEXT)).fetch("q"), "no variable 'q'", "are x, y"),
]


@pytest.mark.parametrize(("call", "message", "advice"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_first_mistake_is_explained(call: Callable[[], Any], message: str, advice: str) -> None:
    with pytest.raises(OpenInferError) as caught:
        call()
    assert message in caught.value.message
    assert advice in (caught.value.diagnostics[0].help or "")


def test_a_misspelt_name_of_the_package_is_suggested() -> None:
    with pytest.raises(AttributeError, match="did you mean 'load_graph'"):
        _ = openinfer.loadgraph
