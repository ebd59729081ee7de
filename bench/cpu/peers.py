"""The engines that are measured against, and the environments that they live in.

Packages of different engines want different versions of NumPy, protobuf and flatbuffers. So each has an environment of
its own in ``build/peers``, which ``python -m bench.cpu.install`` makes. ONNX Runtime and torch, which the tests have
too, are in that of the benchmark itself.
"""

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HOME = ROOT / "build" / "peers"
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Peer:
    """An engine: what it is called in tables, its colour in pictures, and the package that it is."""

    name: str
    title: str
    colour: str
    package: str = ""
    first: tuple[str, ...] = ()
    """Packages that are installed first, with what they need."""
    alone: tuple[str, ...] = ()
    """Packages that are installed without what they say they need: that would be torch, or more than they use."""
    is_converted: bool = False
    """Whether it has a format of its own, which the ONNX model is made into beforehand."""

    @property
    def has_environment(self) -> bool:
        return bool(self.first or self.alone)

    @property
    def python(self) -> Path:
        return HOME / self.name / "bin" / "python"

    def environment(self) -> dict[str, str]:
        """The variables of a process in the engine's environment: its own programs first, and nothing to install from.

        Some converters call ``pip`` to add packages to whatever environment comes first in ``PATH``.
        """
        if not self.has_environment:
            return {**os.environ}
        path = os.pathsep.join((str(self.python.parent), "/usr/local/bin", "/usr/bin", "/bin"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "PIP_NO_INDEX": "1", "PIP_REQUIRE_VIRTUALENV": "1"}


NUMPY, ONNX = "numpy==2.4.6", "onnx==1.23.2"
PEERS = {
    one.name: one
    for one in (
        Peer("ours", "OpenInfer", "#4e79a7"),
        Peer("onnxruntime", "ONNX Runtime", "#f28e2b", "onnxruntime"),
        Peer("openvino", "OpenVINO", "#59a14f", "openvino", ("openvino==2026.4.1",)),
        Peer("litert", "LiteRT", "#e15759", "ai-edge-litert", ("ai-edge-litert==2.3.0", ONNX), is_converted=True),
        Peer(
            "executorch",
            "ExecuTorch",
            "#76b7b2",
            "executorch",
            (TORCH, NUMPY, ONNX, "flatbuffers", "packaging", "pyyaml", "ruamel.yaml", "tabulate", "pandas"),
            ("executorch==1.5.1", "torchao==0.18.0"),
            is_converted=True,
        ),
        Peer("ncnn", "ncnn", "#edc948", "ncnn", ("ncnn==1.0.20261020",), ("pnnx==20261020",), is_converted=True),
        Peer("mnn", "MNN", "#9c755f", "MNN", ("MNN==3.6.1",), is_converted=True),
        Peer(
            "iree",
            "IREE",
            "#ff9da7",
            "iree-base-runtime",
            ("iree-base-compiler==3.13.0", "iree-base-runtime==3.13.0", ONNX),
            is_converted=True,
        ),
        Peer("llama.cpp", "llama.cpp", "#bab0ac"),
        Peer("torch", "torch.compile", "#b07aa1", "torch"),
    )
}
"""All engines by name, ours first."""
ALL = tuple(PEERS)
