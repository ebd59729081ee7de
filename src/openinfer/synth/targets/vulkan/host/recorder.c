#define _POSIX_C_SOURCE 200809L
#include "inside.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PUSHED = 16,       /* words of 64 bits that the push constants of every device hold */
    HEAD = 64,         /* bytes of the block for the status */
    BLOCK = 1 << 20,   /* bytes of the block */
    RANGES = 4096,     /* pieces of memory that the launches of one submission work on */
    KEPT = 32,         /* recordings */
    CLOCKED = 4096,    /* launches of a submission that are timed */
    POLLS = 1 << 15,   /* how often is looked whether a submission has ended, before the thread sleeps */
};
static const uint32_t NO_FAILURE = UINT32_MAX;

/* --- what is recorded --------------------------------------------------------------------------------------------- */

/* A launch. Its values are the groups (as an indirect dispatch has them: two words), then the arguments. */
typedef struct {
    int32_t shader, failure, place, count;
    size_t at;     /* the place of its values */
    bool waits;    /* for all launches before it */
    bool is_given; /* groups and arguments are read from the block: they have not been the same every time */
} oi_call;

typedef struct {
    oi_call *calls;
    uint64_t *values;
    int32_t count, room;
    size_t used, space;
} oi_calls;

/* Launches as commands, which are submitted again as long as the same is wanted. */
typedef struct {
    VkCommandBuffer commands;
    oi_calls calls;
    int64_t when; /* the submission that it was last used by */
} oi_recording;

typedef struct {
    const unsigned char *first, *end;
    bool is_written;
} oi_range;

struct oi_queue {
    oi_device *device;
    const oi_memory *arena, *state;
    oi_memory *weights, *block; /* a copy of the weights; the status, and arguments that change */
    VkShaderModule *modules;
    VkPipeline *pipelines;
    int32_t shader_count, first_problem;
    VkPipelineLayout layout;
    VkCommandPool pool;
    VkFence fence;
    VkQueryPool clock;
    oi_calls wanted;            /* since the last submission */
    oi_recording kept[KEPT];
    int64_t submissions, recordings;
    int32_t place;
    int32_t failed;             /* the first failure, until somebody asks */
    bool is_lost, is_checking, can_fail;
    oi_range touched[RANGES];   /* what launches work on */
    int32_t touched_count, since; /* and from where on, behind the last barrier */
    int64_t *nanoseconds, *calls;
};

/* Room for one more launch with so many values; false where there is no memory. */
static bool has_room(oi_calls *all, int32_t values)
{
    if (all->count == all->room) {
        const int32_t room = all->room > 0 ? 2 * all->room : 64;
        oi_call *const calls = realloc(all->calls, (size_t)room * sizeof *calls);
        if (calls == NULL) return false;
        all->calls = calls;
        all->room = room;
    }
    if (all->used + (size_t)values > all->space) {
        const size_t space = 2 * all->space + (size_t)values + 256;
        uint64_t *const made = realloc(all->values, space * sizeof *made);
        if (made == NULL) return false;
        all->values = made;
        all->space = space;
    }
    return true;
}

static void calls_free(oi_calls *all)
{
    free(all->calls);
    free(all->values);
    *all = (oi_calls){ 0 };
}

/* The same launches, of which those stay given that are. */
static bool calls_copied(oi_calls *to, const oi_calls *from)
{
    for (int32_t i = 0; i < from->count; ++i) {
        oi_call one = from->calls[i];
        const bool is_known = i < to->count;
        one.is_given = one.is_given || (is_known && to->calls[i].is_given);
        if (!is_known) {
            if (!has_room(to, 0)) return false;
            to->count = i + 1;
        }
        to->calls[i] = one;
    }
    if (from->used > to->space) {
        uint64_t *const made = realloc(to->values, from->used * sizeof *made);
        if (made == NULL) return false;
        to->values = made;
        to->space = from->used;
    }
    memcpy(to->values, from->values, from->used * sizeof *to->values);
    to->used = from->used;
    return true;
}

