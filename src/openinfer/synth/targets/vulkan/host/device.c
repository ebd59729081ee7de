#define _POSIX_C_SOURCE 200809L
#include "device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

enum {
    PUSHED = 16,      /* arguments that the push constants of every device hold */
    MOST = 1024,      /* launches of one submission */
    RANGES = 4096,    /* pieces of memory that these work on */
    BLOCK = 64 * 256, /* bytes for the arguments of launches that have more */
};
static const uint64_t MAGIC = UINT64_C(0x4f49564b4d454d31);
static const uint32_t NO_FAILURE = UINT32_MAX;

/* --- devices ------------------------------------------------------------------------------------------------------ */

typedef struct {
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family;
    double tick; /* nanoseconds; 0 where there is no clock */
    VkPhysicalDeviceMemoryProperties kinds;
    pthread_mutex_t lock; /* of the queue */
    int32_t users;
    pid_t process;
} oi_device;

/* What a shader may use, by the capability of SPIR-V. */
typedef struct {
    VkBool32 float64, int64, int16, int8, bytes, halves, address;
    uint32_t lanes; /* threads that exchange values; 0 if they do not */
} oi_features;

static void features_of(VkPhysicalDevice physical, oi_features *found)
{
    VkPhysicalDeviceVulkan12Features second = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES };
    VkPhysicalDeviceVulkan11Features first = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .pNext = &second };
    VkPhysicalDeviceFeatures2 all = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &first };
    vkGetPhysicalDeviceFeatures2(physical, &all);
    *found = (oi_features){ all.features.shaderFloat64, all.features.shaderInt64, all.features.shaderInt16,
        second.shaderInt8, second.storageBuffer8BitAccess, first.storageBuffer16BitAccess,
        second.bufferDeviceAddress, 0 };
    VkPhysicalDeviceSubgroupProperties lanes = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES };
    VkPhysicalDeviceProperties2 about = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &lanes };
    vkGetPhysicalDeviceProperties2(physical, &about);
    if ((lanes.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT)
        && (lanes.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT))
        found->lanes = lanes.subgroupSize;
}

/* Whether a device has what shaders say they need, in their first instructions. */
static bool has_all(const oi_features *has, const oi_given *given)
{
    bool found = has->address;
    for (int32_t i = 0; i < given->shader_count; ++i) {
        const uint32_t *const words = given->shaders[i].words;
        for (size_t at = 5; at + 1 < given->shaders[i].bytes / 4 && (words[at] & 0xffffu) == 17; at += words[at] >> 16) {
            switch (words[at + 1]) {
            case 10: found = found && has->float64; break;
            case 11: found = found && has->int64; break;
            case 22: found = found && has->int16; break;
            case 39: found = found && has->int8; break;
            case 65: found = found && has->lanes >= given->lanes; break;
            case 4448: found = found && has->bytes; break;
            case 4433: found = found && has->halves; break;
            default: break;
            }
        }
    }
    return found;
}

