/* A device for CUDA programs on a machine without a GPU: a launch runs here, one group after the other, and in it one
 * thread until it waits, then the next. It is slow, and it is exact: generated hosts and kernels are tested as they are.
 */

#include "cuda_runtime_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <map>
#include <memory>
#include <vector>

extern "C" {
dim3 threadIdx, blockIdx, blockDim, gridDim;
}

/* Goes on with another stack, and keeps where this one is. */
extern "C" void emulated_switch(void **from, void *to);
asm(R"(
.text
.globl emulated_switch
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

namespace {

enum { WARP = 32, STACK = 256 * 1024 };
enum class At { RUNNING, GROUP, TEAM, END };

struct Thread {
    void *place = nullptr; /* in its stack */
    std::unique_ptr<char[]> stack;
    At at = At::END;
    uint32_t team = 0;
    uint64_t value = 0;
};

struct Kernel {
    void (*call)(const void *, void **) = nullptr;
    std::vector<size_t> sizes;
};

/* A launch: its arguments are kept, since a graph may hold it for long. */
struct Launch {
    const void *function = nullptr;
    dim3 groups, threads;
    std::vector<std::vector<char>> arguments;
};

/* Kernels are known before others of this file are made. */
std::map<const void *, Kernel> &kernels()
{
    static std::map<const void *, Kernel> known;
    return known;
}

void *scheduler = nullptr;
std::vector<void *> arguments;
std::vector<std::unique_ptr<Thread>> threads;
unsigned current = 0;
const Launch *running = nullptr;
const Kernel *called = nullptr;

void fail(const char *what)
{
    Dl_info about;
    const bool is_known = running != nullptr && dladdr(running->function, &about) != 0 && about.dli_sname != nullptr;
    fprintf(stderr, "emulated CUDA: %s in %s\n", what, is_known ? about.dli_sname : "a kernel");
    abort();
}

void body()
{
    called->call(running->function, arguments.data());
    threads[current]->at = At::END;
    emulated_switch(&threads[current]->place, scheduler);
}

void wait(At at)
{
    threads[current]->at = at;
    emulated_switch(&threads[current]->place, scheduler);
    threadIdx = dim3(current);
}

void run(unsigned number)
{
    current = number;
    threadIdx = dim3(number);
    threads[number]->at = At::RUNNING;
    emulated_switch(&scheduler, threads[number]->place);
}

/* The threads of a team that still run have come to the same place; they may go on. */
bool is_team(unsigned first, const Thread &one)
{
    const unsigned count = blockDim.x;
    for (unsigned i = 0; i < WARP && first + i < count; ++i) {
        const Thread &other = *threads[first + i];
        if ((one.team >> i & 1) && other.at != At::END && (other.at != At::TEAM || other.team != one.team)) return false;
    }
    return true;
}

bool released()
{
    const unsigned count = blockDim.x;
    unsigned live = 0, waiting = 0;
    for (unsigned i = 0; i < count; ++i) {
        live += threads[i]->at != At::END;
        waiting += threads[i]->at == At::GROUP;
    }
    if (live > 0 && live == waiting) {
        for (unsigned i = 0; i < count; ++i)
            if (threads[i]->at == At::GROUP) threads[i]->at = At::RUNNING;
        return true;
    }
    bool any = false;
    std::vector<unsigned> free;
    for (unsigned i = 0; i < count; ++i)
        if (threads[i]->at == At::TEAM && is_team(i / WARP * WARP, *threads[i])) free.push_back(i);
    for (const unsigned i : free) threads[i]->at = At::RUNNING, any = true;
    return any;
}

void group(const Launch &one, unsigned number)
{
    running = &one;
    blockIdx = dim3(number);
    blockDim = one.threads;
    gridDim = one.groups;
    while (threads.size() < one.threads.x) threads.push_back(std::make_unique<Thread>());
    for (unsigned i = 0; i < one.threads.x; ++i) {
        Thread &own = *threads[i];
        if (!own.stack) own.stack.reset(new char[STACK]);
        void **const top = (void **)(((uintptr_t)own.stack.get() + STACK) / 16 * 16) - 2;
        *top = (void *)body; /* what it returns to when it is first gone on with, below six registers */
        own.place = top - 6;
        own.at = At::RUNNING;
    }
    for (;;) {
        for (unsigned i = 0; i < one.threads.x; ++i)
            if (threads[i]->at == At::RUNNING) run(i);
        unsigned live = 0;
        for (unsigned i = 0; i < one.threads.x; ++i) live += threads[i]->at != At::END;
        if (live == 0) return;
        if (!released()) fail("threads wait for each other in vain");
    }
}

void launch(const Launch &one)
{
    arguments.clear();
    for (const std::vector<char> &each : one.arguments) arguments.push_back((void *)each.data());
    called = &kernels()[one.function];
    for (unsigned i = 0; i < one.groups.x; ++i) group(one, i);
}

bool is_launch(const void *function, dim3 groups, dim3 count, void **given, Launch *to)
{
    const auto found = kernels().find(function);
    if (found == kernels().end() || groups.x == 0 || count.x == 0 || count.x > 1024) return false;
    *to = Launch{ function, groups, count, {} };
    for (size_t i = 0; i < found->second.sizes.size(); ++i) {
        const char *const from = (const char *)given[i];
        to->arguments.emplace_back(from, from + found->second.sizes[i]);
    }
    return true;
}

} // namespace

struct emulated_node {
    Launch own;
    bool is_empty = false;
};
struct emulated_graph {
    std::vector<std::unique_ptr<emulated_node>> nodes;
};
/* Nodes run in the order in which they were added: each comes after those that it depends on. */
struct emulated_exec {
    std::vector<emulated_node> nodes;
    std::vector<const emulated_node *> made_of;
};
struct emulated_event {
    timespec at;
};

extern "C" {

int emulated_known(const void *kernel, void (*call)(const void *, void **), const size_t *sizes, size_t count)
{
    kernels()[kernel] = Kernel{ call, std::vector<size_t>(sizes, sizes + count) };
    return 0;
}

void __syncthreads() { wait(At::GROUP); }

uint64_t emulated_exchange(uint32_t team, uint64_t value, int mask)
{
    const unsigned own = current;
    threads[own]->team = team;
    threads[own]->value = value;
    wait(At::TEAM);
    const uint64_t found = threads[own ^ (unsigned)mask]->value;
    wait(At::TEAM); /* nobody has another value before all have seen this one */
    return found;
}

/* --- the device and its memory ------------------------------------------------------------------------------------ */

cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *count)
{
    *count = getenv("EMULATED_CUDA_DEVICES") == nullptr ? 1 : atoi(getenv("EMULATED_CUDA_DEVICES"));
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }
/* What an H200 says. */
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
    static const std::map<int, int> known = { { 1, 1024 }, { 2, 1024 }, { 3, 1024 }, { 4, 64 }, { 10, WARP }, { 16, 132 },
        { 38, 62914560 }, { 75, 9 }, { 76, 0 }, { 81, 233472 }, { 82, 65536 }, { 97, 232448 } };
    const auto found = known.find(attribute);
    if (found == known.end()) return cudaErrorInvalidValue;
    return *value = found->second, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *to, int) { return strcpy(to->name, "NVIDIA H200"), cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes)
{
    return *free_bytes = *all_bytes = 150109880320u, cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, const void *function)
{
    return kernels().count(function) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaFuncSetAttribute(const void *function, int, int value)
{
    return kernels().count(function) && value <= 232448 ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }

/* Memory begins where that of a device would, and holds rubbish. */
cudaError_t cudaMalloc(void **to, size_t bytes)
{
    *to = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (*to == nullptr) return cudaErrorMemoryAllocation;
    memset(*to, 0xdb, bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory) { return free(memory), cudaSuccess; }
cudaError_t cudaHostAlloc(void **to, size_t bytes, unsigned) { return cudaMalloc(to, bytes); }
cudaError_t cudaFreeHost(void *memory) { return free(memory), cudaSuccess; }
cudaError_t cudaHostGetDevicePointer(void **to, void *host, unsigned) { return *to = host, cudaSuccess; }
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) { return memcpy(to, from, bytes), cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t)
{
    return memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) { return memset(to, value, bytes), cudaSuccess; }
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t) { return memset(to, value, bytes), cudaSuccess; }

