"""Graphs for what examples and random graphs do not reach: sizes that are solved for, long sums, products of bytes."""

GRAPHS = {
    "separable": """
dynamic { x: f32[1, 3, 15, 14]; }
volatile { w: f32[24, 3, 3, 3]; d: f32[24, 1, 5, 3]; p: f32[40, 24, 1, 1]; b: f32[40]; e: f32[40, 1, 3, 3]; }
block entry {
    h = op conv2d(x, w, pads=[1], strides=[2]);
    u = op conv2d(h, d, pads=[2, 1], groups=24);
    v = op relu(u);
    y = op conv2d(v, p, b);
    z = op conv2d(y, e, pads=[1], groups=40);
    s = op global_avg_pool(z);
    t = op mul(z, s);
    return s, t;
}
""",
    "solved": """
sizes { P <= 8; T <= 4; N <= 9; }
dynamic { a: i32[P+T]; b: i32[P-T]; c: i32[2*P+T]; x: f32[2*N+1]; y: f32[3*N]; }
volatile { z: i32[P+T]; }
block entry { op add(a, a) >> z; u = op exp(x); v = op sqrt(y); return z, u, v; }
""",
    "sliced": """
sizes { P <= 8; T <= 4; N <= 5; A <= 4; B <= 4; }
dynamic { x: f32[T, 2]; n: i32; m: i32; o: i32; }
volatile { every: f32[P+T, 2]; y: f32[P, 2]; odd: f32[2*N+1, 2]; both: f32[A+B, 2]; one: f32[A, 2]; }
persistent { K(t): f32[2] @table @fixed(t=12); count: i32; }
block entry {
    cache.write x >> K[count..count+T];
    cache.read K[0..n] >> every;
    op slice(every, axes=[0], starts=[0], ends=[P]) >> y;
    cache.read K[0..m] >> odd;
    cache.read K[0..o] >> one;
    cache.read K[0..n] >> both;
    cache.increment count;
    return y, odd, both, one;
}
""",
    "consumers": """
sizes { T <= 8; }
dynamic { x: f32[4]; }
volatile { h: f32[4]; y: f32[T, 4]; s: f32[4]; }
persistent { K(t): f32[4] @table @fixed(t=8); count: i32; }
block entry {
    op exp(x) >> h;
    cache.write h >> K[count];
    cache.increment count;
    yield h;
    await h;
    op add(h, h) >> s;
    return s, y;
}
block reader { await h; cache.read K[0..count] >> y; op sqrt(y) >> y; yield h; }
""",
    "long": """
sizes { T <= 70000; }
dynamic {
    x: f32[300, 300, 3]; flat: f32[T]; w: f32[1, 3000]; v: f32[3000, 2]; a: f32[4, T]; b: f32[T, 20];
    q: f32[1, 3, 4]; k: f32[1, 20000, 4]; im: f32[1, 2000, 4, 4]; f: f32[3, 2000, 3, 3];
}
block entry {
    total = op sum_axis(x);
    mean = op mean_axis(flat, axes=[0]);
    spread = op var_axis(x);
    product = op matmul(w, v);
    running = op cumsum(flat, axis=0, exclusive=true, reverse=true);
    deep = op matmul(a, b);
    row = op matmul(a[0..1, ], b);
    attention = op sdpa(q, k, k);
    windows = op conv2d(im, f);
    return total, mean, spread, product, running, deep, row, attention, windows;
}
""",
    "bytes": """
sizes { T <= 20; }
dynamic {
    a: i8[T, 33]; b: i8[33, 40]; c: i8[40, 33]; d: u8[33, 7]; e: u8[5, 33]; f: i8[40, 64]; g: i8[9, 64]; h: u8[5, 64];
}
constant { W: i8[33, 24]; U: u8[64, 24]; }
block entry {
    p = op matmul(a, b, acc=i32);
    q = op linear(a, c, acc=i32);
    r = op matmul(e, d, acc=i32);
    s = op matmul(a, W, acc=i32);
    t = op linear(g, f, acc=i32);
    u = op matmul(h, U, acc=i32);
    return p, q, r, s, t, u;
}
""",
    "panels": """
sizes { T <= 20; }
dynamic { x: f32[12, 33]; y: f32[33, 45]; z: f32[45, 33]; u: f32[T, 33]; v: f64[33, 13]; w: f64[7, 33]; }
constant { Q: i4[45, 33]; R: u4[64, 33]; S: i8[50, 33]; }
block entry {
    a = op matmul(x, y);
    b = op linear(x, z);
    c = op matmul(u, y);
    d = op matmul(w, v);
    e = op linear(u, Q);
    f = op linear(x, R);
    g = op linear(x, S);
    i = op linear(x[0..1, ], R);
    return a, b, c, d, e, f, g, i;
}
""",
}
