"""The smallest useful model: one size, one tensor, one setting. Writes ``minimal_model.oinf`` to the current folder."""

from dataclasses import dataclass

import numpy as np

from dataclass_to_oinf import TensorSpec, write_oinf


@dataclass
class MinimalModel:
    B: int
    a: TensorSpec
    mode: str


def build() -> MinimalModel:
    size = 1024
    values = np.random.default_rng(7).uniform(-1.0, 1.0, size).astype(np.float32)
    return MinimalModel(B=size, a=TensorSpec(values), mode="clamp_up")


if __name__ == "__main__":
    write_oinf(build(), "minimal_model.oinf")
