"""What a GPU of this machine did, as one file: ``python -m tests.synth.vulkan.record docs/h200.json``.

Every op on every dtype, whole models, random graphs and programs, all against the simulator; a step that does nothing,
and the kernels of ``bench/gpu``. Whatever part has run is in the file, so that a run that is cut short says what it
found. ``make test-h200`` runs it, for the device that ``OPENINFER_TEST_DEVICE`` names; ``bundle`` packs what a machine
needs that has nothing but Python, NumPy, a C compiler and a driver. ``runs`` says for each part when the script was
started that wrote it: parts of one run have the same.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from time import perf_counter
from traceback import format_exc
from typing import Any

import bench.gpu.decode
import bench.gpu.forms
import numpy as np
from tests.differential.campaign import Campaign
from tests.differential.fuzz import GRAPHS
from tests.differential.program_fuzz import PROGRAMS
from tests.synth.cuda import suite as cuda_suite
from tests.synth.cuda.sanitize import sanitized
from tests.synth.suite import Verdict
from tests.synth.vulkan import suite as vulkan_suite
from tests.synth.vulkan.models import MODELS, Found, run
from tests.synth.vulkan.on_device import DEVICE, NAMED

from openinfer import Synthesizer, graph
from openinfer.ops import OPS

SHOWN = 100
"""Failures that the file has in words."""
EMPTY = "dynamic { x: f32[8]; } volatile { y: f32[8]; } block entry { op neg(x) >> y; return y; }"
IS_CUDA = DEVICE.api == "cuda"
TOGETHER = ("ops", "graphs", "programs", "sanitizers") if IS_CUDA else ()
"""Parts that measure no time, and mostly wait for compilers: they share the processors."""
PRELOADED = (GRAPHS.module, PROGRAMS.module, cuda_suite.__name__, run.__module__, bench.gpu.forms.__name__)
"""What the server of new processes has imported, which takes seconds for each of them otherwise."""
Facts = dict[str, Any]
VARIANTS: Mapping[str, Sequence[str]] = {
    "usual": (),
    "launches in turn": ("launches_in_turn",),
    "restrict weights": ("restrict_weights",),
    "early launches": ("early_launches",),
    "early launches in a chain": ("early_launches_in_a_chain",),
    "early launches after one": ("early_launches_after_one",),
    "everything": ("early_launches", "restrict_weights"),
    "everything, in a chain": ("early_launches_in_a_chain", "restrict_weights"),
    "everything, after one": ("early_launches_after_one", "restrict_weights"),
}
"""Ways to write the kernels of a decoder, by what a device file asks for."""


def ops(cases: int, processes: int, wanted: Sequence[str]) -> Facts:
    """The verdict on every op and dtype, or on those of some ops."""
    verdict = Verdict()
    names = sorted(wanted or {record.name for record in OPS.values()})
    for found in (cuda_suite if IS_CUDA else vulkan_suite).verdicts(names, cases, processes):
        verdict.add(found)
    counts: dict[str, dict[str, int]] = {}
    for (name, dtype), count in sorted(verdict.passed.items()):
        counts.setdefault(name, {})[dtype] = count
    return {
        "cells": len(verdict.passed),
        "right": sum(verdict.passed.values()),
        "wrong": len(verdict.failures),
        "failures": [one[:600] for one in verdict.failures[:SHOWN]],
        "ops": counts,
    }


def models(processes: int) -> Facts:
    """Whole models, by name."""
    # A process that has used CUDA cannot hand it on by a fork.
    with ProcessPoolExecutor(processes, get_context("forkserver")) as pool:
        return dict(zip(MODELS, pool.map(_model, MODELS), strict=True))


def _model(name: str) -> Facts:
    try:
        found: Found = run(name, NAMED)
    except Exception:  # noqa: BLE001  (as above)
        return {"agrees": False, "failure": format_exc(limit=-3)[-1500:]}
    return {key: value for key, value in asdict(found).items() if key != "name"}


def campaign(one: Campaign, processes: int, count: int, seed: int, seconds: float) -> Facts:
    """Random graphs or programs."""
    words = [
        "--cuda" if IS_CUDA else "--vulkan",
        "--keep-going",
        f"--count={count}",
        f"--seed={seed}",
        f"--processes={processes}",
    ]
    found = one.judged(one.options(None, [*words, f"--seconds={seconds}"]))
    failures = {str(seed): message[:600] for seed, message in sorted(found.failed.items())}
    return {
        "seed": seed,
        "count": found.done,
        "right": found.right,
        "wrong": failures,
        "seconds": round(found.seconds),
    }


def empty_step(steps: int = 2000) -> Facts:
    """A step that does next to nothing, as a C program takes it."""
    module = Synthesizer(DEVICE, name="net").synthesize(None, graph(EMPTY)).build()
    inputs, results = module._input_type(), module._output_type()
    x = np.ones(8, np.float32)
    setattr(inputs, module._project.placed.names.inputs["x"], x.ctypes.data)
    function, given = module._library.net_step, (module._context, inputs, results)
    times = []
    for _ in range(steps):
        start = perf_counter()
        assert function(*map(ctypes.byref, given)) == 0
        times.append(perf_counter() - start)
    return {"median_us": round(float(np.median(times)) * 1e6, 1), "least_us": round(min(times) * 1e6, 1)}


def forms() -> Facts:
    """The kernels of ``bench/gpu``, as their program writes them down."""
    with TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", bench.gpu.forms.__name__, folder], check=True, capture_output=True)
        result = Path(folder) / "forms.json"
        subprocess.run([f"{folder}/forms", "3072", str(result)], check=True, capture_output=True)
        return {"rows": json.loads(result.read_text("ascii"))}


def decode(processes: int, *, is_small: bool) -> Facts:
    """A token of a language model, with the kernels as they are and with what is to be tried."""
    ways = [*VARIANTS] if IS_CUDA else ["usual"]
    with TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as pool:
        made = dict(zip(ways, pool.map(partial(_decoder, Path(folder), is_small), ways), strict=True))
        found = {name: _decoded(place) if isinstance(place, Path) else place for name, place in made.items()}
    usual = found["usual"].get("hash_of_logits")
    for one in found.values():
        one["same_bits"] = usual is not None and one.get("hash_of_logits") == usual
    return found


def _decoder(folder: Path, is_small: bool, name: str) -> Path | Facts:
    own = folder / name.replace(",", "").replace(" ", "-")
    command = [sys.executable, "-m", bench.gpu.decode.__name__, str(own), "--device", NAMED, *["--small"] * is_small]
    trials = ["--trials", *VARIANTS[name]] if VARIANTS[name] else []
    ended = subprocess.run([*command, *trials], check=False, capture_output=True, text=True)
    return own if ended.returncode == 0 else {"failed": ended.stderr[-1500:]}


def _decoded(folder: Path) -> Facts:
    ended = subprocess.run([str(folder / "run")], check=False, capture_output=True, text=True, timeout=120)
    return json.loads(ended.stdout) if ended.returncode == 0 else {"failed": (ended.stdout + ended.stderr)[-1500:]}


def _text(value: Any, depth: int = 0) -> str:
    """JSON with a line for each model, op and failure."""
    nested = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if depth > 2 or (not any(isinstance(one, dict | list) for one in nested) and depth):
        return json.dumps(value)
    pad = " " * (depth + 1)
    if isinstance(value, list):
        return "[\n" + ",\n".join(f"{pad}{json.dumps(one)}" for one in value) + f"\n{pad[1:]}]"
    lines = (f"{pad}{json.dumps(key)}: {_text(one, depth + 1)}" for key, one in value.items())
    return "{\n" + ",\n".join(lines) + f"\n{pad[1:]}}}"


@dataclass(frozen=True)
class Record:
    """The file, with what earlier runs have found and this one does not look for."""

    file: Path
    known: Facts
    started: str
    lock: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, file: Path) -> "Record":
        known = json.loads(file.read_text("ascii")) if file.exists() else {}
        here = (cuda_suite if IS_CUDA else vulkan_suite).device_here()
        known["device"] = {"name": here.name, "driver": here.runner, "compiler": here.compiler, "file": NAMED}
        known.setdefault("runs", {})
        return cls(file, known, datetime.now(UTC).isoformat(timespec="seconds"))

    def fill(self, name: str, part: Callable[[], Facts]) -> None:
        """Run a part, and write what it found: the file is whole at any time."""
        start = perf_counter()
        try:
            found = part()
        except Exception:  # noqa: BLE001  (the other parts run all the same)
            found = {"failure": format_exc()[-3000:]}
        print(f"{name}: {perf_counter() - start:.0f} s", flush=True)
        with self.lock:
            self.known[name] = found
            self.known["runs"][name] = self.started
            new = self.file.with_suffix(".new")
            new.write_text(_text(self.known) + "\n", encoding="ascii")
            new.replace(self.file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--cases", type=int, default=4, help="of each op and dtype")
    parser.add_argument("--graphs", type=int, default=2000, help="random graphs, and as many programs")
    parser.add_argument("--seed", type=int, default=100_000, help="the first of them")
    parser.add_argument("--seconds", type=float, default=3600, help="that the graphs, and the programs, may take")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--only", nargs="+", help="parts: empty_step models ops forms graphs programs decode sanitizers"
    )
    parser.add_argument("--small", action="store_true", help="a small decoder, where a large one takes too long")
    parser.add_argument("--ops", nargs="+", default=(), metavar="OP", help="of the ops, these")
    options = parser.parse_args()
    many = options.processes
    shared = max(1, many // 2) if TOGETHER else many
    fuzz = (shared, options.graphs, options.seed, options.seconds)
    parts: Mapping[str, Callable[[], Facts]] = {
        "empty_step": empty_step,
        "models": partial(models, many),
        "ops": partial(ops, options.cases, shared, options.ops),
        "forms": forms,
        "graphs": partial(campaign, GRAPHS, *fuzz),
        "programs": partial(campaign, PROGRAMS, *fuzz),
        "decode": partial(decode, many, is_small=options.small),
        "sanitizers": sanitized,
    }
    not_here = "forms" if IS_CUDA else "sanitizers"  # the forms are shaders
    wanted = [name for name in parts if name != not_here and (not options.only or name in options.only)]
    get_context("forkserver").set_forkserver_preload([*PRELOADED])
    record = Record.of(options.file)
    for name in (name for name in wanted if name not in TOGETHER):
        record.fill(name, parts[name])
    with ThreadPoolExecutor() as pool:
        # Results are asked for so that what goes wrong is seen.
        _ = [*pool.map(lambda name: record.fill(name, parts[name]), (name for name in wanted if name in TOGETHER))]
    return int(any("failure" in one for one in record.known.values()))


if __name__ == "__main__":
    sys.exit(main())
