"""The same input gives the same bytes: over hash seeds, orders, folders, locales, clocks, names and processors."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

SEEDS = 5
"""One for each of the surroundings, and no two orders alike."""
ROOT = Path(__file__).parents[1]
SURROUNDINGS = (
    {"LC_ALL": "C", "TZ": "UTC", "SOURCE_DATE_EPOCH": "0"},
    {"LC_ALL": "C.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "Asia/Kathmandu", "SOURCE_DATE_EPOCH": "4102444800"},
    {"LANG": "tr_TR.UTF-8", "TZ": "America/St_Johns", "PYTHONUTF8": "1", "COLUMNS": "20"},
    {"LC_ALL": "POSIX", "TZ": "Antarctica/Troll", "USER": "somebody", "HOME": "/nonexistent"},
    # NumPy computes in other vectors, on x86-64; elsewhere it says that it has none of these.
    {"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512F AVX2"},
)


def _digests(folder: Path, seed: int) -> list[str]:
    """The hashes that a process prints, with this hash seed, in surroundings of its own."""
    own = folder / ("deep/" * (seed % 3) + f"run{seed}")
    own.mkdir(parents=True)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "PYTHONHASHSEED": str(seed),
        **SURROUNDINGS[seed % len(SURROUNDINGS)],
    }
    command = [sys.executable, "-m", "tests.digests", str(seed)]
    ended = subprocess.run(command, cwd=own, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_five_surroundings_give_the_same_graphs_errors_models_and_code(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, *others = pool.map(partial(_digests, tmp_path), range(SEEDS))
    assert len(first) > 15
    assert {line for other in others for line in other} == set(first)
    assert {len(other) for other in others} == {len(first)}