/* --- instances ---------------------------------------------------------------------------------------------------- */

static oi_problem create_pipelines(oi_queue *q, const oi_given *given)
{
    const VkDevice device = q->device->device;
    const VkPushConstantRange range = { VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSHED * 8 };
    const VkPipelineLayoutCreateInfo layout = { .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 1, .pPushConstantRanges = &range };
    q->modules = calloc((size_t)given->shader_count, sizeof *q->modules);
    q->pipelines = calloc((size_t)given->shader_count, sizeof *q->pipelines);
    if (q->modules == NULL || q->pipelines == NULL) return OI_NO_MEMORY;
    q->shader_count = given->shader_count;
    if (vkCreatePipelineLayout(device, &layout, NULL, &q->layout) != VK_SUCCESS) return OI_NO_PIPELINE;
    for (int32_t i = 0; i < given->shader_count; ++i) {
        const VkShaderModuleCreateInfo code = { .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
            .codeSize = given->shaders[i].bytes, .pCode = given->shaders[i].words };
        if (vkCreateShaderModule(device, &code, NULL, &q->modules[i]) != VK_SUCCESS) return OI_NO_PIPELINE;
        const VkComputePipelineCreateInfo info = { .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
            .layout = q->layout, .stage = { .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT, .module = q->modules[i], .pName = "main" } };
        if (vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, NULL, &q->pipelines[i]) != VK_SUCCESS)
            return OI_NO_PIPELINE;
    }
    return OI_GOOD;
}

static oi_problem create_commands(oi_queue *q)
{
    const VkDevice device = q->device->device;
    const VkCommandPoolCreateInfo pool = { .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, .queueFamilyIndex = q->device->family };
    const VkFenceCreateInfo fence = { .sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO };
    VkCommandBuffer made[KEPT];
    if (vkCreateCommandPool(device, &pool, NULL, &q->pool) != VK_SUCCESS) return OI_NO_MEMORY;
    const VkCommandBufferAllocateInfo info = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = q->pool, .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = KEPT };
    if (vkAllocateCommandBuffers(device, &info, made) != VK_SUCCESS) return OI_NO_MEMORY;
    for (int i = 0; i < KEPT; ++i) q->kept[i].commands = made[i];
    return vkCreateFence(device, &fence, NULL, &q->fence) == VK_SUCCESS ? OI_GOOD : OI_NO_MEMORY;
}

/* The arena, the state and the weights on one device: that of the first of them which has one, else a new one. */
static oi_problem gather(oi_queue *q, const oi_given *given, oi_mapped *mapped)
{
    oi_memory *const arena = oi_memory_of(given->arena), *const state = oi_memory_of(given->state);
    if (arena == NULL || arena->bytes < given->arena_bytes) return OI_FOREIGN;
    if (given->state_bytes > 0 && (state == NULL || state->bytes < given->state_bytes)) return OI_FOREIGN;
    oi_device *const known = arena->device != NULL || state == NULL ? arena->device : state->device;
    oi_problem problem = oi_device_for(given, known, &q->device);
    if (problem == OI_GOOD) problem = oi_memory_on(arena, q->device);
    if (problem == OI_GOOD && state != NULL) problem = oi_memory_on(state, q->device);
    q->weights = oi_memory_new(given->weight_bytes);
    if (problem == OI_GOOD) problem = q->weights == NULL ? OI_NO_MEMORY : oi_memory_on(q->weights, q->device);
    if (problem != OI_GOOD) return problem;
    if (given->weight_bytes > 0) memcpy(q->weights->mapped, given->weights, given->weight_bytes);
    q->arena = arena;
    q->state = state;
    *mapped = (oi_mapped){ arena->mapped, state == NULL ? NULL : state->mapped, q->weights->mapped };
    return OI_GOOD;
}

