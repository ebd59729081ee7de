"""Thread operations in CUDA."""

from openinfer.dtypes import DType
from openinfer.synth.targets.cuda.dialect import TYPES
from openinfer.synth.targets.gpu.threads import ThreadWords

WARP = 32
"""Threads per subgroup."""


def _shuffled(dtype: DType, value: str, mask: int, width: int) -> str:
    """Only the threads of a team wait for each other: the rest of the warp may be inactive.

    Types without a shuffle of their own are exchanged as integers.
    """
    team = "~0u" if width == WARP else f"oi_team({width})"
    if dtype.name in ("f32", "f64", "i32", "u32", "i64", "u64"):
        return f"__shfl_xor_sync({team}, {value}, {mask})"
    return f"{TYPES[dtype.name]}(__shfl_xor_sync({team}, int32_t({value}), {mask}))"


CUDA_THREADS = ThreadWords(
    thread="uint64_t(blockIdx.x) * blockDim.x + threadIdx.x",
    group="blockIdx.x",
    number="threadIdx.x",
    lane="threadIdx.x",
    barrier="__syncthreads();",
    shared_barrier="__syncthreads();",
    exact="",
    shuffled=_shuffled,
    place="uint32_t({0})",
    access={size: f"oi_{word}({{name}})[{{at}}]" for size, word in ((1, "words"), (2, "pairs"), (4, "quads"))},
    ahead={4: "oi_ahead(oi_quads({name}) + ({at}))"},
    wide={1: "uint32_t", 2: "uint2", 4: "uint4"},
    made="make_{type}({parts})",
    word=(".x", ".y", ".z", ".w"),
    of_float="__float_as_uint({0})",
    to_float="__uint_as_float({0})",
    of_double=("uint32_t(__double2loint({0}))", "uint32_t(__double2hiint({0}))"),
    to_double="__hiloint2double(int({1}), int({0}))",
    of_long=("uint32_t({0})", "uint32_t(uint64_t({0}) >> 32)"),
    to_long="uint64_t({1}) << 32 | {0}",
)
