"""Runs single kernels on a device: one device stays open per process, with an arena that all kernels share."""

import ctypes
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any

import numpy as np

from openinfer.dtypes import Bytes
from openinfer.errors import Code, Diagnostic, ExecutionError, OpenInferError
from openinfer.ops import OpError
from openinfer.synth.program.failures import DEVICE_MISTAKES, LOST_DEVICE, NO_DRIVER, NO_FEATURE, Mistake
from openinfer.synth.run.build import library_of, missing_vulkan
from openinfer.synth.run.library import FLAGS
from openinfer.synth.run.spirv import ShaderStore
from openinfer.synth.targets.node_kernel import NodeProgram

_ALIGNMENT = 256
_LEAST_ARENA = 1 << 20
_MOST_KERNELS = 1024
"""The most kernels that are open at a time; the least recently used one is closed."""
_REFUSED, _PROBLEM = 0, 1
"""The results of a run other than -1: the op has no result, or a problem number added to ``_PROBLEM``."""


class NoResultError(Exception):
    """A kernel has found a value for which its op has no result."""


class _Shader(ctypes.Structure):
    _fields_ = (
        ("words", ctypes.c_char_p),
        ("bytes", ctypes.c_size_t),
        ("waits", ctypes.c_int),
        ("exchanged", ctypes.c_size_t),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("shader", "first", "count", "can_fail")),
        ("groups", ctypes.c_int64),
    )


class _Argument(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_int64), ("number", ctypes.c_int64), ("is_written", ctypes.c_int32))


class NodeDevice:
    """One device and queue of this process. Threads take turns; a forked process opens its own."""

    def __init__(self, code: Mapping[str, str], libraries: Sequence[str]) -> None:
        """``code`` is the host code that talks to the device's driver."""
        sources = [path for path in code if path.endswith(".c")]
        self._library = _typed(library_of(code, sources, "gcc", FLAGS, libraries))
        self._store = ShaderStore()
        self._lock = RLock()
        self._process = 0
        self._open: OrderedDict[tuple[str, ...], int] = OrderedDict()
        """The shaders that the driver has compiled, with its handles."""
        self._memory: int | None = None
        self._bytes: Bytes = np.empty(0, np.uint8)
        with self._lock:
            self._grow(_LEAST_ARENA)

    # --- memory ---------------------------------------------------------------------------------------------------

    def _grow(self, nbytes: int) -> None:
        """Make the arena at least ``nbytes`` large. Open kernels are bound to their arena, so all are closed."""
        if self._process != os.getpid():
            # The device of the parent process cannot be used, and need not be released.
            self._process, self._memory, self._bytes = os.getpid(), None, np.empty(0, np.uint8)
            self._open.clear()
        if self._memory is not None and self._bytes.size >= nbytes:
            return
        size = max(nbytes, 2 * self._bytes.size)
        for one in self._open.values():
            self._library.nodes_close(one)
        self._open.clear()
        if self._memory is not None:
            self._library.nodes_release(self._memory)
            self._memory, self._bytes = None, np.empty(0, np.uint8)
        memory = self._library.nodes_memory(size)
        if memory is None:
            raise MemoryError
        handle = ctypes.c_void_p()
        problem = self._library.nodes_open(memory, size, None, 0, 0, ctypes.byref(handle))
        if problem >= 0:
            self._library.nodes_release(memory)
            raise _error(DEVICE_MISTAKES[problem])
        # The arena, and with it the device, outlives the instance that has made it.
        seen = (ctypes.c_uint8 * size).from_address(self._library.nodes_bytes(handle))
        self._library.nodes_close(handle)
        self._memory, self._bytes = memory, np.ctypeslib.as_array(seen)

    # --- kernels --------------------------------------------------------------------------------------------------

    def prepare(self, kernels: Sequence[NodeProgram]) -> list[OpError | None]:
        """Compile the shaders of kernels and load them into the driver; returns the error of each kernel, or None."""
        self._store.compile(text for one in kernels for text in one.shaders)
        with self._lock:
            self._grow(max((_room(one)[1] for one in kernels), default=0))
            return [self._problem(one) for one in kernels]

    def _problem(self, kernel: NodeProgram) -> OpError | None:
        try:
            self._opened(kernel)
        except OpError as error:
            return error
        return None

    def _opened(self, kernel: NodeProgram) -> int:
        self._grow(_room(kernel)[1])
        found = self._open.get(kernel.shaders)
        if found is not None:
            self._open.move_to_end(kernel.shaders)
            return found
        words = [self._store.words(text) for text in kernel.shaders]
        shaders = (_Shader * len(words))(*(_Shader(one, len(one)) for one in words))
        handle = ctypes.c_void_p()
        problem = self._library.nodes_open(
            self._memory, self._bytes.size, shaders, len(words), kernel.lanes, ctypes.byref(handle)
        )
        if problem >= 0:
            wrong = DEVICE_MISTAKES[problem]
            if wrong is NO_FEATURE:
                raise OpError(Code.MISSING_FEATURE, "this machine's device lacks a feature that the op needs here")
            raise _error(wrong)
        assert handle.value is not None
        self._open[kernel.shaders] = handle.value
        if len(self._open) > _MOST_KERNELS:
            self._library.nodes_close(self._open.popitem(last=False)[1])
        return handle.value

    def run(
        self, kernel: NodeProgram, inputs: Sequence[Bytes], outputs: Sequence[int]
    ) -> tuple[list[Bytes], int | None]:
        """Run a kernel on its inputs; returns its outputs, and the nanoseconds that the device took."""
        taken, offsets = ctypes.c_int64(), _room(kernel)[0]
        launches, arguments = _structs(kernel, offsets)
        with self._lock:
            opened = self._opened(kernel)
            for at, data in zip(offsets, inputs, strict=False):
                self._bytes[at : at + data.size] = data
            count = len(kernel.launches)
            first, last = (outputs[0], outputs[-1]) if outputs else (0, 0)
            given = offsets[len(inputs) - 1] + inputs[-1].size if inputs else 0
            made = offsets[last] + kernel.nbytes[last] - offsets[first] if outputs else 0
            ended = self._library.nodes_run(
                opened, count, launches, arguments, given, offsets[first] if outputs else 0, made, ctypes.byref(taken)
            )
            if ended == _REFUSED:
                raise NoResultError
            if ended >= _PROBLEM:
                raise self._lost(DEVICE_MISTAKES[ended - _PROBLEM])
            places = [(offsets[one], kernel.nbytes[one]) for one in outputs]
            found = [self._bytes[at : at + size].copy() for at, size in places]
        return found, None if taken.value < 0 else taken.value

    def _lost(self, wrong: Mistake) -> OpenInferError:
        """The error of a failed run; a lost device is reopened by the next call."""
        if wrong is LOST_DEVICE:
            self._process = 0
        return _error(wrong)


