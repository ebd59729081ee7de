"""What an op's operands are: a dtype and a shape; and how an op says that they do not fit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import prod

from openinfer.dtypes import DTYPES, DType
from openinfer.errors import Code, Fix, FixPlace
from openinfer.oinf.quant import QuantParams

Shape = tuple[int, ...]
WITH_ACC = Fix("acc=i32", place=FixPlace.ARGUMENT)
"""The parameter that gives a sum a wider dtype."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a value; ``quant`` is how a tensor of the model stands for real numbers.

    ``dims`` is how the source spells the dimensions, for messages only.

    >>> str(TensorType(DTYPES["f32"], (4, 16))), str(TensorType(DTYPES["i64"], ()))
    ('f32[4, 16]', 'i64')
    >>> str(TensorType(DTYPES["f32"], (4, 16), dims=("B", "16")))
    'f32[B=4, 16]'
    """

    dtype: DType
    shape: Shape
    quant: QuantParams | None = None
    dims: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        pairs = zip_longest(map(str, self.shape), self.dims[: len(self.shape)])
        extents = [extent if text in (None, extent) else f"{text}={extent}" for extent, text in pairs]
        return f"{self.dtype.name}[{', '.join(extents)}]" if extents else self.dtype.name

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes the elements occupy in storage."""
        return self.dtype.nbytes(self.size)


class OpError(Exception):
    """Operands, parameters or values that an op refuses.

    ``at`` says which: the position of an input, the name of a parameter, or None for the op as a whole. Whoever called
    the op knows where that stands in the source and makes a diagnostic of it.
    """

    def __init__(self, code: Code, message: str, at: int | str | None = None, advice: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.at = at
        self.advice = advice
        self.others: tuple[OpError, ...] = ()
        """More that is wrong with the same call."""


def together(errors: Sequence[OpError]) -> OpError:
    """The first of several errors of one call, with the others beside it."""
    first = errors[0]
    first.others = tuple(errors[1:])
    return first


def shape_error(message: str, at: int | str | None = None, advice: str | None = None) -> OpError:
    """Shapes that do not fit together."""
    return OpError(Code.SHAPE_MISMATCH, message, at, advice)


def parameter_error(name: str, message: str, advice: str | None = None) -> OpError:
    """A parameter that has no meaning for these operands."""
    return OpError(Code.BAD_PARAMETER, message, name, advice)


def value_error(message: str, at: int | None = None, advice: str | None = None) -> OpError:
    """A value, found while computing, for which the op has no result."""
    return OpError(Code.BAD_VALUE, message, at, advice)


def dtypes(names: str) -> tuple[DType, ...]:
    """Dtypes by their names, separated by spaces.

    >>> dtypes("f32 i4")
    (<dtype f32>, <dtype i4>)
    """
    return tuple(DTYPES[name] for name in names.split())


ALL = tuple(DTYPES.values())
FLOATS = tuple(dtype for dtype in ALL if dtype.kind == "float")
SIGNED = tuple(dtype for dtype in ALL if dtype.kind == "int" and not dtype.values)
UNSIGNED = tuple(dtype for dtype in ALL if dtype.kind == "uint")
INTEGERS = SIGNED + UNSIGNED
POSITIONS = tuple(dtype for dtype in INTEGERS if not dtype.is_packed)
"""What indices and positions are given in."""
TERNARY = tuple(dtype for dtype in ALL if dtype.kind == "int" and dtype.values)
"""Integers that are not closed under addition; ops that could leave them refuse them."""
BOOL = dtypes("bool")
NUMBERS = FLOATS + INTEGERS
"""Everything that adds and multiplies, at its own width."""
I64 = DTYPES["i64"]
F32 = DTYPES["f32"]
F64 = DTYPES["f64"]
