"""The simulator's persistent memory as a model file."""

import os

from openinfer.check.bound import BoundGraph
from openinfer.check.saved_state import MatrixKey, Plain, Tables, loaded, save, saved_bytes
from openinfer.check.step_sizes import StepSizes
from openinfer.ir import MemoryKind
from openinfer.sim.memory import SessionMemory


def _parts(bound: BoundGraph, memory: SessionMemory) -> tuple[Plain, Tables]:
    kept = [variable for variable in bound.vars.values() if variable.kind is MemoryKind.PERSISTENT]
    sizes = StepSizes(bound)
    plain = {variable.name: memory.initial(variable.name, sizes) for variable in kept if not variable.is_table}
    return plain, {variable.name: memory.tables[variable.name].dump() for variable in kept if variable.is_table}


def state_bytes(bound: BoundGraph, memory: SessionMemory) -> bytes:
    """The state as the bytes of a file."""
    return saved_bytes(bound, *_parts(bound, memory))


def write_state(bound: BoundGraph, memory: SessionMemory, path: str | os.PathLike[str]) -> None:
    """Write the state to a file, atomically."""
    save(bound, *_parts(bound, memory), path)


def load_state(bound: BoundGraph, memory: SessionMemory, state: bytes | bytearray | str | os.PathLike[str]) -> None:
    """Replace persistent memory with a saved state; if it does not fit, nothing changes."""

    def fits(name: str, key: MatrixKey, shape: tuple[int, ...]) -> bool:
        return memory.tables[name].fits(key, shape)

    memory.restore(*loaded(bound, state, fits))
