"""Describes this machine's GPU: what CUDA reports about it, and how it rounds.

A small program queries the driver and runs arithmetic on the device; nvcc compiles it here, like generated code.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from openinfer.errors import Code, Diagnostic, MissingExtraError

_NVCC = "nvcc"
_FLAGS = ("-std=c++17", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false", "-Wno-deprecated-gpu-targets")
_TOOLKIT = "install the CUDA toolkit (https://developer.nvidia.com/cuda-downloads)"
_GPU = "an NVIDIA GPU with its driver; nvidia-smi shows it"
_SECONDS = 120
_LEAST = 70
"""The lowest compute capability that generated code supports, times ten."""
_ARGUMENT_BYTES = 32764
_SINCE = {"bf16": 80, "fp16": 53, "int8_dot": 61, "cooperative_matrix": 70}
"""The compute capability, times ten, that introduced a feature which not every GPU has."""
_ALWAYS = (
    *("int8", "int16", "subgroup_ops", "subgroup_shuffle", "buffer_addresses", "fp64", "int64"),
    *("storage_8bit", "storage_16bit"),
)


def cuda_document() -> dict[str, Any]:
    """The description of the GPU that programs get on this machine.

    If the compiler, a driver or a GPU is missing, error E806 says so and what to do.
    """
    compiler = shutil.which(_NVCC)
    if compiler is None:
        raise _missing(f"there is no {_NVCC!r}, which compiles the probe of the device", _TOOLKIT)
    with TemporaryDirectory(prefix="openinfer-") as folder:
        program = Path(folder) / "probe"
        with as_file(files("openinfer.synth.devices") / "probe") as source:
            ended = _run([compiler, *_FLAGS, "-o", str(program), str(source / "probe.cu")])
        if ended.returncode != 0:
            raise _missing("the probe of the device does not compile", _TOOLKIT, _first_line(ended))
        ended = _run([str(program)])
    if ended.returncode != 0:
        what = "no device of this kind was found" if ended.returncode == 3 else "the device does not run programs"
        raise _missing(what, _GPU, _first_line(ended))
    return document_of([(key, value) for key, _, value in (one.partition(" ") for one in ended.stdout.splitlines())])


def _missing(what: str, advice: str, *notes: str) -> MissingExtraError:
    message = f"{what}: devices with CUDA cannot be used on this machine"
    return MissingExtraError(Diagnostic(Code.NO_GPU, message, None, advice, tuple(filter(None, notes))))


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(  # noqa: S603  (commands of this module)
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            env={**os.environ, "LC_ALL": "C"},
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise _missing("the driver does not answer", _GPU, f"it takes longer than {_SECONDS} s") from error


def _first_line(ended: "subprocess.CompletedProcess[str]") -> str:
    return next((line.strip()[:200] for line in (ended.stderr or ended.stdout).splitlines() if line.strip()), "")


def document_of(facts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The device description from the program's output."""
    known = dict(facts)
    capability = int(known["capability"])
    if capability < _LEAST:
        raise _missing(f"{known['name']!r} has compute capability {capability / 10}, and 7.0 is the least", _GPU)
    own = f"sm_{capability}{'a' if capability >= 90 else ''}"
    found: dict[str, Any] = {
        "device": {
            "type": "gpu",
            "api": "cuda",
            "vendor": "nvidia",
            "name": known["name"],
            "architecture": own,
            "driver": known["driver"],
        },
        "limits": {"max_push_constants_bytes": _ARGUMENT_BYTES},
        "features": dict.fromkeys(_ALWAYS, True) | {name: capability >= since for name, since in _SINCE.items()},
        "numerics": {},
        "memory": {},
    }
    for key, value in facts:
        section, _, name = key.partition(".")
        if section == "numerics":
            found[section][name] = value
        elif name == "max_workgroup_size":
            found[section].setdefault(name, []).append(int(value))
        elif name:
            found[section][name] = int(value)
    return found
