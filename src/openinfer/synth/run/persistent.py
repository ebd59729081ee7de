"""The persistent memory of a compiled module: plain variables and tables, saved, restored, and exposed as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from openinfer.check.saved_state import MatrixKey
from openinfer.dtypes import pack, unpack
from openinfer.ops import Array
from openinfer.synth.program.ir import Storage, Value
from openinfer.synth.run.library import Instance
from openinfer.synth.run.state_memory import StateMemory
from openinfer.synth.run.table_memory import TableMemory
from openinfer.synth.targets.project import RunnableProject


@dataclass(frozen=True)
class Contents:
    """The contents of persistent memory, copied."""

    plain: Mapping[str, Array]
    tables: Mapping[str, Mapping[MatrixKey, Array]]


class PersistentMemory:
    """The persistent variables of a project, in the memory of one instance."""

    def __init__(self, project: RunnableProject, state: StateMemory, instance: Instance) -> None:
        self._memory = state
        self._offsets = project.placed.state.homes
        self._homes = {name: home for name, home in project.program.homes.items() if home.storage is Storage.STATE}
        layouts = project.placed.state.tables
        self.tables = {name: TableMemory(layout, state, instance) for name, layout in layouts.items()}

    def value(self, name: str) -> Array | None:
        """The array of a plain variable, shared unless its dtype is packed; None for anything else."""
        home = self._homes.get(name)
        return None if home is None else tensor(self._bytes(home), home, tuple(map(int, home.shape)))

    def _bytes(self, home: Value) -> Array:
        offset = self._offsets[home]
        self._memory.look(offset, home.nbytes)
        return self._memory.array[offset : offset + home.nbytes]

    def contents(self) -> Contents:
        """A copy of everything."""
        plain = {name: np.array(self.value(name), order="C") for name in self._homes}
        return Contents(plain, {name: table.dumped() for name, table in self.tables.items()})

    def reserve(self, contents: Contents) -> None:
        """Reserve memory for all tables; on an error, only unused memory has changed."""
        for name, parts in contents.tables.items():
            self.tables[name].reserve(parts)

    def put(self, contents: Contents) -> None:
        """Write everything into freshly reset memory that has room for it."""
        for name, array in contents.plain.items():
            home = self._homes[name]
            data = pack(array, home.dtype) if home.dtype.is_packed else np.ascontiguousarray(array).reshape(-1)
            self._bytes(home)[:] = data.view(np.uint8)
            self._memory.put(self._offsets[home], home.nbytes)
        for name, parts in contents.tables.items():
            self.tables[name].restore(parts)


def tensor(data: Array, value: Value, shape: tuple[int, ...]) -> Array:
    """The array that bytes represent; shared unless elements are packed."""
    if value.dtype.is_packed:
        return unpack(data, value.dtype, 0, int(np.prod(shape, dtype=np.int64))).reshape(shape)
    return data.view(value.dtype.array).reshape(shape)
