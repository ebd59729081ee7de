"""Graphs as plain JSON values, in the shape that other OpenInfer tools write and read."""

from math import isfinite
from typing import Any

from openinfer.dtypes import DType
from openinfer.errors import Span
from openinfer.ir.expr import Expr, Num, Ref
from openinfer.ir.graph import (
    Assign,
    Attribute,
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
    Loop,
    Node,
    Op,
    Return,
    Scope,
    SizeDecl,
    Transfer,
    VarDecl,
    Yield,
)
from openinfer.ir.operand import Access, Index, Literal, ModelRef, Operand, Single
from openinfer.ir.values import (
    AttrValue,
    BoolValue,
    DTypeList,
    DTypeValue,
    ExprList,
    ExprValue,
    FloatList,
    FloatValue,
    InitValue,
    IntValue,
    StrValue,
    VarValue,
    float_text,
)

VERSION = 1
Json = dict[str, Any]


def graph_json(graph: Graph, *, spans: bool = False) -> Json:
    """The JSON values of a whole graph."""
    return {
        "version": VERSION,
        "sizes": {name: _size(size) for name, size in graph.sizes.items()},
        "vars": {name: _variable(variable, spans=spans) for name, variable in graph.vars.items()},
        "blocks": {name: _block(block, spans=spans) for name, block in graph.blocks.items()},
        "next_index": graph.node_count,
    }


def _size(size: SizeDecl) -> Json:
    return {("Fixed" if size.relation == ":=" else "Bound"): _bound(size.value)}


def _bound(expr: Expr) -> int | str:
    return expr.value if isinstance(expr, Num) else str(expr)


def _span(span: Span) -> Json:
    return {"start": span.start, "end": span.end, **span.facts()}


def _variable(variable: VarDecl, *, spans: bool) -> Json:
    found: Json = {
        "name": variable.name,
        "kind": variable.kind.value.capitalize(),
        "dtype": dtype_tag(variable.dtype),
        "dims": [str(dim) for dim in variable.dims],
        "init": None if variable.init is None else {dtype_tag(variable.dtype): _init(variable.init)},
        "ref_name": variable.ref_name,
        "pattern": variable.pattern,
        "table_indices": list(variable.table_indices),
        "table": variable.table,
        "auto_dim": list(variable.auto_dim),
        "fixed": [[name, _bound(value)] for name, value in variable.fixed],
        "attrs": [_attribute(attribute) for attribute in variable.attrs],
    }
    if spans and isinstance(variable.span, Span):
        found["span"] = _span(variable.span)
    return found


def _init(value: InitValue) -> Any:
    return _float(value.value) if isinstance(value, FloatValue) else value.value


def _float(value: float) -> float | str:
    return value if isfinite(value) else float_text(value)


def _attribute(attribute: Attribute) -> Json:
    arguments = [{"name": name, "value": value_json(value)} for name, value in attribute.arguments]
    return {"name": attribute.name, "arguments": arguments}


def dtype_tag(dtype: DType) -> str:
    """The tag of a dtype in JSON: ``F32``, ``Bool``."""
    return "Bool" if dtype.name == "bool" else dtype.name.upper()


def value_json(value: AttrValue) -> Json:
    """A tagged value."""
    match value:
        case FloatValue():
            return {value.tag or "Float": _float(value.value)}
        case IntValue():
            return {value.tag or ("Int" if value.value < 1 << 63 else "UInt"): value.value}
        case BoolValue():
            return {"Bool": value.value}
        case StrValue():
            return {"Str": value.value}
        case VarValue():
            return {"Var": value.name}
        case ExprValue():
            return {"Expr": str(value.value)}
        case DTypeValue():
            return {"DType": dtype_tag(value.value)}
        case FloatList():
            return {"FloatList": [_float(item.value) for item in value.values]}
        case ExprList():
            integers = value.integers
            return (
                {"ExprList": [str(item) for item in value.values]} if integers is None else {"IntList": list(integers)}
            )
        case DTypeList():
            return {"DTypeList": [dtype_tag(dtype) for dtype in value.values]}


def _block(block: Block, *, spans: bool) -> Json:
    found: Json = {"name": block.name, "nodes": [_node(node, None, spans=spans) for node in block.nodes]}
    if block.params is not None:
        found["params"] = [_param(param) for param in block.params]
    if block.constraints:
        found["constraints"] = _constraints(block.constraints)
    if spans and isinstance(block.span, Span):
        found["span"] = _span(block.span)
    return found


