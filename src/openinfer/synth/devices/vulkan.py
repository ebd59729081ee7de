"""Describes this machine's Vulkan device: what its driver reports, and how it rounds.

A small program queries the driver and runs arithmetic on the device; it is compiled here, like generated code.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from openinfer.errors import Code, Diagnostic, MissingExtraError

GLSLANG = "glslangValidator"
_COMPILERS = ("gcc", "clang", "cc")
_SHADERS = ((), ("-DOI_DOUBLE",), ("-DOI_PRESERVE",), ("-DOI_HALVES",))
"""The compiler flags of the program's shaders."""
_MISSING = {3: "a Vulkan driver", 4: "a device with Vulkan 1.2"}
"""What the program did not find, by its exit code."""
_DRIVERS = "mesa-vulkan-drivers"
_MOST = (1 << 31) - 1
"""The largest limit in a description; some drivers have no limit."""
_LLVMPIPE_ITERATIONS = 65535
"""The iterations after which Mesa's CPU driver silently ends all loops of a thread."""
_VENDORS = {
    0x1002: "amd",
    0x1010: "imagination",
    0x106B: "apple",
    0x10DE: "nvidia",
    0x13B5: "arm",
    0x5143: "qualcomm",
    0x8086: "intel",
    0x10005: "mesa",
}
_COMPONENTS = {0: "f16", 1: "f32", 2: "f64", 3: "i8", 5: "i32", 7: "u8", 9: "u32", 1000141000: "bf16", 1000491003: "f8"}
"""The dtypes of matrix units, by Vulkan's component type numbers."""
_SECONDS = 60


def vulkan_document() -> dict[str, Any]:
    """The description of this machine's Vulkan device, preferably a graphics card.

    If a loader, a driver or a compiler is missing, error E806 gives the command that installs it.
    """
    compiler = next((name for name in _COMPILERS if shutil.which(name) is not None), None)
    if compiler is None:
        raise not_installed("a C compiler", "gcc")
    if shutil.which(GLSLANG) is None:
        raise not_installed(f"the shader compiler, {GLSLANG!r},", "glslang-tools")
    with TemporaryDirectory(prefix="openinfer-") as folder:
        return document_of(_facts(Path(folder), compiler))


def not_installed(what: str, packages: str, *notes: str) -> MissingExtraError:
    """The error for a missing prerequisite of Vulkan devices."""
    message = f"{what} is missing: Vulkan devices cannot be used on this machine"
    return MissingExtraError(Diagnostic(Code.NO_GPU, message, None, f"apt-get install {packages}", notes))


def _facts(folder: Path, compiler: str) -> list[tuple[str, str]]:
    """The program's output: a key and a value per line."""
    program = folder / "probe"
    shaders = [str(folder / f"{number}.spv") for number in range(len(_SHADERS))]
    with as_file(files("openinfer.synth.devices") / "probe") as source:
        command = [compiler, "-std=c11", "-O1", "-ffp-contract=off", "-o", str(program), str(source / "probe.c")]
        _compile([*command, "-lvulkan", "-lm"], "the development files of Vulkan", "libvulkan-dev")
        for shader, flags in zip(shaders, _SHADERS, strict=True):
            command = [GLSLANG, "-V", "--target-env", "vulkan1.2", *flags, "-o", shader, str(source / "probe.comp")]
            _compile(command, "a shader compiler that supports buffer addresses", "glslang-tools")
    ended = _run([str(program), *shaders])
    if ended.returncode != 0:
        what = _MISSING.get(ended.returncode, "a Vulkan driver that works")
        raise not_installed(what, _DRIVERS, *_first_line(ended.stderr))
    return [(key, value) for key, _, value in (line.partition(" ") for line in ended.stdout.splitlines())]


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(  # noqa: S603  (commands of this module)
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            env=environment,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise not_installed("a Vulkan driver that works", _DRIVERS, f"it takes longer than {_SECONDS} s") from error


def _compile(command: Sequence[str], what: str, packages: str) -> None:
    ended = _run(command)
    if ended.returncode != 0:
        raise not_installed(what, packages, *_first_line(ended.stderr or ended.stdout))


def _first_line(text: str) -> Iterator[str]:
    yield from [line.strip()[:200] for line in text.splitlines() if line.strip()][:1]


# --- the description --------------------------------------------------------------------------------------------------


def document_of(facts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The device description from the program's output."""
    known = dict(facts)
    found: dict[str, Any] = {
        "device": {
            "type": "gpu",
            "api": "vulkan",
            "vendor": _VENDORS.get(int(known["vendor"]), f"{int(known['vendor']):#x}"),
            "name": known["name"],
            "driver": known["driver"],
        },
        "limits": {},
        "features": {},
        "numerics": {},
        "memory": {},
    }
    for key, value in facts:
        section, _, name = key.partition(".")
        if section == "features":
            found[section][name] = value == "1"
        elif section == "numerics":
            found[section][name] = value
        elif name == "max_workgroup_size":
            found[section].setdefault(name, []).append(min(int(value), _MOST))
        elif name:
            found[section][name] = int(value) if name.endswith("_bytes") else min(int(value), _MOST)
    if found["device"]["vendor"] == "mesa" and "llvmpipe" in known["driver"]:
        found["limits"]["max_loop_iterations"] = _LLVMPIPE_ITERATIONS
    matrices = [*_matrices([value for key, value in facts if key == "matrix"])]
    return {**{key: part for key, part in found.items() if part}, **({"matrix": matrices} if matrices else {})}


def _matrices(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The distinct shapes of matrix units; those with dtypes that tensors cannot have are left out."""
    for line in dict.fromkeys(lines):
        a, b, total, *shape = map(int, line.split())
        if {a, b, total} <= _COMPONENTS.keys():
            kinds = {"a": _COMPONENTS[a], "b": _COMPONENTS[b], "sum": _COMPONENTS[total]}
            yield {**kinds, **dict(zip("mnk", shape, strict=True))}
