"""All f32 through the C runtime's functions of one operand, judged by its own f64 functions (which mpmath judges).

``python -m tests.synth.fuzz_math [NAMES...] [--options="-O3 -march=native"]`` prints the largest errors in units in the
last place: tens of seconds for each function. A prime ``--stride`` takes every so-manieth f32 only.
"""

import argparse
import ctypes
import tempfile
import time
from pathlib import Path

from tests.synth.runtime_in_c import UNARY, compile_c, source

JUDGE = """
double worst_NAME(uint32_t stride, uint32_t *at);
double worst_NAME(uint32_t stride, uint32_t *at)
{
    enum { MANY = 4096 };
    static float x[MANY], y[MANY];
    static double wide[MANY], wanted[MANY];
    double worst = -1.0;
    for (uint64_t start = 0; start < 0x100000000u; start += (uint64_t)MANY * stride) {
        for (int i = 0; i < MANY; i++) {
            x[i] = oi_bits_u32_f32((uint32_t)(start + (uint64_t)i * stride));
            wide[i] = (double)x[i];
        }
        each_NAME_f32(x, y, MANY);
        each_NAME_f64(wide, wanted, MANY);
        for (int i = 0; i < MANY; i++) {
            const float nearest = (float)wanted[i];
            const uint64_t field = (oi_bits_f64_u64(wanted[i]) >> 52) & 0x7ffu;
            const double inverse = oi_bits_u64_f64((uint64_t)(2046u + 23u - (field > 897u ? field : 897u)) << 52);
            const double difference = __builtin_fabs((double)y[i] - wanted[i]) * inverse;
            double error = y[i] == nearest && nearest - nearest != 0.0f ? 0.0 : difference;
            error = __builtin_signbit(y[i]) == __builtin_signbit(nearest) ? error : OI_INF64;
            error = y[i] != y[i] && nearest != nearest ? 0.0 : error == error ? error : OI_INF64;
            if (error > worst) {
                worst = error;
                *at = oi_bits_f32_u32(x[i]);
            }
        }
    }
    return worst;
}
"""


def worst(name: str, options: list[str], stride: int) -> tuple[float, int]:
    """The largest error over all f32, and the bits where it is."""
    with tempfile.TemporaryDirectory() as folder:
        text = source([name]) + JUDGE.replace("NAME", name)
        library = ctypes.CDLL(str(compile_c(text, Path(folder), options)[0]))
    function = getattr(library, f"worst_{name}")
    function.restype = ctypes.c_double
    at = ctypes.c_uint32(0)
    return float(function(ctypes.c_uint32(stride), ctypes.byref(at))), at.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=UNARY)
    parser.add_argument("--options", default="-O3 -march=native")
    parser.add_argument("--stride", type=int, default=1)
    chosen = parser.parse_args()
    for name in chosen.names:
        began = time.monotonic()
        error, at = worst(name, chosen.options.split(), chosen.stride)
        print(f"{name:6s} {error:.4f} ulp at 0x{at:08x}, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
