"""Literals, parts of tensors and loop indices as operands in generated C, next to the simulator."""

from pathlib import Path

import numpy as np
import pytest
from tests.synth.both_ways import agree

from openinfer import ModelLoader
from openinfer.errors import ExecutionError
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file
from openinfer.synth.targets.target import NODE_BY_NODE, Passes

LITERALS = """
dynamic { x: f32[4]; i: i32[4]; c: bool[4]; u: u2[4]; h: f16[4]; t: t1[4]; }
persistent { n: i32; flag: bool; K(t): f32 @table @fixed(t=4); }
volatile {
    a: f32[4]; b: f32[4]; d: i32[4]; e: f32[4]; f: i32; g: u2[4]; j: f32[4]; k: bool[4]; l: i8[4]; m: f32; o: f16[4];
    p: bool[4]; q: t1[4]; r: f64;
}
block entry {
    op add(x, 1.0) >> a;
    op max(x, -0.0) >> b;
    op mul(i, -3) >> d;
    op where(c, x, -inf) >> e;
    op gather(i, 2) >> f;
    op shl(u, 1) >> g;
    op where(c, 1, 0.5) >> j;
    op eq(nan, x) >> k;
    op quantize(x, 0.5, 3, to=i8) >> l;
    op add(h, b=0.1) >> o;
    op where(true, c, false) >> p;
    op min(t, -1) >> q;
    loop again (turn in 0..2) { op fma(x, 2, 16) >> x; transfer -1 >> a[turn]; cache.write 1e-3 >> K[turn]; }
    cache.write 3 >> n;
    cache.write true >> flag;
    transfer 2.5 >> m;
    transfer 0.1 >> r;
    return x, a, b, d, e, f, g, j, k, l, m, o, p, q, r;
}
"""


@pytest.mark.parametrize("passes", [Passes(), NODE_BY_NODE], ids=["fused", "apart"])
def test_literals_of_every_kind_agree(passes: Passes) -> None:
    def inputs(step: int) -> dict[str, object]:
        return {
            "x": np.arange(4, dtype=np.float32) - step,
            "i": np.arange(4) * step,
            "c": [True, False, True, step > 1],
            "u": [0, 1, 2, 3],
            "h": np.arange(4) * step,
            "t": [1, -1, 1, 1],
        }

    agree(LITERALS, inputs=inputs, steps=2, passes=passes)


PARTS = """
sizes { T <= 8; N := 4; }
dynamic { x: f32[T, N]; i: i32; }
constant { c: f32[3, N] @init(2.0); }
volatile { y: f32[T, N]; r: f32[N]; s: f32; w: f32[N]; f: bool[N]; z: bool; a: f32[N, N] @init(1.5); }
block entry {
    assign h: f32[T, N];
    op relu(x) >> h;
    op neg(h[i, ]) >> h[0, ];
    op add(h[0, ], c[1, ]) >> r;
    transfer x[T-1, ] >> w;
    op sum_axis(x[0..T, 1..3]) >> s;
    op add(x[0..T, ], h) >> y;
    op is_finite(h[0, ]) >> f;
    op mul(w, w) >> y[i, ];
    op neg(w[1..2]) >> w[2..3];
    transfer w[0] >> w[3];
    t = op exp(h);
    op add(t[0, ], w) >> w;
    loop again (l in 0..4) {
        op is_finite(x[i, 0..l+1]) >> f[l];
        op is_finite(a[l, ]) >> z;
        op add(x[i, l..], x[i, l..]) >> a[l, l..N];
    }
    return y, r, s, w, f, z, a;
}
"""