oi_problem oi_open(const oi_given *given, oi_mapped *mapped, oi_queue **made)
{
    oi_queue *const q = calloc(1, sizeof *q);
    if (q == NULL) return OI_NO_MEMORY;
    q->failed = -1;
    q->place = -1;
    q->first_problem = given->first_problem;
    oi_problem problem = gather(q, given, mapped);
    if (problem == OI_GOOD) {
        q->block = oi_memory_new(BLOCK);
        problem = q->block == NULL ? OI_NO_MEMORY : oi_memory_on(q->block, q->device);
    }
    if (problem == OI_GOOD) problem = create_pipelines(q, given);
    if (problem == OI_GOOD) problem = create_commands(q);
    if (problem != OI_GOOD) {
        oi_close(q);
        return problem;
    }
    memcpy(q->block->mapped, &NO_FAILURE, sizeof NO_FAILURE);
    *made = q;
    return OI_GOOD;
}

void oi_close(oi_queue *q)
{
    if (q == NULL) return;
    if (q->device != NULL && q->device->process == getpid()) {
        const VkDevice device = q->device->device;
        for (int32_t i = 0; i < q->shader_count; ++i) {
            if (q->pipelines[i] != VK_NULL_HANDLE) vkDestroyPipeline(device, q->pipelines[i], NULL);
            if (q->modules[i] != VK_NULL_HANDLE) vkDestroyShaderModule(device, q->modules[i], NULL);
        }
        if (q->layout != VK_NULL_HANDLE) vkDestroyPipelineLayout(device, q->layout, NULL);
        if (q->clock != VK_NULL_HANDLE) vkDestroyQueryPool(device, q->clock, NULL);
        if (q->fence != VK_NULL_HANDLE) vkDestroyFence(device, q->fence, NULL);
        if (q->pool != VK_NULL_HANDLE) vkDestroyCommandPool(device, q->pool, NULL);
    }
    calls_free(&q->wanted);
    for (int i = 0; i < KEPT; ++i) calls_free(&q->kept[i].calls);
    free(q->modules);
    free(q->pipelines);
    oi_memory_free(q->block);
    oi_memory_free(q->weights);
    oi_device_free(q->device);
    free(q);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* The address on the device of a place in memory of the instance. */
static uint64_t address_of(const oi_queue *q, const void *at)
{
    const oi_memory *const all[] = { q->arena, q->state, q->weights, q->block };
    for (int i = 0; i < 4; ++i) {
        const uintptr_t first = all[i] == NULL ? 0 : (uintptr_t)all[i]->mapped;
        if (all[i] != NULL && (uintptr_t)at >= first && (uintptr_t)at - first <= all[i]->bytes)
            return all[i]->address + ((uintptr_t)at - first);
    }
    return 0;
}

static bool overlaps(const oi_range *one, const unsigned char *first, const unsigned char *end)
{
    return first < one->end && one->first < end;
}

bool oi_is_awaited(const oi_queue *q, const void *at, size_t bytes, bool is_written)
{
    const unsigned char *const first = at;
    if (q->touched_count == RANGES) return true;
    for (int32_t i = 0; i < q->touched_count; ++i)
        if ((is_written || q->touched[i].is_written) && overlaps(&q->touched[i], first, first + bytes)) return true;
    return false;
}

/* Whether a launch waits for those before it: it does where it sees what they wrote or writes what they have read, and
   behind one that can fail it does in any case. */
static bool is_ordered(oi_queue *q, int32_t count, const oi_argument *given)
{
    bool waits = q->is_checking || q->touched_count + count > RANGES;
    for (int32_t i = 0; i < count && !waits; ++i) {
        const unsigned char *const first = given[i].at;
        for (int32_t k = q->since; first != NULL && k < q->touched_count && !waits; ++k)
            waits = (given[i].is_written || q->touched[k].is_written)
                && overlaps(&q->touched[k], first, first + given[i].number);
    }
    if (waits) {
        q->since = q->touched_count;
        q->is_checking = false;
    }
    for (int32_t i = 0; i < count; ++i) {
        const unsigned char *const first = given[i].at;
        if (first == NULL || given[i].number == 0 || q->touched_count == RANGES) continue;
        q->touched[q->touched_count++] = (oi_range){ first, first + given[i].number, given[i].is_written };
    }
    return waits;
}

static void lose(oi_queue *q, oi_problem problem)
{
    q->is_lost = true;
    if (q->failed < 0) q->failed = q->first_problem + (int32_t)problem;
}

/* Whether a launch with so many values can be recorded. */
static bool is_recording(oi_queue *q, int32_t values)
{
    if ((q->wanted.used + (size_t)values) * 8 > BLOCK - HEAD) {
        const int32_t failed = oi_settle(q);
        if (failed >= 0) q->failed = failed;
    }
    if (q->failed >= 0 || q->is_lost) return false;
    if (!has_room(&q->wanted, values)) lose(q, OI_NO_MEMORY);
    return !q->is_lost;
}

void oi_launch(oi_queue *q, int32_t shader, int64_t groups, int32_t failure, int32_t count, const oi_argument *given)
{
    oi_calls *const all = &q->wanted;
    const int32_t total = count + 2; /* every launch knows where the first that fails puts its number, and its own */
    if (groups <= 0 || !is_recording(q, total + 2)) return;
    uint64_t *const to = all->values + all->used;
    to[0] = (uint64_t)groups | UINT64_C(1) << 32;
    to[1] = 1;
    for (int32_t i = 0; i < count; ++i)
        to[2 + i] = given[i].at != NULL ? address_of(q, given[i].at) : (uint64_t)given[i].number;
    q->can_fail = q->can_fail || failure >= 0;
    to[2 + count] = q->block->address;
    to[3 + count] = q->can_fail && failure >= -1 ? (uint64_t)all->count + 1 : 0; /* with 0, there is nothing to look at */
    all->calls[all->count++] = (oi_call){ shader, failure, q->place, total, all->used, is_ordered(q, count, given),
        total >= PUSHED };
    all->used += (size_t)total + 2;
    q->is_checking = failure >= 0;
    q->place = -1;
}

/* The first shader of every project copies words. */
void oi_copy(oi_queue *q, void *to, const void *from, size_t bytes)
{
    if (to == from || bytes == 0) return;
    if (((uintptr_t)to | (uintptr_t)from) % 4 != 0) {
        const int32_t failed = oi_settle(q);
        if (failed < 0) memcpy(to, from, bytes);
        else q->failed = failed;
        return;
    }
    const size_t words = (bytes + 3) / 4, most = (size_t)65535 * OI_GROUP;
    const oi_argument given[] = { { from, (int64_t)(words * 4), false }, { to, (int64_t)(words * 4), true },
        { NULL, (int64_t)bytes, false } };
    const size_t groups = (words < most ? words + OI_GROUP - 1 : most) / OI_GROUP;
    oi_launch(q, 0, (int64_t)groups, -1, 3, given);
}

/* --- submissions -------------------------------------------------------------------------------------------------- */

typedef enum { OTHER, ALIKE, SAME } oi_likeness;

static bool is_same(const oi_calls *one, const oi_calls *other, int32_t i)
{
    const oi_call *const call = &one->calls[i];
    const size_t bytes = ((size_t)call->count + 2) * sizeof *one->values;
    return memcmp(one->values + call->at, other->values + call->at, bytes) == 0;
}

/* How far a recording is what is wanted: alike if the same shaders are launched with other arguments. */
static oi_likeness likeness(const oi_calls *one, const oi_calls *wanted)
{
    oi_likeness found = SAME;
    if (one->count != wanted->count || one->used != wanted->used) return OTHER;
    for (int32_t i = 0; i < one->count; ++i) {
        const oi_call *const call = &one->calls[i], *const other = &wanted->calls[i];
        if (call->shader != other->shader || call->count != other->count || call->waits != other->waits) return OTHER;
        if (!call->is_given && !is_same(one, wanted, i)) found = ALIKE;
    }
    return found;
}

static void launch_recorded(const oi_queue *q, const oi_recording *r, int32_t i)
{
    static const VkMemoryBarrier barrier = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT };
    const oi_call *const call = &r->calls.calls[i];
    const uint64_t *const values = r->calls.values + call->at;
    const size_t place = HEAD + call->at * 8;
    const bool is_timed = q->clock != VK_NULL_HANDLE && i < CLOCKED;
    uint64_t pushed[PUSHED] = { 0 };
    if (call->is_given) pushed[PUSHED - 1] = q->block->address + place + 16;
    else memcpy(pushed, values + 2, (size_t)call->count * 8);
    if (call->waits)
        vkCmdPipelineBarrier(r->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0,
            1, &barrier, 0, NULL, 0, NULL);
    vkCmdBindPipeline(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, q->pipelines[call->shader]);
    vkCmdPushConstants(r->commands, q->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSHED * 8, pushed);
    if (is_timed)
        vkCmdWriteTimestamp(r->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, q->clock, (uint32_t)i * 2);
    if (call->is_given) vkCmdDispatchIndirect(r->commands, q->block->buffer, place);
    else vkCmdDispatch(r->commands, (uint32_t)values[0], 1, 1);
    if (is_timed)
        vkCmdWriteTimestamp(r->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, q->clock, (uint32_t)i * 2 + 1);
}

