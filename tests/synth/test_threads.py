"""Kernels in parts: the same bits however many threads there are, no race, and nothing divided that cannot be."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import agree, planned
from tests.synth.flags import USUAL

from openinfer import DeviceArch, ModelLoader, Simulator, Synthesizer, graph
from openinfer.loops.ir import INDEX, Alloc, Buffer, Const, For, Kernel, Load, LoopKind, ScalarVar, Space, Store
from openinfer.oinf import save_file
from openinfer.ops.types import F32
from openinfer.synth.passes.split import split
from openinfer.synth.plan import Plan
from openinfer.synth.program.ir import KernelStep, Value
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.target import Passes

TEXT = """
sizes { T <= 40; }
dynamic { x: f32[T, 24]; image: f32[1, 3, 9, 11]; }
constant { w: f32[24, 50]; b: f32[50]; k: f32[8, 3, 3, 3]; }
volatile { h: f32[T, 50]; s: f32[T, 50]; y: f32[1, 8, 9, 11]; p: f32[1, 8, 4, 5]; a: f32[1, T, 24]; r: f32[1, T, 24]; }
persistent { total: f32[50]; }
block entry {
    op matmul(x, w) >> h;
    op add(h, b) >> h;
    op softmax(h) >> s;
    op sum_axis(s, axis=0) >> total;
    op conv2d(image, k, pads=[1, 1, 1, 1]) >> y;
    op max_pool(y, kernel=[2, 2], strides=[2, 2]) >> p;
    op unsqueeze(x, axes=[0]) >> a;
    op sdpa(a, a, a, causal=true) >> r;
    return h, s, total, p, r;
}
"""


def model(folder: Path) -> ModelLoader:
    rng = np.random.default_rng(5)
    shapes = {"w": (24, 50), "b": (50,), "k": (8, 3, 3, 3)}
    save_file(folder / "m.oinf", {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})
    return ModelLoader.open(folder / "m.oinf")


def plan(folder: Path, threads: int, worth: float = 0.0) -> Plan:
    passes = Passes(divide=Divide(threads, worth))
    return Synthesizer(passes=passes, name="net").synthesize(model(folder), graph(TEXT))


def steps(count: int = 4) -> list[dict[str, Any]]:
    rng = np.random.default_rng(6)
    return [
        {
            "x": rng.normal(size=(rows, 24)).astype(np.float32),
            "image": rng.normal(size=(1, 3, 9, 11)).astype(np.float32),
        }
        for rows in (40, 1, 17, 0)[:count]
    ]


def results(runs: Any) -> list[Any]:
    found = []
    for inputs in steps():
        runs.insert(inputs)
        runs.run_step()
        found += [runs.fetch(name) for name in ("h", "s", "total", "p", "r")]
    return found


def test_any_number_of_threads_gives_the_same_bits(tmp_path: Path) -> None:
    alone = results(plan(tmp_path, 1).build(flags=USUAL))
    for threads in (2, 3, 7):
        own = plan(tmp_path, threads)
        assert len([used for used in own.project.kernels.used.values() if used.parts == threads]) >= 3
        assert all(
            np.array_equal(one, other) for one, other in zip(results(own.build(flags=USUAL)), alone, strict=True)
        )
    simulated = results(Simulator(model(tmp_path)).make_executor(graph(TEXT)))
    assert all(np.allclose(one, other, atol=1e-4) for one, other in zip(simulated, alone, strict=True))


def test_parts_do_not_race(tmp_path: Path) -> None:
    """Under the thread sanitizer, which knows what each thread has read and written."""
    own = plan(tmp_path, 3)
    own.emit(tmp_path / "net")
    (tmp_path / "main.c").write_text(RACE, encoding="ascii")
    flags = ["-std=c11", "-O1", "-g", "-fsanitize=thread", "-pthread", "-ffp-contract=off", *own.project.options.flags]
    sources = ["net/src/net.c", "net/src/kernels.c", "main.c"]
    subprocess.run(["gcc", *flags, "-Inet/include", *sources, "-o", "race"], check=True, cwd=tmp_path)
    # The sanitizer needs its memory where it expects it.
    command = ["setarch", "-R", "./race", "net/src/weights.bin"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]


RACE = """
#include <stdio.h>
#include "net.h"
_Alignas(64) static unsigned char arena[NET_ARENA_BYTES], state[NET_STATE_BYTES], weights[NET_WEIGHT_BYTES];
static float x[40 * 24], image[3 * 9 * 11];
int main(int argc, char **argv)
{
    net_context c;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || fread(weights, 1, sizeof weights, file) != sizeof weights) return 2;
    fclose(file);
    for (int i = 0; i < 40 * 24; ++i) x[i] = (float)(i % 17);
    for (int round = 0; round < 2; ++round) {
        if (net_init(&c, arena, sizeof arena, state, sizeof state, weights, sizeof weights)) return 3;
        if (net_start_threads(&c)) return 4;
        if (net_start_threads(&c) != NET_ERROR_THREADS) return 5;
        for (int i = 0; i < 20; ++i) {
            net_outputs out;
            if (net_step(&c, &(net_inputs){ x, image, 40 - i }, &out)) return 6;
        }
        net_stop_threads(&c);
        net_stop_threads(&c);
    }
    return 0;
}
"""


CELL = """
dynamic { x: f32[3, 40]; h: f32[3, 96]; c: f32[3, 96]; }
constant { wi: f32[384, 40]; wh: f32[384, 96]; bi: f32[384]; bh: f32[384]; }
volatile { h2: f32[3, 96]; c2: f32[3, 96]; }
block entry { op lstm_cell(x, h, c, wi, wh, bi, bh) >> h2, c2; return h2, c2; }
"""


def test_a_kernel_of_several_products_becomes_several_kernels(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    weights = {"wi": (384, 40), "wh": (384, 96), "bi": (384,), "bh": (384,)}
    given = {"x": (3, 40), "h": (3, 96), "c": (3, 96)}
    save_file(tmp_path / "m.oinf", {name: rng.normal(size=own).astype(np.float32) for name, own in weights.items()})
    inputs = {name: rng.normal(size=own).astype(np.float32) for name, own in given.items()}
    found = []
    for threads, kernels in ((1, 1), (3, 3)):
        passes = Passes(divide=Divide(threads, 0.0))
        own = Synthesizer(passes=passes).synthesize(ModelLoader.open(tmp_path / "m.oinf"), graph(CELL))
        used = list(own.project.kernels.used.values())
        assert [one.parts for one in used] == [threads] * kernels
        assert [one["index"] for call in own.facts()["kernels"] for one in call["nodes"]] == [0] * kernels
        module = own.build(flags=USUAL)
        module.insert(inputs)
        module.run_step()
        found.append([module.fetch(name) for name in ("h2", "c2")])
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


ROWS = """
dynamic { x: f32[7, 33]; wave: f32[9, 24]; }
volatile { s: f32[7, 33]; i: i64[7, 33]; t: f32[7, 5]; j: i64[7, 5]; f: f32[9, 13, 2]; }
block entry {
    op sort(x, descending=true) >> s, i;
    op topk(x, k=5) >> t, j;
    op rfft(wave) >> f;
    return s, i, t, j, f;
}
"""


def test_rows_that_are_sorted_or_transformed_are_divided_each_part_with_its_own_memory() -> None:
    rng = np.random.default_rng(8)
    inputs = {"x": rng.integers(0, 9, (7, 33)).astype(np.float32), "wave": rng.normal(size=(9, 24)).astype(np.float32)}
    found = []
    for threads in (1, 3):
        own = Synthesizer(passes=Passes(divide=Divide(threads, 0.0))).synthesize(None, graph(ROWS))
        parts = {one.kernel.name: one.parts for one in own.project.kernels.used.values()}
        assert parts == {"sort": threads, "topk": threads, "rfft": threads}
        module = own.build(flags=USUAL)
        module.insert(inputs)
        module.run_step()
        found.append([module.fetch(name) for name in ("s", "i", "t", "j", "f")])
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("has_other_between", [False, True])
def test_parts_that_write_the_same_memory_stay_together(has_other_between: bool) -> None:
    """A padded copy: a loop fills all of the result, a later one writes over some of it."""
    out, other, given = Buffer("out", F32, (8,)), Buffer("other", F32, (8,)), Buffer("given", F32, (4,))
    index = ScalarVar("i")
    fill, between = (
        For(index, Const(8, INDEX), (Store(one, (index,), Const(0.0, F32)),), LoopKind.PARALLEL) for one in (out, other)
    )
    copy = For(index, Const(4, INDEX), (Store(out, (index,), Load(given, (index,))),), LoopKind.PARALLEL)
    body = (fill, between, copy) if has_other_between else (fill, copy)
    outputs = (out, other) if has_other_between else (out,)
    values = tuple(Value(one.name, F32, (8,)) for one in outputs)
    step = KernelStep(Kernel("pad", (given,), outputs, body), (Value("given", F32, (4,)),), values, 0)
    assert split(step, lambda _: True) == [step]


def test_loops_that_fill_the_same_memory_are_one_part_of_several() -> None:
    """A copy and the zeros behind it: what comes after them is divided, however small a kernel may be for that."""
    given, out = Buffer("given", F32, (4,)), Buffer("out", F32, (8,))
    plane, index = Buffer("plane", F32, (8,), Space.SCRATCH), ScalarVar("i")
    copy = For(index, Const(4, INDEX), (Store(plane, (index,), Load(given, (index,))),), LoopKind.PARALLEL)
    zeros = For(index, Const(4, INDEX), (Store(plane, (index + Const(4, INDEX),), Const(0.0, F32)),), LoopKind.PARALLEL)
    last = For(index, Const(8, INDEX), (Store(out, (index,), Load(plane, (index,))),), LoopKind.PARALLEL)
    values = [Value("given", F32, (4,)), Value("out", F32, (8,)), Value("plane", F32, (8,))]
    kernel = Kernel("pad", (given,), (out,), (Alloc(plane), copy, zeros, last))
    step = KernelStep(kernel, (values[0],), (values[1],), 0, (values[2],))
    assert [len(one.kernel.body) for one in split(step, lambda _: True)] == [2, 1]


def test_a_kernel_without_elements_is_not_divided() -> None:
    text = """dynamic { a: f32[2, 0, 3]; b: f32[3, 2]; } volatile { y: f32[2, 0, 2]; }
    block entry { op matmul(a, b) >> y; return y; }"""
    own = Synthesizer(passes=Passes(divide=Divide(2, 0.0))).synthesize(None, graph(text))
    assert [one.parts for one in own.project.kernels.used.values()] == [1]


def test_an_output_without_elements_stays_with_the_others() -> None:
    text = """dynamic { x: f32[64, 6]; } volatile { a: f32[64, 2]; b: f32[64, 0]; c: f32[64, 4]; d: f32[64, 0]; }
    block entry { op split(x, axis=1, sizes=[2, 0, 4]) >> a, b, c; op neg(b) >> d; return a, c, d; }"""
    own = Synthesizer(passes=Passes(divide=Divide(2, 0.0))).synthesize(None, graph(text))
    module = own.build(flags=USUAL)
    x = np.arange(384, dtype=np.float32).reshape(64, 6)
    module.insert({"x": x})
    module.run_step()
    assert np.array_equal(module.fetch("c"), x[:, 2:])


def test_memory_that_no_other_part_reads_is_not_a_part_of_its_own() -> None:
    """A transform of five points has no need of the factors that longer ones begin with."""
    text = """dynamic { x: f16[2, 5, 3, 2]; } volatile { y: f16[2, 5, 3, 2]; }
    block entry { op fft(x, axis=-2) >> y; return y; }"""
    own = Synthesizer("cpu", passes=Passes(divide=Divide(3, 0.0))).synthesize(None, graph(text))
    assert all(step.outputs for step in own.project.placed.program.blocks["entry"] if isinstance(step, KernelStep))
    impulse = np.zeros((2, 5, 3, 2), np.float16)
    impulse[:, 0] = 1
    agree(text, inputs=lambda _step: {"x": impulse}, passes=Passes(divide=Divide(3, 0.0)))


def test_a_small_graph_has_one_thread() -> None:
    text = "dynamic { x: f32[64]; } volatile { y: f32[64]; } block entry { op exp(x) >> y; return y; }"
    code = planned(text).project.code()
    assert not any("pthread" in one for one in code.values())


def test_a_device_without_an_operating_system_has_one_thread(tmp_path: Path) -> None:
    arch = DeviceArch.from_json({"device": {"type": "cpu"}, "cpu": {"cores": 4}, "features": {"hosted": False}})
    own = Synthesizer(arch, passes=Passes(divide=Divide(worth=0.0))).synthesize(model(tmp_path), graph(TEXT))
    assert own.project.placed.threads == 1


def test_cores_of_the_device_are_the_threads(tmp_path: Path) -> None:
    arch = DeviceArch.from_json({"device": {"type": "cpu"}, "cpu": {"cores": 5}, "features": {"hosted": True}})
    own = Synthesizer(arch, name="net", passes=Passes(divide=Divide(worth=0.0))).synthesize(
        model(tmp_path), graph(TEXT)
    )
    assert "#define NET_THREADS 5" in own.project.code()["include/net.h"]


def test_threads_end_with_the_module(tmp_path: Path) -> None:
    def running() -> int:
        return len(os.listdir("/proc/self/task"))

    before = running()
    module = plan(tmp_path, 4).build(flags=USUAL)
    assert running() == before + 3
    del module
    assert running() == before
