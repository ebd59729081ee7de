"""Sums of many floats: partial sums keep what one accumulator of 32 bits would lose."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from openinfer import Code, DeviceArch, GraphError, Passes, Synthesizer, graph
from openinfer.dtypes import DTYPES
from openinfer.ir.expr import Ref
from openinfer.loops.blocked import BLOCK, blocked
from openinfer.loops.build import Builder, load
from openinfer.loops.dim import Dim
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Buffer, For, Kernel, Local, LoopKind, walk
from openinfer.loops.verify import verify
from openinfer.ops.shapes import gamma, summed
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.targets.simt.baseline import baseline
from openinfer.synth.targets.simt.interpret import launched
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.schedule import scheduled

SUMS = """
sizes { T <= 70000; }
dynamic {
    x: f32[300, 300, 3]; flat: f32[T]; w: f32[1, 3000]; v: f32[3000, 2];
    column: f32[1, 1, 20000, 2]; cube: f32[1, 1, 270, 21, 3];
}
block entry {
    all = op sum_axis(x);
    short = op mean_axis(x, axes=[0, 1]);
    long = op mean_axis(flat, axes=[0]);
    spread = op var_axis(x);
    length = op norm_axis(x, p=2.0);
    taxi = op norm_axis(x, p=1.0, axes=[0, 1]);
    logs = op logsumexp_axis(x);
    scaled = op softmax(flat, axis=0);
    product = op matmul(w, v);
    inner = op einsum(w, v, equation="ik,kj->ij");
    running = op cumsum(flat, axis=0);
    backwards = op cumsum(flat, axis=0, exclusive=true, reverse=true);
    last = op slice(backwards, starts=0, ends=-1);
    seen = op avg_pool(column, kernel=[20000, 2]);
    deep = op avg_pool(cube, kernel=[260, 20, 3]);
    return all, short, long, spread, length, taxi, logs, scaled, product, inner, running, last, seen, deep;
}
"""
DEEP = """
sizes { T <= 30000; }
dynamic {
    a: f32[4, T]; b: f32[T, 20]; q: f32[1, 3, 4]; k: f32[1, 20000, 4]; im: f32[1, 2000, 4, 4]; w: f32[3, 2000, 3, 3];
}
block entry {
    product = op matmul(a, b);
    row = op matmul(a[0..1, ], b);
    attention = op sdpa(q, k, k);
    windows = op conv2d(im, w);
    return product, row, attention, windows;
}
"""
POOLED = {"column": (1, 1, 20000, 2), "cube": (1, 1, 270, 21, 3)}
CHANNELS = 60000
POINTWISE = f"""
dynamic {{ x: f32[1, {CHANNELS}, 2, 5]; w: f32[3, {CHANNELS}, 1, 1]; bias: f32[3]; }}
block entry {{
    y = op conv2d(x, w, bias);
    return y;
}}
"""
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")


def test_long_sums_are_as_good_as_short_ones() -> None:
    """One accumulator is 3 % off after three million terms of 0.1; blocks stay within 2e-5 whatever the length."""
    rng = np.random.default_rng(5)
    x = np.full((300, 300, 3), 0.1, np.float32) + rng.uniform(0, 0.01, (300, 300, 3)).astype(np.float32)
    flat, w, v = (np.full(shape, 0.1, np.float32) for shape in ((70000,), (1, 3000), (3000, 2)))
    module = Synthesizer("generic", name="net").synthesize(None, graph(SUMS)).build("gcc", FLAGS)
    rest = {name: np.full(shape, 0.1, np.float32) for name, shape in POOLED.items()} | {"w": w, "v": v}
    found: Any = module(x=x, flat=flat, **rest)
    wide = x.astype(np.float64)
    wanted = {
        "all": wide.sum(),
        "short": wide.mean((0, 1)),
        "long": np.float64(np.float32(0.1)),
        "spread": wide.var(),
        "length": np.sqrt((wide**2).sum()),
        "taxi": wide.sum((0, 1)),
        "logs": np.log(np.exp(wide).sum()),
        "scaled": np.full(70000, 1 / 70000),
        "product": np.full((1, 2), 3000 * np.float64(np.float32(0.1)) ** 2),
        "inner": np.full((1, 2), 3000 * np.float64(np.float32(0.1)) ** 2),
        "running": np.arange(1, 70001) * np.float64(np.float32(0.1)),
        "last": np.arange(69999, 0, -1) * np.float64(np.float32(0.1)),
        "seen": np.float64(np.float32(0.1)),
        "deep": np.float64(np.float32(0.1)),
    }
    for name, value in wanted.items():
        error = np.max(np.abs(found[name].astype(np.float64) - value) / np.abs(value))
        assert error < 2e-5, (name, error)
    for size in (1, 4095, 4097, 69999):
        assert abs(module(x=x, flat=flat[:size], **rest)["long"] - 0.1) < 1e-6


@pytest.mark.parametrize("device", ["generic", "x86-avx2"])
def test_products_of_many_terms_are_as_good_as_others(device: str) -> None:
    """In tiles as well: rows and columns, a single row, windows, and means of attention."""
    tenth = np.float64(np.float32(0.1))
    module = Synthesizer(device, name="net").synthesize(None, graph(DEEP)).build("gcc", FLAGS)
    shapes = {"q": (1, 3, 4), "k": (1, 20000, 4), "im": (1, 2000, 4, 4), "w": (3, 2000, 3, 3)}
    for terms in (5, 8193, 30000):
        given = {"a": (4, terms), "b": (terms, 20), **shapes}
        found: Any = module({name: np.full(shape, 0.1, np.float32) for name, shape in given.items()})
        wanted = {"product": terms * tenth**2, "row": terms * tenth**2, "attention": tenth, "windows": 18000 * tenth**2}
        for name, value in wanted.items():
            assert np.max(np.abs(found[name].astype(np.float64) / value - 1)) < 2e-5, (name, terms)


@pytest.mark.parametrize("extents", [(600,), (5, 300), (300, 2, 3), (Dim(600, Ref("T")),), (70, 70)])
def test_blocks_add_up_what_the_loop_did(extents: tuple[int, ...]) -> None:
    f32, builder = DTYPES["f32"], Builder()
    x, y = Buffer("x", f32, extents), Buffer("y", f32, (1,))
    total = builder.local(0, f32)
    with builder.loops(extents) as where:
        builder.assign(total, total + load(x, *where))
    builder.store(y, (0,), total)
    kernel = Kernel("total", (x,), (y,), builder.body)
    made = Kernel("total", (x,), (y,), blocked(kernel.body))
    assert verify(made) == []
    loops = [one for one in walk(made.body) if isinstance(one, For)]
    assert len(loops) > len(extents) or len(extents) > 1
    values = np.arange(np.prod(extents), dtype=np.float32).reshape(extents) % 7
    (result,) = interpret(made, (values,), sizes={"T": 600})
    assert result[0] == values.sum()


def test_short_sums_stay_as_they_are() -> None:
    f32, builder = DTYPES["f32"], Builder()
    x, y = Buffer("x", f32, (16, 16)), Buffer("y", f32, (1,))
    total = builder.local(0, f32)
    with builder.loops((16, 16)) as where:
        builder.assign(total, total + load(x, *where))
    builder.store(y, (0,), total)
    body = builder.body
    assert BLOCK == 256
    assert blocked(body) == body


@pytest.mark.parametrize("device", ["generic", "host"])
def test_convolutions_over_many_channels_are_as_good_without_tiles(device: str) -> None:
    """A window of one place sums its channels only: one accumulator would be 7e-6 off, blocks stay within 2e-6."""
    rng = np.random.default_rng(6)
    x = rng.uniform(0.09, 0.11, (1, CHANNELS, 2, 5)).astype(np.float32)
    w = rng.uniform(0.09, 0.11, (3, CHANNELS, 1, 1)).astype(np.float32)
    bias = np.array([0.5, -1.0, 2.0], np.float32)
    arch = DeviceArch.detect() if device == "host" else DeviceArch.named(device)
    plan = Synthesizer(arch, name="net", passes=Passes(schedule=False)).synthesize(None, graph(POINTWISE))
    found: Any = plan.build()(x=x, w=w, bias=bias)
    wanted = np.einsum("bchw,oc->bohw", x.astype(np.float64), w[..., 0, 0].astype(np.float64))
    wanted += bias.astype(np.float64)[:, None, None]
    assert np.max(np.abs(found - wanted) / np.abs(wanted)) < 2e-6


ADVERSE = {
    "tenths": np.full(70000, 0.1, np.float32),
    "magnitudes": np.resize(np.array([1e4, 1e-4], np.float32), 70000),
    "first": np.concatenate([[2.0**24], np.ones(69999)]).astype(np.float32),
    "signs": np.resize(np.array([1e4, 1.0, -1e4, 1e-4], np.float32), 70000),
}


@pytest.mark.parametrize("device", ["generic", "x86-avx2"])
def test_the_roundings_of_a_long_sum_are_those_that_its_bound_counts(device: str) -> None:
    """A single accumulator loses all ones that follow 2**24, which is a hundred times what the bound allows."""
    text = "dynamic { x: f32[70000]; } block entry { y = op sum_axis(x); z = op norm_axis(x, p=1.0); return y, z; }"
    module = Synthesizer(device, name="net").synthesize(None, graph(text)).build("gcc", FLAGS)
    allowed = gamma(summed(70000), DTYPES["f32"])
    for name, x in ADVERSE.items():
        found: Any = module(x=x)
        wide = x.astype(np.float64)
        for key, wanted in (("y", wide.sum()), ("z", np.abs(wide).sum())):
            assert abs(float(found[key]) - wanted) <= allowed * np.abs(wide).sum(), (name, key)


def summed_kernel(rows: int, columns: int) -> Kernel:
    """The sums of columns."""
    f32, builder = DTYPES["f32"], Builder()
    x, y = Buffer("x", f32, (rows, columns)), Buffer("y", f32, (columns,))
    with builder.loop(columns, LoopKind.PARALLEL) as column:
        total = builder.local(0, f32)
        with builder.loop(rows) as row:
            builder.assign(total, total + load(x, row, column))
        builder.store(y, (column,), total)
    return Kernel("total", (x,), (y,), builder.body)


@pytest.mark.parametrize("schedule", [baseline, scheduled])
def test_threads_of_a_device_add_up_in_blocks(schedule: Callable[[Kernel, SimtMachine], Launches]) -> None:
    """An accumulator that holds 2**24 loses the ones that come to it: those of a block, not of all that is left."""
    found = schedule(summed_kernel(5000, 2), SimtMachine(group=8, subgroup=4))
    assert [verify(launch.kernel) for launch in found.launches] == [[] for _ in found.launches]
    x = np.ones((5000, 2), np.float32)
    x[0] = 2**24
    (result,) = launched(found, [x])
    assert np.max(np.abs(result.astype(np.float64) - (2**24 + 4999))) <= BLOCK + 8


def test_products_of_very_many_terms_are_added_up_in_blocks_on_devices_too() -> None:
    call = graph("dynamic { a: f32[64, 20000]; b: f32[20000, 64]; } block entry { y = op matmul(a, b); return y; }")
    plan = Synthesizer("lavapipe").synthesize(None, call)
    kernels = [one.schedule for one in plan.placed.program.steps() if isinstance(one, KernelStep)]
    launch, *joined = [launch for one in kernels if isinstance(one, Launches) for launch in one.launches]
    assert launch.form.startswith("blocks")
    assert len(joined) <= 1  # where there are fewer blocks than units, sums are in parts, which a second launch adds up
    assert blocked(launch.kernel.body, 8192) == launch.kernel.body
    assert sum(isinstance(one, Local) for one in walk(launch.kernel.body)) >= (16 if joined else 32)


def test_windows_of_more_elements_than_a_driver_counts_are_refused() -> None:
    """Lavapipe ends loops after 65,535 iterations and says nothing: how many a window needs is computed."""
    wide = graph("dynamic { x: f32[1, 1, 300, 300]; } block entry { y = op avg_pool(x, kernel=300); return y; }")
    with pytest.raises(GraphError) as caught:
        Synthesizer("lavapipe").synthesize(None, wide)
    assert caught.value.code == Code.MISSING_FEATURE


@pytest.mark.parametrize("op", ["sum_axis", "prod_axis"])
@pytest.mark.parametrize(
    ("dtype", "wide"), [("i8", "i32"), ("u8", "i32"), ("i16", "i32"), ("i16", "i64"), ("i32", "i32")]
)
def test_long_sums_of_integers_are_exact_however_a_compiler_makes_vectors_of_them(
    op: str, dtype: str, wide: str
) -> None:
    """One reduction alone in a kernel: gcc 12 made wrong vectors of lanes that were signed, from 64 terms on."""
    head = f"dynamic {{ x: {dtype}[8, 384]; }} volatile {{ y: {wide}[8]; }}"
    given = graph(head + f" block entry {{ op {op}(x, axes=[1], acc=[{wide}]) >> y; return y; }}")
    kind = np.dtype(dtype[0] + str(int(dtype[1:]) // 8))
    ends = np.iinfo(kind)
    x = np.random.default_rng(5).integers(ends.min, ends.max + 1, (8, 384)).astype(kind)
    x |= 1  # or else all products are 0
    module = Synthesizer().synthesize(None, given).build()
    module.insert(x=x)
    module.run_step()
    whole = np.dtype(wide[0] + str(int(wide[1:]) // 8))
    wanted = (np.sum if op == "sum_axis" else np.prod)(x.astype(whole), axis=1, dtype=whole)
    np.testing.assert_array_equal(module.fetch("y"), wanted)