static bool is_recorded(const oi_queue *q, const oi_recording *r)
{
    static const VkMemoryBarrier seen = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT, .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT };
    const VkCommandBufferBeginInfo begin = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO };
    if (vkBeginCommandBuffer(r->commands, &begin) != VK_SUCCESS) return false;
    if (q->clock != VK_NULL_HANDLE) vkCmdResetQueryPool(r->commands, q->clock, 0, 2 * CLOCKED);
    for (int32_t i = 0; i < r->calls.count; ++i) launch_recorded(q, r, i);
    vkCmdPipelineBarrier(r->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &seen, 0,
        NULL, 0, NULL);
    return vkEndCommandBuffer(r->commands) == VK_SUCCESS;
}

/* The recording of what is wanted: one that there is, or one in which arguments that are others now are read from the
   block from now on, or a new one in place of the oldest. NULL where the device is lost. */
static oi_recording *recording_of(oi_queue *q)
{
    oi_recording *best = NULL, *oldest = &q->kept[0];
    for (int i = 0; i < KEPT; ++i) {
        oi_recording *const one = &q->kept[i];
        const oi_likeness found = likeness(&one->calls, &q->wanted);
        if (found == SAME) return one;
        if (found == ALIKE && best == NULL) best = one;
        if (one->when < oldest->when) oldest = one;
    }
    if (best == NULL) {
        best = oldest;
        best->calls.count = 0;
    }
    for (int32_t i = 0; i < best->calls.count; ++i)
        best->calls.calls[i].is_given = best->calls.calls[i].is_given || !is_same(&best->calls, &q->wanted, i);
    q->recordings += 1;
    const bool is_whole = calls_copied(&best->calls, &q->wanted) && is_recorded(q, best);
    if (!is_whole) best->calls.count = 0;
    return is_whole ? best : NULL;
}

