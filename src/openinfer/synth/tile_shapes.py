"""The sizes of tiles: they follow from the target by formula.

As many sums as fit in registers, so that each number that is loaded takes part in as many products as possible.
"""

from openinfer.loops.dim import is_symbolic
from openinfer.synth.target import CpuTarget

_LATENCY = 4
"""Sums that must be under way at least for the multipliers to be busy."""


def row_sizes(count: int, rows: int) -> tuple[int, ...]:
    """The heights of the tiles that cover so many rows, the usual one first; of unknown many, powers of two too."""
    if is_symbolic(count):
        return (rows, *(size for size in (8, 4, 2, 1) if size < rows))
    if count <= rows or count % rows == 0:
        return (rows,)
    return (rows, count % rows)


def tile_shape(
    rows: int, columns: int, lanes: int, target: CpuTarget, *, pairs: bool = False, spare: int | None = None
) -> tuple[int, int]:
    """The rows and vectors of a tile: the shape that takes the least time over the whole result.

    ``spare`` are the registers for neither sums nor columns; None means those for a number of a row and its product.
    """
    registers = target.vector_registers - ((1 if target.fma else 2) if spare is None else spare)
    best: tuple[float, int, int] | None = None
    for vectors in (2, 4, 6, 8) if pairs else range(1, 9):
        for height in range(1, 17):
            is_wide = vectors > (2 if pairs else 1) and (vectors - 1) * lanes >= columns
            if height * vectors + vectors > registers or is_wide:
                continue
            if height > max(rows, 1) and height > 1:
                continue
            cost = tile_time(rows, columns, height, vectors, lanes)
            if best is None or cost < best[0] - 1e-9:
                best = (cost, height, vectors)
    assert best is not None
    return best[1], best[2]


def tile_time(rows: int, columns: int, height: int, vectors: int, lanes: int) -> float:
    """Cycles for each step of the sums: multiplications, loads that do not hide behind them, and the loop."""
    total = 0.0
    wide = -(-int(columns) // lanes)
    for tall, tall_count in ((height, int(rows) // height), (int(rows) % height, 1)):
        for broad, broad_count in ((vectors, wide // vectors), (wide % vectors, 1)):
            if tall and broad:
                each = max(tall * broad, _LATENCY, broad + tall / 2) + 0.1 * tall + 0.3 * broad + 0.5
                total += each * tall_count * broad_count
    # Tiles of other sizes at the edges are code of their own.
    return total * (1 + 0.02 * bool(rows % height) + 0.02 * bool(wide % vectors))
