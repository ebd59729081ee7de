"""What our writer writes is what the independent layout model writes, bit for bit."""

from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oinf.corpus import mlp, text
from tests.oinf.layout_model import (
    BITS,
    BITSET,
    NDARRAY,
    TAG,
    Document,
    MetadataRow,
    SizeVarRow,
    TensorRow,
    bitset,
    ndarray,
    quant,
)

from openinfer import ModelLoader
from openinfer.oinf import (
    Bitset,
    QuantParams,
    QuantScale,
    QuantZeroPoint,
    ScalarValue,
    SizeVar,
    TensorSpec,
    UninitializedTensor,
    dataclass_to_oinf,
    save_file,
)

CODES: dict[str, dict[int, int]] = {
    "u1": {0: 0, 1: 1},
    "u2": {value: value for value in range(4)},
    "u4": {value: value for value in range(16)},
    "i1": {0: 0, -1: 1},
    "i2": {0: 0, 1: 1, -2: 2, -1: 3},
    "i4": {value: value % 16 for value in range(-8, 8)},
    "t1": {-1: 0, 1: 1},
    "t2": {0: 0, 1: 1, -1: 3},
}


def _bit_stream(dtype: str, values: list[int]) -> bytes:
    """The stored form of packed values, one bit field after another from the least significant bit."""
    bits = BITS[TAG[dtype]]
    stream = sum(CODES[dtype][value] << at * bits for at, value in enumerate(values))
    return stream.to_bytes((len(values) * bits + 7) // 8, "little")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 65])
@pytest.mark.parametrize("dtype", CODES)
def test_packed_values_are_stored_from_the_least_significant_bit(dtype: str, count: int, tmp_path: Path) -> None:
    allowed = list(CODES[dtype])
    values = [allowed[(7 * at + at // 3 + 1) % len(allowed)] for at in range(count)]
    row = TensorRow(b"w", TAG[dtype], [count], _bit_stream(dtype, values))
    path = tmp_path / "model.oinf"
    save_file(path, {"w": TensorSpec(np.array(values, np.int8), dtype)})
    assert path.read_bytes() == Document(2, [], [], [row]).to_bytes()
    with ModelLoader.open(path) as model:
        assert model.load("w").to_numpy().astype(np.int8).tolist() == values


def test_the_documented_model_is_written_as_documented() -> None:
    names = {"B": SizeVar, "D": SizeVar, "H": SizeVar, "O": SizeVar}
    kinds: list[tuple[str, Any]] = [*names.items(), *((name, TensorSpec) for name in ("w1", "b1", "w2", "b2"))]
    rng = np.random.default_rng(1)
    shapes = {"w1": (16, 32), "b1": (32,), "w2": (32, 8), "b2": (8,)}
    tensors = {name: TensorSpec(rng.normal(size=shape).astype(np.float32)) for name, shape in shapes.items()}
    model = make_dataclass("MlpModel", kinds)(SizeVar(4), SizeVar(16), SizeVar(32), SizeVar(8), **tensors)
    assert dataclass_to_oinf(model) == mlp().to_bytes()


QUANTIZATIONS = {
    "symmetric per tensor": (QuantParams("symmetric", QuantScale.per_tensor(0.5)), quant(1, [0.5])),
    "asymmetric per tensor": (
        QuantParams("asymmetric", QuantScale.per_tensor(0.5), QuantZeroPoint.per_tensor(-3)),
        quant(2, [0.5], [-3]),
    ),
    "asymmetric without zero point": (QuantParams("asymmetric", QuantScale.per_tensor(0.5)), quant(2, [0.5])),
    "symmetric per channel": (
        QuantParams("symmetric", QuantScale.per_channel(1, [1, 2, 3])),
        quant(1, [1, 2, 3], axis=1),
    ),
    "asymmetric per channel": (
        QuantParams("asymmetric", QuantScale.per_channel(0, [0.5, 2.0]), QuantZeroPoint.per_channel(0, [7, -9])),
        quant(2, [0.5, 2.0], [7, -9], axis=0),
    ),
}


@pytest.mark.parametrize(("parameters", "payload"), QUANTIZATIONS.values(), ids=list(QUANTIZATIONS))
def test_quantization_is_written_and_read_as_documented(
    parameters: QuantParams, payload: bytes, tmp_path: Path
) -> None:
    values = np.arange(6, dtype=np.int8).reshape(2, 3)
    path = tmp_path / "model.oinf"
    rows = [
        TensorRow(b"declared", TAG["i8"], [2, 3], None, payload),
        TensorRow(b"w", TAG["i8"], [2, 3], values.tobytes(), payload),
    ]
    tensors = {
        "w": TensorSpec(values, quant=parameters),
        "declared": UninitializedTensor("i8", (2, 3), quant=parameters),
    }
    save_file(path, tensors)
    assert path.read_bytes() == Document(2, [], [], rows).to_bytes()
    with ModelLoader.open(path) as model:
        assert model.info("w").quant == model.info("declared").quant == parameters


def test_metadata_is_written_as_documented(tmp_path: Path) -> None:
    path = tmp_path / "model.oinf"
    metadata = {
        "on": True,
        "mode": "clamp_up",
        "mask": Bitset([True, False, True, True, False, False, False, False, True]),
        "grid": np.array([[1, 2], [3, 4]], np.int16),
        "tag": ScalarValue(-2, "i2"),
        "rate": 0.1,
    }
    save_file(path, {}, sizevars={"D": 2**64 - 1, "B": 0}, metadata=metadata)
    expected = Document(
        2,
        [SizeVarRow(b"B", 0), SizeVarRow(b"D", 2**64 - 1)],
        [
            MetadataRow(b"grid", NDARRAY, ndarray(TAG["i16"], [2, 2], np.array([1, 2, 3, 4], "<i2").tobytes())),
            MetadataRow(b"mask", BITSET, bitset([1, 0, 1, 1, 0, 0, 0, 0, 1])),
            text("mode", "clamp_up"),
            MetadataRow(b"on", TAG["bool"], b"\1"),
            MetadataRow(b"rate", TAG["f32"], np.float32(0.1).tobytes()),
            MetadataRow(b"tag", TAG["i2"], b"\2"),
        ],
    )
    assert path.read_bytes() == expected.to_bytes()
