"""Single rules of graphs, each a function of what it checks; ``validate`` applies them all."""

from collections.abc import Iterator, Mapping

from openinfer.ir.expr import BinaryExpr, Expr, Neg, constants, names
from openinfer.ir.graph import (
    Await,
    Block,
    BlockCall,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Node,
    Op,
    SizeDecl,
    Transfer,
    VarDecl,
)
from openinfer.ir.operand import Access, Slice


def node_name(node: Node) -> str | None:
    """The name by which ``dep`` refers to a node."""
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
        case BlockCall():
            return "call"
        case _:
            return None


def is_consumer(block: Block) -> bool:
    """Whether a block waits until what it awaits is yielded."""
    return block.name != "entry" and bool(block.nodes) and isinstance(block.nodes[0].kind, Await)


def blocks_run(node: Node) -> Iterator[str]:
    """The blocks that a node itself may run: those of a branch, or that of a call."""
    match node.kind:
        case Branch(_, then_block, else_block):
            yield then_block
            if else_block is not None:
                yield else_block
        case BlockCall(block):
            yield block


def awaited(block: Block) -> tuple[str, ...]:
    """The variables that a consumer waits for."""
    first = block.nodes[0].kind
    return first.vars if isinstance(first, Await) else ()


def dimension_problem(expr: Expr) -> str | None:
    """What is wrong with an expression as a size before any size is known; None if nothing is.

    >>> from openinfer.ir.operand_text import parse_expr
    >>> dimension_problem(parse_expr("7/2"))
    'it does not divide evenly'
    """
    stack, known = [expr], constants(expr)
    while stack:
        part = stack.pop()
        if isinstance(part, Neg):
            stack.append(part.operand)
        elif isinstance(part, BinaryExpr):
            stack += [part.left, part.right]
            left, right = known[id(part.left)], known[id(part.right)]
            if part.op == "%":
                return "sizes use + - * / only"
            if part.op == "/" and right == 0:
                return "it divides by zero"
            if part.op == "/" and left is not None and right and left % right:
                return "it does not divide evenly"
    value = known[id(expr)]
    return "it is negative" if value is not None and value < 0 else None


def part_problem(access: Access, rank: int) -> str | None:
    """What is wrong with the brackets of a plain tensor, which take one index or slice per dimension.

    >>> from openinfer.ir.operand_text import parse_access
    >>> part_problem(parse_access("x[0]"), 2)
    "'x' has 2 dimensions, but 1 index is given"
    """
    count = len(access.indices)
    if count in (0, rank):
        return None
    given = "1 index is given" if count == 1 else f"{count} indices are given"
    return f"{access.base!r} has {rank} dimension{'s' * (rank != 1)}, but {given}"


def indexing_problem(access: Access, variable: VarDecl | None, rank: int | None, *, prefix: bool) -> str | None:
    """What is wrong with the brackets of an access; None if nothing is. ``rank`` is the variable's, if known."""
    name, count = access.base, len(access.indices)
    if variable is None or not variable.is_indexed:
        return None if rank is None else part_problem(access, rank)
    wanted = len(variable.table_indices)
    example = f"{name}[{', '.join(variable.table_indices)}]"
    if not access.bracketed:
        return None if prefix else f"{name!r} is a table; choose from it, as in {example}"
    if variable.pattern is not None and (count != wanted or any(isinstance(index, Slice) for index in access.indices)):
        return f"{name!r} names one tensor at a time, as in {example}"
    if count in (0, wanted) or (prefix and count < wanted):
        return None
    given = "1 is" if count == 1 else f"{count} are"
    return f"{name!r} has {wanted} ind{'ex' if wanted == 1 else 'ices'}, but {given} given"


def sizes_on_cycles(sizes: Mapping[str, SizeDecl]) -> set[str]:
    """The sizes on cycles of dependencies. Not recursive: chains can be long."""
    found: set[str] = set()
    done: set[str] = set()
    for first in sizes:
        path: dict[str, Iterator[str]] = {} if first in done else {first: names(sizes[first].value)}
        while path:
            current = next(reversed(path))
            following = next(path[current], None)
            if following is None:
                done.add(current)
                del path[current]
            elif following in path:
                if not found >= {current, following}:
                    found |= set([*path][[*path].index(following) :])
            elif following in sizes and following not in done:
                path[following] = names(sizes[following].value)
    return found
