"""Tile sizes, computed from the target by formula.

A tile has as many accumulators as fit in registers, so that each loaded value takes part in as many products as
possible.
"""

from collections.abc import Callable

from openinfer.loops.dim import is_symbolic
from openinfer.synth.targets.cpu.machine import CpuMachine

_LATENCY = 4
"""The least number of accumulators in flight that keeps the multipliers busy."""


_HALVED = 8
"""Vectors with at least this many lanes also come in half width."""


def row_sizes(count: int, rows: int) -> tuple[int, ...]:
    """The tile heights that cover ``count`` rows, the usual one first; for a symbolic count, also powers of two."""
    if is_symbolic(count):
        return (rows, *(size for size in (8, 4, 2, 1) if size < rows))
    if count <= rows or count % rows == 0:
        return (rows,)
    return (rows, count % rows)


StepCycles = Callable[[int, int], float]
"""Cycles for one step of the accumulators of a tile, by its rows and vectors."""


def usual_step(rows: int, vectors: int) -> float:
    """Multiplications, loads that they do not hide, and the loop."""
    return max(rows * vectors, _LATENCY, vectors + rows / 2) + 0.1 * rows + 0.3 * vectors + 0.5


def tile_shapes(
    rows: int,
    columns: int,
    lanes: int,
    target: CpuMachine,
    *,
    pairs: bool = False,
    spare: int | None = None,
    step: StepCycles = usual_step,
) -> list[tuple[int, int]]:
    """The rows and vectors of all tiles that fit, by increasing estimated time over the whole result.

    ``spare`` are the registers for neither accumulators nor columns; None means those for a row element and its
    product.
    """
    registers = target.vector_registers - ((1 if target.fma else 2) if spare is None else spare)
    found = [
        (height, vectors)
        for vectors in ((2, 4, 6, 8) if pairs else range(1, 9))
        for height in range(1, 17)
        if height * vectors + vectors <= registers
        and (vectors <= (2 if pairs else 1) or (vectors - 1) * lanes < columns)
        and height <= max(rows, 1)
    ]
    return sorted(found, key=lambda shape: round(tile_time(rows, columns, shape, lanes, step), 9))


def tile_time(rows: int, columns: int, shape: tuple[int, int], lanes: int, step: StepCycles = usual_step) -> float:
    """Cycles for one step of all accumulators, in tiles of a shape."""
    height, vectors = shape
    total = 0.0
    wide = -(-int(columns) // lanes)
    # The last vector may be half as wide if its panel differs in size from the others.
    is_own = wide % vectors or wide == vectors
    half = 0.45 if lanes >= _HALVED and is_own and 0 < columns % lanes <= lanes // 2 else 0.0
    for tall, tall_count in ((height, int(rows) // height), (int(rows) % height, 1)):
        for broad, broad_count in ((vectors, wide // vectors), (wide % vectors, 1)):
            if tall and broad:
                total += step(tall, broad) * tall_count * broad_count
        if tall:
            total -= half * tall * tall_count
    # Edge tiles of other sizes need code of their own.
    return total * (1 + 0.02 * bool(rows % height) + 0.02 * bool(wide % vectors))
