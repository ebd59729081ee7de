"""MiniLM behind ``openinfer serve`` and behind mlserver with ONNX Runtime: ``make bench-serve``.

First both in turns, a few seconds each, with more and more clients: requests a second, and how long the slowest of a
hundred waits. Then ours alone for as long as is asked, every answer checked, while its memory is watched.
"""

import argparse
import json
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from bench.minilm import GRAPH, minilm
from bench.models import Model
from bench.serving.client import Load, Question, loaded
from bench.serving.servers import RunningServer, install_peer, ours, peer

FOLDER = Path("build/bench/serving")
QUESTIONS = 64
GOAL = 1.2


@dataclass(frozen=True)
class Measured:
    """A server under the load of a number of clients."""

    name: str
    clients: int
    load: Load

    @property
    def p99(self) -> float:
        return self.load.percentile(99)


def questions(model: Model, *, is_onnx: bool) -> list[Question]:
    """Requests with tokens of their own, and the vectors that they must give: one more engine says which."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model.onnx(), providers=["CPUExecutionProvider"])
    random, found = np.random.default_rng(3), []
    shape = list(model.inputs["ids"].shape)
    for _ in range(QUESTIONS):
        ids = random.integers(1000, 30522, shape)
        (wanted,) = session.run(None, {"ids": ids, "mask": np.ones(shape, np.float32)})
        kinds: tuple[tuple[str, str, Any], ...] = (
            ("ids", "INT64" if is_onnx else "INT32", ids.reshape(-1).tolist()),
            ("mask", "FP32" if is_onnx else "BOOL", [1.0 if is_onnx else True] * ids.size),
        )
        tensors = [{"name": name, "shape": shape, "datatype": kind, "data": data} for name, kind, data in kinds]
        found.append(Question("/v2/models/minilm/infer", {"inputs": tensors}, wanted.reshape(-1)))
    return found


def compared(
    servers: list[tuple[RunningServer, list[Question]]], clients: list[int], rounds: int, seconds: float
) -> list[Measured]:
    """All servers with all numbers of clients, in turns."""
    loads = {(server.name, count): Load() for server, _ in servers for count in clients}
    for server, asked in servers:
        loaded(server.port, asked, max(clients), seconds)  # what is slow at first is not counted
    for number in range(rounds):
        for count in clients:
            for server, asked in servers if number % 2 else servers[::-1]:
                before, load = server.cpu_seconds(), loaded(server.port, asked, count, seconds)
                load.cpu_seconds = server.cpu_seconds() - before
                loads[server.name, count].add(load)
    return [Measured(name, count, load) for (name, count), load in loads.items()]


def at_equal_p99(measured: list[Measured]) -> tuple[Measured, Measured] | None:
    """The other server at its best, and ours where the slowest of a hundred waits no longer than there."""
    others = [one for one in measured if one.name != "OpenInfer"]
    best = max(others, key=lambda one: one.load.rate)
    own = [one for one in measured if one.name == "OpenInfer" and one.p99 <= best.p99]
    return (max(own, key=lambda one: one.load.rate), best) if own else None


def endured(server: RunningServer, asked: list[Question], seconds: float, clients: int) -> dict[str, Any]:
    """A long load: whether memory grows after the first fifth, and whether every answer is right."""
    total, sizes, start = Load(), list[tuple[float, int]](), perf_counter()
    while perf_counter() - start < seconds:
        left = seconds - (perf_counter() - start)
        total.add(loaded(server.port, asked, clients, min(max(seconds / 50, 1.0), left)))
        sizes.append((perf_counter() - start, server.resident_bytes()))
        total.latencies = total.latencies[-2_000_000:]
    warm = [size for at, size in sizes if at > seconds / 5] or [sizes[-1][1]]
    half = len(warm) // 2
    growth = max(warm[half:]) - max(warm[:half] or warm)
    return {
        "seconds": round(total.seconds, 1),
        "answers": len(total.latencies),
        "wrong": len(total.wrong),
        "first_wrong": total.wrong[:3],
        "refused": total.refused,
        "requests_a_second": round(total.rate, 2),
        "p50_ms": round(total.percentile(50) * 1e3, 2),
        "p99_ms": round(total.percentile(99) * 1e3, 2),
        "memory_first_MB": round(max(warm[:half] or warm) / 1e6, 2),
        "memory_last_MB": round(max(warm[half:]) / 1e6, 2),
        "growth_MB": round(growth / 1e6, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.serving", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long ours is under load alone")
    parser.add_argument("--rounds", type=int, default=4, help="turns of every server")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--alone", action="store_true", help="no other server")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    cores, model = len(os.sched_getaffinity(0)), minilm(1, given.tokens)
    model.saved(FOLDER).close()
    facts: dict[str, Any] = {"cores": cores, "model": model.name}
    with ExitStack() as stack:
        own = stack.enter_context(ours(GRAPH, FOLDER / "model.oinf", model.settled, cores, FOLDER))
        asked = questions(model, is_onnx=False)
        if not given.alone:
            install_peer()
            with ExitStack() as peers:
                others = questions(model, is_onnx=True)
                running = [(peers.enter_context(peer(model.onnx(), count, FOLDER)), others) for count in (cores, 0)]
                measured = compared([(own, asked), *running], given.clients, given.rounds, given.seconds)
            facts["compared"] = _table(measured)
            facts["equal_p99"] = _verdict(at_equal_p99(measured))
        facts["endured"] = endured(own, asked, given.minutes * 60, 2 * cores)
        print(f"ours alone: {json.dumps(facts['endured'])}")
    (FOLDER / "serving.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    wrong = facts["endured"]["wrong"] + sum(one["wrong"] for one in facts.get("compared", ()))
    sys.exit(f"{wrong} answers are wrong" if wrong else 0)


def _table(measured: list[Measured]) -> list[dict[str, Any]]:
    rows = []
    heads = f"{'p50 ms':>8} {'p99 ms':>8} {'cpu ms':>7}"
    print(f"{'server':24} {'clients':>7} {'requests/s':>10} {heads} {'answers':>8} {'wrong':>5}")
    for one in measured:
        p50, p99 = one.load.percentile(50) * 1e3, one.p99 * 1e3
        count, wrong = len(one.load.latencies), len(one.load.wrong)
        cpu = one.load.cpu_seconds / max(count, 1) * 1e3
        times = f"{p50:8.2f} {p99:8.2f} {cpu:7.2f}"
        print(f"{one.name:24} {one.clients:7} {one.load.rate:10.1f} {times} {count:8} {wrong:5}")
        rows.append(
            {
                "server": one.name,
                "clients": one.clients,
                "requests_a_second": one.load.rate,
                "p50_ms": p50,
                "p99_ms": p99,
                "cpu_ms": cpu,
                "answers": count,
                "wrong": wrong,
            }
        )
    return rows


def _verdict(pair: tuple[Measured, Measured] | None) -> dict[str, Any]:
    if pair is None:
        print("ours has no load at which the slowest of a hundred waits as long as behind mlserver at its best")
        return {"ratio": None}
    own, other = pair
    ratio = own.load.rate / other.load.rate
    print(
        f"{other.name} at its best: {other.load.rate:.1f} requests/s, p99 {other.p99 * 1e3:.1f} ms; "
        f"OpenInfer at a p99 no longer ({own.p99 * 1e3:.1f} ms): {own.load.rate:.1f}, which is {ratio:.2f} times as "
        f"many (goal {GOAL})"
    )
    return {"ratio": ratio, "clients": [own.clients, other.clients]}


if __name__ == "__main__":
    main()
