"""Support code in CUDA. It relies on ``-fmad=false``: fused operations are explicit."""

from collections.abc import Iterable, Mapping
from functools import cache

from openinfer.dtypes import DTYPES, DType
from openinfer.synth.targets.cstyle.integers import INTEGERS, integer_functions
from openinfer.synth.targets.cstyle.support import Need, Support, SupportFunction


@cache
def _generated() -> Mapping[str, SupportFunction]:
    packed = (one for dtype in DTYPES.values() if dtype.is_packed for one in _packed_functions(dtype))
    return {**integer_functions(), **{one.name: one for one in packed}}


def _packed_functions(dtype: DType) -> Iterable[SupportFunction]:
    """Loads and stores of packed elements, the first in the lowest bits. Codes of t1 are 0 for -1 and 1 for 1.

    Threads that store to the same word use atomics, each for the bits of its own element.
    """
    own, bits = INTEGERS[dtype.compute.name], dtype.bits
    mask, half, count = (1 << bits) - 1, 1 << (bits - 1), 32 // bits
    is_sign = dtype.values is not None and bits == 1
    value = "2 * (int32_t)c - 1" if is_sign else f"((int32_t)c ^ {half}) - {half}" if dtype.kind == "int" else "c"
    name = f"oi_load_{dtype.name}"
    load = (
        f"OI_FUNCTION {own} {name}(const uint32_t *p, int64_t i)\n{{\n"
        f"    const uint32_t c = (p[i / {count}] >> (uint32_t)(i % {count} * {bits})) & {mask}u;\n"
        f"    return ({own})({value});\n}}\n"
    )
    yield SupportFunction(name, ("OI_FUNCTION",), load)
    code = "v > 0 ? 1u : 0u" if is_sign else f"(uint32_t)v & {mask}u"
    name = f"oi_store_{dtype.name}"
    store = (
        f"OI_FUNCTION void {name}(uint32_t *p, int64_t i, {own} v)\n{{\n"
        f"    const uint32_t shift = (uint32_t)(i % {count} * {bits}), c = {code};\n"
        f"    atomicAnd(p + i / {count}, ~({mask}u << shift));\n"
        f"    atomicOr(p + i / {count}, c << shift);\n}}\n"
    )
    yield SupportFunction(name, ("OI_FUNCTION",), store)


SUPPORT = Support(
    folders=(("openinfer.synth.targets.cstyle", "runtime"), ("openinfer.synth.targets.cuda", "runtime")),
    generated=_generated,
    known={"OI_FUSED": 1, "OI_ROOTS": 12, "OI_NEAREST": 1},
)


def support_code(needs: Iterable[Need]) -> str:
    """CUDA definitions of these functions and of all that they call, in an order that compiles."""
    return SUPPORT.code(needs)
