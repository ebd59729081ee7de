"""A bound graph as a program: a flat list of instructions for each block.

Loops become jumps and branches become calls, so a task is a position in a list and a small stack: it can stop after any
node and continue later, and nothing recurses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openinfer.check.bound import BoundGraph
from openinfer.check.events import node_kind, node_params, node_writes
from openinfer.ir import (
    Access,
    Assign,
    Await,
    BlockCall,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Literal,
    Loop,
    ModelRef,
    Node,
    Op,
    Operand,
    Return,
    Scope,
    Transfer,
    Yield,
)
from openinfer.sim.backend import HOST, Backend
from openinfer.sim.operands import CompiledOperands, ReadInteger, TaskAction
from openinfer.sim.operations import NodeKernels, op_action

if TYPE_CHECKING:
    from openinfer.sim.task import Task


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a task. The jump back to a loop's head is one too, but neither a node nor an event."""

    node: Node
    block: str
    act: TaskAction
    scopes: tuple[str, ...] = ()
    is_event: bool = True
    body: int = -1
    """The target of a jump back: the first instruction of the loop's body."""
    nodes: int = 1
    """The number of nodes it counts for in the node budget."""
    is_return: bool = False
    """Whether it is the second instruction of a call, which writes what the block has returned."""

    @property
    def kind(self) -> str:
        """The kind of its event."""
        return node_kind(self.node, is_return=self.is_return)

    @property
    def params(self) -> list[str]:
        """Its operands, as in the source."""
        return node_params(self.node, is_return=self.is_return)

    @property
    def outputs(self) -> list[str]:
        """What it writes, as in the source."""
        return [str(access) for access in self.writes]

    @property
    def writes(self) -> tuple[Access, ...]:
        """What it writes."""
        return node_writes(self.node, is_return=self.is_return)


Instructions = Mapping[str, list[Instruction]]


def compiled(bound: BoundGraph, backend: Backend = HOST) -> Instructions:
    """Compile every block to instructions, whose ops a device computes."""
    operands, kernels = CompiledOperands(bound), NodeKernels(backend)
    blocks = bound.graph.blocks.items()
    found = {name: _Assembler(bound, operands, kernels, name).block(block.nodes) for name, block in blocks}
    kernels.prepare()
    return found


@dataclass(frozen=True, slots=True)
class _Todo:
    """A node to assemble or, if there is a head, the end of a loop with the head at this position."""

    node: Node
    scopes: tuple[str, ...] = ()
    head: int | None = None


