"""Emitted code, compiled here and called from Python: ``CompiledModule`` has the executor's verbs."""

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openinfer.dtypes import DType, pack, unpack
from openinfer.errors import Code, Diagnostic, ExecutionError, MissingExtraError, nearest
from openinfer.loops.dim import at, sizes_in
from openinfer.synth.c.project import Project
from openinfer.synth.program import Value

FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno")
Array = Any


def cache_folder() -> Path:
    """Where compiled modules are kept, by the hash of what they were made from."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "openinfer"


def built(project: Project, cc: str = "gcc", flags: Sequence[str] = FLAGS) -> "CompiledModule":
    """Compile a project into the cache, unless it is there, and load it."""
    if shutil.which(cc) is None:
        raise MissingExtraError(Diagnostic(Code.MISSING_TOOL, f"there is no compiler {cc!r} to build with"))
    files = {path: text if isinstance(text, bytes) else text.encode("ascii") for path, text in project.files().items()}
    digest = hashlib.sha256(repr((cc, tuple(flags), sorted(files.items()))).encode()).hexdigest()[:32]
    folder = cache_folder() / digest
    library = folder / "module.so"
    if not library.exists():
        _compile(files, folder, library, project.name, [cc, *flags])
    return CompiledModule(project, ctypes.CDLL(str(library)), (folder / "src" / "weights.bin").read_bytes())


def _compile(files: Mapping[str, bytes], folder: Path, library: Path, name: str, command: Sequence[str]) -> None:
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    partial = library.with_suffix(f".{os.getpid()}")
    options = ["-shared", "-fPIC", "-I", str(folder / "include"), str(folder / "src" / f"{name}.c")]
    line = [*command, *options, "-o", str(partial)]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)  # noqa: S603  (the user's own compiler)
    if ended.returncode != 0:
        message = f"the generated code does not compile: {ended.stderr[:2000]}"
        raise ExecutionError(Diagnostic(Code.NOT_SYNTHESIZED, message))
    partial.replace(library)


class CompiledModule:
    """Generated code with memory of its own."""

    def __init__(self, project: Project, library: ctypes.CDLL, weights: bytes) -> None:
        self._project = project
        self._program = project.program
        self._library = library
        self._name = project.name
        self._arena = _aligned(project.arena_bytes)
        self._state = _aligned(project.state_bytes)
        self._weights = _aligned(max(len(weights), 1))
        self._weights[: len(weights)] = np.frombuffer(weights, np.uint8)
        fields = [("pointers", ctypes.c_void_p * 4), ("failed_node", ctypes.c_int)]
        fields += [(f"s_{size}", ctypes.c_int64) for size in self._program.sizes]
        self._context = type("Context", (ctypes.Structure,), {"_fields_": fields})()
        self._inserted: dict[str, Array] = {}
        self._outputs: dict[str, Array] = {}
        status = self._call(
            "init",
            _address(self._arena),
            ctypes.c_size_t(project.arena_bytes),
            _address(self._state),
            ctypes.c_size_t(project.state_bytes),
            _address(self._weights),
            ctypes.c_size_t(len(weights)),
        )
        assert status == 0

    def _call(self, function: str, *args: Any) -> int:
        return int(getattr(self._library, f"{self._name}_{function}")(ctypes.byref(self._context), *args))

    def insert(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Give inputs for the next step, as the simulator's executor takes them."""
        for name, value in {**(values or {}), **named}.items():
            if name not in self._program.inputs:
                advice = nearest(name, self._program.inputs)
                raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, f"there is no input {name!r}", None, advice))
            array = np.asarray(value)
            own = self._program.inputs[name]
            self._inserted[name] = array if array.dtype == own.dtype.array else array.astype(own.dtype.array)

    def run_step(self) -> None:
        """Run one step."""
        program = self._program
        sizes = self._sizes()
        data = {name: _stored(self._inserted[name], value.dtype) for name, value in program.inputs.items()}
        fields: list[tuple[str, Any]] = [(f"v_{name}", ctypes.c_void_p) for name in program.inputs]
        fields += [(f"s_{size}", ctypes.c_int64) for size in self._project.input_sizes]
        inputs = type("Inputs", (ctypes.Structure,), {"_fields_": fields or [("unused", ctypes.c_char)]})()
        for name, array in data.items():
            setattr(inputs, f"v_{name}", array.ctypes.data)
        for size in self._project.input_sizes:
            setattr(inputs, f"s_{size}", sizes[size])
        results: list[tuple[str, Any]] = [(f"v_{name}", ctypes.c_void_p) for name in program.outputs]
        outputs = type("Outputs", (ctypes.Structure,), {"_fields_": results or [("unused", ctypes.c_char)]})()
        if self._call("step", ctypes.byref(inputs), ctypes.byref(outputs)):
            node = self._context.failed_node
            raise ExecutionError(Diagnostic(Code.BAD_VALUE, f"the step failed at node {node}"))
        now = {size: getattr(self._context, f"s_{size}") for size in program.sizes}
        for name, value in program.outputs.items():
            self._outputs[name] = _loaded(getattr(outputs, f"v_{name}"), value, now)
        self._inserted.clear()

    def _sizes(self) -> dict[str, int]:
        """The dynamic sizes that the inserted inputs have."""
        found: dict[str, int] = {}
        for name, value in self._program.inputs.items():
            for extent, actual in zip(value.shape, self._inserted[name].shape, strict=True):
                unknown = sizes_in(extent)
                if len(unknown) == 1:
                    size = unknown.pop()
                    found.setdefault(
                        size, next((n for n in range(actual + 1) if at(extent, {size: n}) == actual), actual)
                    )
        return found

    def fetch(self, *names: str) -> Any:
        """Copies of outputs and persistent variables."""
        found = tuple(self._fetch(name) for name in names)
        return found[0] if len(found) == 1 else found

    def _fetch(self, name: str) -> Array:
        if name in self._outputs:
            return self._outputs[name].copy()
        home = self._program.homes.get(name)
        if home is None or home not in self._project.printer.state_offsets:
            raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, f"generated code keeps no {name!r}"))
        address = self._state.ctypes.data + self._project.printer.state_offsets[home]
        return _loaded(address, home, {})

    def reset(self) -> None:
        """Put persistent memory back to its initial values."""
        self._call("reset")


def _aligned(nbytes: int) -> Array:
    """Memory that starts on a cache line."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def _address(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _stored(array: Array, dtype: DType) -> Array:
    contiguous = np.array(array, order="C")
    return pack(contiguous, dtype) if dtype.is_packed else contiguous.reshape(-1).view(np.uint8)


def _loaded(address: int, value: Value, sizes: Mapping[str, int]) -> Array:
    shape = tuple(at(extent, sizes) for extent in value.shape)
    count = int(np.prod(shape, dtype=np.int64))
    nbytes = value.dtype.nbytes(count)
    data = np.frombuffer(ctypes.string_at(address, nbytes), np.uint8) if nbytes else np.empty(0, np.uint8)
    if value.dtype.is_packed:
        return unpack(data, value.dtype, 0, count).reshape(shape)
    return data.view(value.dtype.array).reshape(shape)
