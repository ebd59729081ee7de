"""Reading digits: the two graphs and their models, the test images, and the program for a bare board."""

import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from examples.figures import Figures, Machine, side_by_side

from openinfer import Graph, ModelLoader, Plan, Synthesizer, load_graph

HERE = Path(__file__).parent
Precision = Literal["f32", "i8"]
STEMS: dict[Precision, str] = {"f32": "digits", "i8": "digits_i8"}
Images = npt.NDArray[np.uint8]


def network(precision: Precision) -> tuple[Graph, ModelLoader]:
    """The graph and the model in f32 or in integers."""
    stem = STEMS[precision]
    return load_graph(HERE / f"{stem}.oig"), ModelLoader.open(HERE / f"{stem}.oinf")


def circuit_network() -> tuple[Graph, ModelLoader]:
    """The graph and the model without floats, as an FPGA takes them."""
    return load_graph(HERE / "digits_circuit.oig"), ModelLoader.open(HERE / "digits_circuit.oinf")


def held_out() -> tuple[Images, Images]:
    """Images that the network has not been trained on, and what they show."""
    with np.load(HERE / "test.npz") as stored:
        return stored["images"], stored["labels"]


def answers(machine: Machine, images: Images) -> list[int]:
    """What a machine that takes one image at a time reads."""
    found = []
    for image in images:
        machine.insert(image=image[None])
        machine.run_step()
        found.append(int(machine.fetch("digit")[0]))
    return found


def art(image: npt.NDArray[Any]) -> str:
    """An image as text."""
    return "\n".join("".join(" .:-=+*#%@"[pixel * 9 // 16] * 2 for pixel in row) for row in image.reshape(8, 8))


def board_project(folder: Path, precision: Precision, device: str = "cortex-m4", images: int = 359) -> Plan:
    """Write the project for a board whose program, ``make example``, reads the test images."""
    graph, model = network(precision)
    plan = Synthesizer(device, name="digits", weights="array").synthesize(model, graph)
    plan.emit(folder)
    shutil.copy(HERE / "board.c", folder / "example" / "main.c")
    pixels, labels = (part[:images] for part in held_out())
    rows = ",\n".join(f"    {{{', '.join(map(str, image.ravel()))}}}" for image in pixels)
    (folder / "example" / "images.h").write_text(
        f"""enum {{ IMAGES = {len(pixels)}, SHOWN_FROM = 3, SHOWN_TO = 6 }};
static const uint8_t images[IMAGES][64] = {{\n{rows},\n}};
static const uint8_t labels[IMAGES] = {{{", ".join(map(str, labels))}}};
"""
    )
    return plan


def figures() -> Figures:
    """The row of this example: the network in integers."""
    graph, model = network("i8")
    with model:
        steps = [{"image": image[None]} for image in held_out()[0]]
        return side_by_side("CNN on 8x8 images, i8", graph, model, steps)
