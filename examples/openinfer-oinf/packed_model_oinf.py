"""Everything the format can hold, once: metadata of all kinds, packed tensors, quantization, a tensor without data.

``python examples/openinfer-oinf/packed_model_oinf.py [FILE.oinf]``
"""

import sys
from dataclasses import dataclass, field

import numpy as np

from dataclass_to_oinf import (
    Bitset,
    QuantParams,
    QuantScale,
    QuantZeroPoint,
    ScalarValue,
    TensorSpec,
    UninitializedTensor,
    write_oinf,
)
from verify_oinf import verify_oinf


@dataclass
class PackedModel:
    D: int
    mode: str
    scale_meta: float
    layers: ScalarValue
    enabled: Bitset
    table: list[int]
    signs: TensorSpec
    nibbles: TensorSpec
    half: TensorSpec
    channels: TensorSpec
    state: UninitializedTensor
    tensors: dict[str, TensorSpec] = field(default_factory=dict)


def build() -> PackedModel:
    rng = np.random.default_rng(3)
    size = 8
    per_channel = QuantParams(
        "asymmetric",
        QuantScale.per_channel(0, [0.1, 0.2, 0.3, 0.4]),
        QuantZeroPoint.per_channel(0, [0, 3, -3, 10]),
    )
    return PackedModel(
        D=size,
        mode="clamp_up",
        scale_meta=0.1,
        layers=ScalarValue(12, "u16"),
        enabled=Bitset([True, False, True, True]),
        table=[1, 2, 300],
        signs=TensorSpec(rng.choice([-1, 1], size), "t1"),
        nibbles=TensorSpec(
            rng.integers(-8, 8, (size, size)), "i4", quant=QuantParams("symmetric", QuantScale.per_tensor(0.05))
        ),
        half=TensorSpec(rng.normal(size=size), "bf16"),
        channels=TensorSpec(rng.integers(-128, 128, (4, size)), "i8", quant=per_channel),
        state=UninitializedTensor("f32", (size, size)),
        tensors={f"W.{layer}": TensorSpec(rng.normal(size=(size, size)), "f8") for layer in range(2)},
    )


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "packed_model.oinf"
    write_oinf(build(), path)
    verify_oinf(path)
