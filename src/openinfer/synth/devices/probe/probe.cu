/* Describes the CUDA device that programs get, and how it rounds: a key and a value per line. Exits with 3 if there is
   no driver or no device, with 4 if the device cannot run the compiled code. */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 1 << 16 };

struct numbers {
    float a[COUNT], b[COUNT], c[COUNT], quotient[COUNT], root[COUNT], fused[COUNT], product[COUNT];
};

extern "C" __global__ void __launch_bounds__(256) probe_numbers(struct numbers *own)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const float a = own->a[i], b = own->b[i];
    own->quotient[i] = a / b;
    own->root[i] = __fsqrt_rn(a);
    own->fused[i] = __fmaf_rn(a, b, own->c[i]);
    own->product[i] = a * 1e-38f;
}

static uint32_t seed = 1;

static float number(float from, float to)
{
    seed = seed * 1664525u + 1013904223u;
    return from + (to - from) * (float)(seed >> 8) / 16777216.0f;
}

/* Factors whose products do not fit the mantissa of f32; c is minus the rounded product. */
static void fill(struct numbers *to)
{
    for (int i = 0; i < COUNT; ++i) {
        to->a[i] = number(0.5f, 4.0f);
        to->b[i] = number(0.5f, 4.0f);
        to->c[i] = -to->a[i] * to->b[i];
    }
}

static int attribute(enum cudaDeviceAttr which, int device)
{
    int value = 0;
    return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

static void limits(int device)
{
    printf("limits.max_workgroup_size %d\n", attribute(cudaDevAttrMaxBlockDimX, device));
    printf("limits.max_workgroup_size %d\n", attribute(cudaDevAttrMaxBlockDimY, device));
    printf("limits.max_workgroup_size %d\n", attribute(cudaDevAttrMaxBlockDimZ, device));
    printf("limits.max_workgroup_invocations %d\n", attribute(cudaDevAttrMaxThreadsPerBlock, device));
    printf("limits.max_shared_memory_bytes %d\n", attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    printf("limits.subgroup_size %d\n", attribute(cudaDevAttrWarpSize, device));
    printf("limits.compute_units %d\n", attribute(cudaDevAttrMultiProcessorCount, device));
    printf("limits.registers_per_unit %d\n", attribute(cudaDevAttrMaxRegistersPerMultiprocessor, device));
    printf("memory.shared_bytes_per_sm %d\n", attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
    printf("memory.l2_bytes %d\n", attribute(cudaDevAttrL2CacheSize, device));
}

static void rounding(const struct numbers *own)
{
    int quotients = 0, roots = 0, fused = 0, products = 0;
    for (int i = 0; i < COUNT; ++i) {
        const volatile float quotient = own->a[i] / own->b[i], root = sqrtf(own->a[i]), product = own->a[i] * 1e-38f;
        quotients += own->quotient[i] != quotient;
        roots += own->root[i] != root;
        fused += own->fused[i] != fmaf(own->a[i], own->b[i], own->c[i]);
        products += own->product[i] != product;
    }
    printf("numerics.f32_division %s\n", quotients == 0 ? "exact" : "last bit");
    printf("numerics.f32_sqrt %s\n", roots == 0 ? "exact" : "last bit");
    printf("numerics.fma %s\n", fused == 0 ? "exact" : "two roundings");
    printf("numerics.f32_subnormals %s\n", products == 0 ? "exact" : "flushed");
}

int main()
{
    static struct numbers here;
    struct cudaDeviceProp about;
    int count = 0, device = 0, version = 0;
    size_t free_bytes = 0, all_bytes = 0;
    void *there = NULL, *given[] = { &there };
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 || cudaGetDevice(&device) != cudaSuccess) return 3;
    if (cudaGetDeviceProperties(&about, device) != cudaSuccess || cudaMemGetInfo(&free_bytes, &all_bytes) != cudaSuccess) return 3;
    fill(&here);
    if (cudaMalloc(&there, sizeof here) != cudaSuccess) return 4;
    if (cudaMemcpy(there, &here, sizeof here, cudaMemcpyHostToDevice) != cudaSuccess) return 4;
    if (cudaLaunchKernel((const void *)probe_numbers, dim3(COUNT / 256), dim3(256), given, 0, 0) != cudaSuccess) return 4;
    if (cudaMemcpy(&here, there, sizeof here, cudaMemcpyDeviceToHost) != cudaSuccess) return 4;
    if (cudaDriverGetVersion(&version) != cudaSuccess) version = 0;
    printf("name %s\ndriver CUDA %d.%d\n", about.name, version / 1000, version % 1000 / 10);
    printf("capability %d\n", 10 * attribute(cudaDevAttrComputeCapabilityMajor, device)
        + attribute(cudaDevAttrComputeCapabilityMinor, device));
    limits(device);
    printf("memory.global_bytes %llu\n", (unsigned long long)all_bytes);
    rounding(&here);
    cudaFree(there);
    return 0;
}
