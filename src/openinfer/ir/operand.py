"""Operands of nodes: variables, entries and slices of tables, tensors of the model, literals."""

from dataclasses import dataclass, field

from openinfer.errors import GraphPlace
from openinfer.ir.expr import Expr, Num, Ref
from openinfer.ir.values import InitValue, IntValue, quote


@dataclass(frozen=True, slots=True)
class Single:
    """A single index."""

    value: Expr

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Slice:
    """A half-open range of indices; a missing end reaches to the edge."""

    start: Expr | None = None
    end: Expr | None = None

    def __str__(self) -> str:
        if self.start is None and self.end is None:
            return ""
        return f"{'' if self.start is None else self.start}..{'' if self.end is None else self.end}"


Index = Single | Slice


@dataclass(frozen=True, slots=True)
class Access:
    """A variable, or a selection from it in brackets.

    >>> from openinfer.ir.expr import Num, Ref
    >>> str(Access("K", (Single(Ref("l")), Slice(None, Num(3))), bracketed=True))
    'K[l, ..3]'
    >>> str(Access("A", (Slice(), Single(Ref("j"))), bracketed=True))
    'A[, j]'
    """

    base: str
    indices: tuple[Index, ...] = ()
    bracketed: bool = False
    span: GraphPlace | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        if not self.bracketed:
            return self.base
        if len(self.indices) == 1 and self.indices[0] == Slice():
            return f"{self.base}[..]"
        return f"{self.base}[{', '.join(map(str, self.indices))}]"


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A tensor of the model by its name, which may contain loop indices: ``model[fmt("W.{l}")]``.

    >>> str(ModelRef("scale")), str(ModelRef("W.{l}", formatted=True))
    ('model["scale"]', 'model[fmt("W.{l}")]')
    """

    name: str
    formatted: bool = False
    span: GraphPlace | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        text = quote(self.name)
        return f"model[fmt({text})]" if self.formatted else f"model[{text}]"


@dataclass(frozen=True, slots=True)
class Literal:
    """A number or boolean used as a scalar; it takes the dtype of the operands around it.

    >>> from openinfer.ir.values import FloatValue
    >>> str(Literal(FloatValue(0.5)))
    '0.5'
    """

    value: InitValue
    span: GraphPlace | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.value)


Operand = Access | ModelRef | Literal


def index_of(argument: Operand | Expr) -> Expr | None:
    """An argument of a call as an index expression; None if it cannot be one.

    >>> str(index_of(Access("l"))), index_of(ModelRef("scale"))
    ('l', None)
    """
    match argument:
        case Access(base=base, bracketed=False):
            return Ref(base)
        case Literal(value=IntValue(value=number)):
            return Num(number)
        case Access() | ModelRef() | Literal():
            return None
        case expr:
            return expr
