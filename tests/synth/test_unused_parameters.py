"""What a kernel does not use of its parameters is asked of its statements: comments have words too."""

import re

import numpy as np
import pytest
from tests.synth.both_ways import agree

from openinfer import Synthesizer, graph
from openinfer.dtypes import DTYPES
from openinfer.loops.ir import INDEX, Alloc, Buffer, Const, For, Kernel, Load, ScalarVar, Store
from openinfer.loops.used import used_buffers, used_sizes, used_variables

CAUSAL = """
sizes { T <= 6; }
dynamic { z: f32[T, 8]; w: f32[8, 16]; p: f32[T, 16]; }
volatile { y: f32[T, 16]; }
block entry {
    assign h: f32[T, 16]; assign a: f32[T, 16]; assign b: f32[T, 16]; assign far: bool[T, 16]; assign m: f32[T, 16];
    op matmul(z, w) >> h;
    op iota(p, axis=1) >> a;
    op iota(p, axis=0) >> b;
    op gt(a, b) >> far;
    op cast(far, to=f32) >> m;
    op sub(h, m) >> y;
    return y;
}
"""
PLAIN = """
dynamic { z: f32[16, 16]; w: f32[16, 16]; }
volatile { y: f32[16, 16]; }
block entry {
    assign h: f32[16, 16]; assign a: f32[16, 16];
    op matmul(z, w) >> h; op iota(z, axis=1) >> a; op add(h, a) >> y;
    return y;
}
"""
SCOPED = """
dynamic { z: f32[3]; }
volatile { y: f32[3]; }
block entry { branch idle; op neg(z) >> y; return y; }
block idle { scope "f(c) of c->x" { barrier; } return; }
"""


@pytest.mark.parametrize(("cc", "device", "own"), [("gcc", "cpu", ()), ("clang", "x86-avx2", ("-mavx2", "-mfma"))])
def test_a_comment_does_not_count_as_a_use(cc: str, device: str, own: tuple[str, ...]) -> None:
    """The comment over tiles says ``16 x 16 times 16 x 16``, and the operand of ``iota`` is called ``x``."""
    flags = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", *own)
    values = {"z": np.ones((16, 16), np.float32), "w": np.ones((16, 16), np.float32)}
    agree(PLAIN, inputs=lambda _step: values, steps=1, flags=flags, cc=cc, device=device)
    wide = np.ones((8, 16), np.float32)
    sizes = (0, 1, 3, 6)
    masked = [{"z": np.ones((size, 8), np.float32), "w": wide, "p": np.ones((size, 16), np.float32)} for size in sizes]
    agree(CAUSAL, inputs=masked.__getitem__, steps=len(sizes), flags=flags, cc=cc, device=device)
    agree(SCOPED, inputs=lambda _step: {"z": np.ones(3, np.float32)}, steps=1, flags=flags, cc=cc, device=device)


def test_used_is_what_the_statements_touch() -> None:
    f32, i = DTYPES["f32"], ScalarVar("i")
    x, y, z = (Buffer(name, f32, (4,)) for name in "xyz")
    still = Buffer("still", f32, (4, 4), strides=(0, 1))
    body = (For(i, Const(4, INDEX), (Store(y, (i,), Load(still, (ScalarVar("row"), i))),)),)
    kernel = Kernel("copy", (x, still), (y,), (Alloc(z), *body), doc=("y = x, and z",))
    assert used_buffers(kernel) == {"y", "still"}
    assert used_sizes(kernel) == set()
    assert used_variables(Load(still, (ScalarVar("row"), i))) == {"i"}


EMPTY = """
dynamic { x: i64[0, 2]; n: i32; }
volatile { y: i64[0, 2]; }
persistent { A(i): i64[2] @table @fixed(i=4) @init(0); }
block entry { op min(A[n], x) >> y; return y; }
"""


def test_a_place_in_a_table_that_no_launch_reads_is_used_all_the_same() -> None:
    """Compilers warn about variables that are only set; the index must still name an entry."""
    files = Synthesizer("lavapipe", name="net").synthesize(None, graph(EMPTY)).files()
    text = str(files["src/net.c"])
    (found,) = re.findall(r"(\w+) = oi_table_view\(", text)
    assert f"(void){found};" in text
