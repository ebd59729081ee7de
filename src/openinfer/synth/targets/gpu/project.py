"""A project whose kernels run on a device: a host in C launches them, whatever language they are in."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files as resources
from string import Template

from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.targets.c.buildfiles import weight_files
from openinfer.synth.targets.c.code_files import CodeFiles
from openinfer.synth.targets.c.example import example
from openinfer.synth.targets.c.host_source import HostSource
from openinfer.synth.targets.c.hosted_project import HostedProject
from openinfer.synth.targets.c.selftest import selftest
from openinfer.synth.targets.c.support import SUPPORT
from openinfer.synth.targets.cstyle.fold import folded
from openinfer.synth.targets.cstyle.library import KernelLibrary, PrintKernel
from openinfer.synth.targets.cstyle.names import project_name
from openinfer.synth.targets.gpu.host_side import device_side
from openinfer.synth.targets.gpu.source import launching_printers
from openinfer.synth.targets.gpu.timed import TIMED_SOURCE, timed_source
from openinfer.synth.targets.project import Files, Golden, ProjectOptions
from openinfer.synth.targets.simt.machine import SimtMachine

_TAKEN = ("api", "cells", "commands", "copy", "device", "inside", "moves", "oi", "recorder")
"""The names of our own files."""
_EXTERNAL = (
    "oi_memory_new",
    "oi_memory_free",
    "oi_open",
    "oi_close",
    "oi_launch",
    "oi_copy",
    "oi_keep_copy",
    "oi_move",
    "oi_hand_over",
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
    "oi_failing",
    "oi_finish",
    "oi_is_kept",
    "oi_number_of",
    "oi_submitted",
    "oi_recorded",
    "oi_waited",
    "oi_time",
    "oi_place",
    "oi_device_for",
    "oi_device_free",
    "oi_is_own",
    "oi_memory_of",
    "oi_memory_on",
    "oi_memory_put",
    "oi_memory_get",
    "oi_is_in",
    "oi_address",
    "oi_note",
    "oi_outdate",
    "oi_lose",
    "oi_ask_again",
    "oi_answered",
    "oi_tools_new",
    "oi_tools_free",
    "oi_counts",
    "oi_commands_made",
    "oi_commands_run",
    "oi_first_failed",
    "oi_clock_runs",
    "oi_add_times",
)
"""Functions of the device side; every project has its own, so that a program can link several projects."""

_SHARED = ("inside.h", "recorder.c", "moves.c")
_OF_BLOCKS = replace(SUPPORT, folders=(("openinfer.synth.targets.gpu", "host_runtime"), *SUPPORT.folders))
"""The support code of blocks: that of C, except for functions that work on device memory."""


@dataclass(frozen=True)
class DeviceApi:
    """How programs access a kind of device."""

    package: str
    """The package whose ``host`` folder has the API's own files."""
    kernel: str
    """The definition of the struct that describes a kernel, in C."""
    taken: tuple[str, ...] = ()
    """More names that no project may have: files, and the prefixes of names in the API."""
    files: tuple[str, ...] = ("api.h", "device.c", "commands.c")
    external: tuple[str, ...] = ()
    """Functions that these files call across files: each project has its own, as a program may link several."""


@cache
def host_file(package: str, name: str) -> str:
    """The text of a file of the device side."""
    return (resources(package) / "host" / name).read_text(encoding="utf-8")


def device_header(api: DeviceApi, group: int, kernels: int, axes: int) -> str:
    """The text of ``device.h``, after the facts about a program that it and the sources next to it need."""
    numbers = {"OI_GROUP": group, "OI_KERNELS": kernels, "OI_MOST_AXES": axes}
    facts = f"enum {{ {', '.join(f'{one} = {number}' for one, number in numbers.items())} }};\n"
    return Template(host_file("openinfer.synth.targets.gpu", "device.h")).substitute(facts=facts, kernel=api.kernel)


