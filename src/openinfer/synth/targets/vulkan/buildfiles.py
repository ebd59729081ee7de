"""Build files of a Vulkan project: a Makefile and CMakeLists.txt. Shaders become arrays in the program."""

from collections.abc import Mapping
from pathlib import PurePosixPath

from openinfer.synth.targets.c.buildfiles import continued
from openinfer.synth.targets.project import ProjectOptions

COMPILE = "glslangValidator"
"""The shader compiler, from Debian's package glslang-tools."""
FLAGS = ("-V", "--target-env", "vulkan1.2", "-Ishaders")
LIBRARIES = ("-lvulkan", "-lpthread")
SOURCES = ("src/device.c", "src/commands.c", "src/recorder.c", "src/moves.c", "src/shaders.c")
"""The sources that every project has."""


def _sources(name: str, options: ProjectOptions) -> list[str]:
    extra = {"array": ["src/weights.c"], "incbin": ["src/weights.S"]}.get(options.weights, [])
    return [f"src/{name}.c", *SOURCES, *extra]


def makefile(name: str, options: ProjectOptions, shaders: Mapping[str, str], *, has_selftest: bool) -> str:
    """Targets: the library (default), ``example``, ``selftest``, ``clean``."""
    objects = " ".join(f"build/{PurePosixPath(one).stem}.o" for one in _sources(name, options))
    programs = ["example", *["selftest"] * has_selftest]
    rules = "".join(_program_rules(name, program, options) for program in programs)
    compiled = "".join(_shader_rule(path, own) for path, own in shaders.items())
    headers = " ".join(f"build/{own}.h" for own in shaders.values())
    assembly = "build/%.o: src/%.S src/weights.bin\n\t$(CC) $(ALL_CFLAGS) -c -o $@ $<\n\n"
    missing = "$(firstword $(GLSLANG)) not found: apt-get install glslang-tools"
    text = f"""# Made by OpenInfer: {", ".join(["make", *(f"make {program}" for program in programs)])}.
CC ?= cc
GLSLANG ?= {COMPILE}
CFLAGS ?= -O2 -Wall -Wextra
ALL_CFLAGS = -std=c11 $(CFLAGS) {" ".join(options.flags)} -Iinclude -Isrc -Ibuild
LIBRARIES = {" ".join(LIBRARIES)}

.PHONY: {" ".join(["all", *programs, "clean"])}

all: build/lib{name}.a

build/lib{name}.a: {objects}
	$(AR) rcs $@ {objects}

build/shaders.o: {headers}

build/%.o: src/%.c include/{name}.h src/device.h src/inside.h src/api.h src/runtime.h
	@mkdir -p build
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

{assembly * (options.weights == "incbin")}build/glslang:
	@command -v $(firstword $(GLSLANG)) >/dev/null || {{ echo "{missing}" >&2; exit 1; }}
	@mkdir -p build
	@touch $@

{compiled}{rules}
clean:
	rm -rf build
"""
    return "\n".join(part for line in text.split("\n") for part in continued(line))


def _shader_rule(path: str, own: str) -> str:
    return f"""build/{own}.h: {path} shaders/support.glsl build/glslang
	$(GLSLANG) {" ".join(FLAGS)} --vn {own} -o $@ {path} >build/{own}.log || {{ cat build/{own}.log >&2; exit 1; }}

"""


def _program_rules(name: str, program: str, options: ProjectOptions) -> str:
    argument = " src/weights.bin" if options.weights == "file" else ""
    return f"""
{program}: build/{program}
	./build/{program}{argument}

build/{program}: {program}/main.c build/lib{name}.a
	$(CC) $(ALL_CFLAGS) -o $@ {program}/main.c build/lib{name}.a $(LIBRARIES)
"""


def cmake_lists(name: str, options: ProjectOptions, shaders: Mapping[str, str], *, has_selftest: bool) -> str:
    """The same targets for CMake; other projects can link the library."""
    language = "C ASM" if options.weights == "incbin" else "C"
    pairs = "\n".join(f"  {path} {own}" for path, own in shaders.items())
    argument = " ${CMAKE_CURRENT_SOURCE_DIR}/src/weights.bin" if options.weights == "file" else ""
    test = f"""
enable_testing()
add_executable({name}_selftest selftest/main.c)
target_link_libraries({name}_selftest {name})
add_test(NAME {name}_selftest COMMAND {name}_selftest{argument})
"""
    return f"""# Made by OpenInfer.
cmake_minimum_required(VERSION 3.13)
project({name} {language})
set(CMAKE_C_STANDARD 11)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(Vulkan REQUIRED)
find_package(Threads REQUIRED)
find_program(GLSLANG {COMPILE})
if(NOT GLSLANG)
  message(FATAL_ERROR "{COMPILE} not found: apt-get install glslang-tools")
endif()

# Shaders, and the name of each in the program.
set(shaders
{pairs})
set(headers)
list(LENGTH shaders count)
math(EXPR last "${{count}} / 2 - 1")
foreach(number RANGE ${{last}})
  math(EXPR at "${{number}} * 2")
  list(GET shaders ${{at}} path)
  math(EXPR at "${{at}} + 1")
  list(GET shaders ${{at}} own)
  set(header "${{CMAKE_CURRENT_BINARY_DIR}}/${{own}}.h")
  add_custom_command(OUTPUT "${{header}}"
    COMMAND ${{GLSLANG}} {" ".join(FLAGS)} --vn ${{own}} -o "${{header}}" ${{path}}
    DEPENDS ${{path}} shaders/support.glsl WORKING_DIRECTORY "${{CMAKE_CURRENT_SOURCE_DIR}}")
  list(APPEND headers "${{header}}")
endforeach()

add_library({name} STATIC {" ".join(_sources(name, options))} ${{headers}})
target_include_directories({name} PUBLIC include PRIVATE src "${{CMAKE_CURRENT_BINARY_DIR}}")
target_link_libraries({name} PUBLIC Vulkan::Vulkan Threads::Threads)

add_executable({name}_example example/main.c)
target_link_libraries({name}_example {name})
{test if has_selftest else ""}"""
