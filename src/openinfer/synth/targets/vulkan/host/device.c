#define _GNU_SOURCE
#include "inside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STAGED = 32 << 20 }; /* most bytes per staged copy */
static const uint64_t MAGIC = UINT64_C(0x4f49564b4d454d31);

/* --- devices ------------------------------------------------------------------------------------------------------ */

/* The device features behind the SPIR-V capabilities that shaders declare. */
typedef struct {
    VkBool32 float64, int64, int16, int8, bytes, halves, address, model;
    uint32_t lanes; /* subgroup size; 0 without shuffles */
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
        second.bufferDeviceAddress, second.vulkanMemoryModel && second.vulkanMemoryModelDeviceScope, 0 };
    VkPhysicalDeviceSubgroupProperties lanes = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES };
    VkPhysicalDeviceProperties2 about = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &lanes };
    vkGetPhysicalDeviceProperties2(physical, &about);
    if ((lanes.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT)
        && (lanes.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT))
        found->lanes = lanes.subgroupSize;
}

/* Whether a device has the capabilities that shaders declare in their first instructions. */
static bool has_all(const oi_features *has, const oi_given *given)
{
    bool found = has->address;
    for (int32_t i = 0; i < given->kernel_count; ++i) {
        const uint32_t *const words = given->kernels[i].words;
        for (size_t at = 5; at + 1 < given->kernels[i].bytes / 4 && (words[at] & 0xffffu) == 17; at += words[at] >> 16) {
            switch (words[at + 1]) {
            case 10: found = found && has->float64; break;
            case 11: found = found && has->int64; break;
            case 22: found = found && has->int16; break;
            case 39: found = found && has->int8; break;
            case 65: found = found && has->lanes >= given->lanes; break;
            case 4448: found = found && has->bytes; break;
            case 4433: found = found && has->halves; break;
            case 5345: case 5346: found = found && has->model; break;
            default: break;
            }
        }
    }
    return found;
}

/* Selects a queue family with compute support; false if there is none. */
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

/* Selects a device with all needed features: a discrete GPU before others, a CPU last. */
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
    own->is_processor = about.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    if (!family_of(own, (double)about.limits.timestampPeriod)) return OI_NO_FEATURE;
    const VkDeviceQueueCreateInfo queues = { .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = own->family, .queueCount = 1, .pQueuePriorities = &priority };
    VkPhysicalDeviceVulkan12Features second = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .bufferDeviceAddress = 1, .storageBuffer8BitAccess = has.bytes, .shaderInt8 = has.int8,
        .vulkanMemoryModel = has.model, .vulkanMemoryModelDeviceScope = has.model };
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

void oi_device_free(oi_device *own)
{
    if (own == NULL || __atomic_sub_fetch(&own->users, 1, __ATOMIC_ACQ_REL) > 0) return;
    if (own->process == getpid()) {
        if (own->device != VK_NULL_HANDLE) vkDestroyDevice(own->device, NULL);
        if (own->instance != VK_NULL_HANDLE) vkDestroyInstance(own->instance, NULL);
    }
    pthread_mutex_destroy(&own->lock);
    free(own);
}

bool oi_is_own(const oi_device *own) { return own->process == getpid(); }

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
    oi_device_free(own);
    *made = NULL;
    return problem;
}

