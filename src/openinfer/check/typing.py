"""Every node of a graph typed, at one choice of the dynamic sizes.

The walk follows program order. A variable whose own declaration is wrong has been reported already; nodes that touch
it are passed over.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from openinfer.check.access import AccessType, access_type
from openinfer.check.bound import BoundOp, BoundVar, Effects, FromInit, FromPattern
from openinfer.check.indices import Around, Ranges, pattern_name, spelled
from openinfer.check.links import model_entry, scalar_value
from openinfer.check.params import parameter
from openinfer.check.sizes import SizeError, Sizes, dimension
from openinfer.errors import Code, Diagnostic, GraphPlace, nearest
from openinfer.ir import (
    Access,
    Assign,
    Branch,
    CacheRead,
    CacheReset,
    CacheWrite,
    Graph,
    Input,
    Loop,
    MemoryKind,
    ModelRef,
    Node,
    Op,
    Operand,
    Scope,
    Single,
    Slice,
    Transfer,
)
from openinfer.ir.expr import Expr, names
from openinfer.ir.rules import branch_targets
from openinfer.ir.values import VarValue
from openinfer.oinf.model import ModelLoader
from openinfer.ops import OPS, Call, OpError, OpRecord, Shape, TensorType, complete, infer, slots, with_dtypes

_MOST_MISSING = 3


class UntypableError(Exception):
    """The node touches something that has been reported."""


class Typing:
    """One walk over a graph with the dynamic sizes at given values."""

    def __init__(
        self,
        graph: Graph,
        model: ModelLoader | None,
        sizes: Sizes,
        declared: Mapping[str, BoundVar],
        effects: Mapping[int, Effects],
        at: Mapping[str, int],
    ) -> None:
        self.graph = graph
        self.model = model
        self.sizes = sizes
        self.effects = effects
        self.at = at
        self.vars = dict(declared)
        self.ops: dict[int, BoundOp] = {}
        self.problems: list[Diagnostic] = []
        self.constants: dict[str, Any] = {}
        self._assigned: set[str] = set()
        self._in_entry = True
        self._temporaries = {node.kind.name for node in graph.walk() if isinstance(node.kind, Assign)}
        self._ranges = Ranges(self._static)

    def run(self) -> "Typing":
        """Walk entry first, which assigns the temporaries, then the other blocks."""
        self._body(self.graph.blocks["entry"].nodes, ())
        self._in_entry = False
        for name, block in self.graph.blocks.items():
            if name != "entry":
                self._body(block.nodes, ())
        return self

    def _report(self, code: Code, message: str, span: GraphPlace | None, advice: str | None = None) -> None:
        self.problems.append(Diagnostic(code, message, span, advice))

    # --- names ----------------------------------------------------------------------------------------------------

    def _size(self, name: str) -> int:
        return self.at[name] if name in self.at else self.sizes.lookup(name)

    def _static(self, name: str) -> int | None:
        """What an index name is worth, where that never changes: constants and sizes, not loop indices or variables."""
        if name in self.vars or name in self._temporaries:
            value = self._constant(name)
            return value if isinstance(value, int) else None
        return self.at[name] if name in self.at else self.sizes.get(name)

    def _constant(self, name: str) -> Any:
        variable = self.vars.get(name)
        if variable is None or variable.kind is not MemoryKind.CONSTANT or variable.shape:
            return None
        if name not in self.constants:
            self.constants[name] = scalar_value(variable, self.model)
        return self.constants[name]

    def _named(self, name: str) -> Any:
        """What a parameter that is a name stands for: a constant, a size, or a metadata value."""
        if name in self.vars or name in self._temporaries:
            return self._constant(name)
        if name in self.at:
            return self.at[name]
        found = self.sizes.get(name)
        if found is None and self.model is not None and name in self.model.metadata_info:
            value = self.model.metadata[name]
            return value if isinstance(value, str | float | bool) else None
        return found

    # --- the walk -------------------------------------------------------------------------------------------------

    def _body(self, nodes: Iterable[Node], loops: Around) -> None:
        for node in nodes:
            try:
                self._node(node, loops)
            except UntypableError:
                pass
            except OpError as error:
                self._report(error.code, error.message, self._place(node, error), error.advice)
            except SizeError as error:
                self._report(error.code, error.message, node.span, error.advice)

    def _node(self, node: Node, loops: Around) -> None:
        kind = node.kind
        if not isinstance(kind, Assign | Loop | Scope):
            self._require_assigned(node)
        match kind:
            case Assign():
                self._assign(kind)
            case Op():
                self._op(node, kind, loops)
            case Transfer(src, dst) | CacheRead(src, dst) | CacheWrite(src, dst):
                self._copy(node, src, dst, loops)
            case CacheReset(target):
                self._reset(target, node, loops)
            case Branch(str(cond)):
                self._condition(node, cond)
            case Scope(_, body):
                self._body(body, loops)
            case Loop():
                for bound in (kind.start, kind.end):
                    self._index_names(bound, node.span, loops)
                self._body(kind.body, (*loops, kind))

    def _place(self, node: Node, error: OpError) -> GraphPlace | None:
        """The operand an error is about, where it has a place of its own."""
        if isinstance(node.kind, Op) and isinstance(error.at, int) and error.at < len(node.kind.inputs):
            return node.kind.inputs[error.at].operand.span or node.span
        return node.span

    def _require_assigned(self, node: Node) -> None:
        if not self._in_entry:
            return
        early = sorted(self.effects[node.index].touches & self._temporaries - self._assigned)
        if early:
            via = ""
            if isinstance(node.kind, Branch):
                via = f" by the block {' or '.join(repr(name) for name in branch_targets(node))}"
            message = f"{early[0]!r} is used{via} before it is assigned"
            self._report(Code.USED_BEFORE_ASSIGN, message, node.span, f"move 'assign {early[0]}: ...' up")
            raise UntypableError

    def _assign(self, kind: Assign) -> None:
        self._assigned.add(kind.name)
        if kind.dtype is None or kind.dims is None:
            return  # a classic ``t = op``: the op gives the type
        shape = tuple(dimension(dim, self.at, self.sizes.lookup) for dim in kind.dims)
        is_dynamic = any(self.sizes.is_dynamic(dim) for dim in kind.dims)
        self.vars[kind.name] = BoundVar(
            kind.name, MemoryKind.VOLATILE, kind.dtype, kind.dims, shape, FromInit(None), is_dynamic=is_dynamic
        )

    def _variable(self, name: str) -> BoundVar:
        if name not in self.vars:
            raise UntypableError
        return self.vars[name]

    # --- operands -------------------------------------------------------------------------------------------------

    def _operand(self, operand: Operand, node: Node, loops: Around) -> AccessType:
        if isinstance(operand, ModelRef):
            return self._model_ref(operand, node, loops)
        variable = self._variable(operand.base)
        span = operand.span or node.span
        for index in operand.indices:
            for expr in (index.value,) if isinstance(index, Single) else (index.start, index.end):
                if expr is not None:
                    self._index_names(expr, span, loops)
        self._require_inside(operand, variable, span, loops)
        found = access_type(operand, variable, self._shape(variable), self._outside_loops(loops))
        if isinstance(variable.origin, FromPattern):
            entries = list(self._entries(operand, variable, variable.origin.pattern, span, loops))
            quants = [entry.quant for entry in entries if entry.quant is not None]
            return replace(found, quant=quants[0] if quants else None)
        return found

    def _outside_loops(self, loops: Around) -> Any:
        indices = {loop.index for loop in loops}
        return lambda name: None if name in indices else self._static(name)

    def _shape(self, variable: BoundVar) -> Shape:
        if variable.dims is None or not variable.is_dynamic:
            return variable.shape
        return tuple(dimension(dim, self.at, self.sizes.lookup) for dim in variable.dims)

    def _index_names(self, expr: Expr, span: GraphPlace | None, loops: Around) -> None:
        indices = {loop.index for loop in loops}
        for name in names(expr):
            if name not in indices and name not in self._temporaries and name not in self.graph.vars:
                try:
                    self._size(name)
                except SizeError as error:
                    self._report(error.code, error.message, span, error.advice)
                    raise UntypableError from error

    def _require_inside(self, access: Access, variable: BoundVar, span: GraphPlace | None, loops: Around) -> None:
        """Refuse indices that are outside their bounds whatever the step does."""
        for axis, bound in self._bounded(access, variable):
            index = access.indices[axis]
            exprs = (index.value,) if isinstance(index, Single) else (index.start, index.end)
            for expr in exprs:
                if expr is None:
                    continue
                last = bound if isinstance(index, Slice) else bound - 1
                value = self._ranges.outside(expr, loops, last, counts_back=isinstance(index, Slice))
                if value is not None:
                    message = f"the index {value} of {access.base!r} is outside its bound {bound}"
                    self._report(Code.INDEX_OUT_OF_RANGE, message, span)
                    raise UntypableError

    def _bounded(self, access: Access, variable: BoundVar) -> Iterator[tuple[int, int]]:
        decl = variable.decl
        if decl is None or not access.indices:
            return
        if not decl.is_indexed:
            yield from enumerate(self._shape(variable))
            return
        grown = dict(zip(decl.auto_dim, self._shape(variable), strict=False))
        by_name = dict(zip(decl.table_indices, access.indices, strict=False))
        all_single = all(isinstance(by_name.get(name), Single) for name in grown)
        for axis, name in enumerate(by_name):
            if name in variable.fixed:
                bound = variable.fixed[name]
                if name in grown:
                    # A[i, j] grows by at most the bound; rows and slices reach up to the grown extent.
                    bound = bound + 1 if all_single else grown[name] + bound
                yield axis, bound

    def _model_ref(self, operand: ModelRef, node: Node, loops: Around) -> AccessType:
        span = operand.span or node.span
        names_ = [operand.name]
        if operand.formatted:
            names_ = [spelled(operand.name, values) for values in self._ranges.all(None, loops, operand.name)]
        found = [kind for name in names_ if (kind := self._entry_type(name, span)) is not None]
        if not found:
            raise UntypableError
        first = found[0]
        for name, kind in zip(names_, found, strict=False):
            if kind.dtype is not first.dtype or kind.shape != first.shape:
                message = f"{operand} is {first} and {kind} ({name!r}): it has one type everywhere"
                self._report(Code.LINK_TYPE, message, span)
                raise UntypableError
        return AccessType(first.dtype, first.shape, first.quant)

    def _entry_type(self, name: str, span: GraphPlace | None) -> TensorType | None:
        entry = model_entry(self.model, name)
        if entry is not None and entry.has_data:
            return entry.type
        message = f"the model has no tensor {name!r}" if entry is None else f"the tensor {name!r} has no data"
        known = self.model.tensors if self.model is not None else ()
        self._report(Code.UNKNOWN_LINK, message, span, nearest(name, known))
        return None

    def _entries(
        self, access: Access, variable: BoundVar, pattern: str, span: GraphPlace | None, loops: Around
    ) -> Iterator[TensorType]:
        """The types of the model tensors that an access of a prefix table can name, as far as that is static."""
        wanted = TensorType(variable.dtype, variable.shape, dims=tuple(map(str, variable.dims or ())))
        missing = 0
        for values in self._ranges.all(access, loops):
            name = pattern_name(variable, access, pattern, values, self._static)
            if name is None:
                return
            entry = model_entry(self.model, name)
            if entry is None or not entry.has_data:
                missing += 1
                if missing <= _MOST_MISSING:
                    known = self.model.tensors if self.model is not None else ()
                    message = f"{access} is the model tensor {name!r}, which does not exist"
                    self._report(Code.UNKNOWN_LINK, message, span, nearest(name, known))
            elif entry.type.dtype is not wanted.dtype or entry.type.shape != wanted.shape:
                message = f"{access.base!r} is {wanted}, but the entry {name!r} of the model is {entry.type}"
                self._report(Code.LINK_TYPE, message, span)
                return
            else:
                yield entry.type

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _condition(self, node: Node, cond: str) -> None:
        found = self._variable(cond)
        if found.dtype.kind != "bool" or found.shape or found.is_table:
            message = f"the condition {cond!r} is {found.type}, not a scalar bool"
            self._report(Code.WRONG_DTYPE, message, node.span, "compare first: op gt(x, y) >> cond")

    def _copy(self, node: Node, src: Operand, dst: Access, loops: Around) -> None:
        source = self._operand(src, node, loops)
        target = self._untyped(dst) or self._operand(dst, node, loops)
        if isinstance(target, str):
            raise UntypableError
        if not source.agrees_with(target):
            message = f"{src} is {source}, but {dst} is {target}"
            self._report(Code.RESULT_TYPE, message, dst.span or node.span)

    def _reset(self, target: Access, node: Node, loops: Around) -> None:
        variable = self._variable(target.base)
        if len(target.indices) == len(variable.decl.table_indices if variable.decl else ()):
            self._operand(target, node, loops)

    def _untyped(self, access: Access) -> str | None:
        """The name of a classic temporary that has no type yet."""
        is_classic = access.base in self._temporaries and access.base not in self.vars
        return access.base if is_classic and not access.bracketed else None

    def _op(self, node: Node, kind: Op, loops: Around) -> None:
        record = OPS.get(kind.op)
        if record is None:
            advice = nearest(kind.op, OPS) or "'openinfer ops' lists them"
            self._report(Code.UNKNOWN_OP, f"there is no op {kind.op!r}", node.span, advice)
            raise UntypableError
        inputs, attrs = self._arguments(record, kind)
        types = [self._operand(given.operand, node, loops) for given in inputs]
        wanted = [None if self._untyped(output) else self._operand(output, node, loops) for output in kind.outputs]
        places = slots(record, [given.name for given in inputs])
        self._require_outputs(record, kind)
        operands = tuple(None if place is None else inputs[place].operand for place in places)
        ordered = [None if place is None else types[place] for place in places]
        stored = tuple(None if kind is None else kind.dtype for kind in ordered)
        params = complete(
            record, {name: parameter(name, value, self._named, self._size) for name, value in attrs.items()}
        )
        try:
            call = self._call(record, ordered, params, wanted)
        except OpError as error:
            raise _at_operand(error, places) from error
        is_dynamic = call is None or self._depends_on_dynamic(kind)
        self.ops[node.index] = BoundOp(record, operands, stored, call, is_dynamic)
        if call is not None:
            self._results(node, record, kind, call, wanted)

    def _arguments(self, record: OpRecord, kind: Op) -> tuple[list[Input], dict[str, Any]]:
        """Inputs and parameters; a name that is a scalar constant is an input where the record has one so called."""
        inputs, attrs = list(kind.inputs), dict(kind.attrs)
        for spec in record.signature.inputs:
            value = attrs.get(spec.name)
            if isinstance(value, VarValue) and value.name in self.vars and record.param(spec.name) is None:
                inputs.append(Input(Access(value.name), spec.name))
                del attrs[spec.name]
        for position, given in enumerate(inputs):
            if given.name is not None and record.param(given.name) and isinstance(given.operand, Access):
                message = f"the parameter {given.name!r} of '{record.name}' takes a number or a scalar constant"
                raise OpError(Code.BAD_PARAMETER, f"{message}, not the variable {given.operand}", position)
        return inputs, attrs

    def _require_outputs(self, record: OpRecord, kind: Op) -> None:
        specs = record.signature.outputs
        if len(kind.outputs) != len(specs) and not specs[-1].variadic:
            names_ = ", ".join(spec.name for spec in specs)
            message = f"'{record.name}' has {len(specs)} output{'s' * (len(specs) != 1)} ({names_})"
            raise OpError(Code.WRONG_OPERANDS, f"{message}, but {len(kind.outputs)} are given")

    def _call(
        self,
        record: OpRecord,
        ordered: list[AccessType | None],
        params: Mapping[str, Any],
        wanted: list[AccessType | None],
    ) -> Call | None:
        """The call, or None where an operand's extent is not known yet; its dtypes are judged all the same."""
        known = [None if kind is None else kind.known for kind in ordered]
        hints = tuple(None if kind is None else kind.known for kind in wanted)
        if all((kind is None) == (own is None) for kind, own in zip(ordered, known, strict=True)):
            return infer(record, Call(tuple(known), params, hints))
        guesses = tuple(None if kind is None else TensorType(kind.dtype, (), kind.quant) for kind in ordered)
        with_dtypes(record, Call(guesses, params, hints))
        return None

    def _depends_on_dynamic(self, kind: Op) -> bool:
        touched = [given.operand.base for given in kind.inputs if isinstance(given.operand, Access)]
        touched += [output.base for output in kind.outputs]
        variables = [self.vars[name] for name in touched if name in self.vars]
        return bool(self.sizes.bounds) and (
            any(variable.is_dynamic or variable.dims is None for variable in variables)
            or any(self._is_dynamic_value(value) for _, value in kind.attrs)
        )

    def _is_dynamic_value(self, value: Any) -> bool:
        exprs = getattr(value, "values", None) or (getattr(value, "value", None),)
        found = {name for expr in exprs if isinstance(expr, Expr) for name in names(expr)}
        found |= {value.name} if isinstance(value, VarValue) else set()
        return any(name in self.sizes.bounds for name in found)

    def _results(self, node: Node, record: OpRecord, kind: Op, call: Call, wanted: list[AccessType | None]) -> None:
        if len(call.outputs) != len(kind.outputs):
            message = f"'{record.name}' gives {len(call.outputs)} results here, but {len(kind.outputs)} are named"
            raise OpError(Code.WRONG_OPERANDS, message)
        for output, found, declared in zip(kind.outputs, call.outputs, wanted, strict=True):
            if declared is None:
                self.vars[output.base] = BoundVar(
                    output.base, MemoryKind.VOLATILE, found.dtype, None, found.shape, FromInit(None)
                )
            elif not AccessType(found.dtype, found.shape).agrees_with(declared):
                message = f"'{record.name}' gives {found}, but {output} is {declared}"
                self._report(Code.RESULT_TYPE, message, output.span or node.span)


def _at_operand(error: OpError, places: tuple[int | None, ...]) -> OpError:
    """The same error, pointing at the operand as it is written instead of the record's input."""
    if not isinstance(error.at, int):
        return error
    place = places[error.at] if error.at < len(places) else None
    return OpError(error.code, error.message, place, error.advice)
