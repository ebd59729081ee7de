"""The engines, each with what it needs to run a prepared folder, and called in the fastest way that Python offers.

An engine is found by its name, and its module imported only then: each runs in an environment that has it and NumPy.
"""

from importlib import import_module

from bench.cpu.engines.base import Engine

PLACES = {
    "ours": ("ours", "Ours"),
    "onnxruntime": ("of_onnx", "OnnxRuntime"),
    "openvino": ("of_onnx", "OpenVino"),
    "litert": ("litert", "LiteRt"),
    "executorch": ("executorch", "ExecuTorch"),
    "ncnn": ("ncnn", "Ncnn"),
    "mnn": ("mnn", "Mnn"),
    "iree": ("iree", "Iree"),
    "llama.cpp": ("llama", "Llama"),
    "torch": ("of_torch", "Torch"),
}
"""The module and the class of each engine."""


def engine_class(name: str) -> type[Engine]:
    """The class of an engine; imports what it needs."""
    module, known = PLACES[name]
    found: type[Engine] = getattr(import_module(f"bench.cpu.engines.{module}"), known)
    return found
