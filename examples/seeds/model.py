"""The model of these programs: a vector ``a``, a ``scale``, ten square matrices ``W.0`` to ``W.9``."""

from pathlib import Path

import numpy as np

from openinfer import ModelLoader
from openinfer.oinf import save_file

BUILD = Path("build/examples/seeds")


def opened() -> ModelLoader:
    """Write the model, and open it."""
    rng = np.random.default_rng(0)
    tensors = {"a": rng.uniform(-1, 1, 1024), "scale": rng.uniform(0.5, 2, 1024)}
    tensors |= {f"W.{layer}": rng.normal(0, 0.5, (8, 8)) for layer in range(10)}
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / "model.oinf"
    sizes = {"B": 1024, "D": 8, "H": 2, "Dh": 4}
    save_file(path, {name: value.astype(np.float32) for name, value in tensors.items()}, sizes)
    return ModelLoader.open(path)
