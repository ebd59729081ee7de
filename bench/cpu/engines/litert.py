"""LiteRT (TensorFlow Lite) with XNNPACK; its files are written from the ONNX model."""

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
from bench.cpu.engines.base import ONNX, Array, feeds

FILE = "model.tflite"


def convert(folder: Path) -> None:
    """``model.tflite``, and which inputs have their channels last."""
    from bench.cpu.tflite_rules import translated

    made = translated(folder / ONNX)
    (folder / "litert").mkdir(exist_ok=True)
    (folder / "litert" / FILE).write_bytes(made.finished())
    (folder / "litert" / "inputs.json").write_text(json.dumps(made.inputs_last), encoding="ascii")


def channels_last(value: Array) -> Array:
    four = value[:, :, None] if value.ndim == 3 else value
    return np.ascontiguousarray(four.transpose(0, 2, 3, 1))


class LiteRt:
    """LiteRT's interpreter, which gives what it can to XNNPACK."""

    name: ClassVar[str] = "litert"

    def __init__(self, folder: Path, model: str, threads: int) -> None:
        from ai_edge_litert.interpreter import Interpreter

        del model
        self.folder, self._threads, self._library = folder / self.name, threads, Interpreter
        is_last = json.loads((self.folder / "inputs.json").read_text(encoding="ascii"))
        given = feeds(folder).values()
        self._inputs = [channels_last(one) if moved else one for one, moved in zip(given, is_last, strict=True)]

    def load(self) -> None:
        net = self._library(str(self.folder / FILE), num_threads=self._threads)
        net.allocate_tensors()
        for place, value in zip(net.get_input_details(), self._inputs, strict=True):
            net.set_tensor(place["index"], value)
        self._net = net
        self.step = net.invoke

    def output(self) -> Array:
        return self._net.get_tensor(self._net.get_output_details()[0]["index"])
