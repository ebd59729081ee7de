"""Forms of launches: which structure gets which, and that each computes what the kernel does, at odd extents."""

from collections import Counter

import numpy as np
import pytest

from openinfer.dtypes import DTYPES, Array, DType
from openinfer.ir.expr import Ref
from openinfer.loops.build import Builder, cast, load
from openinfer.loops.dim import Dim
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Buffer, Kernel, LoopKind, WideLoad, WideStore, walk
from openinfer.loops.verify import verify
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.schedule import scheduled

F32, BF16, U4, U8, I64 = (DTYPES[name] for name in ("f32", "bf16", "u4", "u8", "i64"))
MACHINE = SimtMachine(group=8, subgroup=4)
PARALLEL = LoopKind.PARALLEL


def checked(kernel: Kernel, arrays: list[Array], machine: SimtMachine = MACHINE) -> Launches:
    """The launches of a kernel, which compute what it does; sums of floats in another order, of small integers here."""
    found = scheduled(kernel, machine)
    assert [verify(launch.kernel) for launch in found.launches] == [[] for _ in found.launches]
    wanted = interpret(kernel, arrays)
    for one, other in zip(launched(found, arrays), wanted, strict=True):
        assert one.tobytes() == other.tobytes()
    return found


def forms(found: Launches) -> list[str]:
    return [launch.form.partition(":")[0] for launch in found.launches]


def accesses(found: Launches) -> Counter[tuple[str, int]]:
    """How often so many elements of a buffer are in one access."""
    counts: Counter[tuple[str, int]] = Counter()
    for one in (one for launch in found.launches for one in walk(launch.kernel.body)):
        if isinstance(one, WideLoad):
            counts[one.buffer.name, len(one.variables)] += 1
        if isinstance(one, WideStore):
            counts[one.buffer.name, len(one.values)] += 1
    return counts


def numbers(dtype: DType, *shape: int) -> Array:
    return (np.arange(np.prod(shape, dtype=int)) % 13).astype(dtype.array).reshape(shape)


# --- flat -------------------------------------------------------------------------------------------------------------


def mapped(source: DType, result: DType, extent: int, shift: int = 0) -> Kernel:
    x, y = Buffer("x", source, (extent + shift,)), Buffer("y", result, (extent,))
    builder = Builder()
    with builder.loop(extent, PARALLEL) as i:
        builder.store(y, (i,), cast(load(x, i + shift), result.compute))
    return Kernel("k", (x,), (y,), builder.body)


@pytest.mark.parametrize("extent", [1, 3, 4, 7, 8, 16, 33, 64, 67])
@pytest.mark.parametrize(("source", "result"), [(F32, F32), (F32, BF16), (U8, F32), (U4, U8), (U8, U4), (I64, I64)])
def test_flat_launches_are_right_at_every_extent(source: DType, result: DType, extent: int) -> None:
    found = checked(mapped(source, result, extent), [numbers(source, extent)])
    least = 128 // min(source.bits, result.bits)
    assert forms(found) == ["flat"] if extent >= min(least, 16) else True


def test_a_thread_has_16_bytes_of_what_is_smallest() -> None:
    assert accesses(checked(mapped(F32, F32, 64), [numbers(F32, 64)])) == {("x", 4): 1, ("y", 4): 1}
    assert accesses(checked(mapped(F32, BF16, 64), [numbers(F32, 64)])) == {("x", 8): 1, ("y", 8): 1}


def test_what_is_not_aligned_is_loaded_one_by_one() -> None:
    kernel, arrays = mapped(F32, F32, 64, shift=1), [numbers(F32, 65)]
    assert accesses(checked(kernel, arrays)) == {("y", 4): 1}
    machine = SimtMachine(group=8, subgroup=4, unaligned=frozenset({"x", "y"}))
    assert forms(checked(mapped(F32, F32, 64), [numbers(F32, 64)], machine)) == ["threads"]


def test_rows_whose_length_divides_are_flat_whatever_is_beside_them() -> None:
    """A row by a number that memory gives, and one factor for all of it: a copy of wide accesses."""
    x, ids, scale = Buffer("x", F32, (5, 8)), Buffer("ids", I64, (3,)), Buffer("scale", F32, (3,))
    y, builder = Buffer("y", F32, (3, 8)), Builder()
    with builder.loops((3, 8), PARALLEL) as (i, j):
        row = builder.let(cast(load(ids, i), builder.fresh("i").dtype))
        builder.store(y, (i, j), load(x, row, j) * load(scale, i))
    kernel = Kernel("k", (x, ids, scale), (y,), builder.body)
    found = checked(kernel, [numbers(F32, 5, 8), np.array([4, 0, 2]), numbers(F32, 3)])
    assert accesses(found) == {("x", 4): 1, ("y", 4): 1}
    assert found.launches[0].threads == 6


def test_work_in_place_is_flat() -> None:
    y, builder = Buffer("y", F32, (64,)), Builder()
    x = Buffer("x", F32, (64,))
    for source in (x, y):
        with builder.loop(64, PARALLEL) as i:
            builder.store(y, (i,), load(source, i) + 1)
    assert forms(checked(Kernel("k", (x,), (y,), builder.body), [numbers(F32, 64)])) == ["flat", "flat"]


def test_an_element_that_is_stored_and_read_again_is_not_in_a_wide_access() -> None:
    x, y, z = (Buffer(name, F32, (8,)) for name in "xyz")
    builder = Builder()
    with builder.loop(8, PARALLEL) as i:
        builder.store(y, (i,), load(x, i) + 1)
        builder.store(z, (i,), load(y, i) * 2)
    found = checked(Kernel("k", (x,), (y, z), builder.body), [numbers(F32, 8)])
    assert accesses(found) == {("x", 4): 1, ("z", 4): 1}


def test_a_dynamic_number_of_rows_is_flat() -> None:
    length = Dim(6, Ref("T"))
    x, y = Buffer("x", F32, (length, 8)), Buffer("y", F32, (length, 8))
    builder = Builder()
    with builder.loops((length, 8), PARALLEL) as (i, j):
        builder.store(y, (i, j), load(x, i, j) + 1)
    found = scheduled(Kernel("k", (x,), (y,), builder.body), MACHINE)
    assert forms(found) == ["flat"]
    values = numbers(F32, 4, 8)
    assert (launched(found, [values], {"T": 4})[0] == values + 1).all()
