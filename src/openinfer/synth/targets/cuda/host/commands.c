#include "inside.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_BEFORE = 64, /* most dependencies of a node; more are joined by an empty node */
    SMALL = 1 << 12,  /* most bytes of inputs that a kernel reads from host memory */
};
static const uint32_t NO_FAILURE = UINT32_MAX;

/* --- instances ---------------------------------------------------------------------------------------------------- */

static bool is_ready(oi_tools *own)
{
    if (cudaStreamCreateWithFlags(&own->stream, cudaStreamNonBlocking) != cudaSuccess) return false;
    if (cudaMalloc((void **)&own->status, sizeof *own->status) != cudaSuccess) return false;
    if (cudaHostAlloc((void **)&own->seen, sizeof *own->seen, cudaHostAllocDefault) != cudaSuccess) return false;
    return cudaMemsetAsync(own->status, 0xff, sizeof *own->status, own->stream) == cudaSuccess;
}

oi_problem oi_tools_new(oi_queue *q, const oi_given *given)
{
    oi_tools *const own = &q->tools;
    const int before = oi_enter(q->device);
    own->kernels = given->kernels;
    const bool is_good = is_ready(own);
    oi_leave(before);
    q->status = (uint64_t)(uintptr_t)own->status;
    return is_good ? OI_GOOD : OI_NO_MEMORY;
}

static void forget(oi_commands *made)
{
    if (made->made != NULL) cudaGraphExecDestroy(made->made);
    if (made->graph != NULL) cudaGraphDestroy(made->graph);
    made->made = NULL;
    made->graph = NULL;
    made->is_known = false;
}

void oi_tools_free(oi_queue *q)
{
    oi_tools *const own = &q->tools;
    const int before = oi_enter(q->device);
    for (int i = 0; i < KEPT; ++i) {
        forget(&q->kept[i].commands);
        free(q->kept[i].commands.nodes);
    }
    oi_clock_runs(q, false);
    if (own->stream != NULL) cudaStreamDestroy(own->stream);
    if (own->status != NULL) cudaFree(own->status);
    if (own->seen != NULL) cudaFreeHost(own->seen);
    oi_leave(before);
}

bool oi_counts(const oi_queue *q, int32_t kernel)
{
    (void)q, (void)kernel;
    return false; /* the edges of a graph order its launches */
}