/* A queue family that computes; false where there is none. */
static bool family_of(oi_device *own, double period)
{
    VkQueueFamilyProperties families[16];
    uint32_t count = 16;
    vkGetPhysicalDeviceQueueFamilyProperties(own->physical, &count, families);
    for (own->family = 0; own->family < count; ++own->family) {
        if (!(families[own->family].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
        own->tick = families[own->family].timestampValidBits > 0 ? period : 0;
        return true;
    }
    return false;
}

/* The device that has all that is needed; a graphics card before others, a processor last. */
static oi_problem chosen(oi_device *own, const oi_given *given)
{
    static const int rank[] = { 1, 3, 4, 2, 0 };
    VkPhysicalDevice devices[16];
    uint32_t count = 16;
    int best = -1;
    const VkResult found = vkEnumeratePhysicalDevices(own->instance, &count, devices);
    if ((found != VK_SUCCESS && found != VK_INCOMPLETE) || count == 0) return OI_NO_DRIVER;
    for (uint32_t i = 0; i < count; ++i) {
        VkPhysicalDeviceProperties about;
        oi_features has;
        vkGetPhysicalDeviceProperties(devices[i], &about);
        if (about.apiVersion < VK_API_VERSION_1_2) continue;
        features_of(devices[i], &has);
        if (!has_all(&has, given)) continue;
        const int own_rank = about.deviceType <= VK_PHYSICAL_DEVICE_TYPE_CPU ? rank[about.deviceType] : 0;
        if (own_rank <= best) continue;
        best = own_rank;
        own->physical = devices[i];
    }
    return best < 0 ? OI_NO_FEATURE : OI_GOOD;
}

static oi_problem create_device(oi_device *own)
{
    const float priority = 1.0f;
    oi_features has;
    VkPhysicalDeviceProperties about;
    features_of(own->physical, &has);
    vkGetPhysicalDeviceProperties(own->physical, &about);
    if (!family_of(own, (double)about.limits.timestampPeriod)) return OI_NO_FEATURE;
    const VkDeviceQueueCreateInfo queues = { .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = own->family, .queueCount = 1, .pQueuePriorities = &priority };
    VkPhysicalDeviceVulkan12Features second = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .bufferDeviceAddress = 1, .storageBuffer8BitAccess = has.bytes, .shaderInt8 = has.int8 };
    VkPhysicalDeviceVulkan11Features first = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .pNext = &second, .storageBuffer16BitAccess = has.halves };
    const VkPhysicalDeviceFeatures2 features = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &first,
        .features = { .shaderFloat64 = has.float64, .shaderInt64 = has.int64, .shaderInt16 = has.int16 } };
    const VkDeviceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &features,
        .queueCreateInfoCount = 1, .pQueueCreateInfos = &queues };
    if (vkCreateDevice(own->physical, &info, NULL, &own->device) != VK_SUCCESS) return OI_NO_FEATURE;
    vkGetDeviceQueue(own->device, own->family, 0, &own->queue);
    vkGetPhysicalDeviceMemoryProperties(own->physical, &own->kinds);
    return OI_GOOD;
}

static void device_free(oi_device *own)
{
    if (own == NULL || __atomic_sub_fetch(&own->users, 1, __ATOMIC_ACQ_REL) > 0) return;
    if (own->process == getpid()) {
        if (own->device != VK_NULL_HANDLE) vkDestroyDevice(own->device, NULL);
        if (own->instance != VK_NULL_HANDLE) vkDestroyInstance(own->instance, NULL);
    }
    pthread_mutex_destroy(&own->lock);
    free(own);
}

static oi_problem device_new(const oi_given *given, oi_device **made)
{
    const VkApplicationInfo application = { .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2 };
    const VkInstanceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application };
    oi_device *const own = calloc(1, sizeof *own);
    if (own == NULL) return OI_NO_MEMORY;
    own->users = 1;
    own->process = getpid();
    if (pthread_mutex_init(&own->lock, NULL) != 0) {
        free(own);
        return OI_NO_MEMORY;
    }
    oi_problem problem = vkCreateInstance(&info, NULL, &own->instance) == VK_SUCCESS ? OI_GOOD : OI_NO_DRIVER;
    if (problem == OI_GOOD) problem = chosen(own, given);
    if (problem == OI_GOOD) problem = create_device(own);
    *made = own;
    if (problem == OI_GOOD) return OI_GOOD;
    device_free(own);
    *made = NULL;
    return problem;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Memory that was asked for; it lies on a device from the first time on that an instance gets it. */
typedef struct oi_memory {
    uint64_t magic;
    struct oi_memory *self;
    size_t bytes;
    oi_device *device;
    VkBuffer buffer;
    VkDeviceMemory held;
    unsigned char *mapped;
    uint64_t address;
} oi_memory;

/* What a pointer stands for: NULL if that is not memory which was asked for. */
static oi_memory *memory_of(const void *at)
{
    oi_memory copy;
    if (at == NULL || (uintptr_t)at % _Alignof(oi_memory) != 0) return NULL;
    memcpy(&copy, at, offsetof(oi_memory, bytes));
    return copy.magic == MAGIC && (const void *)copy.self == at ? copy.self : NULL;
}

void *oi_memory_new(size_t bytes)
{
    oi_memory *const own = calloc(1, sizeof *own);
    if (own == NULL) return NULL;
    own->magic = MAGIC;
    own->self = own;
    own->bytes = bytes;
    return own;
}