/* The device sees what changes from one time to the next. */
static void give(const oi_queue *q, const oi_recording *r)
{
    for (int32_t i = 0; i < r->calls.count; ++i) {
        const oi_call *const call = &r->calls.calls[i];
        if (!call->is_given) continue;
        const size_t bytes = ((size_t)call->count + 2) * 8;
        memcpy(q->block->mapped + HEAD + call->at * 8, q->wanted.values + call->at, bytes);
    }
}

/* A thread that sleeps is woken late: a graphics card is asked for a while whether it has ended. */
static bool has_ended(const oi_queue *q)
{
    const VkDevice device = q->device->device;
    VkResult found = VK_NOT_READY;
    for (int i = 0; i < POLLS && found == VK_NOT_READY && !q->device->is_processor; ++i)
        found = vkGetFenceStatus(device, q->fence);
    if (found == VK_NOT_READY) found = vkWaitForFences(device, 1, &q->fence, VK_TRUE, UINT64_MAX);
    return found == VK_SUCCESS && vkResetFences(device, 1, &q->fence) == VK_SUCCESS;
}

static bool has_run(oi_queue *q)
{
    oi_recording *const r = recording_of(q);
    if (r == NULL) return false;
    const VkSubmitInfo submit = { .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1, .pCommandBuffers = &r->commands };
    r->when = ++q->submissions;
    give(q, r);
    pthread_mutex_lock(&q->device->lock);
    const VkResult submitted = vkQueueSubmit(q->device->queue, 1, &submit, q->fence);
    pthread_mutex_unlock(&q->device->lock);
    return submitted == VK_SUCCESS && has_ended(q);
}

