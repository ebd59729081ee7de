"""What projects of one library share: a compiler for all shaders, and the device's side, which is compiled once.

That side is the same text in every project but for the names of its functions and for three numbers. Here projects with
the same numbers have one copy of it, under a name of its own; ``tests/synth/vulkan`` builds projects as they are.
"""

import hashlib
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.synth.vulkan.compiler import compile_many, program

from openinfer.synth.run.build import compile_shaders
from openinfer.synth.targets.gpu.project import LaunchingProject
from openinfer.synth.targets.vulkan.buildfiles import SOURCES
from openinfer.synth.targets.vulkan.project import VulkanProject

HEADER, ALIASES = "src/device.h", "src/aliases.ld"
HEADERS = ("/api.h", "/inside.h")
HOST = tuple(path for path in SOURCES if path != "src/shaders.c")
_RENAMED = re.compile(r"^#define (oi_\w+) ", re.MULTILINE)
_COUNT = re.compile(r"OI_KERNELS = \d+")
"""Which only the project's own source uses."""


@dataclass(frozen=True)
class SharedHost:
    """The device's side of projects that are alike: its files, with functions that begin with its name."""

    name: str
    files: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, project: LaunchingProject, code: Mapping[str, str]) -> "SharedHost":
        """That of a project."""
        header = _COUNT.sub("OI_KERNELS = 0", _named(code[HEADER], project.name, "host"))
        own = {path for path in code if path in HOST or path.endswith(HEADERS)}
        others = [(path, code[path]) for path in sorted(own)]
        name = f"host_{hashlib.sha256(repr((header, others)).encode()).hexdigest()[:12]}"
        return cls(name, ((HEADER, _named(header, "host", name)), *others))

    def header(self, project: LaunchingProject, code: Mapping[str, str]) -> str:
        """The header of a project, which calls these functions."""
        return code[HEADER].replace(f" {project.name}_oi_", f" {self.name}_oi_")

    def aliases(self, project: LaunchingProject) -> str:
        """Lines for a linker, so that the functions can also be found by the names that they have in a project."""
        names = _RENAMED.findall(dict(self.files)[HEADER])
        return "".join(f"{project.name}_{one} = {self.name}_{one};\n" for one in names)


def _named(header: str, name: str, other: str) -> str:
    """A header with another name of the project in it."""
    words = ((f" {name}_", f" {other}_"), (f"_{name.upper()}_", f"_{other.upper()}_"))
    for old, new in words:
        header = header.replace(old, new)
    return header


def written(code: Mapping[str, str], folder: Path) -> None:
    """Write files into a folder."""
    for path, text in code.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="ascii")


@cache
def host_objects(host: SharedHost, command: tuple[str, ...]) -> tuple[str, ...]:
    """The device's side compiled, for as long as this process lives."""
    place = TemporaryDirectory(prefix="openinfer-host-")
    Finalize(place, place.cleanup, exitpriority=1)
    folder = Path(place.name)
    written(dict(host.files), folder)
    ended = subprocess.run([*command, "-c", *HOST], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stderr[:4000]}"
    return tuple(str(folder / f"{Path(path).stem}.o") for path in HOST)


def compile_all(projects: Sequence[VulkanProject], folder: Path) -> None:
    """Make headers of the shaders of projects, each of which is in a folder of its name."""
    command = program()
    if command is None:
        for project in projects:
            compile_shaders(project.shaders, folder / project.name)
        return
    jobs = []
    for project in projects:
        own = folder / project.name
        (own / "build").mkdir(exist_ok=True)
        jobs += [(own / path, name, own / "build" / f"{name}.h") for path, name in project.shaders.items()]
    if jobs:
        compile_many(jobs, command)
