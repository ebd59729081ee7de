"""Graphs from JSON: our own documents, and those of other OpenInfer tools, which lack our additional keys.

Documents are untrusted. Unknown keys, duplicate keys, wrong types and numbers that JSON does not have are errors that
point to the place.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from openinfer.collection import collection_paused
from openinfer.errors import GraphError, nearest
from openinfer.ir.arguments import as_written
from openinfer.ir.document import Cursor, load_document, shown
from openinfer.ir.expr import Expr, Num, Ref
from openinfer.ir.graph import (
    NO_CONSTRAINTS,
    Assign,
    Await,
    Barrier,
    Block,
    BlockCall,
    BlockParam,
    BlockParamKind,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    CallArgument,
    Constraints,
    Dep,
    Graph,
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
from openinfer.ir.json_declarations import read_dtype, read_size, read_value, read_variable
from openinfer.ir.operand import Access, Index, Literal, Operand, Single, Slice
from openinfer.ir.operand_text import parse_access, parse_expr, parse_input, parse_operand
from openinfer.ir.to_json import VERSION
from openinfer.ir.validate import validate
from openinfer.ir.values import AttrValue, InitValue
from openinfer.ir.words import RESERVED

MAX_DEPTH = 200
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NODE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|cache\.(?:read|write|increment|decrement|reset)")


def read_graph(document: "dict[str, Any] | str | bytes", name: str, *, strict: bool) -> Graph:
    """Read the graph of a document; its structural errors are raised together."""
    with collection_paused():
        root = load_document(document, name) if isinstance(document, str | bytes) else Cursor(document, name=name)
        graph = _graph(root)
    errors = [problem for problem in validate(graph, strict=strict, end=root.place) if not problem.code.is_warning]
    if errors:
        raise GraphError(*errors)
    return graph


def _graph(root: Cursor) -> Graph:
    keys = root.object(("vars", "blocks"), ("version", "sizes", "next_index"))
    if "version" in keys and keys["version"].integer() != VERSION:
        keys["version"].fail(f"version {keys['version'].value} is unknown; {VERSION} can be read")
    sizes = [read_size(name, cursor) for name, cursor in _members(keys["sizes"])] if "sizes" in keys else []
    variables = [read_variable(name, cursor) for name, cursor in _members(keys["vars"])]
    blocks = [_block(name, cursor) for name, cursor in _members(keys["blocks"])]
    if "next_index" in keys:
        keys["next_index"].integer()
    # JSON objects have no order; the indices of the nodes give the order of the blocks in the source.
    blocks.sort(key=lambda item: (item[1], item[0].name))
    return as_written(Graph.of(sizes, variables, [block for block, _ in blocks]))


def _members(cursor: Cursor) -> list[tuple[str, Cursor]]:
    if not isinstance(cursor.value, dict):
        cursor.fail(f"expected an object, found {shown(cursor.value)}")
    return [(cursor.step(key, key).name(), cursor.step(key, value)) for key, value in cursor.value.items()]


def _block(name: str, cursor: Cursor) -> tuple[Block, float]:
    keys = cursor.object(("name", "nodes"), ("params", "constraints", "span"))
    if keys["name"].name() != name:
        keys["name"].fail(f"the name differs from the key {name!r}")
    items = keys["nodes"].items()
    nodes = _nodes(items)
    first = items[0].object(("index", "uuid", "kind"), _NODE_KEYS)["index"].integer() if items else float("inf")
    constraints = _constraints(keys["constraints"]) if "constraints" in keys else NO_CONSTRAINTS
    params = tuple(_param(item) for item in keys["params"].items()) if "params" in keys else None
    return Block(name, nodes, constraints, cursor.place, params=params), first


def _param(cursor: Cursor) -> BlockParam:
    keys = cursor.object(("name", "kind"), ("dtype", "dims"))
    name, kind = keys["name"].name(), keys["kind"].text()
    kinds = {one.value.capitalize(): one for one in BlockParamKind}
    if kind not in kinds:
        keys["kind"].fail(f"a parameter is {', '.join(kinds)}, not {kind!r:.40}", nearest(kind, kinds))
    is_tensor = kinds[kind] is BlockParamKind.TENSOR
    if is_tensor is not ("dtype" in keys) or is_tensor is not ("dims" in keys):
        cursor.fail("a Tensor has a dtype and dims" if is_tensor else f"an {kind} has no dtype and no dims")
    if not is_tensor:
        return BlockParam(name, kinds[kind], span=cursor.place)
    dims = tuple(dim.parsed(parse_expr) for dim in keys["dims"].items())
    return BlockParam(name, kinds[kind], read_dtype(keys["dtype"]), dims, cursor.place)


_NODE_KEYS = ("scope", "constraints", "span")


@dataclass
class _Body:
    """The nodes of a block, loop or scope that have been read so far."""

    cursors: list[Cursor]
    nodes: list[Node]


def _nodes(cursors: list[Cursor]) -> tuple[Node, ...]:
    """Read the nodes of a block, nested ones included. Not recursive: nesting may exceed Python's limit."""
    stack = [_Body(cursors, [])]
    while True:
        body = stack[-1]
        if len(body.nodes) < len(body.cursors):
            cursor = body.cursors[len(body.nodes)]
            node = _node(cursor)
            body.nodes.append(node)
            if isinstance(node.kind, Loop | Scope):
                if len(stack) >= MAX_DEPTH:
                    cursor.fail(f"nodes are nested more than {MAX_DEPTH} deep")
                stack.append(_Body(_inside(cursor), []))
            continue
        _check_untyped(body.cursors, body.nodes)
        stack.pop()
        if not stack:
            return tuple(body.nodes)
        head = stack[-1].nodes[-1]
        assert isinstance(head.kind, Loop | Scope)
        stack[-1].nodes[-1] = replace(head, kind=replace(head.kind, body=tuple(body.nodes)))


