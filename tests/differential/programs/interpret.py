"""An interpreter of programs, written for the tests alone: NumPy and the language's rules, and nothing of OpenInfer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tests.differential.programs.numbers import Array, FailedError, computed, held_as, wrapped, zero
from tests.differential.programs.tables import Chosen, Table, TooMuchError, cells_of
from tests.differential.programs.tree import (
    Access,
    Assign,
    Await,
    Barrier,
    Branch,
    Call,
    Count,
    Decl,
    Dim,
    Dims,
    Expr,
    Index,
    Kind,
    Literal,
    Loop,
    Op,
    Operand,
    Program,
    Read,
    Reset,
    Scope,
    Slice,
    Statement,
    Transfer,
    Write,
    Yield,
    consumers,
    walk,
)

MOST_STATEMENTS = 1500
FAR = 1 << 40
"""Index arithmetic beyond this is not what programs are about."""


def _assigned(body: Sequence[Statement]) -> Iterator[str]:
    for statement in walk(body):
        if isinstance(statement, Assign):
            yield statement.name
        elif isinstance(statement, Op) and statement.inferred:
            yield from (output.base for output in statement.outputs)


class State:
    """What outlives a step: plain variables that have been written, and tables. Nothing in it is changed in place."""

    def __init__(self, values: dict[str, Array], tables: dict[str, Table]) -> None:
        self.values = values
        self.tables = tables

    def copy(self) -> "State":
        return State(dict(self.values), dict(self.tables))


class Machine:
    """A program with its memory."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.decls = {decl.name: decl for decl in program.decls}
        self.kinds = {decl.name: decl.kind for decl in program.decls}
        for body in program.blocks.values():
            for statement in walk(body):
                if isinstance(statement, Assign):
                    self.kinds[statement.name] = statement.kind
                elif isinstance(statement, Op):
                    own = zip(statement.outputs, statement.inferred, strict=False)
                    self.kinds |= {output.base: kind for output, kind in own}
        self.owned: dict[str, frozenset[str]] = {}
        """For each block with parameters the variables that it has itself."""
        for block, params in program.params.items():
            given = {one.name: one.kind for one in params if isinstance(one.kind, Kind)}
            self.kinds |= given
            self.owned[block] = frozenset((*given, *_assigned(program.blocks[block])))
        self.reset()
        self._saved = self.state

    def reset(self) -> None:
        """Persistent memory as it is at first."""
        self.state = State({}, {decl.name: Table.new(decl) for decl in self.program.decls if decl.is_cache})

    def prepare(self, action: str) -> None:
        """What comes before a step: the state saved, loaded again, or forgotten."""
        if action == "save":
            self._saved = self.state
        elif action == "load":
            self.state = self._saved
        elif action == "reset":
            self.reset()

    def step(self, inputs: Mapping[str, Array]) -> dict[str, Array | None]:
        """Run one step: the outputs, None where one has no shape. A step that fails leaves the state as it was."""
        run = _Run(self, inputs)
        with np.errstate(all="ignore"):
            found = run.finished()
        self.state = run.state
        return found

    def persistent(self) -> dict[str, Array]:
        """Everything that outlives steps."""
        found = {name: table.read(()) for name, table in self.state.tables.items()}
        for decl in self.program.decls:
            if decl.section == "persistent" and decl.is_plain:
                value = self.state.values.get(decl.name)
                found[decl.name] = self.original(decl, {}) if value is None else value
        return found

    def original(self, decl: Decl, sizes: Mapping[str, int]) -> Array:
        """What a declared variable is before anything writes it."""
        tensor = self.program.tensors.get(decl.tensor or "")
        if tensor is not None and (decl.init is None or decl.section != "persistent"):
            return tensor[1]
        shape = shape_of(decl.kind.dims, sizes)
        fill = zero(decl.kind.dtype) if decl.init is None else np.asarray(decl.init).astype(held_as(decl.kind.dtype))
        return np.full(shape, fill, held_as(decl.kind.dtype))


