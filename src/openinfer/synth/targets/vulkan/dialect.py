"""GLSL as a dialect: its types, numbers and builtins, and how a launch becomes a function of a compute shader.

Memory is accessed by address. Addresses and dynamic sizes are the arguments of a launch: push constants, or memory that
these point to if there are too many. Apart from shared memory, a kernel declares nothing outside its function, so that
a shader may hold several.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from math import copysign, isfinite, isnan

import numpy as np

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.dim import most_elements
from openinfer.loops.ir import Buffer, Space
from openinfer.synth.targets.cstyle.code import Rank
from openinfer.synth.targets.cstyle.dialect import Dialect, Framed, KernelSignature, Own
from openinfer.synth.targets.cstyle.integers import INTEGERS
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.vulkan.support import SUPPORT, TYPES
from openinfer.synth.targets.vulkan.waiting import TEAMS_AT

PAD = "    "
PUSHED = 16
"""Arguments that fit in the push constants of every device."""
WORDS = "oi_words"
"""The buffer type of packed elements."""
_WRAPS = {
    **{f"i{bits}": f"bitfieldExtract(int32_t({{value}}), 0, {bits})" for bits in (8, 16)},
    **{f"u{bits}": f"(int32_t({{value}}) & {2**bits - 1})" for bits in (8, 16)},
}
"""How numbers wrap to 8 and 16 bits."""


def _stored(dtype: DType) -> str:
    if dtype.is_packed:
        return "uint32_t"
    if dtype.is_small_float or dtype.kind == "bool":
        return INTEGERS[f"u{dtype.bits}"]
    return INTEGERS.get(dtype.name) or TYPES[dtype.name]


STORED = {one.name: _stored(one) for one in DTYPES.values()}
"""The types of elements in memory, by dtype."""


def memory_type(dtype: DType) -> str:
    """The buffer reference type for elements of a dtype."""
    return WORDS if dtype.is_packed else f"oi_{STORED[dtype.name].removesuffix('_t')}s"


# --- numbers ----------------------------------------------------------------------------------------------------------


def literal(value: float, dtype: DType) -> str:
    """A literal that GLSL reads back exactly, in the type of the number.

    >>> from openinfer.dtypes import dtype_of
    >>> literal(0.1, dtype_of("f32")), literal(-(2**31), dtype_of("i32")), literal(3, dtype_of("u8"))
    ('0.10000000149011612f', '(-2147483647 - 1)', '3')
    """
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "float":
        return _float(value, dtype)
    number = int(value)
    if dtype.name in _WRAPS:
        return str(number)
    suffix = {"int": "", "uint": "u"}[dtype.kind] + ("l" if dtype.bits == 64 else "")
    if dtype.kind == "int" and number == int(dtype.minimum) and dtype.bits >= 32:
        return f"(-{-(number + 1)}{suffix} - 1{suffix})"
    return f"{number}{suffix}"


def whole(value: int) -> str:
    """A signed integer other than the least one of 64 bits.

    >>> whole(2**31 - 1), whole(-(2**31))
    ('2147483647', '-2147483648l')
    """
    return f"{value}{'l' if abs(value) >= 2**31 else ''}"


def special(value: float, dtype: DType) -> str | None:
    """The support-code constant for NaN or infinity, which have no literals, ignoring the sign; None for other numbers.

    >>> from openinfer.dtypes import dtype_of
    >>> special(float("-inf"), dtype_of("f64")), special(0.5, dtype_of("f32"))
    ('OI_INF64', None)
    """
    if dtype.kind != "float" or isfinite(_rounded(value, dtype)):
        return None
    return f"OI_{'NAN' if isnan(value) else 'INF'}{'' if dtype.compute.bits == 32 else '64'}"


def _rounded(value: float, dtype: DType) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value)) if dtype.compute.bits == 32 else float(value)


def _float(value: float, dtype: DType) -> str:
    name = special(value, dtype)
    if name is not None:
        return name if copysign(1, value) > 0 else f"-{name}"
    value, single = _rounded(value, dtype), dtype.compute.bits == 32
    if single and 0 < abs(value) < DTYPES["f32"].least_normal:
        return f"uintBitsToFloat({int(np.float32(value).view(np.uint32))}u)"
    return f"{value!r}{'f' if single else 'lf'}"


# --- functions --------------------------------------------------------------------------------------------------------


def _functions() -> dict[tuple[str, str], Own]:
    """NaN and infinity are tested by their bits: comparisons with them may be optimized away."""
    found: dict[tuple[str, str], Own] = {}
    for name, types, bits, most, infinite in (
        ("f32", (), "floatBitsToUint({0})", "0x7fffffffu", "0x7f800000u"),
        ("f64", ("f64", "u64"), "doubleBitsToUint64({0})", "0x7ffffffffffffffful", "0x7ff0000000000000ul"),
    ):
        found["isnan", name] = Own(f"({bits} & {most}) > {infinite}", rank=Rank.COMPARISON, types=types)
        found["isinf", name] = Own(f"({bits} & {most}) == {infinite}", rank=Rank.COMPARISON, types=types)
        found["signbit", name] = Own(f"{bits} > {most}", rank=Rank.COMPARISON, types=types)
    # Booleans have no order in GLSL.
    found["lt", "bool"] = Own("!{0} && {1}", takes=Rank.UNARY, rank=Rank.AND)
    found["gt", "bool"] = Own("{0} && !{1}", takes=Rank.UNARY, rank=Rank.AND)
    found["le", "bool"] = Own("!{0} || {1}", takes=Rank.UNARY, rank=Rank.OR)
    found["ge", "bool"] = Own("{0} || !{1}", takes=Rank.UNARY, rank=Rank.OR)
    return found


def _store(dtype: DType, element: str, value: str) -> str:
    """Only the initializer of a variable is computed as written; a boolean is a byte in memory."""
    if dtype.kind == "bool" or dtype.name in _WRAPS:
        # Compilers take the conversion between numbers with equal signs for part of the store.
        value = f"uint32_t({value})" if dtype.kind == "uint" else value
        return f"{element} = {STORED[dtype.name]}({value});"
    if dtype.kind == "float" and not dtype.is_small_float:
        return f"{{ precise const {TYPES[dtype.name]} put = {value}; {element} = put; }}"
    return f"{element} = {value};"


# --- kernels ----------------------------------------------------------------------------------------------------------


class LaunchGuard(Enum):
    """Where a launch checks whether an earlier one has failed."""

    NONE = ""
    """Nowhere: it relies on no other launch."""
    FIRST = "if (own != 0u && status.v[0] < own) return;"
    """Before anything else."""
    LATE = "const bool is_stopped = status.v[0] < own;"
    """At ``Unfailed``. The status is loaded at the start; if ``own`` is 0, no status is less."""


def _framed(
    dialect: Dialect,
    kernel: KernelSignature,
    lines: Sequence[str],
    *,
    guard: LaunchGuard = LaunchGuard.NONE,
    is_early: bool = False,
    in_teams: bool = False,
) -> Framed:
    """A launch as a function without parameters."""
    given = [one for one in kernel.memory if one.space not in (Space.OWN, Space.GROUP)]
    memory = [one for one in given if one.name not in kernel.unused]
    has_status = kernel.can_fail or in_teams or guard is not LaunchGuard.NONE
    count = len(memory) + len(kernel.sizes) + 2 * has_status
    head = _given(count)
    places = iter(f"given{number}" for number in range(count))
    head += [f"{memory_type(one.dtype)} {one.name} = {memory_type(one.dtype)}({next(places)});" for one in memory]
    for size in kernel.sizes:
        kind = dialect.size_type(kernel, size)
        head.append(f"const {kind} s_{size} = {kind}({next(places)}.x);")
    if has_status:
        status, number = next(places), next(places)
        head.append(f"{WORDS} status = {WORDS}({status});")
        head += [f"oi_own = {number};", f"oi_status = {status};"] * is_early
        head += [f"oi_teams = uvec2(status.v[{TEAMS_AT}], status.v[{TEAMS_AT + 1}]);"] * in_teams
        head.append(f"const uint32_t own = {number}.x;")
    if guard is not LaunchGuard.NONE and not is_early:
        head.append(guard.value)
    head += [_array(dialect, one) for one in kernel.scratch if one.space is Space.OWN]
    body = "\n".join([*(f"{PAD}{one}" for one in head), *lines])
    shared = "".join(f"shared {_array(dialect, one)}\n" for one in kernel.scratch if one.space is Space.GROUP)
    return Framed(f"{shared}void {kernel.name}()\n{{\n{body}\n}}\n", f"void {kernel.name}();")


def _given(count: int) -> list[str]:
    """The arguments of a launch: pushed if they never change, or else in a block whose address is pushed last.

    Which of the two applies is known only while steps run, so one shader does both.
    """
    if not count:
        return []
    pushed = ", ".join(f"given{number} = arguments.at[{number}]" for number in range(count))
    if count >= PUSHED:
        pushed = ", ".join(f"given{number}" for number in range(count))
    block = f"oi_argument_block more = oi_argument_block(arguments.at[{PUSHED - 1}]);"
    read = " ".join(f"given{number} = more.at[{number}];" for number in range(count))
    is_changing = "" if count >= PUSHED else f"if (arguments.at[{PUSHED - 1}] != uvec2(0)) "
    return [f"uvec2 {pushed};", f"{is_changing}{{ {block} {read} }}"]


def _array(dialect: Dialect, buffer: Buffer) -> str:
    return f"{dialect.stored_type(buffer.dtype)} {buffer.name}[{max(most_elements(buffer.shape), 1)}];"


_WORDS_OF_GLSL = """
active and arguments asm atomic_uint attribute bool break buffer case cast centroid class coherent common const continue
default demote device discard do double else enum extern external false filter fixed flat float for goto half highp
hvec2 hvec3 hvec4 if image in inline inout input int interface invariant is_stopped layout long lowp main mediump more
namespace noinline noperspective not or out output own partition patch precise precision public put readonly resource
restrict return sample sampler shared short sizeof smooth static status struct subroutine superp switch template texture
this true typedef uint uniform union unsigned using varying vec2 vec3 vec4 void volatile while writeonly xor
"""
"""Keywords, and names that kernel functions use themselves."""

GLSL = Dialect(
    types=TYPES,
    stored=STORED,
    literal=literal,
    whole=whole,
    special=special,
    frame=_framed,
    support=SUPPORT,
    functions=_functions(),
    cast="{type}({value})",
    cast_takes=Rank.CHOICE,
    casts={(name, "i64"): "oi_widened" for name in ("i32", *_WRAPS)},
    wraps=_WRAPS,
    promotes=True,
    zeros={"f32": "OI_ZERO", "f64": "OI_ZERO64"},
    exact="precise ",
    element="{name}.v[uint({at})]",
    own_element="{name}[uint({at})]",
    store=_store,
    store_types={"bool": "u8"},
    packed_load="{function}({name}, {at})",
    fail="{{ atomicMin(status.v[0], own); return; }} /* {reason} */",
    negative_remainders=False,
    narrow="int32_t",
    known_outcomes=True,
    reserved=frozenset(_WORDS_OF_GLSL.split()) | {f"given{number}" for number in range(256)},
)
"""Buffers have fewer than 2^32 elements: 64-bit positions are narrowed where memory is accessed."""

_SMALL = tuple(one.name for one in DTYPES.values() if one.is_small_float)
_THROUGH_F64 = {("div", "f32"): Own("float(double({0}) / double({1}))", types=("f64",))}
"""Rounded twice, which is harmless: f64 has more than twice the digits."""
_BY_REMAINDER = {("div", "f32"): Own("oi_quotient_f32({0}, {1})", need="oi_quotient_f32")}
"""With a fused multiply-add that rounds once, few operands need f64."""
_NORMAL = {
    (name, "f32"): Own(f"oi_normal_{name}_f32({{0}})", need=f"oi_normal_{name}_f32")
    for name in ("exp", "log", "log2", "log10")
}
"""For devices that flush subnormal numbers."""
_FUSED = {
    ("gelu", "f32"): Own("oi_normal_gelu_f32({0})", need="oi_normal_gelu_f32"),
    ("log1p", "f32"): Own("oi_fused_log1p_f32({0})", need="oi_fused_log1p_f32"),
}
"""For those that also have a fused multiply-add with a single rounding."""
_FUSED_ROOTS = {("sqrt", "f32"): Own("oi_fused_sqrt_f32({0})", need="oi_fused_sqrt_f32")}
"""For those whose roots are not exact, but whose fused multiply-add is."""
_HALF_ROOTS = {("sqrt", "f16"): Own("oi_half_sqrt_f32({0})", need="oi_half_sqrt_f32")}
"""For roots of f16, by the dtype of the result."""
_NEAR_ROOTS = {("rsqrt", "f32"): Own("oi_near_rsqrt_f32({0})", need="oi_near_rsqrt_f32")}
_FEW_ANGLES = {
    (name, kind): Own(f"oi_{short}_{name}_f32({{0}})", need=f"oi_{short}_{name}_f32")
    for name in ("sin", "cos")
    for kind, short in ((kind, "few" if DTYPES[kind].maximum >= 2**16 else "half") for kind in _SMALL)
}
"""The same, if a fused multiply-add rounds once; fewer steps if no number is larger than 2^16."""
_FEW_ROOTS = {
    **{("sqrt", name): Own("oi_few_sqrt_f32({0})", need="oi_few_sqrt_f32") for name in _SMALL if name != "f16"},
    **{("rsqrt", name): Own("oi_few_rsqrt_f32({0})", need="oi_few_rsqrt_f32") for name in _SMALL},
}
"""For results so short that a root that is nearly right is rounded to the right one."""
_NEAR = {("div", "f32"): Own("oi_near_f32({0}, {1})", need="oi_near_f32")}
"""For intermediate values of results in f32."""
_NEAR_SMOOTH = {
    (name, "f32"): Own(f"oi_near_{name}_f32({{0}})", need=f"oi_near_{name}_f32") for name in ("mish", "softplus")
}
"""Both, where the result is an f32."""
_NEAR_EXP = {("exp", "f32"): Own("oi_near_exp_f32({0})", need="oi_near_exp_f32")}
"""The same for devices that flush subnormal numbers."""
_FEW_FUNCTIONS = ("exp", "tanh", "gelu", "erf", "log1p", "mish", "softplus")
_FEW = {
    ("div", "f32"): Own("oi_few_f32({0}, {1})", need="oi_few_f32"),
    ("inverse", "f32"): Own("(1.0f / {0})", takes=Rank.UNARY),
    **{(name, "f32"): Own(f"oi_few_{name}_f32({{0}})", need=f"oi_few_{name}_f32") for name in _FEW_FUNCTIONS},
}
"""For intermediate values of results with half as many bits, or fewer: the device's own functions suffice."""


