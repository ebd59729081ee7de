"""The guarded tracker: its model, its readings, and what the table of examples says of it."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from examples.figures import Figures, side_by_side

from openinfer import Graph, ModelLoader, load_graph
from openinfer.oinf import save_file

HERE = Path(__file__).parent
READINGS = 60
BROKEN = {12: np.nan, 13: np.nan, 30: np.inf, 45: -np.inf}
"""What a loose wire makes of some readings."""


def guarded() -> Graph:
    """The graph."""
    return load_graph(HERE / "guard.oig")


def write_model(path: Path) -> None:
    """The model: a body that moves evenly, watched by a sensor for its position."""
    tensors = {"F": [[1.0, 1.0], [0.0, 1.0]], "gain": [0.5, 0.15], "look": [1.0, 0.0]}
    save_file(path, {name: np.array(values, np.float32) for name, values in tensors.items()})


def readings() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Where the body is, and what the sensor says."""
    rng = np.random.default_rng(3)
    truth = 8 * np.sin(np.arange(READINGS) / 9).astype(np.float32)
    measured = (truth + rng.normal(0, 0.4, READINGS)).astype(np.float32)
    measured[list(BROKEN)] = list(BROKEN.values())
    return truth, measured


def figures() -> Figures:
    """The row of this example."""
    with TemporaryDirectory() as folder:
        write_model(Path(folder) / "guard.oinf")
        with ModelLoader.open(Path(folder) / "guard.oinf") as model:
            steps = [{"reading": reading} for reading in readings()[1]]
            return side_by_side("tracker of 2 states", guarded(), model, steps)