def shape_of(dims: Sequence[Dim], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Dimensions as numbers."""
    unbound = [name for _, counts in dims for name, _ in counts if name not in sizes]
    if unbound:
        raise FailedError("E312", f"{unbound[0]} has no value")
    return tuple(number + sum(sizes[name] * count for name, count in counts) for number, counts in dims)


class _Strand:
    """Entry or a consumer: its loop indices, the sizes it knows, and its own copies of what it awaits."""

    def __init__(self, sizes: dict[str, int], copies: dict[str, Array]) -> None:
        self.sizes = sizes
        self.copies = copies
        self.indices: dict[str, int] = {}
        self.own: dict[str, Array] = {}
        """What the variables are that belong to the block that is called, and which these are."""
        self.owned: frozenset[str] = frozenset()
        self.prefixes: dict[str, str] = {}
        """The prefix tables that its parameters stand for."""


class _Run:
    """One step."""

    def __init__(self, machine: Machine, inputs: Mapping[str, Array]) -> None:
        self._machine = machine
        self._program = machine.program
        self.state = machine.state.copy()
        self._values: dict[Any, Array] = dict(inputs)
        self._entry = _Strand({}, {})
        self._left = MOST_STATEMENTS
        self._consumers = consumers(machine.program)
        self._yielded: dict[str, Array] = {}
        self._pending: dict[str, set[str]] = {}
        self._ended: dict[str, _Strand] = {}
        self._returned: dict[str, Array] = {}
        for decl in self._program.decls:
            if decl.section == "dynamic":
                self._agree(self._entry, decl.kind, inputs[decl.name].shape)

    def finished(self) -> dict[str, Array | None]:
        """Run to the end: the outputs."""
        self._body(self._entry, self._program.blocks["entry"])
        for block in self._ended:
            self._join(self._entry, block)
        self._values |= self._returned
        found = {name: self._output(name) for name in self._program.outputs}
        for decl in self._program.decls:
            if decl.section == "persistent" and decl.is_plain and decl.name in self._values:
                self.state.values[decl.name] = self._values[decl.name]
        return found

    def _output(self, name: str) -> Array | None:
        """A returned variable; one whose size nothing has bound is no reason to fail, it just has no value."""
        try:
            return self._variable(self._entry, name)
        except FailedError:
            return None

    # --- sizes and integers -------------------------------------------------------------------------------------------

    def _agree(self, task: _Strand, kind: Kind, shape: tuple[int, ...]) -> None:
        """A value becomes a variable's: sizes that have none yet are bound by it, the others must agree."""
        if len(shape) != len(kind.dims):
            raise FailedError("E308", f"{shape} for {kind}")
        is_new = True
        while is_new:
            is_new = False
            for (number, counts), extent in zip(kind.dims, shape, strict=True):
                unknown = [(name, count) for name, count in counts if name not in task.sizes]
                if len(unknown) == 1:
                    ((name, count),) = unknown
                    rest = extent - number - sum(task.sizes[own] * many for own, many in counts if own != name)
                    if rest % count or not 0 <= rest // count <= self._program.sizes[name]:
                        raise FailedError("E312", f"{name} for {shape} of {kind}")
                    task.sizes[name] = rest // count
                    is_new = True
        if shape_of(kind.dims, task.sizes) != shape:
            raise FailedError("E308" if kind.is_static else "E312", f"{shape} for {kind} with {task.sizes}")

    def _integer(self, task: _Strand, expr: Expr) -> int:
        value = self._evaluated(task, expr)
        if abs(value) > FAR:
            raise TooMuchError
        return value

    def _evaluated(self, task: _Strand, expr: Expr) -> int:
        if isinstance(expr, int):
            return expr
        if isinstance(expr, str):
            if expr in task.indices:
                return task.indices[expr]
            if expr in self._machine.kinds:
                return int(self._variable(task, expr))
            if expr not in task.sizes:
                raise FailedError("E312", f"{expr} has no value")
            return task.sizes[expr]
        left, right = self._evaluated(task, expr[1]), self._evaluated(task, expr[2])
        if expr[0] in "/%" and right == 0:
            raise FailedError("E313", "an index divided by zero")
        found = {
            "+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
            "/": lambda: left // right, "%": lambda: left % right,
        }[expr[0]]()  # fmt: skip
        if not -(1 << 63) <= found < 1 << 63:
            raise FailedError("E507", "index arithmetic beyond 64 bits")
        return found

    def _chosen(self, task: _Strand, indices: Sequence[Index]) -> list[Chosen]:
        return [
            tuple(None if one is None else self._integer(task, one) for one in (index.start, index.end))  # type: ignore[misc]
            if isinstance(index, Slice)
            else self._integer(task, index)
            for index in indices
        ]

    # --- variables ----------------------------------------------------------------------------------------------------

    def _variable(self, task: _Strand, name: str) -> Array:
        if name in task.owned:
            kind = self._machine.kinds[name]
            if name in task.own:
                return task.own[name]
            return np.full(shape_of(kind.dims, task.sizes), zero(kind.dtype), held_as(kind.dtype))
        if name in task.copies:
            return task.copies[name]
        if name in self._values:
            return self._values[name]
        decl = self._machine.decls.get(name)
        if decl is None:
            kind = self._machine.kinds[name]
            return np.full(shape_of(kind.dims, task.sizes), zero(kind.dtype), held_as(kind.dtype))
        if name in self.state.values:
            return self.state.values[name]
        return self._machine.original(decl, task.sizes)

    def _put(self, task: _Strand, name: str, value: Array) -> None:
        if name in task.owned:
            task.own[name] = value
        elif name in task.copies:
            task.copies[name] = value
        else:
            self._values[name] = value

    def _forget(self, task: _Strand, name: str) -> None:
        (task.own if name in task.owned else self._values).pop(name, None)

    def _entry_of(self, task: _Strand, access: Access, decl: Decl) -> tuple[str, int]:
        assert access.indices is not None
        (index,) = self._chosen(task, access.indices)
        assert isinstance(index, int)
        if not 0 <= index < decl.entries:
            raise FailedError("E209", f"{decl.name}[{index}]")
        return (decl.name, index)

    def _read(self, task: _Strand, operand: Operand, dtype: str) -> Array:
        if isinstance(operand, Literal):
            return np.asarray(operand.value).astype(held_as(dtype))
        name = task.prefixes.get(operand.base, operand.base)
        if name in task.indices:
            return np.asarray(task.indices[name])
        decl = self._machine.decls.get(name)
        if decl is not None and decl.is_cache:
            return self.state.tables[name].read(self._chosen(task, operand.indices or ()))
        if decl is not None and decl.entries:
            key = self._entry_of(task, operand, decl)
            return self._values[key] if key in self._values else self._program.tensors[f"{name}.{key[1]}"][1]
        whole = self._variable(task, name)
        if not operand.indices:
            return whole
        return whole[(*_region(self._chosen(task, operand.indices), whole), ...)]

    def _write(self, task: _Strand, access: Access, value: Array) -> None:
        name = access.base
        decl = self._machine.decls.get(name)
        if decl is not None and decl.is_cache:
            chosen = self._chosen(task, access.indices or ())
            self.state.tables[name] = self.state.tables[name].written(chosen, value)
        elif decl is not None and decl.entries:
            self._agree(task, decl.kind, value.shape)
            self._values[self._entry_of(task, access, decl)] = value
        elif access.indices:
            whole = self._variable(task, name).copy()
            region = _region(self._chosen(task, access.indices), whole)
            if whole[region].shape != value.shape:
                raise FailedError("E308", f"{value.shape} for a part of {name}")
            whole[region] = value
            self._put(task, name, whole)
        else:
            self._agree(task, self._machine.kinds[name], value.shape)
            self._put(task, name, value)

    # --- statements ---------------------------------------------------------------------------------------------------

    def _body(self, task: _Strand, body: Sequence[Statement]) -> None:
        for statement in body:
            self._left -= 1
            if self._left < 0:
                raise TooMuchError
            self._statement(task, statement)

    def _statement(self, task: _Strand, statement: Statement) -> None:
        match statement:
            case Assign(name, _):
                self._forget(task, name)
            case Call():
                self._call(task, statement)
            case Op():
                self._op(task, statement)
            case Transfer(source, target):
                self._write(task, target, self._read(task, source, ""))
            case Read(source, name):
                self._write(task, Access(name), self._read(task, source, ""))
            case Write(name, target):
                self._write(task, target, self._variable(task, name))
            case Count():
                self._count(task, statement)
            case Reset(target):
                self._reset(task, target)
            case Loop():
                self._loop(task, statement)
            case Scope(_, body):
                self._body(task, body)
            case Branch():
                self._branch(task, statement)
            case Yield(names):
                self._hand_over(task, names)
            case Await(names):
                self._take_back(task, names)
            case Barrier():
                pass

    def _op(self, task: _Strand, op: Op) -> None:
        for output, _ in zip(op.outputs, op.inferred, strict=False):
            self._forget(task, output.base)
        dtypes = [
            self._machine.kinds[one.base].dtype
            if isinstance(one, Access) and one.base in self._machine.kinds
            else "i64"
            for one in op.inputs
        ]
        own = next((dtype for one, dtype in zip(op.inputs, dtypes, strict=True) if isinstance(one, Access)), "")
        arrays = self._operands(task, op, own)
        params = {
            name: shape_of(value.dims, task.sizes) if isinstance(value, Dims) else value for name, value in op.params
        }
        target = self._machine.kinds[op.outputs[0].base].dtype
        try:
            results = computed(op.name, arrays, dtypes, target, params)
        except ValueError as error:
            raise FailedError("E308", f"{op.name}: {error}") from error
        for output, value in zip(op.outputs, results, strict=True):
            self._write(task, output, value)

    def _operands(self, task: _Strand, op: Op, dtype: str) -> list[Array]:
        """All operands; where several are wrong, it is not said which of them is found out first."""
        found, failures = [], []
        for one in op.inputs:
            try:
                found.append(self._read(task, one, dtype))
            except FailedError as failure:
                failures.append(failure)
        if failures:
            failures[0].codes = {failure.code for failure in failures}
            raise failures[0]
        return found

    def _count(self, task: _Strand, count: Count) -> None:
        amount = 1 if count.amount is None else self._integer(task, count.amount)
        kind = self._machine.kinds[count.name]
        total = int(self._variable(task, count.name)) + (-amount if count.down else amount)
        if total.bit_length() > 62:
            raise TooMuchError
        self._put(task, count.name, wrapped(np.asarray(total), kind.dtype))

    def _reset(self, task: _Strand, target: Access) -> None:
        chosen = self._chosen(task, target.indices or ())
        decl = self._machine.decls[target.base]
        if decl.is_cache:
            self.state.tables[decl.name] = self.state.tables[decl.name].reset(chosen)
            return
        fresh = self._machine.original(decl, task.sizes)
        if target.indices:
            whole = self._variable(task, decl.name).copy()
            region = _region(self._chosen(task, target.indices), whole)
            whole[region] = fresh[region]
            fresh = whole
        self._put(task, decl.name, fresh)

    def _loop(self, task: _Strand, loop: Loop) -> None:
        start, end = self._integer(task, loop.start), self._integer(task, loop.end)
        for value in range(start, end):
            task.indices[loop.index] = value
            self._body(task, loop.body)
            self._left -= 1
        task.indices.pop(loop.index, None)

    def _branch(self, task: _Strand, branch: Branch) -> None:
        target: str | None = branch.yes
        if branch.condition is not None and not bool(self._variable(task, branch.condition)):
            target = branch.no
        around = (task.indices, task.own, task.owned, task.prefixes)
        task.indices, task.own, task.owned, task.prefixes = {}, {}, frozenset(), {}
        if target is not None:
            self._body(task, self._program.blocks[target])
        task.indices, task.own, task.owned, task.prefixes = around

    def _call(self, task: _Strand, call: Call) -> None:
        """A block with parameters: arguments are copies, and what it has itself is gone behind it."""
        own: dict[str, Array] = {}
        indices: dict[str, int] = {}
        prefixes: dict[str, str] = {}
        for param, given in zip(self._program.params[call.block], call.args, strict=True):
            if isinstance(param.kind, Kind):
                assert isinstance(given, Access | Literal)
                own[param.name] = self._read(task, given, param.kind.dtype)
                self._agree(task, param.kind, own[param.name].shape)
            elif isinstance(given, Access):
                prefixes[param.name] = task.prefixes.get(given.base, given.base)
            else:
                assert not isinstance(given, Literal)
                indices[param.name] = self._integer(task, given)
        around = (task.indices, task.own, task.owned, task.prefixes)
        task.indices, task.own, task.owned, task.prefixes = indices, own, self._machine.owned[call.block], prefixes
        self._body(task, self._program.blocks[call.block])
        results = [self._variable(task, name) for name in self._program.returns[call.block]]
        task.indices, task.own, task.owned, task.prefixes = around
        for output, value in zip(call.outputs, results, strict=True):
            self._write(task, output, value)

    # --- consumers ----------------------------------------------------------------------------------------------------

    def _hand_over(self, task: _Strand, names: Sequence[str]) -> None:
        """Entry yields: consumers that have all they await run. What they see is as it was at the yield."""
        if task is not self._entry:
            self._returned |= {
                name: task.copies[name] for name in names if task.copies[name] is not self._yielded[name]
            }
            return
        self._yielded |= {name: self._variable(task, name) for name in names}
        for block, needed in self._consumers.items():
            pending = self._pending.setdefault(block, set())
            pending |= set(names) & set(needed)
            if set(names) & set(needed) and pending == set(needed):
                pending.clear()
                own = _Strand(dict(task.sizes), {name: self._yielded[name] for name in needed})
                self._ended[block] = own
                self._body(own, self._program.blocks[block][1:])

    def _take_back(self, task: _Strand, names: Sequence[str]) -> None:
        for block, needed in self._consumers.items():
            if set(needed) & set(names) and block in self._ended:
                self._join(task, block)
        self._values |= {name: self._returned.pop(name) for name in names if name in self._returned}

    def _join(self, task: _Strand, block: str) -> None:
        """What a consumer has bound becomes entry's, or disagrees with it."""
        for size, value in self._ended[block].sizes.items():
            if task.sizes.setdefault(size, value) != value:
                raise FailedError("E312", f"{size} is {value} in {block}")


def _region(chosen: Sequence[Chosen], whole: Array) -> tuple[Any, ...]:
    region: list[Any] = []
    for one, extent in zip(chosen, whole.shape, strict=True):
        cells = cells_of(one, extent)
        if (cells if isinstance(cells, int) else cells[1] - 1) >= extent:
            raise FailedError("E507", f"{cells} of {extent}")
        region.append(cells if isinstance(cells, int) else slice(*cells))
    return tuple(region)
