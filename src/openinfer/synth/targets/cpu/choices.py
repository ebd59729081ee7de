"""What a tile is chosen for (a product, by its shape) and what is chosen: the tile that measured best."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Contraction
from openinfer.synth.targets.cpu.product import Product

Way = Literal["lies", "copied", "panels"]
"""How a factor is read: in place, as a copy, or from stored panels."""
_Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,15}$")]
_Extent = Annotated[int, Field(ge=1, lt=1 << 63)]


class Facts(BaseModel):
    """A part of a record. Validation is strict, since its contents become code."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ProductShape(Facts):
    """What decides which tile is best for a product: its extents, its dtypes, and how its factors are read.

    The epilogue is the same for every tile, so it is not part of the key.
    """

    accumulator: _Name
    stored: _Name
    """The dtype of the columns in memory."""
    outside: _Extent
    rows: _Extent
    columns: _Extent
    inner: _Extent
    left: Literal["lies", "copied", "windows"]
    """``windows``: rows are positions of a convolution whose columns are channels."""
    right: Way


class Choice(Facts):
    """A measured tile: rows and vectors of accumulators, and its speedup over the rule's tile.

    ``copies`` says whether to copy columns that could be read in place, ``divided`` what to partition if the kernel is
    divided; None leaves it to the rules.
    """

    rows: Annotated[int, Field(ge=1, le=64)]
    vectors: Annotated[int, Field(ge=1, le=64)]
    copies: bool | None = None
    divided: Literal["rows", "columns"] | None = None
    gain: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


ChooseTile = Callable[[ProductShape], Choice | None]


def by_rule(_shape: ProductShape) -> Choice | None:
    """No measurement: the rules decide."""
    return None


def shape_of(one: Contraction, product: Product, *, has_panels: bool) -> ProductShape | None:
    """The shape of a contraction as a product; None if it is only known at run time."""
    outside, rows, columns, inner = product.outside, product.rows, product.columns, product.inner
    if any(is_symbolic(extent) for axis in (outside, rows, columns, inner) for extent in axis.extents):
        return None
    return ProductShape(
        accumulator=one.accumulator.name,
        stored=product.right.buffer.dtype.name,
        outside=int(outside.extent),
        rows=int(rows.extent),
        columns=int(columns.extent),
        inner=int(inner.extent),
        left="copied" if product.left.place is None else "lies",
        right="panels" if has_panels else "copied" if product.right.place is None else "lies",
    )
