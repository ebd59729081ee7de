"""``python -m examples.digits.circuit``: write ``digits_circuit.oinf``, with factors in place of scales in f32.

A sum of a layer becomes i8 by a division by a scale in f32. Without floats it is multiplied by a factor and shifted.
"""

import sys

import numpy as np
from examples.digits.example import HERE

from openinfer import ModelLoader
from openinfer.oinf import save_file

SHIFTS = {"conv1": 16, "conv2": 20, "conv3": 20}
"""How far the products are shifted in all, before and after the multiplication."""
SCORES = 23
"""One in the scores of the network with floats is 2 ** (23 - 8) here: four bits are lost before, four after."""


def main() -> int:
    """Write the model."""
    with ModelLoader.open(HERE / "digits_i8.oinf") as model:
        tensors = {name: np.asarray(model.load(name)) for name in model.tensors if not name.endswith(".scale")}
        for layer, bits in SHIFTS.items():
            scale = np.asarray(model.load(f"{layer}.scale")).astype(np.float64)
            tensors[f"{layer}.factor"] = np.rint(2.0**bits / scale).astype(np.int32).reshape(-1, 1, 1)
            # Shifts round down: with half a step more, they round to the nearest.
            tensors[f"{layer}.bias"] = tensors[f"{layer}.bias"] + np.rint(scale / 2).astype(np.int32)
        unit = np.asarray(model.load("out.scale")).astype(np.float64)
        tensors["out.factor"] = np.rint(unit * 2.0**SCORES).astype(np.int32)
        save_file(HERE / "digits_circuit.oinf", tensors, dict(model.sizevars))
    return 0


if __name__ == "__main__":
    sys.exit(main())
