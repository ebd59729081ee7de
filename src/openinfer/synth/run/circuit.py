"""Runs circuits: simulated by GHDL, behind the C driver and the executor's verbs."""

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from openinfer.check.events import TraceLevel
from openinfer.errors import Code, Diagnostic, ExecutionError, MissingExtraError
from openinfer.synth.run.build import run_program
from openinfer.synth.run.library import Instance, compiled
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.run.traced import TracedModule
from openinfer.synth.targets.project import RunnableProject

_TRACES = "-gtraces=true"
"""The option that builds the circuit for tracing."""


class SimulatedProject(RunnableProject, Protocol):
    """A project whose kernels are a circuit."""

    @property
    def rtl(self) -> Mapping[str, str]:
        """The circuit, in the order in which files are analyzed."""

    @property
    def bench(self) -> Mapping[str, str]:
        """The test bench."""

    @property
    def memory_files(self) -> Mapping[str, str]:
        """Files that the test bench reads: the weights that are outside of the circuit."""


def built_circuit(
    project: SimulatedProject, cc: str, flags: Sequence[str], trace: TraceLevel
) -> "CircuitModule | TracedCircuitModule":
    """A module whose steps run in a simulation; a traced one stops after each node."""
    if trace is TraceLevel.OFF:
        return CircuitModule(project, compiled(project, cc, flags), GhdlSimulation(project))
    library = compiled(project, cc, (*flags, *project.trace_flags))
    return TracedCircuitModule(project, library, GhdlSimulation(project, _TRACES), trace)


def ghdl() -> str:
    """The absolute path of the simulator."""
    path = shutil.which("ghdl")
    if path is None:
        message = "there is no 'ghdl', which simulates circuits"
        raise MissingExtraError(Diagnostic(Code.MISSING_TOOL, message, None, "apt-get install ghdl"))
    return os.path.abspath(path)


class GhdlSimulation:
    """A circuit in a simulator; its register bus is accessed through lines of text."""

    def __init__(self, project: SimulatedProject, *options: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix="openinfer-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        texts = {**project.rtl, **project.bench}
        for path, text in {**texts, **project.memory_files}.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="ascii", newline="\n")
        analysed = run_program([ghdl(), "-a", "--std=08", "-Werror", *texts], folder)
        if analysed.status:
            raise _broken(analysed.errors or analysed.output)
        # Some builds of GHDL compile the circuit here; others do that at run time.
        elaborated = run_program([ghdl(), "-e", "--std=08", f"{project.name}_tb"], folder)
        if elaborated.status:
            raise _broken(elaborated.errors or elaborated.output)
        self._process = subprocess.Popen(  # noqa: S603  (the user's own simulator)
            [ghdl(), "-r", "--std=08", f"{project.name}_tb", *options, "--ieee-asserts=disable"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        # Not __del__: when a cycle is collected, the process object could be finalized before it is ended.
        weakref.finalize(self, _end, self._process)

    def tell(self, line: str) -> None:
        """Write a command, which is carried out in order."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode("ascii"))

    def ask(self, line: str) -> str:
        """Write a command and return its answer."""
        self.tell(line)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise _broken("the simulation has ended")
        return answer.decode("ascii").strip()

    def write(self, _user: Any, register: int, data: Any, count: int) -> None:
        """Driver callback: write bytes to a register."""
        self.tell(f"w {register:02x} {bytes(data[:count]).hex()}")

    def read(self, _user: Any, register: int, data: Any, count: int) -> None:
        """Driver callback: read bytes from a register."""
        found = bytes.fromhex(self.ask(f"r {register:02x} {count}"))
        ctypes.memmove(data, found, count)

    def wait(self, _user: Any) -> None:
        """Driver callback: wait for the end of a step."""
        self.tell("g")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a simulation that is no longer used."""
    process.kill()
    with contextlib.suppress(BrokenPipeError):
        process.communicate()


def _broken(said: str) -> ExecutionError:
    return ExecutionError(Diagnostic(Code.NOT_SYNTHESIZED, f"the circuit cannot be simulated: {said[:2000]}"))


_WRITE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_uint8, ctypes.POINTER(ctypes.c_uint8), ctypes.c_size_t
)
_WAIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class _Bus(ctypes.Structure):
    """The struct that connects the driver to a bus."""

    _fields_ = (("bus_write", _WRITE), ("bus_read", _WRITE), ("bus_wait", _WAIT), ("user", ctypes.c_void_p))


class CircuitModule(CompiledModule):
    """A circuit in a simulation, with the executor's verbs."""

    def __init__(self, project: SimulatedProject, library: ctypes.CDLL, simulation: GhdlSimulation) -> None:
        self._circuit = project
        self._simulation = simulation
        self._bus = _attached(project, library, simulation)
        super().__init__(project, library)

    def another(self, *, state_of: CompiledModule | None = None) -> "CircuitModule":
        """Another module of the same circuit, in a simulation of its own; circuits cannot share states."""
        _require_own_state(state_of)
        return CircuitModule(self._circuit, self._library, GhdlSimulation(self._circuit))

    @property
    def cycles(self) -> int:
        """The clocks that the last step took, as counted by the circuit."""
        return _cycles(self._instance)


class TracedCircuitModule(TracedModule):
    """A circuit in a simulation that stops after nodes, so that the module has the events of its last step."""

    def __init__(
        self, project: SimulatedProject, library: ctypes.CDLL, simulation: GhdlSimulation, level: TraceLevel
    ) -> None:
        self._circuit = project
        self._simulation = simulation
        self._bus = _attached(project, library, simulation)
        super().__init__(project, library, level)

    def another(self, *, state_of: CompiledModule | None = None) -> "TracedCircuitModule":
        """Another module of the same circuit, in a simulation of its own; circuits cannot share states."""
        _require_own_state(state_of)
        simulation = GhdlSimulation(self._circuit, _TRACES)
        return TracedCircuitModule(self._circuit, self._library, simulation, self._level)

    @property
    def cycles(self) -> int:
        """The clocks that the last step took, including those in which the circuit waited to be inspected."""
        return _cycles(self._instance)


def _attached(project: SimulatedProject, library: ctypes.CDLL, simulation: GhdlSimulation) -> _Bus:
    """Attach the driver to this simulation; the returned struct keeps the callbacks alive."""
    calls = (_WRITE(_caught(simulation.write)), _WRITE(_caught(simulation.read)), _WAIT(_caught(simulation.wait)))
    bus = _Bus(*calls, None)
    getattr(library, f"{project.name}_attach")(ctypes.byref(bus))
    return bus


def _require_own_state(state_of: CompiledModule | None) -> None:
    if state_of is not None:
        message = "a circuit contains its state: modules cannot share it"
        raise ExecutionError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, "save_state() and load_state(...)"))


def _cycles(instance: Instance) -> int:
    function = instance.function("cycles")
    function.restype = ctypes.c_uint32
    return int(function(ctypes.c_void_p(instance.context.device)))


def _caught(function: Callable[..., None]) -> Callable[..., int]:
    """Wraps a callback to return 1 if it fails, else 0."""

    def called(*args: Any) -> int:
        try:
            function(*args)
        except (OSError, ValueError, ExecutionError):
            return 1
        return 0

    return called
