"""A Vulkan project: shaders, and a host in C that launches them."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files as resources

from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.targets.c.buildfiles import weights_array, weights_assembly
from openinfer.synth.targets.c.code_files import CodeFiles
from openinfer.synth.targets.c.example import example
from openinfer.synth.targets.c.host_source import HostSource
from openinfer.synth.targets.c.hosted_project import HostedProject
from openinfer.synth.targets.c.selftest import selftest
from openinfer.synth.targets.c.support import SUPPORT
from openinfer.synth.targets.cstyle.fold import folded
from openinfer.synth.targets.cstyle.library import KernelLibrary
from openinfer.synth.targets.cstyle.names import project_name
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.project import Files, Golden, ProjectOptions
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.vulkan.buildfiles import LIBRARIES, SOURCES, cmake_lists, makefile
from openinfer.synth.targets.vulkan.host_side import device_side
from openinfer.synth.targets.vulkan.readme import readme
from openinfer.synth.targets.vulkan.shader_files import ShaderFiles
from openinfer.synth.targets.vulkan.source import launching_printers
from openinfer.synth.targets.vulkan.timed import TIMED_SOURCE, timed_source

_TAKEN = ("cells", "copy", "device", "inside", "moves", "oi", "recorder", "shaders", "vulkan")
"""Our files, and what Vulkan's names begin with."""
_EXTERNAL = (
    "oi_memory_new",
    "oi_memory_free",
    "oi_open",
    "oi_close",
    "oi_launch",
    "oi_copy",
    "oi_keep_copy",
    "oi_move",
    "oi_set",
    "oi_look",
    "oi_upload",
    "oi_own",
    "oi_inputs",
    "oi_show",
    "oi_shown",
    "oi_is_shown",
    "oi_record",
    "oi_settle",
    "oi_submitted",
    "oi_recorded",
    "oi_waited",
    "oi_time",
    "oi_place",
    "oi_device_for",
    "oi_device_free",
    "oi_memory_of",
    "oi_memory_on",
    "oi_memory_put",
    "oi_memory_get",
    "oi_is_in",
    "oi_address",
    "oi_lose",
    "oi_ask_again",
    "oi_answered",
)
"""Functions of ``device.c`` and ``recorder.c``; every project has its own, so that a program can have several."""

_FILES = ("device.c", "inside.h", "recorder.c", "moves.c")
_OF_BLOCKS = replace(SUPPORT, folders=(("openinfer.synth.targets.vulkan", "host_runtime"), *SUPPORT.folders))
"""What blocks call is C's, but for what works on memory of the device."""


@cache
def _runtime(name: str) -> str:
    return (resources("openinfer.synth.targets.vulkan") / "host" / name).read_text(encoding="utf-8")


def device_facts(group: int, shaders: int, axes: int) -> str:
    """What ``device.h`` and the sources beside it must know of a program."""
    numbers = {"OI_GROUP": group, "OI_SHADERS": shaders, "OI_MOST_AXES": axes}
    return f"enum {{ {', '.join(f'{one} = {number}' for one, number in numbers.items())} }};\n"


class VulkanProject(HostedProject):
    """The files of a program, and the facts about them that others need."""

    def __init__(self, placed: Placed, options: ProjectOptions, machine: SimtMachine, numerics: Numerics) -> None:
        own = project_name(options.name)
        super().__init__(HostSource(f"{own}_" if own in _TAKEN else own, placed, options))
        printers = launching_printers(placed, self.name, machine, numerics)
        self._source = self._host.source(
            printers, "device.h", device_side(placed, printers, self.name, machine.subgroup)
        )
        self._file = printers.file
        self._machine = machine
        self.kernels: KernelLibrary = printers.calls.kernels
        """The launches, and their places in the order of the source."""
        self.reported: tuple[Reported, ...] = tuple(printers.blocks.reported)
        """What the lines that trace say, in the order of the source."""
        self._shaders = ShaderFiles(self.name, self.kernels, machine.group, numerics, printers.file.title)

    # --- facts ----------------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[str, ...]:
        """The files of the code that are compiled."""
        return (f"src/{self.name}.c", *SOURCES)

    @property
    def shaders(self) -> Mapping[str, str]:
        """The shaders by their paths, and what each is called in the program."""
        return self._shaders.names

    @property
    def build_options(self) -> ProjectOptions:
        """The options, which say all that a compiler must be told."""
        return self.options

    @property
    def libraries(self) -> tuple[str, ...]:
        """What a program is linked with."""
        return LIBRARIES

    # --- files ----------------------------------------------------------------------------------------------------

    def code(self) -> dict[str, str]:
        """The sources that compilers need, without the weights and without the names of graph and model."""
        return self._code("/* Made by OpenInfer. */\n", 0)

    def timed_code(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The code with a clock around every launch, and which files of it are compiled."""
        return {**self.code(), TIMED_SOURCE: timed_source(self)}, (TIMED_SOURCE, *self.sources[1:])

    def _code(self, banner: str, crc: int) -> dict[str, str]:
        name, files = (
            self.name,
            self._files,
        )
        return {
            f"include/{name}.h": folded(self._host.header(banner, crc)),
            f"src/{name}.c": banner + folded(self._source),
            "src/device.h": banner + self._device_header(),
            **{f"src/{one}": f"{banner}\n{_runtime(one)}" for one in _FILES},
            "src/shaders.c": banner + self._shaders.table(),
            "src/runtime.h": banner + folded(files.runtime()),
            **self._shaders.files(banner),
        }

    @property
    def _files(self) -> CodeFiles:
        needs = frozenset(self._file.needs)
        return CodeFiles(self.name, self.placed, self.kernels, needs, self._file.title, _OF_BLOCKS)

    def _device_header(self) -> str:
        guard, name = f"OPENINFER_{self.name.upper()}_DEVICE_H", self.name
        renamed = "\n".join(f"#define {one} {name}_{one}" for one in _EXTERNAL)
        facts = device_facts(self._machine.group, len(self.shaders), self._files.axes)
        shaders = f"extern const oi_shader {name}_shaders[];\n"
        body = f"{renamed}\n\n{facts}\n{_runtime('device.h')}\n{shaders}"
        return f"\n#ifndef {guard}\n#define {guard}\n\n{body}\n#endif\n"

    def files(self, golden: Sequence[Golden] = ()) -> Files:
        """All files but the plan, by their paths; golden values make a self-test."""
        banner = self._host.banner()
        found: Files = {**self._code(banner, zlib.crc32(self.blob))}
        found["src/weights.bin"] = self.blob
        match self.options.weights:
            case "array":
                del found["src/weights.bin"]
                found["src/weights.c"] = banner + weights_array(self.name, self.blob, self.placed.rules.alignment)
            case "incbin":
                found["src/weights.S"] = weights_assembly(self.name, self.placed.rules.alignment)
        has_selftest = bool(golden)
        found["Makefile"] = makefile(self.name, self.options, self.shaders, has_selftest=has_selftest)
        found["CMakeLists.txt"] = cmake_lists(self.name, self.options, self.shaders, has_selftest=has_selftest)
        found["example/main.c"] = banner + folded(example(self))
        if golden:
            found["selftest/main.c"] = banner + folded(selftest(self, golden))
        found["README.md"] = readme(self, has_selftest=has_selftest)
        return found