def _inside(cursor: Cursor) -> list[Cursor]:
    _, kind = cursor.step("kind", cursor.value["kind"]).tagged()
    return kind.step("body", kind.value["body"]).items()


def _check_untyped(cursors: list[Cursor], nodes: list[Node]) -> None:
    """Refuse untyped Assigns, except directly before the Op that infers their types, in the order of its outputs."""
    untyped: list[str] = []
    for position, node in enumerate(nodes):
        if isinstance(node.kind, Assign) and node.kind.dtype is None:
            untyped.append(node.kind.name)
            if not _is_inferred(untyped, nodes[position + 1].kind if position + 1 < len(nodes) else None):
                cursors[position].fail("an Assign without a type comes right before the Op that gives it one")
        else:
            untyped = []


def _is_inferred(untyped: list[str], following: NodeKind | None) -> bool:
    if isinstance(following, Assign) and following.dtype is None:
        return True  # checked for that one
    if not isinstance(following, Op) or any(output.bracketed for output in following.outputs):
        return False
    return [output.base for output in following.outputs if output.base in untyped] == untyped


def _node(cursor: Cursor) -> Node:
    keys = cursor.object(("index", "uuid", "kind"), _NODE_KEYS)
    keys["index"].integer()
    uuid = keys["uuid"].parsed(UUID)
    kind = _kind(keys["kind"])
    if "scope" in keys:
        keys["scope"].text()
    constraints = _constraints(keys["constraints"]) if "constraints" in keys else NO_CONSTRAINTS
    if constraints and not isinstance(kind, Op):
        keys["constraints"].fail("constraints belong to ops and blocks")
    return Node(kind, constraints, cursor.place, uuid)


def _constraints(cursor: Cursor) -> Constraints:
    found: dict[str, AttrValue] = {}
    for item in cursor.items():
        keys = item.object(("name", "value"))
        if keys["name"].name() in found:
            item.fail(f"the constraint {keys['name'].value!r} is given twice")
        found[keys["name"].name()] = read_value(keys["value"])
    return MappingProxyType(found) if found else NO_CONSTRAINTS


