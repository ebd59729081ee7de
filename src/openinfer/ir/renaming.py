"""Renames variables and sizes in nodes, for the copies of blocks with parameters."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Ref
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
    Node,
    NodeKind,
    Op,
    Return,
    Scope,
    Transfer,
    Yield,
)
from openinfer.ir.operand import Access, Index, Literal, ModelRef, Operand, Single, Slice
from openinfer.ir.values import AttrValue, ExprList, ExprValue, IntValue, VarValue


def substituted(expr: Expr, found: Callable[[str], Expr]) -> Expr:
    """An expression with each name replaced by an expression.

    >>> from openinfer.ir.expr import Num, Ref
    >>> str(substituted(BinaryExpr("*", Ref("N"), Num(2)), {"N": Num(4)}.__getitem__))
    '4*2'
    """
    match expr:
        case Ref(name):
            return found(name)
        case Neg(operand):
            return Neg(substituted(operand, found))
        case BinaryExpr(op, left, right):
            return BinaryExpr(op, substituted(left, found), substituted(right, found))
        case _:
            return expr


@dataclass(frozen=True)
class Renaming:
    """New names for the variables of a block, and expressions for the sizes that only it has."""

    variables: Mapping[str, str]
    sizes: Mapping[str, Expr] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    """The indices of enclosing loops, which shadow variables and sizes of the same name in expressions."""

    def nodes(self, nodes: Iterable[Node], call: Callable[["Renaming", BlockCall], NodeKind]) -> tuple[Node, ...]:
        """Rename nodes, nested ones included; ``call`` gives the replacement of a call."""
        return tuple(replace(node, kind=self._kind(node.kind, call)) for node in nodes)

    def _kind(self, kind: NodeKind, call: Callable[["Renaming", BlockCall], NodeKind]) -> NodeKind:
        match kind:
            case Assign(name, dtype, dims):
                return Assign(self.name(name), dtype, None if dims is None else tuple(map(self.dimension, dims)))
            case Op(op, inputs, attrs, outputs):
                given = tuple(Input(self.operand(one.operand), one.name) for one in inputs)
                values = tuple((name, self._value(value)) for name, value in attrs)
                return Op(op, given, values, tuple(map(self.access, outputs)))
            case Transfer(src, dst):
                return Transfer(self.operand(src), self.access(dst))
            case CacheRead(src, dst):
                return CacheRead(self.access(src), self.access(dst))
            case CacheWrite(source, dst):
                return CacheWrite(self.operand(source), self.access(dst))
            case CacheReset(target):
                return CacheReset(self.access(target))
            case CacheIncrement(name, amount):
                return CacheIncrement(self.name(name), self.expr(amount))
            case CacheDecrement(name, amount):
                return CacheDecrement(self.name(name), self.expr(amount))
            case Loop(name, index, start, end, body):
                inner = replace(self, hidden=self.hidden | {index})
                return Loop(name, index, self.expr(start), self.expr(end), inner.nodes(body, call))
            case Scope(name, body):
                return Scope(name, self.nodes(body, call))
            case Branch(cond, then_block, else_block):
                return Branch(None if cond is None else self.name(cond), then_block, else_block)
            case BlockCall():
                return call(self, kind)
            case Return(names):
                return Return(tuple(map(self.name, names)))
            case Yield(names):
                return Yield(tuple(map(self.name, names)))
            case Await(names):
                return Await(tuple(map(self.name, names)))
            case Barrier() | Dep():
                return kind

    def name(self, name: str) -> str:
        """Rename a variable."""
        return self.variables.get(name, name)

    def dimension(self, expr: Expr) -> Expr:
        """Rename a dimension, in which all names are sizes."""
        return substituted(expr, lambda name: self.sizes.get(name, Ref(name)))

    def expr(self, expr: Expr) -> Expr:
        """Rename an index expression: loop indices come first, then variables, then sizes."""
        return substituted(expr, self._named)

    def _named(self, name: str) -> Expr:
        if name in self.hidden:
            return Ref(name)
        return Ref(self.variables[name]) if name in self.variables else self.sizes.get(name, Ref(name))

    def operand(self, operand: Operand) -> Operand:
        """Rename an operand of a node."""
        return self.access(operand) if isinstance(operand, Access) else operand

    def argument(self, given: CallArgument) -> CallArgument:
        """Rename an argument of a call."""
        return self.operand(given) if isinstance(given, Access | ModelRef | Literal) else self.expr(given)

    def access(self, access: Access) -> Access:
        """Rename an access."""
        return replace(access, base=self.name(access.base), indices=tuple(map(self._index, access.indices)))

    def _index(self, index: Index) -> Index:
        if isinstance(index, Single):
            return Single(self.expr(index.value))
        ends = [None if end is None else self.expr(end) for end in (index.start, index.end)]
        return Slice(*ends)

    def _value(self, value: AttrValue) -> AttrValue:
        match value:
            case VarValue(name) if name in self.sizes and name not in self.variables:
                found = self.sizes[name]
                return IntValue(found.value) if isinstance(found, Num) else ExprValue(found)
            case ExprValue(expr):
                return ExprValue(self.dimension(expr))
            case ExprList(exprs):
                return ExprList(tuple(map(self.dimension, exprs)))
            case _:
                return value
