"""Build files: a Makefile, CMake's lists, and the weights as sources. The only name in them is the project's own."""

from textwrap import fill
from typing import TYPE_CHECKING

from openinfer.synth.devices.isa import is_microcontroller
from openinfer.synth.targets.c.bare_metal import DROPPED, EMULATOR, LINKED, SECTIONS
from openinfer.synth.targets.cstyle.fold import WIDEST

if TYPE_CHECKING:
    from openinfer.synth.targets.project import Files, ProjectOptions, Weights

_PAD = "    "
NUMERICS = "-ffp-contract=off -fno-math-errno -fno-trapping-math"
"""The compiler flags that results depend on: no implicit contraction, and no calls that only set errno."""


_PACKAGES = {
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
}
"""Debian packages of cross compilers."""
_AARCH64 = """# On other machines, programs run in an emulator, with the libraries of the cross compiler.
ifeq ($(filter aarch64 arm64,$(shell uname -m)),)
RUN ?= qemu-aarch64 -L /usr/aarch64-linux-gnu
endif
"""


def _sources(name: str, weights: str) -> list[str]:
    extra = {"array": ["src/weights.c"], "incbin": ["src/weights.S"]}.get(weights, [])
    return [f"src/{name}.c", "src/kernels.c", *extra]


def _identifying(name: str) -> list[str]:
    """Files that differ between any two projects: they name the model and the graph, and contain all the code."""
    return [f"include/{name}.h", f"src/{name}.c", "src/kernels.c"]


def makefile(name: str, options: "ProjectOptions", *, has_selftest: bool) -> str:
    """Targets: the library (default), ``example``, ``selftest``, ``clean``.

    Objects of changed files are rebuilt, even if the files were replaced while they were being compiled.
    """
    objects = " ".join(
        f"build/{source.split('/')[1].rsplit('.', 1)[0]}.o" for source in _sources(name, options.weights)
    )
    programs = ["example", *["selftest"] * has_selftest]
    rules = "".join(_program_rules(name, program, options) for program in programs)
    stamp = "build/files-$(FILES)"
    assembly = f"""
build/%.o: src/%.S src/weights.bin {stamp}
	@mkdir -p build
	$(CC) $(ALL_CFLAGS) -c -o $@ $<
"""
    text = f"""# Made by OpenInfer: {", ".join(["make", *(f"make {program}" for program in programs)])}.
{_tools(options)}{_emulator(options.isa)}CFLAGS ?= -O3 -Wall -Wextra
ALL_CFLAGS = -std=c11 $(CFLAGS) {" ".join(_flags(options))} -Iinclude
FILES := $(firstword $(shell cat {" ".join(_identifying(name))} | cksum))

.PHONY: {" ".join(["all", *programs, "clean"])}

all: build/lib{name}.a

build/lib{name}.a: {objects}
	$(AR) rcs $@ {objects}

build/%.o: src/%.c include/{name}.h src/kernels.h src/support.h src/runtime.h {stamp}
	@mkdir -p build
	$(CC) $(ALL_CFLAGS) -c -o $@ $<
{assembly if options.weights == "incbin" else ""}{rules}
# A stamp that is newer than all objects of other versions of these files.
{stamp}:
{_required_compiler(options)}	@mkdir -p build
	@rm -f build/files-*
	@touch $@

clean:
	rm -rf build
"""
    return "\n".join(part for line in text.split("\n") for part in continued(line))


