"""The types of operands: variables, entries and slices of tables, tensors of the model.

A slice whose length depends on values known only at run time has an unknown extent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from openinfer.check.bound import BoundVar
from openinfer.dtypes import DType
from openinfer.ir import Access, Single, Slice
from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Ref, evaluate, names
from openinfer.ir.polynomial import form_of
from openinfer.loops.dim import larger
from openinfer.oinf.quant import QuantParams, QuantScale, QuantZeroPoint
from openinfer.ops import Shape, TensorType

PartialShape = tuple[int | None, ...]


@dataclass(frozen=True)
class AccessType:
    """The type of an operand; extents that are known only at run time are None.

    >>> from openinfer.dtypes import dtype_of
    >>> str(AccessType(dtype_of("f16"), (None, 4)))
    'f16[?, 4]'
    """

    dtype: DType
    shape: PartialShape
    quant: QuantParams | None = None
    dims: tuple[str, ...] = ()

    @cached_property
    def known(self) -> TensorType | None:
        """The complete type; None if an extent is unknown."""
        shape = tuple(extent for extent in self.shape if extent is not None)
        return TensorType(self.dtype, shape, self.quant, self.dims) if len(shape) == len(self.shape) else None

    def __str__(self) -> str:
        known = self.known
        if known is not None:
            return str(known)
        return f"{self.dtype.name}[{', '.join('?' if extent is None else str(extent) for extent in self.shape)}]"

    def agrees_with(self, other: "AccessType") -> bool:
        """Whether both can be the same type; an unknown extent agrees with any extent."""
        return (
            self.dtype is other.dtype
            and len(self.shape) == len(other.shape)
            and all(one is None or two is None or one == two for one, two in zip(self.shape, other.shape, strict=True))
        )


StaticValue = Callable[[str], int | None]
"""The value of a name that is the same whenever the node runs; None if it is not."""


def access_type(access: Access, variable: BoundVar, shape: Shape, static: StaticValue) -> AccessType:
    """The type of an access; ``shape`` is that of the variable (or its entry) at the current sizes."""
    whole = AccessType(variable.dtype, shape, variable.quant, tuple(map(str, variable.dims or ())))
    decl = variable.decl
    if not access.bracketed or (decl is not None and decl.pattern is not None):
        return whole
    if decl is None or not decl.is_indexed:
        extents = _sliced(access, shape, static)
    elif decl.auto_dim:
        extents = _auto_dim(access, variable, shape, static)
    else:
        indices = access.indices or (Slice(),) * len(decl.table_indices)
        front = tuple(_length(index, None, static) for index in indices if isinstance(index, Slice))
        extents = (*front, *shape)
    return AccessType(variable.dtype, extents, part_quant(access, variable.quant))


def part_quant(access: Access, quant: QuantParams | None) -> QuantParams | None:
    """How a slice of a quantized tensor is quantized: per channel only if it has all channels."""
    if quant is None or not access.indices or quant.scale.axis is None:
        return quant
    if cuts_channels(access, quant):
        return None
    if quant.scale.group is not None:
        return quant
    axis = sum(isinstance(index, Slice) for index in access.indices[: quant.scale.axis])
    zero = None if quant.zero_point is None else QuantZeroPoint(axis, quant.zero_point.values)
    return QuantParams(quant.scheme, QuantScale(axis, quant.scale.values), zero)


def cuts_channels(access: Access, quant: QuantParams | None) -> bool:
    """Whether brackets drop channels of a tensor quantized per channel, or any part of one quantized in groups."""
    axis = None if quant is None else quant.scale.axis
    if quant is not None and quant.scale.group is not None:
        return any(index != Slice() for index in access.indices)
    return axis is not None and bool(access.indices) and access.indices[axis] != Slice()


def access_rank(access: Access, variable: BoundVar) -> int:
    """The rank of an access."""
    return len(access_type(access, variable, variable.shape, lambda _name: None).shape)


def _sliced(access: Access, shape: Shape, static: StaticValue) -> PartialShape:
    """The shape of an access to a plain tensor: single indices remove an axis, slices keep part of it."""
    if not access.indices:
        return shape
    pairs = zip(access.indices, shape, strict=True)
    return tuple(_length(index, extent, static) for index, extent in pairs if isinstance(index, Slice))


def _auto_dim(access: Access, variable: BoundVar, shape: Shape, static: StaticValue) -> PartialShape:
    decl = variable.decl
    assert decl is not None
    indices = access.indices or (Slice(),) * len(decl.table_indices)
    by_name = dict(zip(decl.table_indices, indices, strict=True))
    front = [
        _length(index, None, static)
        for name, index in by_name.items()
        if name not in decl.auto_dim and isinstance(index, Slice)
    ]
    grown = [by_name[name] for name in decl.auto_dim]
    rest = list(shape[len(grown) :])
    if all(isinstance(index, Single) for index in grown):
        # A[i, j]: the whole matrix, grown by i and j.
        growth = [static_value(index.value, static) for index in grown if isinstance(index, Single)]
        extents = [None if more is None else own + more for own, more in zip(shape, growth, strict=False)]
        return (*front, *extents, *rest)
    kept = [_length(index, None, static) for index in grown if isinstance(index, Slice)]
    return (*front, *kept, *rest)


def _length(index: Slice, extent: int | None, static: StaticValue) -> int | None:
    """The length of a slice, if it is the same whenever the node runs."""
    if extent is None:
        if index.end is None:
            return None
        first, last = static_value(index.start or Num(0), static), static_value(index.end, static)
        if first is not None and last is not None:
            return None if first < 0 or last < 0 else larger(last - first, 0)
        return _distance(index, static)
    first = 0 if index.start is None else static_value(index.start, static)
    last = extent if index.end is None else static_value(index.end, static)
    if first is None or last is None:
        return _distance(index, static)
    # A given nonnegative end is not clamped to the extent: the run refuses one that exceeds it.
    first, last = (larger(end + extent, 0) if end < 0 else end for end in (first, last))
    return larger(last - first, 0)


def _distance(index: Slice, static: StaticValue) -> int | None:
    """The distance between the ends of a slice. Ends below zero count from the extent, so the run checks again."""
    if index.end is None:
        return None
    distance = difference(index.end, index.start or Num(0), static)
    return distance if distance is not None and distance >= 0 else None


def static_value(expr: Expr, static: StaticValue) -> int | None:
    """The value of an expression whose names are all static."""
    values = {name: static(name) for name in names(expr)}
    settled = {name: value for name, value in values.items() if value is not None}
    if len(settled) < len(values):
        return None
    try:
        return evaluate(expr, settled.__getitem__)
    except ZeroDivisionError:
        return None


def difference(end: Expr, start: Expr, static: StaticValue) -> int | None:
    """``end - start`` if the names that are not static cancel out; None otherwise.

    >>> difference(BinaryExpr("+", Ref("step"), Num(1)), Ref("step"), lambda name: None)
    1
    """
    one, other = _affine(end, static), _affine(start, static)
    left = {name: one[0].get(name, 0) - other[0].get(name, 0) for name in one[0] | other[0]}
    return one[1] - other[1] if not any(left.values()) else None


def _affine(expr: Expr, static: StaticValue) -> tuple[dict[str, int], int]:
    """Coefficients of the names that are not static, and a constant. Other parts that are not static count as names."""
    match expr:
        case Num(value):
            return {}, value
        case Ref(name):
            settled = static(name)
            return ({name: 1}, 0) if settled is None else ({}, settled)
        case Neg(operand):
            return _scaled(_affine(operand, static), -1)
        case BinaryExpr("+" | "-", left, right):
            one, other = _affine(left, static), _affine(right, static)
            other = _scaled(other, 1 if expr.op == "+" else -1)
            return {name: one[0].get(name, 0) + other[0].get(name, 0) for name in one[0] | other[0]}, one[1] + other[1]
        case BinaryExpr("*", left, right):
            one, other = _affine(left, static), _affine(right, static)
            if one[0] and other[0]:
                return {str(form_of(expr)): 1}, 0
            return _scaled(one, other[1]) if not other[0] else _scaled(other, one[1])
        case _:
            settled = static_value(expr, static)
            return ({str(form_of(expr)): 1}, 0) if settled is None else ({}, settled)


def _scaled(form: tuple[dict[str, int], int], factor: int) -> tuple[dict[str, int], int]:
    return {name: factor * value for name, value in form[0].items()}, factor * form[1]
