"""The models that are measured, and which engines have them."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.decoder import Shape, decoder
from bench.decoder_quantized import decoder_int4, decoder_int8
from bench.minilm import minilm
from bench.models import Model, digits, lstm, mlp, resnet
from bench.of_bytes import digits_int8, mlp_int8

LLAMA = Shape(layers=16)
WIDE, ROWS = (1024, 1024, 1024, 1024), 64
ALL = ("ours", "onnxruntime", "openvino", "torch")


@dataclass(frozen=True)
class Case:
    """A model by a short name; it is built when it is asked for."""

    key: str
    build: Callable[[], Model]
    engines: tuple[str, ...] = ALL
    """Those that the model is written for."""
    original: str | None = None
    """The case of the same model in f32."""


CASES = {
    case.key: case
    for case in (
        Case("mlp", mlp),
        Case("minilm-1x16", lambda: minilm(1, 16)),
        Case("minilm-1x128", lambda: minilm(1, 128)),
        Case("minilm-8x128", lambda: minilm(8, 128)),
        Case("resnet18", resnet),
        Case("decoder", lambda: decoder(LLAMA)),
        Case("decoder-int8", lambda: decoder_int8(LLAMA), ("ours", "onnxruntime"), "decoder"),
        Case("decoder-int4", lambda: decoder_int4(LLAMA), ("ours", "onnxruntime"), "decoder"),
        Case("digits", digits),
        Case("digits-int8", digits_int8, ("ours", "onnxruntime"), "digits"),
        Case("mlp-wide", lambda: mlp(WIDE, ROWS), ("ours", "onnxruntime", "openvino")),
        Case("mlp-wide-int8", lambda: mlp_int8(WIDE, ROWS), ("ours", "onnxruntime"), "mlp-wide"),
        Case("lstm", lstm),
    )
}
