"""The mixture of experts: its waves, its model in closed form, and what the table of examples says of it."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from examples.figures import Figures, side_by_side

from openinfer import Graph, ModelLoader, load_graph
from openinfer.oinf import save_file

HERE = Path(__file__).parent
S = 64
KINDS = ("sine", "square", "sawtooth")
CYCLES = (2, 3, 5)
NOISE = 0.4
EXAMPLES = 3000
Waves = npt.NDArray[np.float32]


def mixture() -> Graph:
    """The graph."""
    return load_graph(HERE / "experts.oig")


def waves(kind: str, count: int, rng: np.random.Generator) -> tuple[Waves, Waves]:
    """Clean waves of a kind, between -1 and 1, with any phase; and the same with noise."""
    turns = np.arange(S) / S * rng.choice(CYCLES, (count, 1)) + rng.random((count, 1))
    shapes = {
        "sine": np.sin(2 * np.pi * turns),
        "square": np.sign(np.sin(2 * np.pi * turns)),
        "sawtooth": turns % 1 * 2 - 1,
    }
    clean = shapes[kind]
    return clean.astype(np.float32), (clean + rng.normal(0, NOISE, clean.shape)).astype(np.float32)


def _fitted(inputs: npt.NDArray[Any], wanted: npt.NDArray[Any], ridge: float) -> npt.NDArray[Any]:
    """The matrix that makes the best of inputs, in the sense of least squares."""
    inputs, wanted = inputs.astype(np.float64), wanted.astype(np.float64)
    return np.linalg.solve(inputs.T @ inputs + ridge * np.eye(inputs.shape[1]), inputs.T @ wanted).T


def write_model(path: Path) -> None:
    """Fit the gate and the experts to examples; every fit is one linear system."""
    rng = np.random.default_rng(8)
    clean, noisy = zip(*(waves(kind, EXAMPLES, rng) for kind in KINDS), strict=True)
    power = np.abs(np.fft.rfft(np.concatenate(noisy))) ** 2
    power = np.hstack([power / power.sum(axis=1, keepdims=True), np.ones((len(power), 1))])
    gate = _fitted(power, np.repeat(np.eye(3), EXAMPLES, axis=0), 1e-3)
    directions = np.linalg.svd(clean[0], full_matrices=False)[2][: 2 * len(CYCLES)]
    tensors = {"gate": gate[:, :-1], "bias": gate[:, -1], "basis": directions}
    tensors |= {kind: _fitted(noisy[at], clean[at], 1.0) for at, kind in enumerate(KINDS) if at}
    sizes = {"S": S, "R": len(directions)}
    save_file(path, {name: np.ascontiguousarray(value, np.float32) for name, value in tensors.items()}, sizes)


def figures() -> Figures:
    """The row of this example."""
    rng = np.random.default_rng(9)
    with TemporaryDirectory() as folder:
        write_model(Path(folder) / "experts.oinf")
        with ModelLoader.open(Path(folder) / "experts.oinf") as model:
            steps = [{"x": waves(KINDS[step % 3], 1, rng)[1][0]} for step in range(90)]
            return side_by_side("3 experts of unlike size", mixture(), model, steps)