/* --- launches ----------------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *to, unsigned) { return *to = (cudaStream_t)malloc(1), cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return free(stream), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaLaunchKernel(const void *function, dim3 groups, dim3 count, void **given, size_t, cudaStream_t)
{
    Launch one;
    if (!is_launch(function, groups, count, given, &one)) return cudaErrorInvalidValue;
    return launch(one), cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *to) { return *to = new emulated_event(), cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) { return clock_gettime(CLOCK_MONOTONIC, &event->at), cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t first, cudaEvent_t last)
{
    *milliseconds = (float)(last->at.tv_sec - first->at.tv_sec) * 1e3f + (float)(last->at.tv_nsec - first->at.tv_nsec) * 1e-6f;
    return cudaSuccess;
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

cudaError_t cudaGraphCreate(cudaGraph_t *to, unsigned) { return *to = new emulated_graph(), cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }

static bool are_there(const emulated_graph *graph, const cudaGraphNode_t *before, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        bool is_there = false;
        for (const auto &one : graph->nodes) is_there = is_there || one.get() == before[i];
        if (!is_there) return false;
    }
    return true;
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *to, cudaGraph_t graph, const cudaGraphNode_t *before, size_t count)
{
    if (!are_there(graph, before, count)) return cudaErrorInvalidValue;
    graph->nodes.push_back(std::make_unique<emulated_node>());
    graph->nodes.back()->is_empty = true;
    return *to = graph->nodes.back().get(), cudaSuccess;
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *to, cudaGraph_t graph, const cudaGraphNode_t *before, size_t count,
    const cudaKernelNodeParams *about)
{
    auto made = std::make_unique<emulated_node>();
    if (!are_there(graph, before, count)) return cudaErrorInvalidValue;
    if (!is_launch(about->func, about->gridDim, about->blockDim, about->kernelParams, &made->own)) return cudaErrorInvalidValue;
    graph->nodes.push_back(std::move(made));
    return *to = graph->nodes.back().get(), cudaSuccess;
}

/* Only launches let others begin early. */
cudaError_t cudaGraphAddNode(cudaGraphNode_t *to, cudaGraph_t graph, const cudaGraphNode_t *before,
    const cudaGraphEdgeData *edges, size_t count, cudaGraphNodeParams *about)
{
    for (size_t i = 0; i < count; ++i)
        if (edges[i].type != edges[i].from_port || edges[i].to_port != 0 || (edges[i].type && before[i]->is_empty))
            return cudaErrorInvalidValue;
    return cudaGraphAddKernelNode(to, graph, before, count, &about->kernel);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *to, cudaGraph_t graph, unsigned long long)
{
    auto made = std::make_unique<emulated_exec>();
    for (const auto &one : graph->nodes) {
        made->nodes.push_back(*one);
        made->made_of.push_back(one.get());
    }
    return *to = made.release(), cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaKernelNodeParams *about)
{
    if (getenv("EMULATED_CUDA_FIXED_GRAPHS") != nullptr) return cudaErrorInvalidValue;
    for (size_t i = 0; i < exec->nodes.size(); ++i)
        if (exec->made_of[i] == node)
            return is_launch(about->func, about->gridDim, about->blockDim, about->kernelParams, &exec->nodes[i].own)
                ? cudaSuccess : cudaErrorInvalidValue;
    return cudaErrorInvalidValue;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t)
{
    for (const emulated_node &one : exec->nodes)
        if (!one.is_empty) launch(one.own);
    return cudaSuccess;
}

} // extern "C"
