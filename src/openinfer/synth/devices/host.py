"""Describes this machine from what the operating system reports."""

import os
import platform
import re
import shutil
from pathlib import Path
from typing import Any

from openinfer.synth.devices.isa import has_dot, runnable

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_COMPILERS = ("gcc", "clang", "cc")


def host_document(root: Path = Path("/"), machine: str | None = None, usable: set[int] | None = None) -> dict[str, Any]:
    """The description of this machine, or of the one whose ``/proc`` and ``/sys`` are under ``root``.

    Unknown facts are left out; ``usable`` are the processors that this process may run on.
    """
    cpuinfo = _text(root / "proc/cpuinfo")
    kind = machine or platform.machine()
    isa = runnable(cpuinfo, kind)[-1]
    caches = _caches(root / "sys/devices/system/cpu/cpu0/cache")
    device = {
        "type": "cpu",
        "api": "c",
        "vendor": _said(cpuinfo, "vendor_id"),
        "name": _said(cpuinfo, "model name") or kind,
        "architecture": kind,
    }
    cpu = {
        "isa": isa.name,
        "vector_bits": isa.vector_bits,
        "vector_registers": isa.vector_registers,
        "fma": isa.fma,
        "cores": _cores(cpuinfo, _usable() if usable is None else usable),
        **caches,
    }
    memory = {"global_bytes": _memory(_text(root / "proc/meminfo"))}
    compiler = next((name for name in _COMPILERS if shutil.which(name) is not None), None)
    document: dict[str, dict[str, Any]] = {
        "device": device,
        "features": {"hosted": True, "int8": has_dot(cpuinfo)},
        "memory": memory,
        "cpu": cpu,
        "toolchain": {"cc": compiler},
    }
    return {key: _known(section) for key, section in document.items() if _known(section)}


def _known(section: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if value is not None}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _said(text: str, key: str) -> str | None:
    """The first value of a key in ``key : value`` lines."""
    found = re.search(rf"^{key}\s*:[ \t]*(.+?)\s*$", text, re.MULTILINE)
    return found[1][:200] if found is not None else None


def _usable() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _cores(cpuinfo: str, usable: set[int]) -> int:
    """The number of cores among the usable processors: two threads of a core share the units that a kernel needs."""
    cores = set()
    for entry in re.split(r"\n\s*\n", cpuinfo):
        number = _said(entry, "processor")
        if number is not None and number.isdecimal() and int(number) in usable:
            core = _said(entry, "core id")
            cores.add((_said(entry, "physical id"), core) if core is not None else (None, f"processor {number}"))
    return len(cores) or len(usable) or 1


def _caches(folder: Path) -> dict[str, int]:
    """The caches of the first processor."""
    found: dict[str, int] = {}
    for index in sorted(folder.glob("index*")):
        level, kind = _text(index / "level").strip(), _text(index / "type").strip()
        size = re.fullmatch(r"(\d+)([KMG]?)", _text(index / "size").strip())
        name = "l1d" if level == "1" else f"l{level}"
        if kind in ("Data", "Unified") and level in ("1", "2", "3") and size is not None:
            found[f"{name}_bytes"] = int(size[1]) * _UNITS[size[2]]
    return found


def _memory(meminfo: str) -> int | None:
    total = re.search(r"^MemTotal:\s*(\d+) kB", meminfo, re.MULTILINE)
    return int(total[1]) << 10 if total is not None else None
