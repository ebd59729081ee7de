"""Build files of a CUDA project: a Makefile and CMakeLists.txt. nvcc compiles kernels and finds CUDA for the host."""

from pathlib import PurePosixPath

from openinfer.synth.targets.c.buildfiles import continued
from openinfer.synth.targets.cuda.dialect import FLAGS
from openinfer.synth.targets.cuda.kernel_files import KERNELS_FILE
from openinfer.synth.targets.project import ProjectOptions

SOURCES = ("src/device.c", "src/commands.c", "src/recorder.c", "src/moves.c", KERNELS_FILE)
"""The sources that every project has."""
_MISSING = "nvcc not found: install the CUDA toolkit (https://developer.nvidia.com/cuda-downloads)"


def architecture_flag(name: str) -> str:
    """The flag that selects an architecture for nvcc.

    An architecture whose name ends in a letter has instructions of its own, and its code runs nowhere else. It does not
    use the short form, which would compile everything once more for others.

    >>> architecture_flag("sm_90a"), architecture_flag("sm_80"), architecture_flag("native")
    ('-gencode=arch=compute_90a,code=sm_90a', '-arch=sm_80', '-arch=native')
    """
    number = name.removeprefix("sm_")
    is_own = name != number and number[-1:].isalpha()
    return f"-gencode=arch=compute_{number},code={name}" if is_own else f"-arch={name}"


def _sources(name: str, options: ProjectOptions) -> list[str]:
    extra = {"array": ["src/weights.c"], "incbin": ["src/weights.S"]}.get(options.weights, [])
    return [f"src/{name}.c", *SOURCES, *extra]


def makefile(name: str, options: ProjectOptions, *, has_selftest: bool) -> str:
    """Targets: the library (default), ``example``, ``selftest``, ``clean``."""
    objects = " ".join(f"build/{PurePosixPath(one).stem}.o" for one in _sources(name, options))
    programs = ["example", *["selftest"] * has_selftest]
    rules = "".join(_program_rules(name, program, options) for program in programs)
    assembly = "build/%.o: src/%.S src/weights.bin\n\t$(CC) -c -o $@ $<\n\n"
    text = f"""# Made by OpenInfer: {", ".join(["make", *(f"make {program}" for program in programs)])}.
CC = gcc
NVCC ?= nvcc
CFLAGS ?= -O2 -Wall -Wextra
NVCCFLAGS = -O3 {" ".join(FLAGS)} {" ".join(options.flags)}
HOST = $(NVCC) -ccbin $(CC) $(addprefix -Xcompiler ,-std=c11 $(CFLAGS)) -Iinclude -Isrc

.PHONY: {" ".join(["all", *programs, "clean"])}

all: build/lib{name}.a

build/lib{name}.a: {objects}
	$(AR) rcs $@ {objects}

build/kernels.o: src/kernels.cu src/support.cuh src/device.h build/nvcc
	$(NVCC) -ccbin $(CC) $(NVCCFLAGS) -Isrc -c -o $@ src/kernels.cu

build/%.o: src/%.c include/{name}.h src/device.h src/inside.h src/api.h src/runtime.h build/nvcc
	$(HOST) -c -o $@ $<

{assembly * (options.weights == "incbin")}build/nvcc:
	@command -v $(firstword $(NVCC)) >/dev/null || {{ echo "{_MISSING}" >&2; exit 1; }}
	@mkdir -p build
	@touch $@
{rules}
clean:
	rm -rf build
"""
    return "\n".join(part for line in text.split("\n") for part in continued(line))


def _program_rules(name: str, program: str, options: ProjectOptions) -> str:
    argument = " src/weights.bin" if options.weights == "file" else ""
    return f"""
{program}: build/{program}
	./build/{program}{argument}

build/{program}: {program}/main.c build/lib{name}.a
	$(HOST) -c -o $@.o {program}/main.c
	$(NVCC) -ccbin $(CC) $(addprefix -Xcompiler ,$(CFLAGS)) -o $@ $@.o build/lib{name}.a
"""


def cmake_lists(name: str, options: ProjectOptions, *, has_selftest: bool) -> str:
    """The same targets for CMake; other projects can link the library."""
    language = "C CUDA ASM" if options.weights == "incbin" else "C CUDA"
    argument = " ${CMAKE_CURRENT_SOURCE_DIR}/src/weights.bin" if options.weights == "file" else ""
    flags = " ".join([*(one for one in FLAGS if not one.startswith("-std")), *options.flags])
    test = f"""
enable_testing()
add_executable({name}_selftest selftest/main.c)
target_link_libraries({name}_selftest {name})
add_test(NAME {name}_selftest COMMAND {name}_selftest{argument})
"""
    return f"""# Made by OpenInfer.
cmake_minimum_required(VERSION 3.18)
set(CMAKE_CUDA_ARCHITECTURES OFF)
project({name} {language})
set(CMAKE_C_STANDARD 11)
set(CMAKE_CUDA_STANDARD 17)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CUDA_FLAGS "${{CMAKE_CUDA_FLAGS}} {flags}")
find_package(CUDAToolkit REQUIRED)

add_library({name} STATIC {" ".join(_sources(name, options))})
target_include_directories({name} PUBLIC include PRIVATE src)
target_link_libraries({name} PUBLIC CUDA::cudart_static)

add_executable({name}_example example/main.c)
target_link_libraries({name}_example {name})
{test if has_selftest else ""}"""
