"""The kernels of many CUDA projects as one file: the compiler takes most of its time to start."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.differential.device_code import ALIASES, HEADER, HOST, SharedHost, host_objects, written

from openinfer.synth.targets.cuda.kernel_files import KERNELS_FILE, SUPPORT_FILE
from openinfer.synth.targets.cuda.project import CUDA_API, CudaProject

TOGETHER = "kernels.cu"
_INCLUDED = '#include "support.cuh"\n\nextern "C" {\n#include "device.h"\n}\n'


def kernels_together(projects: Sequence[CudaProject]) -> str:
    """All kernels: each project's are in a namespace, since projects have other functions of the same names."""
    parts = ["#include <stdint.h>\n"]
    for project in projects:
        code = project.code()
        kernels, support = code[KERNELS_FILE], code[SUPPORT_FILE].replace("#pragma once\n", "")
        assert _INCLUDED in kernels
        table = f'extern "C" {{\n{CUDA_API.kernel}extern const oi_kernel {project.name}_kernels[];\n}}\n'
        parts.append(f"namespace {project.name} {{\n{support}{kernels.replace(_INCLUDED, table)}}}\n")
    return "\n".join(parts)


def cuda_library(projects: Sequence[CudaProject], folder: Path, command: Sequence[str]) -> None:
    """Make ``all.so`` of projects in a folder, by a compiler of C with its options, and nvcc."""
    compiler, *options = command
    start = ("nvcc", "-ccbin", compiler, "-Xcompiler", "-fPIC")
    told = [word for flag in options for word in ("-Xcompiler", flag)]
    flags = dict.fromkeys(flag for project in projects for flag in project.kernel_flags)
    (folder / TOGETHER).write_text(kernels_together(projects), encoding="ascii")
    objects, hosts = ["kernels.o"], dict[str, SharedHost]()
    _run([*start, *flags, "-c", "-o", objects[0], TOGETHER], folder)
    for project in projects:
        code = project.code()
        host = SharedHost.of(project, code)
        hosts[host.name] = host
        own = {path: text for path, text in code.items() if path not in HOST and not path.endswith((".cu", ".cuh"))}
        written({**own, HEADER: host.header(project, code), ALIASES: host.aliases(project)}, folder / project.name)
        objects.append(f"{project.name}.o")
    include = [f"-I{project.name}/include" for project in projects]
    _run([*start, *told, *include, "-c", *(f"{one.name}/src/{one.name}.c" for one in projects)], folder)
    for host in hosts.values():
        objects += host_objects(host, (*start, *told))
    # nvcc takes no files but those it knows.
    aliases = [word for project in projects for word in ("-Xlinker", f"{project.name}/{ALIASES}")]
    _run([*start, "-shared", *objects, *aliases, "-o", "all.so"], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stderr[:4000]}"
