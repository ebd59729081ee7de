"""Lowers a draft to a graph of the language: assigns names, declares constants, converts parameters to values."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import printable
from openinfer.importing.draft import (
    I64,
    Draft,
    DraftBranch,
    DraftCopy,
    DraftCount,
    DraftCounter,
    DraftDeclare,
    DraftFamily,
    DraftLoop,
    DraftOp,
    DraftOperand,
    DraftPart,
    DraftRead,
    DraftState,
    DraftStep,
    DraftStore,
    DraftTable,
    DraftValue,
    DraftWrite,
    IndexOperand,
    KnownTensor,
    walk,
)
from openinfer.importing.extents import has_quotient
from openinfer.importing.identifiers import Identifiers
from openinfer.importing.indices import indices_read, with_index_names
from openinfer.importing.ir_values import (
    attribute_value,
    digest,
    is_position,
    layer_index,
    number_value,
    open_extent,
    plus,
    shortened_hint,
    tensor_name,
)
from openinfer.importing.names import common_name, family_pattern, module_path, value_name
from openinfer.ir.expr import Num, Ref
from openinfer.ir.graph import (
    Assign,
    Block,
    Branch,
    CacheIncrement,
    CacheRead,
    CacheWrite,
    Graph,
    Input,
    Loop,
    MemoryKind,
    Node,
    NodeKind,
    Op,
    Return,
    Scope,
    SizeDecl,
    Transfer,
    VarDecl,
)
from openinfer.ir.operand import Access, Literal, Single, Slice
from openinfer.ir.operand import Operand as IrOperand
from openinfer.ir.text import CommentKey, Comments
from openinfer.ir.values import (
    IntValue,
)
from openinfer.loops.dim import expr_of
from openinfer.ops import OPS, spec_of


@dataclass(frozen=True)
class Lowered:
    """A graph, the tensors of its model, and the names of its inputs and outputs."""

    graph: Graph
    comments: Comments
    tensors: Mapping[str, tuple[DType, Array]]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    states: Mapping[str, str]
    """The variable of each state, by the name of its input and by that of its output."""


def lowered(draft: Draft) -> Lowered:
    """Lower a draft to a graph."""
    return _Lowering(draft).result()


@dataclass
class _Names:
    """Assigns identifiers to values and other items."""

    identifiers: Identifiers
    of: dict[int, str] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)
    """The named items, kept alive so that no id is reused."""

    def name(self, item: object, text: str, fallback: str = "v") -> str:
        """The name of an item, assigned on first use."""
        found = self.of.get(id(item))
        if found is None:
            found = self.of[id(item)] = self.identifiers.unique(text, fallback)
            self.kept.append(item)
        return found


class _Lowering:
    """Lowers one draft."""

    def __init__(self, draft: Draft) -> None:
        indices = {step.index for step in walk(draft.steps) if isinstance(step, DraftLoop)}
        self._draft = draft
        self._sizes = {name for name, _ in draft.sizes}
        self._names = _Names(Identifiers((*indices, *self._sizes, "entry")))
        self._declared: dict[str, VarDecl] = {}
        self._tensors: dict[str, tuple[DType, Array]] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._blocks: list[Block] = []
        self._tensor_names = Identifiers()
        self._outputs: dict[int, str] = {}
        self._loops: dict[str, str] = {}
        self._around: list[str] = []
        """The indices of the enclosing loops, innermost last."""
        self._handed: dict[str, str] = {}
        """The variables that pass loop indices to the blocks of a branch."""

    def result(self) -> Lowered:
        draft = self._draft
        inputs = {}
        for port in draft.inputs:
            assert isinstance(port.operand, DraftValue)
            name = self._names.name(port.operand, port.name, "x")
            self._declare(name, MemoryKind.DYNAMIC, port.operand.dtype, port.operand.shape)
            inputs[port.name] = name
        states = {}
        for state in draft.states:
            states[state.given] = states[state.result] = self._state(state)
        outputs, copies = self._ports()
        nodes = self._scoped(draft.steps)
        nodes += [Node(Transfer(self._operand(src), Access(dst))) for src, dst in copies]
        nodes.append(Node(Return(tuple(dict.fromkeys(outputs.values())))))
        sizes = [SizeDecl(name, "<=", Num(bound)) for name, bound in draft.sizes]
        blocks = [Block("entry", tuple(nodes)), *self._blocks]
        graph = Graph.of(sizes, self._declared.values(), blocks)
        return Lowered(graph, self._comments(graph), self._tensors, inputs, outputs, states)

    def _comments(self, graph: Graph) -> Comments:
        """Comments that say where the graph and its loops came from."""
        found = Comments()
        kinds = {variable.kind for variable in graph.vars.values()}
        sections = ["sizes"] if graph.sizes else [kind.value for kind in MemoryKind if kind in kinds]
        if self._draft.comment:
            key: CommentKey = ("section", sections[0]) if sections else ("block", "entry")
            found.leading[key] = [f"// {printable(self._draft.comment)}"]
        loops = [node for node in graph.walk() if isinstance(node.kind, Loop)]
        for node in loops:
            assert isinstance(node.kind, Loop)
            comment = self._loops.get(node.kind.name)
            if comment:
                found.leading[("node", node.index)] = [f"// {printable(comment)}"]
        return found

    def _scoped(self, steps: Sequence[DraftStep]) -> list[Node]:
        """The nodes of steps; adjacent steps of an outermost module form a scope, unless there is nothing else."""
        groups: list[tuple[str, list[DraftStep]]] = []
        for step in steps:
            module = _outermost(step)
            word = groups[-1][0] if module is None and groups else module or ""
            if not groups or groups[-1][0] != word:
                groups.append((word, []))
            groups[-1][1].append(step)
        words = [word for word, _ in groups]
        if len(set(words)) < 2:
            return self._body(steps)
        nodes: list[Node] = []
        for word, group in groups:
            body = self._body(group)
            is_module = word and words.count(word) == 1 and len(group) >= _LEAST_SCOPE
            nodes += [Node(Scope(word, tuple(body)))] if is_module else body
        return nodes

    def _ports(self) -> tuple[dict[str, str], list[tuple[DraftOperand, str]]]:
        """The names of outputs, and the copies into those that no step computes."""
        computed = {
            id(one): one
            for step in walk(self._draft.steps)
            if isinstance(step, DraftOp) and step.declares
            for one in step.outputs
        }
        computed |= {id(step.value): step.value for step in self._draft.steps if isinstance(step, DraftDeclare)}
        # A declared extent must divide evenly; an inferred one rounds down as its op does.
        inferred = {
            id(one)
            for step in self._draft.steps
            if isinstance(step, DraftOp) and step.declares and len(step.outputs) == 1
            for one in step.outputs
            if any(map(has_quotient, one.shape))
        }
        outputs: dict[str, str] = {}
        copies: list[tuple[DraftOperand, str]] = []
        for port in self._draft.outputs:
            operand = port.operand
            if id(operand) in inferred and id(operand) not in self._names.of:
                outputs[port.name] = self._names.name(operand, port.name, "y")
                continue
            if id(operand) in computed and id(operand) not in self._names.of:
                name = self._names.name(operand, port.name, "y")
                self._outputs[id(operand)] = name
            else:
                name = self._names.identifiers.unique(port.name, "y")
                copies.append((operand, name))
            self._declare(name, MemoryKind.VOLATILE, operand.dtype, operand.shape)
            outputs[port.name] = name
        return outputs, copies

    def _declare(self, name: str, kind: MemoryKind, dtype: DType, shape: Iterable[int]) -> None:
        self._declared[name] = VarDecl(name, kind, dtype, tuple(map(expr_of, shape)))

    # --- steps ----------------------------------------------------------------------------------------------------

    def _body(self, steps: Iterable[DraftStep]) -> list[Node]:
        nodes: list[Node] = []
        for step in steps:
            nodes += [Node(kind) for kind in self._kinds(step)]
        return nodes

    def _kinds(self, step: DraftStep) -> list[NodeKind]:
        match step:
            case DraftOp():
                return self._op(step)
            case DraftDeclare(value) if id(value) in self._outputs:
                return []  # outputs are zero at the start of a step anyway
            case DraftDeclare(value):
                return [Assign(self._value(value), value.dtype, tuple(map(expr_of, value.shape)))]
            case DraftCopy(src, dst):
                return [Transfer(self._operand(src), self._target(dst))]
            case DraftLoop():
                return [self._loop(step)]
            case DraftBranch():
                return self._branch(step)
            case DraftStore(src, state):
                return [CacheWrite(self._operand(src), self._target(state))]
            case DraftWrite(src, table, added, _):
                begin = Ref(self._counter(table.counter))
                slots = (*layer_index(step.layer), Slice(begin, plus(begin, added)))
                return [CacheWrite(self._operand(src), Access(self._table(table), slots, bracketed=True))]
            case DraftRead(table, dst, added, _):
                slots = (*layer_index(step.layer), Slice(Num(0), plus(Ref(self._counter(table.counter)), added)))
                return [CacheRead(Access(self._table(table), slots, bracketed=True), Access(self._value(dst)))]
            case DraftCount(counter, added):
                return [CacheIncrement(self._counter(counter), expr_of(added))]

    def _loop(self, step: DraftLoop) -> Loop:
        name = self._names.identifiers.unique(step.name)
        self._loops[name] = step.comment
        end = Ref(self._value(step.count)) if isinstance(step.count, DraftValue) else expr_of(step.count)
        self._around.append(step.index)
        body = tuple(self._body(step.body))
        self._around.pop()
        return Loop(name, step.index, Num(0), end, body)

    def _branch(self, step: DraftBranch) -> list[NodeKind]:
        read = indices_read((*step.then_body, *step.else_body))
        around, handed = self._around, self._handed
        own = {index: self._names.identifiers.unique(f"{index}_now") for index in around if index in read}
        for name in own.values():
            self._tensor_names.unique(name)
            self._declare(name, MemoryKind.VOLATILE, I64, ())
        self._around, self._handed = [], {**handed, **own}
        bodies = zip(step.words, (step.then_body, step.else_body), strict=True)
        blocks = [self._block(word, body) for word, body in bodies]
        self._around, self._handed = around, handed
        given = [Transfer(Access(index), Access(name)) for index, name in own.items()]
        return [*given, Branch(self._value(step.cond), blocks[0], blocks[1])]

    def _block(self, word: str, body: tuple[DraftStep, ...]) -> str:
        """Add a block in front of those that it branches to, and return its name; empty blocks are shared."""
        if not body:
            empty = next((one.name for one in self._blocks if len(one.nodes) == 1), None)
            if empty is not None:
                return empty
        name, place = self._names.identifiers.unique(word), len(self._blocks)
        self._blocks.insert(place, Block(name, (*self._body(body), Node(Return()))))
        return name

    def _op(self, step: DraftOp) -> list[NodeKind]:
        record = OPS[step.op]
        inputs: list[Input] = []
        literals = self._literals(step)
        is_labelled = False
        for slot, operand in enumerate(step.inputs):
            if operand is None:
                is_labelled = True
                continue
            found = literals[slot] if slot in literals else self._operand(operand)
            inputs.append(Input(found, spec_of(record, slot).name if is_labelled else None))
        attrs = tuple((name, attribute_value(open_extent(step.op, value))) for name, value in step.params)
        specs = record.signature.outputs
        for place, one in enumerate(step.outputs):
            word = step.op if len(specs) == 1 else specs[min(place, len(specs) - 1)].name
            if isinstance(one, DraftValue):
                self._names.name(one, value_name(one.hint, word), "t")
        outputs = [self._target(one) for one in step.outputs]
        new = [
            Assign(access.base, None, None)
            for access, one in zip(outputs, step.outputs, strict=True)
            if step.declares and id(one) not in self._outputs
        ]
        if new and len(new) < len(outputs):
            # Results are either all inferred or all declared.
            new = [
                Assign(access.base, one.dtype, tuple(map(expr_of, one.shape)))
                for access, one in zip(outputs, step.outputs, strict=True)
                if id(one) not in self._outputs
            ]
        return [*new, Op(step.op, tuple(inputs), attrs, tuple(outputs))]

    def _literals(self, step: DraftOp) -> dict[int, Literal]:
        """The known scalars that can be literals: another operand determines their dtype."""
        record = OPS[step.op]
        kinds = [None if one is None else spec_of(record, slot).type for slot, one in enumerate(step.inputs)]
        found: dict[int, Literal] = {}
        if step.op == "gather" and is_position(step.inputs[1]):
            assert isinstance(step.inputs[1], KnownTensor)
            return {1: Literal(number_value(step.inputs[1]))}
        for slot, operand in enumerate(step.inputs):
            if step.op not in _WITH_LITERALS or not isinstance(operand, KnownTensor) or operand.array.size != 1:
                continue
            others = [
                other
                for place, other in enumerate(step.inputs)
                if place != slot and place not in found and kinds[place] == kinds[slot] and other is not None
            ]
            fits = [other for other in others if len(other.shape) >= len(operand.shape)]
            if fits and kinds[slot] in record.signature.types:
                found[slot] = Literal(number_value(operand))
        return found

    # --- states ---------------------------------------------------------------------------------------------------

    def _state(self, state: DraftState) -> str:
        if isinstance(state.memory, DraftTable):
            return self._table(state.memory)
        name = self._names.name(state.memory, state.memory.hint or state.given, "s")
        if name in self._declared:
            return name
        initial = state.initial
        if initial is None or not np.any(initial.array):
            self._tensor_names.unique(name)  # a tensor of that name would be its initial value
            self._declare(name, MemoryKind.PERSISTENT, state.memory.dtype, state.memory.shape)
            return name
        dims = tuple(map(expr_of, state.memory.shape))
        if not dims:
            self._declared[name] = VarDecl(name, MemoryKind.PERSISTENT, initial.dtype, dims, number_value(initial))
            return name
        stored = tensor_name(initial.hint, self._tensor_names)
        self._tensors[stored] = (initial.dtype, np.ascontiguousarray(initial.array))
        reference = None if stored == name else stored
        self._declared[name] = VarDecl(name, MemoryKind.PERSISTENT, initial.dtype, dims, None, reference)
        return name

    def _counter(self, counter: DraftCounter) -> str:
        if counter.hint in self._sizes:  # the size that it counts
            name = self._names.of.setdefault(id(counter), counter.hint)
        else:
            name = self._names.name(counter, counter.hint, "n")
        if name not in self._declared:
            self._declared[name] = VarDecl(name, MemoryKind.PERSISTENT, I64, (), IntValue(0))
        return name

    def _table(self, table: DraftTable) -> str:
        self._counter(table.counter)
        name = self._names.name(table, table.hint, "s")
        if name not in self._declared:
            dims = tuple(map(expr_of, table.entry))
            self._declared[name] = VarDecl(
                *(name, MemoryKind.PERSISTENT, table.dtype, dims),
                table_indices=("l", "t") if table.layers else ("t",),
                table=True,
                fixed=(*((("l", Num(table.layers)),) if table.layers else ()), ("t", Num(table.bound))),
            )
        return name

    # --- operands -------------------------------------------------------------------------------------------------

    def _value(self, value: DraftValue) -> str:
        return self._names.name(value, value_name(value.hint, "t"), "t")

    def _target(self, target: DraftValue | DraftPart) -> Access:
        if isinstance(target, DraftPart):
            indices = tuple(with_index_names(one, self._handed) for one in target.indices)
            return Access(self._value(target.base), indices, bracketed=True)
        return Access(self._value(target))

    def _operand(self, operand: DraftOperand) -> IrOperand:
        match operand:
            case KnownTensor():
                return Access(self._constant(operand))
            case IndexOperand():
                return Access(self._handed.get(operand.name, operand.name))
            case DraftFamily():
                return Access(self._family(operand), (self._index(operand.index),), bracketed=True)
            case _:
                return self._target(operand)

    def _index(self, name: str) -> Single:
        return Single(Ref(self._handed.get(name, name)))

    def _family(self, family: DraftFamily) -> str:
        """The name of a prefix table; a pattern names its tensors."""
        found = self._names.of.get(id(family))
        if found is not None:
            return found
        hints = [one.hint for one in family.members]
        name = self._names.name(family, shortened_hint(common_name(hints)), "w")
        before, behind = self._stored_names(name, hints)
        pattern = f"{before}{{{family.index}}}{behind}"
        for place, member in enumerate(family.members):
            stored = f"{before}{place}{behind}"
            self._tensors[stored] = (member.dtype, np.ascontiguousarray(member.array).reshape(member.shape))
        dims = tuple(Num(one) for one in family.shape)
        self._declared[name] = VarDecl(
            *(name, MemoryKind.CONSTANT, family.dtype, dims), pattern=pattern, table_indices=(family.index,)
        )
        return name

    def _stored_names(self, name: str, hints: Sequence[str]) -> tuple[str, str]:
        """The text around the layer number: that of the file, if model files allow it and it is free."""
        found = family_pattern(hints)
        if found is not None and re.fullmatch(r"[A-Za-z0-9._-]{1,200}", "".join(found)):
            names = [f"{found[0]}{place}{found[1]}" for place in range(len(hints))]
            taken = any(name in self._tensors or name in self._declared for name in names)
            return (f"{name}.", "") if taken else found
        return f"{name}.", ""

    def _constant(self, constant: KnownTensor) -> str:
        """The name of a constant; equal constants share it."""
        array = np.ascontiguousarray(constant.array).reshape(constant.shape)
        key = (constant.dtype.name, constant.shape, digest(array))
        name = self._shared.get(key)
        if name is not None:
            return name
        name = self._shared[key] = self._names.identifiers.unique(shortened_hint(constant.hint), "c")
        dims = tuple(Num(one) for one in constant.shape)
        if array.size == 1 and not constant.shape:
            self._declared[name] = VarDecl(name, MemoryKind.CONSTANT, constant.dtype, dims, number_value(constant))
            return name
        stored = tensor_name(constant.hint or name, self._tensor_names)
        self._tensors[stored] = (constant.dtype, array)
        reference = None if stored == name else stored
        self._declared[name] = VarDecl(name, MemoryKind.CONSTANT, constant.dtype, dims, None, reference)
        return name


def _outermost(step: DraftStep) -> str | None:
    """The outermost module of a step: empty for the whole model, None if the step belongs to the one before."""
    match step:
        case DraftOp():
            return (module_path(step.origin.node) or ("",))[0]
        case DraftLoop():
            first = (module_path(step.origin.node) or ("",))[0]
            return "" if re.search(r"[._]\d+$", first) else first  # of one layer, but the loop covers all
        case DraftStore() | DraftCount():
            return ""
    return None


_LEAST_SCOPE = 3
_WITH_LITERALS = {
    *("add", "sub", "mul", "div", "floor_div", "rem", "mod", "pow", "min", "max", "where", "fma", "atan2"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor"),
}
"""Ops that read well with literals, and whose result has the shape of the other operands."""
