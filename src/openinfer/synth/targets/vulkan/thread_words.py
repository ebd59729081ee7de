"""Thread operations in GLSL."""

from dataclasses import replace

from openinfer.dtypes import DType
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.gpu.threads import ThreadWords
from openinfer.synth.targets.vulkan.dialect import WORDS
from openinfer.synth.targets.vulkan.support import TYPES

WIDE_TYPES = (("oi_pairs", "uvec2", 8), ("oi_quads", "uvec4", 16))
"""Accesses of two and four words: the buffer type, the type of an access, and its alignment."""


def _shuffled(dtype: DType, value: str, mask: int, _width: int) -> str:
    """Types that not every device can shuffle are exchanged as words."""
    match dtype.name:
        case "f32" | "i32" | "u32" | "bool":
            return f"subgroupShuffleXor({value}, {mask}u)"
        case "f64":
            return f"packDouble2x32(subgroupShuffleXor(unpackDouble2x32({value}), {mask}u))"
        case "i64" | "u64":
            return f"{TYPES[dtype.name]}(packUint2x32(subgroupShuffleXor(unpackUint2x32(uint64_t({value})), {mask}u)))"
        case _:
            return f"{TYPES[dtype.name]}(subgroupShuffleXor(int32_t({value}), {mask}u))"


GLSL_THREADS = ThreadWords(
    thread="gl_GlobalInvocationID.x",
    group="gl_WorkGroupID.x",
    number="int(gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID)",
    lane="gl_SubgroupInvocationID",
    barrier="groupMemoryBarrier(); barrier();",
    shared_barrier="barrier();",
    exact="precise ",
    shuffled=_shuffled,
    place="uint({0})",
    access={size: f"{memory}({{name}}).v[{{at}}]" for size, memory in ((1, WORDS), (2, "oi_pairs"), (4, "oi_quads"))},
    wide={1: "uint32_t", 2: "uvec2", 4: "uvec4"},
    made="{type}({parts})",
    word=("[0]", "[1]", "[2]", "[3]"),
    of_float="floatBitsToUint({0})",
    to_float="uintBitsToFloat({0})",
    of_double=("unpackDouble2x32({0})[0]", "unpackDouble2x32({0})[1]"),
    to_double="packDouble2x32(uvec2({0}, {1}))",
    of_long=("unpackUint2x32(uint64_t({0}))[0]", "unpackUint2x32(uint64_t({0}))[1]"),
    to_long="packUint2x32(uvec2({0}, {1}))",
    rounded={1: "oi_pair_bf16", 2: "oi_pairs_bf16", 4: "oi_quads_bf16"},
    near={2: "oi_near_pairs_bf16", 4: "oi_near_quads_bf16"},
)
_OWN_HALVES = replace(
    GLSL_THREADS,
    of_halves=("unpackHalf2x16({0})[0]", "unpackHalf2x16({0})[1]"),
    to_halves="packHalf2x16(vec2({0}, {1}))",
)


def glsl_threads(numerics: Numerics) -> ThreadWords:
    """The words for a device that rounds like this."""
    return _OWN_HALVES if numerics.halves == "exact" else GLSL_THREADS
