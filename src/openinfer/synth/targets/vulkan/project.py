"""A Vulkan project: shaders, and a host in C that launches them."""

from collections.abc import Mapping
from functools import partial

from openinfer.synth.memory.placed import Placed
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.gpu.project import DeviceApi, LaunchingProject
from openinfer.synth.targets.project import ProjectOptions
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.vulkan.buildfiles import LIBRARIES, SOURCES, cmake_lists, makefile
from openinfer.synth.targets.vulkan.readme import readme
from openinfer.synth.targets.vulkan.shader import printed_launch
from openinfer.synth.targets.vulkan.shader_files import ShaderFiles
from openinfer.synth.targets.vulkan.waiting import TEAMS_AT

_KERNEL = f"""/* What groups of a kernel wait for while they run: nothing; earlier launches, and then they are counted
   when they end; or values of the other groups of their team. */
typedef enum {{ OI_FOR_NONE, OI_FOR_LAUNCHES, OI_FOR_TEAM }} oi_waiting;

/* A compute shader in SPIR-V. */
typedef struct {{
    const uint32_t *words;
    size_t bytes;
    oi_waiting waits;
    size_t exchanged; /* bytes of memory through which groups exchange values: zeros before it runs, and after it */
}} oi_kernel;

enum {{ OI_TEAMS_AT = {4 * TEAMS_AT} }};
"""
"""Behind the types: where the address of this memory is in the status."""
VULKAN = DeviceApi("openinfer.synth.targets.vulkan", _KERNEL, taken=("shaders", "vulkan"))


class VulkanProject(LaunchingProject):
    """The files of a program, and the facts about them that others need."""

    def __init__(self, placed: Placed, options: ProjectOptions, machine: SimtMachine, numerics: Numerics) -> None:
        own = partial(printed_launch, numerics=numerics, bounds=placed.program.sizes)
        super().__init__(placed, options, machine, VULKAN, own)
        self._shaders = ShaderFiles(self.name, self.kernels, machine.group, numerics, self._file.title)

    @property
    def sources(self) -> tuple[str, ...]:
        """The source files to compile."""
        return (f"src/{self.name}.c", *SOURCES)

    @property
    def shaders(self) -> Mapping[str, str]:
        """The shaders by path, with the name of each in the program."""
        return self._shaders.names

    @property
    def libraries(self) -> tuple[str, ...]:
        """Libraries to link."""
        return LIBRARIES

    def _kernel_count(self) -> int:
        return len(self.shaders)

    def _kernel_files(self, banner: str) -> dict[str, str]:
        return {"src/shaders.c": banner + self._shaders.table(), **self._shaders.files(banner)}

    def _build_files(self, *, has_selftest: bool) -> dict[str, str]:
        return {
            "Makefile": makefile(self.name, self.options, self.shaders, has_selftest=has_selftest),
            "CMakeLists.txt": cmake_lists(self.name, self.options, self.shaders, has_selftest=has_selftest),
            "README.md": readme(self, has_selftest=has_selftest),
        }
