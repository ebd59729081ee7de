"""``python -m examples.digits``: read handwritten digits in f32 and in integers, here and on an emulated Cortex-M4."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from examples.digits.example import STEMS, answers, art, board_project, held_out, network

from openinfer import Simulator, Synthesizer

BUILD = Path("build/examples/digits")
TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm", "make")


def side(*pictures: str) -> str:
    """Pictures beside each other."""
    return "\n".join("   ".join(lines).rstrip() for lines in zip(*(one.splitlines() for one in pictures), strict=True))


def main() -> int:
    """Show some digits, count the right answers, and do the same on a board."""
    images, labels = held_out()
    first = [int(np.argmax(labels == digit)) for digit in range(10)]
    for row in (first[:5], first[5:]):
        print(side(*(art(images[at]) for at in row)) + "\n")
    for precision in STEMS:
        graph, model = network(precision)
        simulator = Simulator(model).with_trace("off").make_executor(graph)
        plan = Synthesizer(name="digits").synthesize(model, graph)
        for name, machine in (("simulator", simulator), ("C", plan.build())):
            found = answers(machine, images)
            right = sum(one == label for one, label in zip(found, labels, strict=True))
            share = f"{right} of {len(labels)} right ({right / len(labels):.2%})"
            print(f"{precision:3} {name:9} reads {' '.join(str(found[at]) for at in first)}; {share}")

    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        print(f"for the microcontroller, install {', '.join(missing)}")
        return 0
    for precision in STEMS:
        folder = BUILD / f"cortex-m4-{precision}"
        board_project(folder, precision)
        print(f"\nan emulated Cortex-M4, {precision}: make -C {folder} example", flush=True)
        ended = subprocess.run(["make", "-s", "-C", folder, "example"], check=False)
        if ended.returncode:
            return ended.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
