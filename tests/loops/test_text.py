"""Kernels as text: three that together have every kind of statement and expression."""

from dataclasses import dataclass

from openinfer.dtypes import DTYPES
from openinfer.ir.expr import Ref
from openinfer.loops.build import Builder, bits, cast, const, load, math, pair, rounded, select, unary
from openinfer.loops.dim import Dim
from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Bind,
    Buffer,
    Contraction,
    For,
    Kernel,
    Load,
    LoopKind,
    ScalarVar,
    Space,
    Store,
    Template,
)
from openinfer.loops.text import kernel_text
from openinfer.loops.verify import verify

F32, F16, I8, I4, I64, U32 = (DTYPES[name] for name in ("f32", "f16", "i8", "i4", "i64", "u32"))


def pointwise() -> Kernel:
    """A nest over two axes, one of them dynamic, of small floats and packed integers."""
    rows = Dim(16, Ref("T"))
    x, n, y = Buffer("x0", F16, (rows, 3)), Buffer("x1", I4, (3,)), Buffer("y0", F16, (rows, 3))
    builder = Builder()
    with builder.loops(y.shape, LoopKind.PARALLEL) as where:
        value = builder.let(load(x, *where))
        scale = cast(load(n, where[1]), F32)
        inside = rounded(value * scale - 0.5, F16)
        builder.store(y, where, select(unary("isnan", value), 0.0, math("exp", -unary("abs", inside))))
    return Kernel("pointwise", (x, n), (y,), builder.body)


def search() -> Kernel:
    """Local variables, a loop with a condition, branches and a failure."""
    x, y = Buffer("x0", F32, (8,), Space.WEIGHTS), Buffer("y0", I64, ())
    builder = Builder()
    kept = builder.buffer(U32, (8,))
    i = builder.fresh("i")
    builder.add(For(i, const(8, INDEX), (Store(kept, (i,), bits(load(x, i), U32)),), bind=Bind.LANES))
    low, high = builder.local(0, INDEX, "low"), builder.local(8, INDEX, "high")
    with builder.repeat_while(low < high):
        middle = builder.let((low + high) // 2, "m")
        builder.fail(pair("shr", load(kept, middle), 31).ne(0), "a key is negative")
        with builder.when((load(x, middle) < 1.0) | load(x, middle).eq(2.0)):
            builder.assign(low, middle + 1)
        with builder.when(load(x, middle) >= 1.0):
            builder.assign(high, middle)
    builder.store(y, (), cast(pair("min", low, const(7, INDEX)), I64))
    return Kernel("search", (x,), (y,), builder.body)


@dataclass(frozen=True)
class Blocks(Template):
    """A template of some target."""

    rows: int
    columns: int


def product() -> Kernel:
    """A matrix product with quantized weights, a condition and an epilogue, by a template."""
    x, w, bias = Buffer("x0", F32, (4, 8)), Buffer("x1", I8, (8, 6), Space.WEIGHTS), Buffer("x2", F32, (6,))
    y = Buffer("y0", F32, (4, 6))
    i, j, k = ScalarVar("i"), ScalarVar("j"), ScalarVar("k")
    total = ScalarVar(ACCUMULATOR, F32)
    statement = Contraction(
        y,
        x,
        w,
        (i, j),
        (4, 6),
        (k,),
        (8,),
        (i, j),
        (i, k),
        (k, j),
        F32,
        pair("max", total + Load(bias, (j,)), 0.0),
        valid=k < i,
        b_value=cast(Load(w, (k, j)), F32) * 0.25,
        template=Blocks(4, 16),
    )
    return Kernel("product", (x, w, bias), (y,), (statement,))


POINTWISE = """\
kernel pointwise(x0: f16[T, 3], x1: i4[3]) -> y0: f16[T, 3] {
    parallel i1 < T {
        parallel i2 < 3 {
            let v3: f32 = x0[i1, i2]
            y0[i1, i2] = (isnan(v3) ? 0.0:f32 : exp(neg(abs(round.f16(((v3 * f32(x1[i2])) - 0.5:f32))))))
        }
    }
}
"""

SEARCH = """\
kernel search(x0: f32[8]) -> y0: i64[] {
    alloc scratch0: u32[8]
    serial i1 < 8 @lanes {
        scratch0[i1] = bits.u32(x0[i1])
    }
    var low2: index = 0
    var high3: index = 8
    while (low2 < high3) {
        let m4: index = ((low2 + high3) / 2)
        if (shr(scratch0[m4], 31:u32) != 0:u32) {
            fail 'a key is negative'
        }
        if ((x0[m4] < 1.0:f32) | (x0[m4] == 2.0:f32)) {
            low2 = (m4 + 1)
        }
        if (x0[m4] >= 1.0:f32) {
            high3 = m4
        }
    }
    y0[] = i64(min(low2, 7))
}
"""

PRODUCT = """\
kernel product(x0: f32[4, 8], x1: i8[8, 6], x2: f32[6]) -> y0: f32[4, 6] {
    contract i < 4, j < 6 over k < 8 in f32 by Blocks(rows=4, columns=16) {
        acc += x0[i, k] * (f32(x1[k, j]) * 0.25:f32) where (k < i)
        y0[i, j] = max((acc + x2[j]), 0.0:f32)
    }
}
"""


def test_a_pointwise_kernel() -> None:
    assert kernel_text(pointwise()) == POINTWISE


def test_a_kernel_with_variables() -> None:
    assert kernel_text(search()) == SEARCH


def test_a_contraction() -> None:
    assert kernel_text(product()) == PRODUCT


def test_they_keep_the_rules() -> None:
    assert [verify(kernel) for kernel in (pointwise(), search(), product())] == [[], [], []]
