"""Products of few vectors with integers of 4 and 8 bits: a stream of words, converted without instructions for that."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from tests.everything import some
from tests.synth.test_simt_schedule import BF16, F32, accesses, checked, forms

from openinfer.dtypes import DTYPES, Array, DType
from openinfer.loops.build import cast, index, load
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import (
    ACCUMULATOR,
    Bind,
    Buffer,
    Cast,
    Contraction,
    For,
    GroupBarrier,
    Kernel,
    Let,
    Load,
    Math,
    Scalar,
    ScalarVar,
    Space,
    Statement,
    Store,
    WideLoad,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import changed
from openinfer.synth.targets.simt import vectors
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.packed import MAGIC, PackedNumbers
from openinfer.synth.targets.simt.schedule import scheduled
from openinfer.synth.targets.simt.wide import FreshNames

FEW = SimtMachine(group=16, subgroup=4, units=3)
INTEGERS = [DTYPES[name] for name in ("i4", "u4", "i8", "u8")]
ACC = ScalarVar(ACCUMULATOR, F32)
Scheme = Literal["groups", "two indices", "rows", "zeros", "offsets", "none"]
SCHEMES: tuple[Scheme, ...] = ("groups", "two indices", "rows", "zeros", "offsets", "none")


def product(
    dtype: DType, columns: int, length: int, scheme: Scheme = "groups", rows: int = 1, group: int = 32
) -> Kernel:
    """Rows of numbers times rows of integers, which have scales."""
    x, w, y = Buffer("x", F32, (rows, length)), Buffer("w", dtype, (columns, length)), Buffer("y", F32, (rows, columns))
    i, j, k, g = (ScalarVar(name) for name in "ijkg")
    shape = (columns,) if scheme == "rows" else (columns, length // group)
    scale, other = Buffer("scale", BF16, shape), Buffer("other", BF16, shape)
    bound, reduced, at, where = (k,), (length,), k, (j, k // group)
    if scheme == "two indices":
        bound, reduced, at, where = (g, k), (length // group, group), g * index(group) + k, (j, g)  # type: ignore[assignment]
    value = cast(load(w, j, at), F32)
    used = [x, w]
    if scheme == "zeros":
        value = (value - load(other, *where)) * load(scale, *where)
    elif scheme == "rows":
        value = load(scale, j) * value
    elif scheme != "none":
        value = value * load(scale, *where)
    if scheme == "offsets":
        value = value + load(other, *where)
    used += [scale] * (scheme != "none") + [other] * (scheme in ("zeros", "offsets"))
    body = Contraction(
        y, x, w, (i, j), (rows, columns), bound, reduced, (i, j), (i, at), (j, at), F32, ACC, b_value=value
    )
    return Kernel("k", tuple(used), (y,), (body,))


def operands(kernel: Kernel, seed: int = 0) -> list[Array]:
    """Small numbers, and every code of integers: sums are exact."""
    rng = np.random.default_rng(seed)
    found: list[Array] = []
    for one in kernel.inputs:
        low, high = (one.dtype.minimum, one.dtype.maximum) if one.name == "w" else (-3, 3)
        found.append(rng.integers(int(low), int(high) + 1, one.shape).astype(one.dtype.array))
    return found


@pytest.mark.parametrize("dtype", some(INTEGERS, 3), ids=lambda one: one.name)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_products_with_integers_are_right_however_they_are_scaled(dtype: DType, scheme: Scheme) -> None:
    kernel = product(dtype, 5, 128, scheme)
    found = checked(kernel, operands(kernel), replace(FEW, fuses=dtype.kind == "int"))
    assert forms(found) == ["vectors"]


@pytest.mark.parametrize(
    ("rows", "columns", "length", "group"), [(1, 7, 160, 32), (3, 13, 96, 16), (8, 5, 96, 32), (2, 26, 64, 64)]
)
@pytest.mark.parametrize("dtype", INTEGERS[::3], ids=lambda one: one.name)
@pytest.mark.usefixtures("_few_groups")
def test_products_with_integers_are_right_at_odd_extents(
    dtype: DType, rows: int, columns: int, length: int, group: int
) -> None:
    kernel = product(dtype, columns, length, rows=rows, group=group)
    assert forms(checked(kernel, operands(kernel), FEW)) == ["vectors"]


@pytest.fixture
def _few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three groups of 16 threads at most, which compute 12 rows at once."""
    monkeypatch.setattr(vectors, "_BUSY", FEW.group)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda one: one.name)
