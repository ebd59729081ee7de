"""Author the documented MLP model: ``python examples/openinfer-oinf/mlp_regression_oinf.py [FILE.oinf]``.

Two layers: D inputs, H hidden units, O outputs, for batches of B. The weights are random but always the same.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dataclass_to_oinf import SizeVar, TensorSpec, write_oinf
from verify_oinf import verify_oinf


@dataclass
class MlpModel:
    B: SizeVar
    D: SizeVar
    H: SizeVar
    O: SizeVar
    w1: TensorSpec
    b1: TensorSpec
    w2: TensorSpec
    b2: TensorSpec


def build() -> MlpModel:
    rng = np.random.default_rng(1)
    B, D, H, O = 4, 16, 32, 8
    return MlpModel(
        B=SizeVar(B),
        D=SizeVar(D),
        H=SizeVar(H),
        O=SizeVar(O),
        w1=TensorSpec(rng.normal(size=(D, H)).astype(np.float32)),
        b1=TensorSpec(rng.normal(size=(H,)).astype(np.float32)),
        w2=TensorSpec(rng.normal(size=(H, O)).astype(np.float32)),
        b2=TensorSpec(rng.normal(size=(O,)).astype(np.float32)),
    )


if __name__ == "__main__":
    default = Path(__file__).parents[2] / "res" / "models" / "mlp_regression.oinf"
    path = sys.argv[1] if len(sys.argv) > 1 else str(default)
    write_oinf(build(), path)
    verify_oinf(path)
