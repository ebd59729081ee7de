"""PyTorch's own compiler."""

from pathlib import Path
from typing import ClassVar

from bench.cpu.engines.base import Array, feeds


class Torch:
    """``torch.compile(mode="max-autotune")`` with frozen weights, which lets it choose how they are stored."""

    name: ClassVar[str] = "torch"

    def __init__(self, folder: Path, model: str, threads: int) -> None:
        import safetensors.torch
        import torch
        import torch._dynamo
        import torch._inductor.compile_fx
        from bench.cpu.torch_models import MODULES

        self.folder, self._threads, self._inputs = folder, threads, feeds(folder)
        self._library, self._files, self._module = torch, safetensors.torch, MODULES[model]

    def load(self) -> None:
        torch = self._library
        torch.set_num_threads(self._threads)
        torch.set_grad_enabled(False)
        weights = self._files.load_file(self.folder / "weights.safetensors")
        module = self._module(weights)
        given = module.prepared({name: torch.from_numpy(value) for name, value in self._inputs.items()})
        compiled = torch.compile(module.eval(), mode="max-autotune")

        def step() -> None:
            self._result = compiled(*given)

        self.step = step

    def output(self) -> Array:
        return self._result.numpy()
