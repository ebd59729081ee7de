"""Parentheses in emitted expressions: where they say something, and nowhere else."""

import pytest

from openinfer.dtypes import DTYPES
from openinfer.ir.operand_text import parse_expr
from openinfer.loops.ir import INDEX, Buffer, Cast, Const, Load, Scalar, ScalarVar, Select, Unary
from openinfer.synth.program.integers import Computed
from openinfer.synth.targets.c.dialect import C
from openinfer.synth.targets.cstyle.host.integers import Integer, IntegerPrinter
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter

F32, U32, U8, I8 = (DTYPES[name] for name in ("f32", "u32", "u8", "i8"))
A, B, D = (ScalarVar(name, F32) for name in "abd")
K, J = ScalarVar("i"), ScalarVar("j")
P, Q, R = (ScalarVar(name, DTYPES["bool"]) for name in "pqr")
N, M = ScalarVar("n", U32), ScalarVar("m", U32)
X = Buffer("x", F32, (4, 8))

CASES: dict[str, Scalar] = {
    "a + b + d": (A + B) + D,
    "a + (b + d)": A + (B + D),  # floats are added in the order that the op says
    "a - (b - d)": A - (B - D),
    "a * (b * d)": A * (B * D),
    "a / (b * d)": A / (B * D),
    "a * b + d / a": A * B + D / A,
    "(a + b) * d": (A + B) * D,
    "-(a + b)": -(A + B),
    "a - (-b)": A - Unary("neg", B),
    "-(-a)": Unary("neg", -A),
    "a * -1.0f": A * -1.0,
    "x[i * 8 + j]": Load(X, (K, J)),
    "x[i * 8 + (j - 1)]": Load(X, (K, J - 1)),
    "(float)n * 0.5f": Cast(N, F32) * 0.5,
    "(float)(n & m)": Cast(N & M, F32),
    "(uint32_t)(a + b)": Cast(A + B, U32),
    "(n & m) | n": (N & M) | N,  # gcc and clang ask for these
    "(n & m) == n": (N & M).eq(N),
    "p && q && r": (P & Q) & R,
    "(p && q) || r": (P & Q) | R,  # and for these
    "p && (q || r)": P & (Q | R),
    "a < b && !p": (A < B) & ~P,
    "(!p) == q": (~P).eq(Q),
    "(a < b) == p": (A < B).eq(P),
    "a < b ? a + b : -b": Select(A < B, A + B, -B),
    "(p ? a : b) + (q ? b : d)": Select(P, A, B) + Select(Q, B, D),
    "(p ? q : r) ? a : (q ? b : d)": Select(Select(P, Q, R), A, Select(Q, B, D)),
    "(int8_t)~(int8_t)n": Unary("not", Cast(N, I8)),
    "__builtin_fabsf(a + b)": Unary("abs", A + B),
    "i / 2 * 2 - 3": K / 2 * 2 - 3,
    "i - (-3)": K - Const(-3, INDEX),
}


@pytest.mark.parametrize("wanted", CASES)
def test_parentheses_stand_where_they_say_something_or_compilers_ask_for_them(wanted: str) -> None:
    printer = ScalarPrinter(C, lambda buffer: buffer.name)
    printer.positions |= {"i", "j"}
    assert printer.text(CASES[wanted]) == wanted


@pytest.mark.parametrize(
    ("written", "wanted"),
    {
        "2*n+1": "2 * n + 1",
        "(n+1)%2": "(n + 1) % 2",
        "n-(m-1)": "n - (m - 1)",
        "n%(m+1)": "n % (m + 1)",
        "n*2%3": "n * 2 % 3",
        "n--3": "n - (-3)",
        "1+1": "2",
        "0-3": "-3",
    }.items(),
)
def test_indices_on_the_host_have_no_others(written: str, wanted: str) -> None:
    printer = IntegerPrinter(lambda name: Integer(name, Computed(0, 100)), set())
    assert printer.integer(parse_expr(written)).text == wanted
