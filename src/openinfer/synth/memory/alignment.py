"""Memory alignment, and rounding up to it. Each target declares its alignment; most use this one."""

ALIGNMENT = 64
"""In bytes: a cache line, and the widest vector. Targets that share it have the same state layout."""


def aligned(nbytes: int, alignment: int) -> int:
    """The next multiple of the alignment.

    >>> aligned(1, 64), aligned(64, 64), aligned(0, 64)
    (64, 64, 0)
    """
    return -(-nbytes // alignment) * alignment
