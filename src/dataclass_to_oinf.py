"""Author ``.oinf`` models from dataclasses: the documented import, kept thin over ``openinfer.oinf``."""

from openinfer.oinf import (
    Bitset,
    QuantOffset,
    QuantParams,
    QuantScale,
    QuantZeroPoint,
    ScalarValue,
    SizeVar,
    TensorSpec,
    UninitializedTensor,
    dataclass_to_oinf,
    write_oinf,
)

__all__ = [
    "Bitset",
    "QuantOffset",
    "QuantParams",
    "QuantScale",
    "QuantZeroPoint",
    "ScalarValue",
    "SizeVar",
    "TensorSpec",
    "UninitializedTensor",
    "dataclass_to_oinf",
    "write_oinf",
]
