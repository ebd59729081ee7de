"""What each kind of node reads, writes and evaluates: analyses, traces and pictures ask here and list no kinds."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openinfer.ir.expr import Expr
from openinfer.ir.graph import (
    Assign,
    Await,
    Barrier,
    BlockCall,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    CallArgument,
    Dep,
    Input,
    Loop,
    NodeKind,
    Op,
    Return,
    Scope,
    Transfer,
    Yield,
)
from openinfer.ir.operand import Access, Literal, ModelRef


@dataclass(frozen=True)
class NodeUses:
    """What a node itself uses, without the nodes of its body and the blocks that it runs."""

    reads: tuple[Input, ...] = ()
    writes: tuple[Access, ...] = ()
    exprs: tuple[Expr, ...] = ()
    """The integer expressions it evaluates, except those in brackets: loop bounds, counter amounts."""


def node_uses(kind: NodeKind) -> NodeUses:
    """The uses of a kind of node. A type checker reports a kind that is missing here.

    >>> node_uses(CacheReset(Access("K")))
    NodeUses(reads=(), writes=(Access(base='K', indices=(), bracketed=False),), exprs=())
    """
    match kind:
        case Op():
            return NodeUses(kind.inputs, kind.outputs)
        case Transfer(src, dst) | CacheRead(src, dst) | CacheWrite(src, dst):
            return NodeUses((Input(src),), (dst,))
        case CacheReset(target):
            return NodeUses(writes=(target,))
        case CacheIncrement(name, amount) | CacheDecrement(name, amount):
            return NodeUses((Input(Access(name)),), (Access(name),), (amount,))
        case Assign(name):
            return NodeUses(writes=(Access(name),))
        case Loop(_, _, start, end):
            return NodeUses(exprs=(start, end))
        case Branch(cond):
            return NodeUses(() if cond is None else (Input(Access(cond)),))
        case BlockCall(_, args, outputs):
            return NodeUses(tuple(_inputs(args)), outputs, tuple(_indices(args)))
        case Return(names) | Yield(names) | Await(names):
            return NodeUses(tuple(Input(Access(name)) for name in names))
        case Scope() | Barrier() | Dep():
            return NodeUses()


def _inputs(args: Iterable[CallArgument]) -> Iterator[Input]:
    """The arguments of a call that are operands."""
    return (Input(one) for one in args if isinstance(one, Access | ModelRef | Literal))


def _indices(args: Iterable[CallArgument]) -> Iterator[Expr]:
    """The arguments of a call that are expressions."""
    return (one for one in args if not isinstance(one, Access | ModelRef | Literal))
