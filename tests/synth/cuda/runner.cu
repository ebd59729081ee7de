/* Runs the kernels of one file, one after the other, in memory with guards around it. Behind what it tests. */

#include <stdlib.h>
#include <string.h>

enum { GUARD = 256 };

static unsigned char *runner_whole(uint64_t address) { return (unsigned char *)(uintptr_t)address - GUARD; }

/* Memory with so many bytes of data, and guards; 0 if there is none. */
extern "C" uint64_t runner_new(const void *data, uint64_t bytes, int fill)
{
    unsigned char *memory = NULL;
    if (cudaMalloc((void **)&memory, bytes + 2 * GUARD + 16) != cudaSuccess) return 0;
    cudaMemset(memory, 0xa5, bytes + 2 * GUARD + 16);
    cudaMemset(memory + GUARD, fill, bytes);
    if (data != NULL) cudaMemcpy(memory + GUARD, data, bytes, cudaMemcpyHostToDevice);
    return (uint64_t)(uintptr_t)(memory + GUARD);
}

extern "C" void runner_free(uint64_t address) { cudaFree(runner_whole(address)); }

/* The data; whether its guards are what they were. */
extern "C" int runner_get(uint64_t address, void *to, uint64_t bytes)
{
    unsigned char *const seen = (unsigned char *)malloc(bytes + 2 * GUARD);
    int good = cudaMemcpy(seen, runner_whole(address), bytes + 2 * GUARD, cudaMemcpyDeviceToHost) == cudaSuccess;
    memcpy(to, seen + GUARD, bytes);
    const uint64_t end = GUARD + (bytes + 3) / 4 * 4; /* elements that share words are put there by whole words */
    for (uint64_t i = 0; i < GUARD; ++i) good = good && seen[i] == 0xa5;
    for (uint64_t i = end; i < bytes + 2 * GUARD; ++i) good = good && seen[i] == 0xa5;
    free(seen);
    return good;
}

extern "C" int runner_launch(int kernel, uint32_t groups, uint32_t threads, uint32_t shared, uint64_t *values, int count)
{
    void *places[1024];
    const void *const function = runner_kernels[kernel];
    if (shared > 0) cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    for (int i = 0; i < count; ++i) places[i] = values + i;
    return (int)cudaLaunchKernel(function, dim3(groups), dim3(threads), places, shared, 0);
}

extern "C" int runner_settle() { return (int)cudaDeviceSynchronize(); }
