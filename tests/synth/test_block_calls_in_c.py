# ruff: noqa: E501
"""Blocks with parameters: one function of C for each block and types, which does what the simulator does."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import agree, planned
from tests.synth.flags import QUICK

from openinfer import ModelLoader
from openinfer.oinf import save_file
from openinfer.synth.program.ir import CallStep, Move, Value, Weight, steps_in

DECLARED = """
sizes { T <= 6; D := 4; }
dynamic { x: f32[T, D]; n: i32; }
volatile { y: f32[T, D]; z: f32[D, D]; v: f32[D] @init(2.0); }
constant { W(l): f32[D, D] @pattern("W.{l}"); V(l): f32[D, D] @pattern("V.{l}"); B(l): f32[D] @pattern("B.{l}"); a: f32[D, D]; b: f32[D, D]; }
persistent { p: f32[D]; k: i32; K(i): f32[D] @table @fixed(i=8); G(i): f32[D] @table; }
"""

CASES = {
    "weights of a prefix table, by the index of a loop": """
    block layer(h: f32[T, D], w: f32[D, D], c: f32[D]) { t = op matmul(h, w); op add(t, c) >> h; return h; }
    block entry { transfer x >> y; loop l (i in 0..3) { call layer(y, W[i], B[2-i]) >> y; } return y; }""",
    "weights of several tables, whole tensors, and indices that only a run knows": """
    block layer(h: f32[T, D], w: f32[D, D]) { t = op matmul(h, w); r = op relu(t); return r; }
    block entry { call layer(x, W[0]) >> y; call layer(y, a) >> y; call layer(y, b) >> y; call layer(y, V[n % 3]) >> y; return y; }""",
    "weights handed on to another block": """
    block inner(h: f32[T, D], w: f32[D, D]) { t = op matmul(h, w); return t; }
    block layer(h: f32[T, D], w: f32[D, D], c: f32[D, D]) { call inner(h, w) >> h; call inner(h, c) >> h; return h; }
    block entry { transfer x >> y; loop l (i in 0..3) { call layer(y, W[i], a) >> y; call inner(y, V[i]) >> y; } return y; }""",
    "a weight in one call and a value in another": """
    block layer(h: f32[T, D], w: f32[D, D]) { t = op matmul(h, w); return t; }
    block entry { op add(a, b) >> z; call layer(x, z) >> y; call layer(y, W[n % 3]) >> y; call layer(y, a) >> y; return y; }""",
    "a prefix table and an index": """
    block layer(h: f32[T, D], P: prefix, i: index) { t = op matmul(h, P[i]); op add(t, B[i]) >> h; return h; }
    block entry { call layer(x, W, 0) >> y; loop l (i in 0..2) { call layer(y, V, i+1) >> y; call layer(y, W, 2-i) >> y; } return y; }""",
    "a prefix table handed on": """
    block inner(h: f32[T, D], Q: prefix, j: index) { t = op matmul(h, Q[j]); return t; }
    block layer(h: f32[T, D], P: prefix, i: index) { call inner(h, P, i) >> h; call inner(h, V, i/2) >> h; return h; }
    block entry { call layer(x, W, 2) >> y; call layer(y, V, k) >> y; cache.increment k; return y; }""",
    "arguments stay what they are": """
    block f(h: f32[T, D], c: f32[D]) { op add(h, c) >> h; loop l (i in 0..2) { op add(h, h) >> h; op add(c, c) >> c; } return h, c; }
    block entry { assign c: f32[D]; call f(x, v) >> y, c; op add(y, x) >> y; op add(c, v) >> v; op add(y, c) >> y; return y, v; }""",
    "one variable as several arguments, and as argument and result": """
    block f(h: f32[T, D], g: f32[T, D]) { op sub(h, v) >> h; t = op mul(h, g); return t, g; }
    block entry { assign o: f32[T, D]; call f(x, x) >> y, o; call f(y, o) >> o, y; call f(o, y) >> y, o; op add(y, o) >> y; return y; }""",
    "a block that returns its argument, and a constant": """
    block same(h: f32[T, D]) { return h, v, a; }
    block entry { assign o: f32[D]; call same(x) >> y, o, z; op add(o, v) >> v; return y, z, v; }""",
    "what is assigned is zero in every call": """
    block f(h: f32[D]) { assign t: f32[D]; assign s: f32; loop l (i in 0..n) { op add(t, h) >> t; } op sum_axis(t, axes=[0]) >> s; return t, s; }
    block entry { assign s: f32; assign q: f32; call f(v) >> v, s; call f(v) >> v, q; op add(s, q) >> s; return v, s; }""",
    "the graph's own variables": """
    block f(h: f32[D]) { op add(p, h) >> p; cache.write p >> K[k]; cache.write h >> G[k]; cache.increment k; op add(v, p) >> v; return p; }
    block entry { call f(v) >> v; call f(p) >> p; call f(v) >> p; op add(p, v) >> p; return v; }""",
    "a block that returns a variable of the graph": """
    block f(h: f32[D]) { op add(v, h) >> v; return v; }
    block g(h: f32[D]) { op add(v, h) >> v; return h; }
    block entry { call f(B[0]) >> z[0, ]; call g(B[1]) >> z[1, ]; call f(v) >> v; return v, z; }""",
    "a variable that the block writes, as an argument": """
    block f(h: f32[D]) { op add(v, h) >> v; op add(v, h) >> v; op add(p, h) >> p; return h; }
    block entry { loop l (i in 0..3) { call f(v) >> v; call f(p) >> p; call f(p) >> v; } return v; }""",
    "parts of tensors and tables": """
    block f(h: f32[D], c: f32) { op mul(h, c) >> h; return h; }
    block entry { assign o: f32[2, D]; call f(a[1, ], v[2]) >> o[0, ]; call f(o[0, ], 0.5) >> z[1, ]; call f(K[k % 8], 2) >> K[(k+1) % 8]; call f(z[, 0], v[0]) >> G[k]; cache.write v >> K[k % 8]; cache.increment k; call f(G[0], 1.5) >> v; return z, v; }""",
    "sizes that only the block has": """
    block norm(h: f32[N, M]) { s = op sum_axis(h, axes=[1], keepdims=true); assign r: f32[N, M]; loop l (i in 0..N) { op add(h[i, ], v[0]) >> r[i, ]; } op add(r, s) >> r; return r; }
    block entry { call norm(x) >> y; call norm(a) >> z; call norm(z) >> z; call norm(y[0..1, ]) >> y[0..1, ]; return y, z; }""",
    "an index as an operand, in bounds and in indices": """
    block f(h: f32[T, D], j: index) { loop l (i in 0..j) { t = op mul(h, 2.0); transfer t >> h; } assign q: i64; transfer j >> q; cache.write v >> K[(j + k) % 8]; return h, q; }
    block entry { assign q: i64; call f(x, n % 3) >> y, q; call f(y, q - 1) >> y, q; call f(y, 3 * D / 4) >> y, q; return y, q; }""",
    "branches in and around calls": """
    block f(h: f32[D]) { c = op gt(h[0], p[0]); branch c up down; return h; }
    block up { op add(v, v) >> v; return; }
    block down { call g(v, 2) >> v; return; }
    block g(h: f32[D], j: index) { op sub(h, B[j]) >> h; return h; }
    block entry { call f(v) >> v; branch down; call f(p) >> p; op add(p, v) >> p; return v; }""",
    "consumers that call the same block": """
    block f(h: f32[D], j: index) { assign t: f32[D]; loop l (i in 0..j+1) { op add(t, h) >> t; } return t; }
    block k1 { await v; call f(v, 1) >> v; yield v; }
    block k2 { await p; call f(p, 2) >> p; yield p; }
    block entry { op add(p, v) >> p; yield v, p; call f(B[0], 3) >> z[0, ]; await v; await p; call f(p, 0) >> p; op add(v, p) >> v; return v, z; }""",
    "results that are not used, and none": """
    block f(h: f32[D]) { op add(h, h) >> h; op add(p, h) >> p; return h; }
    block g() { call f(v) >> v; return; }
    block entry { assign o: f32[D]; call f(v) >> o; call g(); return v; }""",
    "scopes, barriers and deps": """
    block f(h: f32[T, D], w: f32[D, D]) { scope "in" { t = op matmul(h, w); barrier; r = op relu(t); } return r; }
    block entry { scope "out" { call f(x, a) >> y; dep after(call) before(relu); op relu(y) >> y; } return y; }""",
    "model tensors by their names": """
    block f(h: f32[T, D], w: f32[D, D], i: index) { t = op matmul(h, w); u = op matmul(t, model[fmt("V.{i}")]); return u; }
    block entry { call f(x, model["a"], 2) >> y; loop l (i in 0..3) { call f(y, model[fmt("W.{i}")], i) >> y; } return y; }""",
    "what fails inside, and is rolled back": """
    block f(h: f32[D], j: index) { op add(p, h) >> p; cache.write h >> K[j]; op add(p, B[j]) >> p; return p; }
    block entry { call f(v, n) >> p; call f(v, 2 * n - 1) >> v; return v; }""",
    "an index that cannot be computed": """
    block f(h: f32[D], j: index) { op add(h, B[j]) >> h; return h; }
    block entry { op add(p, v) >> p; call f(v, 2 / n) >> v; call f(v, 9223372036854775807 * n - 9223372036854775807) >> v; return v; }""",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    made = np.random.default_rng(7)
    # Small integers: no sum is rounded, in whatever order.
    tensors = {f"{name}.{i}": made.integers(-2, 3, (4, 4)).astype(np.float32) for name in "WV" for i in range(3)}
    tensors |= {f"B.{i}": made.integers(-2, 3, 4).astype(np.float32) for i in range(3)}
    tensors |= {name: made.integers(-2, 3, (4, 4)).astype(np.float32) for name in "ab"}
    path = tmp_path_factory.mktemp("blocks") / "m.oinf"
    save_file(path, tensors)
    return ModelLoader.open(path)


def inputs(step: int) -> dict[str, Any]:
    made = np.random.default_rng(step)
    return {"x": made.integers(-2, 3, (2 * step + 2, 4)).astype(np.float32), "n": np.int32(step)}


@pytest.mark.parametrize("name", CASES)
def test_a_call_does_in_c_what_it_does_in_the_simulator(name: str, model: ModelLoader) -> None:
    agree(DECLARED + CASES[name], model, inputs, flags=QUICK)


def source_of(text: str, model: ModelLoader | None, folder: Path) -> str:
    planned(text, model).emit(folder)
    return (folder / "src" / "net.c").read_text(encoding="utf-8")


def test_a_block_is_one_function_for_each_types_and_is_called_with_addresses(tmp_path: Path) -> None:
    text = """
    dynamic { x: f32[4]; z: f32[2, 3]; }
    block twice(a: f32[N]) { op add(a, a) >> a; return a; }
    block rows(a: f32[N, M]) { loop l (i in 0..N) { call twice(a[i, ]) >> a[i, ]; } return a; }
    block entry { call twice(x) >> x; call twice(x) >> x; call rows(z) >> z; return x, z; }"""
    source = source_of(text, None, tmp_path)
    heads = re.findall(r"^static int (block_\w+)\(net_context \*c([^)]*)\)$", source, re.MULTILINE)
    assert dict(heads) == {
        "block_twice": ", const float *a_a, float *r_0",
        "block_twice_2": ", const float *a_a, float *r_0",
        "block_rows": ", const float *a_a, float *r_0",
        "block_entry": "",
    }
    assert len(re.findall(r"if \(block_twice\(c, ", source)) == 2


def test_weights_are_not_copied_for_a_call(model: ModelLoader) -> None:
    name = "weights handed on to another block"
    program = planned(DECLARED + CASES[name], model).project.placed.program
    steps = [step for steps in program.blocks.values() for step in steps_in(steps)]
    calls = [step for step in steps if isinstance(step, CallStep)]
    assert len(calls) == 4
    assert all(isinstance(one, Value) for step in calls for one in step.args), (
        "tensors of the model are chosen by integers"
    )
    assert not any(isinstance(step, Move) and isinstance(step.src, Weight) for step in steps)
    assert [len(program.params[name].indices) for name in ("layer", "inner")] == [1, 1], "a is one tensor in all calls"
