"""What is there once has no loop in emitted code: a single row, a scalar, a single table."""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.synth.scheduled_in_c import kernel_for, run

from openinfer import ModelLoader, Synthesizer, graph
from openinfer.oinf import save_file
from openinfer.ops import Array
from openinfer.synth.targets.cpu.machine import CpuMachine, runnable
from openinfer.synth.targets.cpu.schedule import scheduled
from openinfer.synth.targets.project import Golden

TEXT = """
dynamic { x: i8[1, 24]; gain: f32; }
constant { w: i8[10, 24]; }
persistent { seen(t): f32[2] @table; step: i64 @init(0); }
volatile { y: i32[1, 10]; total: f32; pair: f32[2]; }
block entry {
    op linear(x, w, acc=i32) >> y;
    op add(gain, 1.0) >> total;
    op expand(gain, shape=[2]) >> pair;
    cache.write pair >> seen[step];
    cache.increment step;
    return y, total;
}
"""
ONCE = re.compile(r"for \(\w+ (\w+) = 0; \1 < 1;")


@pytest.mark.parametrize("device", ["x86-avx2", "x86-avx512", "aarch64-neon"])
def test_what_is_there_once_has_no_loop(device: str, tmp_path: Path) -> None:
    given: dict[str, Array] = {"x": np.ones((1, 24), np.int8), "gain": np.array(2, np.float32)}
    found = {"y": np.full((1, 10), 24, np.int32), "total": np.array(3, np.float32)}
    save_file(tmp_path / "m.oinf", {"w": np.ones((10, 24), np.int8)})
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        files = Synthesizer(device, name="net").synthesize(model, graph(TEXT)).files([Golden(given, found)])
    for name in ("src/kernels.c", "src/net.c", "example/main.c", "selftest/main.c"):
        text = files[name]
        assert isinstance(text, str)
        assert not ONCE.search(text), name


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.isa)
def test_the_last_element_of_a_row_counts_where_the_lanes_leave_one(target: CpuMachine, tmp_path: Path) -> None:
    expected: dict[str, Callable[..., Array]] = {
        "sum_axis": np.sum,
        "prod_axis": np.prod,
        "max_axis": np.max,
        "min_axis": np.min,
    }
    kernels, wanted = [], []
    for name, count in product(expected, (17, 33, 129, 257)):
        x = np.random.default_rng(count).uniform(0.9, 1.1, (3, count)).astype(np.float32)
        x[:, -1] = 0.5, 1, 2
        kernel, _ = scheduled(kernel_for(name, x.shape, axes=(1,)), target, frozenset())
        kernels.append((kernel, [x], (3,)))
        wanted.append(expected[name](x.astype(np.float64), axis=1))
    for found, one in zip(run(kernels, tmp_path, target), wanted, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-5)
