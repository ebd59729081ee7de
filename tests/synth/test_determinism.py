"""The same graph and model give the same bytes: over hash seeds, folders, locales, time zones, names and processors."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from openinfer.oinf import save_file

SCRIPT = """
import hashlib, sys, time
time.time = lambda: float(sys.argv[3])
time.time_ns = lambda: int(sys.argv[3]) * 10**9
from openinfer import ModelLoader, graph, load_graph
from openinfer.synth.targets.project import Golden
from openinfer.synth.pipeline import Synthesizer
import numpy as np
model, loaded = ModelLoader.open(sys.argv[2]), load_graph(sys.argv[1])
plan = Synthesizer("x86-avx2", name="net", weights="incbin").synthesize(model, loaded)
ones = {"x": np.ones(4, np.float32), "m": np.ones((2, 4), np.float32), "go": np.bool_(True)}
for path, content in sorted(plan.files([Golden(ones, {"y": np.ones(4, np.float32)})]).items()):
    data = content if isinstance(content, bytes) else content.encode("ascii")
    print(path, hashlib.sha256(data).hexdigest())
mel = "op mel_filterbank(p, bins=8, rate=8000.0, low=100, high=3000) >> m"
spectrum = graph(f"dynamic {{ p: f32[17]; }} volatile {{ m: f32[8]; }} block entry {{ {mel}; return m; }}")
kernels = Synthesizer("x86-avx2").synthesize(None, spectrum).files()["src/kernels.c"]
print("constants", hashlib.sha256(kernels.encode("ascii")).hexdigest())
"""
SEEDS = 20


def emitted(folder: Path, seed: int, text: Path, model: Path) -> str:
    own = folder / f"run{seed}"
    own.mkdir()
    zones = ("UTC", "Asia/Tokyo", "America/St_Johns")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "PYTHONHASHSEED": str(seed),
        "LC_ALL": ("C", "C.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8")[seed % 4],
        "TZ": zones[seed % 3],
        "HOME": str(own),
        # NumPy computes in other vectors, on x86-64; elsewhere it says that it has none of these.
        **({"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512F AVX2"} if seed % 5 == 1 else {}),
    }
    # A relative path from wherever this run is, and another clock: nothing of it may be seen.
    command = [sys.executable, "-c", SCRIPT, os.path.relpath(text, own), os.path.relpath(model, own), str(seed * 10**8)]
    ended = subprocess.run(command, cwd=own, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_files_are_the_same_whatever_the_surroundings(tmp_path: Path) -> None:
    from tests.synth.test_project import RICH

    text, model = tmp_path / "net.oig", tmp_path / "net.oinf"
    text.write_text(RICH, encoding="utf-8")
    rng = np.random.default_rng(1)
    tensors = {f"W.{layer}": rng.normal(size=(4, 4)).astype(np.float32) for layer in range(3)}
    save_file(model, {**tensors, "bias": np.ones(4, np.float32)})
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda seed: emitted(tmp_path, seed, text, model), range(SEEDS)))
    assert found[0].count("\n") > 10
    assert set(found) == {found[0]}


def test_emitting_twice_changes_nothing(tmp_path: Path) -> None:
    from tests.synth.both_ways import planned

    plan = planned("dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { op exp(x) >> y; return y; }")
    digests = []
    for _ in range(2):
        written = plan.emit(tmp_path)
        files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
        assert sorted(written) == files
        digests.append([(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files])
    assert digests[0] == digests[1]