def _kind(cursor: Cursor) -> NodeKind:
    tag, value = cursor.tagged()
    if tag == "Return":
        return Return(value.object(("vars",))["vars"].names() if value.value is not None else ())
    if tag == "Barrier":
        if value.value is not None:
            value.fail("a Barrier holds nothing")
        return Barrier()
    reader = _READERS.get(tag)
    if reader is None:
        cursor.fail(f"{tag!r:.40} is not a kind of node", nearest(tag, [*_READERS, "Return", "Barrier"]))
    return reader(value)


def _assign(cursor: Cursor) -> Assign:
    keys = cursor.object(("name", "dtype", "dims"))
    if keys["dtype"].value is None and keys["dims"].value is None:
        return Assign(keys["name"].name(), None, None)
    dims = tuple(dim.parsed(parse_expr) for dim in keys["dims"].items())
    return Assign(keys["name"].name(), read_dtype(keys["dtype"]), dims)


def _op(cursor: Cursor) -> Op:
    keys = cursor.object(("op", "inputs", "attrs", "output"))
    attrs: dict[str, AttrValue] = {}
    for item in keys["attrs"].object(("items",))["items"].items():
        parts = item.object(("name", "value"))
        name = parts["name"].text(_PARAMETER)
        if name in RESERVED - {"block"}:
            parts["name"].fail(f"{name!r} is a reserved word and cannot be a name")
        if name in attrs:
            item.fail(f"the parameter {name!r} is given twice")
        attrs[name] = read_value(parts["value"])
    inputs = [_input(item) for item in keys["inputs"].items()]
    for position, given in enumerate(inputs):
        others = [*attrs, *(other.name for other in inputs[:position])]
        if given.name is not None and given.name in others:
            keys["inputs"].items()[position].fail(f"the argument {given.name!r:.80} is given twice")
        if given.name is None and any(other.name is not None for other in inputs[:position]):
            keys["inputs"].items()[position].fail("inputs by position come before those with a name")
    output = keys["output"]
    outputs = output.items() if isinstance(output.value, list) else [output]
    if not outputs:
        output.fail("an op needs an output")
    return Op(
        keys["op"].name(),
        tuple(inputs),
        tuple(attrs.items()),
        tuple(item.parsed(parse_access) for item in outputs),
    )


def _input(cursor: Cursor) -> Input:
    return Input(_literal(cursor)) if isinstance(cursor.value, dict) else cursor.parsed(parse_input)


def _operand(cursor: Cursor) -> Operand:
    return _literal(cursor) if isinstance(cursor.value, dict) else cursor.parsed(parse_operand)


def _literal(cursor: Cursor) -> Literal:
    value = read_value(cursor)
    if not isinstance(value, InitValue):
        cursor.fail("an operand is text, or a tagged Float, Int or Bool")
    return Literal(value, cursor.place)


def _transfer(cursor: Cursor) -> Transfer:
    keys = cursor.object(("src", "dst"))
    return Transfer(_operand(keys["src"]), keys["dst"].parsed(parse_access))


def _loop(cursor: Cursor) -> Loop:
    keys = cursor.object(("name", "index", "start", "end", "body"))
    bounds = (keys["start"].parsed(parse_expr), keys["end"].parsed(parse_expr))
    return Loop(keys["name"].name(), keys["index"].name(), *bounds, ())


def _scope(cursor: Cursor) -> Scope:
    keys = cursor.object(("name", "body"))
    return Scope(keys["name"].text(), ())


def _branch(cursor: Cursor) -> Branch:
    keys = cursor.object(("cond", "then_block", "else_block"))
    cond, other = keys["cond"], keys["else_block"]
    if (cond.value is None) != (other.value is None):
        cursor.fail("a branch has a condition and two blocks, or only a block")
    if cond.value is None:
        return Branch(None, keys["then_block"].name())
    return Branch(cond.name(), keys["then_block"].name(), other.name())


