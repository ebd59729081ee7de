"""The cases of the suite: those that an op generates for a dtype, and the same at sizes around vectors and tiles."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from unittest.mock import patch
from zlib import crc32

import numpy as np
from tests.synth.in_c import PARTS, Prepared, call_of, cases_of, in_parts, is_in_parts, parts_scratch

from openinfer.dtypes import DType
from openinfer.loops.expand import plain
from openinfer.loops.ir import Contraction, Kernel, walk
from openinfer.loops.verify import verify
from openinfer.ops import OPS, Array, Call, Case, OpError, OpRecord
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.program.packing import Packing
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.cpu import schedule, windows
from openinfer.synth.targets.cpu.divide import divided
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cpu.schedule import scheduled
from openinfer.synth.targets.cpu.tile_shapes import tile_shapes

_LARGEST = 1 << 14
"""Elements of an array of a stretched case."""


@contextmanager
def small_ones_too(gain: float = np.inf) -> Iterator[None]:
    """Sums that would be plain loops are in tiles, however small; channels are columns if they can be, or never (0)."""
    with (
        patch.object(schedule, "_LEAST", 0),
        patch.object(windows, "_LEAST_GAIN", gain),
        patch.object(windows, "_LARGE", 0),
    ):
        yield


def sizes_around(target: CpuMachine) -> tuple[int, ...]:
    """Extents at which vectors and tiles end, one less and one more; and primes between them."""
    lanes = target.lanes(32)
    rows, vectors = tile_shapes(1024, 1024, lanes, target)[0]
    edges = {lanes, 4 * lanes, rows, vectors * lanes}
    return tuple(sorted({13, 37, *(edge + more for edge in edges for more in (-1, 0, 1))} - {0, 1}))


def stretched(record: OpRecord, cases: Sequence[Case], sizes: Sequence[int], most: int) -> Iterator[Case]:
    """Cases with one extent, wherever it occurs, replaced by another; the values are repeated.

    Where the op does not take these shapes together, the next choice is tried.
    """
    full = [one for one in cases if all(array is None or array.size for array in one.arrays)]
    if record.tolerance.kind in ("sum", "row"):
        # Where sums overflow on the way, their order decides what comes out.
        full = [one for one in full if _is_tame(one)]
    start = crc32(f"{record.name} {cases[0].dtypes}".encode())
    choices = [
        (one, extent, sizes[(start + place) % len(sizes)])
        for place, (one, extent) in enumerate(product(full, (5, 3, 2, 7, 4, 9, 17, 64)))
        if any(array is not None and extent in array.shape for array in one.arrays)
    ]
    found = 0
    # From one end to the other in steps, not from the front: neighbours are alike.
    for place in np.argsort(
        [(number * 7919 + start) % max(len(choices), 1) for number in range(len(choices))]
    ).tolist():
        if found == most:
            return
        one = _replaced(*choices[place])
        if _is_good(record, one):
            found += 1
            yield one


def _replaced(one: Case, extent: int, size: int) -> Case:
    arrays = tuple(
        None if array is None else np.resize(array, tuple(size if old == extent else old for old in array.shape))
        for array in one.arrays
    )
    return replace(one, arrays=arrays)


def _is_finite(array: Array) -> bool:
    return array.dtype.kind in "biu" or bool(np.isfinite(array.astype(np.float64)).all())


def _is_tame(one: Case) -> bool:
    pairs = zip(one.arrays, one.dtypes, strict=True)
    floats = [
        array.astype(np.float64) for array, dtype in pairs if dtype and array is not None and dtype.kind == "float"
    ]
    return all(bool((np.abs(array) < 1000).all()) for array in floats)


def _is_good(record: OpRecord, one: Case) -> bool:
    try:
        call = call_of(record, one)
    except OpError:
        return False
    sizes = [*(kind.size for kind in call.outputs), *(array.size for array in one.arrays if array is not None)]
    return max(sizes, default=0) <= _LARGEST


def chosen(name: str, dtype: DType, targets: Sequence[CpuMachine], most: int | None) -> list[Case]:
    """The cases of an op for one dtype on targets: so many of its own (None: all), half as many stretched ones.

    A stretched one is last, and one of its own is first.
    """
    own = list(cases_of(name, dtype))
    picked = list(cases_of(name, dtype, most))
    sizes = sorted({size for target in targets for size in sizes_around(target)})
    return [*picked, *stretched(OPS[name], own, sizes, 4 if most is None else -(-most // 2))]


def variants(
    record: OpRecord, one: Case, number: int, targets: Sequence[CpuMachine], known: Sequence[CpuMachine] = ()
) -> Iterator[Prepared]:
    """A case as the targets compute it, each way once, whichever targets have it; not as known ones compute it."""
    call = call_of(record, one)
    kernel = plain(kernel_of(record, call, one.dtypes))
    there = [(way, target.index_bits) for target in known for way in _ways(kernel, one, target)]
    start = len(there)
    for target in targets:
        for way in _ways(kernel, one, target):
            if (way, target.index_bits) not in there:
                there.append((way, target.index_bits))
    for place, (way, bits) in enumerate(there[start:]):
        yield _prepared(record, one, call, number + place, way, bits)


_Way = tuple[Kernel, Mapping[str, Packing]]


def _ways(kernel: Kernel, one: Case, target: CpuMachine) -> list[_Way]:
    """What a target makes of a kernel; and in parts, in tiles, in tiles with weights in panels, where that can be."""
    found: list[_Way] = [scheduled(kernel, target, frozenset())]
    given = [array for array in one.arrays if array is not None]
    others = list(zip(kernel.inputs, given, strict=True))[1:]
    weights = frozenset(buffer.name for buffer, _ in others)
    finite = frozenset(buffer.name for buffer, array in others if _is_finite(array))
    with small_ones_too():
        tiles, _ = scheduled(kernel, target, frozenset())
        panels = scheduled(kernel, target, weights, finite)
    parts = divided(tiles, PARTS, 0.0)
    found += [(parts, {})] * (parts is not tiles)
    if not _has_template(panels[0]):
        return found
    found.append((tiles, {}))
    with small_ones_too(gain=0.0):
        windows_as_lists = scheduled(kernel, target, weights, finite)
    for own, packings in (panels, *[windows_as_lists] * (windows_as_lists != panels)):
        shares = divided(own, PARTS, 0.0)
        found += [(own, packings), *[(shares, packings)] * (shares is not own)]
    return found


def _has_template(kernel: Kernel) -> bool:
    return any(isinstance(statement, Contraction) and statement.template for statement in walk(kernel.body))


def _prepared(record: OpRecord, one: Case, call: Call, number: int, way: _Way, bits: int) -> Prepared:
    kernel, packings = way
    assert verify(kernel) == [], f"the kernel of '{record.name}' breaks rules of the loop IR"
    code, scratch = printed(kernel, f"case{number}", index_bits=bits), kernel.scratch
    if is_in_parts(kernel):
        code, scratch = in_parts(kernel, f"case{number}", bits), parts_scratch(kernel)
    return Prepared(record, one, call, code, kernel.inputs, kernel.outputs, scratch, packings)