/* What the clock says of the launches that have run. */
static void add_times(oi_queue *q)
{
    for (int32_t i = 0; i < q->wanted.count && i < CLOCKED; ++i) {
        uint64_t both[2];
        const int32_t place = q->wanted.calls[i].place;
        const VkResult found = vkGetQueryPoolResults(q->device->device, q->clock, (uint32_t)i * 2, 2, sizeof both, both,
            sizeof both[0], VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
        if (found != VK_SUCCESS || place < 0) continue;
        q->nanoseconds[place] += (int64_t)((double)(both[1] - both[0]) * q->device->tick);
        q->calls[place] += 1;
    }
}

int32_t oi_settle(oi_queue *q)
{
    if (q == NULL) return -1;
    if (q->wanted.count > 0 && !q->is_lost) {
        uint32_t number = NO_FAILURE;
        if (q->device->process != getpid()) lose(q, OI_FORKED);
        else if (!has_run(q)) lose(q, OI_LOST);
        if (!q->is_lost && q->can_fail) memcpy(&number, q->block->mapped, sizeof number);
        if (number != NO_FAILURE) {
            if (q->failed < 0) q->failed = q->wanted.calls[number - 1].failure;
            memcpy(q->block->mapped, &NO_FAILURE, sizeof NO_FAILURE);
        }
        if (!q->is_lost && q->clock != VK_NULL_HANDLE) add_times(q);
    }
    q->wanted.count = q->touched_count = q->since = 0;
    q->wanted.used = 0;
    q->is_checking = q->can_fail = false;
    const int32_t failed = q->failed;
    if (!q->is_lost) q->failed = -1;
    return failed;
}

int64_t oi_submitted(const oi_queue *q) { return q->submissions; }

int64_t oi_recorded(const oi_queue *q) { return q->recordings; }

/* --- the clock ---------------------------------------------------------------------------------------------------- */

void oi_time(oi_queue *q, int64_t *nanoseconds, int64_t *calls)
{
    const VkQueryPoolCreateInfo info = { .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_TIMESTAMP, .queryCount = 2 * CLOCKED };
    const bool is_timed = nanoseconds != NULL && q->device->tick > 0;
    q->nanoseconds = nanoseconds;
    q->calls = calls;
    if (is_timed == (q->clock != VK_NULL_HANDLE)) return;
    if (!is_timed) vkDestroyQueryPool(q->device->device, q->clock, NULL);
    if (!is_timed || vkCreateQueryPool(q->device->device, &info, NULL, &q->clock) != VK_SUCCESS) q->clock = VK_NULL_HANDLE;
    for (int i = 0; i < KEPT; ++i) q->kept[i].calls.count = 0; /* they have no clock, or one that is gone */
}

void oi_place(oi_queue *q, int32_t place) { q->place = place; }
