/* What CUDA's headers say, as far as kernels need it: clang compiles for these GPUs, but comes without the headers. */
#include <stdint.h>

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __align__(n) __attribute__((aligned(n)))

struct uint3 { unsigned x, y, z; };
struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
extern const __device__ uint3 threadIdx, blockIdx, blockDim, gridDim;

static __device__ inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{ x, y }; }
static __device__ inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{ x, y, z, w }; }

extern "C" {
__device__ unsigned __float_as_uint(float); __device__ int __float_as_int(float);
__device__ float __uint_as_float(unsigned); __device__ float __int_as_float(int);
__device__ long long __double_as_longlong(double); __device__ double __longlong_as_double(long long);
__device__ int __double2loint(double); __device__ int __double2hiint(double);
__device__ double __hiloint2double(int, int);
__device__ float fabsf(float); __device__ double fabs(double); __device__ float rintf(float);
__device__ float copysignf(float, float); __device__ double copysign(double, double);
__device__ int __clzll(long long); __device__ float __fsqrt_rn(float); __device__ double __dsqrt_rn(double);
__device__ float __fmaf_rn(float, float, float); __device__ double __fma_rn(double, double, double);
__device__ void __syncthreads();
}
__device__ unsigned atomicMin(unsigned *, unsigned);
__device__ unsigned atomicAnd(unsigned *, unsigned);
__device__ unsigned atomicOr(unsigned *, unsigned);
template <typename T> __device__ T __shfl_xor_sync(unsigned, T, int);
