"""The engines that read ONNX files."""

from pathlib import Path
from typing import ClassVar

import numpy as np
from bench.cpu.engines.base import ONNX, Array, feeds


class OnnxRuntime:
    """ONNX Runtime with its defaults (all optimizations, threads that wait awake), inputs and outputs bound."""

    name: ClassVar[str] = "onnxruntime"

    def __init__(self, folder: Path, model: str, threads: int) -> None:
        import onnxruntime

        del model
        self.folder, self._threads, self._library, self._inputs = folder, threads, onnxruntime, feeds(folder)

    def load(self) -> None:
        options = self._library.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
        path = str(self.folder / ONNX)
        session = self._library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name, value in self._inputs.items():
            binding.bind_ortvalue_input(name, self._library.OrtValue.ortvalue_from_numpy(value))
        for one in session.get_outputs():
            place = self._library.OrtValue.ortvalue_from_numpy(np.zeros(one.shape, np.float32))
            binding.bind_ortvalue_output(one.name, place)
        self._binding = binding
        self.step = lambda: session.run_with_iobinding(binding)

    def output(self) -> Array:
        return self._binding.get_outputs()[0].numpy()


class OpenVino:
    """OpenVINO, for the shortest time of a step, in f32; tensors of the request hold inputs and outputs."""

    name: ClassVar[str] = "openvino"

    def __init__(self, folder: Path, model: str, threads: int) -> None:
        import openvino

        del model
        self.folder, self._threads, self._library, self._inputs = folder, threads, openvino, feeds(folder)

    def load(self) -> None:
        core = self._library.Core()
        options = {
            "INFERENCE_NUM_THREADS": self._threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        compiled = core.compile_model(core.read_model(str(self.folder / ONNX)), "CPU", options)
        request = compiled.create_infer_request()
        for name, value in self._inputs.items():
            request.set_tensor(name, self._library.Tensor(value, shared_memory=True))
        self._request = request
        self.step = lambda: request.infer(share_inputs=True, share_outputs=True)

    def output(self) -> Array:
        return np.array(self._request.get_output_tensor(0).data)
