/* What kernels say to CUDA, for a machine without a GPU: every file of kernels begins with this. */
#include "cuda_runtime_api.h"

#include <math.h>
#include <string.h>

#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __shared__ static
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{ x, y }; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{ x, y, z, w }; }

extern "C" {
extern dim3 threadIdx, blockIdx, blockDim, gridDim;
void __syncthreads();
uint64_t emulated_exchange(uint32_t team, uint64_t value, int mask);
/* How a kernel is called, and how large its arguments are. */
int emulated_known(const void *kernel, void (*call)(const void *, void **), const size_t *sizes, size_t count);
}

template <typename... A, size_t... I> static void emulated_call(void (*kernel)(A...), void **given, std::index_sequence<I...>)
{
    kernel(*(std::remove_const_t<A> *)given[I]...);
}
template <typename... A> static int emulated_register(void (*kernel)(A...))
{
    static const size_t sizes[] = { sizeof(A)..., 0 };
    return emulated_known((const void *)kernel,
        [](const void *own, void **given) { emulated_call((void (*)(A...))own, given, std::index_sequence_for<A...>()); },
        sizes, sizeof...(A));
}

template <typename T, typename S> static inline T emulated_bits(S value)
{
    T to = 0;
    memcpy(&to, &value, sizeof value < sizeof to ? sizeof value : sizeof to);
    return to;
}
template <typename T> static inline T __shfl_xor_sync(unsigned team, T value, int mask)
{
    return emulated_bits<T>(emulated_exchange(team, emulated_bits<uint64_t>(value), mask));
}
static inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return emulated_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
static inline float __int_as_float(int x) { return emulated_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return emulated_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return emulated_bits<double>(x); }
static inline int __double2loint(double x) { return (int)emulated_bits<uint64_t>(x); }
static inline int __double2hiint(double x) { return (int)(emulated_bits<uint64_t>(x) >> 32); }
static inline double __hiloint2double(int high, int low)
{
    return emulated_bits<double>((uint64_t)(uint32_t)high << 32 | (uint32_t)low);
}
static inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline double __dsqrt_rn(double x) { return sqrt(x); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline unsigned atomicMin(unsigned *p, unsigned value)
{
    const unsigned old = *p;
    if (value < old) *p = value;
    return old;
}
static inline unsigned atomicAnd(unsigned *p, unsigned value) { const unsigned old = *p; *p &= value; return old; }
static inline unsigned atomicOr(unsigned *p, unsigned value) { const unsigned old = *p; *p |= value; return old; }
