"""Graphs as canonical source text.

One statement per line, four spaces per level, sections in a fixed order. ``Comments`` lets the formatter put the
comments and blank lines of a source file back where they belong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from openinfer.ir.expr import ONE, Expr
from openinfer.ir.graph import (
    Assign,
    Attribute,
    Await,
    Barrier,
    Block,
    BlockCall,
    BlockParam,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Constraints,
    Dep,
    Graph,
    Loop,
    MemoryKind,
    Node,
    Op,
    Return,
    Scope,
    SizeDecl,
    Transfer,
    VarDecl,
    Yield,
)
from openinfer.ir.values import quote

INDENT = "    "
CommentKey = tuple[str, str | int]
"""What a comment belongs to: ("section", kind), ("size", name), ("var", name), ("block", name), ("node", index)."""


@dataclass
class Comments:
    """The comments of a source file by the element they belong to; an empty string is a blank line."""

    leading: dict[CommentKey, list[str]] = field(default_factory=dict)
    trailing: dict[CommentKey, list[str]] = field(default_factory=dict)
    dangling: dict[CommentKey, list[str]] = field(default_factory=dict)
    """Comments at the end of a body, after its last element."""

    def around(self, key: CommentKey, lines: Iterator[str], indent: str) -> Iterator[str]:
        """The lines of an element with its comments."""
        for comment in self.leading.get(key, ()):
            yield indent + comment if comment else ""
        first = next(lines)
        yield "  ".join([first, *self.trailing.get(key, ())])
        yield from lines

    def closing(self, key: CommentKey, line: str) -> str:
        """The line that closes an element's body, with its trailing comments."""
        return "  ".join([line, *self.trailing.get(end_of(key), ())])

    def at_end(self, key: CommentKey, indent: str) -> Iterator[str]:
        """The comments on their own lines at the end of a body."""
        for comment in self.dangling.get(key, ()):
            yield indent + comment if comment else ""


def end_of(key: CommentKey) -> CommentKey:
    """The key of an element's closing brace."""
    return (f"end of {key[0]}", key[1])


def is_end(key: CommentKey) -> bool:
    """Whether a key belongs to a closing brace."""
    return key[0].startswith("end of ")


def graph_text(graph: Graph, comments: Comments | None = None) -> str:
    """The text of a whole graph."""
    return "".join(f"{line}\n" for line in _graph_lines(graph, comments or Comments()))


def _graph_lines(graph: Graph, comments: Comments) -> Iterator[str]:
    parts = [_sizes(graph, comments), *(_section(graph, kind, comments) for kind in MemoryKind)]
    parts += [comments.around(("block", block.name), _block(block, comments), "") for block in graph.blocks.values()]
    between = False
    for part in parts:
        lines = list(part)
        if not lines:
            continue
        if between:
            yield ""
        between = True
        yield from lines[1:] if not lines[0] else lines
    yield from comments.at_end(("file", ""), "")


def _sizes(graph: Graph, comments: Comments) -> Iterator[str]:
    if graph.sizes:
        yield from comments.around(("section", "sizes"), _size_lines(graph, comments), "")


def _size_lines(graph: Graph, comments: Comments) -> Iterator[str]:
    yield "sizes {"
    for size in graph.sizes.values():
        yield from comments.around(("size", size.name), iter([INDENT + size_text(size)]), INDENT)
    yield from comments.at_end(("section", "sizes"), INDENT)
    yield comments.closing(("section", "sizes"), "}")


def size_text(size: SizeDecl) -> str:
    """A declaration of the ``sizes`` section."""
    return f"{size.name} {size.relation} {size.value};"


def _section(graph: Graph, kind: MemoryKind, comments: Comments) -> Iterator[str]:
    declared = [variable for variable in graph.vars.values() if variable.kind is kind]
    if declared:
        yield from comments.around(("section", kind.value), _section_lines(kind, declared, comments), "")


def _section_lines(kind: MemoryKind, declared: Sequence[VarDecl], comments: Comments) -> Iterator[str]:
    yield f"{kind.value} {{"
    for variable in declared:
        yield from comments.around(("var", variable.name), iter([INDENT + var_text(variable)]), INDENT)
    yield from comments.at_end(("section", kind.value), INDENT)
    yield comments.closing(("section", kind.value), "}")


def var_text(variable: VarDecl) -> str:
    """A declaration of a memory section."""
    indices = f"({', '.join(variable.table_indices)})" if variable.table_indices else ""
    attributes = "".join(f" {text}" for text in _attributes(variable))
    return f"{variable.name}{indices}: {type_text(variable.dtype.name, variable.dims)}{attributes};"


def _attributes(variable: VarDecl) -> Iterator[str]:
    if variable.init is not None:
        yield f"@init({variable.init})"
    if variable.ref_name is not None:
        yield f"@ref({quote(variable.ref_name)})"
    if variable.pattern is not None:
        yield f"@pattern({quote(variable.pattern)})"
    if variable.table:
        yield "@table"
    if variable.auto_dim:
        yield f"@auto_dim({', '.join(variable.auto_dim)})"
    if variable.fixed:
        yield f"@fixed({', '.join(f'{name}={value}' for name, value in variable.fixed)})"
    for attribute in variable.attrs:
        yield attribute_text(attribute)


