"""Train the recurrent cell of ``tones.oig`` and write ``tones.oinf``: about two minutes, with ``torch``.

What the cell learns from, it gets from the graph itself: the calls are played through the generated C, and the features
of every chunk are fetched. ``python -m examples.tones.train``.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import torch
from examples.tones.example import HERE, listener
from examples.tones.signals import CHUNK, HIGH, LOW, RATE, Line, dialled, random_number
from torch import nn

from openinfer import ModelLoader, Synthesizer
from openinfer.oinf import save_file

HIDDEN = 24
TAPS = 65
CALLS = 512
STEPS = 1500
Array = npt.NDArray[np.float32]


def high_pass() -> Array:
    """Taps that let pass what is above 500 Hz: all frequencies less a low-pass filter under a Hamming window."""
    time = np.arange(TAPS) - TAPS // 2
    low = np.sinc(2 * 500 / RATE * time) * np.hamming(TAPS)
    taps = -low / low.sum()
    taps[TAPS // 2] += 1
    return np.asarray(taps, np.float32)


def bank() -> Array:
    """For each tone, how much the frequencies of a spectrum of two chunks say about it: a bump around it."""
    frequencies = np.arange(CHUNK + 1) * RATE / (2 * CHUNK)
    distance = frequencies[:, None] - np.array(LOW + HIGH)[None]
    return np.asarray(np.exp(-((distance / 35) ** 2)), np.float32)


class Cell(nn.Module):
    """The cell over a whole call."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(10, HIDDEN, batch_first=True)
        self.key = nn.Linear(HIDDEN, 17)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Scores of the 16 keys and of silence for each chunk."""
        scores: torch.Tensor = self.key(self.gru(features)[0])
        return scores

    def tensors(self) -> dict[str, Array]:
        """The weights by the names of the graph."""
        found = {name: getattr(self.gru, f"weight_{name[2:]}_l0") for name in ("w_ih", "w_hh")}
        found |= {name: getattr(self.gru, f"bias_{name[2:]}_l0") for name in ("b_ih", "b_hh")}
        found |= {"w_key": self.key.weight, "b_key": self.key.bias}
        return {name: value.detach().numpy() for name, value in found.items()}


def write_model(path: Path, cell: Cell) -> None:
    """Filters and cell as a model file."""
    tensors = {"taps": high_pass(), "bank": bank(), **cell.tensors()}
    save_file(path, tensors, sizevars={"K": TAPS, "H": HIDDEN})


def calls(rng: np.random.Generator, chunks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and keys of calls over lines from clear to hardly audible, all cut to the same length."""
    with TemporaryDirectory() as folder:
        write_model(Path(folder) / "untrained.oinf", Cell())
        module = (
            Synthesizer("generic").synthesize(ModelLoader.open(Path(folder) / "untrained.oinf"), listener()).build()
        )
    features = np.zeros((CALLS, chunks, 10), np.float32)
    keys = np.full((CALLS, chunks), 16)
    for call in range(CALLS):
        line = Line(rng.uniform(-6, 30), rng.uniform(-42, -8))
        samples, down = dialled(random_number(rng, 12), line, rng)
        module.reset()
        for at in range(min(chunks, len(samples) // CHUNK)):
            here = slice(at * CHUNK, (at + 1) * CHUNK)
            module.insert(samples=samples[here])
            module.run_step()
            features[call, at] = module.fetch("features")
            middle = down[max(0, at * CHUNK - CHUNK // 2) : at * CHUNK + CHUNK // 2]  # of the two chunks it hears
            keys[call, at] = middle[0] if len(middle) and (middle == middle[0]).all() else 16
    return torch.tensor(features), torch.tensor(keys)


def main() -> None:
    """Train and write."""
    torch.manual_seed(0)
    features, keys = calls(np.random.default_rng(0), chunks=140)
    cell = Cell()
    optimizer = torch.optim.AdamW(cell.parameters(), 1e-2, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.5e-2, STEPS)
    for step in range(STEPS):
        part = torch.randint(0, CALLS, (64,))
        loss = nn.functional.cross_entropy(cell(features[part]).flatten(0, 1), keys[part].flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(cell.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 249:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    write_model(HERE / "tones.oinf", cell)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
