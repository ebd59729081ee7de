"""The JSON Schema of graph documents, for tools that are not written in Python."""

from typing import Any

from openinfer.dtypes import DTYPES
from openinfer.ir.graph import MemoryKind
from openinfer.ir.to_json import VERSION, dtype_tag

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
_UUID = "^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"
_NAMES: Schema = {"type": "array", "items": _NAME}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_INTEGER: Schema = {"type": "integer"}
_NUMBER: Schema = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]}
_DTYPE: Schema = {"enum": [dtype_tag(dtype) for dtype in DTYPES.values()]}
_BOUND: Schema = {"anyOf": [_INTEGER, _TEXT]}
_NODES: Schema = {"type": "array", "items": {"$ref": "#/$defs/node"}}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _tagged(kinds: dict[str, Schema]) -> list[Schema]:
    return [_object({tag: schema}) for tag, schema in kinds.items()]


def graph_schema() -> Schema:
    """The schema, in the 2020-12 dialect.

    >>> sorted(graph_schema()["properties"])
    ['blocks', 'next_index', 'sizes', 'vars', 'version']
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "OpenInfer graph",
        "$defs": _definitions(),
        **_object(
            {
                "vars": {"type": "object", "additionalProperties": {"$ref": "#/$defs/variable"}},
                "blocks": {"type": "object", "additionalProperties": {"$ref": "#/$defs/block"}},
            },
            {
                "version": {"const": VERSION},
                "sizes": {"type": "object", "additionalProperties": {"$ref": "#/$defs/size"}},
                "next_index": _INTEGER,
            },
        ),
    }


def _definitions() -> Schema:
    value = {"$ref": "#/$defs/value"}
    index_value: Schema = {"anyOf": _tagged({"Ident": _NAME, "Lit": _INTEGER, "Expr": _TEXT})}
    ends = _object({"start": _or_null(index_value), "end": _or_null(index_value)})
    index: Schema = {"anyOf": _tagged({"Single": index_value, "Slice": ends})}
    named_value = _object({"name": _NAME, "value": value})
    return {
        "size": {"anyOf": _tagged({"Fixed": _BOUND, "Bound": _BOUND})},
        "variable": _variable(value),
        "block": _object(
            {"name": _NAME, "nodes": _NODES},
            {"params": _list(_param()), "constraints": _list(named_value), "span": {"type": "object"}},
        ),
        "node": _object(
            {"index": _INTEGER, "uuid": {"type": "string", "pattern": _UUID}, "kind": {"$ref": "#/$defs/kind"}},
            {"scope": _TEXT, "constraints": _list(named_value), "span": {"type": "object"}},
        ),
        "kind": {"anyOf": [{"enum": ["Return", "Barrier"]}, *_tagged(_kinds(named_value))]},
        "access": _object({"base": _NAME, "indices": _list(index), "bracketed": {"type": "boolean"}}),
        "value": {"anyOf": _tagged(_values())},
    }


def _param() -> Schema:
    tensor = _object({"name": _NAME, "kind": {"const": "Tensor"}, "dtype": _DTYPE, "dims": _TEXTS})
    return {"anyOf": [tensor, _object({"name": _NAME, "kind": {"enum": ["Index", "Prefix"]}})]}


def _list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _variable(value: Schema) -> Schema:
    argument = _object({"value": value}, {"name": _or_null(_NAME)})
    return _object(
        {
            "name": _NAME,
            "kind": {"enum": [kind.value.capitalize() for kind in MemoryKind]},
            "dtype": _DTYPE,
            "dims": _TEXTS,
        },
        {
            "init": _or_null({"type": "object", "minProperties": 1, "maxProperties": 1}),
            "ref_name": _or_null(_TEXT),
            "pattern": _or_null(_TEXT),
            "table_indices": _NAMES,
            "table": {"type": "boolean"},
            "auto_dim": _NAMES,
            "fixed": _list({"type": "array", "prefixItems": [_NAME, _BOUND], "minItems": 2, "maxItems": 2}),
            "attrs": _list(_object({"name": _NAME}, {"arguments": _list(argument)})),
            "span": {"type": "object"},
        },
    )


def _scalars() -> dict[str, Schema]:
    return {"Float": _NUMBER, "Double": _NUMBER, "Int": _INTEGER, "UInt": _INTEGER, "Bool": {"type": "boolean"}}


def _values() -> dict[str, Schema]:
    return {
        **_scalars(),
        "Str": _TEXT,
        "Var": _NAME,
        "Expr": _TEXT,
        "DType": _DTYPE,
        "IntList": _list(_INTEGER),
        "FloatList": _list(_NUMBER),
        "ExprList": _TEXTS,
        "DTypeList": _list(_DTYPE),
    }


def _kinds(named_value: Schema) -> dict[str, Schema]:
    access = {"$ref": "#/$defs/access"}
    variables = _object({"vars": _NAMES})
    amount = _object({"target": _NAME, "amount": {"anyOf": [_INTEGER, *_tagged({"Expr": _TEXT})]}})
    operand: Schema = {"anyOf": [_TEXT, *_tagged(_scalars())]}
    argument: Schema = {"anyOf": [_TEXT, *_tagged({**_scalars(), "Expr": _TEXT})]}
    output: Schema = {"anyOf": [_TEXT, _TEXTS | {"minItems": 1}]}
    return {
        "Assign": _object({"name": _NAME, "dtype": _or_null(_DTYPE), "dims": _or_null(_TEXTS)}),
        "Op": _object(
            {"op": _NAME, "inputs": _list(operand), "attrs": _object({"items": _list(named_value)}), "output": output}
        ),
        "Transfer": _object({"src": operand, "dst": _TEXT}),
        "Loop": _object({"name": _NAME, "index": _NAME, "start": _TEXT, "end": _TEXT, "body": _NODES}),
        "Scope": _object({"name": _TEXT, "body": _NODES}),
        "Branch": _object({"cond": _or_null(_NAME), "then_block": _NAME, "else_block": _or_null(_NAME)}),
        "Call": _object({"block": _NAME, "args": _list(argument), "output": _TEXTS}),
        "Return": variables,
        "Dep": _object({"after": _TEXT, "before": _TEXT}),
        "CacheRead": _object({"src": access, "dst": _TEXT}),
        "CacheWrite": _object({"src": operand, "dst": access}),
        "CacheIncrement": amount,
        "CacheDecrement": amount,
        "CacheReset": _object({"target": access}),
        "Yield": variables,
        "Await": variables,
    }
