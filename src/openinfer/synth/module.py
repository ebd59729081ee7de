"""Emitted code, compiled here and called from Python: ``CompiledModule`` has the executor's verbs."""

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from openinfer.check.bound import BoundVar, FromModel, FromPattern
from openinfer.check.events import Event
from openinfer.check.inserted import accepted_input, input_called, inputs_by_name, require_shape
from openinfer.check.results import DTypeName, Outputs, given_back, output_names
from openinfer.check.saved_state import Key, loaded, save, saved_bytes
from openinfer.check.sizes import SizeError
from openinfer.check.step_sizes import StepSizes
from openinfer.dtypes import DTYPES, DType, pack, unpack
from openinfer.errors import Code, Diagnostic, ExecutionError, nearest
from openinfer.ir import MemoryKind
from openinfer.loops.dim import at
from openinfer.ops import Array, OpError
from openinfer.synth.build import library_of
from openinfer.synth.c.header import STATUS, Field, trace_fields
from openinfer.synth.c.project import Project
from openinfer.synth.c.tables import TableLayout
from openinfer.synth.program import Store, Value
from openinfer.tensor import Tensor

FLAGS = ("-std=c11", "-O3", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
_CODES = {
    "ERROR_MEMORY": Code.OUT_OF_MEMORY,
    "ERROR_VALUE": Code.BAD_VALUE,
    "ERROR_INDEX": Code.INDEX_OUT_OF_RANGE,
    "ERROR_SIZE": Code.SIZE_CONFLICT,
    "ERROR_STATE": Code.WRONG_MOMENT,
    "ERROR_INPUT": Code.NOT_INSERTED,
    "ERROR_THREADS": Code.OUT_OF_MEMORY,
}


def compiled(project: Project, cc: str, flags: Sequence[str]) -> ctypes.CDLL:
    """The library of a project: compiled into the cache, unless it is there, and loaded."""
    sources = (f"src/{project.name}.c", "src/kernels.c")
    return library_of(project.code(), sources, cc, (*flags, *project.build_options.flags))


def built(project: Project, cc: str = "gcc", flags: Sequence[str] = FLAGS) -> "CompiledModule":
    """A project as a module of this process."""
    return CompiledModule(project, compiled(project, cc, flags))


class CompiledModule:
    """Generated code with memory of its own. Usable wherever an executor is, as long as nobody looks inside a step.

    A step that fails has not happened, as in the simulator. Code that cannot take it back by itself (for devices
    without an operating system, and with loops of unknown length) costs a copy of the state before each step here.
    """

    def __init__(self, project: Project, library: ctypes.CDLL) -> None:
        self.bound = project.program.bound
        self._project = project
        self._program = project.program
        self._library = library
        self._name = project.name
        self._arena = _aligned(project.arena_bytes)
        self._state = _aligned(project.state_bytes)
        blob = project.blob
        self._weights = _aligned(max(len(blob), 1))
        self._weights[: len(blob)] = np.frombuffer(blob, np.uint8)
        self._context = _structure("Context", [*project.context, *trace_fields(self._name)])()
        self._input_type = _structure("Inputs", project.inputs)
        self._output_type = _structure("Outputs", project.outputs)
        self._step = getattr(library, f"{self._name}_step")
        getattr(library, f"{self._name}_last_error").restype = ctypes.c_char_p
        self._inserted: dict[str, Array] = {}
        self._used: dict[str, Array] = {}
        self._results: Any = None
        self._sizes: dict[str, int] = {}
        self._call(
            "init",
            _address(self._arena),
            ctypes.c_size_t(project.arena_bytes),
            _address(self._state),
            ctypes.c_size_t(project.state_bytes),
            _address(self._weights),
            ctypes.c_size_t(len(blob)),
        )
        if project.printer.threads > 1:
            self._call("start_threads")

    def __del__(self) -> None:
        if getattr(self, "_step", None) is None:
            return
        if self._project.printer.threads > 1:
            getattr(self._library, f"{self._name}_stop_threads")(ctypes.byref(self._context))
        if self._project.printer.heaps:
            getattr(self._library, f"{self._name}_free")(ctypes.byref(self._context))

    def _call(self, function: str, *args: Any) -> None:
        """Call a function of the module; what it says is wrong becomes an exception."""
        status = getattr(self._library, f"{self._name}_{function}")(ctypes.byref(self._context), *args)
        if status:
            self._raise(int(status))

    def _raise(self, status: int) -> None:
        name = list(STATUS)[status]
        text = getattr(self._library, f"{self._name}_last_error")(ctypes.byref(self._context)).decode()
        advice = "reset() or load_state(...) first" if name == "ERROR_STATE" else None
        raise ExecutionError(Diagnostic(_CODES.get(name, Code.BAD_VALUE), text, None, advice))

    # --- inputs ---------------------------------------------------------------------------------------------------

    def insert(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Give inputs for the next step: ``insert(x=array)`` or ``insert({"x": array})``.

        Values convert, and are refused, as the simulator's are; the module keeps copies.
        """
        everything = inputs_by_name(self.bound, values, named)
        self._inserted |= {name: accepted_input(self.bound, name, value) for name, value in everything.items()}

    def __call__(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Array | Outputs:
        """Insert, run one step and fetch what the graph returns, as an executor does: ``y = module(x=array)``."""
        self.insert(values, **named)
        self.run_step()
        return given_back((name, self.fetch(name)) for name in output_names(self.bound))

    def insert_view(self, values: Mapping[str, Array] | None = None, /, **named: Array) -> None:
        """Give inputs for the next step without copying: the arrays must not change before it has run.

        They have the dtype and layout that the code reads: C order, and no packed dtypes.
        """
        accepted: dict[str, Array] = {}
        for name, array in {**(values or {}), **named}.items():
            variable = input_called(self.bound, name)
            if not _is_readable(array, variable.dtype):
                message = (
                    f"the array for {name!r} cannot be read where it is: it must be {variable.dtype.name} in C order"
                )
                raise ExecutionError(Diagnostic(Code.UNSUPPORTED_ARRAY, message, None, "insert() makes a copy"))
            require_shape(self.bound, variable, array.shape)
            accepted[name] = array
        self._inserted |= accepted

    def _missing(self) -> None:
        for name, variable in self.bound.vars.items():
            if variable.kind is MemoryKind.DYNAMIC and name not in self._inserted:
                raise ExecutionError(Diagnostic(Code.NOT_INSERTED, f"the input {name!r} has not been inserted"))

    def _bound_sizes(self) -> StepSizes:
        """The dynamic sizes that the inputs have together."""
        sizes = StepSizes(self.bound)
        try:
            for name in self._program.inputs:
                sizes.agree(self.bound.vars[name], self._inserted[name].shape, "the value")
        except OpError as error:
            raise ExecutionError(Diagnostic(error.code, error.message, None, error.advice)) from error
        except SizeError as error:
            raise ExecutionError(Diagnostic(error.code, error.message, None, error.advice)) from error
        return sizes

    # --- running --------------------------------------------------------------------------------------------------

    def run_step(self) -> None:
        """Run one step with the inserted inputs, which are used up by it."""
        self._missing()
        sizes = self._bound_sizes() if self.bound.bounds else None
        fields = self._project.printer
        inputs, results = self._input_type(), self._output_type()
        kept = []
        for name, value in self._program.inputs.items():
            data = self._inserted[name]
            data = pack(data, value.dtype) if value.dtype.is_packed else data
            data = data if data.size else np.zeros(1, data.dtype)
            kept.append(data)
            setattr(inputs, fields.input_fields[name], data.ctypes.data)
        for size in self._project.input_sizes:
            assert sizes is not None
            setattr(inputs, fields.size_fields[size], sizes.lookup(size))
        self._results = None
        saved = self.save_state() if self._project.can_tear else None
        status = self._step(ctypes.byref(self._context), ctypes.byref(inputs), ctypes.byref(results))
        if status:
            self._take_back(int(status), saved)
        self._results = results
        self._sizes = {size: getattr(self._context, fields.size_fields[size]) for size in self._program.sizes}
        self._used, self._inserted = self._inserted, {}

    def _take_back(self, status: int, saved: bytes | None) -> None:
        """Raise what went wrong, with the state as it was before the step."""
        try:
            self._raise(status)
        finally:
            if saved is not None and self._context.is_broken:
                self.load_state(saved)

    def step(self) -> None:
        """The same as ``run_step``."""
        self.run_step()

    @property
    def events(self) -> list[Event]:
        """What the last step did, node by node; only a module that is built with a trace level knows."""
        return []

    def trace(self) -> list[dict[str, Any]]:
        """The events of the last step as plain values, ready for JSON."""
        return [event.facts() for event in self.events]

    # --- results --------------------------------------------------------------------------------------------------

    @overload
    def fetch(self, name: str, /) -> Array: ...
    @overload  # a dtype's name is a str as well
    def fetch(self, name: str, dtype: DTypeName, /) -> Array: ...  # type: ignore[overload-overlap]
    @overload
    def fetch(self, *names: str) -> tuple[Array, ...]: ...
    def fetch(self, *names: str) -> Any:
        """A copy of a variable as a NumPy array; several names give a tuple.

        A dtype after a single name is checked: ``fetch("y", "f32")``. Generated code keeps outputs, persistent
        variables and inputs; other variables must be returned from the entry block to be seen.
        """
        if len(names) == 2 and names[1] in DTYPES:
            found = self._variable(names[0]).dtype.name
            if found != names[1]:
                raise ExecutionError(Diagnostic(Code.WRONG_DTYPE, f"{names[0]!r} is {found}, not {names[1]}"))
            return self._array(names[0]).copy()
        arrays = tuple(self._array(name).copy() for name in names)
        return arrays[0] if len(arrays) == 1 else arrays

    def fetch_view(self, name: str) -> Array:
        """A variable as a read-only array; of outputs it shares the memory, which the next step writes again."""
        view = self._array(name).view()
        view.flags.writeable = False
        return view

    def fetch_tensor(self, name: str) -> Tensor:
        """A variable as a ``Tensor``, packed where its dtype is."""
        return Tensor.from_numpy(self._array(name).copy(), self._variable(name).dtype)

    def _variable(self, name: str) -> BoundVar:
        if not isinstance(name, str) or name not in self.bound.vars:
            advice = nearest(str(name), self.bound.vars)
            raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, f"there is no variable {name!r}", None, advice))
        return self.bound.vars[name]

    def _array(self, name: str) -> Array:
        variable = self._variable(name)
        if variable.is_table:
            return self._table(name)
        if isinstance(variable.origin, FromPattern):
            message = f"{name!r} is a family of model tensors, not one value"
            raise ExecutionError(Diagnostic(Code.BAD_INDEXING, message, variable.decl.span if variable.decl else None))
        if name in self._inserted:
            return self._inserted[name]
        if self._results is not None and name in self._program.outputs:
            address = getattr(self._results, self._project.output_fields[name])
            return self._loaded(address, self._program.outputs[name])
        home = self._program.homes.get(name)
        if home is not None and home.store is Store.STATE:
            return self._loaded(self._state.ctypes.data + self._project.printer.state_offsets[home], home)
        if name in self._used and name not in self._program.outputs:
            return self._used[name]
        return self._other(variable)

    def _other(self, variable: BoundVar) -> Array:
        """A variable that generated code does not keep: one that is the model's own is as it is there."""
        model = self.bound.model
        name = variable.origin.name if isinstance(variable.origin, FromModel) else ""
        if model is not None and name in model.tensors and variable.kind is MemoryKind.CONSTANT:
            return model.load(name).to_numpy()
        message = f"generated code does not keep {variable.name!r}"
        advice = f"return it from the entry block: return {variable.name};"
        if variable.name in self._program.outputs or variable.kind is MemoryKind.DYNAMIC:
            message, advice = f"{variable.name!r} has no value: no step has run", "run_step() first"
        raise ExecutionError(Diagnostic(Code.NOT_INSERTED, message, None, advice))

    def _loaded(self, address: int, value: Value) -> Array:
        """A tensor at an address: shared where elements have bytes of their own."""
        shape = tuple(at(extent, self._sizes) for extent in value.shape)
        if any(extent < 0 for extent in shape):
            message = f"{value.variable!r} has no shape: it would be {list(shape)}"
            raise ExecutionError(Diagnostic(Code.BAD_SHAPE, message))
        count = int(np.prod(shape, dtype=np.int64))
        data = _shared(address, value.dtype.nbytes(count), self)
        if value.dtype.is_packed:
            return unpack(data, value.dtype, 0, count).reshape(shape)
        return data.view(value.dtype.array).reshape(shape)

    # --- tables ---------------------------------------------------------------------------------------------------

    def _cells(self, layout: TableLayout) -> tuple[Array, Array, Array | None]:
        """The extents of a table, its cells over all it has room for, and the extents of its matrices."""
        head = self._state[layout.extents_at : layout.extents_at + 16 * layout.axes].view(np.int64)
        extents = head[: layout.axes]
        if layout.heap is None:
            capacity, address = layout.capacity, self._state.ctypes.data + layout.memory_at
        else:
            capacity = tuple(map(int, head[layout.axes : 2 * layout.axes]))
            address = self._context.heap[layout.heap] or 0
        table = layout.table
        own = None
        if layout.has_matrices:
            keys = capacity[: table.keys]
            count = int(np.prod(keys, dtype=np.int64)) * (layout.axes - table.keys)
            own = _shared(address, 8 * count, self).view(np.int64).reshape(*keys, layout.axes - table.keys)
        nbytes = layout.nbytes(capacity) - layout.cells_at(capacity) if address else 0
        data = _shared(address + layout.cells_at(capacity) if address else 0, nbytes, self)
        kind = np.dtype(np.uint8) if table.variable.dtype.is_packed else table.variable.dtype.array
        return extents, data.view(kind).reshape(*capacity, *table.entry), own

    def _table(self, name: str) -> Array:
        """All of a table; matrices that keys choose have the extents of the largest."""
        layout = self._project.printer.tables[name]
        extents, cells, own = self._cells(layout)
        keys = layout.table.keys
        wanted = list(map(int, extents))
        if own is not None:
            chosen = own[tuple(slice(extent) for extent in wanted[:keys])]
            start = layout.start_extents[keys:]
            widest = chosen.reshape(-1, len(start)).max(axis=0, initial=0) if chosen.size else np.zeros(len(start), int)
            wanted[keys:] = [max(int(one), first) for one, first in zip(widest, start, strict=True)]
        return self._grid(layout, cells, wanted)

    def _grid(self, layout: TableLayout, cells: Array, extents: Sequence[int]) -> Array:
        """Cells up to some extents, as values; those that there is no memory for are initial."""
        dtype = layout.table.variable.dtype
        part = cells[tuple(slice(extent) for extent in extents)]
        if part.shape[: len(extents)] != tuple(extents):
            whole = np.full((*extents, *layout.table.entry), self._initial_cell(layout), cells.dtype)
            whole[tuple(slice(extent) for extent in part.shape)] = part
            part = whole
        return _decoded(part, dtype) if dtype.is_packed else part

    @staticmethod
    def _initial_cell(layout: TableLayout) -> Any:
        from openinfer.synth.c.tables import element_bits

        dtype = layout.table.variable.dtype
        bits = element_bits(dtype, layout.table.variable.origin)
        if dtype.is_packed:
            return np.uint8(bits)
        return np.frombuffer(bits.to_bytes(dtype.bits // 8, "little"), dtype.array)[0]

    # --- state ----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Put persistent memory back to its initial values and forget inserted inputs."""
        self._inserted.clear()
        self._used.clear()
        self._results = None
        self._call("reset")

    def save_state(self, path: str | os.PathLike[str] | None = None) -> bytes | None:
        """Persistent memory as a model file, the same as the simulator's: its bytes, or written to a path."""
        if self._context.is_broken:
            message = "the last step failed, and there is no state to save"
            raise ExecutionError(Diagnostic(Code.WRONG_MOMENT, message, None, "reset() or load_state(...) first"))
        plain = {
            name: self._loaded(self._state.ctypes.data + self._project.printer.state_offsets[home], home)
            for name, home in self._program.homes.items()
            if home.store is Store.STATE
        }
        tables = {name: self._dumped(layout) for name, layout in self._project.printer.tables.items()}
        if path is None:
            return saved_bytes(self.bound, plain, tables)
        save(self.bound, plain, tables, path)
        return None

    def _dumped(self, layout: TableLayout) -> dict[Key, Array]:
        extents, cells, own = self._cells(layout)
        if own is None:
            return {(): np.ascontiguousarray(self._grid(layout, cells, list(map(int, extents))))}
        found: dict[Key, Array] = {}
        for key in np.ndindex(*map(int, extents[: layout.table.keys])):
            inside = all(part < room for part, room in zip(key, cells.shape, strict=False))
            start = layout.start_extents[layout.table.keys :]
            matrix = [int(one) for one in own[key]] if inside else list(start)
            part = cells[key] if inside else cells[:0].reshape(0, *cells.shape[len(key) + 1 :])
            found[key] = np.ascontiguousarray(self._grid(layout, part, matrix))
        return found

    def load_state(self, state: "bytes | bytearray | str | os.PathLike[str]") -> None:
        """Put back what ``save_state`` saved, here or in the simulator; a state that does not fit changes nothing."""
        tables = self._project.printer.tables
        plain, grids = loaded(self.bound, state, lambda name, key, shape: _fits(tables[name], key, shape))
        self._call("reset")
        self._results = None
        for name, array in plain.items():
            home = self._program.homes[name]
            data = pack(array, home.dtype) if home.dtype.is_packed else np.ascontiguousarray(array).reshape(-1)
            offset = self._project.printer.state_offsets[home]
            self._state[offset : offset + home.nbytes] = data.view(np.uint8)
        for name, parts in grids.items():
            self._restore(tables[name], parts)

    def _restore(self, layout: TableLayout, parts: Mapping[Key, Array]) -> None:
        keys = layout.table.keys if layout.has_matrices else 0
        ends = [tuple(one + 1 for one in key) for key in parts]
        shapes = [array.shape[: layout.axes - keys] for array in parts.values()]
        reach = [max(column) for column in zip(*ends, strict=True)] if keys else []
        reach += [max(column) for column in zip(*shapes, strict=True)]
        if not reach or not parts:
            return
        self._make_room(layout, reach)
        extents, cells, own = self._cells(layout)
        for key, array in parts.items():
            shape = array.shape[: layout.axes - keys]
            data = _encoded(array, layout.table.variable.dtype)
            if array.size:
                cells[key][tuple(slice(extent) for extent in shape)] = data
            if own is not None:
                own[key][:] = shape
        count = keys or len(reach)
        extents[:count] = reach[:count]

    def _make_room(self, layout: TableLayout, reach: Sequence[int]) -> None:
        """Memory for so many cells of a table that grows."""
        if layout.heap is None:
            return
        function = getattr(self._library, f"{self._name}_reserve")
        ends = (ctypes.c_int64 * layout.axes)(*reach)
        if function(ctypes.byref(self._context), ctypes.c_int(layout.heap), ends):
            raise ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, "there is no memory for the tables of the state"))


def _structure(name: str, fields: Sequence[Field]) -> type[ctypes.Structure]:
    """A struct of the header, as ctypes sees it."""
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


def _aligned(nbytes: int) -> Array:
    """Memory that starts on a cache line."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def _address(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _is_readable(array: object, dtype: DType) -> bool:
    if not isinstance(array, np.ndarray) or dtype.is_packed or array.dtype != dtype.array:
        return False
    return bool(array.flags.c_contiguous and array.flags.aligned)


class _Memory:
    """Bytes at an address, kept alive by their owner, for NumPy to look at."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self._owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def _shared(address: int, nbytes: int, owner: object) -> Array:
    return np.asarray(_Memory(address, nbytes, owner)) if nbytes else np.empty(0, np.uint8)


def _decoded(codes: Array, dtype: DType) -> Array:
    """Packed elements that have a byte each, as values."""
    bits, per_byte = dtype.bits, 8 // dtype.bits
    flat = np.zeros(-(-codes.size // per_byte) * per_byte, np.uint8)
    flat[: codes.size] = codes.reshape(-1)
    shifts = np.arange(per_byte, dtype=np.uint16) * bits
    stream = (flat.reshape(-1, per_byte).astype(np.uint16) << shifts).sum(axis=1).astype(np.uint8)
    return unpack(stream, dtype, 0, codes.size).reshape(codes.shape)


def _encoded(values: Array, dtype: DType) -> Array:
    """Values as codes with a byte each; elements that are not packed as they are."""
    if not dtype.is_packed:
        return values
    stream = pack(np.ascontiguousarray(values).reshape(-1), dtype)
    places = np.arange(values.size)
    per_byte = 8 // dtype.bits
    codes = (stream[places // per_byte] >> (places % per_byte * dtype.bits)) & ((1 << dtype.bits) - 1)
    return codes.astype(np.uint8).reshape(values.shape)


def _fits(layout: TableLayout, key: Key, shape: tuple[int, ...]) -> bool:
    """Whether an array can be what a table holds under a key."""
    keys = layout.table.keys if layout.has_matrices else 0
    grown = layout.axes - keys
    if len(key) != keys or tuple(shape[grown:]) != tuple(layout.table.entry) or len(shape) < grown:
        return False
    bounds = layout.table.bounds
    if any(bound is not None and part >= bound for part, bound in zip(key, bounds, strict=False)):
        return False
    rest = zip(shape, layout.start_extents[keys:], bounds[keys:], strict=False)
    return all(least <= extent and (bound is None or extent <= bound) for extent, least, bound in rest)