static void unbound(oi_memory *own)
{
    oi_device *const device = own->device;
    if (device == NULL) return;
    if (device->process == getpid()) {
        if (own->buffer != VK_NULL_HANDLE) vkDestroyBuffer(device->device, own->buffer, NULL);
        if (own->held != VK_NULL_HANDLE) vkFreeMemory(device->device, own->held, NULL);
    }
    own->device = NULL;
    device_free(device);
}

void oi_memory_free(void *memory)
{
    oi_memory *const own = memory_of(memory);
    if (own == NULL) return;
    unbound(own);
    own->magic = 0;
    free(own);
}

/* Memory of a kind that the host sees too; the device's own, if there is any such. */
static bool allocated(oi_memory *own, const VkMemoryRequirements *needs)
{
    const VkMemoryPropertyFlags seen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkMemoryPropertyFlags wanted[] = {
        seen | VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, seen | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, seen };
    const VkMemoryAllocateFlagsInfo flags = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT };
    for (int i = 0; i < 3; ++i) {
        for (uint32_t kind = 0; kind < own->device->kinds.memoryTypeCount; ++kind) {
            const VkMemoryAllocateInfo room = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &flags,
                .allocationSize = needs->size, .memoryTypeIndex = kind };
            const VkMemoryPropertyFlags has = own->device->kinds.memoryTypes[kind].propertyFlags;
            if (!(needs->memoryTypeBits >> kind & 1) || (has & wanted[i]) != wanted[i]) continue;
            if (vkAllocateMemory(own->device->device, &room, NULL, &own->held) == VK_SUCCESS) return true;
        }
    }
    return false;
}

/* Memory gets its bytes on a device, unless it has them; a second device is refused. */
static oi_problem bound(oi_memory *own, oi_device *device)
{
    if (own->device == device) return OI_GOOD;
    if (own->device != NULL) return OI_TWO_DEVICES;
    const VkBufferCreateInfo info = { .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = own->bytes > 0 ? (own->bytes + 15) / 16 * 16 : 16,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT };
    VkMemoryRequirements needs;
    void *seen = NULL;
    own->device = device;
    __atomic_add_fetch(&device->users, 1, __ATOMIC_ACQ_REL);
    own->buffer = VK_NULL_HANDLE;
    own->held = VK_NULL_HANDLE;
    if (vkCreateBuffer(device->device, &info, NULL, &own->buffer) == VK_SUCCESS) {
        vkGetBufferMemoryRequirements(device->device, own->buffer, &needs);
        if (allocated(own, &needs) && vkBindBufferMemory(device->device, own->buffer, own->held, 0) == VK_SUCCESS
            && vkMapMemory(device->device, own->held, 0, VK_WHOLE_SIZE, 0, &seen) == VK_SUCCESS) {
            const VkBufferDeviceAddressInfo asked = { .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                .buffer = own->buffer };
            own->mapped = seen;
            own->address = vkGetBufferDeviceAddress(device->device, &asked);
            return OI_GOOD;
        }
    }
    unbound(own);
    return OI_NO_MEMORY;
}

/* --- instances ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const unsigned char *first, *end;
    bool is_written;
} oi_range;

struct oi_queue {
    oi_device *device;
    const oi_memory *arena, *state;
    oi_memory *weights, *block; /* a copy of the weights; the status, and arguments that are too many */
    VkShaderModule *modules;
    VkPipeline *pipelines;
    int32_t shader_count, first_problem;
    VkPipelineLayout layout;
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkFence fence;
    VkQueryPool clock;
    int32_t launches;           /* recorded, and not submitted yet */
    int32_t failures[MOST];     /* of each of them */
    int32_t places[MOST], place;
    int32_t failed;             /* the first failure, until somebody asks */
    bool is_lost, has_work, is_checking;
    size_t block_used;
    oi_range touched[RANGES];   /* what launches work on */
    int32_t touched_count, since; /* and from where on, behind the last barrier */
    int64_t *nanoseconds, *calls;
};

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
    if (vkCreateCommandPool(device, &pool, NULL, &q->pool) != VK_SUCCESS) return OI_NO_MEMORY;
    const VkCommandBufferAllocateInfo info = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = q->pool, .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = 1 };
    if (vkAllocateCommandBuffers(device, &info, &q->commands) != VK_SUCCESS) return OI_NO_MEMORY;
    return vkCreateFence(device, &fence, NULL, &q->fence) == VK_SUCCESS ? OI_GOOD : OI_NO_MEMORY;
}

