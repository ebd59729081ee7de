"""IREE: compiled ahead of time for this processor."""

import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
from bench.cpu.engines.base import ONNX, Array, feeds

FILE = "model.vmfb"
OPTIONS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling=true",
    "--iree-llvmcpu-enable-ukernels=all",
    "--iree-llvmcpu-stack-allocation-limit=262144",  # attention needs more than the default
)


def convert(folder: Path) -> None:
    """``model.vmfb``."""
    work, programs = folder / "iree", Path(sys.executable).parent
    work.mkdir(exist_ok=True)
    imported = [str(programs / "iree-import-onnx"), str(folder / ONNX), "-o", str(work / "model.mlir")]
    subprocess.run([*imported, "--opset-version", "18"], check=True)
    compiler = [str(programs / "iree-compile"), str(work / "model.mlir"), "-o", str(work / FILE)]
    subprocess.run([*compiler, *OPTIONS], check=True)
    (work / "model.mlir").unlink()


class Iree:
    """IREE's runtime: on one thread its synchronous driver, which is faster there."""

    name: ClassVar[str] = "iree"

    def __init__(self, folder: Path, model: str, threads: int) -> None:
        import iree.runtime

        del model
        self.folder, self._threads = folder / self.name, threads
        self._library, self._inputs = iree.runtime, feeds(folder)

    def load(self) -> None:
        library = self._library
        library.flags.parse_flags(f"--task_topology_group_count={self._threads}")
        config = library.Config("local-task" if self._threads > 1 else "local-sync")
        module = library.VmModule.mmap(config.vm_instance, str(self.folder / FILE))
        runtime = library.create_hal_module(config.vm_instance, config.device)
        context = library.SystemContext(vm_modules=[runtime, module], config=config)
        function = context.modules[module.name]["model"]
        given = [library.asdevicearray(config.device, one) for one in self._inputs.values()]

        def step() -> None:
            self._result = function(*given)

        self.step = step

    def output(self) -> Array:
        first = self._result[0] if isinstance(self._result, tuple) else self._result
        return np.asarray(first.to_host())
