"""Words that others have taken, as names of graphs: the project builds with make and with CMake all the same."""

import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from openinfer import graph
from openinfer.cli.app import app
from openinfer.ir.words import RESERVED
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.targets.cstyle.names import project_name
from openinfer.synth.targets.project import Golden

FOUND = ["runtime", "x", "r", "w", "f", "test", "all", "clean", "help", "install", "edit_cache", "rebuild_cache"]
"""Names that gave projects which did not build."""
OURS = "kernels support weights timed example selftest main block entry v s i end t oi oi_pick build bare mps2 startup"
C = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while alignas alignof
bool constexpr false nullptr static_assert thread_local true typeof typeof_unqual asm fortran linux unix
"""
CPP = """
and and_eq bitand bitor catch char8_t class co_await compl concept consteval decltype delete dynamic_cast explicit
export friend module mutable namespace new noexcept not operator or override private protected public requires
template this throw try typeid typename using virtual xor final import std
"""
MAKE = (
    "define endef ifdef ifeq include override private undefine unexport vpath make cc ar rm run cflags phony suffixes"
)
CMAKE = """
project add_library add_executable set if foreach endif function macro return while on off yes no true target cmake
all_build zero_check run_tests package package_source preinstall list_install_components codegen depend experimental
nightly continuous ctest install_local interface public
"""
GLSL = """
attribute uniform varying buffer shared coherent readonly layout centroid flat smooth patch sample subroutine in out
inout precision highp lowp mat4 vec3 ivec2 sampler2d image2d discard invariant demote
"""
CUDA = "global device host shared constant managed launch_bounds dim3 threadidx blockidx warpsize cuda half"
HEADERS = "stdint stdio string math time unistd fcntl stat mman pthread stdatomic immintrin emmintrin arm_neon features"
LIBC = """
errno null eof stdin exit abort malloc free memcpy printf signal wait time atomic mtx cnd tss thrd sem aio epoll inotify
pthread_mutex pthread_cond pthread_spin posix_spawnattr inet6_opt res xdr pkey si clone trap argp obstack c m dl rt gcc
"""
WORDS = list(
    dict.fromkeys(
        [*FOUND, *(word for text in (OURS, C, CPP, MAKE, CMAKE, GLSL, CUDA, HEADERS, LIBC) for word in text.split())]
    )
)
CMAKE_TARGETS = {
    *("all", "ALL_BUILD", "help", "install", "INSTALL", "preinstall", "clean", "edit_cache", "rebuild_cache"),
    *("ZERO_CHECK", "test", "RUN_TESTS", "package", "PACKAGE", "package_source", "list_install_components", "codegen"),
}
"""Names that CMake keeps for itself."""
TEXT = "dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { op exp(x) >> y; return y; }"


def plan_called(word: str) -> Plan:
    return Synthesizer("generic", name=word).synthesize(None, graph(TEXT))


@cache
def known_to_the_compiler() -> frozenset[str]:
    """Every identifier and macro of the headers that generated code includes, and of some more."""
    headers = (
        "fcntl pthread sched semaphore signal stdatomic stdbool stddef stdint stdio stdlib string sys/mman sys/stat"
    )
    headers += " time unistd immintrin threads spawn aio math tgmath errno limits"
    source = "#define _GNU_SOURCE\n" + "".join(f"#include <{one}.h>\n" for one in headers.split())
    command = ["gcc", "-E", "-dD", "-xc", "-"]
    ended = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    return frozenset(re.findall(r"[A-Za-z_]\w*", ended.stdout))


@cache
def endings() -> frozenset[str]:
    """What the project's name stands before, in everything that is emitted and in what builds add to it."""
    plan = Synthesizer("x86-avx512", name="qqq").synthesize(None, graph(GROWING))
    ones = np.ones(4, np.float32)
    files = plan.files([Golden({"x": ones}, {"y": ones})])
    text = "\n".join(one for one in files.values() if isinstance(one, str))
    found = set(re.findall(r"\b(?:qqq|QQQ)_(\w+)", text))
    assert {"init", "OK", "context", "MAX_RANK", "free", "reserve"} <= found
    return frozenset(found)


GROWING = """
dynamic { x: f32[4]; } volatile { y: f32[4]; } persistent { n: i32; K(t): f32[4] @table; }
block entry { op exp(x) >> y; cache.write y >> K[n]; cache.increment n; return y; }
"""


def test_no_name_of_a_project_gives_an_identifier_that_a_header_has() -> None:
    """Whatever stands before one of our endings in some header is no name for a project."""
    clashes = set()
    for known in known_to_the_compiler():
        for ending in endings():
            if known.endswith(f"_{ending}"):
                clashes.add(known.removesuffix(f"_{ending}").lower())
    assert {"x", "atomic", "mtx", "pthread_mutex"} <= clashes
    assert [name for name in sorted(clashes) if project_name(name) == name] == []