def attribute_text(attribute: Attribute) -> str:
    """An attribute without a meaning to OpenInfer, as text."""
    if not attribute.arguments:
        return f"@{attribute.name}"
    arguments = [str(value) if name is None else f"{name}={value}" for name, value in attribute.arguments]
    return f"@{attribute.name}({', '.join(arguments)})"


def type_text(dtype: str, dims: Sequence[Expr]) -> str:
    """A type in the language's syntax; a scalar has no brackets."""
    return f"{dtype}[{', '.join(map(str, dims))}]" if dims else dtype


def _block(block: Block, comments: Comments) -> Iterator[str]:
    yield f"{block_head(block)} {{"
    yield from _body(block.nodes, INDENT, comments)
    yield from comments.at_end(("block", block.name), INDENT)
    yield comments.closing(("block", block.name), "}")


def block_head(block: Block) -> str:
    """The head of a block: its name, parameters and constraints."""
    params = "" if block.params is None else f"({', '.join(map(param_text, block.params))})"
    return f"block {block.name}{params}{_with(block.constraints)}"


def param_text(param: BlockParam) -> str:
    """A parameter of a block."""
    return f"{param.name}: {param.kind if param.dtype is None else type_text(param.dtype.name, param.dims)}"


def _body(nodes: Sequence[Node], indent: str, comments: Comments) -> Iterator[str]:
    untyped: Node | None = None
    for node in nodes:
        if isinstance(node.kind, Assign) and node.kind.dtype is None:
            untyped = untyped or node
            continue
        # `q, k = op` is several nodes on one line; its comments belong to the first.
        key: CommentKey = ("node", (untyped or node).index)
        yield from comments.around(key, _node_lines(node, untyped, indent, comments), indent)
        untyped = None


def _node_lines(node: Node, untyped: Node | None, indent: str, comments: Comments) -> Iterator[str]:
    if not isinstance(node.kind, Loop | Scope):
        yield f"{indent}{_inferred(node) if untyped is not None else node_head(node)};"
        return
    yield f"{indent}{node_head(node)} {{"
    yield from _body(node.body, indent + INDENT, comments)
    yield from comments.at_end(("node", node.index), indent + INDENT)
    yield comments.closing(("node", node.index), f"{indent}}}")


def _inferred(node: Node) -> str:
    assert isinstance(node.kind, Op)
    return f"{', '.join(map(str, node.kind.outputs))} = {call_text(node.kind)}{_with(node.constraints)}"


def node_head(node: Node) -> str:
    """A node on one line, without its body and without ``;``."""
    match node.kind:
        case Assign(name, dtype, dims):
            head = f"assign {name}: {'?' if dtype is None else type_text(dtype.name, dims or ())}"
        case Op():
            head = f"{call_text(node.kind)} >> {', '.join(map(str, node.kind.outputs))}"
        case Transfer(src, dst):
            head = f"transfer {src} >> {dst}"
        case Loop(name, index, start, end):
            head = f"loop {name} ({index} in {start}..{end})"
        case Scope(name):
            head = f"scope {quote(name)}"
        case Branch(cond, then_block, else_block):
            head = " ".join(["branch", *(word for word in (cond, then_block, else_block) if word is not None)])
        case BlockCall(block, args, outputs):
            into = f" >> {', '.join(map(str, outputs))}" if outputs else ""
            head = f"call {block}({', '.join(map(str, args))}){into}"
        case Return(variables):
            head = f"return {', '.join(variables)}" if variables else "return"
        case Barrier():
            head = "barrier"
        case Dep(after, before):
            head = f"dep after({after}) before({before})"
        case CacheRead(src, dst):
            head = f"cache.read {src} >> {dst}"
        case CacheWrite(source, dst):
            head = f"cache.write {source} >> {dst}"
        case CacheIncrement(target, amount):
            head = f"cache.increment {target}" if amount == ONE else f"cache.increment {amount} {target}"
        case CacheDecrement(target, amount):
            head = f"cache.decrement {target}" if amount == ONE else f"cache.decrement {amount} {target}"
        case CacheReset(access):
            head = f"cache.reset {access}"
        case Yield(variables):
            head = f"yield {', '.join(variables)}"
        case Await(variables):
            head = f"await {', '.join(variables)}"
    return head + _with(node.constraints)


def call_text(op: Op) -> str:
    """The call of an op, without its results."""
    arguments = [*map(str, op.inputs), *(f"{name}={value}" for name, value in op.attrs)]
    return f"op {op.op}({', '.join(arguments)})"


def _with(constraints: Constraints) -> str:
    if not constraints:
        return ""
    return f" with {{ {', '.join(f'{key} = {value}' for key, value in constraints.items())} }}"
