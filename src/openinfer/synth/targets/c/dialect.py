"""C as a dialect: its types, literals and builtins, and how a kernel becomes a C function."""

from collections.abc import Sequence
from math import copysign, isinf, isnan

import numpy as np

from openinfer.dtypes import DTYPES, DType
from openinfer.synth.targets.c.support import SUPPORT, TYPES
from openinfer.synth.targets.cpu.divide import scratch_elements
from openinfer.synth.targets.cstyle.code import Rank
from openinfer.synth.targets.cstyle.dialect import Dialect, Framed, KernelSignature, Own
from openinfer.synth.targets.cstyle.host.integers import wide

PAD = "    "


def _stored(dtype: DType) -> str:
    """The type of elements in memory; where C has no such type, an unsigned integer with the same bits."""
    if dtype.is_packed or dtype.is_small_float or dtype.kind == "bool":
        return TYPES[f"u{max(dtype.bits, 8)}"]
    return TYPES[dtype.name]


def literal(value: float, dtype: DType) -> str:
    """A literal that C reads back exactly.

    >>> from openinfer.dtypes import dtype_of
    >>> literal(0.1, dtype_of("f32")), literal(-(2**31), dtype_of("i32")), literal(True, dtype_of("bool"))
    ('0.1f', '(-2147483647 - 1)', 'true')
    """
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "float":
        return _float(value, dtype)
    number = int(value)
    if dtype.kind == "uint":
        return f"{number}u" if dtype.bits <= 32 else f"UINT64_C({number})"
    if dtype.bits <= 32:
        return f"(-{-(number + 1)} - 1)" if number == -(2**31) else str(number)
    return wide(number)


def special(value: float, dtype: DType) -> str | None:
    """The support-code constant for a number without a literal, NaN or infinity, regardless of its sign; else None.

    >>> from openinfer.dtypes import dtype_of
    >>> special(float("-inf"), dtype_of("f32")), special(0.5, dtype_of("f32"))
    ('OI_INF', None)
    """
    if dtype.kind != "float":
        return None
    single = dtype.compute.bits == 32
    if isnan(value):
        return "OI_NAN" if single else "OI_NAN64"
    if isinf(value) or (single and isinf(float(np.float32(value)))):
        return "OI_INF" if single else "OI_INF64"
    return None


def _float(value: float, dtype: DType) -> str:
    name = special(value, dtype)
    if name is not None:
        return f"-{name}" if copysign(1, value) < 0 else name
    single = dtype.compute.bits == 32
    suffix = "f" if single else ""
    text = str(np.float32(value)) if single else repr(float(value))
    text = text if any(mark in text for mark in ".en") else f"{text}.0"
    return f"{text}{suffix}"


# --- functions --------------------------------------------------------------------------------------------------------


def _functions() -> dict[tuple[str, str], Own]:
    """Builtins of gcc and clang, and bitwise complements."""
    found = {("abs", "f32"): Own("__builtin_fabsf({0})"), ("abs", "f64"): Own("__builtin_fabs({0})")}
    for name in ("f32", "f64"):
        found[("isnan", name)] = Own("__builtin_isnan({0})")
        found[("isinf", name)] = Own("__builtin_isinf({0}) != 0", rank=Rank.COMPARISON)
        found[("signbit", name)] = Own("__builtin_signbit({0}) != 0", rank=Rank.COMPARISON)
    for dtype in DTYPES.values():
        # For small unsigned types a function hides the complement: gcc warns about comparisons with it.
        if dtype.name in TYPES and (dtype.kind == "int" or (dtype.kind == "uint" and dtype.bits >= 32)):
            found[("not", dtype.name)] = Own(f"({TYPES[dtype.name]})~{{0}}", takes=Rank.UNARY, rank=Rank.UNARY)
    return found


def framed(dialect: Dialect, kernel: KernelSignature, lines: Sequence[str]) -> Framed:
    """A kernel as a C function; a divided kernel has a second function, which runs one part of a call."""
    parameters = [
        *(f"const {dialect.stored_type(one.dtype)} *restrict {one.name}" for one in kernel.inputs),
        *(f"{dialect.stored_type(one.dtype)} *restrict {one.name}" for one in kernel.outputs),
        # Scratch memory is not restrict: clang 14 would read it at -O3 before the loop that fills it.
        *(f"{dialect.stored_type(one.dtype)} *{one.name}" for one in kernel.scratch),
        *(f"const {dialect.size_type(kernel, size)} s_{size}" for size in kernel.sizes),
    ]
    body = [*(f"{PAD}(void){name};" for name in kernel.unused), *lines]
    if kernel.can_fail:
        body.append(f"{PAD}return 0;")
    result = "int" if kernel.can_fail else "void"
    if kernel.parts == 1:
        head = f"{result} {kernel.name}({', '.join(parameters) or 'void'})"
        return Framed(_function(head, body), f"{head};")
    # Each part has its own scratch memory.
    own = [f"{PAD}{one.name} += part * {scratch_elements(one.dtype.bits, one.shape)};" for one in kernel.scratch]
    head = f"static {result} {kernel.name}({', '.join([*parameters, f'const {dialect.index} part'])})"
    part = _part(dialect, kernel)
    return Framed(_function(head, [*own, *body]) + part.definition, part.declaration)


def _part(dialect: Dialect, kernel: KernelSignature) -> Framed:
    """The function that runs one part of a call; its declaration includes a struct of the arguments."""
    name = kernel.name
    fields = [
        *(f"const {dialect.stored_type(one.dtype)} *{one.name};" for one in kernel.inputs),
        *(f"{dialect.stored_type(one.dtype)} *{one.name};" for one in (*kernel.outputs, *kernel.scratch)),
        *(f"{dialect.size_type(kernel, size)} s_{size};" for size in kernel.sizes),
    ]
    names = [*(one.name for one in kernel.memory), *(f"s_{one}" for one in kernel.sizes)]
    head = f"void {name}_part(const void *call, {dialect.index} part)"
    struct = "\n".join(["typedef struct {", *(f"{PAD}{one}" for one in fields), f"}} {name}_call;"])
    arguments = ", ".join([*(f"c->{one}" for one in names), "part"])
    body = [f"{PAD}const {name}_call *const c = call;", f"{PAD}{name}({arguments});"]
    return Framed("\n" + _function(head, body), f"{struct}\n{head};")


def _function(head: str, body: Sequence[str]) -> str:
    return "\n".join([head, "{", *body, "}"]) + "\n"


C = Dialect(
    types=TYPES,
    stored={one.name: _stored(one) for one in DTYPES.values()},
    literal=literal,
    special=special,
    frame=framed,
    support=SUPPORT,
    functions=_functions(),
    promotes=True,
    rolled="#pragma GCC unroll 1 /* if unrolled, gcc 12 uses wrong masks */",
    reserved=frozenset({"call", "cos", "index", "part", "sin"}),
)


def stored_type(dtype: DType) -> str:
    """The C type of a buffer's elements; for packed elements, of the bytes that hold them."""
    return C.stored_type(dtype)
