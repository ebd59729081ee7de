"""Lowers calls of blocks with parameters, and the parameters inside these blocks.

A block becomes a function whose arguments are addresses. If every call passes model tensors for a parameter, it takes
an integer that selects one of them instead: these tensors can then be stored in the layout that suits the kernels that
read them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

from openinfer.check.bound import BoundGraph
from openinfer.check.indices import Around, around
from openinfer.ir import Access, Block, BlockCall, BlockParam, BlockParamKind, Literal, ModelRef, Node, Return
from openinfer.ir.expr import BinaryExpr, Expr, Num, Ref
from openinfer.loops.dim import is_same_shape, sizes_in
from openinfer.synth.lower.copies import Copies
from openinfer.synth.lower.emission import Emission
from openinfer.synth.lower.variables import VariableValues
from openinfer.synth.program.ir import (
    BlockIndex,
    BlockParams,
    CallStep,
    Mark,
    Move,
    Step,
    StepOperand,
    Steps,
    Storage,
    Value,
    Weight,
    map_steps,
)


@dataclass(frozen=True)
class _Families:
    """The parameters of a block that are always model tensors: by position, the distinct weights that calls pass."""

    weights: Mapping[int, tuple[Weight, ...]]

    def chosen(self, place: int, name: str) -> Weight:
        """A parameter inside the block: one of the tensors, selected by an integer if there are several."""
        given = self.weights[place]
        names = tuple(one for weight in given for one in weight.names)
        if len(names) == 1:
            return given[0]
        return Weight(names, given[0].dtype, given[0].shape, (Ref(_index_name(name)),), (len(names),), (0,))

    def index(self, place: int, name: str) -> BlockIndex | None:
        """The integer parameter that selects the parameter's tensor, if there are several."""
        count = sum(len(weight.names) for weight in self.weights[place])
        return BlockIndex(_index_name(name), 0, count - 1, name) if count > 1 else None

    def which(self, place: int, weight: Weight) -> Expr:
        """The integer that selects the weight that a call passes."""
        given = self.weights[place]
        starts = [0, *accumulate(len(one.names) for one in given)]
        found: Expr = Num(0)
        for expr, first, extent in zip(weight.index, weight.firsts, weight.extents, strict=True):
            found = _sum(_product(found, extent), _sum(expr, Num(-first)))
        return _sum(found, Num(starts[given.index(replace(weight, index=(), can_miss=False))]))


def _index_name(param: str) -> str:
    return f"{param}.at"


