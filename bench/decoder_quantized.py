"""The decoder with weights of 8 and of 4 bits: matrices stored small, everything else in f32.

With 8 bits, a row of a matrix has a scale; with 4 bits, a scale and a zero point. ONNX Runtime has both for every 32
weights in its ``MatMulNBits``, which knows no longer groups than a few hundred; with 8 bits it also rounds what it
multiplies by them, as its dynamic quantization does.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from bench.decoder import TEXT, Exported, Shape, decoder, is_matrix
from bench.models import Model

from openinfer.oinf import QuantParams, QuantScale, QuantZeroPoint, TensorSpec

Array = Any
GROUP = 32
MATRIX = re.compile(r"^    (W\w|head)(\(l\))?: f32\[(.+), (.+)\]", re.MULTILINE)
"""The declaration of a matrix: its name, whether each layer has one, and its extents."""


# --- 8 bits -----------------------------------------------------------------------------------------------------------


def rows_of_8_bits(matrix: Array) -> tuple[Array, Array]:
    """Integers from -127 to 127, and the scale of each row."""
    scale = (np.abs(matrix).max(axis=1) / 127).astype(np.float32)
    return np.rint(matrix / scale[:, None]).astype(np.int8), scale


def stored_in_8_bits(matrix: Array) -> TensorSpec:
    whole, scale = rows_of_8_bits(matrix)
    return TensorSpec(whole, "i8", quant=QuantParams("symmetric", QuantScale.per_channel(0, scale), None))


class ExportedInt8(Exported):
    """Products of integers; a vector is rounded to 8 bits just before."""

    def product(self, x: str, name: str, output: str | None = None) -> str:
        whole, scale = rows_of_8_bits(self.tensors[name])
        self.constants |= {f"{name}.whole": whole.T, f"{name}.scale": scale}
        own = tuple(f"{name}.{part}" for part in ("x", "x_scale", "x_zero"))
        rounded, x_scale, zero = self.nodes_of("DynamicQuantizeLinear", (x,), own)
        total = self.node("Cast", self.node("MatMulInteger", rounded, f"{name}.whole", zero), to=1)
        return self.node("Mul", total, self.node("Mul", x_scale, f"{name}.scale"), output=output)


def decoder_int8(shape: Shape) -> Model:
    original = decoder(shape)
    text = MATRIX.sub(lambda found: found[0].replace("f32", "i8"), TEXT)
    return replace(
        original,
        name=f"{original.name}, weights of 8 bits",
        text=text,
        tensors=_stored(original, stored_in_8_bits),
        onnx=lambda: ExportedInt8(shape, dict(original.tensors)).decoder(original.given),
        read_bytes=original.read_bytes - _matrix_elements(original) * 3,
        original=original,
    )


# --- 4 bits -----------------------------------------------------------------------------------------------------------


def integers_of_4_bits(groups: Array) -> tuple[Array, Array, Array]:
    """Integers from 0 to 15, and the scale and the zero point of each row."""
    low, high = np.minimum(groups.min(axis=1), 0), np.maximum(groups.max(axis=1), 0)
    scale = ((high - low) / 15).astype(np.float32)
    zero = np.rint(-low / scale)
    whole = np.clip(np.rint(groups / scale[:, None]) + zero[:, None], 0, 15)
    return whole.astype(np.uint8), scale, zero.astype(np.uint8)


def stored_in_4_bits(matrix: Array) -> TensorSpec:
    whole, scale, zero = integers_of_4_bits(matrix)
    found = QuantZeroPoint.per_channel(0, zero.astype(np.int32))
    return TensorSpec(whole, "u4", quant=QuantParams("asymmetric", QuantScale.per_channel(0, scale), found))


class ExportedInt4(Exported):
    """ONNX Runtime's own op; ``accuracy_level=4`` is its fastest, which rounds vectors to 8 bits."""

    def product(self, x: str, name: str, output: str | None = None) -> str:
        rows, columns = self.tensors[name].shape
        whole, scale, zero = integers_of_4_bits(self.tensors[name].reshape(-1, GROUP))
        bytes_of = whole.reshape(rows, columns // GROUP, GROUP // 2, 2)
        zeros = zero.reshape(rows, columns // GROUP // 2, 2)
        self.constants[f"{name}.whole"] = bytes_of[..., 0] | bytes_of[..., 1] << 4
        self.constants[f"{name}.scale"] = scale
        self.constants[f"{name}.zero"] = (zeros[..., 0] | zeros[..., 1] << 4).reshape(-1)
        attributes = {"K": columns, "N": rows, "bits": 4, "block_size": GROUP, "accuracy_level": 4}
        inputs = (x, f"{name}.whole", f"{name}.scale", f"{name}.zero")
        made = output or f"v{len(self.nodes)}"
        return self.nodes_of("MatMulNBits", inputs, (made,), domain="com.microsoft", **attributes)[0]


def decoder_int4(shape: Shape) -> Model:
    original = decoder(shape)
    return replace(
        original,
        name=f"{original.name}, weights of 4 bits",
        text=MATRIX.sub(lambda found: found[0].replace("f32", "u4"), TEXT),
        tensors=_stored(original, stored_in_4_bits),
        onnx=lambda: ExportedInt4(shape, dict(original.tensors)).decoder(original.given),
        read_bytes=original.read_bytes - _matrix_elements(original) * 7 // 2,
        original=original,
    )


def _stored(original: Model, stored: Callable[[Array], TensorSpec]) -> dict[str, Array | TensorSpec]:
    """The tensors, with other matrices."""
    return {name: stored(value) if is_matrix(name, value) else value for name, value in original.tensors.items()}


def _matrix_elements(original: Model) -> int:
    return sum(value.size for name, value in original.tensors.items() if is_matrix(name, value))