/* The arena, the state and the weights on one device: that of the first of them which has one, else a new one. */
static oi_problem gather(oi_queue *q, const oi_given *given, oi_mapped *mapped)
{
    oi_memory *const arena = memory_of(given->arena), *const state = memory_of(given->state);
    if (arena == NULL || arena->bytes < given->arena_bytes) return OI_FOREIGN;
    if (given->state_bytes > 0 && (state == NULL || state->bytes < given->state_bytes)) return OI_FOREIGN;
    oi_device *const known = arena->device != NULL || state == NULL ? arena->device : state->device;
    oi_problem problem = OI_GOOD;
    if (known != NULL) {
        oi_features has;
        features_of(known->physical, &has);
        if (known->process != getpid()) return OI_FORKED;
        if (!has_all(&has, given)) return OI_NO_FEATURE;
        __atomic_add_fetch(&known->users, 1, __ATOMIC_ACQ_REL);
        q->device = known;
    } else {
        problem = device_new(given, &q->device);
    }
    if (problem == OI_GOOD) problem = bound(arena, q->device);
    if (problem == OI_GOOD && state != NULL) problem = bound(state, q->device);
    q->weights = oi_memory_new(given->weight_bytes);
    if (problem == OI_GOOD) problem = q->weights == NULL ? OI_NO_MEMORY : bound(q->weights, q->device);
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
        problem = q->block == NULL ? OI_NO_MEMORY : bound(q->block, q->device);
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
    free(q->modules);
    free(q->pipelines);
    oi_memory_free(q->block);
    oi_memory_free(q->weights);
    device_free(q->device);
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

/* A launch sees what those before it wrote, and writes what they have read: where it does, it waits for them, and
   behind one that can fail it does in any case. */
static void ordered(oi_queue *q, int32_t count, const oi_argument *given)
{
    static const VkMemoryBarrier barrier = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT };
    bool waits = q->is_checking || q->touched_count + count > RANGES;
    for (int32_t i = 0; i < count && !waits; ++i) {
        const unsigned char *const first = given[i].at;
        for (int32_t k = q->since; first != NULL && k < q->touched_count && !waits; ++k)
            waits = (given[i].is_written || q->touched[k].is_written)
                && overlaps(&q->touched[k], first, first + given[i].number);
    }
    if (waits) {
        vkCmdPipelineBarrier(q->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0,
            1, &barrier, 0, NULL, 0, NULL);
        q->since = q->touched_count;
        q->is_checking = false;
    }
    for (int32_t i = 0; i < count; ++i) {
        const unsigned char *const first = given[i].at;
        if (first == NULL || given[i].number == 0 || q->touched_count == RANGES) continue;
        q->touched[q->touched_count++] = (oi_range){ first, first + given[i].number, given[i].is_written };
    }
}

static void lose(oi_queue *q, oi_problem problem)
{
    q->is_lost = true;
    if (q->failed < 0) q->failed = q->first_problem + (int32_t)problem;
}

/* Whether something more can be recorded. */
static bool is_recording(oi_queue *q, int32_t count)
{
    const VkCommandBufferBeginInfo begin = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT };
    if (q->launches == MOST || q->block_used + (size_t)count * 8 > BLOCK - 64) {
        const int32_t failed = oi_settle(q);
        if (failed >= 0) q->failed = failed;
    }
    if (q->failed >= 0 || q->is_lost) return false;
    if (q->has_work) return true;
    if (q->device->process != getpid()) {
        lose(q, OI_FORKED);
        return false;
    }
    if (vkBeginCommandBuffer(q->commands, &begin) != VK_SUCCESS) lose(q, OI_LOST);
    if (!q->is_lost && q->clock != VK_NULL_HANDLE) vkCmdResetQueryPool(q->commands, q->clock, 0, 2 * MOST);
    q->has_work = !q->is_lost;
    return q->has_work;
}

