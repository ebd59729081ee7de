"""How long the language takes: ``make bench-lang``.

Parsing, checking and printing a graph of 10,000 nodes, and ten times that: the second figure shows whether time grows
in step with size. Medians of a few rounds.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from openinfer.ir import Graph, validate
from openinfer.lang import parse
from openinfer.lang.format import format_source

HEAD = """dynamic { x: f32[B, D]; }
volatile { W(l): f32[D, D] @pattern("W.{l}"); }
persistent { step: i32 @init(0); K(l, t): f16[H, Dh] @table; }
block entry {
    assign h: f32[B, D];
    assign k: f16[H, Dh];
    transfer x >> h;
"""
BODY = """    loop layers_{i} (l in 0..12) {{
        cache.read K[l, step] >> k;
        op matmul(h, W[l], acc=f32) >> h with {{ group = "g{i}" }};
        op relu(h, negative_slope=0.01, clamp_max=6.0) >> h;
        cache.write k >> K[l, step+{i}];
    }}
"""
NODES_PER_LOOP = 5


def source(nodes: int) -> str:
    return HEAD + "".join(BODY.format(i=i) for i in range(nodes // NODES_PER_LOOP)) + "    return;\n}\n"


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(nodes: int, rounds: int) -> dict[str, float]:
    text = source(nodes)
    steps: dict[str, list[float]] = {}
    for _ in range(rounds):
        graph = parse(text).graph
        document = json.dumps(graph.to_json(), sort_keys=True)
        actions: dict[str, Callable[[], object]] = {
            "parse and check": lambda: parse(text),
            "check again": partial(validate, graph),
            "print": graph.to_text,
            "format": lambda: format_source(text),
            "to JSON": graph.to_json,
            "from JSON": partial(Graph.from_json, document),
        }
        for name, action in actions.items():
            steps.setdefault(name, []).append(seconds(action))
    return {name: median(times) for name, times in steps.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    parse(source(10))
    small, large = measure(10_000, options.rounds), measure(100_000, 1)
    rows = [
        (name, f"{small[name]:.3f} s", f"{large[name]:.2f} s", f"{large[name] / small[name]:.1f}x") for name in small
    ]
    together = [figures["parse and check"] + figures["print"] for figures in (small, large)]
    rows.append(
        ("parse, check, print", f"{together[0]:.3f} s", f"{together[1]:.2f} s", f"{together[1] / together[0]:.1f}x")
    )
    print(f"{'':20} {'10,000 nodes':>14} {'100,000':>10} {'growth':>8}")
    for name, *figures in rows:
        print(f"{name:20} {figures[0]:>14} {figures[1]:>10} {figures[2]:>8}")
    print("targets: parse, check, print of 10,000 nodes <= 2 s; growth <= 12x")
    folder = Path("build/bench")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lang.json").write_text(json.dumps({"10000": small, "100000": large}, indent=2))


if __name__ == "__main__":
    main()
