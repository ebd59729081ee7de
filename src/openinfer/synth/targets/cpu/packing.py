"""Packs weights in the order in which tiles read them."""

from dataclasses import replace
from math import prod

from openinfer.synth.program.packing import Digit, Packing, Strides


def in_panels(
    first: int,
    outside: Strides,
    inner: Strides,
    columns: Strides,
    width: int,
    *,
    lanes: int = 0,
    group: int = 1,
) -> Packing:
    """``[outside indices..., panel, inner index, column in the panel]``; columns past the last one are 0.

    With ``lanes`` the elements of two vectors of that many lanes alternate, so that 4-bit elements share bytes. With
    ``group`` that many inner indices are contiguous for each column, and those past the last are 0.

    >>> import numpy as np
    >>> in_panels(0, (), ((2, 1),), ((3, 2),), 2).packed(np.arange(6)).tolist()
    [[[0, 2], [1, 3]], [[4, 0], [5, 0]]]
    """
    depth, column = len(outside), len(outside) + 1
    panels = -(-_extent(columns) // width)
    inside: tuple[Digit, ...] = (Digit(column, width, 1),)
    if lanes:
        inside = (Digit(column, width // (2 * lanes), 2 * lanes), Digit(column, lanes, 1), Digit(column, 2, lanes))
    if group > 1:
        inside = (*inside, Digit(depth, group, 1))
    axes = (
        *((Digit(axis, extent, 1),) for axis, (extent, _) in enumerate(outside)),
        (Digit(column, panels, width),),
        (Digit(depth, -(-_extent(inner) // group), group),),
        inside,
    )
    words = f"in panels of {width} columns"
    words += f", columns {lanes} apart sharing a byte" if lanes else ""
    words += f", {group} rows of a column contiguous" if group > 1 else ""
    return Packing(first, (*((one,) for one in outside), inner, columns), axes, words=words)


def crossed(packing: Packing) -> Packing:
    """Panels with groups of four, with the elements of each group in the order 0, 2, 1, 3."""
    *others, (*columns, group) = packing.axes
    axes = (*others, (*columns, Digit(group.index, 2, group.weight), Digit(group.index, 2, 2 * group.weight)))
    return replace(packing, axes=axes, words=f"{packing.words} in the order 0, 2, 1, 3")


def _extent(strides: Strides) -> int:
    return prod(extent for extent, _ in strides)
