"""Generated C."""

import ctypes
import json
from pathlib import Path
from typing import ClassVar

import numpy as np
from bench.cpu.engines.base import Array, read


class Ours:
    """Generated C: the library, the file of weights, and what ``program.json`` says of them."""

    name: ClassVar[str] = "ours"

    def __init__(self, folder: Path, model: str, threads: int) -> None:
        del model
        self.folder, self._inputs = folder / f"ours-{threads}", read(folder / "inputs.npz")

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
        if hasattr(library, "net_start_threads"):
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
