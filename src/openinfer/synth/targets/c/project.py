"""A C project: a program with its memory planned and its files printed."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from openinfer.synth.devices.isa import is_microcontroller
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.targets.c.bare_metal import linker_script, startup
from openinfer.synth.targets.c.buildfiles import cmake_lists, makefile, weight_files
from openinfer.synth.targets.c.code_files import CodeFiles
from openinfer.synth.targets.c.example import example
from openinfer.synth.targets.c.host_source import HostSource
from openinfer.synth.targets.c.hosted_project import HostedProject
from openinfer.synth.targets.c.readme import readme
from openinfer.synth.targets.c.selftest import selftest
from openinfer.synth.targets.c.source import source_printers
from openinfer.synth.targets.c.timed import TIMED_SOURCE, timed_source
from openinfer.synth.targets.cstyle.fold import folded
from openinfer.synth.targets.cstyle.library import KernelLibrary
from openinfer.synth.targets.cstyle.names import project_name
from openinfer.synth.targets.project import Files, Golden, ProjectOptions

_KERNELS = "src/kernels.c"


class Project(HostedProject):
    """The files of a program, and the facts about them that others need."""

    def __init__(self, placed: Placed, options: ProjectOptions | None = None) -> None:
        options = options or ProjectOptions()
        super().__init__(HostSource(project_name(options.name), placed, options))
        printers = source_printers(placed, self.name, self.options.isa, self.options.index_bits)
        self._source = self._host.source(printers, "kernels.h")
        self._file = printers.file
        self.kernels: KernelLibrary = printers.calls.kernels
        """The functions of kernels, and the calls to them in source order."""
        self.reported: tuple[Reported, ...] = tuple(printers.blocks.reported)
        """What the trace lines report, in source order."""

    # --- facts ----------------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[str, ...]:
        """The source files to compile."""
        return (f"src/{self.name}.c", _KERNELS)

    @property
    def shaders(self) -> Mapping[str, str]:
        """None: C kernels are in the sources."""
        return {}

    @property
    def libraries(self) -> tuple[str, ...]:
        """None: the code has no dependencies."""
        return ()

    @property
    def build_options(self) -> ProjectOptions:
        """The options, with the compiler flags for threads."""
        return replace(self.options, flags=(*self.options.flags, *["-pthread"] * (self.placed.threads > 1)))

    # --- files ----------------------------------------------------------------------------------------------------

    def code(self) -> dict[str, str]:
        """The sources that a compiler needs, without the weights and without the names of graph and model."""
        return self._code("/* Made by OpenInfer. */\n", 0)

    def timed_code(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The code with a clock around every kernel call, and which of its files to compile."""
        return {**self.code(), TIMED_SOURCE: timed_source(self)}, (TIMED_SOURCE, _KERNELS)

    def _code(self, banner: str, crc: int) -> dict[str, str]:
        header = {f"include/{self.name}.h": folded(self._host.header(banner, crc))}
        return header | {path: banner + text for path, text in self._below_banner.items()}

    @cached_property
    def _below_banner(self) -> dict[str, str]:
        """The text below the banner of each file, which does not depend on it; not the header, which contains it."""
        name, printed = self.name, self._file
        files = CodeFiles(name, self.placed, self.kernels, frozenset(printed.needs), printed.title)
        return {
            f"src/{name}.c": folded(self._source),
            "src/kernels.h": folded(files.kernels_header()),
            _KERNELS: folded(files.kernels_source()),
            "src/support.h": folded(files.support()),
            "src/runtime.h": folded(files.runtime()),
        }

    def files(self, golden: Sequence[Golden] = ()) -> Files:
        """All files but the plan, by path; golden values add a self-test."""
        banner = self._host.banner()
        found: Files = {**self._code(banner, zlib.crc32(self.blob))}
        found |= weight_files(self.name, self.options.weights, self.blob, self.placed.rules.alignment, banner)
        found["Makefile"] = makefile(self.name, self.build_options, has_selftest=bool(golden))
        found["CMakeLists.txt"] = cmake_lists(self.name, self.build_options, has_selftest=bool(golden))
        found["example/main.c"] = banner + folded(example(self))
        if golden:
            found["selftest/main.c"] = banner + folded(selftest(self, golden))
        if is_microcontroller(self.options.isa):
            found |= {"bare/startup.c": startup(), "bare/mps2.ld": linker_script()}
        found["README.md"] = readme(self, has_selftest=bool(golden))
        return found