def test_parts_of_tensors_with_dynamic_sizes_are_operands_and_results() -> None:
    def inputs(step: int) -> dict[str, object]:
        extent = (1, 3, 8, 0, 2)[step]
        return {"x": np.arange(extent * 4, dtype=np.float32).reshape(-1, 4) - 3, "i": step // 2}

    agree(PARTS, inputs=inputs, steps=5)


def test_the_index_of_a_loop_hides_a_size_of_its_name() -> None:
    """The length of a slice and the bounds of a loop are those of the index, also where it is called like a size."""
    text = """sizes { N := 0; M := 3; } dynamic { x: f32[4]; } volatile { y: f32[4]; s: f32; }
    block entry {
        loop outer (N in 1..3) { loop inner (M in 0..N) { op sum_axis(x[0..N]) >> s; transfer s >> y[N+M]; } }
        return y;
    }"""
    agree(text, inputs=lambda _step: {"x": np.arange(4, dtype=np.float32)}, steps=1)


def test_a_part_of_a_quantized_tensor_stands_for_its_real_numbers(tmp_path: Path) -> None:
    path, values = tmp_path / "quantized.oinf", (np.arange(12).reshape(3, 4) - 5).tolist()
    scales = {"w": QuantScale.per_tensor(0.5), "v": QuantScale.per_channel(1, [0.5, 1, 2, 4])}
    quants = {name: QuantParams("symmetric", scale) for name, scale in scales.items()}
    save_file(path, {name: TensorSpec(values, "i8", quant=quant) for name, quant in quants.items()})
    text = """dynamic { x: f32[2, 3]; i: i32; } constant { w: i8[3, 4]; v: i8[3, 4]; }
    volatile { y: f32[2, 2]; z: f32[2, 4]; u: f32[4]; r: i8[4]; }
    block entry {
        op matmul(x, w[, 1..3]) >> y;
        op matmul(x[, 0..2], v[i..i+2, ]) >> z;
        op dequantize(v[i, ]) >> u;
        transfer v[i, ] >> r;
        return y, z, u, r;
    }"""
    agree(text, ModelLoader.open(path), lambda step: {"x": [[1, 2, 3], [4, 5, 6]], "i": step}, steps=3)


INTEGERS = """
sizes { T <= 8; N := 3; }
dynamic { x: i64[4]; z: f32[T]; k: i8; }
persistent { n: i32; m: u4 @init(3); a: i64 @init(2); t: t2 @init(-1); }
volatile { y: i64[4]; s: f32; w: f32[4]; v: i64; u: i64[4]; q: i64; }
block entry {
    loop a (l in 1..4) {
        op add(x, l) >> x;
        op cast(l, to=f32) >> s;
        transfer s >> w[l];
        transfer l >> u[l];
        loop b (j in l..N) {
            op mul(l, j) >> v;
            op add(v, q) >> q;
            cache.increment l*j-2 n;
            cache.decrement T+j m;
            op add(a=x, b=j) >> x;
        }
        cache.increment k n;
    }
    cache.increment a a;
    cache.decrement -1 n;
    cache.increment N*2 m;
    cache.increment a/3-1 t;
    op add(x, x) >> y;
    return y, w, v, u, q, x;
}
"""


@pytest.mark.parametrize("passes", [Passes(), NODE_BY_NODE], ids=["fused", "apart"])
def test_loop_indices_are_operands_and_counters_move_by_expressions(passes: Passes) -> None:
    """The counter t ends outside its dtype in one of the steps, which then has not happened."""

    def inputs(step: int) -> dict[str, object]:
        return {"x": np.arange(4) * step, "z": np.zeros((0, 3, 8)[step % 3], np.float32), "k": -step}

    agree(INTEGERS, inputs=inputs, steps=5, passes=passes)


def test_a_counter_that_its_dtype_cannot_hold_fails_the_step() -> None:
    """A ternary dtype does not wrap into itself."""
    agree("persistent { n: t2; } block entry { cache.increment n; return; }", steps=4)


def test_a_counter_does_not_move_by_a_size_without_a_value() -> None:
    text = """sizes { T <= 4; } volatile { y: f32[T]; } persistent { n: i32 @init(1); K(t): f32 @table @fixed(t=4); }
    block entry { cache.increment T n; cache.read K[0..n] >> y; return y; }"""
    module = agree(text, steps=1)
    with pytest.raises(ExecutionError):
        module.run_step()


def test_of_a_part_that_nobody_needs_the_index_is_still_checked() -> None:
    text = """dynamic { x: f32[4]; } constant { c: f32[3, 4] @init(1.5); } volatile { y: f32[4]; w: f32[4]; }
    persistent { n: i32; }
    block entry {
        op relu(x) >> y;
        cache.increment n;
        op mul(c[n, ], 3) >> w;
        op neg(x) >> w;
        return y, w;
    }"""
    agree(text, inputs=lambda _step: {"x": np.arange(4, dtype=np.float32)}, steps=3)