class _Assembler:
    def __init__(self, bound: BoundGraph, operands: CompiledOperands, kernels: NodeKernels, block: str) -> None:
        self._bound = bound
        self._operands = operands
        self._kernels = kernels
        self._block = block
        self._code: list[Instruction] = []

    def block(self, nodes: tuple[Node, ...]) -> list[Instruction]:
        """Assemble the instructions of a block. Not recursive: nesting may exceed Python's limit."""
        todo: list[_Todo] = [_Todo(node) for node in reversed(nodes)]
        while todo:
            item = todo.pop()
            if item.head is not None:
                self._close_loop(item.node, item.head, item.scopes)
                continue
            kind, scopes = item.node.kind, item.scopes
            if isinstance(kind, Loop):
                todo.append(_Todo(item.node, scopes, len(self._code)))
            action = _nothing if isinstance(kind, Loop) else self._action(item.node)
            self._code.append(Instruction(item.node, self._block, action, scopes))
            if isinstance(kind, BlockCall) and kind.outputs:
                results = self._results(kind)
                self._code.append(Instruction(item.node, self._block, results, scopes, nodes=0, is_return=True))
            inner = (*scopes, kind.name) if isinstance(kind, Scope) else scopes
            todo += [_Todo(node, inner) for node in reversed(item.node.body)]
        return self._code

    def _close_loop(self, node: Node, head: int, scopes: tuple[str, ...]) -> None:
        """Emit the jump back to a loop's body, and patch the head, which skips the loop if it has no iterations."""
        assert isinstance(node.kind, Loop)
        name, body, after = node.kind.index, head + 1, len(self._code) + 1
        start, end = (self._operands.integer(bound) for bound in (node.kind.start, node.kind.end))

        def enter(task: "Task") -> None:
            first, last = start(task), end(task)
            if first >= last:
                task.position = after
                return
            task.indices[name] = first
            task.ends.append(last)

        def again(task: "Task") -> None:
            following = task.indices[name] + 1
            if following < task.ends[-1]:
                task.indices[name] = following
                task.position = body
                return
            task.ends.pop()
            del task.indices[name]

        self._code[head] = Instruction(node, self._block, enter, scopes)
        # Iterations of an empty body count as well, or a budget would never end them.
        nodes = 1 if body == len(self._code) else 0
        self._code.append(Instruction(node, self._block, again, scopes, is_event=False, body=body, nodes=nodes))

    def _action(self, node: Node) -> TaskAction:
        kind, operands = node.kind, self._operands
        match kind:
            case Op():
                return op_action(self._bound, operands, self._kernels, node)
            case Assign(name):
                return operands.assign(name)
            case Transfer(source, dst) | CacheRead(source, dst) | CacheWrite(source, dst):
                return self._copy(source, dst)
            case BlockCall():
                return self._call(kind)
            case CacheReset(target):
                return operands.reset(target)
            case CacheIncrement(target, amount):
                return operands.counter(target, amount, 1)
            case CacheDecrement(target, amount):
                return operands.counter(target, amount, -1)
            case Branch(cond, then_block, else_block):
                return _branch(cond, then_block, else_block)
            case Return():
                return lambda task: task.leave()
            case Yield(variables):
                return lambda task: task.hand_over(variables)
            case Await(variables):
                return lambda task: task.wait_for(variables)
            case _:
                return _nothing

    def _copy(self, source: Operand, dst: Access) -> TaskAction:
        operands = self._operands
        read = operands.reader(source, self._bound.vars[dst.base].dtype)
        write = operands.writer(dst, str(source))
        fits = operands.fitting(source, dst)
        if fits is None:
            return lambda task: write(task, read(task))

        def read_if_fitting(task: "Task") -> None:
            fits(task)
            write(task, read(task))

        return read_if_fitting

    def _call(self, kind: BlockCall) -> TaskAction:
        """Copy arguments to parameters, then enter the block."""
        block = self._bound.graph.blocks[kind.block]
        copies: list[TaskAction] = []
        indices: list[tuple[str, ReadInteger]] = []
        for param, given in zip(block.params or (), kind.args, strict=True):
            if isinstance(given, Access | ModelRef | Literal):
                copies.append(self._copy(given, Access(param.name)))
            else:
                indices.append((param.name, self._operands.integer(given)))

        def call(task: "Task") -> None:
            for copy in copies:
                copy(task)
            task.call(kind.block, {name: read(task) for name, read in indices})

        return call

    def _results(self, kind: BlockCall) -> TaskAction:
        """Read everything that a block returned, then write it to the outputs."""
        last = self._bound.graph.blocks[kind.block].nodes[-1].kind
        assert isinstance(last, Return)
        reads = [self._operands.reader(Access(name)) for name in last.vars]
        pairs = zip(kind.outputs, last.vars, strict=True)
        writes = [self._operands.writer(output, f"the result {name!r}") for output, name in pairs]

        def results(task: "Task") -> None:
            found = [read(task) for read in reads]
            for write, value in zip(writes, found, strict=True):
                write(task, value)

        return results


def _nothing(_task: "Task") -> None:
    """A scope, barrier or dep does nothing when executed."""


def _branch(cond: str | None, then_block: str, else_block: str | None) -> TaskAction:
    def branch(task: "Task") -> None:
        if cond is None or task.values[cond]:
            task.call(then_block)
        elif else_block is not None:
            task.call(else_block)

    return branch
