"""Every rule of the loop IR: what keeps it passes, what breaks it is refused in words."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from openinfer.dtypes import DTYPES
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.loops.ir import (
    ACCUMULATOR,
    BOOL,
    INDEX,
    Alloc,
    Binary,
    Bind,
    Bits,
    Buffer,
    Cast,
    Compare,
    Const,
    Contraction,
    Fail,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    LoopKind,
    Math,
    Round,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Space,
    Statement,
    Store,
    Template,
    Unary,
    While,
)
from openinfer.loops.verify import verify

F32, F64, F16, I8, I4 = (DTYPES[name] for name in ("f32", "f64", "f16", "i8", "i4"))
U8, U16, U32, I32, T1 = (DTYPES[name] for name in ("u8", "u16", "u32", "i32", "t1"))

X = Buffer("x", F32, (2, 3))
HALF = Buffer("h", F16, (3,))
NIBBLE = Buffer("n", I4, (3,))
Y = Buffer("y", F32, (2, 3))
S, T = Buffer("s", F32, (3,), Space.SCRATCH), Buffer("t", F32, (3,), Space.SCRATCH)
A, B, C = Buffer("a", F32, (4, 5)), Buffer("b", F32, (5, 6)), Buffer("c", F32, (4, 6))
I, J = ScalarVar("i"), ScalarVar("j")  # noqa: E741

ONE, TWO, ZERO = Const(1.0, F32), Const(2.0, F32), Const(0, INDEX)
TRUE = Const(True, BOOL)


def kernel(*body: Statement, **changes: Any) -> Kernel:
    plain = Kernel("k", (X, HALF, NIBBLE, A, B), (Y, C), (Alloc(S), *body))
    return replace(plain, **changes)


def using(value: Scalar) -> Kernel:
    """A kernel with one expression in it."""
    return kernel(Let(ScalarVar("v", value.dtype), value))


def problems(*body: Statement, **changes: Any) -> list[str]:
    return verify(kernel(*body, **changes))


@dataclass(frozen=True)
class WithMemory(Template):
    """A template that uses memory."""

    buffer: Buffer

    @property
    def memory(self) -> tuple[Buffer, ...]:
        return (self.buffer,)


PRODUCT = Contraction(
    C,
    A,
    B,
    (I, J),
    (4, 6),
    (ScalarVar("k"),),
    (5,),
    (I, J),
    (I, ScalarVar("k")),
    (ScalarVar("k"), J),
    F32,
    ScalarVar(ACCUMULATOR, F32),
)

GOOD: dict[str, tuple[Statement, ...]] = {
    "nothing": (),
    "a nest": (For(I, Const(2, INDEX), (For(J, Const(3, INDEX), (Store(Y, (I, J), Load(X, (I, J))),)),)),),
    "siblings share a name": (For(I, Const(2, INDEX), ()), For(I, Const(3, INDEX), ())),
    "a local in a parallel loop": (
        For(
            I, Const(2, INDEX), (Local(ScalarVar("t", F32), ONE), SetLocal(ScalarVar("t", F32), TWO)), LoopKind.PARALLEL
        ),
    ),
    "small floats are computed as f32": (Let(ScalarVar("v", F32), Load(HALF, (ZERO,))),),
    "packed integers are computed as i8": (Let(ScalarVar("v", I8), Load(NIBBLE, (ZERO,))),),
    "while": (
        Local(ScalarVar("t", INDEX), ZERO),
        While(ScalarVar("t") < 3, (SetLocal(ScalarVar("t"), ScalarVar("t") + 1),)),
    ),
    "if and fail": (If(TRUE, (Fail("a reason"),), (Fail("another"),)),),
    "scratch": (Store(S, (ZERO,), ONE), Let(ScalarVar("v", F32), Load(S, (ZERO,)))),
    "a contraction": (PRODUCT,),
    "a contraction in f64": (replace(PRODUCT, accumulator=F64, epilogue=Cast(ScalarVar(ACCUMULATOR, F64), F32)),),
    "a contraction with a value": (
        replace(PRODUCT, a_value=Load(A, (I, ScalarVar("k"))) * 2.0, valid=ScalarVar("k") < 3),
    ),
    "a dynamic size": (For(I, Const(Dim(8, Ref("T")), INDEX), ()),),
    "codes": (
        Let(ScalarVar("v", U16), Bits(ONE, U16, F16)),
        Let(ScalarVar("w", F32), Bits(ScalarVar("v", U16), F32, F16)),
    ),
    "bits": (Let(ScalarVar("v", U32), Bits(ONE, U32)),),
    "functions": (
        Let(ScalarVar("v", F32), Math("fma", (ONE, TWO, ONE))),
        Let(ScalarVar("w", F32), Math("exp", (ONE,))),
    ),
    "rounding": (Let(ScalarVar("v", F32), Round(ONE, F16)), Let(ScalarVar("w", I8), Round(Const(9, I8), I4))),
    "an infinite constant": (Let(ScalarVar("v", F32), Const(float("inf"), F32)),),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_keeps_the_rules_has_no_problems(name: str) -> None:
    assert problems(*GOOD[name]) == []


EXPRESSIONS: list[tuple[Scalar, str]] = [
    (Binary("add", ONE, Const(1.0, F64)), "operands are f32 and f64: (1.0:f32 + 1.0:f64)"),
    (Binary("and", ONE, TWO), "'and' of f32: (1.0:f32 & 2.0:f32)"),
    (Binary("shl", ONE, TWO), "'shl' of f32: shl(1.0:f32, 2.0:f32)"),
    (Binary("add", TRUE, TRUE), "'add' of bool: (True:bool + True:bool)"),
    (Binary("max", TRUE, TRUE), "'max' of bool: max(True:bool, True:bool)"),
    (Binary("copysign", ZERO, ZERO), "'copysign' of index: copysign(0, 0)"),
    (Unary("sqrt", ZERO), "'sqrt' of index: sqrt(0)"),
    (Unary("isnan", ZERO), "'isnan' of index: isnan(0)"),
    (Unary("not", ONE), "'not' of f32: not(1.0:f32)"),
    (Unary("popcount", ONE), "'popcount' of f32: popcount(1.0:f32)"),
    (Unary("neg", TRUE), "'neg' of bool: neg(True:bool)"),
    (Unary("twist", ONE), "'twist' is not an operation: twist(1.0:f32)"),  # type: ignore[arg-type]
    (Compare("lt", ONE, ZERO), "operands are f32 and index: (1.0:f32 < 0)"),
    (Select(ZERO, ONE, TWO), "a selection by a index, not a bool: (0 ? 1.0:f32 : 2.0:f32)"),
    (Select(TRUE, ONE, ZERO), "operands are f32 and index: (True:bool ? 1.0:f32 : 0)"),
    (Cast(ONE, F16), "a cast to f16, which is not a compute dtype: f16(1.0:f32)"),
    (Cast(ONE, I4), "a cast to i4, which is not a compute dtype: i4(1.0:f32)"),
    (Bits(ONE, DTYPES["i64"]), "the bits of f32 are not those of a i64: bits.i64(1.0:f32)"),
    (Bits(ONE, INDEX), "positions have no bits of their own: cast them: bits.index(1.0:f32)"),
    (Bits(ONE, U8, F16), "codes of f16 are not between f32 and u8: bits.f16.u8(1.0:f32)"),
    (Bits(ONE, U32, F32), "codes of f32 are not between f32 and u32: bits.f32.u32(1.0:f32)"),
    (Round(ONE, I4), "a f32 cannot be stored as i4: round.i4(1.0:f32)"),
    (Math("twist", (ONE,)), "'twist' is not a function: twist(1.0:f32)"),
    (Math("exp", (ONE, ONE)), "'exp' takes 1 arguments, not 2: exp(1.0:f32, 1.0:f32)"),
    (Math("exp", (ZERO,)), "'exp' of index: exp(0)"),
    (Math("pow", (ONE, Const(1.0, F64))), "'pow' of f32 and f64: pow(1.0:f32, 1.0:f64)"),
    (Const(300, U8), "a constant outside of u8: 300:u8"),
    (Const(float("nan"), I32), "a constant outside of i32: nan:i32"),
    (Const(-1, U32), "a constant outside of u32: -1:u32"),
    (Const(1.5, INDEX), "a fraction as index: 1.5"),
    (Const(1.0, F16), "a constant of f16, which is not a compute dtype: 1.0:f16"),
    (Const(Dim(8, Ref("T")), I32), "a dynamic size as i32, not index: T:i32"),
    (ScalarVar("missing", F32), "'missing' is used where it is not defined: missing"),
    (Load(Buffer("z", F32, (1,)), (ZERO,)), "'z' is not a buffer of the kernel"),
    (Load(Buffer("x", F32, (9, 3)), (ZERO, ZERO)), "'x' is not the buffer that the kernel declares"),
    (Load(Buffer("x", F32, (Dim(2, Ref("T")), 3)), (ZERO, ZERO)), "'x' is not the buffer that the kernel declares"),
    (Load(X, (ZERO,)), "'x' has 2 axes and 1 indices"),
    (Load(HALF, (ONE,)), "an index of 'h' is f32, not index: 1.0:f32"),
    (Load(HALF, (Const(0, I32),)), "an index of 'h' is i32, not index: 0:i32"),
    (Load(HALF, (Const(3, INDEX),)), "index 3 of 'h' is outside of [3]"),
    (Load(HALF, (Const(-1, INDEX),)), "index -1 of 'h' is outside of [3]"),
]


@pytest.mark.parametrize(("value", "problem"), EXPRESSIONS, ids=[problem for _, problem in EXPRESSIONS])
def test_expressions_that_break_a_rule(value: Scalar, problem: str) -> None:
    found = verify(using(value))
    assert problem in found
    # A problem is found wherever the expression stands, however deep.
    same = Select(TRUE, value, value)
    assert problem in verify(kernel(For(I, ZERO, (If(TRUE, (), (Let(ScalarVar("w", value.dtype), same),)),))))


STATEMENTS: list[tuple[tuple[Statement, ...], str]] = [
    ((For(I, ONE, ()),), "the extent of loop 'i' is f32, not index: 1.0:f32"),
    ((For(ScalarVar("i", I32), ZERO, ()),), "the index of loop 'i' is i32, not index"),
    ((For(I, ZERO, (For(I, ZERO, ()),)),), "'i' is defined where another 'i' is visible"),
    ((For(I, I, ()),), "'i' is used where it is not defined: i"),
    ((For(I, ZERO, ()), Let(J, I)), "'i' is used where it is not defined: i"),
    ((If(TRUE, (Let(J, ZERO),)), Let(I, J)), "'j' is used where it is not defined: j"),
    ((Let(I, J), Let(J, ZERO)), "'j' is used where it is not defined: j"),
    ((Let(I, I),), "'i' is used where it is not defined: i"),
    ((Let(I, ZERO), Let(I, ZERO)), "'i' is defined where another 'i' is visible"),
    ((Let(I, ZERO), For(J, ZERO, (Local(I, ZERO),))), "'i' is defined where another 'i' is visible"),
    ((Let(ScalarVar("x"), ZERO),), "'x' is a variable and a buffer"),
    ((Let(ScalarVar("a b"), ZERO),), "a variable is called 'a b', which is not an identifier"),
    ((Let(ScalarVar("v", F16), ONE),), "'v' is f16, which is not a compute dtype"),
    ((Let(I, ONE),), "the value of 'i' is f32, not index: 1.0:f32"),
    ((Local(I, ONE),), "the value of 'i' is f32, not index: 1.0:f32"),
    ((Let(I, ZERO), Let(ScalarVar("v", F32), ScalarVar("i", F32))), "'i' is index and used as f32: i"),
    ((Let(I, ZERO), SetLocal(I, ZERO)), "'i' gets another value, but is not a local variable"),
    ((For(I, ZERO, (SetLocal(I, ZERO),)),), "'i' gets another value, but is not a local variable"),
    ((SetLocal(I, ZERO),), "'i' is used where it is not defined: i"),
    ((Local(I, ZERO), SetLocal(I, ONE)), "the new value of 'i' is f32, not index: 1.0:f32"),
    (
        (Local(I, ZERO), For(J, ZERO, (SetLocal(I, J),), LoopKind.PARALLEL)),
        "'i' gets another value, but belongs to all iterations of a parallel loop",
    ),
    ((For(I, ZERO, (), bind=Bind.PART),), "parts share the iterations of loop 'i', which build on each other"),
    (
        (For(I, ZERO, (Alloc(T),)), Store(T, (ZERO,), ONE)),
        "'t' is used where it is not allocated",
    ),
    ((Store(T, (ZERO,), ONE), Alloc(T)), "'t' is used where it is not allocated"),
    ((Alloc(T), Alloc(T)), "2 buffers are called 't'"),
    ((Alloc(replace(T, dtype=INDEX)),), "buffer 't' holds positions, which have no width in memory: cast them"),
    ((While(ZERO, ()),), "a condition is index, not bool: 0"),
    ((If(ZERO, ()),), "a condition is index, not bool: 0"),
    ((Store(X, (ZERO, ZERO), ONE),), "input 'x' is written"),
    ((Store(Y, (ZERO,), ONE),), "'y' has 2 axes and 1 indices"),
    ((Store(Y, (ZERO, ONE), ONE),), "an index of 'y' is f32, not index: 1.0:f32"),
    ((Store(Y, (ZERO, Const(3, INDEX)), ONE),), "index 3 of 'y' is outside of [2, 3]"),
    ((Store(Y, (ZERO, ZERO), ZERO),), "what is stored to 'y' is index, not f32: 0"),
    ((Store(Buffer("z", F32, ()), (), ONE),), "'z' is not a buffer of the kernel"),
    ((Fail(""),), "the reason of a failure is '', which cannot be shown"),
    ((Fail("ends a comment */"),), "the reason of a failure is 'ends a comment */', which cannot be shown"),
    ((Fail("two\nlines"),), "the reason of a failure is 'two\\nlines', which cannot be shown"),
]


@pytest.mark.parametrize(("body", "problem"), STATEMENTS, ids=[problem for _, problem in STATEMENTS])
def test_statements_that_break_a_rule(body: tuple[Statement, ...], problem: str) -> None:
    assert problem in problems(*body)


CONTRACTIONS: list[tuple[dict[str, Any], str]] = [
    ({"extents": (4,)}, "a contraction has 2 free indices and 1 extents"),
    ({"reduced": (5, 5)}, "a contraction has 1 bound indices and 2 extents"),
    ({"reduced": (-1,)}, "a contraction has a negative extent in [-1]"),
    ({"accumulator": F16}, "a contraction accumulates in f16, which is not an accumulator dtype"),
    ({"accumulator": BOOL}, "a contraction accumulates in bool, which is not an accumulator dtype"),
    ({"accumulator": F64}, "'acc' is f64 and used as f32: acc"),
    ({"out": A}, "input 'a' is written"),
    ({"b": C}, "a contraction reads its own result 'c'"),
    ({"free": (I, ScalarVar("j", I32))}, "index 'j' of a contraction is i32, not index"),
    ({"free": (I, I)}, "'i' is defined where another 'i' is visible"),
    ({"bound": (I,)}, "'i' is defined where another 'i' is visible"),
    ({"out_index": (I, ScalarVar("k"))}, "'k' is used where it is not defined: k"),
    ({"out_index": (I,)}, "'c' has 2 axes and 1 indices"),
    ({"a_index": (I,)}, "'a' has 2 axes and 1 indices"),
    ({"epilogue": Load(A, (I, ScalarVar("k")))}, "'k' is used where it is not defined: k"),
    ({"epilogue": Const(1, INDEX)}, "what is stored to 'c' is index, not f32: 1"),
    ({"valid": ONE}, "the condition of a contraction is f32, not bool: 1.0:f32"),
    ({"valid": ScalarVar("m").eq(0)}, "'m' is used where it is not defined: m"),
    ({"a_value": Load(A, (I, ZERO))}, "factor a of a contraction does not contain a[i, k]"),
    ({"b_value": ONE}, "factor b of a contraction does not contain b[k, j]"),
    ({"b_value": Load(B, (ScalarVar("k"), J)).eq(0)}, "a contraction multiplies the bool (b[k, j] == 0:f32)"),
    (
        {"template": WithMemory(Buffer("l", F32, (8,)))},
        "a template uses 'l', which is not allocated before",
    ),
]


@pytest.mark.parametrize(("changes", "problem"), CONTRACTIONS, ids=[problem for _, problem in CONTRACTIONS])
def test_contractions_that_break_a_rule(changes: dict[str, Any], problem: str) -> None:
    found = problems(replace(PRODUCT, **changes))
    assert any(problem in one for one in found), found


def test_the_sum_of_a_contraction_has_its_name_for_itself() -> None:
    assert problems(Local(ScalarVar(ACCUMULATOR, F32), ONE), PRODUCT) == [
        "'acc' is defined where another 'acc' is visible"
    ]


def test_buffers_are_declared_well() -> None:
    assert problems(inputs=(X, X)) == ["2 buffers are called 'x'"]
    assert problems(inputs=(Buffer("1x", F32, ()),)) == ["a buffer is called '1x', which is not an identifier"]
    assert problems(inputs=(Buffer("z", F32, (-1,)),)) == ["buffer 'z' has a negative extent in [-1]"]
    strided = Buffer("z", F32, (2, 3), strides=(1,))
    assert problems(inputs=(strided,)) == ["buffer 'z' has 2 extents and 1 strides"]


def test_all_problems_are_told() -> None:
    assert len(problems(Let(I, ONE), Let(I, TWO), Store(X, (), ZERO))) >= 5


def test_codes_of_types_without_all_values_are_not_computed_with() -> None:
    assert verify(using(Const(1, T1))) != []
