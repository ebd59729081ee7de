"""The adaptive filter: its model, the two rooms, and what the table of examples says of it."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from examples.figures import Figures, side_by_side

from openinfer import Graph, ModelLoader, load_graph
from openinfer.oinf import save_file

HERE = Path(__file__).parent
TAPS = 32
SAMPLES = 2000
MOVED = 1000
"""When somebody moves the microphone."""
Signal = npt.NDArray[np.float32]


def canceller() -> Graph:
    """The graph."""
    return load_graph(HERE / "online.oig")


def write_model(path: Path) -> None:
    """The model: a filter that knows nothing yet, and how fast it learns."""
    tensors = {"weights": np.zeros(TAPS), "rate": np.array(0.5), "floor": np.array(0.01)}
    save_file(path, {name: value.astype(np.float32) for name, value in tensors.items()}, sizevars={"N": TAPS})


def rooms() -> tuple[Signal, Signal]:
    """How the microphone hears the loudspeaker, before it is moved and afterwards: echoes that fade."""
    rng = np.random.default_rng(5)
    fading = np.exp(-np.arange(TAPS) / 6)
    before, after = (rng.normal(size=TAPS) * fading for _ in range(2))
    return before.astype(np.float32), after.astype(np.float32)


def signals() -> tuple[Signal, Signal]:
    """What the loudspeaker plays, and what the microphone hears of it, with a little noise."""
    rng = np.random.default_rng(6)
    played = rng.normal(size=SAMPLES).astype(np.float32)
    heard = [np.convolve(played, room)[:SAMPLES] for room in rooms()]
    noise = rng.normal(0, 0.01, SAMPLES)
    return played, (np.where(np.arange(SAMPLES) < MOVED, *heard) + noise).astype(np.float32)


def figures() -> Figures:
    """The row of this example."""
    with TemporaryDirectory() as folder:
        write_model(Path(folder) / "online.oinf")
        with ModelLoader.open(Path(folder) / "online.oinf") as model:
            steps = [{"loudspeaker": one, "microphone": other} for one, other in zip(*signals(), strict=True)]
            return side_by_side(f"adaptive filter, {TAPS} taps", canceller(), model, steps[:400])
