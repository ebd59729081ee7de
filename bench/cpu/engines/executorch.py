"""ExecuTorch with XNNPACK: the ONNX file as a PyTorch module, exported and lowered ahead of time."""

from pathlib import Path
from typing import ClassVar

from bench.cpu.engines.base import ONNX, Array, feeds

FILE = "model.pte"


def convert(folder: Path) -> None:
    """``model.pte``."""
    import torch
    from bench.cpu.onnx_torch import OnnxModule
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    given = tuple(torch.from_numpy(one) for one in feeds(folder).values())
    with torch.no_grad():
        exported = torch.export.export(OnnxModule(folder / ONNX).eval(), given)
        lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    (folder / "executorch").mkdir(exist_ok=True)
    (folder / "executorch" / FILE).write_bytes(lowered.to_executorch().buffer)


class ExecuTorch:
    """ExecuTorch's runtime through its own bindings."""

    name: ClassVar[str] = "executorch"

    def __init__(self, folder: Path, model: str, threads: int) -> None:
        import torch
        from executorch.extension.pybindings import portable_lib

        del model
        self.folder, self._threads, self._library = folder / self.name, threads, portable_lib
        self._inputs = tuple(torch.from_numpy(one) for one in feeds(folder).values())

    def load(self) -> None:
        self._library._unsafe_reset_threadpool(self._threads)
        module = self._library._load_for_executorch(str(self.folder / FILE))
        given = self._inputs

        def step() -> None:
            self._result = module.forward(given)

        self.step = step

    def output(self) -> Array:
        return self._result[0].numpy()
