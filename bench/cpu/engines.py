"""The engines, each with what it needs to run a prepared folder, and called in the fastest way that Python offers.

Inputs lie where the engine reads them, outputs where it writes them: a step copies nothing that the engine would not
copy in a program of its own. A constructor imports the engine and reads the inputs, which are the caller's; ``load``
does all that depends on the model.
"""

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

THREADS = 2
Array = Any


class Engine(Protocol):
    """What the worker knows of an engine. ``step`` is set by ``load``."""

    name: ClassVar[str]
    step: Callable[[], Any]

    def __init__(self, folder: Path, model: str) -> None: ...

    def load(self) -> None:
        """Bring the model to where it can take a step."""

    def output(self) -> Array:
        """The result of the last step."""


def read(path: Path) -> dict[str, Array]:
    """Arrays by their names."""
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def feeds(folder: Path) -> dict[str, Array]:
    """The inputs of the ONNX model."""
    return read(folder / "feeds.npz")


class Ours:
    """Generated C: the library, the file of weights, and what ``program.json`` says of them."""

    name: ClassVar[str] = "ours"

    def __init__(self, folder: Path, model: str) -> None:
        del model
        self.folder, self._inputs = folder, read(folder / "inputs.npz")

    def load(self) -> None:
        folder = self.folder
        facts = json.loads((folder / "program.json").read_text(encoding="ascii"))
        self._facts = facts
        library = ctypes.CDLL(str(folder / "program.so"))
        context = _aligned(ctypes.c_size_t.in_dll(library, "net_context_bytes").value)
        arena, state = _aligned(facts["arena"]), _aligned(facts["state"])
        weights = np.memmap(folder / "weights.bin", np.uint8, mode="r")
        self._kept: list[Array] = [context, arena, state, weights]
        _succeeded(library.net_init(*_places(context), *_sized(arena), *_sized(state), *_sized(weights)))
        if facts["threads"] > 1:
            _succeeded(library.net_start_threads(*_places(context)))
        if (folder / "state.bin").exists():
            with (folder / "state.bin").open("rb") as file:
                file.readinto(memoryview(state))
        self._prepare(library, context, state)

    def _prepare(self, library: ctypes.CDLL, context: Array, state: Array) -> None:
        inputs = [self._inputs[name] for name in self._facts["inputs"]]
        self._results = (ctypes.c_void_p * len(self._facts["outputs"]))()
        given = (ctypes.c_void_p * len(inputs))(*(one.ctypes.data for one in inputs))
        restored = [state[first:last] for first, last in self._facts["restored"]]
        values = [one.copy() for one in restored]
        self._kept += [*inputs, given, library]
        function, where, results = library.net_step, *_places(context), self._results

        def step() -> None:
            for one, value in zip(restored, values, strict=True):
                one[:] = value
            _succeeded(function(where, given, results))

        self.step = step

    def output(self) -> Array:
        at, shape = self._facts["output"], tuple(self._facts["shape"])
        data = ctypes.cast(self._results[at], ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(data, shape).copy()


def _aligned(nbytes: int) -> Array:
    """Memory that starts on a cache line."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def _places(*arrays: Array) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(one.ctypes.data) for one in arrays]


def _sized(array: Array) -> tuple[ctypes.c_void_p, ctypes.c_size_t]:
    return ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)


def _succeeded(status: int) -> None:
    if status:
        raise RuntimeError(f"a function of the generated code says {status}")


class OnnxRuntime:
    """ONNX Runtime with its defaults (all optimizations, threads that wait awake), inputs and outputs bound."""

    name: ClassVar[str] = "onnxruntime"

    def __init__(self, folder: Path, model: str) -> None:
        import onnxruntime

        del model
        self.folder, self._library, self._inputs = folder, onnxruntime, feeds(folder)

    def load(self) -> None:
        options = self._library.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
        path = str(self.folder / "model.onnx")
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

    def __init__(self, folder: Path, model: str) -> None:
        import openvino

        del model
        self.folder, self._library, self._inputs = folder, openvino, feeds(folder)

    def load(self) -> None:
        core = self._library.Core()
        options = {
            "INFERENCE_NUM_THREADS": THREADS,
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        compiled = core.compile_model(core.read_model(str(self.folder / "model.onnx")), "CPU", options)
        request = compiled.create_infer_request()
        for name, value in self._inputs.items():
            request.set_tensor(name, self._library.Tensor(value, shared_memory=True))
        self._request = request
        self.step = lambda: request.infer(share_inputs=True, share_outputs=True)

    def output(self) -> Array:
        return np.array(self._request.get_output_tensor(0).data)


class Torch:
    """``torch.compile(mode="max-autotune")`` with frozen weights, which lets it choose how they are stored."""

    name: ClassVar[str] = "torch"

    def __init__(self, folder: Path, model: str) -> None:
        import safetensors.torch
        import torch
        import torch._dynamo
        import torch._inductor.compile_fx
        from bench.cpu.torch_models import MODULES

        self.folder, self._inputs = folder, feeds(folder)
        self._library, self._files, self._module = torch, safetensors.torch, MODULES[model]

    def load(self) -> None:
        torch = self._library
        torch.set_num_threads(THREADS)
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


ENGINES: dict[str, type[Engine]] = {one.name: one for one in (Ours, OnnxRuntime, OpenVino, Torch)}
