"""Convolutional networks in integers: ours by ``openinfer quantize``, the ONNX model by ONNX Runtime's quantizer.

Both find ranges with the same inputs, and have a scale for each channel of weights; activations are of 8 bits with zero
points. Other engines read the ONNX model, with its pairs of QuantizeLinear and DequantizeLinear, or are translated
from it. What both make of a model is kept, since calibrating takes a while.
"""

import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench.models import Model
from bench.of_bytes import AT_ONCE

from openinfer import ModelLoader, quantize

Array = Any
KEPT = Path("build/bench/quantized")
SAMPLES = 4


def in_8_bits(original: Model) -> Model:
    """The same network in integers."""
    folder = _folder(original)
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _quantize_ours(original, folder)
        (folder / "qdq.onnx").write_bytes(_quantized_onnx(original, folder))
        (folder / "done").touch()
    with ModelLoader.open(folder / "float_i8.oinf") as loader:
        tensors = {name: loader.load(name).to_numpy().copy() for name in loader.tensors}
        sizes, metadata = dict(loader.sizevars), dict(loader.metadata)
    return replace(
        original,
        name=f"{original.name}, in 8 bits",
        text=(folder / "float_i8.oig").read_text(encoding="utf-8"),
        tensors=tensors,
        sizes=sizes,
        metadata=metadata,
        onnx=(folder / "qdq.onnx").read_bytes,
        at_once=AT_ONCE,
        read_bytes=original.read_bytes // 4,
        original=original,
    )


def _folder(original: Model) -> Path:
    found = hashlib.sha256(Path(__file__).read_bytes() + original.text.encode())
    for value in original.tensors.values():
        found.update(value.tobytes())
    return KEPT / found.hexdigest()[:16]


def _samples(original: Model) -> Array:
    """Inputs like the one that is measured, which is the first of them."""
    (x,) = original.inputs.values()
    others = np.random.default_rng(12).normal(size=(SAMPLES - 1, *x.shape)).astype(np.float32)
    return np.concatenate([x[None], others])


def _quantize_ours(original: Model, folder: Path) -> None:
    (folder / "float.oig").write_text(original.text, encoding="utf-8")
    original.saved(folder).close()
    (name,) = original.inputs
    samples = {name: _samples(original)}
    quantize(folder / "float.oig", folder / "model.oinf", folder, samples, observer="minmax", smooth=False)
    (folder / "model.oinf").unlink()


class _Reader:
    """Hands the samples to the quantizer, one after the other."""

    def __init__(self, original: Model) -> None:
        (name,) = original.inputs
        self._rest = iter([{name: one} for one in _samples(original)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._rest, None)


def _quantized_onnx(original: Model, folder: Path) -> bytes:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    given, made = folder / "float.onnx", folder / "qdq.onnx"
    given.write_bytes(original.onnx())
    own = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    logging.disable(logging.WARNING)  # it advises to optimize the graph first, which its runtime does itself
    quantize_static(str(given), str(made), _Reader(original), per_channel=True, **own)
    logging.disable(logging.NOTSET)
    given.unlink()
    return made.read_bytes()
