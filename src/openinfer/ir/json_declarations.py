"""Reads sizes, variables, attributes and values from JSON."""

from openinfer.dtypes import DTYPES, DType
from openinfer.errors import nearest
from openinfer.ir.document import Cursor, shown
from openinfer.ir.expr import Expr, Num, Ref
from openinfer.ir.graph import (
    Attribute,
    MemoryKind,
    SizeDecl,
    VarDecl,
)
from openinfer.ir.operand_text import parse_expr
from openinfer.ir.to_json import dtype_tag
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
    init_value,
)

_OWN_ATTRIBUTES = ("init", "ref", "pattern", "table", "auto_dim", "fixed")
_KINDS = {kind.value.capitalize(): kind for kind in MemoryKind}
_DTYPES = {dtype_tag(dtype): dtype for dtype in DTYPES.values()}


def read_size(name: str, cursor: Cursor) -> SizeDecl:
    """Read a size: fixed, or with a bound."""
    tag, value = cursor.tagged()
    if tag not in ("Fixed", "Bound"):
        cursor.fail(f"a size is Fixed or a Bound, not {tag!r:.40}")
    return SizeDecl(name, ":=" if tag == "Fixed" else "<=", _bound(value), cursor.place)


def _bound(cursor: Cursor) -> Expr:
    return cursor.parsed(parse_expr) if isinstance(cursor.value, str) else Num(cursor.integer())


_VARIABLE_KEYS = ("init", "ref_name", "pattern", "table_indices", "table", "auto_dim", "fixed", "attrs", "span")


def read_variable(name: str, cursor: Cursor) -> VarDecl:
    """Read a variable with its attributes."""
    keys = cursor.object(("name", "kind", "dtype", "dims"), _VARIABLE_KEYS)
    if keys["name"].name() != name:
        keys["name"].fail(f"the name differs from the key {name!r}")
    if keys["kind"].text() not in _KINDS:
        keys["kind"].fail(f"{keys['kind'].value!r:.40} is not a memory kind", nearest(keys["kind"].value, _KINDS))
    dtype = read_dtype(keys["dtype"])

    def optional(key: str) -> Cursor | None:
        return keys[key] if key in keys and keys[key].value is not None else None

    init, ref_name, pattern = optional("init"), optional("ref_name"), optional("pattern")
    indices, auto_dim, fixed, attrs = (
        optional("table_indices"),
        optional("auto_dim"),
        optional("fixed"),
        optional("attrs"),
    )
    table = optional("table")
    return VarDecl(
        name,
        _KINDS[keys["kind"].value],
        dtype,
        tuple(dim.parsed(parse_expr) for dim in keys["dims"].items()),
        None if init is None else _init(init, dtype),
        None if ref_name is None else ref_name.text(),
        None if pattern is None else pattern.text(),
        () if indices is None else _distinct(indices.items(), [item.name() for item in indices.items()]),
        table is not None and table.boolean(),
        () if auto_dim is None else auto_dim.names(),
        () if fixed is None else _bounds(fixed.items()),
        () if attrs is None else _attributes(attrs.items()),
        cursor.place,
    )


def _distinct(cursors: list[Cursor], names: list[str]) -> tuple[str, ...]:
    """Names, which must be distinct."""
    for position, cursor in enumerate(cursors):
        if names[position] in names[:position]:
            cursor.fail(f"{names[position]!r:.80} is given twice")
    return tuple(names)


def _bounds(cursors: list[Cursor]) -> tuple[tuple[str, Expr], ...]:
    found = [_fixed(cursor) for cursor in cursors]
    _distinct(cursors, [name for name, _ in found])
    return tuple(found)


def _attributes(cursors: list[Cursor]) -> tuple[Attribute, ...]:
    found = [_attribute(cursor) for cursor in cursors]
    _distinct(cursors, [attribute.name for attribute in found])
    return tuple(found)


def read_dtype(cursor: Cursor) -> DType:
    """Read a dtype from its tag."""
    found = _DTYPES.get(cursor.text())
    if found is None:
        cursor.fail(f"{cursor.value!r:.40} is not a dtype", nearest(cursor.value, _DTYPES))
    return found


def _init(cursor: Cursor, dtype: DType) -> InitValue:
    tag, value = cursor.tagged()
    if tag != dtype_tag(dtype):
        cursor.fail(f"the initial value is tagged {tag!r:.40}, but the variable is {dtype_tag(dtype)}")
    given: AttrValue
    if isinstance(value.value, bool):
        given = BoolValue(value.value)
    elif dtype.kind == "float":
        given = FloatValue(value.number())
    else:
        given = IntValue(value.integer())
    found = init_value(given, dtype)
    if found is None:
        value.fail(f"{shown(value.value)} is not a value of {dtype.name}")
    return found


def _fixed(cursor: Cursor) -> tuple[str, Expr]:
    items = cursor.items()
    if len(items) != 2:
        cursor.fail("expected a name and a bound")
    return items[0].name(), _bound(items[1])


def _attribute(cursor: Cursor) -> Attribute:
    keys = cursor.object(("name",), ("arguments",))
    arguments: list[tuple[str | None, AttrValue]] = []
    for item in keys["arguments"].items() if "arguments" in keys else ():
        parts = item.object(("value",), ("name",))
        name = parts["name"].name() if "name" in parts and parts["name"].value is not None else None
        if name is not None and any(name == other for other, _ in arguments):
            item.fail(f"the argument {name!r} is given twice")
        if name is None and any(other is not None for other, _ in arguments):
            item.fail("arguments by position come before those with a name")
        arguments.append((name, read_value(parts["value"])))
    if keys["name"].name() in _OWN_ATTRIBUTES:
        keys["name"].fail(f"'@{keys['name'].value}' has a key of its own")
    return Attribute(keys["name"].name(), tuple(arguments))


def read_value(cursor: Cursor) -> AttrValue:
    """Read a tagged value of an attribute or a parameter."""
    tag, value = cursor.tagged()
    match tag:
        case "Float" | "Double":
            return FloatValue(value.number(), None if tag == "Float" else tag)
        case "Int" | "UInt":
            number = value.integer()
            if tag == "UInt" and number < 0:
                value.fail("a UInt is not negative")
            return IntValue(number, None if tag == ("Int" if number < 1 << 63 else "UInt") else tag)
        case "Bool":
            return BoolValue(value.boolean())
        case "Str":
            return StrValue(value.text())
        case "Var":
            return VarValue(value.name())
        case "Expr":
            expr = value.parsed(parse_expr)
            return (
                IntValue(expr.value)
                if isinstance(expr, Num)
                else VarValue(expr.name)
                if isinstance(expr, Ref)
                else ExprValue(expr)
            )
        case "DType":
            return DTypeValue(read_dtype(value))
        case "IntList":
            return ExprList(tuple(Num(item.integer()) for item in value.items()))
        case "ExprList":
            return ExprList(tuple(item.parsed(parse_expr) for item in value.items()))
        case "FloatList":
            items = tuple(FloatValue(item.number()) for item in value.items())
            return FloatList(items) if items else ExprList(())
        case "DTypeList":
            dtypes = tuple(read_dtype(item) for item in value.items())
            return DTypeList(dtypes) if dtypes else ExprList(())
        case _:
            known = ("Float", "Int", "Bool", "Str", "Var", "DType", "IntList", "FloatList")
            cursor.fail(f"{tag!r:.40} is not a kind of value", nearest(tag, known))
