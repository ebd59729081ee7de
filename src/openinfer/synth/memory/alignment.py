"""Rounding up to an alignment, which the target decides."""


def aligned(nbytes: int, alignment: int) -> int:
    """The next multiple of the alignment.

    >>> aligned(1, 64), aligned(64, 64), aligned(0, 64)
    (64, 64, 0)
    """
    return -(-nbytes // alignment) * alignment
