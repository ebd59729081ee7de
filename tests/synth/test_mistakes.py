"""The same mistake has the same code, whoever runs the graph: one table, and each of its rows in both.

A row is the nodes of a block, the inputs of a step that runs it, and the code.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import planned
from tests.synth.flags import TRAPS

from openinfer import ExecutionError, ModelLoader, Simulator, graph
from openinfer.errors import Code
from openinfer.oinf import save_file

FAR = (1 << 62) + 1
LONG = (1 << 64) - 1
MISTAKES: dict[str, tuple[str, dict[str, Any], Code]] = {
    # --- indices ---
    "negative index": ("cache.read K[n] >> a;", {"n": -1}, Code.NEGATIVE_INDEX),
    "negative index of a growing table": ("cache.write a >> G[n];", {"n": -3}, Code.NEGATIVE_INDEX),
    "negative index of a tensor": ("cache.read p[n, ] >> a;", {"n": -1}, Code.NEGATIVE_INDEX),
    "index outside": ("cache.read K[n] >> a;", {"n": 4}, Code.INDEX_OUT_OF_RANGE),
    "index outside of a tensor": ("cache.write a >> p[n, ];", {"n": 3}, Code.INDEX_OUT_OF_RANGE),
    "the first of two is outside": ("cache.read KK[n, m] >> a;", {"n": 9, "m": -1}, Code.INDEX_OUT_OF_RANGE),
    "the first of two is negative": ("cache.read KK[n, m] >> a;", {"n": -1, "m": 9}, Code.NEGATIVE_INDEX),
    "slice outside": ("cache.write pp >> K[n..n+3];", {"n": 3}, Code.INDEX_OUT_OF_RANGE),
    "index divides by zero": ("cache.read K[m/n] >> a;", {"n": 0}, Code.BAD_VALUE),
    "index is a rest of nothing": ("cache.read K[m%n] >> a;", {"n": 0}, Code.BAD_VALUE),
    "no tensor": ("op neg(W[n]) >> a;", {"n": 2}, Code.UNKNOWN_LINK),
    "no tensor of a negative number": ("op neg(W[n]) >> a;", {"n": -1}, Code.UNKNOWN_LINK),
    "no tensor to write": ("op neg(a) >> V[n];", {"n": 7}, Code.UNKNOWN_LINK),
    # --- more than 64 bits ---
    "product of 128 bits": ("cache.read K[n*n/n - n + 1] >> a;", {"n": FAR}, Code.INDEX_OUT_OF_RANGE),
    "sum of 65 bits": ("cache.read K[n+n-n-n] >> a;", {"n": FAR}, Code.INDEX_OUT_OF_RANGE),
    "difference of 65 bits": ("cache.read K[m-n-1+n-m+1] >> a;", {"n": -(1 << 63)}, Code.INDEX_OUT_OF_RANGE),
    "quotient of 65 bits": ("cache.read K[n/(m-1)] >> a;", {"n": -(1 << 63)}, Code.INDEX_OUT_OF_RANGE),
    "loop of 65 bits": ("loop l (i in 0..n+n) { op neg(a) >> a; }", {"n": FAR}, Code.INDEX_OUT_OF_RANGE),
    "loop from 65 bits": ("loop l (i in n*n..m) { op neg(a) >> a; }", {"n": FAR}, Code.INDEX_OUT_OF_RANGE),
    "index of u64": ("cache.read K[u] >> a;", {"u": (1 << 64) - 1}, Code.INDEX_OUT_OF_RANGE),
    "loop to u64": ("loop l (i in 0..u) { op neg(a) >> a; }", {"u": 1 << 63}, Code.INDEX_OUT_OF_RANGE),
    "tensor of 65 bits": ("op neg(W[n+n]) >> a;", {"n": FAR}, Code.INDEX_OUT_OF_RANGE),
    "the last index": ("cache.read G[n] >> a;", {"n": (1 << 63) - 1}, Code.INDEX_OUT_OF_RANGE),
    "slice to the end of 64 bits": ("cache.write pp >> K[n..n+3];", {"n": (1 << 63) - 1}, Code.INDEX_OUT_OF_RANGE),
    "a table of more than there is": ("cache.write a >> G[n];", {"n": FAR}, Code.OUT_OF_MEMORY),
    "count of 128 bits": ("cache.increment n*n count;", {"n": FAR}, Code.INDEX_OUT_OF_RANGE),
    "count divides by zero": ("cache.decrement m/n count;", {"n": 0}, Code.BAD_VALUE),
    "tensor of a rest of u64": ("op neg(W[u%2]) >> a;", {"u": LONG}, Code.INDEX_OUT_OF_RANGE),
    # --- the first of several mistakes counts, whatever C computes first ---
    "left divides by zero": ("cache.read K[m%n-(u+n)] >> a;", {"u": LONG}, Code.BAD_VALUE),
    "left needs more bits": ("cache.read K[u+n-m%n] >> a;", {"u": LONG}, Code.INDEX_OUT_OF_RANGE),
    "left of three divides by zero": ("cache.read K[m/n+(u+m%n)] >> a;", {"u": LONG}, Code.BAD_VALUE),
    "middle of three needs more bits": ("cache.read K[n+(u*m-m%n)] >> a;", {"u": LONG}, Code.INDEX_OUT_OF_RANGE),
    "start divides by zero": ("cache.read G[m%n..u] >> pp;", {"u": LONG}, Code.BAD_VALUE),
    "start needs more bits": ("cache.read G[u..m%n] >> pp;", {"u": LONG}, Code.INDEX_OUT_OF_RANGE),
    "first index divides by zero": ("cache.read KK[m%n, u] >> a;", {"u": LONG}, Code.BAD_VALUE),
    "first index needs more bits": ("cache.read KK[u, m%n] >> a;", {"u": LONG}, Code.INDEX_OUT_OF_RANGE),
    "index of a matrix before its key": ("cache.read B[m%n, u] >> pp;", {"u": LONG}, Code.BAD_VALUE),
    "index of a part divides by zero": ("cache.read p[m%n, u..] >> a;", {"u": LONG}, Code.BAD_VALUE),
    "loop from a quotient by zero": ("loop l (i in m/n..u) { op neg(a) >> a; }", {"u": LONG}, Code.BAD_VALUE),
    "count of a rest of nothing": ("cache.increment m%n-u count;", {"u": LONG}, Code.BAD_VALUE),
    "tensor of a rest of nothing": ("op neg(W[m%n-u]) >> a;", {"u": LONG}, Code.BAD_VALUE),
    "no index behind one outside": ("op neg(WW[m-9, u]) >> a;", {"u": LONG}, Code.INDEX_OUT_OF_RANGE),
    # --- lengths and sizes ---
    "slice of another length": ("cache.read K[0..n] >> pp;", {"n": 2}, Code.SHAPE_MISMATCH),
    "far too long a slice": ("cache.read G[0..n] >> pp;", {"n": FAR}, Code.SHAPE_MISMATCH),
    "far too long a slice for a size": ("cache.read G[0..n] >> s;", {"n": FAR}, Code.SIZE_CONFLICT),
    "value of another length": ("cache.write pp >> K[0..n];", {"n": 2}, Code.SHAPE_MISMATCH),
    "value of another size": ("cache.write x >> K[0..n];", {"n": 2}, Code.SHAPE_MISMATCH),
    "part of another length": ("cache.write pp >> p[0..n, ];", {"n": 2}, Code.SHAPE_MISMATCH),
    "slice disagrees with a size": ("cache.read K[0..n] >> t;", {"n": 2}, Code.SIZE_CONFLICT),
    "size beyond its bound": ("cache.read K[0..n] >> s;", {"n": 3}, Code.SIZE_CONFLICT),
    "size without a value": ("op sum_axis(s, axes=[0]) >> a;", {}, Code.SIZE_CONFLICT),
    "uneven dimension": ("cache.read K[0..n] >> half; op sum_axis(half, axes=[0]) >> a;", {"n": 1}, Code.BAD_SHAPE),
    "uneven dimension of an initial value": ("op sum_axis(half, axes=[0]) >> a;", {}, Code.BAD_SHAPE),
    "negative dimension of an initial value": ("op sum_axis(less, axes=[0]) >> a;", {}, Code.BAD_SHAPE),
    "uneven dimension of a value": (
        "op slice(x, axes=[0], starts=[0], ends=[T/2]) >> half; op sum_axis(half, axes=[0]) >> a;",
        {},
        Code.BAD_SHAPE,
    ),
    "negative dimension": ("cache.read K[0..n] >> less;", {"n": 0}, Code.SIZE_CONFLICT),
    "window that does not fit": ("op conv1d(im, w4) >> im2;", {}, Code.SHAPE_MISMATCH),
    "disagreement with an uneven dimension": ("cache.read K[0..n] >> half;", {"n": 2}, Code.BAD_SHAPE),
    "slice that wraps around zero": ("op sum_axis(G[n..n+3], axes=[0]) >> a;", {"n": -1}, Code.SHAPE_MISMATCH),
    "part that wraps around zero": ("op sum_axis(p[n..n+2, ], axes=[0]) >> a;", {"n": -1}, Code.SHAPE_MISMATCH),
    "slice of a size that wraps": ("op sum_axis(G[n..n+T], axes=[0]) >> a;", {"n": -1}, Code.SIZE_CONFLICT),
    "more of a matrix than there can be": ("op sum_axis(M[0..n], axes=[0]) >> a;", {"n": 7}, Code.SIZE_CONFLICT),
    "far too much of a matrix": ("op sum_axis(M[0..n], axes=[0]) >> a;", {"n": FAR}, Code.SIZE_CONFLICT),
    "far too much of a matrix for a variable": ("cache.read M[0..n] >> pp;", {"n": FAR}, Code.SHAPE_MISMATCH),
    "far too much of a matrix for a size": ("cache.read M[0..n] >> s;", {"n": FAR}, Code.SIZE_CONFLICT),
    "slices written alike of other lengths": (
        "op add(p[0..n, ], five[0..n, ]) >> grown; op sum_axis(grown, axes=[0]) >> a;",
        {"n": -1},
        Code.SHAPE_MISMATCH,
    ),
    "slices written alike of a longer matrix": (
        "op add(B[0..n, 0], M[0..n]) >> grown; op sum_axis(grown, axes=[0]) >> a;",
        {"n": 7},
        Code.SIZE_CONFLICT,
    ),
    # --- nodes whose results nothing reads ---
    "dead tensor of a loop": ("loop l (i in 0..n) { op neg(W[i]) >> dead; }", {"n": 3}, Code.UNKNOWN_LINK),
    "dead copy of a tensor of a loop": ("loop l (i in 0..n) { transfer W[i] >> dead; }", {"n": 3}, Code.UNKNOWN_LINK),
    "dead tensor that is not there": ("loop l (i in 0..n) { op neg(gap[i]) >> dead; }", {"n": 2}, Code.UNKNOWN_LINK),
    "dead tensor of a size": ("op neg(W[T]) >> dead;", {}, Code.UNKNOWN_LINK),
    "dead tensor of a scalar": ("op neg(W[n]) >> dead;", {"n": 2}, Code.UNKNOWN_LINK),
    "dead tensor of 65 bits": ("op neg(W[n+n]) >> dead;", {"n": FAR}, Code.INDEX_OUT_OF_RANGE),
    "dead tensor of a rest of u64": ("op neg(W[u%2]) >> dead;", {"u": LONG}, Code.INDEX_OUT_OF_RANGE),
    "dead tensors that are always there": (
        "op neg(W[n%2]) >> dead; op neg(W[b%2]) >> dead; op neg(WW[b%2, n-4]) >> dead; cache.read K[n] >> a;",
        {"n": 4},
        Code.INDEX_OUT_OF_RANGE,
    ),
    "tensor that is always the same": (
        "op neg(only[b%1]) >> a; cache.read K[n] >> a;",
        {"n": 4},
        Code.INDEX_OUT_OF_RANGE,
    ),
    "dead read": ("cache.read K[n] >> dead;", {"n": 4}, Code.INDEX_OUT_OF_RANGE),
    "dead gather": ("op gather(p, g, axis=0) >> dead3;", {"n": 5}, Code.BAD_VALUE),
    "dead quotient": ("op div(zero, zero) >> zero;", {}, Code.BAD_VALUE),
    "dead value without a size": ("op neg(s) >> s;", {}, Code.SIZE_CONFLICT),
    # --- values ---
    "no result for a value": ("op gather(p, g, axis=0) >> picked;", {"n": 5}, Code.BAD_VALUE),
}
TENSORS = ("W.0", "W.1", "gap.0", "gap.2", "only.0", "WW.0.0", "WW.1.0")
DECLARED = """
sizes { T <= 8; S <= 2; R <= 9; }
dynamic { n: i64; m: i64; u: u64; b: u8; x: f32[T, 2]; }
volatile {
    a: f32[2]; pp: f32[3, 2]; s: f32[S, 2]; t: f32[T, 2]; half: f32[T/2, 2]; less: f32[T-4, 2]; im: f32[1, 1, T];
    im2: f32[1, 1, T-3]; w4: f32[1, 1, 4]; V(l): f32[2] @pattern("W.{l}"); picked: f32[1, 2]; g: i64[1] @init(5);
    q: f32; grown: f32[R, 2]; dead: f32[2]; dead3: f32[1, 2]; zero: i32[2];
}
constant {
    W(l): f32[2] @pattern("W.{l}"); gap(l): f32[2] @pattern("gap.{l}"); only(l): f32[2] @pattern("only.{l}");
    WW(i, j): f32[2] @pattern("WW.{i}.{j}");
}
persistent {
    count: i32;
    K(t): f32[2] @table @fixed(t=4); KK(i, j): f32[2] @table @fixed(i=4, j=4); G(t): f32[2] @table; p: f32[3, 2];
    M(i): f32[2, 2] @auto_dim(i) @fixed(i=4); B(i, k): f32[2, 2] @table @auto_dim(i) @fixed(i=6, k=4);
    five: f32[5, 2];
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    path: Path = tmp_path_factory.mktemp("model") / "tiny.oinf"
    save_file(path, {name: np.ones(2, np.float32) for name in TENSORS})
    return ModelLoader.open(path)


@pytest.fixture(scope="module")
def both(model: ModelLoader) -> list[Any]:
    """A graph with a block for each mistake, which a flag chooses, as an executor and as a module."""
    flags = " ".join(f"c{place}: bool;" for place in range(len(MISTAKES)))
    branches = " ".join(f"branch c{place} b{place} idle;" for place in range(len(MISTAKES)))
    blocks = [f"block b{place} {{ {nodes} return; }}" for place, (nodes, _, _) in enumerate(MISTAKES.values())]
    entry = f"block entry {{ {branches} return a, q; }} block idle {{ return; }}"
    text = "\n".join([DECLARED, f"dynamic {{ {flags} }}", entry, *blocks])
    return [Simulator(model).make_executor(graph(text)), planned(text, model).build("gcc", TRAPS)]


def failure(one: Any, inputs: dict[str, Any]) -> ExecutionError:
    with pytest.raises(ExecutionError) as caught:
        one(inputs)
    return caught.value


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_one_code_and_one_place(name: str, both: list[Any]) -> None:
    _, given, code = MISTAKES[name]
    inputs = {"n": 0, "m": 0, "u": 0, "b": 0, "x": np.ones((3, 2), np.float32), **given}
    flags = {f"c{place}": other == name for place, other in enumerate(MISTAKES)}
    wanted, found = (failure(one, {**inputs, **flags}) for one in both)
    assert (wanted.code, found.code) == (code, code), f"{wanted}\n{found}"
    assert found.diagnostics[0].span == wanted.diagnostics[0].span


def test_nothing_is_wrong_where_no_mistake_is_made(both: list[Any]) -> None:
    for one in both:
        one(n=0, m=0, u=0, b=0, x=np.ones((3, 2), np.float32), **{f"c{place}": False for place in range(len(MISTAKES))})
