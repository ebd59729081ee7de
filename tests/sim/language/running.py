"""Graphs of these tests, bound and run in one line, and the errors that binding and running them give."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.check.binding import mentioned

from openinfer import Executor, GraphError, ModelLoader, OpenInferError, Simulator, bind, graph
from openinfer.errors import Code
from openinfer.ops import Array

Sizes = Mapping[str, int]


def executor(text: str, model: ModelLoader | None = None, sizes: Sizes | None = None, **options: Any) -> Executor:
    """A graph ready to run."""
    built = graph(text)
    return Simulator(model, sizes=mentioned(built, sizes), **options).make_executor(built)


def after_step(text: str, model: ModelLoader | None = None, sizes: Sizes | None = None, **inputs: Any) -> Executor:
    """A graph that has run one step with these inputs."""
    ready = executor(text, model, sizes)
    step(ready, **inputs)
    return ready


def step(ready: Executor, **inputs: Any) -> Executor:
    """One step with these inputs."""
    ready.insert(inputs)
    ready.run_step()
    return ready


def binding_codes(text: str, model: ModelLoader | None = None, sizes: Sizes | None = None) -> list[Code]:
    """The codes of everything that is wrong when a graph is bound."""
    built = graph(text)
    with pytest.raises(GraphError) as caught:
        bind(built, model, mentioned(built, sizes))
    return [problem.code for problem in caught.value.diagnostics]


def text_codes(text: str) -> list[Code]:
    """The codes of everything that is wrong with a graph whatever the model."""
    with pytest.raises(GraphError) as caught:
        graph(text)
    return [problem.code for problem in caught.value.diagnostics]


def step_error(ready: Executor, **inputs: Any) -> OpenInferError:
    """The error that a step gives."""
    with pytest.raises(OpenInferError) as caught:
        step(ready, **inputs)
    return caught.value


def floats(*values: float) -> Array:
    """An f32 array."""
    return np.array(values, np.float32)
