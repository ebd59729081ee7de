"""Comparisons whose outcome compilers can tell: emitted C says it without a warning, and computes it."""

import subprocess
from pathlib import Path

import pytest

from openinfer import Synthesizer, graph
from openinfer.dtypes import DTYPES
from openinfer.loops.build import index, select
from openinfer.loops.ir import Buffer, Const, For, Kernel, ScalarVar, Store
from openinfer.synth.targets.c.kernels import printed

GRAPHS = {
    "a minimum that limits nothing": ("u8", "op cast(x, to=i32) >> m; op min(m, 300) >> k; op lt(k, 256) >> t;", "i32"),
    "a maximum that limits nothing": ("u8", "op cast(x, to=i16) >> m; op max(m, -3) >> k; op gt(k, -1) >> t;", "i16"),
    "a range that is the type's": (
        "i8",
        "op cast(x, to=i32) >> m; op clamp(m, min=-128, max=127) >> k; op le(k, 127) >> t;",
        "i32",
    ),
    "more than the type holds": ("u8", "op cast(x, to=i32) >> m; op mul(m, 1) >> k; op lt(m, 256) >> t;", "i32"),
    "a bit that a mask clears": ("u8", "op and(x, 6) >> m; op mul(m, 1) >> k; op eq(m, 1) >> t;", "u8"),
}
COMPLEMENT = """
dynamic { x: u32[4]; }
volatile { t: bool[4]; c: i32[4]; y: i32[4]; }
block entry { op ge(x, 3) >> t; op cast(t, to=i32) >> c; op not(c) >> y; return y; }
"""
SPELLED_ALIKE = """
dynamic { x: i32[1, 2, 7, 6]; w: i32[3, 2, 3, 3]; }
volatile { s: u8[1, 3, 5, 4]; a: u8[1, 3, 5, 4]; b: u8[1, 3, 5, 4]; y: bool[1, 3, 5, 4]; }
block entry { op conv2d(x, w, acc=[u8]) >> s; op abs(s) >> a; op abs(a) >> b; op lt(b, a) >> y; return y; }
"""
SUMS_OF_A_DYNAMIC_LENGTH = """
sizes { T <= 5; } dynamic { x: u8[1, 3, T]; w: u8[3, 1, 3]; }
volatile { y: u8[1, 3, T]; }
block entry { op conv_transpose1d(x, w, groups=3, pads=1) >> y; return y; }
"""


def text_of(name: str) -> str:
    dtype, ops, wide = GRAPHS[name]
    declared = f"dynamic {{ x: {dtype}[4]; }} volatile {{ m: {wide}[4]; k: {wide}[4]; t: bool[4]; }}"
    return f"{declared} block entry {{ {ops} return t; }}"


KNOWN = {
    **{name: text_of(name) for name in GRAPHS},
    "the complement of a truth value": COMPLEMENT,
    "operands that are spelled alike": SPELLED_ALIKE,
    "sums of a dynamic length": SUMS_OF_A_DYNAMIC_LENGTH,
}


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("text", KNOWN.values(), ids=KNOWN)
def test_compilers_have_nothing_to_warn_about(text: str, compiler: str, tmp_path: Path) -> None:
    Synthesizer("generic", name="net").synthesize(None, graph(text)).emit(tmp_path)
    warned = ["-Wall", "-Wextra", "-Werror", "-O3", "-mavx2"]
    command = [compiler, "-std=c11", *warned, "-Iinclude", "-c", "src/kernels.c", "-o", "kernels.o"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_a_bound_that_is_a_choice_is_in_parentheses() -> None:
    i, j = ScalarVar("i"), ScalarVar("j")
    y = Buffer("y", DTYPES["f32"], (4, 4))
    bound = select((i % 2).eq(0), index(3), i)
    inner = For(j, bound, (Store(y, (i, j), Const(1.0, DTYPES["f32"])),))
    text = printed(Kernel("k", (), (y,), (For(i, index(4), (inner,)),)), "k").text
    assert "j < (i % 2 == 0 ? 3 : i); ++j" in text
