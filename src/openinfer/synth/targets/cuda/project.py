"""A CUDA project: kernels, and a host in C that launches them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from openinfer.synth.memory.placed import Placed
from openinfer.synth.targets.cuda.buildfiles import SOURCES, cmake_lists, makefile
from openinfer.synth.targets.cuda.dialect import FLAGS
from openinfer.synth.targets.cuda.kernel import printed_launch
from openinfer.synth.targets.cuda.kernel_files import CudaKernels
from openinfer.synth.targets.cuda.readme import readme
from openinfer.synth.targets.gpu.project import DeviceApi, LaunchingProject
from openinfer.synth.targets.project import ProjectOptions
from openinfer.synth.targets.simt.machine import SimtMachine

_KERNEL = """/* A kernel: threads per group, words of arguments that form one block (0: one by one), bytes of shared
   memory per group that are allocated at launch. If it may start early, it waits itself: for all launches that it
   depends on (1), for the one before it (2), or only if it depends on a single one (3). */
typedef struct {
    const void *function;
    int32_t threads, words, shared, early;
    uint64_t looked_up; /* a bit for each argument that the kernel gets the address of, not the value */
} oi_kernel;
"""
CUDA_API = DeviceApi(
    "openinfer.synth.targets.cuda", _KERNEL, taken=("cuda", "kernels", "support"), external=("oi_enter", "oi_leave")
)


class CudaProject(LaunchingProject):
    """The files of a program, and the facts about them that others need."""

    def __init__(self, placed: Placed, options: ProjectOptions, machine: SimtMachine) -> None:
        own = partial(printed_launch, machine=machine, bounds=placed.program.sizes)
        super().__init__(placed, options, machine, CUDA_API, own)
        self._kernels = CudaKernels(self.name, self.kernels, machine, self._file.title)

    @property
    def sources(self) -> tuple[str, ...]:
        """The source files to compile."""
        return (f"src/{self.name}.c", *SOURCES)

    @property
    def shaders(self) -> Mapping[str, str]:
        """None: kernels are part of the program."""
        return {}

    @property
    def libraries(self) -> tuple[str, ...]:
        """Libraries to link, apart from those that the kernel compiler adds."""
        return ()

    @property
    def kernel_flags(self) -> tuple[str, ...]:
        """Flags for the kernel compiler."""
        return ("-O3", *FLAGS, *self.options.flags)

    @property
    def build_options(self) -> ProjectOptions:
        """The options without those for kernels only."""
        return replace(self.options, flags=())

    def _kernel_count(self) -> int:
        return self._kernels.count

    def _kernel_files(self, banner: str) -> dict[str, str]:
        return self._kernels.files(banner, self._files.axes)

    def _build_files(self, *, has_selftest: bool) -> dict[str, str]:
        return {
            "Makefile": makefile(self.name, self.options, has_selftest=has_selftest),
            "CMakeLists.txt": cmake_lists(self.name, self.options, has_selftest=has_selftest),
            "README.md": readme(self, has_selftest=has_selftest),
        }