def _call(cursor: Cursor) -> BlockCall:
    keys = cursor.object(("block", "args", "output"))
    args = tuple(_argument(item) for item in keys["args"].items())
    return BlockCall(keys["block"].name(), args, tuple(one.parsed(parse_access) for one in keys["output"].items()))


def _argument(cursor: Cursor) -> CallArgument:
    if not isinstance(cursor.value, dict) or "Expr" not in cursor.value:
        return _operand(cursor)
    expr = cursor.object(("Expr",))["Expr"].parsed(parse_expr)
    if isinstance(expr, Num | Ref):
        cursor.fail("a name is given as text, and a number as an Int")
    return expr


def _dep(cursor: Cursor) -> Dep:
    keys = cursor.object(("after", "before"))
    return Dep(keys["after"].text(_NODE_NAME), keys["before"].text(_NODE_NAME))


def _cache_read(cursor: Cursor) -> CacheRead:
    keys = cursor.object(("src", "dst"))
    return CacheRead(_access(keys["src"]), keys["dst"].parsed(parse_access))


def _cache_write(cursor: Cursor) -> CacheWrite:
    keys = cursor.object(("src", "dst"))
    return CacheWrite(_operand(keys["src"]), _access(keys["dst"]))


def _amount(cursor: Cursor) -> tuple[str, Expr]:
    keys = cursor.object(("target", "amount"))
    amount = keys["amount"]
    if not isinstance(amount.value, dict):
        return keys["target"].name(), Num(amount.integer())
    tag, value = amount.tagged()
    if tag != "Expr":
        amount.fail(f"an amount is an integer or an Expr, not {tag!r:.40}")
    return keys["target"].name(), value.parsed(parse_expr)


_READERS: dict[str, Callable[[Cursor], NodeKind]] = {
    "Assign": _assign,
    "Op": _op,
    "Transfer": _transfer,
    "Loop": _loop,
    "Scope": _scope,
    "Branch": _branch,
    "Call": _call,
    "Dep": _dep,
    "CacheRead": _cache_read,
    "CacheWrite": _cache_write,
    "CacheIncrement": lambda cursor: CacheIncrement(*_amount(cursor)),
    "CacheDecrement": lambda cursor: CacheDecrement(*_amount(cursor)),
    "CacheReset": lambda cursor: CacheReset(_access(cursor.object(("target",))["target"])),
    "Yield": lambda cursor: Yield(_some_names(cursor)),
    "Await": lambda cursor: Await(_some_names(cursor)),
}


def _some_names(cursor: Cursor) -> tuple[str, ...]:
    names = cursor.object(("vars",))["vars"].names()
    if not names:
        cursor.fail("at least one variable is needed")
    return names


def _access(cursor: Cursor) -> Access:
    keys = cursor.object(("base", "indices", "bracketed"))
    indices = tuple(_index(item) for item in keys["indices"].items())
    if indices and not keys["bracketed"].boolean():
        cursor.fail("an access with indices is bracketed")
    return Access(keys["base"].name(), indices, keys["bracketed"].boolean())


def _index(cursor: Cursor) -> Index:
    tag, value = cursor.tagged()
    if tag == "Single":
        return Single(_index_value(value))
    if tag != "Slice":
        cursor.fail(f"an index is a Single or a Slice, not {tag!r:.40}")
    keys = value.object(("start", "end"))
    ends = [None if keys[key].value is None else _index_value(keys[key]) for key in ("start", "end")]
    return Slice(*ends)


def _index_value(cursor: Cursor) -> Expr:
    tag, value = cursor.tagged()
    match tag:
        case "Ident":
            return Ref(value.name())
        case "Lit":
            return Num(value.integer())
        case "Expr":
            return value.parsed(parse_expr)
        case _:
            cursor.fail(f"an index is an Ident, a Lit or an Expr, not {tag!r:.40}")
