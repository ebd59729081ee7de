"""What the simulator costs: ``make bench-sim``.

Overhead per node is the time of a step less the time of the same NumPy work done by hand. The encoder is compared with
ONNX Runtime on the same weights, interleaved round by round, after their outputs were found to agree. Memory figures
are those of fresh processes. Nothing here is asserted: machines differ, and the table says what was measured.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from bench.onnx_writer import Onnx, ort

from openinfer import Executor, ModelLoader, Simulator, graph
from openinfer.oinf import save_file

MIB = 1 << 20
Row = dict[str, Any]
D, T, HEADS, INNER, LAYERS = 384, 128, 12, 1536, 12

ENCODER = """
dynamic { x: f32[T, D]; }
constant {
    wqkv(l): f32[3*D, D] @pattern("layer.{l}.wqkv");
    bqkv(l): f32[3*D] @pattern("layer.{l}.bqkv");
    wo(l): f32[D, D] @pattern("layer.{l}.wo");
    bo(l): f32[D] @pattern("layer.{l}.bo");
    w1(l): f32[F, D] @pattern("layer.{l}.w1");
    b1(l): f32[F] @pattern("layer.{l}.b1");
    w2(l): f32[D, F] @pattern("layer.{l}.w2");
    b2(l): f32[D] @pattern("layer.{l}.b2");
    g1(l): f32[D] @pattern("layer.{l}.g1");
    c1(l): f32[D] @pattern("layer.{l}.c1");
    g2(l): f32[D] @pattern("layer.{l}.g2");
    c2(l): f32[D] @pattern("layer.{l}.c2");
}
block entry {
    assign h: f32[T, D];
    assign qkv: f32[T, 3*D];
    assign split: f32[T, 3, H, D/H];
    assign heads: f32[3, H, T, D/H];
    assign q: f32[1, H, T, D/H];
    assign k: f32[1, H, T, D/H];
    assign v: f32[1, H, T, D/H];
    assign a: f32[1, H, T, D/H];
    assign m: f32[1, T, H, D/H];
    assign o: f32[T, D];
    assign f: f32[T, F];
    transfer x >> h;
    loop layers (l in 0..L) {
        op linear(h, wqkv[l], bqkv[l]) >> qkv;
        op reshape(qkv, shape=[T, 3, H, D/H]) >> split;
        op transpose(split, perm=[1, 2, 0, 3]) >> heads;
        op split(heads, axis=0, sizes=[1, 1, 1]) >> q, k, v;
        op sdpa(q, k, v) >> a;
        op transpose(a, perm=[0, 2, 1, 3]) >> m;
        op reshape(m, shape=[T, D]) >> o;
        op linear(o, wo[l], bo[l]) >> o;
        op add(h, o) >> h;
        op layer_norm(h, g1[l], c1[l]) >> h;
        op linear(h, w1[l], b1[l]) >> f;
        op gelu(f) >> f;
        op linear(f, w2[l], b2[l]) >> o;
        op add(h, o) >> h;
        op layer_norm(h, g2[l], c2[l]) >> h;
    }
    return h;
}
"""


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def row(what: str, found: str, peer: str, ratio: str, target: str, *, met: bool) -> Row:
    return {"what": what, "ours": found, "peer": peer, "ratio": ratio, "target": target, "met": met}


# --- overhead ---------------------------------------------------------------------------------------------------------


def bench_overhead(rounds: int) -> list[Row]:
    rows = []
    nodes = 2000
    chains: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
        "add": ("op add(h, x) >> h;", lambda h, x: h + x),
        "mul in a loop": ("op mul(h, x) >> h;", lambda h, x: h * x),
        "matmul": ("op matmul(h, x) >> h;", lambda h, x: h @ x),
        "maximum through a table": ("cache.read K[0] >> k; op max(h, k) >> h;", np.maximum),
    }
    for name, (line, by_hand) in chains.items():
        body = f"loop all (i in 0..{nodes}) {{ {line} }}" if "loop" in name else line * nodes
        text = (
            "dynamic { x: f32[4, 4]; } persistent { K(t): f32[4, 4] @table; }"
            f" block entry {{ assign h: f32[4, 4]; assign k: f32[4, 4]; {body} return; }}"
        )
        executor = Simulator().with_trace("off").make_executor(graph(text))
        x = np.ones((4, 4), np.float32)
        ours, hand = [], []
        for _ in range(rounds):
            executor.insert(x=x)
            ours.append(seconds(executor.run_step))
            hand.append(seconds(partial(_chain, by_hand, x, nodes)))
        executed = nodes * line.count(";")
        each = (median(ours) - median(hand)) / executed * 1e6
        rows.append(row(f"overhead per node: {name}", f"{each:.1f} us", "", "", "<= 20 us", met=each <= 20))
    return rows


def _chain(by_hand: Callable[[Any, Any], Any], x: Any, nodes: int) -> None:
    h = np.zeros_like(x)
    for _ in range(nodes):
        h = by_hand(h, x)


# --- the encoder ------------------------------------------------------------------------------------------------------


def encoder_weights(layers: int = LAYERS) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {
        "wqkv": (3 * D, D),
        "bqkv": (3 * D,),
        "wo": (D, D),
        "bo": (D,),
        "w1": (INNER, D),
        "b1": (INNER,),
        "w2": (D, INNER),
        "b2": (D,),
    }
    found: dict[str, Any] = {}
    for layer in range(layers):
        for name, shape in shapes.items():
            found[f"layer.{layer}.{name}"] = rng.normal(0, 0.04, shape).astype(np.float32)
        for name in ("g1", "g2"):
            found[f"layer.{layer}.{name}"] = rng.uniform(0.8, 1.2, D).astype(np.float32)
        for name in ("c1", "c2"):
            found[f"layer.{layer}.{name}"] = rng.normal(0, 0.1, D).astype(np.float32)
    return found


def encoder(folder: Path, weights: dict[str, Any]) -> Executor:
    path = folder / "encoder.oinf"
    save_file(path, weights, sizevars={"D": D, "T": T, "H": HEADS, "F": INNER, "L": LAYERS})
    return Simulator(ModelLoader.open(path)).with_trace("off").make_executor(graph(ENCODER))


def onnx_encoder(weights: dict[str, Any], length: int = T, layers: int = LAYERS) -> bytes:
    """The same encoder as an ONNX model."""
    onnx = Onnx({name: value.T if value.ndim == 2 else value for name, value in weights.items()})
    h = "x"
    for layer in range(layers):
        at = f"layer.{layer}"
        qkv = onnx.linear(h, f"{at}.wqkv", f"{at}.bqkv")
        parts = onnx.node("Reshape", qkv, onnx.ints(length, 3, HEADS, D // HEADS))
        heads = onnx.node("Transpose", parts, perm=[1, 2, 0, 3])
        q, k, v = onnx.nodes_of("Split", (heads,), (f"{at}.q", f"{at}.k", f"{at}.v"), axis=0, num_outputs=3)
        raw = onnx.node("MatMul", q, onnx.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = onnx.node("Mul", raw, onnx.number((D // HEADS) ** -0.5))
        mixed = onnx.node("MatMul", onnx.node("Softmax", scores, axis=-1), v)
        merged = onnx.node("Reshape", onnx.node("Transpose", mixed, perm=[0, 2, 1, 3]), onnx.ints(length, D))
        total = onnx.node("Add", h, onnx.linear(merged, f"{at}.wo", f"{at}.bo"))
        h = onnx.node("LayerNormalization", total, f"{at}.g1", f"{at}.c1", epsilon=1e-5)
        f = onnx.gelu(onnx.linear(h, f"{at}.w1", f"{at}.b1"))
        total = onnx.node("Add", h, onnx.linear(f, f"{at}.w2", f"{at}.b2"))
        h = onnx.node("LayerNormalization", total, f"{at}.g2", f"{at}.c2", epsilon=1e-5)
    x = np.zeros((length, D), np.float32)
    return onnx.model({"x": x}, {h: x.shape})


def bench_encoder(folder: Path, rounds: int) -> list[Row]:
    weights = encoder_weights()
    executor, session = encoder(folder, weights), ort(onnx_encoder(weights), threads=2)
    x = np.random.default_rng(1).normal(size=(T, D)).astype(np.float32)

    def ours() -> None:
        executor.insert(x=x)
        executor.run_step()

    ours()
    (wanted,) = session.run(None, {"x": x})
    error = float(np.abs(executor.fetch("h") - wanted).max())
    assert error < 1e-3, f"the two encoders disagree by {error}"
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(rounds):
        times["ours"].append(seconds(ours))
        times["theirs"].append(seconds(lambda: session.run(None, {"x": x})))
    one, other = median(times["ours"]), median(times["theirs"])
    return [
        row(
            f"encoder forward, {LAYERS} layers, d={D}, T={T} (outputs agree within {error:.0e})",
            f"{one * 1e3:.1f} ms",
            f"{other * 1e3:.1f} ms (ONNX Runtime)",
            f"{one / other:.2f}x",
            "<= 8x",
            met=one <= 8 * other,
        )
    ]


# --- memory -----------------------------------------------------------------------------------------------------------

PROBE = """
import json, os, re, sys
import numpy as np
from openinfer import ModelLoader, Simulator, graph
text, path = sys.argv[1:3]
def highest():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
baseline = highest()
model = ModelLoader.open(path)
executor = Simulator(model).with_trace("off").make_executor(graph(text))
for _ in range(3):
    executor.insert(x=np.ones((256, 1024), np.float32))
    executor.run_step()