@pytest.mark.parametrize("fuses", [False, True])
def test_every_integer_is_converted_exactly_wherever_it_is_in_its_word(dtype: DType, *, fuses: bool) -> None:
    codes, per = 1 << dtype.bits, 32 // dtype.bits
    w, y, i = Buffer("w", dtype, (codes, per)), Buffer("y", F32, (codes, per)), ScalarVar("i")
    loaded = tuple(ScalarVar(f"w{place}", dtype.compute) for place in range(per))
    stores = (Store(y, (i, index(place)), cast(var, F32)) for place, var in enumerate(loaded))
    packed = PackedNumbers([w], MAGIC, FreshNames({"w", "y", "i"}), fuses)
    body = packed.converted((WideLoad(loaded, w, (i, index(0))), *stores))
    assert not [part for one in body for value in scalars(one) for part in visit(value) if isinstance(part, Cast)]
    numbers = np.repeat(np.arange(codes) + int(dtype.minimum), per).reshape(codes, per)
    (found,) = interpret(Kernel("k", (w,), (y,), (For(i, index(codes), body),)), [numbers.astype(dtype.array)])
    np.testing.assert_array_equal(found, numbers)


def test_scales_are_loaded_once_for_the_terms_of_an_access_and_multiply_their_sum() -> None:
    found = scheduled(product(DTYPES["u4"], 24, 128), FEW)
    ((place, count),) = [(place, count) for (name, place), count in accesses(found).items() if name == "w"]
    assert place == 4, "16 bytes each"
    loads = [load for load in loads_of(found) if load.buffer.name == "scale"]
    assert len(loads) == count, "a scale for each access"


def test_no_integer_is_converted_by_the_instruction_for_that() -> None:
    for dtype in INTEGERS:
        found = scheduled(product(dtype, 14, 128), FEW)
        parts = [part for one in statements(found) for value in scalars(one) for part in visit(value)]
        assert not [part for part in parts if isinstance(part, Cast) and part.dtype is F32]


@pytest.mark.parametrize(
    ("dtype", "columns", "rows", "turns"),
    [("u4", 12, 1, 1), ("u4", 24, 2, 1), ("i8", 48, 2, 2), ("u4", 46, 2, 2), ("u4", 45, 1, 2)],
)
@pytest.mark.usefixtures("_few_groups")
def test_adjacent_rows_share_what_is_read_of_the_vectors(dtype: str, columns: int, rows: int, turns: int) -> None:
    """As many rows as there are for all groups; code for another turn only where there is one."""
    found = scheduled(product(DTYPES[dtype], columns, 128), FEW)
    read = [one for one in loads_of(found) if one.buffer.space is Space.GROUP and one.dtype is F32]
    assert len(read) == 128 // FEW.subgroup * rows * turns
    assert len(set(read)) <= len(read) // rows


@pytest.mark.usefixtures("_few_groups")
def test_adjacent_rows_are_right() -> None:
    for dtype, columns in (("i4", 48), ("u8", 26)):
        kernel = product(DTYPES[dtype], columns, 128)
        checked(kernel, operands(kernel), FEW)


def test_loads_of_integers_and_scales_begin_before_threads_wait_for_each_other() -> None:
    kernel = product(DTYPES["u4"], 12, 128)
    found = scheduled(kernel, FEW)
    loops = (one for one in walk(found.launches[0].kernel.body) if isinstance(one, For))
    body = next(one.body for one in loops if one.bind is Bind.THREAD)
    place = next(place for place, one in enumerate(body) if isinstance(one, GroupBarrier))
    read = {one.buffer.name for one in walk(body[place:]) if isinstance(one, WideLoad)}
    read |= {part.buffer.name for part in loads_in(walk(body[place:])) if part.buffer.space is not Space.GROUP}
    assert not read


def test_an_offset_is_added_in_one_instruction_only_where_the_product_is_exact() -> None:
    for dtype, is_exact in ((BF16, True), (F32, False)):
        kernel = product(DTYPES["u4"], 14, 128, "offsets")
        (body,) = kernel.body
        assert isinstance(body, Contraction)
        assert body.b_value is not None
        inputs = tuple(replace(one, dtype=dtype) if one.name == "scale" else one for one in kernel.inputs)
        own = {one.name: one for one in inputs}

        def stored(part: Scalar, own: dict[str, Buffer] = own) -> Scalar | None:
            return Load(own["scale"], part.index) if isinstance(part, Load) and part.buffer.name == "scale" else None

        value = changed(body.b_value, stored)
        made = Kernel("k", inputs, kernel.outputs, (replace(body, b_value=value),))
        found = scheduled(made, replace(FEW, fuses=True))
        fused = [
            part
            for one in statements(found)
            if isinstance(one, Let)
            for part in visit(one.value)
            if isinstance(part, Math) and len(part.args) == 3 and isinstance(part.args[2], ScalarVar)
        ]
        assert bool(fused) is is_exact
        rng = np.random.default_rng(1)
        arrays = [rng.normal(size=one.shape).astype(one.dtype.array) for one in inputs]
        arrays[1] = operands(made)[1]
        (ours,), (theirs,) = launched(found, arrays), interpret(made, arrays)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-3)


def statements(found: Launches) -> Iterator[Statement]:
    return (one for launch in found.launches for one in walk(launch.kernel.body))


def loads_in(body: Iterator[Statement]) -> Iterator[Load]:
    parts = (part for one in body for value in scalars(one) for part in visit(value))
    return (part for part in parts if isinstance(part, Load))


def loads_of(found: Launches) -> list[Load]:
    return list(loads_in(statements(found)))
