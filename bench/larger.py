"""A model larger than the memory that it runs in: ``make bench-larger``.

Makes a model of layers in f32 (6.4 GB; written in chunks, once), then compiles and runs it in a process of a control
group with 2 GB of memory, the pages of mapped files included. Says how long a step takes, how many bytes it read from
disk, and how fast; and compares the result with NumPy, a layer at a time.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from openinfer import ModelLoader, graph
from openinfer.oinf import Writer
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.pipeline import Synthesizer

FOLDER = Path("build/bench/larger")
TEXT = """dynamic { x: f32[1, D]; } constant { W(l): f32[D, D] @pattern("W.{l}"); } volatile { h: f32[1, D]; }
block entry {
    op add(x, 0) >> h;
    loop layers (l in 0..layers) { op linear(h, W[l]) >> h; op tanh(h) >> h; }
    return h;
}
"""


def made(layers: int, width: int) -> Path:
    """The model, written a tensor at a time unless it is there."""
    path = FOLDER / f"layers-{layers}x{width}.oinf"
    if path.exists():
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    base = np.random.default_rng(0).standard_normal((width, width), np.float32) * np.float32(2 / width**0.5)
    with Writer(path) as writer:
        writer.add_sizevar("D", width)
        writer.add_metadata("layers", layers)
        for layer in range(layers):
            writer.add_tensor(f"W.{layer}", np.roll(base, layer, axis=layer % 2))
    return path


@contextmanager
def limited(nbytes: int) -> Iterator[Path]:
    """The file that a process writes its number to, so that it and what it starts have no more memory than that."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, limit = (old, "memory.limit_in_bytes") if old.is_dir() else (new, "memory.max")
    group = root / f"openinfer-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(nbytes), encoding="ascii")
    except OSError as error:
        sys.exit(f"no control group with a limit can be made ({error.strerror}): this takes root")
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def child(path: Path, members: str, steps: int, threads: int) -> None:
    """Run steps within the limit, and print what was measured."""
    Path(members).write_text(str(os.getpid()), encoding="ascii")
    from dataclasses import replace

    from openinfer.synth.targets.cpu.divide import Divide
    from openinfer.synth.targets.target import Passes

    arch = DeviceArch.detect()
    passes = replace(Passes.preferred(arch), divide=Divide(threads))
    start = perf_counter()
    with ModelLoader.open(path) as model:
        plan = Synthesizer.from_arch(arch, passes=passes).synthesize(model, graph(TEXT))
        module = plan.build(weights="mapped")
        width, weights = model.size_of("D"), plan.placed.weights.size
    built, x, times = perf_counter() - start, first(width), []
    read = _read_bytes()
    for _ in range(steps):
        start = perf_counter()
        found = np.asarray(module(x=x))
        times.append(perf_counter() - start)
    read = _read_bytes() - read
    np.save(FOLDER / "found.npy", found)
    seconds = sum(times)
    facts = {
        "weight_bytes": weights,
        "build_s": round(built, 1),
        "step_s": [round(one, 2) for one in times],
        "read_bytes_a_step": read // steps,
        "read_MB_s": round(read / seconds / 1e6, 1),
        "peak_MB": round(_peak(Path(members).parent) / 1e6),
    }
    print(json.dumps(facts))


def _read_bytes() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def _peak(group: Path) -> int:
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        if (group / name).exists():
            return int((group / name).read_text(encoding="ascii"))
    return 0


def first(width: int) -> Any:
    return np.random.default_rng(1).standard_normal((1, width), np.float32)


def wanted(path: Path) -> Any:
    """The result by NumPy."""
    with ModelLoader.open(path) as model:
        h = first(model.size_of("D"))
        for layer in range(len(model.tensors)):
            h = np.tanh(h @ model.load(f"W.{layer}").to_numpy().T)
    return h


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.larger", description=__doc__)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--limit", type=float, default=2.0, help="of memory, in GB")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(Path(given.child[0]), given.child[1], given.steps, given.threads)
        return
    path = made(given.layers, given.width)
    with limited(int(given.limit * 1e9)) as members:
        command = [sys.executable, "-m", "bench.larger", "--child", str(path), str(members)]
        command += ["--steps", str(given.steps), "--threads", str(given.threads)]
        cache = {"OPENINFER_CACHE": str((FOLDER / "cache").resolve())}
        done = subprocess.run(command, env=os.environ | cache, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"it ended with {done.returncode}: {done.stderr[-2000:]}")
    difference = float(np.abs(np.load(FOLDER / "found.npy") - wanted(path)).max())
    facts = {**json.loads(done.stdout), "limit_MB": given.limit * 1e3, "largest_difference": difference}
    print(json.dumps(facts, indent=1))
    (FOLDER / "larger.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    sys.exit(0 if difference < 1e-3 else f"the result differs by {difference}")


if __name__ == "__main__":
    main()
