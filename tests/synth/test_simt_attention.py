"""Attention of few queries in parts of the keys: what it computes, whatever the extents and the values are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.everything import some
from tests.synth.test_simt_schedule import BF16, F32, forms

from openinfer.dtypes import Array, DType
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.loops.expand import plain
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Kernel
from openinfer.loops.verify import verify
from openinfer.ops import OPS, Call, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.simt.attention import attention as attention_form
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import group_of
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.schedule import scheduled

SMALL, LARGE = SimtMachine(group=16, subgroup=4, units=6), SimtMachine(group=32, subgroup=8, units=2)
Shape = tuple[int, ...]


def attention(dtype: DType, query: Shape, key: Shape, value: Shape, **params: Any) -> Kernel:
    record = OPS["sdpa"]
    types = [TensorType(dtype, shape) for shape in (query, key, value)]
    call = infer(record, Call((*types, None), complete(record, params)))
    return kernel_of(record, call, (dtype, dtype, dtype, None))


def near(kernel: Kernel, arrays: list[Array], machine: SimtMachine, sizes: dict[str, int] | None = None) -> list[str]:
    """The forms of the launches, which compute what the kernel does."""
    found = scheduled(kernel, machine)
    assert [verify(launch.kernel) for launch in found.launches] == [[] for _ in found.launches]
    (one,), (other,) = launched(found, arrays, sizes), interpret(plain(kernel), arrays, sizes)
    np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=0, atol=1e-5)
    return forms(found)


def normal(dtype: DType, *shapes: Shape) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=shape).astype(dtype.array) for shape in shapes]


NARROW = SimtMachine(group=8, subgroup=2, units=6, shared_bytes=1024)
"""Fewer threads in a subgroup than a value has accesses, and less memory than the largest group would take."""
SHAPES: dict[str, tuple[tuple[Shape, Shape, Shape], dict[str, Any]]] = {
    "one part": (((2, 1, 8), (2, 5, 8), (2, 5, 8)), {}),
    "three parts": (((4, 1, 4), (2, 70, 4), (2, 70, 8)), {}),
    "several blocks": (((1, 1, 4), (1, 450, 4), (1, 450, 4)), {}),
    "causal": (((1, 3, 8), (1, 9, 8), (1, 9, 8)), {"causal": True}),
    "window": (((1, 2, 8), (1, 66, 8), (1, 66, 8)), {"window": 4}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_few_queries_are_right_at_odd_extents(name: str) -> None:
    shapes, params = SHAPES[name]
    assert near(attention(F32, *shapes, **params), normal(F32, *shapes), SMALL) == ["attention", "threads"]


def test_small_floats_are_loaded_in_wide_accesses() -> None:
    shapes = (2, 1, 16), (1, 33, 16), (1, 33, 8)
    assert near(attention(BF16, *shapes), normal(BF16, *shapes), LARGE) == ["attention", "threads"]


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_thread_has_several_accesses_of_a_value_where_subgroups_are_small(dtype: DType) -> None:
    shapes = (4, 1, 16), (2, 21, 16), (2, 21, 16)
    machine = replace(NARROW, largest_group=16)
    assert near(attention(dtype, *shapes), normal(dtype, *shapes), machine) == ["attention", "threads"]


def test_a_group_is_as_large_as_its_memory_allows() -> None:
    kernel = attention(F32, (2, 1, 16), (1, 9, 16), (1, 9, 16))
    sizes = [
        scheduled(kernel, replace(NARROW, largest_group=64, shared_bytes=memory)).launches[0].threads
        for memory in (1 << 20, 1024)
    ]
    assert sizes[0] > sizes[1] > 0
    assert attention_form(kernel, replace(NARROW, shared_bytes=256)) is None


def test_one_group_is_as_large_as_its_form_needs() -> None:
    """With one head and one part of its keys, too: twice as many threads as groups have where nothing says it."""
    shapes = (2, 1, 4), (1, 5, 4), (1, 5, 4)
    machine = replace(SMALL, largest_group=32)
    first, _ = scheduled(attention(F32, *shapes), machine).launches
    assert (first.threads, group_of(first.kernel, SMALL.group)) == (32, 32)
    near(attention(F32, *shapes), normal(F32, *shapes), machine)


@pytest.mark.parametrize(("units", "groups", "parts"), some([(8, 8, 4), (16, 16, 4), (36, 32, 4)], 2))
def test_queries_that_share_keys_are_in_several_groups_if_there_are_units(units: int, groups: int, parts: int) -> None:
    """Then there are fewer parts, all of which the next launch reads in each of its groups."""
    shapes, machine = ((8, 1, 8), (2, 200, 8), (2, 200, 8)), replace(SMALL, units=units)
    first, _ = scheduled(attention(F32, *shapes), machine).launches
    found = first.threads // group_of(first.kernel, machine.group), first.form
    assert found == (groups, f"attention: {parts} parts of keys")
    near(attention(F32, *shapes), normal(F32, *shapes), machine)


def test_many_queries_have_another_form() -> None:
    shapes = (4, 3, 8), (1, 9, 8), (1, 9, 8)
    assert "attention" not in near(attention(F32, *shapes), normal(F32, *shapes), SMALL)


def hidden(q: Array, k: Array, v: Array) -> None:
    q[:], k[0, 3, 0], v[0, 3] = 1, -np.inf, np.inf


def all_hidden(q: Array, k: Array, _v: Array) -> None:
    q[:], k[:, :, 0] = 1, -np.inf


def infinite(_q: Array, _k: Array, v: Array) -> None:
    v[0, 3] = np.inf


def nan(_q: Array, k: Array, _v: Array) -> None:
    k[0, 3] = np.nan


@pytest.mark.parametrize("change", [hidden, all_hidden, infinite, nan])
def test_values_that_are_not_finite_count_where_their_keys_are_seen(
    change: Callable[[Array, Array, Array], None],
) -> None:
    shapes = (2, 1, 4), (2, 5, 4), (2, 5, 4)
    arrays = normal(F32, *shapes)
    change(*arrays)
    with np.errstate(invalid="ignore"):
        near(attention(F32, *shapes), arrays, SMALL)


def test_means_of_large_values_are_finite() -> None:
    shapes = (1, 1, 4), (1, 80, 4), (1, 80, 4)
    arrays = normal(F32, *shapes)
    arrays[2][:] = 3e38
    (found,) = launched(scheduled(attention(F32, *shapes), SMALL), arrays)
    np.testing.assert_allclose(found, np.float32(3e38), rtol=1e-5)


@pytest.mark.parametrize("length", [1, 40])
def test_a_dynamic_number_of_keys_is_divided_into_as_many_parts(length: int) -> None:
    most = Dim(96, Ref("T"))
    kernel = attention(F32, (2, 1, 4), (1, most, 4), (1, most, 4))
    arrays = normal(F32, (2, 1, 4), (1, length, 4), (1, length, 4))
    assert near(kernel, arrays, SMALL, {"T": length}) == ["attention", "threads"]
