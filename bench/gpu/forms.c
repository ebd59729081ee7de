/* How much memory each form of launches moves in a second, next to what a plain stream of reads and a copy reach.
 *
 * Built by bench/gpu/forms.py: shaders are arrays of the program, which needs nothing but a Vulkan driver. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

enum { PUSHED = 16, ROUNDS = 24, MOST_LAUNCHES = 64, MOST_BUFFERS = 16, ALIGNMENT = 256, NUMBER = 255, PATTERN = 1 << 16 };
#define SPREAD 0x3D803D80u /* in place of a word: numbers that differ */
#define ENOUGH 0.2 /* seconds of a case */
typedef struct { const uint32_t *code; size_t bytes; uint32_t groups, count, buffers[PUSHED]; } launch;
typedef struct { uint64_t bytes; uint32_t word; } memory;
typedef struct {
    const char *name, *form;
    uint64_t moved, done; /* bytes and operations of one round */
    uint32_t launch_count, buffer_count;
    launch launches[MOST_LAUNCHES];
    memory buffers[MOST_BUFFERS];
} measured;

#include "forms.h"

static VkPhysicalDevice physical;
static VkDevice device;
static VkQueue queue;
static VkCommandBuffer commands;
static VkPipelineLayout layout;
static VkQueryPool clock_pool;
static VkFence fence;
static VkBuffer pool;
static uint64_t address, room;
static double tick;

static void require(int is_good, const char *what)
{
    if (is_good) return;
    fprintf(stderr, "%s\n", what);
    exit(4);
}

static void create_device(void)
{
    const VkApplicationInfo application = { .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2 };
    const VkInstanceCreateInfo made = { .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application };
    VkInstance instance;
    uint32_t count = 1;
    require(vkCreateInstance(&made, NULL, &instance) == VK_SUCCESS, "there is no Vulkan");
    const VkResult found = vkEnumeratePhysicalDevices(instance, &count, &physical);
    require((found == VK_SUCCESS || found == VK_INCOMPLETE) && count == 1, "there is no device");
    const float priority = 1.0f;
    const VkDeviceQueueCreateInfo queues = { .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueCount = 1, .pQueuePriorities = &priority };
    VkPhysicalDeviceVulkan12Features second = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .bufferDeviceAddress = 1, .storageBuffer8BitAccess = 1, .shaderInt8 = 1, .vulkanMemoryModel = 1,
        .vulkanMemoryModelDeviceScope = 1 };
    VkPhysicalDeviceVulkan11Features first = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .pNext = &second, .storageBuffer16BitAccess = 1 };
    const VkPhysicalDeviceFeatures2 features = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = &first, .features = { .shaderFloat64 = 1, .shaderInt64 = 1, .shaderInt16 = 1 } };
    const VkDeviceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &features,
        .queueCreateInfoCount = 1, .pQueueCreateInfos = &queues };
    require(vkCreateDevice(physical, &info, NULL, &device) == VK_SUCCESS, "the device lacks a feature");
    vkGetDeviceQueue(device, 0, 0, &queue);
    VkPhysicalDeviceProperties facts;
    vkGetPhysicalDeviceProperties(physical, &facts);
    tick = (double)facts.limits.timestampPeriod * 1e-9;
    printf("%s\n\n", facts.deviceName);
}

static void create_memory(uint64_t bytes)
{
    const VkBufferCreateInfo info = { .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = bytes,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT
                 | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT };
    VkMemoryRequirements needs;
    VkPhysicalDeviceMemoryProperties kinds;
    require(vkCreateBuffer(device, &info, NULL, &pool) == VK_SUCCESS, "no buffer");
    vkGetBufferMemoryRequirements(device, pool, &needs);
    vkGetPhysicalDeviceMemoryProperties(physical, &kinds);
    uint32_t kind = 0;
    while (kind < kinds.memoryTypeCount
           && (!(needs.memoryTypeBits >> kind & 1)
               || !(kinds.memoryTypes[kind].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)))
        ++kind;
    require(kind < kinds.memoryTypeCount, "the device has no memory");
    const VkMemoryAllocateFlagsInfo flags = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT };
    const VkMemoryAllocateInfo asked = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &flags,
        .allocationSize = needs.size, .memoryTypeIndex = kind };
    VkDeviceMemory held;
    require(vkAllocateMemory(device, &asked, NULL, &held) == VK_SUCCESS, "no memory");
    require(vkBindBufferMemory(device, pool, held, 0) == VK_SUCCESS, "the buffer has no memory");
    const VkBufferDeviceAddressInfo where = { .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = pool };
    address = vkGetBufferDeviceAddress(device, &where);
    room = bytes - TEAM_BYTES; /* the words of teams are behind all else */
}

