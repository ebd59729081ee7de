"""Values of parameters, attributes and constraints.

``tag`` is how another tool spelled a number in JSON (``Double`` for ``Float``, ``UInt`` for ``Int``); it is kept so
that documents survive unchanged, and comparisons ignore it. ``span`` is the source location of a number that can be an
operand.
"""

import json
from dataclasses import dataclass, field
from math import isfinite, isinf, isnan

from openinfer.dtypes import DType
from openinfer.errors import GraphPlace
from openinfer.ir.expr import Expr, Num, Ref


@dataclass(frozen=True, slots=True)
class FloatValue:
    """A floating-point number. NaN equals NaN here, as any other value equals itself."""

    value: float
    tag: str | None = field(default=None, compare=False)
    span: GraphPlace | None = field(default=None, compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FloatValue) and float_text(self.value) == float_text(other.value)

    def __hash__(self) -> int:
        return hash(float_text(self.value))

    def __str__(self) -> str:
        return float_text(self.value)


@dataclass(frozen=True, slots=True)
class IntValue:
    """An integer."""

    value: int
    tag: str | None = field(default=None, compare=False)
    span: GraphPlace | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class BoolValue:
    """``true`` or ``false``."""

    value: bool
    span: GraphPlace | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return "true" if self.value else "false"


@dataclass(frozen=True, slots=True)
class StrValue:
    """A string."""

    value: str

    def __str__(self) -> str:
        return quote(self.value)


@dataclass(frozen=True, slots=True)
class VarValue:
    """The name of a constant whose value is used."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ExprValue:
    """An integer expression over sizes."""

    value: Expr

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class DTypeValue:
    """A dtype."""

    value: DType

    def __str__(self) -> str:
        return self.value.name


@dataclass(frozen=True, slots=True)
class FloatList:
    """A list with at least one float."""

    values: tuple[FloatValue, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.values))}]"


@dataclass(frozen=True, slots=True)
class ExprList:
    """A list of integers, or of expressions over sizes."""

    values: tuple[Expr, ...]

    @property
    def integers(self) -> tuple[int, ...] | None:
        """The elements, if all of them are plain integers; None otherwise."""
        found = tuple(value.value for value in self.values if isinstance(value, Num))
        return found if len(found) == len(self.values) else None

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.values))}]"


@dataclass(frozen=True, slots=True)
class DTypeList:
    """A list of dtypes."""

    values: tuple[DType, ...]

    def __str__(self) -> str:
        return f"[{', '.join(dtype.name for dtype in self.values)}]"


AttrValue = (
    FloatValue | IntValue | BoolValue | StrValue | VarValue | ExprValue | DTypeValue | FloatList | ExprList | DTypeList
)


def quote(text: str) -> str:
    r"""A string literal, with JSON escapes if it contains characters that do not print.

    >>> quote('say "hi"')
    '"say \\"hi\\""'
    """
    return json.dumps(text, ensure_ascii=not text.isprintable())


def float_text(value: float) -> str:
    """A float literal that parses back to the same float.

    >>> float_text(5.0), float_text(1e300), float_text(float("-inf"))
    ('5.0', '1e300', '-inf')
    """
    if isnan(value):
        return "nan"
    if isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    return text.replace("e+", "e")


InitValue = FloatValue | IntValue | BoolValue


def init_value(value: AttrValue, dtype: DType) -> InitValue | None:
    """An initial value in a dtype; None if the dtype cannot represent it.

    >>> from openinfer.dtypes import dtype_of
    >>> init_value(IntValue(5), dtype_of("f32"))
    FloatValue(value=5.0, tag=None)
    """
    if dtype.kind == "bool":
        return value if isinstance(value, BoolValue) else None
    if dtype.kind == "float":
        number = FloatValue(float(value.value)) if isinstance(value, IntValue) else value
        if not isinstance(number, FloatValue):
            return None
        return None if isfinite(number.value) and abs(number.value) > dtype.maximum else number
    if not isinstance(value, IntValue) or not dtype.minimum <= value.value <= dtype.maximum:
        return None
    return None if dtype.values and value.value not in dtype.values else value


def as_expr(value: AttrValue) -> Expr | None:
    """A value as an integer expression; None if it is not one."""
    match value:
        case IntValue():
            return Num(value.value)
        case VarValue():
            return Ref(value.name)
        case ExprValue():
            return value.value
        case _:
            return None