peak = highest()
resident = 0
own = False
for line in open("/proc/self/smaps"):
    if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
        own = os.path.basename(path) in line
    elif own and line.startswith("Rss:"):
        resident += int(line.split()[1]) * 1024
print(json.dumps({"peak": peak - baseline, "resident": resident}))
"""
LAYERED = """
dynamic {{ x: f32[256, 1024]; }}
volatile {{ W(l): f32[1024, 1024] @pattern("W.{{l}}"); }}
block entry {{
    assign h: f32[256, 1024];
    assign g: f32[256, 1024];
    transfer x >> h;
    loop layers (l in 0..{layers}) {{ op matmul(h, W[l]) >> g; op relu(g) >> h; }}
    return h;
}}
"""


def probe(text: str, path: Path) -> dict[str, int]:
    command = [sys.executable, "-c", PROBE, text, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    found: dict[str, int] = json.loads(ended.stdout)
    return found


def bench_memory(folder: Path) -> list[Row]:
    path = folder / "hundred.oinf"
    rng = np.random.default_rng(2)
    save_file(path, {f"W.{layer}": rng.random((1024, 1024), np.float32) for layer in range(100)})
    tensor = 1024 * 1024 * 4
    all_of_it, one_of_it = probe(LAYERED.format(layers=100), path), probe(LAYERED.format(layers=1), path)
    live = 3 * 256 * 1024 * 4
    limit = 100 * tensor + live + 100 * MIB
    return [
        row(
            "peak memory, 100 tensors of 4 MiB used",
            f"{all_of_it['peak'] / MIB:.0f} MiB",
            f"{limit / MIB:.0f} MiB (weights + live + 100)",
            "",
            "<= limit",
            met=all_of_it["peak"] <= limit,
        ),
        row(
            "peak memory, 1 of 100 tensors used",
            f"{one_of_it['peak'] / MIB:.0f} MiB",
            f"{(tensor + live) / MIB + 100:.0f} MiB (weights + live + 100)",
            "",
            "<= limit",
            met=one_of_it["peak"] <= tensor + live + 100 * MIB,
        ),
        row(
            "pages of the file read, 1 of 100 tensors used",
            f"{one_of_it['resident'] / MIB:.1f} MiB",
            f"{tensor / MIB:.0f} MiB (the tensor)",
            f"{one_of_it['resident'] / tensor:.2f}x",
            "<= 1.1x",
            met=one_of_it["resident"] <= 1.1 * tensor,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = [*bench_overhead(options.rounds), *bench_encoder(folder, options.rounds), *bench_memory(folder)]
    for one in rows:
        verdict = "ok  " if one["met"] else "MISS"
        print(f"{verdict} {one['what']}: {one['ours']} {one['peer']} {one['ratio']} (target {one['target']})")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