static void create_commands(void)
{
    const VkCommandPoolCreateInfo info = { .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT };
    VkCommandBufferAllocateInfo asked = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = 1 };
    const VkFenceCreateInfo fences = { .sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO };
    const VkPushConstantRange pushed = { VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSHED * 8 };
    const VkPipelineLayoutCreateInfo places = { .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 1, .pPushConstantRanges = &pushed };
    const VkQueryPoolCreateInfo clocks = { .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_TIMESTAMP, .queryCount = 2 * ROUNDS };
    VkCommandPool made;
    require(vkCreateCommandPool(device, &info, NULL, &made) == VK_SUCCESS, "no commands");
    asked.commandPool = made;
    require(vkAllocateCommandBuffers(device, &asked, &commands) == VK_SUCCESS, "no commands");
    require(vkCreateFence(device, &fences, NULL, &fence) == VK_SUCCESS, "no fence");
    require(vkCreatePipelineLayout(device, &places, NULL, &layout) == VK_SUCCESS, "no layout");
    require(vkCreateQueryPool(device, &clocks, NULL, &clock_pool) == VK_SUCCESS, "no clock");
}

static VkPipeline pipeline_of(const launch *one)
{
    const VkShaderModuleCreateInfo info = { .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = one->bytes, .pCode = one->code };
    VkShaderModule module;
    require(vkCreateShaderModule(device, &info, NULL, &module) == VK_SUCCESS, "no shader");
    const VkComputePipelineCreateInfo asked = { .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, .layout = layout,
        .stage = { .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_COMPUTE_BIT,
            .module = module, .pName = "main" } };
    VkPipeline made;
    require(vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &asked, NULL, &made) == VK_SUCCESS, "no pipeline");
    vkDestroyShaderModule(device, module, NULL);
    return made;
}

static void wait_for(VkPipelineStageFlags from, VkAccessFlags written)
{
    const VkPipelineStageFlags again = from & VK_PIPELINE_STAGE_TRANSFER_BIT;
    const VkAccessFlags copied = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    const VkMemoryBarrier barrier = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = written,
        .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | (again ? copied : 0) };
    vkCmdPipelineBarrier(commands, from, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | again, 0, 1, &barrier, 0, NULL, 0, NULL);
}

/* Pairs of bf16 between 1/16 and 16, of either sign, which are as many numbers of f32. */
static void record_spread(uint64_t at, uint64_t bytes)
{
    static uint32_t words[PATTERN / 4];
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof words / sizeof *words; ++i) {
        uint32_t found = 0;
        for (int half = 0; half < 2; ++half) {
            state = state * 1664525u + 1013904223u;
            found = found << 16 | (state >> 16 & 0x8000u) | (0x3D80u + (state >> 8) % 0x400u);
        }
        words[i] = found;
    }
    uint64_t done = bytes < PATTERN ? bytes : PATTERN;
    vkCmdUpdateBuffer(commands, pool, at, done, words);
    while (done < bytes) {
        const uint64_t more = bytes - done < done ? bytes - done : done;
        const VkBufferCopy copied = { at, at + done, more };
        wait_for(VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT);
        vkCmdCopyBuffer(commands, pool, pool, 1, &copied);
        done += more;
    }
}

/* One round after the other, each in other memory as long as there is room, so that caches do not help. */
static void record(const measured *one, const VkPipeline *pipelines, uint64_t bytes, uint32_t places, uint32_t rounds)
{
    const uint64_t teams = address + room;
    vkCmdResetQueryPool(commands, clock_pool, 0, 2 * ROUNDS);
    vkCmdFillBuffer(commands, pool, room, TEAM_BYTES, 0);
    for (uint32_t place = 0; place < places; ++place) {
        uint64_t at = place * bytes;
        for (uint32_t i = 0; i < one->buffer_count; ++i) {
            const uint64_t own = (one->buffers[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
            const int is_status = one->buffers[i].word == UINT32_MAX;
            if (one->buffers[i].word == SPREAD) record_spread(at, own);
            else vkCmdFillBuffer(commands, pool, at, is_status ? TEAMS_AT : own, one->buffers[i].word);
            if (is_status) vkCmdUpdateBuffer(commands, pool, at + TEAMS_AT, sizeof teams, &teams);
            at += own;
        }
    }
    wait_for(VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT);
    for (uint32_t round = 0; round < rounds; ++round) {
        uint64_t at[MOST_BUFFERS] = { address + round % places * bytes };
        for (uint32_t i = 1; i < one->buffer_count; ++i)
            at[i] = at[i - 1] + (one->buffers[i - 1].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, clock_pool, 2 * round);
        for (uint32_t k = 0; k < one->launch_count; ++k) {
            const launch *own = &one->launches[k];
            uint64_t values[PUSHED] = { 0 };
            for (uint32_t i = 0; i < own->count; ++i) values[i] = own->buffers[i] == NUMBER ? 0 : at[own->buffers[i]];
            vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipelines[k]);
            vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof values, values);
            vkCmdDispatch(commands, own->groups, 1, 1);
            wait_for(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT);
        }
        vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, clock_pool, 2 * round + 1);
    }
}

