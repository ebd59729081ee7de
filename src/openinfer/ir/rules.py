"""Single rules of graphs, each a function of what it judges; ``validate`` applies them all."""

from collections.abc import Iterator

from openinfer.ir.expr import Binary, Expr, Neg, constant
from openinfer.ir.graph import (
    Await,
    Block,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    MemoryKind,
    Node,
    Op,
    Transfer,
    VarDecl,
)
from openinfer.ir.operand import Access, Slice


def node_name(node: Node) -> str | None:
    """What ``dep`` calls a node."""
    match node.kind:
        case Op(op):
            return op
        case CacheRead():
            return "cache.read"
        case CacheWrite():
            return "cache.write"
        case CacheIncrement():
            return "cache.increment"
        case CacheDecrement():
            return "cache.decrement"
        case CacheReset():
            return "cache.reset"
        case Transfer():
            return "transfer"
        case _:
            return None


def is_consumer(block: Block) -> bool:
    """Whether a block is parked until what it awaits is yielded."""
    return block.name != "entry" and bool(block.nodes) and isinstance(block.nodes[0].kind, Await)


def branch_targets(node: Node) -> Iterator[str]:
    """The blocks a branch may run."""
    assert isinstance(node.kind, Branch)
    yield node.kind.then_block
    if node.kind.else_block is not None:
        yield node.kind.else_block


def awaited(block: Block) -> tuple[str, ...]:
    """What a consumer waits for."""
    first = block.nodes[0].kind
    return first.vars if isinstance(first, Await) else ()


def dimension_problem(expr: Expr) -> str | None:
    """What can be said against an expression as a size before any size is known.

    >>> from openinfer.ir.operand_text import parse_expr
    >>> dimension_problem(parse_expr("7/2"))
    'it does not divide evenly'
    """
    stack = [expr]
    while stack:
        part = stack.pop()
        if isinstance(part, Neg):
            stack.append(part.operand)
        elif isinstance(part, Binary):
            stack += [part.left, part.right]
            left, right = constant(part.left), constant(part.right)
            if part.op == "%":
                return "sizes use + - * / only"
            if part.op == "/" and right == 0:
                return "it divides by zero"
            if part.op == "/" and left is not None and right and left % right:
                return "it does not divide evenly"
    value = constant(expr)
    return "it is negative" if value is not None and value < 0 else None


def indexing_problem(access: Access, variable: VarDecl | None, *, is_temporary: bool, prefix: bool) -> str | None:
    """What is wrong with the brackets of an access, if anything."""
    name, count = access.base, len(access.indices)
    if variable is None:
        return f"{name!r} is a temporary, not a table" if is_temporary and access.bracketed else None
    wanted = len(variable.table_indices)
    if not variable.is_indexed:
        if not access.bracketed:
            return None
        if variable.kind is not MemoryKind.PERSISTENT:
            return f"{name!r} is not a table"
        if count not in (0, len(variable.dims)):
            return f"{name!r} has {len(variable.dims)} dimensions, but {count} indices are given"
        return None
    example = f"{name}[{', '.join(variable.table_indices)}]"
    if not access.bracketed:
        return None if prefix else f"{name!r} is a table; choose from it, as in {example}"
    if variable.pattern is not None and (count != wanted or any(isinstance(index, Slice) for index in access.indices)):
        return f"{name!r} names one tensor at a time, as in {example}"
    if count in (0, wanted) or (prefix and count < wanted):
        return None
    return f"{name!r} has {wanted} indices, but {count} are given"
