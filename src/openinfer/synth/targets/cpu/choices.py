"""What a tile is chosen for, a product by its shape, and what can be chosen: a tile that was measured to be best."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Contraction
from openinfer.synth.targets.cpu.product import Product

Way = Literal["lies", "copied", "panels"]
"""How a factor comes: it is read where it lies, it is copied, or it was stored in panels."""
_Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,15}$")]
_Extent = Annotated[int, Field(ge=1, lt=1 << 63)]


class Facts(BaseModel):
    """A part of a record; strict, since what it says becomes code."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ProductShape(Facts):
    """What decides which tile is best for a product: its extents, its dtypes, and how its factors come.

    The epilogue is the same for every tile, so it is no part of the key.
    """

    accumulator: _Name
    stored: _Name
    """The dtype of the columns, as they are stored."""
    outside: _Extent
    rows: _Extent
    columns: _Extent
    inner: _Extent
    left: Literal["lies", "copied", "windows"]
    """``windows``: rows are positions of a convolution whose columns are channels."""
    right: Way


class Choice(Facts):
    """A tile that was measured: rows and vectors of sums, and how many times as fast as the rule's it was.

    ``copies`` says whether columns are copied that could be read where they lie, ``divided`` what parts have a share of
    if the kernel is divided; None leaves it to the rules.
    """

    rows: Annotated[int, Field(ge=1, le=64)]
    vectors: Annotated[int, Field(ge=1, le=64)]
    copies: bool | None = None
    divided: Literal["rows", "columns"] | None = None
    gain: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


ChooseTile = Callable[[ProductShape], Choice | None]


def by_rule(_shape: ProductShape) -> Choice | None:
    """Nothing was measured: rules decide."""
    return None


def shape_of(one: Contraction, product: Product, *, has_panels: bool) -> ProductShape | None:
    """The shape of a contraction as a product; None where it is known only while running."""
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