def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32
    functions: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
        ("nodes_memory", pointer, (size,)),
        ("nodes_release", None, (pointer,)),
        ("nodes_open", number, (pointer, size, pointer, number, ctypes.c_uint32, pointer)),
        ("nodes_close", None, (pointer,)),
        ("nodes_bytes", pointer, (pointer,)),
        ("nodes_run", number, (pointer, number, pointer, pointer, size, size, size, pointer)),
    )
    for name, result, arguments in functions:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _room(kernel: NodeProgram) -> tuple[tuple[int, ...], int]:
    """The offsets of a kernel's buffers, one after the other, and their end."""
    offsets, end = [], 0
    for nbytes in kernel.nbytes:
        offsets.append(end)
        end += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    return tuple(offsets), end + _ALIGNMENT


def _structs(kernel: NodeProgram, offsets: Sequence[int]) -> tuple[Any, Any]:
    arguments = [
        _Argument(-1, one.number, 0)
        if one.buffer < 0
        else _Argument(offsets[one.buffer], kernel.nbytes[one.buffer], one.is_written)
        for launch in kernel.launches
        for one in launch.arguments
    ]
    launches, first = [], 0
    for place, one in enumerate(kernel.launches):
        launches.append(_Launch(place, first, len(one.arguments), one.can_fail, one.groups))
        first += len(one.arguments)
    return (_Launch * len(launches))(*launches), (_Argument * len(arguments))(*arguments)


def _error(wrong: Mistake) -> OpenInferError:
    if wrong in (NO_DRIVER, NO_FEATURE):
        return missing_vulkan(f"the simulator finds no Vulkan device: {wrong.reason}", "mesa-vulkan-drivers")
    return ExecutionError(Diagnostic(wrong.code, wrong.reason))
