#define _POSIX_C_SOURCE 200809L
#include "inside.h"

#include <stdlib.h>
#include <string.h>

enum { POLLS = 1 << 15 }; /* polls for the end of a submission before the thread sleeps */
enum { ENDED = 32 }; /* offset in the block of the number of groups that have ended */
static const uint32_t NO_FAILURE = UINT32_MAX;

/* --- instances ---------------------------------------------------------------------------------------------------- */

static oi_problem create_pipelines(oi_queue *q, const oi_given *given)
{
    const VkDevice device = q->device->device;
    const VkPushConstantRange range = { VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSHED * 8 };
    const VkPipelineLayoutCreateInfo layout = { .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 1, .pPushConstantRanges = &range };
    q->tools.modules = calloc((size_t)given->kernel_count, sizeof *q->tools.modules);
    q->tools.pipelines = calloc((size_t)given->kernel_count, sizeof *q->tools.pipelines);
    if (q->tools.modules == NULL || q->tools.pipelines == NULL) return OI_NO_MEMORY;
    q->tools.count = given->kernel_count;
    if (vkCreatePipelineLayout(device, &layout, NULL, &q->tools.layout) != VK_SUCCESS) return OI_NO_PIPELINE;
    for (int32_t i = 0; i < given->kernel_count; ++i) {
        const VkShaderModuleCreateInfo code = { .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
            .codeSize = given->kernels[i].bytes, .pCode = given->kernels[i].words };
        if (vkCreateShaderModule(device, &code, NULL, &q->tools.modules[i]) != VK_SUCCESS) return OI_NO_PIPELINE;
        const VkComputePipelineCreateInfo info = { .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
            .layout = q->tools.layout, .stage = { .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT, .module = q->tools.modules[i], .pName = "main" } };
        if (vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, NULL, &q->tools.pipelines[i]) != VK_SUCCESS)
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
    if (vkCreateCommandPool(device, &pool, NULL, &q->tools.pool) != VK_SUCCESS) return OI_NO_MEMORY;
    const VkCommandBufferAllocateInfo info = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = q->tools.pool, .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = KEPT };
    if (vkAllocateCommandBuffers(device, &info, made) != VK_SUCCESS) return OI_NO_MEMORY;
    for (int i = 0; i < KEPT; ++i) q->kept[i].commands = made[i];
    return vkCreateFence(device, &fence, NULL, &q->tools.fence) == VK_SUCCESS ? OI_GOOD : OI_NO_MEMORY;
}

/* The words through which the groups of any kernel exchange values, and their address in the status. */
static oi_problem create_teams(oi_queue *q, const oi_given *given)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < given->kernel_count; ++i)
        if (given->kernels[i].exchanged > bytes) bytes = given->kernels[i].exchanged;
    if (bytes == 0) return OI_GOOD;
    q->tools.teams = oi_memory_new(bytes);
    if (q->tools.teams == NULL || oi_memory_on(q->tools.teams, q->device, OI_HIDDEN) != OI_GOOD) return OI_NO_MEMORY;
    memcpy(q->block->here + OI_TEAMS_AT, &q->tools.teams->address, sizeof q->tools.teams->address);
    void *const zeros = calloc(1, bytes);
    if (zeros == NULL) return OI_NO_MEMORY;
    const bool is_put = oi_memory_put(q->tools.teams, 0, zeros, bytes);
    free(zeros);
    return is_put ? OI_GOOD : OI_LOST;
}

oi_problem oi_tools_new(oi_queue *q, const oi_given *given)
{
    oi_problem problem = create_pipelines(q, given);
    memcpy(q->block->here, &NO_FAILURE, sizeof NO_FAILURE);
    q->status = q->block->address;
    q->tools.kernels = given->kernels;
    if (problem == OI_GOOD) problem = create_teams(q, given);
    return problem == OI_GOOD ? create_commands(q) : problem;
}

void oi_tools_free(oi_queue *q)
{
    const VkDevice device = q->device->device;
    for (int32_t i = 0; i < q->tools.count; ++i) {
        if (q->tools.pipelines[i] != VK_NULL_HANDLE) vkDestroyPipeline(device, q->tools.pipelines[i], NULL);
        if (q->tools.modules[i] != VK_NULL_HANDLE) vkDestroyShaderModule(device, q->tools.modules[i], NULL);
    }
    if (q->tools.layout != VK_NULL_HANDLE) vkDestroyPipelineLayout(device, q->tools.layout, NULL);
    if (q->tools.clock != VK_NULL_HANDLE) vkDestroyQueryPool(device, q->tools.clock, NULL);
    if (q->tools.fence != VK_NULL_HANDLE) vkDestroyFence(device, q->tools.fence, NULL);
    if (q->tools.pool != VK_NULL_HANDLE) vkDestroyCommandPool(device, q->tools.pool, NULL);
    oi_memory_free(q->tools.teams);
    free(q->tools.modules);
    free(q->tools.pipelines);
}

bool oi_counts(const oi_queue *q, int32_t kernel) { return q->tools.kernels[kernel].waits == OI_FOR_LAUNCHES; }

