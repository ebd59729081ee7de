"""The record of an op: everything OpenInfer knows about it, in one place.

An op is a reference function with a docstring and the decorator ``op``; adding one means writing one such function. The
records know nothing of graphs or of who runs them.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from openinfer.dtypes import DTYPES, Array, DType
from openinfer.ops.types import ALL, Shape, TensorType

ParamKind = Literal["int", "float", "number", "bool", "str", "dtype", "ints", "floats", "dtypes"]
"""``number`` is an int, float or bool in the operand's dtype; lists accept a single element too."""
ParamValue: TypeAlias = (
    int | float | bool | str | DType | tuple[int, ...] | tuple[float, ...] | tuple[DType, ...] | None
)
REQUIRED = "required"
"""The default of a parameter that must be given."""


@dataclass(frozen=True)
class Param:
    """A named parameter. A default of None means: absent, or derived from the operands as ``doc`` says."""

    name: str
    kind: ParamKind
    default: ParamValue = None
    doc: str = ""
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return self.default == REQUIRED and not self.choices


@dataclass(frozen=True)
class InputSpec:
    """One input: its name, the type variable or dtypes it may have, and whether it can be left out.

    ``dequantizes``: a tensor with quantization counts as its real numbers where a float is expected.
    """

    name: str
    type: str
    optional: bool = False
    variadic: bool = False
    dequantizes: bool = False


@dataclass(frozen=True)
class OutputSpec:
    """One output: a name, and the type variable or dtype it has."""

    name: str
    type: str
    variadic: bool = False


@dataclass(frozen=True)
class Signature:
    """Inputs, outputs, and what each type variable stands for."""

    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    types: Mapping[str, tuple[DType, ...]]

    def allowed(self, name: str) -> tuple[DType, ...]:
        """The dtypes of a type variable, or the one dtype of that name."""
        return self.types[name] if name in self.types else (DTYPES[name],)


