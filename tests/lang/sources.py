"""Small source texts that together use the whole language: what the mutants are made from."""

from functools import cache
from random import Random

from tests.ir.strategies import random_graph

WRITTEN = (
    (
        "dynamic { x: f32[B]; }\nvolatile { a: f32[B]; y: f32[B] @init(5.0); }\n"
        "block entry {\n    assign t0: f32[B];\n    op add(x, a) >> t0;\n    op mul(y, t0) >> y;\n    return;\n}\n"
    ),
    (
        'sizes { T <= 2048; S := 3*T+1; }\nconstant { W(l): f16[D, 3*D] @pattern("W.{l}"); eps: f64 @ref("e\\"ps"); }\n'
        "dynamic { h: f16[D]; }\nblock entry {\n"
        "    loop layers (l in 0..num_layers) { op matmul(h, W[l], e=eps, acc=f32) >> h with { fuse = true }; }\n"
        "    return h;\n}\n"
    ),
    (
        "persistent {\n    step: i32 @init(0);\n    K(l, t): f16[H] @table @fixed(l=24, t=2048);\n}\n"
        "volatile { k: f16[H]; }\n"
        "block entry {\n    cache.read K[1, step-1] >> k;\n    cache.write k >> K[0..-3, ];\n"
        "    cache.increment 5 step;\n"
        "    cache.decrement step;\n    cache.reset K[1];\n    cache.reset K;\n    return;\n}\n"
    ),
    (
        "persistent { M(r, c): f32[D, H] @auto_dim(r, c); n: u8; }\nvolatile { m: f32[D, H]; }\n"
        "block entry { cache.read M[n, 3] >> m; cache.write m >> M[n..n+1, ..2*n]; cache.read M[] >> m; return; }\n"
    ),
    (
        "dynamic { x: f32[4]; y: f32[2, 4]; i: i32; }\npersistent { n: i32; }\nblock entry {\n"
        "    op add(x, -1.5) >> y[1, ];\n    op max(0, x[i..i+2]) >> y[, ..2];\n    op where(true, y[0, ], inf) >> x;\n"
        "    transfer 0x10 >> i;\n    cache.write -3 >> n;\n    cache.increment 2*n-i n;\n    cache.decrement i n;\n"
        "    loop a (l in 0..3) { t, u = op f(l, to=f32); op mul(x, t) >> x; cache.increment l n; }\n    return x;\n}\n"
    ),
    (
        "dynamic { c: bool; x: i8[2]; }\nblock entry { branch c ok bad; branch ok; barrier; return x; }\n"
        'block ok { transfer x >> x; return; }\nblock bad with { group = "g", n = [1, 2] } { return; }\n'
    ),
    (
        "dynamic { x: f32; z: f32; }\nblock entry { yield x; await x; return; }\n"
        "block worker { await x; op relu(a=x) >> x; yield x, z; }\n"
    ),
    (
        "graph! {\n    model: model,\n    inputs { x : f32 [B]; }\n    outputs { y : f32 [B]; }\n    block entry {\n"
        '        t0 = op add(a=x, b=x);\n        y = op mul(a=t0, b=model["scale"]) with { placement = "gpu" };\n'
        "        return y;\n    }\n}\n"
    ),
    (
        "let (g, out) = graph! { state { c: buffer(f32, [B, T, D]); } dynamic { i: i32; h: f32[B, D]; }\n"
        "block entry { effect write(c, index=i, value=h); q = effect read(c, index=i - 1, axis=1); return q; } };\n"
    ),
    (
        'dynamic { x: f32; }\nblock entry {\n    scope "attention" {\n        op f(x, model[fmt("W")]) >> x;\n'
        "        dep after(f) before(cache.write); // why\n    }\n"
        "    loop a (i in 0..2) { block body { op f(x) >> x; } }\n"
        "    cache.write x >> s;\n    return;\n}\npersistent { s: f32; }\n"
    ),
    (
        "/* values */ dynamic { x: f32 @note(1, a=[f32, i8], b=-inf) @pin; }\nblock entry {\n"
        '    op f(x, a=0xFF, b=-1_000, c=1.5e-3, d=nan, e="é\\n", g=[1.0, -2], h=[1, D], i=true, j=D*(H-1)%2) >> x;\n'
        "    return;\n}\n"
    ),
    (
        'constants { W(l): f8e5m2 pattern("W.{l}"); }\nvolatile { a: bool @init(true); b: t1 @init(-1); c: u64; }\n'
        "block entry { loop l (i in -1..(2)) { transfer W[i] >> c; } op topk(a) >> b, c; return; }\n"
    ),
)
RANDOM = 5


@cache
def sources() -> tuple[str, ...]:
    """The written texts and some random graphs of a similar length."""
    found: list[str] = []
    seed = 0
    while len(found) < RANDOM:
        text = random_graph(Random(seed)).to_text()
        seed += 1
        if 300 < len(text) < 700:
            found.append(text)
    return (*WRITTEN, *found)
