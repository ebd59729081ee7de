"""What the figures were measured on: processor, versions, and the sizes of installed engines."""

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from bench.ceilings import IN_MEMORY, Ceilings, second_cache_bytes
from bench.cpu.engines import THREADS

from openinfer import __version__

PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "torch": "torch"}
"""The package of each peer."""


def processor() -> str:
    """The name of the processor."""
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", path.read_text(encoding="utf-8")) if path.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def version_of(package: str) -> str | None:
    try:
        return distribution(package).version
    except PackageNotFoundError:
        return None


def first_line(*command: str) -> str | None:
    """What a program says of itself."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except FileNotFoundError:
        return None


def installed_bytes(engine: str) -> int | None:
    """The size of the files that an engine's package installs; ours needs none."""
    if engine not in PACKAGES:
        return 0
    try:
        files = distribution(PACKAGES[engine]).files or []
    except PackageNotFoundError:
        return None
    places = [Path(str(file.locate())) for file in files]
    return sum(place.stat().st_size for place in places if place.is_file())


def machine_facts() -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {
            "openinfer": __version__,
            **{package: version_of(package) for package in (*PACKAGES.values(), "numpy", "onnx")},
        },
        "compilers": {name: first_line(name, "--version") for name in ("gcc", "g++")},
        "installed_bytes": {engine: installed_bytes(engine) for engine in PACKAGES},
    }


def ceiling_facts(ceilings: Ceilings) -> dict[str, float]:
    """Gigaflops and gigabytes in a second, on one thread and on all."""
    large, small = IN_MEMORY, second_cache_bytes() // 2
    return {
        "gflops_1_thread": ceilings.gflops(1),
        f"gflops_{THREADS}_threads": ceilings.gflops(THREADS),
        "memory_gb_1_thread": ceilings.read_gb(large, 1),
        f"memory_gb_{THREADS}_threads": ceilings.read_gb(large, THREADS),
        "second_cache_gb_1_thread": ceilings.read_gb(small, 1),
        f"second_cache_gb_{THREADS}_threads": ceilings.read_gb(small * THREADS, THREADS),
    }
