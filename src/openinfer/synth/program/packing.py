"""Model tensors stored in another element order: a permutation, with zeros as padding.

Knows nothing of why a target wants an order; it only maps elements to positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from openinfer.dtypes import Array

Strides = tuple[tuple[int, int], ...]
"""Extents and strides in the tensor that make up an index; the last varies fastest."""


@dataclass(frozen=True)
class Digit:
    """A digit of a tensor index: it has ``extent`` values, and each increment adds ``weight`` to the index."""

    index: int
    """The number of the index that it is a digit of."""
    extent: int
    weight: int


@dataclass(frozen=True)
class Packing:
    """A permutation of the elements of a tensor, with padding.

    Indices select an element; each runs over one or several axes of the tensor, starting at offset ``first``. An axis
    of the stored tensor is a number made of digits of these indices, the last digit varying fastest. Where the digits
    form an index outside the tensor, a zero is stored. ``flip`` inverts the most significant bit of each byte, except
    in these zeros.
    """

    first: int
    indices: tuple[Strides, ...]
    axes: tuple[tuple[Digit, ...], ...]
    flip: bool = False
    words: str = field(default="", compare=False)
    """A description of the order."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the stored tensor."""
        return tuple(prod(digit.extent for digit in axis) for axis in self.axes)

    def packed(self, tensor: Array) -> Array:
        """The elements of a tensor in stored order.

        >>> columns = (Digit(1, 2, 2),), (Digit(0, 2, 1),), (Digit(1, 2, 1),)
        >>> Packing(0, (((2, 1),), ((3, 2),)), columns).packed(np.arange(6)).tolist()
        [[[0, 2], [1, 3]], [[4, 0], [5, 0]]]
        """
        digits = [digit for axis in self.axes for digit in axis]
        places, is_element = np.array(self.first, np.int64), np.ones((), np.bool_)
        for number, strides in enumerate(self.indices):
            index, offsets = _index(digits, number), _offsets(strides)
            inside = index < len(offsets)
            places = places + offsets[np.where(inside, index, 0)]
            is_element = is_element & inside
        values = np.asarray(tensor).reshape(-1)[places]
        if self.flip:
            values = (values.view(np.uint8) ^ np.uint8(128)).view(values.dtype)
        if not is_element.all():
            values = np.where(is_element, values, np.zeros((), values.dtype))
        return np.ascontiguousarray(values.reshape(self.shape))


def _index(digits: Sequence[Digit], number: int) -> Array:
    """The values of an index, over all digits."""
    total = np.zeros([1] * len(digits), np.int64)
    for axis, digit in enumerate(digits):
        if digit.index == number:
            along = [-1 if other == axis else 1 for other in range(len(digits))]
            total = total + (np.arange(digit.extent) * digit.weight).reshape(along)
    return total


def _offsets(strides: Strides) -> Array:
    """The offset in the tensor of each value of an index."""
    offsets = np.zeros(1, np.int64)
    for extent, stride in strides:
        offsets = (offsets[:, None] + np.arange(extent)[None, :] * stride).reshape(-1)
    return offsets
