"""The alignment of memory, and rounding up to it. A target says which one it has; most have this one."""

ALIGNMENT = 64
"""In bytes: a cache line, and the widest vector. Targets that share it lay out a state in the same bytes."""


def aligned(nbytes: int, alignment: int) -> int:
    """The next multiple of the alignment.

    >>> aligned(1, 64), aligned(64, 64), aligned(0, 64)
    (64, 64, 0)
    """
    return -(-nbytes // alignment) * alignment