def _param(param: BlockParam) -> Json:
    if param.dtype is None:
        return {"name": param.name, "kind": param.kind.value.capitalize()}
    dims = [str(dim) for dim in param.dims]
    kind = BlockParamKind.TENSOR.value.capitalize()
    return {"name": param.name, "kind": kind, "dtype": dtype_tag(param.dtype), "dims": dims}


def _constraints(constraints: Constraints) -> list[Json]:
    return [{"name": name, "value": value_json(value)} for name, value in constraints.items()]


def _node(node: Node, scope: str | None, *, spans: bool) -> Json:
    found: Json = {"index": node.index, "uuid": str(node.uuid), "kind": _kind(node, scope, spans=spans)}
    if scope is not None:
        found["scope"] = scope
    if node.constraints:
        found["constraints"] = _constraints(node.constraints)
    if spans and isinstance(node.span, Span):
        found["span"] = _span(node.span)
    return found


def _kind(node: Node, scope: str | None, *, spans: bool) -> Json | str:
    match node.kind:
        case Assign(name, dtype, dims):
            types = (None, None) if dtype is None else (dtype_tag(dtype), [str(dim) for dim in dims or ()])
            return {"Assign": {"name": name, "dtype": types[0], "dims": types[1]}}
        case Op(op, inputs, attrs, outputs):
            items = [{"name": name, "value": value_json(value)} for name, value in attrs]
            output = [str(access) for access in outputs]
            given = [_operand(one.operand) if one.name is None else str(one) for one in inputs]
            call = {"op": op, "inputs": given, "attrs": {"items": items}}
            return {"Op": call | {"output": output[0] if len(output) == 1 else output}}
        case Transfer(src, dst):
            return {"Transfer": {"src": _operand(src), "dst": str(dst)}}
        case Loop(name, index, start, end, body):
            nodes = [_node(child, scope, spans=spans) for child in body]
            return {"Loop": {"name": name, "index": index, "start": str(start), "end": str(end), "body": nodes}}
        case Scope(name, body):
            inner = name if scope is None else f"{scope}/{name}"
            return {"Scope": {"name": name, "body": [_node(child, inner, spans=spans) for child in body]}}
        case Branch(cond, then_block, else_block):
            return {"Branch": {"cond": cond, "then_block": then_block, "else_block": else_block}}
        case BlockCall(block, args, outputs):
            return {"Call": {"block": block, "args": list(map(_argument, args)), "output": list(map(str, outputs))}}
        case Return(variables):
            return {"Return": {"vars": list(variables)}} if variables else "Return"
        case Barrier():
            return "Barrier"
        case Dep(after, before):
            return {"Dep": {"after": after, "before": before}}
        case CacheRead(access, dst):
            return {"CacheRead": {"src": _access(access), "dst": str(dst)}}
        case CacheWrite(src, access):
            return {"CacheWrite": {"src": _operand(src), "dst": _access(access)}}
        case CacheIncrement(target, amount):
            return {"CacheIncrement": {"target": target, "amount": _amount(amount)}}
        case CacheDecrement(target, amount):
            return {"CacheDecrement": {"target": target, "amount": _amount(amount)}}
        case CacheReset(access):
            return {"CacheReset": {"target": _access(access)}}
        case Yield(variables):
            return {"Yield": {"vars": list(variables)}}
        case Await(variables):
            return {"Await": {"vars": list(variables)}}


def _amount(expr: Expr) -> Json | int:
    return expr.value if isinstance(expr, Num) else {"Expr": str(expr)}


def _argument(given: CallArgument) -> Json | str:
    """An argument of a call: an operand like the input of an op, or a tagged expression."""
    return _operand(given) if isinstance(given, Access | ModelRef | Literal) else {"Expr": str(given)}


def _operand(operand: Operand) -> Json | str:
    """An operand as canonical text; a literal as a tagged value."""
    return value_json(operand.value) if isinstance(operand, Literal) else str(operand)


def _access(access: Access) -> Json:
    return {"base": access.base, "indices": [_index(index) for index in access.indices], "bracketed": access.bracketed}


def _index(index: Index) -> Json:
    if isinstance(index, Single):
        return {"Single": _index_value(index.value)}
    ends = [None if end is None else _index_value(end) for end in (index.start, index.end)]
    return {"Slice": {"start": ends[0], "end": ends[1]}}


def _index_value(expr: Expr) -> Json:
    match expr:
        case Num():
            return {"Lit": expr.value}
        case Ref():
            return {"Ident": expr.name}
        case _:
            return {"Expr": str(expr)}
