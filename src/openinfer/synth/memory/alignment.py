"""Rounding to the alignment of memory. How much that is, the target says."""


def aligned(nbytes: int, alignment: int) -> int:
    """The next multiple of the alignment.

    >>> aligned(1, 64), aligned(64, 64), aligned(0, 64)
    (64, 64, 0)
    """
    return -(-nbytes // alignment) * alignment
