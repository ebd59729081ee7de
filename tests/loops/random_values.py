"""Random expressions of constants, elements and an index, and what they are."""

from random import Random

import numpy as np

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import (
    BOOL,
    INDEX,
    Binary,
    Buffer,
    Cast,
    Compare,
    Const,
    For,
    Kernel,
    Let,
    Load,
    Scalar,
    ScalarVar,
    Select,
    Store,
    Unary,
)

I32, U8, F32, F64 = (DTYPES[name] for name in ("i32", "u8", "f32", "f64"))
SAMPLES: dict[str, tuple[float, ...]] = {
    "index": (0, 1, -1, 2, 7),
    "i32": (0, 1, -1, 3, 2**31 - 1, -(2**31)),
    "u8": (0, 1, 2, 255),
    "f32": (0.0, -0.0, 1.0, -1.0, 0.1, float("inf"), 16777217.0),
    "f64": (0.0, -0.0, 1.0, 0.1, 1e300, float("-inf")),
    "bool": (False, True),
}
MEMORY = {name: Buffer(f"x_{name}", DTYPES[name], (2,)) for name in SAMPLES if name != "index"}


def random_value(rng: Random, dtype: DType, depth: int) -> Scalar:
    """An expression of constants, elements and an index, in which constants are frequent."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.5:
            return Const(rng.choice(SAMPLES[dtype.name]), dtype)
        return ScalarVar("i") if dtype is INDEX else Load(MEMORY[dtype.name], (ScalarVar("i"),))

    def inside(own: DType) -> Scalar:
        return random_value(rng, own, depth - 1)

    if dtype is BOOL:
        kind = rng.choice((INDEX, I32, U8, F32))
        choices: list[Scalar] = [
            Compare(rng.choice(("eq", "ne", "lt", "le", "gt", "ge")), inside(kind), inside(kind)),
            Binary(rng.choice(("and", "or", "xor")), inside(BOOL), inside(BOOL)),
            Unary("not", inside(BOOL)),
        ]
        return rng.choice(choices)
    casts = (I32, U8, BOOL) if dtype.kind != "float" else (INDEX, I32, F64 if dtype is F32 else F32)
    divisor = Const(rng.choice((1, 3, 2)), dtype)
    return rng.choice(
        (
            Binary(rng.choice(("add", "sub", "mul", "min", "max")), inside(dtype), inside(dtype)),
            Binary(rng.choice(("div", "rem")), inside(dtype), divisor),
            Select(inside(BOOL), inside(dtype), inside(dtype)),
            Cast(inside(rng.choice(casts)), dtype),
            inside(dtype) if dtype.kind == "uint" else Unary("neg", inside(dtype)),
        )
    )


def results(value: Scalar, *lets: Let) -> bytes:
    """What an expression is for two indices, and elements that differ; after names for values."""
    dtype = DTYPES["i64"] if value.dtype is INDEX else value.dtype
    out = Buffer("y", dtype, (2,))
    stored = Cast(value, dtype) if value.dtype is INDEX else value
    kernel = Kernel(
        "k",
        tuple(MEMORY.values()),
        (out,),
        (For(ScalarVar("i"), Const(2, INDEX), (*lets, Store(out, (ScalarVar("i"),), stored))),),
    )
    arrays = [
        np.array(SAMPLES[name][:2] if name == "bool" else SAMPLES[name][1:3], one.dtype.array)
        for name, one in MEMORY.items()
    ]
    with np.errstate(all="ignore"):
        return interpret(kernel, arrays)[0].tobytes()