uint32_t oi_first_failed(oi_queue *q)
{
    const uint32_t number = *q->tools.seen;
    if (number == NO_FAILURE) return 0;
    const int before = oi_enter(q->device);
    if (cudaMemsetAsync(q->tools.status, 0xff, sizeof number, q->tools.stream) != cudaSuccess) oi_lose(q, OI_LOST);
    oi_leave(before);
    return number;
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* The parameters of a launch for CUDA: pointers to its arguments, or to one block that contains all of them. */
typedef struct {
    void *places[PUSHED];
    uint64_t block[PUSHED];
    struct cudaKernelNodeParams node;
    uint64_t word; /* where the launch looks up its first argument */
} oi_params;

static bool is_looked_up(const oi_kernel *kernel, int32_t argument)
{
    return argument < 64 && (kernel->looked_up >> argument & 1) != 0;
}

/* Where the words that kernels look up begin, behind the inputs, and which part of both the device gets at once. */
static size_t words_at(const oi_queue *q) { return (q->input_bytes + 15) / 16 * 16; }

static size_t taken_at(const oi_queue *q) { return q->input_bytes <= SMALL ? 0 : words_at(q); }

/* The words of a launch come after those of the launches before it. */
static void start_words(const oi_queue *q, oi_params *to) { to->word = q->inputs->address + words_at(q); }

static void skip_words(const oi_queue *q, const oi_call *call, oi_params *to)
{
    for (int32_t i = 0; i < call->count; ++i) to->word += is_looked_up(&q->tools.kernels[call->kernel], i) ? 8 : 0;
}

static const struct cudaKernelNodeParams *params_of(const oi_queue *q, const oi_call *call, oi_params *to)
{
    const oi_kernel *const kernel = &q->tools.kernels[call->kernel];
    uint64_t *const values = q->wanted.values + call->at;
    if (kernel->words > 0) {
        memcpy(to->block, values + 2, (size_t)call->count * sizeof *values);
        to->places[0] = to->block;
    } else {
        for (int32_t i = 0; i < call->count; ++i) {
            const bool is_there = is_looked_up(kernel, i);
            to->block[i] = is_there ? to->word : values[2 + i];
            to->places[i] = to->block + i;
            to->word += is_there ? 8 : 0;
        }
    }
    to->node = (struct cudaKernelNodeParams){ .func = (void *)(uintptr_t)kernel->function,
        .gridDim = { (unsigned)values[0], 1, 1 }, .blockDim = { (unsigned)kernel->threads, 1, 1 },
        .sharedMemBytes = (unsigned)kernel->shared,
        .kernelParams = to->places };
    return &to->node;
}

static bool is_launched(const oi_queue *q, const oi_call *call, oi_params *room)
{
    const struct cudaKernelNodeParams *const one = params_of(q, call, room);
    return cudaLaunchKernel(one->func, one->gridDim, one->blockDim, one->kernelParams, one->sharedMemBytes, q->tools.stream)
        == cudaSuccess;
}

static bool are_launched(const oi_queue *q, oi_params *room)
{
    bool is_good = true;
    start_words(q, room);
    for (int32_t i = 0; i < q->wanted.count && is_good; ++i) {
        const bool is_timed = q->is_timed && i < CLOCKED;
        if (is_timed) is_good = cudaEventRecord(q->tools.clock[2 * i], q->tools.stream) == cudaSuccess;
        is_good = is_good && is_launched(q, &q->wanted.calls[i], room);
        if (is_timed) is_good = is_good && cudaEventRecord(q->tools.clock[2 * i + 1], q->tools.stream) == cudaSuccess;
    }
    return is_good;
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

/* Adds a launch that depends on others: on their ends, or only on the start of all their groups if it may begin early
   and waits itself. */
static bool is_node(const oi_queue *q, cudaGraphNode_t *made, cudaGraph_t graph, const oi_call *call,
    const cudaGraphNode_t *before, size_t count, bool may_begin, oi_params *room)
{
    const struct cudaKernelNodeParams *const one = params_of(q, call, room);
    cudaGraphEdgeData edges[MOST_BEFORE];
    if (!may_begin) return cudaGraphAddKernelNode(made, graph, before, count, one) == cudaSuccess;
    struct cudaGraphNodeParams about = { .type = cudaGraphNodeTypeKernel };
    about.kernel.func = one->func;
    about.kernel.gridDim = one->gridDim;
    about.kernel.blockDim = one->blockDim;
    about.kernel.sharedMemBytes = one->sharedMemBytes;
    about.kernel.kernelParams = one->kernelParams;
    for (size_t i = 0; i < count; ++i)
        edges[i] = (cudaGraphEdgeData){ .from_port = cudaGraphKernelNodePortProgrammatic,
            .type = cudaGraphDependencyTypeProgrammatic };
    return cudaGraphAddNode(made, graph, before, edges, count, &about) == cudaSuccess;
}

/* Adds a node that copies words; unless before is NULL, when that node has ended. */
static bool is_copy(const oi_queue *q, cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *before,
    const void *from, const void *to, size_t bytes)
{
    const oi_kernel *const kernel = &q->tools.kernels[0];
    const uint64_t count = bytes, groups = (bytes / 4 + (size_t)kernel->threads - 1) / (size_t)kernel->threads;
    const uint32_t *const status = q->tools.status;
    const uint32_t own = 0;
    void *places[] = { (void *)(uintptr_t)&from, (void *)(uintptr_t)&to, (void *)(uintptr_t)&count,
        (void *)(uintptr_t)&status, (void *)(uintptr_t)&own };
    const struct cudaKernelNodeParams about = { .func = (void *)(uintptr_t)kernel->function,
        .gridDim = { (unsigned)groups, 1, 1 }, .blockDim = { (unsigned)kernel->threads, 1, 1 },
        .kernelParams = places };
    return cudaGraphAddKernelNode(made, graph, before, before != NULL, &about) == cudaSuccess;
}

/* Adds the node that copies what the host has written, which all others follow, if there is anything. */
static bool is_taken(const oi_queue *q, oi_commands *to, size_t bytes)
{
    const oi_memory *const own = q->inputs;
    const size_t at = taken_at(q);
    return bytes == 0 || is_copy(q, &to->take, to->graph, NULL, (unsigned char *)own->held.pinned + at,
        (unsigned char *)own->held.there + at, bytes);
}

/* Adds the node that shows the host whether a launch has failed, after the last one that can. */
static bool is_seen(const oi_queue *q, oi_commands *to)
{
    const uint32_t *const status = q->tools.status;
    int32_t last = -1;
    cudaGraphNode_t made;
    for (int32_t i = 0; i < q->wanted.count; ++i)
        if (q->wanted.calls[i].failure >= 0) last = i;
    return last < 0 || is_copy(q, &made, to->graph, &to->nodes[last], status, q->tools.seen, sizeof *status);
}

/* Adds the nodes of a graph. A launch that waits depends on the last one that waited and on all after it; any other has
   the dependencies of the launch before it. In a chain, each launch depends on the previous one. */
static bool are_nodes(const oi_queue *q, oi_commands *to, size_t taken, oi_params *room)
{
    const cudaGraphNode_t *before = taken > 0 ? &to->take : NULL;
    cudaGraphNode_t joint;
    size_t before_count = taken > 0;
    int32_t since = 0;
    bool may_begin = false;
    start_words(q, room);
    for (int32_t i = 0; i < q->wanted.count; ++i) {
        const oi_call *const call = &q->wanted.calls[i];
        const int32_t early = q->tools.kernels[call->kernel].early;
        if (early == 2 && i > 0) since = i - 1;
        if ((call->waits || early == 2) && i > since) {
            before = to->nodes + since;
            before_count = (size_t)(i - since);
            may_begin = early == 3 ? before_count == 1 : early > 0;
            if (before_count > MOST_BEFORE) {
                if (cudaGraphAddEmptyNode(&joint, to->graph, before, before_count) != cudaSuccess) return false;
                before = &joint;
                before_count = 1;
                may_begin = false; /* an empty node lets none begin early */
            }
            since = i;
        }
        if (!is_node(q, &to->nodes[i], to->graph, call, before, before_count, may_begin, room)) return false;
    }
    return true;
}

static bool is_graph(const oi_queue *q, oi_recording *r, size_t taken, oi_params *room)
{
    oi_commands *const to = &r->commands;
    if (to->room < q->wanted.count) {
        cudaGraphNode_t *const nodes = realloc(to->nodes, (size_t)q->wanted.count * sizeof *nodes);
        if (nodes == NULL) return false;
        to->nodes = nodes;
        to->room = q->wanted.count;
    }
    if (cudaGraphCreate(&to->graph, 0) != cudaSuccess || !is_taken(q, to, taken)) return false;
    if (!are_nodes(q, to, taken, room) || !is_seen(q, to)) return false;
    memcpy(r->calls.values, q->wanted.values, q->wanted.used * sizeof *q->wanted.values);
    return cudaGraphInstantiate(&to->made, to->graph, 0) == cudaSuccess;
}

/* Whether all values are the same, apart from those that the kernel looks up. */
static bool is_alike(const oi_kernel *kernel, const uint64_t *one, const uint64_t *other, int32_t count)
{
    bool found = true;
    for (int32_t i = 0; i < count + 2 && found; ++i)
        found = one[i] == other[i] || (i >= 2 && is_looked_up(kernel, i - 2));
    return found;
}

/* Updates the arguments of the graph that have changed since the last submission. */
static bool are_given(const oi_queue *q, oi_recording *r, oi_params *room)
{
    bool is_good = true;
    start_words(q, room);
    for (int32_t i = 0; i < r->calls.count && is_good; ++i) {
        const oi_call *const call = &r->calls.calls[i];
        uint64_t *const known = r->calls.values + call->at, *const now = q->wanted.values + call->at;
        const size_t bytes = ((size_t)call->count + 2) * sizeof *known;
        if (!call->is_given || is_alike(&q->tools.kernels[call->kernel], known, now, call->count)) {
            skip_words(q, call, room);
            continue;
        }
        memcpy(known, now, bytes);
        is_good = cudaGraphExecKernelNodeSetParams(r->commands.made, r->commands.nodes[i], params_of(q, call, room))
            == cudaSuccess;
    }
    return is_good;
}

bool oi_commands_made(oi_queue *q, oi_recording *r)
{
    const int before = oi_enter(q->device);
    forget(&r->commands);
    oi_leave(before);
    for (int32_t i = 0; i < r->calls.count; ++i)
        if (r->calls.calls[i].count > PUSHED) return false;
    return true;
}

/* Starts the copy of what the host has written to the device. */
static bool is_sent(const oi_queue *q, const oi_memory *own, size_t at, size_t bytes)
{
    return bytes == 0 || cudaMemcpyAsync((unsigned char *)own->held.there + at, own->here + at, bytes,
        cudaMemcpyHostToDevice, q->tools.stream) == cudaSuccess;
}

/* Runs the launches one by one, or as a graph, which itself gets what the host has written and shows the status. */
static bool is_run(oi_queue *q, oi_recording *r, size_t taken, oi_params *room)
{
    const cudaStream_t stream = q->tools.stream;
    oi_commands *const known = &r->commands;
    if (q->is_timed || !known->is_known) {
        known->is_known = !q->is_timed;
        return is_sent(q, q->inputs, taken_at(q), taken) && are_launched(q, room)
            && cudaMemcpyAsync(q->tools.seen, q->tools.status, sizeof *q->tools.seen, cudaMemcpyDeviceToHost, stream)
                == cudaSuccess;
    }
    if (known->made == NULL && !is_graph(q, r, taken, room)) return false;
    return are_given(q, r, room) && cudaGraphLaunch(known->made, stream) == cudaSuccess;
}

/* Writes the words that kernels look up; returns the bytes from the first that the device gets with them. */
static size_t written(const oi_queue *q)
{
    size_t at = words_at(q);
    for (int32_t i = 0; i < q->wanted.count; ++i) {
        const oi_call *const call = &q->wanted.calls[i];
        const oi_kernel *const kernel = &q->tools.kernels[call->kernel];
        for (int32_t k = 0; kernel->looked_up != 0 && k < call->count; ++k) {
            if (!is_looked_up(kernel, k)) continue;
            memcpy(q->inputs->here + at, q->wanted.values + call->at + 2 + k, 8);
            at += 8;
        }
    }
    return at - taken_at(q);
}

bool oi_commands_run(oi_queue *q, oi_recording *r)
{
    const int before = oi_enter(q->device);
    oi_params *const room = malloc(sizeof *room);
    const bool has_large = q->has_inputs && taken_at(q) > 0;
    bool is_good = room != NULL && is_sent(q, q->inputs, 0, has_large ? q->input_bytes : 0)
        && is_sent(q, q->block, BLOCK, q->data_used) && is_run(q, r, written(q), room);
    if (cudaStreamSynchronize(q->tools.stream) != cudaSuccess) is_good = false;
    q->has_inputs = false;
    free(room);
    oi_leave(before);
    return is_good;
}

/* --- the clock ---------------------------------------------------------------------------------------------------- */

bool oi_clock_runs(oi_queue *q, bool is_wanted)
{
    oi_tools *const own = &q->tools;
    if (is_wanted == (own->clock != NULL)) return is_wanted;
    const int before = oi_enter(q->device);
    for (int i = 0; i < 2 * CLOCKED && !is_wanted; ++i)
        if (own->clock[i] != NULL) cudaEventDestroy(own->clock[i]);
    if (!is_wanted) free(own->clock);
    own->clock = is_wanted ? calloc(2 * CLOCKED, sizeof *own->clock) : NULL;
    bool is_good = own->clock != NULL;
    for (int i = 0; i < 2 * CLOCKED && is_good; ++i) is_good = cudaEventCreate(&own->clock[i]) == cudaSuccess;
    oi_leave(before);
    return is_good;
}

void oi_add_times(oi_queue *q)
{
    const int before = oi_enter(q->device);
    for (int32_t i = 0; i < q->wanted.count && i < CLOCKED; ++i) {
        float milliseconds = 0;
        const int32_t place = q->wanted.calls[i].place;
        if (place < 0 || cudaEventElapsedTime(&milliseconds, q->tools.clock[2 * i], q->tools.clock[2 * i + 1]) != cudaSuccess)
            continue;
        q->nanoseconds[place] += (int64_t)(milliseconds * 1e6f);
        q->calls[place] += 1;
    }
    oi_leave(before);
}
