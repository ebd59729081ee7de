"""What is measured on GPUs beside PyTorch: models with their inputs, and what each takes at least."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from bench.decoder import Shape, decoder
from bench.decoder_quantized import decoder_int4, decoder_int8
from bench.gpu.decode import TEXT, LlamaShape
from bench.minilm import minilm
from bench.models import Model, lstm, resnet
from bench.prefill import prefill

from openinfer.dtypes import DTYPES

_BF16 = DTYPES["bf16"].array
_DRY = Shape(layers=1, width=64, heads=4, head=16, hidden=96, classes=80, tokens=24)
_DRY_LLAMA = LlamaShape(layers=1, width=128, heads=4, groups=1, head=32, hidden=192, classes=96, tokens=96)
STEPS = 48
"""Of a decoder, which goes on through its context; fewer than it has room for."""


@dataclass(frozen=True)
class Case:
    """A model, and how PyTorch computes the same."""

    model: Model
    module: str
    """In ``bench.gpu.torch_side``; nothing where only the simulator is asked whether results are right."""
    tolerance: float
    """How far results may be off, relative to the largest."""
    unit: str = "f32"
    """What products are computed in, which says how fast they can be."""

    @property
    def flops(self) -> int:
        """Floating-point operations of its products."""
        return 2 * self.model.multiply_adds


def _nothing() -> bytes:
    raise AssertionError


def gemm(extent: int, kind: str) -> Case:
    """A product of two square matrices."""
    text = f"dynamic {{ x: {kind}[N, N]; }} constant {{ w: {kind}[N, N]; }} volatile {{ y: {kind}[N, N]; }} "
    text += "block entry { op linear(x, w) >> y; return y; }"
    rng, dtype = np.random.default_rng(2), DTYPES[kind].array
    x, w = (rng.normal(size=(extent, extent)).astype(np.float32).astype(dtype) for _ in range(2))
    nbytes = 3 * x.nbytes
    made = Model(f"GEMM {extent}", text, {"w": w}, {"N": extent}, {"x": x}, "y", _nothing, extent**3, nbytes)
    return Case(made, "Gemm", 2e-2 if kind == "bf16" else 1e-4, kind)


def token(shape: LlamaShape) -> Case:
    """A token of the large decoder in bf16, at the end of its context."""
    rng = np.random.default_rng(3)

    def weight(extents: tuple[int, ...]) -> Any:
        if len(extents) == 1:
            return rng.uniform(0.5, 1.5, extents).astype(_BF16)
        return (rng.standard_normal(extents, np.float32) * extents[1] ** -0.5).astype(_BF16)

    tensors = {name: weight(extents) for name, extents in shape.tensors.items()}
    first = shape.tokens - STEPS - 8
    past = (shape.layers, first, shape.groups, shape.head)
    tables = {name: rng.standard_normal(past, np.float32).astype(_BF16) for name in ("K", "V")}
    products = sum(prod(extents) for extents in shape.tensors.values())
    name = f"decode, {products / 1e9:.1f} billion weights, bf16"
    made = Model(name, TEXT, tensors, shape.sizes, {"token": np.array([7], np.int32)}, "logits", _nothing, products, 0)
    made = replace(made, plain={"step": np.int32(first)}, tables=tables, read_bytes=shape.read_bytes())
    return Case(made, "Llama", 3e-2, "bf16")


def with_room(one: Model) -> Model:
    """A decoder that can go on from where it is."""
    return replace(one, sizes={**one.sizes, "S": one.sizes["S"] + STEPS + 8})


def in_bf16(one: Model) -> Model:
    """A model of f32 with everything in bf16."""
    tensors = {name: value.astype(_BF16) for name, value in one.tensors.items()}
    text = re.sub(r"\bf32\b", "bf16", one.text)
    return replace(one, name=f"{one.name}, bf16", text=text, tensors=tensors, read_bytes=one.read_bytes // 2)


def batch_of(one: Model, count: int) -> Model:
    """A model of one image with many."""
    inputs = {name: np.concatenate([value] * count) for name, value in one.inputs.items()}
    text = one.text.replace("f32[1, ", f"f32[{count}, ").replace("shape=[1, ", f"shape=[{count}, ")
    products = one.multiply_adds * count
    return replace(one, name=f"{one.name}, {count} images", text=text, inputs=inputs, multiply_adds=products)


CASES: dict[str, tuple[Callable[[], Case], Callable[[], Case]]] = {
    "decode-f32": (
        lambda: Case(with_room(decoder(Shape())), "Decoder", 1e-3),
        lambda: Case(with_room(decoder(_DRY)), "Decoder", 1e-3),
    ),
    "decode-bf16": (lambda: token(LlamaShape()), lambda: token(_DRY_LLAMA)),
    "decode-8-bit": (
        lambda: Case(with_room(decoder_int8(Shape())), "", 1e-3),
        lambda: Case(with_room(decoder_int8(_DRY)), "", 1e-3),
    ),
    "decode-4-bit": (
        lambda: Case(with_room(decoder_int4(Shape())), "", 1e-3),
        lambda: Case(with_room(decoder_int4(_DRY)), "", 1e-3),
    ),
    "prefill-512": (
        lambda: Case(in_bf16(prefill(replace(Shape(), tokens=512))), "Prompt", 5e-2, "bf16"),
        lambda: Case(in_bf16(prefill(_DRY)), "Prompt", 5e-2, "bf16"),
    ),
    "prefill-2048": (
        lambda: Case(in_bf16(prefill(replace(Shape(), tokens=2048))), "Prompt", 5e-2, "bf16"),
        lambda: Case(in_bf16(prefill(replace(_DRY, tokens=40))), "Prompt", 5e-2, "bf16"),
    ),
    "minilm-1x128": (lambda: Case(minilm(1, 128), "Minilm", 1e-3), lambda: Case(minilm(1, 4), "Minilm", 1e-3)),
    "minilm-64x128": (lambda: Case(minilm(64, 128), "Minilm", 1e-3), lambda: Case(minilm(2, 3), "Minilm", 1e-3)),
    "resnet18-1": (lambda: Case(resnet(), "Resnet", 1e-3), lambda: Case(resnet(32), "Resnet", 1e-3)),
    "resnet18-64": (
        lambda: Case(batch_of(resnet(), 64), "Resnet", 1e-3),
        lambda: Case(batch_of(resnet(32), 2), "Resnet", 1e-3),
    ),
    "lstm": (lambda: Case(lstm(), "Lstm", 1e-3), lambda: Case(lstm(32), "Lstm", 1e-3)),
    "gemm-4096-f32": (lambda: gemm(4096, "f32"), lambda: gemm(48, "f32")),
    "gemm-4096-bf16": (lambda: gemm(4096, "bf16"), lambda: gemm(64, "bf16")),
    "gemm-8192-bf16": (lambda: gemm(8192, "bf16"), lambda: gemm(96, "bf16")),
}
"""How each is made, and how something small is that shows that everything is there to measure it."""
