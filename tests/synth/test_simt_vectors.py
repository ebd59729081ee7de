"""Products with few vectors: one launch with what makes the vectors, and with products of the same rows."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.synth.test_simt_schedule import BF16, F32, MACHINE, checked, forms, numbers

from openinfer import ModelLoader, Synthesizer, graph
from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import Builder, load, math, select
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import (
    ACCUMULATOR,
    Alloc,
    Bind,
    Buffer,
    Contraction,
    For,
    GroupBarrier,
    Kernel,
    Load,
    LoopKind,
    Math,
    Scalar,
    ScalarVar,
    SetLocal,
    Space,
    WideLoad,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements
from openinfer.loops.verify import verify
from openinfer.oinf import save_file
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SimtMachine, simt_machine
from openinfer.synth.targets.simt.schedule import scheduled

I8 = DTYPES["i8"]
FEW = SimtMachine(group=16, subgroup=4, units=3)
ACC = ScalarVar(ACCUMULATOR, F32)


def contraction(y: Buffer, x: Buffer, w: Buffer, epilogue: Scalar = ACC, names: str = "ijk") -> Contraction:
    i, j, k = (ScalarVar(name) for name in names)
    rows, length = x.shape
    return Contraction(y, x, w, (i, j), (rows, w.shape[0]), (k,), (length,), (i, j), (i, k), (j, k), F32, epilogue)


def product(dtype: DType, rows: int, columns: int, length: int) -> Kernel:
    x, w = Buffer("x", dtype, (rows, length)), Buffer("w", dtype, (columns, length))
    y = Buffer("y", F32, (rows, columns))
    return Kernel("k", (x, w), (y,), (contraction(y, x, w),))


@pytest.mark.parametrize(("rows", "columns", "length"), [(1, 7, 32), (3, 14, 40), (8, 5, 32), (1, 66, 32)])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_products_with_few_vectors_are_right_at_odd_extents(dtype: DType, rows: int, columns: int, length: int) -> None:
    arrays = [numbers(dtype, rows, length), numbers(dtype, columns, length)]
    found = checked(product(dtype, rows, columns, length), arrays, FEW)
    assert forms(found) == ["vectors"]
    assert found.launches[0].threads <= 1024 * FEW.units


def test_terms_are_rounded_once_where_the_device_does_that_in_one_instruction() -> None:
    h200, lavapipe = (simt_machine(DeviceArch.named(name)) for name in ("h200-vulkan", "lavapipe"))
    assert (h200.fuses, lavapipe.fuses) == (True, False)
    arrays = [numbers(BF16, 3, 40), numbers(BF16, 14, 40)]
    for is_fused in (True, False):
        found = checked(product(BF16, 3, 14, 40), arrays, replace(FEW, fuses=is_fused))
        inside = [one for one in walk(found.launches[0].kernel.body) if isinstance(one, SetLocal)]
        terms = [part for one in inside for part in visit(one.value) if isinstance(part, Math)]
        assert [one.function for one in terms] == ["fma"] * len(terms)
        assert bool(terms) is is_fused


def test_products_that_are_short_or_few_are_rows() -> None:
    for columns, length in ((2, 64), (9, 24)):
        arrays = [numbers(BF16, 1, length), numbers(BF16, columns, length)]
        assert "vectors" not in forms(checked(product(BF16, 1, columns, length), arrays, FEW))
    many = SimtMachine(group=16, subgroup=4, units=3, shared_bytes=256)
    arrays = [numbers(BF16, 1, 128), numbers(BF16, 9, 128)]
    assert "vectors" not in forms(checked(product(BF16, 1, 9, 128), arrays, many))
    x, w, y = Buffer("x", F32, (1, 64)), Buffer("w", I8, (9, 64)), Buffer("y", F32, (1, 9))
    integers = Kernel("k", (x, w), (y,), (contraction(y, x, w),))
    assert "vectors" not in forms(checked(integers, [numbers(F32, 1, 64), numbers(I8, 9, 64)], FEW))
    without = SimtMachine(group=16, subgroup=0, units=3)
    assert "vectors" not in forms(checked(product(BF16, 1, 9, 128), arrays, without))


def normed(rows: int, columns: int, length: int) -> Kernel:
    """Rows divided by their sums, times a matrix; and the same times another one, where that is above 1."""
    x, gate, up = Buffer("x", BF16, (rows, length)), *(Buffer(name, BF16, (columns, length)) for name in ("gate", "up"))
    y = Buffer("y", BF16, (rows, columns))
    n, g = Buffer("n", BF16, (rows, length), Space.SCRATCH), Buffer("g", BF16, (rows, columns), Space.SCRATCH)
    builder = Builder()
    with builder.loop(rows, LoopKind.PARALLEL) as i:
        total = builder.local(0, F32, "total")
        with builder.loop(length) as k:
            builder.assign(total, total + load(x, i, k))
        with builder.loop(length) as k:
            builder.store(n, (i, k), load(x, i, k) / total)
    i, j = ScalarVar("a"), ScalarVar("b")
    last = ACC * select(load(g, i, j) > 1.0, math("exp", load(g, i, j)), 1.0)
    body = (Alloc(n), Alloc(g), *builder.body, contraction(g, n, gate, names="pqr"), contraction(y, n, up, last, "abc"))
    return Kernel("k", (x, gate, up), (y,), body)


def near(kernel: Kernel, machine: SimtMachine, *shapes: tuple[int, ...]) -> Launches:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 1, shape).astype(BF16.array) for shape in shapes]
    found = scheduled(kernel, machine)
    assert [verify(launch.kernel) for launch in found.launches] == [[] for _ in found.launches]
    (one,), (other,) = launched(found, arrays), interpret(kernel, arrays)
    np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=0.02)
    return found


@pytest.mark.parametrize(("rows", "columns", "length"), [(1, 9, 32), (2, 30, 40)])
def test_what_makes_the_vectors_and_products_of_the_same_rows_are_one_launch(
    rows: int, columns: int, length: int
) -> None:
    shapes = (rows, length), (columns, length), (columns, length)
    assert forms(near(normed(rows, columns, length), FEW, *shapes)) == ["vectors"]
    assert len(near(normed(rows, columns, length), MACHINE, *shapes).launches) > 1


def test_a_product_of_the_results_of_another_one_is_a_launch_of_its_own() -> None:
    """Even if both have the same rows: each of its sums takes results that other groups compute."""
    x, y = Buffer("x", F32, (1, 32)), Buffer("y", F32, (1, 32))
    a, b = (Buffer(name, F32, (32, 32)) for name in "ab")
    between = Buffer("n", F32, (1, 32), Space.SCRATCH)
    body = (Alloc(between), contraction(between, x, a), contraction(y, between, b, names="pqr"))
    arrays = [numbers(F32, 1, 32), numbers(F32, 32, 32) % 3, numbers(F32, 32, 32) % 5]
    assert len(checked(Kernel("k", (x, a, b), (y,), body), arrays, FEW).launches) == 2


def rotated(heads: int, half: int, length: int, *, is_twice: bool = False) -> Kernel:
    """A product whose results are rotated in pairs, or, where that is asked for, each read by two iterations."""
    x, w = Buffer("x", BF16, (1, length)), Buffer("w", BF16, (heads * 2 * half, length))
    angles, y = Buffer("angles", F32, (half,)), Buffer("y", BF16, (heads, 2 * half))
    q = Buffer("q", BF16, (1, heads * 2 * half), Space.SCRATCH)
    builder = Builder()
    with builder.loop(heads, LoopKind.PARALLEL) as h, builder.loop(half) as p:
        first = h * (2 * half) + p
        a, b = load(q, 0, first), load(q, 0, h * (2 * half) if is_twice else first + half)
        builder.store(y, (h, p), a * load(angles, p) - b)
        builder.store(y, (h, p + half), a + b * load(angles, p))
    return Kernel("k", (x, w, angles), (y,), (Alloc(q), contraction(q, x, w), *builder.body))


def around_the_first_barrier(found: Launches) -> tuple[list[str], list[str]]:
    """Buffers that a launch reads before its threads wait for each other, and after that."""
    loops = (one for one in walk(found.launches[0].kernel.body) if isinstance(one, For))
    body = next(one.body for one in loops if one.bind is Bind.THREAD)
    place = next(place for place, one in enumerate(body) if isinstance(one, GroupBarrier))
    return list(read(body[:place])), list(read(body[place:]))


def read(body: Statements) -> Iterator[str]:
    for one in walk(body):
        if isinstance(one, WideLoad):
            yield one.buffer.name
        parts = (part for value in scalars(one) for part in visit(value) if isinstance(part, Load))
        yield from (part.buffer.name for part in parts if part.buffer.space is not Space.GROUP)


def test_all_accesses_begin_before_threads_wait_for_each_other() -> None:
    ahead, after = around_the_first_barrier(near(normed(1, 12, 128), FEW, (1, 128), (12, 128), (12, 128)))
    assert set(ahead) == {"x", "gate", "up"}
    assert ahead.count("x") == 2, "each of its accesses once, though a norm goes along its row twice"
    assert not after
    x, w, r, y = (
        Buffer(name, BF16, shape) for name, shape in zip("xwry", ((1, 128), (12, 128), (1, 12), (1, 12)), strict=True)
    )
    residual = contraction(y, x, w, ACC + load(r, ScalarVar("i"), ScalarVar("j")))
    ahead, after = around_the_first_barrier(
        near(Kernel("k", (x, w, r), (y,), (residual,)), FEW, *(x.shape, w.shape, r.shape))
    )
    assert set(ahead) == {"x", "w", "r"}
    assert not after


@pytest.mark.parametrize(("heads", "half"), [(1, 5), (3, 4), (9, 8)])
def test_pairs_of_results_are_rotated_where_they_are_made(heads: int, half: int) -> None:
    shapes = (1, 40), (heads * 2 * half, 40), (half,)
    arrays = [np.random.default_rng(3).uniform(0.5, 1, shape).astype(BF16.array) for shape in shapes[:2]]
    arrays.append(np.linspace(0, 1, half, dtype=np.float32))
    kernel = rotated(heads, half, 40)
    found = scheduled(kernel, FEW)
    assert forms(found) == ["vectors"]
    assert [verify(launch.kernel) for launch in found.launches] == [[]]
    (one,), (other,) = launched(found, arrays), interpret(kernel, arrays)
    np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=0.02, atol=0.05)


def test_results_that_several_iterations_read_are_not_computed_again() -> None:
    assert len(scheduled(rotated(3, 4, 40, is_twice=True), FEW).launches) > 1


TEXT = """
dynamic { x: bf16[1, 256]; }
volatile { y: bf16[1, 256]; q: bf16[1, 256]; k: bf16[1, 256]; }
constant { g: bf16[256]; a: bf16[256, 256]; b: bf16[256, 256]; c: bf16[256, 256]; }
block entry {
    assign n: bf16[1, 256]; assign u: bf16[1, 256]; assign v: bf16[1, 256];
    op rms_norm(x, g) >> n;
    op linear(n, a) >> q;
    op linear(n, b) >> k;
    op rms_norm(k, g) >> v;
    op linear(v, a) >> u;
    op silu(u) >> u;
    op linear(v, c) >> v;
    op mul(u, v) >> v;
    op add(v, x) >> y;
    return y, q, k;
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    path, rng = tmp_path_factory.mktemp("vectors") / "model.oinf", np.random.default_rng(1)
    tensors = {name: rng.normal(0, 0.06, (256, 256)).astype(BF16.array) for name in "abc"}
    save_file(path, {"g": np.ones(256, BF16.array), **tensors})
    return ModelLoader.open(path)


def kernels(device: str, model: ModelLoader) -> list[str]:
    plan = Synthesizer(device).synthesize(model, graph(TEXT))
    return [step.kernel.name for step in plan.project.program.steps() if isinstance(step, KernelStep)]


def test_a_norm_is_part_of_each_product_that_reads_it(model: ModelLoader) -> None:
    assert kernels("h200-vulkan", model) == [
        "rms_norm_linear",
        "rms_norm_linear",
        "rms_norm_linear_linear_silu_mul_add",
    ]
    assert "rms_norm" in kernels("generic", model)


def test_the_ledger_says_what_a_device_runs_in_a_launch_each(model: ModelLoader) -> None:
    plan = Synthesizer("h200-vulkan").synthesize(model, graph(TEXT))
    joined = [(one.producer, one.consumer) for one in plan.ledger if one.is_fused]
    reasons = {one.reason for one in plan.ledger if not one.is_fused}
    assert len(joined) == 7
    assert reasons == {"the graph returns the value"}
