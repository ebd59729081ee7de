"""A target may keep structured statements: fusion then joins other kernels with them, and results stay the same."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from openinfer import Simulator, graph
from openinfer.check import bind
from openinfer.loops.expand import plain
from openinfer.loops.ir import Attend, Order, Scan, Structure, walk
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.lower.graph import lowered
from openinfer.synth.memory.placed import MemoryRules
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.program.ir import KernelStep, Program, Value
from openinfer.synth.targets.target import TARGETS, Pass, Passes, target_of

KEPT: frozenset[type[Structure]] = frozenset({Attend, Order, Scan})
TEXT = """
dynamic { x: f32[3, 20]; q: f32[3, 4, 16]; k: f32[5, 2, 16]; v: f32[5, 2, 16]; s: f32; }
volatile {
    a: f32[3, 20]; values: f32[3, 20]; places: i64[3, 20]; qt: f32[4, 3, 16]; kt: f32[2, 5, 16]; vt: f32[2, 5, 16];
    m: f32[4, 3, 16]; out: f32[3, 4, 16]; qs: f32[3, 4, 16];
}
block entry {
    op mul(x, s) >> a;
    op cumsum(a, axis=1, reverse=true) >> a;
    op relu(a) >> a;
    op sort(a, axis=1) >> values, places;
    op mul(q, s) >> qs;
    op transpose(qs, perm=[1, 0, 2]) >> qt;
    op transpose(k, perm=[1, 0, 2]) >> kt;
    op transpose(v, perm=[1, 0, 2]) >> vt;
    op sdpa(qt, kt, vt, causal=true) >> m;
    op transpose(m, perm=[1, 0, 2]) >> out;
    return values, places, out;
}
"""


def with_loops(program: Program) -> Program:
    """A program with loops in place of all structures, after kernels have been fused."""

    def own(step: KernelStep) -> tuple[KernelStep]:
        kernel = plain(step.kernel)
        known = dict(zip((buffer.name for buffer in step.kernel.scratch), step.scratch, strict=True))
        memory = (
            known.get(one.name) or Value(f"{step.outputs[0].name}_{one.name}", one.dtype, one.shape)
            for one in kernel.scratch
        )
        return (replace(step, kernel=kernel, scratch=tuple(memory)),)

    return program.map_kernels(own)


def structures(program: Program) -> set[type[Structure]]:
    kernels = [step.kernel for step in program.steps() if isinstance(step, KernelStep)]
    return {type(one) for kernel in kernels for one in walk(kernel.body) if isinstance(one, Structure)}


def test_structures_that_a_target_keeps_are_fused_and_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    arch = DeviceArch.named("generic")
    usual = target_of(arch)
    seen: list[Program] = []

    def passes(wanted: Passes, rules: MemoryRules) -> tuple[Pass, ...]:
        def late(program: Program) -> Program:
            seen.append(program)
            return with_loops(program)

        return late, *usual.passes(wanted, rules)

    monkeypatch.setitem(TARGETS, usual.name, lambda _: replace(usual, structures=KEPT, passes=passes))
    rng = np.random.default_rng(0)
    own = graph(TEXT)
    inputs: dict[str, Any] = {
        "x": rng.normal(size=(3, 20)).astype(np.float32),
        "q": rng.normal(size=(3, 4, 16)).astype(np.float32),
        "k": rng.normal(size=(5, 2, 16)).astype(np.float32),
        "v": rng.normal(size=(5, 2, 16)).astype(np.float32),
        "s": np.float32(0.5),
    }
    module = Synthesizer(arch).synthesize(None, own).build("gcc", ("-std=c11", "-O1", "-ffp-contract=off"))
    executor = Simulator(None).make_executor(own)
    for one in (executor, module):
        one.insert(inputs)
        one.run_step()
    assert structures(seen[0]) == KEPT
    for name in ("values", "places", "out"):
        found, wanted = np.asarray(module.fetch(name)), np.asarray(executor.fetch(name))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    # Fewer kernels than ops: transposes of what attention reads and the factor of the running sums are part of others.
    names = [step.kernel.name for step in seen[0].steps() if isinstance(step, KernelStep)]
    assert "mul_cumsum" in names


def test_a_target_that_keeps_none_gets_loops() -> None:
    bound = bind(graph(TEXT), None)
    assert structures(lowered(bound)) == set()
    assert structures(lowered(bound, KEPT)) == KEPT
    assert structures(lowered(bound, frozenset({Scan}))) == {Scan}
