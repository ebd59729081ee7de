"""From a bound graph to a program: variables become values, ops become kernels, control flow stays control flow."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from openinfer.check.access import access_type
from openinfer.check.bound import BoundGraph, BoundVar, Effects, FromCaller, FromInit, FromModel, FromPattern
from openinfer.check.indices import Around, Ranges, spelled
from openinfer.check.params import parameter
from openinfer.check.sizes import evaluate_evenly
from openinfer.dtypes import DType
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir import (
    Access,
    Assign,
    Await,
    Barrier,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Index,
    Loop,
    MemoryKind,
    ModelRef,
    Node,
    Op,
    Operand,
    Return,
    Scope,
    Single,
    Slice,
    Transfer,
    Yield,
)
from openinfer.ir.expr import Expr, Ref, names
from openinfer.ir.rules import awaited, branch_targets, is_consumer
from openinfer.ir.text import node_head
from openinfer.loops.build import Builder, load
from openinfer.loops.dim import Dim, at, sizes_in
from openinfer.loops.ir import Buffer, Const, Kernel, LoopKind
from openinfer.ops import Call, OpError, OpRecord, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.program import (
    BindSize,
    BranchStep,
    CallStep,
    Fence,
    KernelStep,
    LoopStep,
    Move,
    PartStep,
    Program,
    Step,
    Store,
    Table,
    TableStep,
    Value,
    Weight,
)

Current = Value | Weight
_MOST_ENTRIES = 1 << 20
"""How many entries of a prefix table are listed."""


def lowered(bound: BoundGraph) -> Program:
    """The program of a bound graph."""
    return _Lowering(bound).run()


class _Lowering:
    def __init__(self, bound: BoundGraph) -> None:
        self.bound = bound
        self.graph = bound.graph
        self.effects = bound.effects
        self.sizes: dict[str, int] = dict(bound.bounds)
        self.tables = {name: _table(variable) for name, variable in bound.vars.items() if variable.is_table}
        self.inputs: dict[str, Value] = {}
        self.homes: dict[str, Value] = {}
        self.current: dict[str, Current] = {}
        self.steps: list[Step] = []
        self.count = 0
        self.constants: dict[str, Weight] = {}
        self.loops: Around = ()
        self._of_entry = {node.index for node in self.graph.blocks["entry"].nodes}
        self._started: set[str] = set()
        self._yielded: set[str] = set()
        self._copies: dict[str, dict[str, Value]] = {}
        self._lengths: dict[tuple[int, str], str] = {}

    def run(self) -> Program:
        outside = set[str]()
        for name in self.graph.blocks:
            if name != "entry":
                outside |= self._block_effects(name).touches
        for name, variable in self.bound.vars.items():
            if variable.kind is MemoryKind.DYNAMIC:
                self.inputs[name] = self._value(name, variable.dtype, self._shape(variable), Store.INPUT)
            if (variable.kind is MemoryKind.PERSISTENT and not variable.is_table) or (
                name in outside and not variable.is_table and self._is_written(name)
            ):
                self._home(name)
        blocks = {name: self._block(name) for name in [*self.graph.blocks] if name != "entry"}
        entry = self._entry()
        outputs = {name: self._as_value(name) for name in self._output_names()}
        entry += self._take_steps()
        return Program(
            self.bound, {"entry": entry, **blocks}, self.inputs, outputs, self.homes, self.tables, self.sizes
        )

    def _block_effects(self, name: str) -> Effects:
        total = Effects()
        for node in self.graph.blocks[name].nodes:
            total |= self.effects[node.index]
        return total

    # --- values ---------------------------------------------------------------------------------------------------

    def _value(self, hint: str, dtype: DType, shape: Sequence[int], store: Store = Store.ARENA) -> Value:
        self.count += 1
        return Value(f"t{self.count}", dtype, tuple(shape), store, hint)

    def _size(self, name: str) -> int:
        """A size: a number, or a symbol that is known when the code runs."""
        if name in self.sizes:
            return Dim(self.sizes[name], Ref(name))
        return self.bound.sizes[name]

    def _dimension(self, expr: Expr) -> int:
        return evaluate_evenly(expr, {}, self._size)

    def _shape(self, variable: BoundVar) -> tuple[int, ...]:
        if variable.dims is None:
            return variable.shape
        return tuple(self._dimension(dim) for dim in variable.dims)

    def _is_written(self, name: str) -> bool:
        return any(name in self._block_effects(block).writes for block in self.graph.blocks)

    def _home(self, name: str) -> Value:
        """Where a variable's value is wherever control flow joins."""
        if name not in self.homes:
            variable = self.bound.vars[name]
            store = Store.STATE if variable.kind is MemoryKind.PERSISTENT else Store.ARENA
            home = self._value(name, variable.dtype, self._shape(variable), store)
            home.is_home = True
            self.homes[name] = home
        return self.homes[name]

    def _emit(self, step: Step) -> None:
        self.steps.append(step)

    def _take_steps(self) -> list[Step]:
        steps, self.steps = self.steps, []
        return steps

    def _read(self, name: str, node: int = -1) -> Current:
        """The value a variable has now; one that nothing has written yet begins here."""
        if name not in self.current:
            self.current[name] = self._initial(name, node)
        return self.current[name]

    def _initial(self, name: str, node: int) -> Current:
        variable = self.bound.vars[name]
        if variable.kind is MemoryKind.PERSISTENT:
            return self._home(name)
        match variable.origin:
            case FromCaller():
                return self.inputs[name]
            case FromModel(entry):
                return Weight((entry,), variable.dtype, variable.shape)
            case FromInit(value):
                number = 0 if value is None else value.value
                return self._filled(variable, number, node)
            case _:
                raise AssertionError(name)

    def _filled(self, variable: BoundVar, number: float, node: int) -> Value:
        value = self._value(variable.name, variable.dtype, self._shape(variable))
        self._emit(_fill_step(value, number, node))
        return value

    def _as_value(self, name: str) -> Value:
        """A variable's value in memory that can be pointed at and outlives the step's work."""
        found = self._read(name)
        if isinstance(found, Value) and found.store in (Store.ARENA, Store.STATE):
            return found
        copy = self._value(name, found.dtype, found.shape)
        self._emit(Move(found, copy, -1))
        return copy

    def _output_names(self) -> list[str]:
        """What entry returns; without names, every declared variable that a step writes and forgets."""
        last = self.graph.blocks["entry"].nodes[-1].kind
        if isinstance(last, Return) and last.vars:
            return [name for name in dict.fromkeys(last.vars) if not self.bound.vars[name].is_table]
        return [
            name
            for name, variable in self.bound.vars.items()
            if variable.kind in (MemoryKind.VOLATILE, MemoryKind.DYNAMIC)
            and not variable.is_temporary
            and not isinstance(variable.origin, FromPattern)
            and self._is_written(name)
        ]

    # --- blocks ---------------------------------------------------------------------------------------------------

    def _entry(self) -> list[Step]:
        self.current = {}
        self._body(self.graph.blocks["entry"].nodes)
        for name, variable in self.bound.vars.items():
            if variable.kind is MemoryKind.PERSISTENT and not variable.is_table:
                self._bring_home(name)
        return self._take_steps()

    def _block(self, name: str) -> list[Step]:
        """A block that runs on homes, and leaves everything there."""
        block = self.graph.blocks[name]
        self.current = {}
        copies: dict[str, Value] = {}
        if is_consumer(block):
            for variable in awaited(block):
                home = self._value(variable, self.bound.vars[variable].dtype, self._shape(self.bound.vars[variable]))
                home.is_home = True
                copies[variable] = home
            self._copies[name] = copies
        homes = {**self.homes, **copies}
        touched = sorted(self._block_effects(name).touches)
        self.current = {variable: homes[variable] for variable in touched if variable in homes}
        self._body(block.nodes)
        for variable in sorted(self._block_effects(name).writes):
            if variable in homes and not self.bound.vars[variable].is_table:
                self._settle(variable, homes[variable], block.nodes[-1].index)
        return self._take_steps()

    def _move(self, src: Current, dst: Value, node: int) -> None:
        if src is not dst:
            self._emit(Move(src, dst, node))

    def _bring_home(self, name: str, node: int = -1) -> None:
        self._settle(name, self._home(name), node)

    def _settle(self, name: str, home: Value, node: int) -> None:
        """Make a home hold the value of its variable."""
        value = self._read(name, node)
        if value is not home:
            self._spare({home: name})
            self._move(value, home, node)
            self.current[name] = home

    def _spare(self, homes: Mapping[Value, str]) -> None:
        """Homes are about to be written: other variables whose value lies there get copies of their own."""
        for name, value in list(self.current.items()):
            if isinstance(value, Value) and homes.get(value, name) != name:
                copy = self._value(name, value.dtype, value.shape)
                self._emit(Move(value, copy, -1))
                self.current[name] = copy

    def _homes_of(self, names: Iterable[str]) -> dict[Value, str]:
        return {self.homes[name]: name for name in names if name in self.homes}

    def _body(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._node(node)

    def _node(self, node: Node) -> None:
        kind = node.kind
        match kind:
            case Op():
                self._op(node, kind)
            case Assign(name):
                self.current.pop(name, None)
            case Transfer(source, dst) | CacheRead(source, dst) | CacheWrite(source, dst):
                self._copy(node, source, dst)
            case CacheIncrement(target, amount):
                self._count(node, target, amount)
            case CacheDecrement(target, amount):
                self._count(node, target, -amount)
            case CacheReset(access):
                self._reset(node, access)
            case Barrier():
                self._emit(Fence(node.index))
            case Scope(_, body):
                self._body(body)
            case Loop():
                self._loop(node, kind)
            case Branch():
                self._branch(node, kind)
            case Yield(variables) if node.index in self._of_entry:
                self._hand_over(node, variables)
            case Await(variables) if node.index in self._of_entry:
                self._take_back(variables)

    # --- control flow ---------------------------------------------------------------------------------------------

    def _loop(self, node: Node, kind: Loop) -> None:
        written = [name for name in sorted(self.effects[node.index].writes) if not self.bound.vars[name].is_table]
        for name in written:
            self._bring_home(name, node.index)
        self._spare(self._homes_of(written))
        scalars = self._scalars(kind.start, kind.end)
        outer, self.steps = self.steps, []
        loops, self.loops = self.loops, (*self.loops, kind)
        before = dict(self.current)
        self._body(kind.body)
        for name in written:
            self._bring_home(name, node.index)
        body, self.steps, self.loops = self.steps, outer, loops
        # What the body computed for itself is gone after it; what it only read is where it was.
        self.current = {name: value for name, value in self.current.items() if name in written or name in before}
        self._emit(LoopStep(kind.index, kind.start, kind.end, body, node.index, kind.name, scalars))

    def _branch(self, node: Node, kind: Branch) -> None:
        touched: set[str] = set()
        for block in branch_targets(node):
            touched |= self._block_effects(block).touches
        for name in sorted(touched):
            if name in self.homes:
                self._bring_home(name, node.index)
        for block in branch_targets(node):
            self._spare(self._homes_of(self._block_effects(block).writes))
        cond = None if kind.cond is None else self._as_value(kind.cond)
        self._emit(BranchStep(cond, kind.then_block, kind.else_block, node.index))

    def _hand_over(self, node: Node, variables: tuple[str, ...]) -> None:
        """Consumers that now have all they await run here, on copies of their own."""
        self._yielded |= set(variables)
        for block in self.graph.blocks.values():
            if not is_consumer(block) or block.name in self._started or not set(awaited(block)) <= self._yielded:
                continue
            self._started.add(block.name)
            for name, copy in self._copies[block.name].items():
                self._move(self._read(name), copy, node.index)
            for name in sorted(self._block_effects(block.name).touches - set(awaited(block))):
                if name in self.homes:
                    self._bring_home(name, node.index)
            self._spare(self._homes_of(self._block_effects(block.name).writes - set(awaited(block))))
            self._emit(CallStep(block.name, node.index))

    def _take_back(self, variables: tuple[str, ...]) -> None:
        for name in variables:
            for block in self.graph.blocks.values():
                if is_consumer(block) and name in awaited(block) and name in self._writes_of(block.name):
                    self.current[name] = self._copies[block.name][name]

    def _writes_of(self, block: str) -> frozenset[str]:
        return self._block_effects(block).writes

    def _scalars(self, *exprs: Expr | None) -> list[Value]:
        """The homes of the variables that index expressions read, with their values brought there."""
        indices = {loop.index for loop in self.loops}
        found: list[Value] = []
        for expr in exprs:
            for name in () if expr is None else names(expr):
                if name not in indices and name in self.bound.vars and name not in self.bound.constants:
                    self._bring_home(name)
                    found.append(self._home(name))
        return found

    def _index_scalars(self, indices: Sequence[Index]) -> list[Value]:
        exprs: list[Expr | None] = []
        for index in indices:
            exprs += [index.value] if isinstance(index, Single) else [index.start, index.end]
        return self._scalars(*exprs)

    # --- operands -------------------------------------------------------------------------------------------------

    def _operand(self, operand: Operand, node: Node) -> Current:
        if isinstance(operand, ModelRef):
            return self._model_ref(operand, node)
        variable = self.bound.vars[operand.base]
        if variable.is_table:
            return self._table_read(operand, node, None)
        if isinstance(variable.origin, FromPattern):
            return self._family(operand, variable, variable.origin.pattern, node)
        if operand.bracketed and operand.indices:
            return self._part_read(operand, node, None)
        return self._read(operand.base, node.index)

    def _model_ref(self, operand: ModelRef, node: Node) -> Weight:
        model = self.bound.model
        assert model is not None
        if not operand.formatted:
            info = model.tensors.get(operand.name)
            if info is not None:
                return Weight((operand.name,), info.dtype, info.shape)
            variable = next(v for v in self.bound.vars.values() if v.origin == FromModel(operand.name))
            return Weight((operand.name,), variable.dtype, variable.shape)
        used = [loop for loop in self.loops if f"{{{loop.index}}}" in operand.name]
        values = [dict(one) for one in Ranges(self._static).all(None, self.loops, operand.name)]
        names = [spelled(operand.name, one) for one in values]
        if not names:  # the loops' bounds are known only while running: every tensor that can be meant
            indices = tuple(loop.index for loop in used)
            found = _entries_of(operand.name, indices, list(model.tensors))
            values = [dict(zip(indices, key, strict=True)) for key in found]
            names = list(found.values())
        if not names:
            raise _refused(node, f"the model has no tensor for {operand}")
        info = model.tensors[names[0]]
        return _family_of(names, values, [loop.index for loop in used], [Ref(loop.index) for loop in used], info)

    def _static(self, name: str) -> int | None:
        if name in self.bound.vars:
            found = self.bound.constants.get(name)
            return found if isinstance(found, int) else None
        return self.bound.sizes.get(name)

    def _family(self, access: Access, variable: BoundVar, pattern: str, node: Node) -> Weight:
        """A prefix table: every entry that the indices can name, chosen while running."""
        model = self.bound.model
        assert model is not None
        assert variable.decl is not None
        exprs = [index.value for index in access.indices if isinstance(index, Single)]
        fitting = [
            info.name
            for info in model.tensors.values()
            if info.has_data and info.dtype is variable.dtype and info.shape == variable.shape
        ]
        entries = _entries_of(pattern, variable.decl.table_indices, fitting)
        if not entries:
            raise _refused(node, f"the model has no tensor for {access}")
        firsts = [min(key[axis] for key in entries) for axis in range(len(exprs))]
        lasts = [max(key[axis] for key in entries) for axis in range(len(exprs))]
        extents = [last - first + 1 for first, last in zip(firsts, lasts, strict=True)]
        if prod(extents) > _MOST_ENTRIES:
            raise _refused(node, f"{access} can be {prod(extents)} tensors, most of which the model does not have")
        keys = product(*(range(first, last + 1) for first, last in zip(firsts, lasts, strict=True)))
        names = [entries.get(key, "") for key in keys]
        return Weight(tuple(names), variable.dtype, variable.shape, tuple(exprs), tuple(extents), tuple(firsts))

    # --- ops ------------------------------------------------------------------------------------------------------

    def _op(self, node: Node, kind: Op) -> None:
        own = self.bound.ops[node.index]
        operands = [None if operand is None else self._operand(operand, node) for operand in own.operands]
        types = tuple(
            None if value is None else TensorType(value.dtype, value.shape, self._quant(value)) for value in operands
        )
        wanted = tuple(self._wanted(output) for output in kind.outputs)
        call = self._inferred(node, own.record, Call(types, self._params(own.record, kind), wanted))
        kernel = kernel_of(own.record, call, own.stored)
        inputs: list[Current] = [value for value in operands if value is not None]
        inputs += self._quantization(kernel, operands)
        outputs = [self._result(output, found, node) for output, found in zip(kind.outputs, call.outputs, strict=True)]
        scratch = [self._value(one.name, one.dtype, one.shape) for one in kernel.scratch]
        scalars = self._scalars(*(expr for one in inputs if isinstance(one, Weight) for expr in one.index))
        self._emit(KernelStep(kernel, inputs, outputs, node.index, scratch, scalars))
        for output, value in zip(kind.outputs, outputs, strict=True):
            self._write(node, output, value)

    def _result(self, output: Access, found: TensorType, node: Node) -> Value:
        """The value an op gives. A variable's extents are those it declares, which may have no value until now."""
        variable = self.bound.vars[output.base]
        shape = found.shape
        if variable.dims is not None and not variable.is_table and not (output.bracketed and output.indices):
            shape = self._shape(variable)
            for declared, own in zip(shape, found.shape, strict=True):
                if repr(declared) != repr(own):
                    self._emit(BindSize(declared, own, node.index))
        return self._value(output.base, found.dtype, shape)

    def _inferred(self, node: Node, record: OpRecord, call: Call) -> Call:
        """The call with its results. Lengths that only a run knows must fit whatever they are, not by accident."""
        try:
            found = infer(record, call)
        except OpError as error:
            raise _refused(node, error.message, error.advice) from error
        types = [kind for kind in call.inputs if kind is not None]
        used = sorted({name for kind in types for extent in kind.shape for name in sizes_in(extent)})
        unnamed = [name for name in used if not name.isidentifier()]
        if not unnamed:
            return found
        sample = {name: max(1, self.sizes[name] - 1 - place) for place, name in enumerate(used)}
        try:
            other = infer(record, _at_sizes(call, sample))
        except OpError:
            other = None
        wanted = [tuple(at(extent, sample) for extent in kind.shape) for kind in found.outputs]
        if other is None or [kind.shape for kind in other.outputs] != wanted:
            message = f"a length in {node_head(node)} is known only while running, and must fit others"
            raise _refused(node, message, "read the part into a variable first, whose dimensions are sizes")
        return found

    def _quant(self, value: Current) -> Any:
        if not isinstance(value, Weight) or self.bound.model is None:
            return None
        info = self.bound.model.tensors.get(next(name for name in value.names if name))
        return None if info is None else info.quant

    def _quantization(self, kernel: Kernel, operands: Sequence[Current | None]) -> list[Current]:
        """The scales and zero points of quantized operands, in the order the kernel takes them."""
        own = sum(value is not None for value in operands)
        found: list[Current] = []
        for buffer in kernel.inputs[own:]:
            part = buffer.name.rstrip("0123456789")
            slot = int(buffer.name[len(part) :])
            weight = operands[slot]
            assert isinstance(weight, Weight)
            found.append(replace(weight, dtype=buffer.dtype, shape=buffer.shape, part=part))
        return found

    def _wanted(self, output: Access) -> TensorType | None:
        variable = self.bound.vars[output.base]
        if variable.dims is None:
            return None
        return TensorType(variable.dtype, self._shape(variable))

    def _params(self, record: Any, kind: Op) -> dict[str, Any]:
        inputs = {spec.name for spec in record.signature.inputs}

        def named(name: str) -> Any:
            if name in self.bound.vars:
                return self.bound.constants.get(name)
            if name in self.sizes or name in self.bound.sizes:
                return self._size(name)
            model = self.bound.model
            return model.metadata[name] if model is not None and name in model.metadata_info else None

        given = {
            name: parameter(name, value, named, self._size)
            for name, value in kind.attrs
            if not (name in inputs and record.param(name) is None)
        }
        return complete(record, given)

    def _write(self, node: Node, access: Access, value: Value) -> None:
        variable = self.bound.vars[access.base]
        if variable.is_table:
            scalars = self._index_scalars(access.indices)
            self._emit(TableStep("write", self.tables[access.base], access.indices, value, node.index, scalars))
        elif isinstance(variable.origin, FromPattern):
            raise _refused(node, f"{access} is written: an entry of a prefix table cannot be changed by generated code")
        elif access.bracketed and access.indices:
            self._part_change("write", access, node, value, 0)
        else:
            self.current[access.base] = value

    # --- copies ---------------------------------------------------------------------------------------------------

    def _copy(self, node: Node, source: Operand, dst: Access) -> None:
        target = self.bound.vars[dst.base]
        shape = None if target.is_table or dst.bracketed or target.dims is None else self._shape(target)
        if isinstance(source, Access) and self.bound.vars[source.base].is_table:
            value: Current = self._table_read(source, node, shape)
        elif isinstance(source, Access) and self._is_part(source):
            value = self._part_read(source, node, shape)
        else:
            value = self._operand(source, node)
        variable = self.bound.vars[dst.base]
        if variable.is_table or (dst.bracketed and dst.indices) or isinstance(variable.origin, FromPattern):
            if isinstance(value, Weight):
                copy = self._value(dst.base, value.dtype, value.shape)
                self._emit(Move(value, copy, node.index))
                value = copy
            self._write(node, dst, value)
        else:
            self.current[dst.base] = value

    def _table_read(self, access: Access, node: Node, shape: tuple[int, ...] | None) -> Value:
        table = self.tables[access.base]
        if shape is None:
            shape = self._table_shape(access, table, node)
        value = self._value(access.base, table.variable.dtype, shape)
        scalars = self._index_scalars(access.indices)
        self._emit(TableStep("read", table, access.indices, value, node.index, scalars))
        return value

    def _table_shape(self, access: Access, table: Table, node: Node) -> tuple[int, ...]:
        """The shape of a part that an op reads directly; a length that is not a size gets one of its own."""
        variable = table.variable
        assert variable.decl is not None
        indices = variable.decl.table_indices
        chosen = dict(zip(indices, access.indices or (Slice(),) * len(indices), strict=True))
        keys = [chosen[name] for name in indices if name not in variable.decl.auto_dim]
        cells = [chosen[name] for name in variable.decl.auto_dim]
        is_grown = all(isinstance(one, Single) for one in cells)
        ordered = [*keys, *cells]
        kept = [
            (index, bound)
            for axis, (index, bound) in enumerate(zip(ordered, table.bounds, strict=True))
            if isinstance(index, Slice) or (is_grown and axis >= len(keys))
        ]
        return self._part_shape(access, variable, node, kept)

    def _part_shape(
        self, access: Access, variable: BoundVar, node: Node, kept: Sequence[tuple[Index, int | None]]
    ) -> tuple[int, ...]:
        """The shape of a part; ``kept`` are the indices that have lengths, with the most these can be."""
        found = access_type(access, variable, self._shape(variable), self._static)
        extents: list[int] = []
        for axis, extent in enumerate(found.shape):
            if extent is not None:
                extents.append(extent)
                continue
            index, bound = kept[axis]
            if bound is None:
                raise _refused(node, f"the length of {access} has no bound", "bound the table with @fixed")
            extents.append(self._unnamed(node, index, bound))
        return tuple(extents)

    def _unnamed(self, node: Node, index: Index, bound: int) -> int:
        """The length of a slice as a size without a name; slices of one node that are written alike are as long."""
        text = f"{index.value}" if isinstance(index, Single) else f"{index.start}..{index.end}"
        key = (node.index, text)
        if key not in self._lengths:
            # No size of a graph begins with a digit.
            self._lengths[key] = f"{len(self._lengths)}_{node.index}"
            self.sizes[self._lengths[key]] = int(bound)
        name = self._lengths[key]
        return Dim(self.sizes[name], Ref(name))

    # --- parts of plain tensors -----------------------------------------------------------------------------------

    def _is_part(self, access: Access) -> bool:
        variable = self.bound.vars[access.base]
        is_plain = not variable.is_table and not isinstance(variable.origin, FromPattern)
        return is_plain and access.bracketed and bool(access.indices)

    def _part_read(self, access: Access, node: Node, shape: tuple[int, ...] | None) -> Value:
        whole = self._read(access.base, node.index)
        if shape is None:
            pairs = zip(access.indices, whole.shape, strict=True)
            kept = [(index, extent) for index, extent in pairs if isinstance(index, Slice)]
            shape = self._part_shape(access, self.bound.vars[access.base], node, kept)
        scalars = self._index_scalars(access.indices)
        value = self._value(access.base, whole.dtype, shape)
        self._emit(PartStep("read", whole, access.indices, value, node.index, scalars))
        return value

    def _part_change(self, action: str, access: Access, node: Node, value: Current | None, initial: float) -> None:
        """A part gets other values: a copy of the whole is changed, which placement makes the whole itself."""
        scalars = self._index_scalars(access.indices)
        whole = self._read(access.base, node.index)
        changed = self._value(access.base, whole.dtype, whole.shape)
        self._emit(Move(whole, changed, node.index))
        self._emit(PartStep(action, changed, access.indices, value, node.index, scalars, initial))
        self.current[access.base] = changed

    def _count(self, node: Node, name: str, amount: int) -> None:
        value = self._read(name, node.index)
        assert isinstance(value, Value)
        result = self._value(name, value.dtype, ())
        x, y = Buffer("x0", value.dtype, ()), Buffer("y0", value.dtype, ())
        builder = Builder()
        builder.store(y, (), load(x) + Const(amount, value.dtype.compute))
        kernel = Kernel("count", (x,), (y,), builder.body, (), (f"`y = x + {amount}`",))
        self._emit(KernelStep(kernel, [value], [result], node.index))
        self.current[name] = result

    def _reset(self, node: Node, access: Access) -> None:
        variable = self.bound.vars[access.base]
        if variable.is_table:
            scalars = self._index_scalars(access.indices)
            self._emit(TableStep("reset", self.tables[access.base], access.indices, None, node.index, scalars))
            return
        if isinstance(variable.origin, FromModel):
            original = Weight((variable.origin.name,), variable.dtype, variable.shape)
            if access.indices:
                self._part_change("reset", access, node, original, 0)
            else:
                self.current[access.base] = original
            return
        assert isinstance(variable.origin, FromInit)
        number = 0 if variable.origin.value is None else variable.origin.value.value
        if access.indices:
            self._part_change("reset", access, node, None, number)
            return
        self.current[access.base] = self._filled(variable, number, node.index)


def _fill_step(value: Value, number: float, node: int) -> KernelStep:
    """Every element the same. All bits zero means -1 for t1, which has no zero."""
    out = Buffer("y0", value.dtype, value.shape)
    builder = Builder()
    element = -1 if value.dtype.name == "t1" and number == 0 else number
    with builder.loops(value.shape, LoopKind.PARALLEL) as where:
        builder.store(out, where, Const(element, value.dtype.compute))
    return KernelStep(Kernel("fill", (), (out,), builder.body, (), (f"`y = {number}`",)), [], [value], node)


def _table(variable: BoundVar) -> Table:
    decl = variable.decl
    assert decl is not None
    keys = [index for index in decl.table_indices if index not in decl.auto_dim]
    bounds: list[int | None] = [variable.fixed.get(index) for index in keys]
    for axis, index in enumerate(decl.auto_dim):
        bounds.append(None if index not in variable.fixed else variable.shape[axis] + variable.fixed[index])
    return Table(variable, tuple(bounds), variable.shape[len(decl.auto_dim) :], len(keys))


def _entries_of(pattern: str, indices: tuple[str, ...], names: Sequence[str]) -> dict[tuple[int, ...], str]:
    """The tensors whose names a pattern spells, by their indices."""
    import re

    parts = re.split(r"\{([^{}]*)\}", pattern)
    text = "".join(
        re.escape(part) if position % 2 == 0 else rf"(?P<{part}_{position}>\d+)" for position, part in enumerate(parts)
    )
    expression = re.compile(text)
    places = {index: f"{index}_{parts.index(index, 1)}" for index in indices}
    found: dict[tuple[int, ...], str] = {}
    for name in names:
        match = expression.fullmatch(name)
        if match is None:
            continue
        key = tuple(int(match[places[index]]) for index in indices)
        if spelled(pattern, dict(zip(indices, key, strict=True))) == name:
            found[key] = name
    return found


def _family_of(
    names: Sequence[str], values: Sequence[Mapping[str, int]], keys: Sequence[str], exprs: Sequence[Expr], info: Any
) -> Weight:
    firsts = [min(one[key] for one in values) for key in keys]
    extents = [max(one[key] for one in values) - first + 1 for key, first in zip(keys, firsts, strict=True)]
    by_key = {tuple(one[key] for key in keys): name for one, name in zip(values, names, strict=True)}
    ordered = [
        by_key.get(place, "")
        for place in product(*(range(first, first + extent) for first, extent in zip(firsts, extents, strict=True)))
    ]
    return Weight(tuple(ordered), info.dtype, info.shape, tuple(exprs), tuple(extents), tuple(firsts))


def _at_sizes(call: Call, sizes: Mapping[str, int]) -> Call:
    """A call with numbers in the place of dynamic sizes."""

    def settled(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(settled, value))
        return at(value, sizes) if isinstance(value, Dim) and sizes_in(value) <= sizes.keys() else value

    inputs = tuple(None if kind is None else replace(kind, shape=settled(kind.shape)) for kind in call.inputs)
    wanted = tuple(None if kind is None else replace(kind, shape=settled(kind.shape)) for kind in call.wanted)
    return replace(
        call, inputs=inputs, params={name: settled(value) for name, value in call.params.items()}, wanted=wanted
    )


def _refused(node: Node, message: str, advice: str | None = None) -> GraphError:
    return GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, node.span, advice))