class LaunchingProject(HostedProject, ABC):
    """The files of a program, and the facts about them that others need."""

    def __init__(
        self, placed: Placed, options: ProjectOptions, machine: SimtMachine, api: DeviceApi, printed: PrintKernel
    ) -> None:
        own = project_name(options.name)
        super().__init__(HostSource(f"{own}_" if own in (*_TAKEN, *api.taken) else own, placed, options))
        printers = launching_printers(placed, self.name, machine, printed)
        self._source = self._host.source(
            printers, "device.h", device_side(placed, printers, self.name, machine.subgroup)
        )
        self._file = printers.file
        self._machine = machine
        self._api = api
        self.kernels: KernelLibrary = printers.calls.kernels
        """The launches, and the calls of them in source order."""
        self.reported: tuple[Reported, ...] = tuple(printers.blocks.reported)
        """What the trace lines report, in source order."""

    # --- what languages provide -----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def sources(self) -> tuple[str, ...]:
        """The source files to compile, the host's first."""

    @abstractmethod
    def _kernel_count(self) -> int:
        """The number of kernels on the device, including those that every project has."""

    @abstractmethod
    def _kernel_files(self, banner: str) -> dict[str, str]:
        """The kernels, and the source that lists all of them."""

    @abstractmethod
    def _build_files(self, *, has_selftest: bool) -> dict[str, str]:
        """The build files, and the README."""

    # --- facts ----------------------------------------------------------------------------------------------------

    @property
    def build_options(self) -> ProjectOptions:
        """The options, which already have every flag that the compilers need."""
        return self.options

    # --- files ----------------------------------------------------------------------------------------------------

    def code(self) -> dict[str, str]:
        """The sources that compilers need, without the weights and without the names of graph and model."""
        return self._code("/* Made by OpenInfer. */\n", 0)

    def timed_code(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The code with a clock around every launch, and which of its files to compile."""
        return {**self.code(), TIMED_SOURCE: timed_source(self)}, (TIMED_SOURCE, *self.sources[1:])

    def _code(self, banner: str, crc: int) -> dict[str, str]:
        name, api = self.name, self._api
        shared = {one: host_file("openinfer.synth.targets.gpu", one) for one in _SHARED}
        own = {one: host_file(api.package, one) for one in api.files}
        return {
            f"include/{name}.h": folded(self._host.header(banner, crc)),
            f"src/{name}.c": banner + folded(self._source),
            "src/device.h": banner + self._device_header(),
            **{f"src/{one}": f"{banner}\n{text}" for one, text in (own | shared).items()},
            "src/runtime.h": banner + folded(self._files.runtime()),
            **self._kernel_files(banner),
        }

    @property
    def _files(self) -> CodeFiles:
        needs = frozenset(self._file.needs)
        return CodeFiles(self.name, self.placed, self.kernels, needs, self._file.title, _OF_BLOCKS)

    def _device_header(self) -> str:
        guard, name = f"OPENINFER_{self.name.upper()}_DEVICE_H", self.name
        renamed = "\n".join(f"#define {one} {name}_{one}" for one in (*_EXTERNAL, *self._api.external))
        header = device_header(self._api, self._machine.group, self._kernel_count(), self._files.axes)
        body = f"{renamed}\n\n{header}\nextern const oi_kernel {name}_kernels[];\n"
        return f"\n#ifndef {guard}\n#define {guard}\n\n{body}\n#endif\n"

    def files(self, golden: Sequence[Golden] = ()) -> Files:
        """All files but the plan, by path; golden values add a self-test."""
        banner = self._host.banner()
        found: Files = {**self._code(banner, zlib.crc32(self.blob))}
        found |= weight_files(self.name, self.options.weights, self.blob, self.placed.rules.alignment, banner)
        found.update(self._build_files(has_selftest=bool(golden)))
        found["example/main.c"] = banner + folded(example(self))
        if golden:
            found["selftest/main.c"] = banner + folded(selftest(self, golden))
        return found
