"""A compiler of many shaders in one process, several times as fast as a process for each:
``python -m tests.synth.vulkan.compiler build`` makes it in a folder, from ``many_shaders.c`` and glslang-dev.

Tests that compile many shaders take it where ``OPENINFER_MANY_SHADERS`` names it, else ``glslangValidator``; it is the
same compiler.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("many_shaders.c")
NAMED = "OPENINFER_MANY_SHADERS"
LIBRARIES = (
    "glslang",
    "SPIRV",
    "MachineIndependent",
    "GenericCodeGen",
    "OSDependent",
    "OGLCompiler",
    "HLSL",
    "glslang-default-resource-limits",
    "SPIRV-Tools-opt",
    "SPIRV-Tools",
)


def program() -> str | None:
    """The compiler of many shaders, if there is one."""
    return os.environ.get(NAMED)


def compile_many(jobs: Sequence[tuple[Path, str, Path]], command: str) -> None:
    """Compile shaders, each with the name of its array: into headers, or SPIR-V where the file is called so."""
    lines = "".join(f"{source} {name or '-'} {result}\n" for source, name, result in jobs)
    ended = subprocess.run([command], input=lines, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:4000]


def made(folder: Path, root: Path) -> bool:
    """Make the program in a folder; False where glslang-dev is not below the root."""
    libraries = root / "lib" / "x86_64-linux-gnu"
    if not (libraries / "libglslang.a").exists():
        return False
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"-l{name}" for name in LIBRARIES]
    line = ["gcc", "-O2", f"-I{root / 'include'}", "-o", str(folder / SOURCE.stem), str(SOURCE), f"-L{libraries}"]
    line += ["-L/usr/lib/x86_64-linux-gnu", "-Wl,--start-group", *names, "-Wl,--end-group", "-static-libgcc"]
    subprocess.run([*line, "-lstdc++", "-lm", "-lpthread"], check=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--glslang", type=Path, default=Path("/usr"), help="where glslang-dev is unpacked")
    options = parser.parse_args()
    if made(options.folder, options.glslang):
        return 0
    print("there is no glslang to make it from: apt-get install glslang-dev", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
