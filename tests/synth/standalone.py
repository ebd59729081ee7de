"""Kernels in a program of their own, for compilers of other machines and under sanitizers.

The program reads calls from its input and writes what became of them to its output. Every buffer has memory of its own,
exactly as long as it must be under an address sanitizer and between canaries without; what a kernel has to write first
is filled with ones, which no float survives.
"""

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.synth.in_c import HEAD, Prepared, loaded, operand_bytes

from openinfer.ops import Array
from openinfer.synth.targets.c.support import support_code

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
NUMERICS = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
SANITIZERS = ("-g1", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
"""``-g1``: reports say a line, and compiling does not take twice as long."""


@dataclass(frozen=True)
class Toolchain:
    """A compiler, its flags, and what runs its programs where that is another machine."""

    cc: str = "gcc"
    flags: tuple[str, ...] = ("-O2",)
    runner: tuple[str, ...] = ()

    def is_here(self) -> bool:
        """Whether this machine has it."""
        return all(shutil.which(tool) for tool in (self.cc, *self.runner[:1]))

    def compile(self, source: Path, program: Path) -> None:
        command = [self.cc, *WARNINGS, *NUMERICS, *self.flags, "-o", str(program), str(source)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stderr[:3000]}"


@dataclass(frozen=True)
class Outcome:
    """What a kernel did: its results and status, or how the program ended in the middle of it."""

    results: tuple[Array, ...] = ()
    status: int = 0
    damage: str = ""


DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GUARD 0
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define GUARD 0
#endif
#ifndef GUARD
#define GUARD 64
#endif

enum { MOST = 64, INPUT = 0 };

static void take(void *to, size_t bytes)
{
    if (bytes != 0 && fread(to, 1, bytes, stdin) != bytes) exit(3);
}

static void give(const void *from, size_t bytes)
{
    if (bytes != 0 && fwrite(from, 1, bytes, stdout) != bytes) exit(3);
}

int main(void)
{
    uint32_t head[2], facts[MOST][2];
    while (fread(head, sizeof head, 1, stdin) == 1) {
        unsigned char *whole[MOST];
        void *memory[MOST];
        if (head[1] > MOST) return 3;
        take(facts, head[1] * sizeof facts[0]);
        for (uint32_t i = 0; i < head[1]; ++i) {
            const size_t bytes = facts[i][1];
            void *made = NULL;
            if (posix_memalign(&made, 64, bytes + 2 * GUARD) != 0) return 3;
            whole[i] = made;
            memory[i] = whole[i] + GUARD;
            memset(whole[i], 0x5a, bytes + 2 * GUARD);
            memset(memory[i], 0xff, bytes);
            if (facts[i][0] == INPUT) take(memory[i], bytes);
        }
        int32_t reply[2] = { runs[head[0]](memory), 0 };
        for (uint32_t i = 0; i < head[1]; ++i)
            for (int k = 0; k < GUARD; ++k)
                reply[1] |= whole[i][k] != 0x5a || whole[i][GUARD + facts[i][1] + k] != 0x5a;
        give(reply, sizeof reply);
        for (uint32_t i = 0; i < head[1]; ++i) {
            if (facts[i][0] == 1) give(memory[i], facts[i][1]);
            free(whole[i]);
        }
        fflush(stdout);
    }
    return 0;
}
"""


def program_text(cases: Sequence[Prepared]) -> str:
    """The program for some cases: their kernels, a function each that all look the same, and the driver."""
    needs = {need for one in cases for need in one.code.needs}
    wrappers = [_wrapper(one, number) for number, one in enumerate(cases)]
    table = ", ".join(f"run{number}" for number in range(len(cases)))
    parts = ["#define _POSIX_C_SOURCE 200809L\n", HEAD, support_code(needs), *(one.code.text for one in cases)]
    runs = f"static int32_t (*const runs[])(void *const *) = {{ {table} }};"
    return "\n".join([*parts, *wrappers, runs, DRIVER])


def _wrapper(one: Prepared, number: int) -> str:
    count = len(one.inputs) + len(one.outputs) + len(one.scratch)
    call = f"case{number}({', '.join(f'p[{place}]' for place in range(count))})"
    body = f"return {call};" if one.code.can_fail else f"{call}; return 0;"
    return f"static int32_t run{number}(void *const *p) {{ {'' if count else '(void)p; '}{body} }}"


def run_cases(cases: Sequence[Prepared], toolchain: Toolchain, folder: Path) -> list[Outcome]:
    """Compile the cases, which are numbered in this order, into a program and run them all."""
    source, program = folder / "cases.c", folder / "cases"
    source.write_text(program_text(cases), encoding="ascii")
    toolchain.compile(source, program)
    outcomes: list[Outcome] = []
    while len(outcomes) < len(cases):
        outcomes += _run_from(cases, len(outcomes), (*toolchain.runner, str(program)))
    return outcomes


def _run_from(cases: Sequence[Prepared], first: int, command: Sequence[str]) -> list[Outcome]:
    """The outcomes from one case on, up to and with the first that ends the program."""
    requests = b"".join(_request(one, first + number) for number, one in enumerate(cases[first:]))
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=0"}
    ended = subprocess.run(command, input=requests, capture_output=True, check=False, env=environment)
    outcomes, at = [], 0
    for one in cases[first:]:
        sizes = [kind.nbytes for kind in one.call.outputs]
        if len(ended.stdout) - at < 8 + sum(sizes):
            report = ended.stderr.decode(errors="replace")[:2000]
            outcomes.append(Outcome(damage=f"the program ended ({ended.returncode}): {report}"))
            return outcomes
        status, is_damaged = struct.unpack_from("<ii", ended.stdout, at)
        at += 8
        results = []
        for size, kind in zip(sizes, one.call.outputs, strict=True):
            results.append(loaded(np.frombuffer(ended.stdout, np.uint8, size, at).copy(), kind))
            at += size
        outcomes.append(Outcome(tuple(results), status, "memory next to a buffer was written" * bool(is_damaged)))
    assert ended.returncode == 0, ended.stderr[:2000]
    return outcomes


def _request(one: Prepared, number: int) -> bytes:
    inputs = operand_bytes(one)
    scratch = [buffer.dtype.nbytes(int(np.prod(buffer.shape))) for buffer in one.scratch]
    facts = [(0, data.nbytes) for data in inputs]
    facts += [(1, kind.nbytes) for kind in one.call.outputs] + [(2, size) for size in scratch]
    numbers: list[Any] = [number, len(facts), *(part for fact in facts for part in fact)]
    return struct.pack(f"<{len(numbers)}I", *numbers) + b"".join(data.tobytes() for data in inputs)