uint32_t oi_first_failed(oi_queue *q)
{
    uint32_t number;
    memcpy(&number, q->block->here, sizeof number);
    if (number == NO_FAILURE) return 0;
    memcpy(q->block->here, &NO_FAILURE, sizeof NO_FAILURE);
    return number;
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static void launch_recorded(const oi_queue *q, const oi_recording *r, int32_t i)
{
    static const VkMemoryBarrier barrier = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT };
    const oi_call *const call = &r->calls.calls[i];
    const uint64_t *const values = r->calls.values + call->at;
    const size_t place = HEAD + call->at * 8;
    const bool is_timed = q->tools.clock != VK_NULL_HANDLE && i < CLOCKED;
    uint64_t pushed[PUSHED] = { 0 };
    if (call->is_given) pushed[PUSHED - 1] = q->block->address + place + 16;
    else memcpy(pushed, values + 2, (size_t)call->count * 8);
    /* Teams share their words with those of other launches, and end early together or not at all if one has failed. */
    if ((call->waits && !call->awaits) || q->tools.kernels[call->kernel].waits == OI_FOR_TEAM)
        vkCmdPipelineBarrier(r->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0,
            1, &barrier, 0, NULL, 0, NULL);
    vkCmdBindPipeline(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, q->tools.pipelines[call->kernel]);
    vkCmdPushConstants(r->commands, q->tools.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSHED * 8, pushed);
    if (is_timed)
        vkCmdWriteTimestamp(r->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, q->tools.clock, (uint32_t)i * 2);
    if (call->is_given) vkCmdDispatchIndirect(r->commands, q->block->held.buffer, place);
    else vkCmdDispatch(r->commands, (uint32_t)values[0], 1, 1);
    if (is_timed)
        vkCmdWriteTimestamp(r->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, q->tools.clock, (uint32_t)i * 2 + 1);
}

bool oi_commands_made(oi_queue *q, oi_recording *r)
{
    static const VkMemoryBarrier seen = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT, .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT
            | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT };
    const VkCommandBufferBeginInfo begin = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO };
    if (vkBeginCommandBuffer(r->commands, &begin) != VK_SUCCESS) return false;
    if (q->tools.clock != VK_NULL_HANDLE) vkCmdResetQueryPool(r->commands, q->tools.clock, 0, 2 * CLOCKED);
    for (int32_t i = 0; i < r->calls.count; ++i) launch_recorded(q, r, i);
    vkCmdPipelineBarrier(r->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
        VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &seen, 0, NULL, 0, NULL);
    return vkEndCommandBuffer(r->commands) == VK_SUCCESS;
}

/* Writes the arguments that change between submissions to the block. */
static void give(const oi_queue *q, const oi_recording *r)
{
    for (int32_t i = 0; i < r->calls.count; ++i) {
        const oi_call *const call = &r->calls.calls[i];
        if (!call->is_given) continue;
        const size_t bytes = ((size_t)call->count + 2) * 8;
        memcpy(q->block->here + HEAD + call->at * 8, q->wanted.values + call->at, bytes);
    }
}

/* Waits for the end. A sleeping thread wakes up late, so a GPU is polled for a while first. */
static bool has_ended(const oi_queue *q)
{
    const VkDevice device = q->device->device;
    VkResult found = VK_NOT_READY;
    for (int i = 0; i < POLLS && found == VK_NOT_READY && !q->device->is_processor; ++i)
        found = vkGetFenceStatus(device, q->tools.fence);
    if (found == VK_NOT_READY) found = vkWaitForFences(device, 1, &q->tools.fence, VK_TRUE, UINT64_MAX);
    return found == VK_SUCCESS && vkResetFences(device, 1, &q->tools.fence) == VK_SUCCESS;
}

bool oi_commands_run(oi_queue *q, oi_recording *r)
{
    static const uint32_t none = 0;
    const VkSubmitInfo submit = { .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1, .pCommandBuffers = &r->commands };
    give(q, r);
    memcpy(q->block->here + ENDED, &none, sizeof none);
    pthread_mutex_lock(&q->device->lock);
    const VkResult submitted = vkQueueSubmit(q->device->queue, 1, &submit, q->tools.fence);
    pthread_mutex_unlock(&q->device->lock);
    return submitted == VK_SUCCESS && has_ended(q);
}

/* --- the clock ---------------------------------------------------------------------------------------------------- */

bool oi_clock_runs(oi_queue *q, bool is_wanted)
{
    const VkQueryPoolCreateInfo info = { .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_TIMESTAMP, .queryCount = 2 * CLOCKED };
    const bool is_timed = is_wanted && q->device->tick > 0;
    if (is_timed == (q->tools.clock != VK_NULL_HANDLE)) return is_timed;
    if (!is_timed) vkDestroyQueryPool(q->device->device, q->tools.clock, NULL);
    if (!is_timed || vkCreateQueryPool(q->device->device, &info, NULL, &q->tools.clock) != VK_SUCCESS)
        q->tools.clock = VK_NULL_HANDLE;
    return q->tools.clock != VK_NULL_HANDLE;
}

void oi_add_times(oi_queue *q)
{
    for (int32_t i = 0; i < q->wanted.count && i < CLOCKED; ++i) {
        uint64_t both[2];
        const int32_t place = q->wanted.calls[i].place;
        const VkResult found = vkGetQueryPoolResults(q->device->device, q->tools.clock, (uint32_t)i * 2, 2, sizeof both, both,
            sizeof both[0], VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
        if (found != VK_SUCCESS || place < 0) continue;
        q->nanoseconds[place] += (int64_t)((double)(both[1] - both[0]) * q->device->tick);
        q->calls[place] += 1;
    }
}