def test_no_name_of_a_project_hides_a_header() -> None:
    folders = subprocess.run(["gcc", "-E", "-v", "-xc", "/dev/null"], capture_output=True, text=True, check=True).stderr
    paths = [Path(line.strip()) for line in folders.splitlines() if line.startswith(" /")]
    used = re.findall(
        r'"(/[^"]+)\.h"',
        subprocess.run(
            ["gcc", "-E", "-xc", "-"],
            input="#include <immintrin.h>\n#include <pthread.h>\n#include <stdatomic.h>\n#include <stdlib.h>\n",
            capture_output=True,
            text=True,
            check=True,
        ).stdout,
    )
    names = {Path(path).name for path in used if Path(path).parent in paths}
    assert {"stdlib", "avx2intrin"} <= names
    assert [name for name in sorted(names) if project_name(name) == name] == []


@pytest.mark.parametrize("word", WORDS)
def test_a_word_becomes_a_name_that_nothing_else_has(word: str) -> None:
    name = project_name(word)
    assert re.fullmatch("[a-z][a-z0-9_]*", name)
    assert project_name(name) == name
    assert not {name, f"{name}_example", f"{name}_selftest"} & CMAKE_TARGETS
    assert name not in ["kernels", "support", "weights", "runtime", "timed"]
    known = known_to_the_compiler()
    assert not [one for one in endings() if f"{name}_{one}" in known or f"{name.upper()}_{one}" in known]


def test_projects_with_such_names_compile_and_cmake_takes_them_together(tmp_path: Path) -> None:
    """One tree of all of them: CMake looks at every target's name, and the compiler at every source."""
    ones = np.ones(4, np.float32)
    names = [*FOUND, "int", "class", "block", "pthread_mutex", "atomic", "c", "m"]
    lines = ["cmake_minimum_required(VERSION 3.13)", "project(top C)", "enable_testing()"]
    sources = []
    for word in names:
        plan = plan_called(word)
        plan.emit(tmp_path / word, [Golden({"x": ones}, {"y": np.exp(ones)})])
        lines.append(f"add_subdirectory({word} {word}_build)")
        own = [f"src/{plan.project.name}.c", "src/kernels.c", "example/main.c", "selftest/main.c"]
        sources.append((tmp_path / word, own))
    (tmp_path / "CMakeLists.txt").write_text("\n".join(lines))
    ended = subprocess.run(
        ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for folder, files in sources:
        command = ["gcc", "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Iinclude", *files]
        checked = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, f"{folder.name}: {checked.stderr[:2000]}"


MACROS = (
    "NULL EOF BUFSIZ INT64_MAX X_OK R_OK MAP_FAILED SIGINT errno stdin stdout stderr I near far small unix linux min"
)


def test_variables_blocks_sizes_and_loops_can_have_such_names(tmp_path: Path) -> None:
    """All of them at once, in C and in a C++ program that includes the header."""
    words = [word for word in (*WORDS, *MACROS.split()) if word not in RESERVED and word not in ("entry", "x")]
    blocks, sizes, rest = words[::5], words[1::5][:12], words[2::5]
    inputs = " ".join(f"{word}: f32[{word}, 2];" for word in sizes)
    outputs = " ".join(f"{word}: f32[2];" for word in rest)
    body = "".join(f"loop {word} ({word} in 0..2) {{ op add({word}, x) >> {word}; }}\n" for word in rest[:10])
    body += "".join(f"op mul({word}, x) >> {word};\n" for word in rest[10:])
    text = f"""sizes {{ {" ".join(f"{word} <= 4;" for word in sizes)} }}
    dynamic {{ x: f32[2]; {inputs} }} volatile {{ {outputs} }}
    block entry {{ {body} {" ".join(f"branch {word};" for word in blocks)} return {", ".join(rest)}; }}
    {" ".join(f"block {word} {{ op add(x, {rest[0]}) >> {rest[0]}; return; }}" for word in blocks)}"""
    Synthesizer("generic", name="net").synthesize(None, graph(text)).emit(tmp_path)
    (tmp_path / "user.cc").write_text('#include <unistd.h>\n#include <sys/mman.h>\n#include "net.h"\n')
    flags = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Iinclude"]
    for command in (["gcc", "-std=c11", *flags, "src/net.c", "example/main.c"], ["g++", *flags, "user.cc"]):
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr[:2000]


def test_a_block_called_as_a_function_is_does_not_meet_it(tmp_path: Path) -> None:
    text = "dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { branch init; branch step; return y; }"
    text += "block init { op exp(x) >> y; return; } block step { op add(y, y) >> y; return; }"
    Synthesizer("generic", name="block").synthesize(None, graph(text)).emit(tmp_path)
    ended = subprocess.run(["make", "-s", "CFLAGS=-O0"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_name_that_is_taken_is_refused_with_one_that_is_not(tmp_path: Path) -> None:
    (tmp_path / "g.oig").write_text(TEXT)
    found = CliRunner().invoke(app, ["synth", str(tmp_path / "g.oig"), "--name", "test"])
    assert found.exit_code == 2
    assert "test_net" in found.output