def has_near_quotients(numerics: Numerics) -> bool:
    """Whether division is cheaper if its last bit does not matter."""
    return numerics.division != "exact" and numerics.fma == "exact"


def glsl(
    numerics: Numerics, guard: LaunchGuard = LaunchGuard.NONE, *, is_early: bool = False, in_teams: bool = False
) -> Dialect:
    """The GLSL dialect for the numerics of a device and the guard of a launch.

    An early launch starts before earlier ones have ended, and waits for them itself. In teams, groups wait for each
    other.
    """
    functions, about = GLSL.functions, GLSL.about
    is_fused = numerics.fma == "exact"
    if numerics.division != "exact":
        functions = {**functions, **(_BY_REMAINDER if is_fused else _THROUGH_F64)}
    if numerics.subnormals == "flushed":
        functions = {**functions, **_NORMAL, **(_FUSED if is_fused else {})}
        about = {(name, kind): own for (name, _), own in _FEW.items() for kind in _SMALL}
        about |= {**_NEAR_EXP, **_NEAR_SMOOTH, **_FEW_ANGLES} if is_fused else {}
    if numerics.root != "exact":
        functions = {**functions, **(_FUSED_ROOTS if is_fused else {})}
        about = {**about, **_FEW_ROOTS, **({**_HALF_ROOTS, **_NEAR_ROOTS} if is_fused else {})}
    if has_near_quotients(numerics):
        about = {**about, **_NEAR}
    frame = partial(_framed, guard=guard, is_early=is_early, in_teams=in_teams)
    return replace(GLSL, functions=functions, about=about, frame=frame)


def known_words(numerics: Numerics) -> dict[str, int]:
    """Macros that tell support code what is exact on a device, and whether it flushes."""
    return {
        "OI_FUSED": int(numerics.fma == "exact"),
        "OI_ROOTS": 12 if numerics.root == "exact" else 8,
        "OI_FLUSHED": int(numerics.subnormals == "flushed"),
        "OI_HALVES": int(numerics.halves == "exact"),
    }
