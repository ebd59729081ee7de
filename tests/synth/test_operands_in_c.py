"""What stands in the place of operands in generated C, next to the simulator: literals and parts of tensors."""

from pathlib import Path

import numpy as np
import pytest
from tests.synth.both_ways import agree

from openinfer import ModelLoader
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file
from openinfer.synth.synthesizer import Passes

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


@pytest.mark.parametrize("passes", [Passes(), Passes(fuse=None)], ids=["fused", "apart"])
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
