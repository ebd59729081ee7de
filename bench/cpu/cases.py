"""The models that are measured, and which engines have them."""

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial

from bench.cnns import ds_cnn, efficientnet_lite0, mobilenet_v2, mobilenet_v3_small
from bench.cnns_int8 import in_8_bits
from bench.cpu.peers import ALL
from bench.decoder import Shape, decoder
from bench.decoder_groups import grouped
from bench.decoder_quantized import decoder_int4, decoder_int8
from bench.minilm import bert_base, minilm
from bench.models import Model, digits, lstm, mlp, resnet
from bench.of_bytes import digits_int8, mlp_int8
from bench.prefill import prefill
from bench.sequences import gru, tcn
from bench.vision import resnet50, unet_block, yolo_head
from bench.vit import vit_tiny

from openinfer.synth.targets.target import Allowed

LLAMA = Shape(layers=16)
PROMPT = Shape(layers=16, tokens=128)
WIDE, ROWS = (1024, 1024, 1024, 1024), 64
OF_ONNX = tuple(one for one in ALL if one not in ("torch", "llama.cpp"))
"""The engines that have every model in f32: those that read ONNX files, or what is made of them."""
WITH_TORCH = (*OF_ONNX, "torch")
WITH_STATE = ("ours", "onnxruntime", "openvino", "llama.cpp", "torch")
"""Those that have a decoder, whose keys and values stay from one step to the next."""
GGUF = ("ours", "llama.cpp")
OF_INTEGERS = ("ours", "onnxruntime", "openvino", "litert")
NETWORKS: dict[str, Callable[[], Model]] = {
    "ds-cnn": ds_cnn,
    "mobilenet-v2": mobilenet_v2,
    "mobilenet-v3-small": mobilenet_v3_small,
    "efficientnet-lite0": efficientnet_lite0,
    "resnet18": resnet,
    "resnet50": resnet50,
}
"""The networks that are measured in integers, too."""


@dataclass(frozen=True)
class Case:
    """A model by a short name; it is built when it is asked for."""

    key: str
    build: Callable[[], Model]
    engines: tuple[str, ...] = OF_ONNX
    """Those that the model is written for."""
    original: str | None = None
    """The case of the same model in f32."""
    gguf: str | None = None
    """The format that the weights of this decoder have in llama.cpp."""
    shape: Shape = LLAMA
    allow: frozenset[Allowed] = frozenset()
    """What generated code may do less exactly, as ncnn does unasked."""


def with_winograd(build: Callable[[], Model]) -> Model:
    model = build()
    return replace(model, name=f"{model.name}, Winograd allowed")


def of_integers(build: Callable[[], Model]) -> Model:
    return in_8_bits(build())


CASES = {
    case.key: case
    for case in (
        Case("mlp", mlp, WITH_TORCH),
        Case("minilm-1x16", lambda: minilm(1, 16), WITH_TORCH),
        Case("minilm-1x128", lambda: minilm(1, 128), WITH_TORCH),
        Case("minilm-8x128", lambda: minilm(8, 128), WITH_TORCH),
        Case("bert-base", lambda: bert_base(128)),
        Case("vit-tiny", vit_tiny),
        Case("mobilenet-v2", mobilenet_v2),
        Case("mobilenet-v3-small", mobilenet_v3_small),
        Case("efficientnet-lite0", efficientnet_lite0),
        Case("ds-cnn", ds_cnn),
        Case("resnet18", resnet, WITH_TORCH),
        Case("resnet50", resnet50),
        *(
            Case(f"{key}-winograd", partial(with_winograd, NETWORKS[key]), allow=frozenset({Allowed.WINOGRAD}))
            for key in ("resnet18", "resnet50")
        ),
        *(Case(f"{key}-int8", partial(of_integers, build), OF_INTEGERS, key) for key, build in NETWORKS.items()),
        Case("yolo-head", yolo_head),
        Case("unet-block", unet_block),
        Case("tcn", tcn),
        Case("decoder", lambda: decoder(LLAMA), WITH_STATE, gguf="F32"),
        Case("decoder-bf16", lambda: grouped(LLAMA, "BF16"), GGUF, "decoder", "BF16"),
        Case("decoder-q8", lambda: grouped(LLAMA, "Q8_0"), GGUF, "decoder", "Q8_0"),
        Case("decoder-q4", lambda: grouped(LLAMA, "Q4_0"), (*GGUF, "onnxruntime"), "decoder", "Q4_0"),
        Case("prefill", lambda: prefill(PROMPT), ("ours", "onnxruntime", "openvino", "llama.cpp"), None, "F32", PROMPT),
        Case("decoder-int8", lambda: decoder_int8(LLAMA), ("ours", "onnxruntime"), "decoder"),
        Case("decoder-int4", lambda: decoder_int4(LLAMA), ("ours", "onnxruntime"), "decoder"),
        Case("digits", digits, WITH_TORCH),
        Case("digits-int8", digits_int8, ("ours", "onnxruntime"), "digits"),
        Case("mlp-wide", lambda: mlp(WIDE, ROWS)),
        Case("mlp-wide-int8", lambda: mlp_int8(WIDE, ROWS), ("ours", "onnxruntime"), "mlp-wide"),
        Case("lstm", lstm, WITH_TORCH),
        Case("gru", gru),
    )
}


def keys_like(patterns: Sequence[str], parser: ArgumentParser) -> list[str]:
    """The models that patterns ask for, all if there are none; an error of the parser if no model is like them."""
    found = [key for key in CASES if not patterns or any(fnmatchcase(key, one) for one in patterns)]
    if not found:
        parser.error(f"no model is like {patterns[0]!r}: choose from {', '.join(CASES)}")
    return found