oi_problem oi_device_for(const oi_given *given, oi_device *known, oi_device **made)
{
    oi_features has;
    if (known == NULL) return device_new(given, made);
    if (known->process != getpid()) return OI_FORKED;
    features_of(known->physical, &has);
    if (!has_all(&has, given)) return OI_NO_FEATURE;
    __atomic_add_fetch(&known->users, 1, __ATOMIC_ACQ_REL);
    *made = known;
    return OI_GOOD;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

oi_memory *oi_memory_of(const void *at)
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

/* The bytes to allocate. */
static size_t room_of(const oi_memory *own) { return own->bytes > 0 ? (own->bytes + 15) / 16 * 16 : 16; }

static void unbound(oi_memory *own)
{
    oi_device *const device = own->device;
    if (device == NULL) return;
    if (device->process == getpid()) {
        if (own->held.buffer != VK_NULL_HANDLE) vkDestroyBuffer(device->device, own->held.buffer, NULL);
        if (own->held.memory != VK_NULL_HANDLE) vkFreeMemory(device->device, own->held.memory, NULL);
    }
    if (own->use <= OI_HIDDEN && own->here != NULL) munmap(own->here, room_of(own));
    own->here = NULL;
    own->device = NULL;
    oi_device_free(device);
}

void oi_memory_free(void *memory)
{
    oi_memory *const own = oi_memory_of(memory);
    if (own == NULL) return;
    unbound(own);
    own->magic = 0;
    free(own);
}

/* Allocates memory of the best type for its use. */
static bool is_allocated(oi_memory *own, const VkMemoryRequirements *needs)
{
    const VkMemoryPropertyFlags seen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkMemoryPropertyFlags near = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    const VkMemoryPropertyFlags wanted[][2] = { { near, 0 }, { near, 0 }, { seen | near, seen },
        { seen | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, seen } };
    const VkMemoryAllocateFlagsInfo flags = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT };
    for (int i = 0; i < 2; ++i) {
        for (uint32_t kind = 0; kind < own->device->kinds.memoryTypeCount; ++kind) {
            const VkMemoryAllocateInfo room = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &flags,
                .allocationSize = needs->size, .memoryTypeIndex = kind };
            const VkMemoryPropertyFlags has = own->device->kinds.memoryTypes[kind].propertyFlags;
            const VkMemoryPropertyFlags all = wanted[own->use][i];
            if (!(needs->memoryTypeBits >> kind & 1) || (has & all) != all) continue;
            if (vkAllocateMemory(own->device->device, &room, NULL, &own->held.memory) == VK_SUCCESS) return true;
        }
    }
    return false;
}

/* Maps the memory for the host, or reserves addresses for its mirror, which takes up pages only where touched. */
static bool is_here(oi_memory *own)
{
    void *seen = NULL;
    if (own->use > OI_HIDDEN) {
        const VkResult mapped = vkMapMemory(own->device->device, own->held.memory, 0, VK_WHOLE_SIZE, 0, &seen);
        if (mapped != VK_SUCCESS) return false;
    } else {
        const int access = own->use == OI_HIDDEN ? PROT_NONE : PROT_READ | PROT_WRITE;
        seen = mmap(NULL, room_of(own), access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (seen == MAP_FAILED) return false;
    }
    own->here = seen;
    return true;
}

oi_problem oi_memory_on(oi_memory *own, oi_device *device, oi_use use)
{
    if (own->device == device) return OI_GOOD;
    if (own->device != NULL) return OI_TWO_DEVICES;
    const VkBufferCreateInfo info = { .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = room_of(own),
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT
            | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT
            | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT };
    VkMemoryRequirements needs;
    own->device = device;
    own->use = use;
    __atomic_add_fetch(&device->users, 1, __ATOMIC_ACQ_REL);
    own->held.buffer = VK_NULL_HANDLE;
    own->held.memory = VK_NULL_HANDLE;
    if (vkCreateBuffer(device->device, &info, NULL, &own->held.buffer) == VK_SUCCESS) {
        vkGetBufferMemoryRequirements(device->device, own->held.buffer, &needs);
        if (is_allocated(own, &needs) && vkBindBufferMemory(device->device, own->held.buffer, own->held.memory, 0) == VK_SUCCESS
            && is_here(own)) {
            const VkBufferDeviceAddressInfo asked = { .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                .buffer = own->held.buffer };
            own->address = vkGetBufferDeviceAddress(device->device, &asked);
            return OI_GOOD;
        }
    }
    unbound(own);
    return OI_NO_MEMORY;
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* Two staging blocks, which the host and the device use in turns. */
typedef struct {
    oi_device *device;
    oi_memory *blocks[2];
    VkCommandPool pool;
    VkCommandBuffer commands[2];
    VkFence fences[2];
} oi_stage;

static void stage_free(oi_stage *stage)
{
    const VkDevice device = stage->device->device;
    for (int i = 0; i < 2; ++i) {
        if (stage->fences[i] != VK_NULL_HANDLE) vkDestroyFence(device, stage->fences[i], NULL);
        oi_memory_free(stage->blocks[i]);
    }
    if (stage->pool != VK_NULL_HANDLE) vkDestroyCommandPool(device, stage->pool, NULL);
}

static bool is_staged(oi_stage *stage, size_t bytes, oi_use use)
{
    const VkDevice device = stage->device->device;
    const VkCommandPoolCreateInfo pool = { .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, .queueFamilyIndex = stage->device->family };
    const VkFenceCreateInfo fence = { .sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO, .flags = VK_FENCE_CREATE_SIGNALED_BIT };
    if (vkCreateCommandPool(device, &pool, NULL, &stage->pool) != VK_SUCCESS) return false;
    const VkCommandBufferAllocateInfo info = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = stage->pool, .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = 2 };
    bool found = vkAllocateCommandBuffers(device, &info, stage->commands) == VK_SUCCESS;
    for (int i = 0; i < 2 && found; ++i) {
        stage->blocks[i] = oi_memory_new(bytes < STAGED ? bytes : STAGED);
        found = stage->blocks[i] != NULL && oi_memory_on(stage->blocks[i], stage->device, use) == OI_GOOD
            && vkCreateFence(device, &fence, NULL, &stage->fences[i]) == VK_SUCCESS;
    }
    return found;
}

static bool is_awaited(const oi_stage *stage, int i)
{
    return vkWaitForFences(stage->device->device, 1, &stage->fences[i], VK_TRUE, UINT64_MAX) == VK_SUCCESS;
}

/* Submits the copy of a chunk between a staging block and device memory. */
static bool is_copied(const oi_stage *stage, int i, VkBuffer from, VkBuffer to, const VkBufferCopy *piece)
{
    static const VkMemoryBarrier before = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT };
    static const VkMemoryBarrier after = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT };
    const VkPipelineStageFlags shaders = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    const VkCommandBufferBeginInfo begin = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT };
    const VkSubmitInfo submit = { .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1, .pCommandBuffers = &stage->commands[i] };
    if (vkResetFences(stage->device->device, 1, &stage->fences[i]) != VK_SUCCESS) return false;
    if (vkBeginCommandBuffer(stage->commands[i], &begin) != VK_SUCCESS) return false;
    vkCmdPipelineBarrier(stage->commands[i], shaders, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &before, 0, NULL, 0, NULL);
    vkCmdCopyBuffer(stage->commands[i], from, to, 1, piece);
    vkCmdPipelineBarrier(stage->commands[i], VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT | shaders, 0, 1,
        &after, 0, NULL, 0, NULL);
    if (vkEndCommandBuffer(stage->commands[i]) != VK_SUCCESS) return false;
    pthread_mutex_lock(&stage->device->lock);
    const VkResult submitted = vkQueueSubmit(stage->device->queue, 1, &submit, stage->fences[i]);
    pthread_mutex_unlock(&stage->device->lock);
    return submitted == VK_SUCCESS;
}

