"""Models for the tests of binding."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from openinfer import ModelLoader
from openinfer.oinf import save_file

MakeModel = Callable[..., ModelLoader]


@pytest.fixture
def make_model(tmp_path: Path) -> Iterator[MakeModel]:
    """Writes a model file and opens it: ``make_model({"w": array}, sizes={"D": 2}, metadata={"n": 3})``."""
    with ExitStack() as opened:

        def make(
            tensors: Mapping[str, Any] | None = None,
            sizes: Mapping[str, int] | None = None,
            metadata: Mapping[str, Any] | None = None,
        ) -> ModelLoader:
            path = tmp_path / "model.oinf"
            save_file(path, tensors or {}, sizevars=sizes, metadata=metadata)
            return opened.enter_context(ModelLoader.open(path))

        yield make