void oi_launch(oi_queue *q, int32_t shader, int64_t groups, int32_t failure, int32_t count, const oi_argument *given)
{
    uint64_t values[PUSHED] = { 0 };
    const int32_t total = count + 2; /* every launch knows its number, and where the first that fails puts its own */
    if (groups <= 0 || !is_recording(q, total)) return;
    uint64_t *const block = (uint64_t *)(void *)(q->block->mapped + 64 + q->block_used);
    uint64_t *const to = total <= PUSHED ? values : block;
    for (int32_t i = 0; i < count; ++i)
        to[i] = given[i].at != NULL ? address_of(q, given[i].at) : (uint64_t)given[i].number;
    to[count] = q->block->address;
    to[count + 1] = (uint64_t)q->launches;
    if (total > PUSHED) {
        values[0] = address_of(q, block);
        q->block_used += (size_t)total * 8;
    }
    ordered(q, count, given);
    const uint32_t number = (uint32_t)q->launches * 2;
    vkCmdBindPipeline(q->commands, VK_PIPELINE_BIND_POINT_COMPUTE, q->pipelines[shader]);
    vkCmdPushConstants(q->commands, q->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSHED * 8, values);
    if (q->clock != VK_NULL_HANDLE)
        vkCmdWriteTimestamp(q->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, q->clock, number);
    vkCmdDispatch(q->commands, (uint32_t)groups, 1, 1);
    if (q->clock != VK_NULL_HANDLE)
        vkCmdWriteTimestamp(q->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, q->clock, number + 1);
    q->is_checking = failure >= 0;
    q->places[q->launches] = q->place;
    q->failures[q->launches++] = failure;
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

/* What the clock says of the launches that have run. */
static void add_times(oi_queue *q)
{
    for (int32_t i = 0; i < q->launches; ++i) {
        uint64_t both[2];
        const VkResult found = vkGetQueryPoolResults(q->device->device, q->clock, (uint32_t)i * 2, 2, sizeof both, both,
            sizeof both[0], VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
        if (found != VK_SUCCESS || q->places[i] < 0) continue;
        q->nanoseconds[q->places[i]] += (int64_t)((double)(both[1] - both[0]) * q->device->tick);
        q->calls[q->places[i]] += 1;
    }
}

static bool has_run(oi_queue *q)
{
    static const VkMemoryBarrier seen = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT, .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT };
    const VkSubmitInfo submit = { .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1, .pCommandBuffers = &q->commands };
    if (q->device->process != getpid()) return false;
    vkCmdPipelineBarrier(q->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &seen, 0,
        NULL, 0, NULL);
    if (vkEndCommandBuffer(q->commands) != VK_SUCCESS) return false;
    pthread_mutex_lock(&q->device->lock);
    const VkResult submitted = vkQueueSubmit(q->device->queue, 1, &submit, q->fence);
    pthread_mutex_unlock(&q->device->lock);
    if (submitted != VK_SUCCESS) return false;
    if (vkWaitForFences(q->device->device, 1, &q->fence, VK_TRUE, UINT64_MAX) != VK_SUCCESS) return false;
    return vkResetFences(q->device->device, 1, &q->fence) == VK_SUCCESS;
}

int32_t oi_settle(oi_queue *q)
{
    if (q == NULL) return -1;
    if (q->has_work) {
        uint32_t number;
        if (!has_run(q)) lose(q, OI_LOST);
        memcpy(&number, q->block->mapped, sizeof number);
        if (!q->is_lost && number < (uint32_t)q->launches && q->failed < 0) q->failed = q->failures[number];
        if (!q->is_lost && q->clock != VK_NULL_HANDLE) add_times(q);
        memcpy(q->block->mapped, &NO_FAILURE, sizeof NO_FAILURE);
        q->has_work = false;
        q->launches = q->touched_count = q->since = 0;
        q->block_used = 0;
        q->is_checking = false;
    }
    const int32_t failed = q->failed;
    if (!q->is_lost) q->failed = -1;
    return failed;
}

void oi_time(oi_queue *q, int64_t *nanoseconds, int64_t *calls)
{
    const VkQueryPoolCreateInfo info = { .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_TIMESTAMP, .queryCount = 2 * MOST };
    q->nanoseconds = nanoseconds;
    q->calls = calls;
    if (q->clock != VK_NULL_HANDLE) vkDestroyQueryPool(q->device->device, q->clock, NULL);
    q->clock = VK_NULL_HANDLE;
    if (nanoseconds != NULL && q->device->tick > 0 && vkCreateQueryPool(q->device->device, &info, NULL, &q->clock) != VK_SUCCESS)
        q->clock = VK_NULL_HANDLE;
}

void oi_place(oi_queue *q, int32_t place) { q->place = place; }
