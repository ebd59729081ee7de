"""CUDA on a machine without a GPU: a compiler that takes the place of nvcc, and a device that runs what it makes.

``emulated`` has both. Kernels and hosts are the generated ones, as they are: threads of a group take turns until they
wait for each other, memory holds rubbish before it is written, graphs hold what they are given.
"""

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).with_name("emulated")


def on_emulator() -> Mapping[str, str]:
    """The environment in which ``nvcc`` is the emulator's."""
    return {"PATH": f"{FOLDER}{os.pathsep}{os.environ['PATH']}"}
