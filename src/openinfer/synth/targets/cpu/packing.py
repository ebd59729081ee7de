"""Weights in the order in which tiles read them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
Steps = tuple[tuple[int, int], ...]
"""Extents of indices and how far apart neighbours along each lie in the tensor."""


@dataclass(frozen=True)
class Packing:
    """``[outside indices..., panel, inner index, column in the panel]``; columns behind the last one are 0.

    With ``lanes`` the elements of two vectors of so many take turns: those of 4 bits lie in the same bytes then. With
    ``group`` so many inner indices lie next to each other for each column, and those behind the last are 0. With
    ``flip`` the first bit of each byte is the other one, except where there is no element.
    """

    first: int
    outside: Steps
    inner: Steps
    columns: Steps
    width: int
    lanes: int = 0
    group: int = 1
    flip: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the packed tensor."""
        panels = -(-_count(self.columns) // self.width)
        depth = -(-_count(self.inner) // self.group)
        return (*(extent for extent, _ in self.outside), panels, depth, self.width * self.group)

    def packed(self, tensor: Array) -> Array:
        """The elements of a tensor in panels.

        >>> Packing(0, (), ((2, 1),), ((3, 2),), 2).packed(np.arange(6)).tolist()
        [[[0, 2], [1, 3]], [[4, 0], [5, 0]]]
        """
        lead = [extent for extent, _ in self.outside]
        places = self.first + np.zeros([1] * len(lead) + [1, 1], np.int64)
        for axis, (extent, step) in enumerate(self.outside):
            places = places + (np.arange(extent) * step).reshape([-1, *[1] * (len(lead) + 1 - axis)])
        places = places + _places(self.inner)[:, None] + _places(self.columns)[None, :]
        values = np.asarray(tensor).reshape(-1)[places]
        if self.flip:
            values = (values.view(np.uint8) ^ np.uint8(128)).view(values.dtype)
        spare = -values.shape[-1] % self.width
        values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, spare)])
        split = np.swapaxes(values.reshape(*values.shape[:-1], -1, self.width), -3, -2)
        if self.lanes:
            pairs = split.reshape(*split.shape[:-1], -1, 2, self.lanes)
            split = np.swapaxes(pairs, -2, -1).reshape(split.shape)
        return np.ascontiguousarray(_grouped(split, self.group))


def _grouped(panels: Array, group: int) -> Array:
    """Rows of panels in groups of so many, whose elements in a column come one after the other."""
    *lead, depth, width = panels.shape
    whole = np.pad(panels, [(0, 0)] * len(lead) + [(0, -depth % group), (0, 0)])
    turned = np.swapaxes(whole.reshape(*lead, -1, group, width), -2, -1)
    return turned.reshape(*lead, -1, width * group)


def _count(steps: Steps) -> int:
    total = 1
    for extent, _ in steps:
        total *= extent
    return total


def _places(steps: Steps) -> Array:
    """Where the positions of indices lie, the last fastest."""
    places = np.zeros(1, np.int64)
    for extent, step in steps:
        places = (places[:, None] + np.arange(extent)[None, :] * step).reshape(-1)
    return places