class BlockCalls:
    """Lowers calls, and the parameters of blocks once all their calls are known."""

    def __init__(self, bound: BoundGraph, emission: Emission, variables: VariableValues, copies: Copies) -> None:
        self._bound = bound
        self._reached = bound.reached
        self._emission = emission
        self._variables = variables
        self._copies = copies
        self._calls: dict[str, list[CallStep]] = {}
        self.params: dict[str, BlockParams] = {}
        self._families: dict[str, _Families] = {}

    # --- calls ----------------------------------------------------------------------------------------------------

    def call(self, node: Node, kind: BlockCall) -> None:
        """A call: reads the arguments, moves variables the block touches to their homes, and writes the results."""
        variables, current = self._variables, self._variables.current
        block = self._bound.graph.blocks[kind.block]
        args: list[StepOperand] = []
        integers: list[Expr] = []
        for param, given in zip(block.params or (), kind.args, strict=True):
            if isinstance(given, Access | ModelRef | Literal):
                args.append(self._copies.argument(node, given, self._bound.vars[param.name]))
            else:
                integers.append(given)
        exprs = [*integers, *(expr for one in args if isinstance(one, Weight) for expr in one.index)]
        scalars = variables.scalars(*exprs)
        reach = self._reached.blocks[kind.block]
        for name in current.astray(reach.touches & variables.homes.all):
            variables.bring_home(name, node.index)
        variables.spare(current.guests(reach.writes))
        operands = (one for one in kind.args if isinstance(one, Access | ModelRef | Literal))
        args = [self._settled(one, value, kind.block, node) for one, value in zip(operands, args, strict=True)]
        results = tuple(self._result(name) for name in _returned(block))
        step = CallStep(kind.block, node.index, (), tuple(args), tuple(integers), results, scalars)
        self._calls.setdefault(kind.block, []).append(step)
        self._emission.emit(Mark(node.index))
        self._emission.emit(step)
        for value, output in zip(results, kind.outputs, strict=True):
            self._copies.result(node, value, output)
        if results:
            self._emission.emit(Mark(node.index, results, is_return=True))

    def _settled(self, given: object, value: StepOperand, block: str, node: Node) -> StepOperand:
        """The argument in its current memory; a copy if the block writes the variable whose home that is."""
        if isinstance(given, Access) and not given.bracketed and given.base in self._variables.current:
            value = self._variables.current[given.base]
        if not isinstance(value, Value) or not value.is_home:
            return value
        if not self._reached.bits.has(self._reached.blocks[block].writes, str(value.variable)):
            return value
        copy = self._emission.value(str(value.variable), value.dtype, value.shape)
        self._emission.emit(Move(value, copy, node.index))
        return copy

    def _result(self, name: str) -> Value:
        variable = self._bound.vars[name]
        return self._emission.value(name, variable.dtype, self._emission.shapes.of(variable))

    # --- blocks ---------------------------------------------------------------------------------------------------

    def begin(self, block: Block) -> Around:
        """Give a block's parameters values; returns the indices in scope of its nodes."""
        tensors = _tensors(block)
        families = self._families[block.name] = self._found(block, tensors)
        args: list[Value] = []
        indices = [BlockIndex(name) for name in block.indices]
        for place, param in enumerate(tensors):
            if place not in families.weights:
                variable = self._bound.vars[param.name]
                shape = self._emission.shapes.of(variable)
                args.append(self._emission.value(param.name, variable.dtype, shape, Storage.ARGUMENT))
                self._variables.current[param.name] = args[-1]
                continue
            self._variables.current[param.name] = families.chosen(place, param.name)
            index = families.index(place, param.name)
            indices += [] if index is None else [index]
        results = tuple(replace(self._result(name), storage=Storage.RESULT) for name in _returned(block))
        self.params[block.name] = BlockParams(tuple(args), tuple(indices), results)
        return around(index.name for index in indices)

    def sizes(self, block: str) -> frozenset[str]:
        """The dynamic sizes of a block's arguments, which are bound when it is called."""
        return frozenset(size for one in self.params[block].args for extent in one.shape for size in sizes_in(extent))

    def end(self, block: Block) -> None:
        """Move the values that the block returns to where its caller wants them."""
        last = block.nodes[-1]
        for name, result in zip(_returned(block), self.params[block.name].results, strict=True):
            self._emission.move(self._variables.read(name, last.index), result, last.index)

    def _found(self, block: Block, tensors: Iterable[BlockParam]) -> _Families:
        """The parameters that are whole model tensors of the declared shape in all calls."""
        found: dict[int, tuple[Weight, ...]] = {}
        for place, param in enumerate(tensors):
            given = [call.args[place] for call in self._calls.get(block.name, ())]
            shape = self._emission.shapes.of(self._bound.vars[param.name])
            weights = [one for one in given if isinstance(one, Weight) and is_same_shape(one.shape, shape)]
            if given and len(weights) == len(given):
                found[place] = tuple(dict.fromkeys(replace(one, index=(), can_miss=False) for one in weights))
        return _Families(found)

    def finished(self, steps: Steps) -> Steps:
        """The steps, with model tensors in the arguments of calls replaced by the integers that select them."""
        return map_steps(steps, lambda step: (self._finished(step) if isinstance(step, CallStep) else step,))

    def _finished(self, step: CallStep) -> Step:
        families = self._families.get(step.block)
        if families is None:
            return step
        args = tuple(one for place, one in enumerate(step.args) if place not in families.weights)
        integers = list(step.integers)
        for place in families.weights:
            weight = step.args[place]
            assert isinstance(weight, Weight)
            if families.index(place, "") is not None:
                integers.append(families.which(place, weight))
        return replace(step, args=args, integers=tuple(integers))


def _tensors(block: Block) -> list[BlockParam]:
    return [param for param in block.params or () if param.kind is BlockParamKind.TENSOR]


def _returned(block: Block) -> tuple[str, ...]:
    last = block.nodes[-1].kind
    assert isinstance(last, Return)
    return last.vars


def _sum(one: Expr, other: Expr) -> Expr:
    if isinstance(one, Num) and isinstance(other, Num):
        return Num(one.value + other.value)
    if isinstance(other, Num) and other.value <= 0:
        return one if other.value == 0 else BinaryExpr("-", one, Num(-other.value))
    return other if isinstance(one, Num) and one.value == 0 else BinaryExpr("+", one, other)


def _product(one: Expr, factor: int) -> Expr:
    return Num(one.value * factor) if isinstance(one, Num) else BinaryExpr("*", one, Num(factor))