/* The least time of some rounds, in seconds. */
static double least_of(const measured *one, const VkPipeline *pipelines, uint64_t bytes, uint32_t rounds)
{
    static const VkCommandBufferBeginInfo begin = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT };
    const VkSubmitInfo submit = { .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1, .pCommandBuffers = &commands };
    uint64_t times[2 * ROUNDS], places = room / bytes;
    if (places > rounds) places = rounds;
    require(vkBeginCommandBuffer(commands, &begin) == VK_SUCCESS, "nothing is recorded");
    record(one, pipelines, bytes, (uint32_t)places, rounds);
    require(vkEndCommandBuffer(commands) == VK_SUCCESS, "the recording does not end");
    require(vkQueueSubmit(queue, 1, &submit, fence) == VK_SUCCESS, "nothing is submitted");
    require(vkWaitForFences(device, 1, &fence, VK_TRUE, UINT64_C(120000000000)) == VK_SUCCESS, "it takes too long");
    require(vkResetFences(device, 1, &fence) == VK_SUCCESS, "the fence stays");
    require(vkGetQueryPoolResults(device, clock_pool, 0, 2 * rounds, sizeof times, times, 8,
                VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT) == VK_SUCCESS, "no times");
    double least = 1e9;
    for (uint32_t round = 0; round < rounds; ++round) {
        const double own = (double)(times[2 * round + 1] - times[2 * round]) * tick;
        if (own < least) least = own;
    }
    return least > 0 ? least : 1e-9;
}

/* The least time of a round, in seconds: of many, or of few where each takes long. */
static double seconds_of(const measured *one)
{
    VkPipeline pipelines[MOST_LAUNCHES];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < one->buffer_count; ++i)
        bytes += (one->buffers[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    require(bytes <= room, "the case needs more memory");
    for (uint32_t k = 0; k < one->launch_count; ++k) pipelines[k] = pipeline_of(&one->launches[k]);
    const double first = least_of(one, pipelines, bytes, 1);
    double found = first;
    /* More than once: a device that had nothing to do is slow at first. */
    for (int again = 0; again < 3 && first <= ENOUGH; ++again) {
        const double own = least_of(one, pipelines, bytes, first * ROUNDS > ENOUGH ? 3 : ROUNDS);
        if (own < found) found = own;
    }
    for (uint32_t k = 0; k < one->launch_count; ++k) vkDestroyPipeline(device, pipelines[k], NULL);
    return found;
}

typedef struct { double seconds, rate, ceiling; } result;

static void write_json(const char *path, const result *found, size_t count)
{
    FILE *const file = fopen(path, "w");
    require(file != NULL, path);
    fprintf(file, "[");
    for (size_t i = 0; i < count; ++i)
        fprintf(file, "%s\n  { \"what\": \"%s\", \"form\": \"%s\", \"bytes\": %llu, \"us\": %.2f, \"gb_per_s\": %.1f,"
            " \"ceiling_gb_per_s\": %.1f, \"percent\": %.1f, \"tflop_per_s\": %.3f }", i > 0 ? "," : "", cases[i].name, cases[i].form,
            (unsigned long long)cases[i].moved, found[i].seconds * 1e6, found[i].rate * 1e-9,
            found[i].ceiling * 1e-9, 100 * found[i].rate / found[i].ceiling, (double)cases[i].done / found[i].seconds * 1e-12);
    fprintf(file, "\n]\n");
    require(fclose(file) == 0, path);
}

int main(int count, char **words)
{
    enum { CASES = sizeof cases / sizeof *cases };
    static result found[CASES];
    create_device();
    create_memory((count > 1 ? strtoull(words[1], NULL, 10) : UINT64_C(3072)) << 20);
    create_commands();
    double ceiling = 0;
    printf("%-44s %-52s %10s %10s %10s %9s\n", "what", "form", "us", "GB/s", "% of read", "TFLOP/s");
    for (size_t i = 0; i < CASES; ++i) {
        const double seconds = seconds_of(&cases[i]), rate = (double)cases[i].moved / seconds;
        if (strncmp(cases[i].name, "read by hand", 12) == 0) ceiling = rate;
        found[i] = (result){ seconds, rate, ceiling };
        printf("%-44s %-52s %10.1f %10.0f %10.1f %9.2f\n", cases[i].name, cases[i].form, seconds * 1e6, rate * 1e-9,
            100 * rate / ceiling, (double)cases[i].done / seconds * 1e-12);
        fflush(stdout);
    }
    if (count > 2) write_json(words[2], found, CASES);
    return 0;
}