def continued(line: str) -> list[str]:
    """A line of a Makefile, wrapped at blanks if it is too wide; in shell strings too, since the shell joins lines."""
    lines = [""]
    for word in line.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) + len("  \\") > WIDEST:
            lines[-1] += " \\"
            lines.append(f"\t{word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return lines if len(line) > WIDEST else [line]


def _flags(options: "ProjectOptions") -> list[str]:
    """The compiler flags for the device, for numerics, and for the linker."""
    return [*options.flags, *NUMERICS.split(), *SECTIONS.split() * is_microcontroller(options.isa)]


def _tools(options: "ProjectOptions") -> str:
    """The device's compiler and its archiver, unless the caller of make names others."""
    if options.cc is None:
        return "CC ?= cc\n"
    tools = {"CC": options.cc}
    if options.cc.endswith("-gcc"):
        tools["AR"] = options.cc.removesuffix("gcc") + "ar"
    return "".join(f"ifeq ($(origin {tool}),default)\n{tool} = {own}\nendif\n" for tool, own in tools.items())


def _required_compiler(options: "ProjectOptions") -> str:
    """A line that says what to install if the cross compiler is missing."""
    if options.cc is None:
        return ""
    advice = f"apt-get install {_PACKAGES[options.cc]}, or " if options.cc in _PACKAGES else ""
    message = f"compiler $(firstword $(CC)) not found: {advice}choose another with make CC=..."
    return _required("$(firstword $(CC))", message)


def _required(program: str, message: str) -> str:
    return f'\t@command -v {program} >/dev/null || {{ echo "{message}" >&2; exit 1; }}\n'


def _emulator(isa: str) -> str:
    """The definition of ``RUN``, the command that runs programs for another machine."""
    if is_microcontroller(isa):
        return EMULATOR
    return _AARCH64 if isa == "neon" else ""


def _program_rules(name: str, program: str, options: "ProjectOptions") -> str:
    argument = " src/weights.bin" if options.weights == "file" and not is_microcontroller(options.isa) else ""
    link = f" {LINKED}" if is_microcontroller(options.isa) else ""
    return f"""
{program}: build/{program}
{_required_emulator(options.isa)}	$(RUN) ./build/{program}{argument}

build/{program}: {program}/main.c build/lib{name}.a
	$(CC) $(ALL_CFLAGS) -o $@{link} {program}/main.c build/lib{name}.a
"""


def _required_emulator(isa: str) -> str:
    if not _emulator(isa):
        return ""
    package = "qemu-system-arm" if is_microcontroller(isa) else "qemu-user"
    message = f"$(firstword $(RUN)) not found: apt-get install {package}"
    return _required("$(firstword $(RUN) true)", message)


def cmake_lists(name: str, options: "ProjectOptions", *, has_selftest: bool) -> str:
    """The text of ``CMakeLists.txt``; the library is a target that other projects can link.

    The definition of ``NAME_FILES`` makes CMake recompile everything when the files change.
    """
    language = "C ASM" if options.weights == "incbin" else "C"
    sources = " ".join(_sources(name, options.weights))
    flags = fill(" ".join(_flags(options)), WIDEST, initial_indent=_PAD, subsequent_indent=_PAD)
    include = ""
    if options.weights == "incbin":
        # Not through -Wa, which splits a path at its commas.
        folder = '"${CMAKE_CURRENT_SOURCE_DIR}"'
        include = f"set_source_files_properties(src/weights.S PROPERTIES INCLUDE_DIRECTORIES {folder})\n"
    more = _cmake_programs(name, options, has_selftest=has_selftest)
    if is_microcontroller(options.isa):
        # CMake builds only the library; programs that link it drop what they do not use.
        more = f"target_link_options({name} INTERFACE {DROPPED})\n"
    return f"""# Made by OpenInfer.
cmake_minimum_required(VERSION 3.13)
project({name} {language})
set(CMAKE_C_STANDARD 11)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library({name} STATIC {sources})
target_include_directories({name} PUBLIC include)

# Recompile everything when these files change, whatever their timestamps.
foreach(path {" ".join(_identifying(name))})
  file(SHA256 "${{CMAKE_CURRENT_SOURCE_DIR}}/${{path}}" digest)
  string(APPEND digests "${{digest}}")
endforeach()
string(SHA256 digest "${{digests}}")
target_compile_definitions({name} PUBLIC {name.upper()}_FILES=0x${{digest}})

set(flags
{flags})
target_compile_options({name} PRIVATE "$<$<COMPILE_LANGUAGE:C>:${{flags}}>")
{include}{more}"""


def _cmake_programs(name: str, options: "ProjectOptions", *, has_selftest: bool) -> str:
    """The programs."""
    argument = " ${CMAKE_CURRENT_SOURCE_DIR}/src/weights.bin" if options.weights == "file" else ""
    test = f"""
enable_testing()
add_executable({name}_selftest selftest/main.c)
target_link_libraries({name}_selftest {name})
add_test(NAME {name}_selftest COMMAND {name}_selftest{argument})
"""
    return f"""
add_executable({name}_example example/main.c)
target_link_libraries({name}_example {name})
{test if has_selftest else ""}"""


def weight_files(name: str, kept: "Weights", blob: bytes, alignment: int, banner: str) -> "Files":
    """The weights as a file that is read, as an array, or as a file that the assembler includes."""
    if kept == "array":
        return {"src/weights.c": banner + _weights_array(name, blob, alignment)}
    found: Files = {"src/weights.bin": blob}
    return found if kept == "file" else found | {"src/weights.S": _weights_assembly(name, alignment)}


def _weights_array(name: str, blob: bytes, alignment: int) -> str:
    """The weights as a constant array."""
    data = blob or b"\0"
    lines = [",".join(map(str, data[start : start + 24])) for start in range(0, len(data), 24)]
    body = ",\n".join(lines)
    return f"""
#include "{name}.h"

_Alignas({alignment}) const unsigned char {name}_weights[{len(data)}] = {{
{body}
}};
"""


def _weights_assembly(name: str, alignment: int) -> str:
    """The weights as a file that the assembler includes."""
    return f"""/* Made by OpenInfer. */
#ifdef __APPLE__
#define WEIGHTS _{name}_weights
    .const
#else
#define WEIGHTS {name}_weights
    .section .rodata
#endif
    .globl WEIGHTS
    .balign {alignment}
WEIGHTS:
    .incbin "src/weights.bin"
    .byte 0
#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack,"",%progbits
#endif
"""
