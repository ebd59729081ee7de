"""The library of a project: compiled into the cache, loaded, and called through ctypes."""

import ctypes
from collections.abc import Sequence
from typing import Any

from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.synth.program.failures import DEVICE_STATUS, OF_STATUS
from openinfer.synth.run.build import library_of
from openinfer.synth.targets.project import Field, RunnableProject

FLAGS = ("-std=c11", "-O3", "-Wall", "-Wextra", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
_ADVICE = {
    "ERROR_STATE": "reset() or load_state(...) first",
    "ERROR_BUDGET": "give a larger node_budget, or None",
}
_DRIVERS = {
    "cuda": "an NVIDIA GPU with its driver, of the architecture in the device file; nvidia-smi shows it",
    "vulkan": "a driver that runs on every machine: apt-get install mesa-vulkan-drivers",
}
"""The advice for a program that finds no device, by programming interface."""


def compiled(project: RunnableProject, cc: str, flags: Sequence[str]) -> ctypes.CDLL:
    """Load the library of a project; it is compiled unless the cache has it."""
    own = (*flags, *project.build_options.flags)
    kernels = project.kernel_flags
    return library_of(project.code(), project.sources, cc, own, project.libraries, project.shaders, kernels)


def structure(name: str, fields: Sequence[Field]) -> type[ctypes.Structure]:
    """A struct of the header as a ctypes type."""
    kinds: list[tuple[str, Any]] = []
    for field in fields:
        match field.kind:
            case "pointer":
                kinds.append((field.name, ctypes.c_void_p))
            case "pointers":
                kinds.append((field.name, ctypes.c_void_p * field.count))
            case "int32":
                kinds.append((field.name, ctypes.c_int32))
            case "int64":
                kinds.append((field.name, ctypes.c_int64))
    return type(name, (ctypes.Structure,), {"_fields_": kinds or [("nothing", ctypes.c_char)]})


class Instance:
    """A context of a library, and the functions that take it."""

    def __init__(self, project: RunnableProject, library: ctypes.CDLL) -> None:
        self._library = library
        self._name = project.name
        self._failures = project.placed.failures.rows
        self._advice = {**_ADVICE, "ERROR_DEVICE": _DRIVERS.get(project.options.isa)}
        self._spans = {node.index: node.span for node in project.program.bound.graph.walk()}
        self.context: Any = structure("Context", project.traced_context)()
        self.function("last_error").restype = ctypes.c_char_p

    def function(self, name: str) -> Any:
        """A function of the library, by its name without the project prefix."""
        return getattr(self._library, f"{self._name}_{name}")

    def tell(self, name: str, *args: Any) -> None:
        """Call a function that returns nothing."""
        function = self.function(name)
        function.restype = None
        function(ctypes.byref(self.context), *args)

    def call(self, name: str, *args: Any) -> None:
        """Call a function that returns a status; an error status becomes an exception."""
        self.require(int(self.function(name)(ctypes.byref(self.context), *args)))

    def require(self, status: int) -> None:
        """Raise the error of a status."""
        if not status:
            return
        name, text = list(DEVICE_STATUS)[status], self.function("last_error")(ctypes.byref(self.context)).decode()
        code, span = OF_STATUS.get(name, Code.BAD_VALUE), None
        if name == "ERROR_BUSY":
            text = DEVICE_STATUS[name]  # the last error belongs to another call
        elif self.context.status == status:
            failure = self._failures[self.context.failure]
            code, span = failure.mistake.code, self._spans.get(failure.node)
        raise ExecutionError(Diagnostic(code, text, span, self._advice.get(name)))

    def heap(self, table: int) -> int:
        """The address of the heap memory of a growing table, or 0; the next call can move it."""
        return self.context.heap[table] or 0

    def reserve(self, table: int, cells: Sequence[int]) -> None:
        """Reserve memory for a number of cells along each axis of a growing table."""
        ends = (ctypes.c_int64 * len(cells))(*cells)
        if self.function("reserve")(ctypes.byref(self.context), ctypes.c_int(table), ends):
            raise ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, "there is no memory for the tables of the state"))
