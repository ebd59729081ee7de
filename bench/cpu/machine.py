"""What the figures were measured on: processor, versions, and the sizes of installed engines."""

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.ceilings import IN_MEMORY, Ceilings, second_cache_bytes
from bench.cpu.install import installed_bytes, version_of
from bench.cpu.peers import PEERS

from openinfer import __version__


def processor() -> str:
    """The name of the processor."""
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", path.read_text(encoding="utf-8")) if path.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def first_line(*command: str) -> str | None:
    """What a program says first; None if it is not there, or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None


def revision(folder: Path) -> str | None:
    """The commit of a checkout; None of a folder that is not one."""
    return first_line("git", f"--git-dir={folder / '.git'}", f"--work-tree={folder}", "describe", "--always", "--dirty")


def machine_facts() -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {
            "openinfer": __version__,
            **{peer.name: version_of(peer) for peer in PEERS.values() if peer.package},
        },
        "compilers": {name: first_line(name, "--version") for name in ("gcc", "g++")},
        "installed_bytes": {peer.name: installed_bytes(peer) for peer in PEERS.values() if peer.package},
    }


def ceiling_facts(ceilings: Ceilings, threads: Sequence[int]) -> dict[str, float]:
    """Gigaflops and gigabytes in a second, for each number of threads."""
    large, small, found = IN_MEMORY, second_cache_bytes() // 2, {}
    for count in threads:
        name = f"{count}_thread{'s' if count > 1 else ''}"
        found[f"gflops_{name}"] = ceilings.gflops(count)
        found[f"memory_gb_{name}"] = ceilings.read_gb(large, count)
        found[f"second_cache_gb_{name}"] = ceilings.read_gb(small * count, count)
    return found