bool oi_memory_put(const oi_memory *memory, size_t at, const void *from, size_t bytes)
{
    oi_stage stage = { .device = memory->device };
    bool is_good = bytes == 0 || is_staged(&stage, bytes, OI_WRITTEN);
    int i = 0;
    for (size_t done = 0; done < bytes && is_good; i = 1 - i) {
        const size_t size = bytes - done < STAGED ? bytes - done : STAGED;
        const VkBufferCopy piece = { 0, at + done, size };
        is_good = is_awaited(&stage, i);
        if (!is_good) break;
        memcpy(stage.blocks[i]->here, (const unsigned char *)from + done, size);
        is_good = is_copied(&stage, i, stage.blocks[i]->held.buffer, memory->held.buffer, &piece);
        done += size;
    }
    for (int k = 0; k < 2 && bytes > 0 && is_good; ++k) is_good = is_awaited(&stage, k);
    stage_free(&stage);
    return is_good;
}

bool oi_memory_get(const oi_memory *memory, size_t at, void *to, size_t bytes)
{
    oi_stage stage = { .device = memory->device };
    bool is_good = bytes == 0 || is_staged(&stage, bytes, OI_READ_BACK);
    for (size_t done = 0; done < bytes && is_good;) {
        const size_t size = bytes - done < STAGED ? bytes - done : STAGED;
        const VkBufferCopy piece = { at + done, 0, size };
        is_good = is_copied(&stage, 0, memory->held.buffer, stage.blocks[0]->held.buffer, &piece) && is_awaited(&stage, 0);
        if (is_good) memcpy((unsigned char *)to + done, stage.blocks[0]->here, size);
        done += size;
    }
    stage_free(&stage);
    return is_good;
}
