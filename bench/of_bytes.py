"""Models in integers: weights and what they are multiplied by are of 8 bits, sums of 32.

What a layer gives is rounded with one scale, known beforehand. ONNX Runtime does the same with the convolutions; with
the products of matrices it finds a scale for each step, as its dynamic quantization does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from bench.decoder_quantized import rows_of_8_bits
from bench.models import Model, digits, mlp, nbytes
from bench.onnx_writer import Onnx

Array = Any
AT_ONCE = 4
"""Products of bytes that a processor does in the time of one in f32, where it has instructions for them."""


# --- products of matrices ---------------------------------------------------------------------------------------------


def mlp_int8(widths: Sequence[int], rows: int) -> Model:
    original = mlp(widths, rows)
    tensors = _in_8_bits(original.tensors, original.inputs["x"], len(widths) - 1)
    return replace(
        original,
        name=f"{original.name}, in 8 bits",
        text=_text(widths, rows),
        tensors=tensors,
        onnx=lambda: _exported(original, len(widths) - 1, (rows, widths[-1])),
        at_once=AT_ONCE,
        read_bytes=nbytes(tensors),
        original=original,
    )


def _in_8_bits(tensors: Mapping[str, Array], x: Array, layers: int) -> dict[str, Array]:
    """Weights, biases in the units of their sums, and what makes bytes, or at last real numbers, of a sum."""
    found: dict[str, Array] = {"s": np.array(np.abs(x).max() / 127, np.float32)}
    scale = found["s"]
    for layer in range(layers):
        w, b = tensors[f"w{layer}"], tensors[f"b{layer}"]
        found[f"w{layer}"], own = rows_of_8_bits(w)
        found[f"b{layer}"] = np.rint(b / (own * scale)).astype(np.int32)
        x = x @ w.T + b
        unit = own * scale
        scale = np.float32(np.maximum(x, 0).max() / 127)
        found[f"s{layer}"] = (scale / unit if layer < layers - 1 else unit).astype(np.float32)
        x = np.maximum(x, 0)
    return found


def _text(widths: Sequence[int], rows: int) -> str:
    last = len(widths) - 2
    declared = [f"dynamic {{ x: f32[{rows}, {widths[0]}]; }} volatile {{ s: f32; q: i8[{rows}, {widths[0]}];"]
    lines = ["op quantize(x, s, to=i8) >> q;"]
    for layer, (inner, outer) in enumerate(pairwise(widths)):
        declared.append(f"w{layer}: i8[{outer}, {inner}]; b{layer}: i32[{outer}]; s{layer}: f32[{outer}];")
        declared.append(f"sum{layer}: i32[{rows}, {outer}]; h{layer}: f32[{rows}, {outer}];")
        lines.append(f"op linear({f'q{layer - 1}' if layer else 'q'}, w{layer}, b{layer}, acc=i32) >> sum{layer};")
        if layer == last:
            lines.append(f"op dequantize(sum{layer}, s{layer}, axis=1) >> h{layer};")
            continue
        declared.append(f"q{layer}: i8[{rows}, {outer}];")
        lines.append(f"op cast(sum{layer}, to=f32) >> h{layer}; op relu(h{layer}) >> h{layer};")
        lines.append(f"op quantize(h{layer}, s{layer}, to=i8, axis=1) >> q{layer};")
    return f"{' '.join(declared)} }} block entry {{ {' '.join(lines)} return h{last}; }}"


def _exported(original: Model, layers: int, shape: tuple[int, int]) -> bytes:
    onnx, h = Onnx(), "x"
    for layer in range(layers):
        whole, scale = rows_of_8_bits(original.tensors[f"w{layer}"])
        onnx.constants |= {f"w{layer}": whole.T, f"s{layer}": scale, f"b{layer}": original.tensors[f"b{layer}"]}
        own = tuple(f"{part}{layer}" for part in ("x", "x_scale", "x_zero"))
        rounded, x_scale, zero = onnx.nodes_of("DynamicQuantizeLinear", (h,), own)
        total = onnx.node("Cast", onnx.node("MatMulInteger", rounded, f"w{layer}", zero), to=1)
        real = onnx.node("Mul", total, onnx.node("Mul", x_scale, f"s{layer}"))
        h = onnx.node("Add", real, f"b{layer}")
        h = onnx.node("Relu", h) if layer < layers - 1 else h
    return onnx.model(original.inputs, {h: shape})


# --- convolutions -----------------------------------------------------------------------------------------------------


def digits_int8() -> Model:
    """The integer network of the example of that name."""
    from examples.digits.example import network

    original = digits()
    graph, loader = network("i8")
    with loader:
        tensors = {name: loader.load(name).to_numpy().copy() for name in loader.tensors}

    def exported() -> bytes:
        ones = {"one": np.array(1, np.float32), "zero": np.array(0, np.uint8)}
        onnx, h = Onnx(ones), "image"
        for layer in ("conv1", "conv2", "conv3"):
            weight, bias, scale = (tensors[f"{layer}.{part}"] for part in ("weight", "bias", "scale"))
            own = {f"{layer}.w": weight, f"{layer}.b": bias, f"{layer}.s": (1 / scale).astype(np.float32)}
            onnx.constants |= own | {f"{layer}.z": np.zeros(len(bias), np.int8)}
            factors = (h, "one", "zero", f"{layer}.w", f"{layer}.s", f"{layer}.z", "one", "zero", f"{layer}.b")
            h = onnx.node("QLinearConv", *factors, pads=[1] * 4)  # a u8 is never negative: no Relu
            h = onnx.node("MaxPool", h, kernel_shape=[2, 2], strides=[2, 2]) if layer != "conv1" else h
        onnx.constants |= {"w": tensors["out.weight"].T, "b": tensors["out.bias"], "s": tensors["out.scale"]}
        total = onnx.node("Add", onnx.node("MatMulInteger", onnx.node("Flatten", h), "w"), "b")
        onnx.node("Mul", onnx.node("Cast", total, to=1), "s", output="scores")
        return onnx.model(original.inputs, {"scores": (1, 10)})

    return replace(
        original,
        name=f"{original.name}, in 8 bits",
        text=graph.to_text(),
        tensors=tensors,
        onnx=exported,
        feeds=None,
        at_once=AT_ONCE,
        read_bytes=nbytes(tensors),
        original=original,
    )
