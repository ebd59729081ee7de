"""CUDA C++ as a dialect: its types, numbers and builtins, and how a launch becomes a kernel.

Numbers, casts and operators are those of C. Compiler flags (``FLAGS``) settle what C leaves open: nothing is fused,
division and square roots are exact, subnormal numbers are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.dim import most_elements
from openinfer.loops.ir import Buffer, Space
from openinfer.synth.targets.c.dialect import literal, special
from openinfer.synth.targets.cstyle.code import Rank
from openinfer.synth.targets.cstyle.dialect import Dialect, Framed, KernelSignature, Own
from openinfer.synth.targets.cstyle.integers import INTEGERS
from openinfer.synth.targets.cuda.support import SUPPORT
from openinfer.synth.targets.cuda.tile_code import tile_memory

PAD = "    "
FLAGS = ("-std=c++17", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false")
"""Compiler flags that make arithmetic follow the code exactly."""
TYPES = {"f32": "float", "f64": "double", "bool": "bool", "index": "int64_t", **INTEGERS}
"""The types of values, by compute dtype."""


def _stored(dtype: DType) -> str:
    """The type of an element in memory; packed elements are in words, which threads update with atomics."""
    if dtype.is_packed:
        return "uint32_t"
    return INTEGERS[f"u{dtype.bits}"] if dtype.is_small_float or dtype.kind == "bool" else TYPES[dtype.name]


def _functions() -> dict[tuple[str, str], Own]:
    """NaN and infinity are tested by their bits."""
    found = {("abs", "f32"): Own("fabsf({0})"), ("abs", "f64"): Own("fabs({0})")}
    for name, bits, most, infinite in (
        ("f32", "__float_as_uint({0})", "0x7fffffffu", "0x7f800000u"),
        ("f64", "(uint64_t)__double_as_longlong({0})", "0x7fffffffffffffffu", "0x7ff0000000000000u"),
    ):
        found["isnan", name] = Own(f"({bits} & {most}) > {infinite}", rank=Rank.COMPARISON)
        found["isinf", name] = Own(f"({bits} & {most}) == {infinite}", rank=Rank.COMPARISON)
        found["signbit", name] = Own(f"{bits} > {most}", rank=Rank.COMPARISON)
    for dtype in DTYPES.values():
        if dtype.name in INTEGERS:
            found["not", dtype.name] = Own(f"({INTEGERS[dtype.name]})~{{0}}", takes=Rank.UNARY, rank=Rank.UNARY)
    return found


@dataclass(frozen=True)
class KernelFrame:
    """The properties of a kernel apart from its statements."""

    group: int
    """Threads per group."""
    is_guarded: bool = False
    """Whether it relies on the checks of an earlier launch."""
    is_guarded_late: bool = False
    """Whether it exits at ``Unfailed`` instead of at the start if an earlier launch has failed."""
    is_early: bool = False
    """Whether it starts while the previous launch still runs, and reads none of its results before ``Ready``."""
    knows_weights: bool = False
    """Whether it declares that nothing writes weights."""
    has_tiles: bool = False
    """Whether its shared memory consists of tiles, allocated at launch."""
    looked_up: frozenset[str] = frozenset()
    """The parameters of which it gets the address, not the value."""

    @property
    def guard(self) -> list[str]:
        """The check whether an earlier launch has failed."""
        found = "own != 0u && *status < own"
        whole = f"const bool is_stopped = {found};" if self.is_guarded_late else f"if ({found}) return;"
        return [whole] * self.is_guarded


def _framed(dialect: Dialect, kernel: KernelSignature, lines: Sequence[str], *, frame: KernelFrame) -> Framed:
    """A launch as a kernel."""
    given = [one for one in kernel.memory if one.space not in (Space.OWN, Space.GROUP)]
    written = {one.name for one in (*kernel.outputs, *kernel.scratch)}
    named = [
        (
            f"{'' if one.name in written else 'const '}{dialect.stored_type(one.dtype)} *{_restrict(one, frame)}",
            one.name,
        )
        for one in given
        if one.name not in kernel.unused
    ]
    found = [(f"{kind}const ", name) if name in frame.looked_up else (kind, name) for kind, name in named]
    found += [(f"const {dialect.size_type(kernel, size)} ", f"s_{size}") for size in kernel.sizes]
    parameters = [f"{kind}*{name}_now" if name in frame.looked_up else f"{kind}{name}" for kind, name in found]
    if kernel.can_fail or frame.is_guarded:
        parameters += ["uint32_t *status", "const uint32_t own"]
    body = ["oi_let_next_begin();"] if frame.is_early else frame.guard
    body = [*body, *(f"{kind}{name} = *{name}_now;" for kind, name in found if name in frame.looked_up)]
    memory = [one for one in kernel.scratch if one.space is Space.GROUP]
    shared = (f"__shared__ {_array(dialect, one)}" for one in memory)
    body += tile_memory(memory, dialect.stored_type) if frame.has_tiles else shared
    body += [_array(dialect, one) for one in kernel.scratch if one.space is Space.OWN]
    head = f'extern "C" __global__ void __launch_bounds__({frame.group}) {kernel.name}({", ".join(parameters)})'
    text = "\n".join([head, "{", *(f"{PAD}{one}" for one in body), *lines, "}"])
    return Framed(f"{text}\n", f"{head};")


def _restrict(one: Buffer, frame: KernelFrame) -> str:
    return "__restrict__ " if frame.knows_weights and one.space is Space.WEIGHTS else ""


def _array(dialect: Dialect, buffer: Buffer) -> str:
    alignment = "__align__(16) " if buffer.space is Space.GROUP else ""
    return f"{alignment}{dialect.stored_type(buffer.dtype)} {buffer.name}[{max(most_elements(buffer.shape), 1)}];"


_WORDS_OF_CUDA = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const const_cast constexpr
continue cos decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto
if index inline int int1 int2 int3 int4 is_stopped long mutable namespace new noexcept not not_eq nullptr operator or
or_eq own private protected public register reinterpret_cast return short signed sin sizeof static static_assert
static_cast status struct switch template this thread_local throw true try typedef typeid typename union unsigned using
virtual void volatile wchar_t while xor xor_eq
"""
"""Keywords, and names that kernels use themselves."""

_FEW = {
    "div": Own("oi_few_f32({0}, {1})", need="oi_few_f32"),
    "exp": Own("oi_few_exp_f32({0})", need="oi_few_exp_f32"),
}
"""For intermediate values of results with half as many bits, or fewer: the device's own functions suffice."""

CUDA = Dialect(
    types=TYPES,
    stored={one.name: _stored(one) for one in DTYPES.values()},
    literal=literal,
    special=special,
    frame=partial(_framed, frame=KernelFrame(group=1024)),
    support=SUPPORT,
    functions=_functions(),
    about={(name, one.name): own for name, own in _FEW.items() for one in DTYPES.values() if one.is_small_float},
    promotes=True,
    fail="{{ atomicMin(status, own); return; }} /* {reason} */",
    narrow="int32_t",
    known_outcomes=True,
    reserved=frozenset(_WORDS_OF_CUDA.split()),
)


def cuda(frame: KernelFrame) -> Dialect:
    """The CUDA dialect for a launch."""
    return replace(CUDA, frame=partial(_framed, frame=frame))
