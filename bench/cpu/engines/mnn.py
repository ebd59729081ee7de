"""MNN: models through its own converter."""

from pathlib import Path
from typing import ClassVar

import numpy as np
from bench.cpu.engines.base import ONNX, RESULT, Array, feeds

FILE = "model.mnn"


def convert(folder: Path) -> None:
    """``model.mnn``.

    The converter is called as a function: the program ``mnnconvert`` installs a package that reports its use, with
    whatever ``pip`` comes first in ``PATH``.
    """
    import _tools

    work = folder / "mnn"
    work.mkdir(exist_ok=True)
    files = ["--modelFile", str(folder / ONNX), "--MNNModel", str(work / FILE)]
    _tools.mnnconvert(["mnnconvert", "-f", "ONNX", *files, "--bizCode", "bench"])
    if not (work / FILE).exists():
        raise RuntimeError("MNN's converter has written nothing")


class Mnn:
    """MNN in f32 (``precision: high``) through a session, whose input stays where it is."""

    name: ClassVar[str] = "mnn"

    def __init__(self, folder: Path, model: str, threads: int) -> None:
        import MNN

        del model
        self.folder, self._threads, self._library, self._inputs = folder / self.name, threads, MNN, feeds(folder)
        self._name = (folder / RESULT).read_text(encoding="utf-8")

    def load(self) -> None:
        library = self._library
        net = library.Interpreter(str(self.folder / FILE))
        session = net.createSession({"backend": "CPU", "numThread": self._threads, "precision": "high"})
        for name, value in self._inputs.items():
            whole = value.dtype.kind in "iub"
            given = np.ascontiguousarray(value.astype(np.int32) if whole else value)
            kind = library.Halide_Type_Int if whole else library.Halide_Type_Float
            host = library.Tensor(given.shape, kind, given, library.Tensor_DimensionType_Caffe)
            net.getSessionInput(session, name).copyFrom(host)
        self._net, self._session = net, session
        self.step = lambda: net.runSession(session)

    def output(self) -> Array:
        return np.array(self._net.getSessionOutput(self._session, self._name).getNumpyData())