@dataclass(frozen=True)
class Call:
    """One use of an op: the types of its operands and its parameters, complete.

    ``inputs`` has a place for every input of the record (None where an optional one is left out); a variadic input
    takes as many places as it has operands. ``wanted`` is what the graph declares the outputs to be, where it does.
    """

    inputs: tuple[TensorType | None, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    wanted: tuple[TensorType | None, ...] = ()
    outputs: tuple[TensorType, ...] = ()

    def input(self, position: int) -> TensorType:
        """The type of an input that is there."""
        found = self.inputs[position]
        assert found is not None
        return found

    def shape(self, position: int) -> Shape:
        """The shape of an input that is there."""
        return self.input(position).shape

    def dtype(self, position: int = 0) -> DType:
        """The dtype of an input that is there."""
        return self.input(position).dtype


@dataclass(frozen=True)
class OpCost:
    """What one call costs at least: arithmetic operations, and bytes that must be read and written."""

    flops: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class Tolerance:
    """How far a correct implementation may be from the reference.

    * ``exact``: bit for bit, any NaN equal to any NaN;
    * ``ulp``: within ``ulps`` units in the last place of the output dtype;
    * ``sum``: within twice the a-priori bound of any order of summation, which the record's ``bound`` computes;
    * ``row``: within ``ulps`` units in the last place of the largest magnitude in the tensor.

    Integers and bools are always exact.
    """

    kind: Literal["exact", "ulp", "sum", "row"]
    ulps: float = 0


EXACT = Tolerance("exact")
SUM = Tolerance("sum")


def ulp(count: float) -> Tolerance:
    """Within a number of units in the last place."""
    return Tolerance("ulp", count)


def row(count: float) -> Tolerance:
    """Within a number of units in the last place of the largest value."""
    return Tolerance("row", count)


@dataclass(frozen=True)
class Case:
    """One test input: stored arrays (None for inputs left out) with their dtypes, and parameters."""

    arrays: tuple[Array | None, ...]
    dtypes: tuple[DType | None, ...]
    params: Mapping[str, Any] = field(default_factory=dict)


Reference: TypeAlias = Callable[..., Any]
ShapeRule: TypeAlias = Callable[[Call], tuple[Shape, ...]]
DTypeRule: TypeAlias = Callable[[Call], tuple[DType, ...]]
CostRule: TypeAlias = Callable[[Call], OpCost]
Cases: TypeAlias = Callable[[np.random.Generator, DType], Iterator[Case]]
ErrorBound: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class OpRecord:
    """Everything about one op."""

    name: str
    family: str
    signature: Signature
    params: tuple[Param, ...]
    shape: ShapeRule
    reference: Reference
    """``reference(call, *arrays)`` on arrays in compute form (None for inputs left out); one array, or a tuple."""
    cost: CostRule
    tolerance: Tolerance
    cases: Cases
    """Test inputs for one dtype of the first type variable."""
    doc: str
    dtype: DTypeRule | None = None
    """Output dtypes where the signature does not say them: ``acc``, ``to``."""
    stored: bool = False
    """The reference takes and gives stored arrays: it moves values and does not compute with them."""
    aliases: tuple[str, ...] = ()
    bound: ErrorBound | None = None
    """For ``sum`` tolerances: ``bound(call, *arrays)``, the a-priori error bound of each output element."""

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The dtypes the op works on: those of its first type variable."""
        variables = self.signature.types
        return next(iter(variables.values())) if variables else self.signature.allowed(self.signature.inputs[0].type)

    def param(self, name: str) -> Param | None:
        """The parameter with this name or alias."""
        return next((param for param in self.params if name == param.name or name in param.aliases), None)


OPS: dict[str, OpRecord] = {}
"""Every op by name and alias, in the order of the catalogue."""

_INPUT = re.compile(r"(\w+)(\.\.\.)?(\?)?: (\w+)(~)?")


def signature(text: str, **types: tuple[DType, ...]) -> Signature:
    """A signature from text: ``x: T, w: T~, bias?: T -> T``; ``...`` marks any number, ``~`` what may be quantized.

    >>> signature("x: T, ids: I -> T", T=ALL, I=(DTYPES["i64"],)).inputs[1].name
    'ids'
    """
    left, _, right = text.partition(" -> ")
    inputs = []
    for part in left.split(", "):
        found = _INPUT.fullmatch(part)
        assert found is not None, part
        inputs.append(InputSpec(found[1], found[4], bool(found[3]), bool(found[2]), bool(found[5])))
    outputs = []
    for position, part in enumerate(right.split(", ")):
        name, _, kind = part.rpartition(": ")
        outputs.append(OutputSpec(name.removesuffix("...") or "y"[position:], kind, name.endswith("...")))
    return Signature(tuple(inputs), tuple(outputs), types)


def op(
    family: str,
    text: str,
    *params: Param,
    shape: ShapeRule,
    cost: CostRule,
    tolerance: Tolerance,
    cases: Cases,
    dtype: DTypeRule | None = None,
    name: str | None = None,
    doc: str | None = None,
    stored: bool = False,
    aliases: tuple[str, ...] = (),
    bound: ErrorBound | None = None,
    **types: tuple[DType, ...],
) -> Callable[[Reference], Reference]:
    """Make a record of a reference function: its name and docstring are the op's."""

    def register(reference: Reference) -> Reference:
        # A trailing underscore keeps Python's own names free: ``and_`` is the op ``and``.
        own = name or reference.__name__.rstrip("_")
        record = OpRecord(
            name=own,
            family=family,
            signature=signature(text, **types),
            params=params,
            shape=shape,
            reference=reference,
            cost=cost,
            tolerance=tolerance,
            cases=cases,
            doc=inspect.cleandoc(doc or reference.__doc__ or ""),
            dtype=dtype,
            stored=stored,
            aliases=aliases,
            bound=bound,
        )
        for known in (own, *aliases):
            assert known not in OPS, known
            OPS[known] = record
        return reference

    return register


def op_dtypes(record: OpRecord) -> tuple[DType, ...]:
    """The dtypes of an op in the order of the dtype table."""
    return tuple(dtype for dtype in ALL if dtype in record.dtypes)
