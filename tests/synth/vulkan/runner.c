/* Runs compute shaders on a Vulkan device: cases on stdin, what they did on stdout, complaints on stderr.
 *
 * The arguments are SPIR-V files; before them, --validate turns the validation layer on, and any message of it ends the
 * program. Every buffer of a case has bytes before and behind it that nothing may write. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

enum { MOST_BUFFERS = 64, MOST_LAUNCHES = 64, MOST_ARGUMENTS = 64, PUSHED = 16, GUARD = 256, ALIGNMENT = 256 };
enum { INPUT = 0, OUTPUT = 1, SCRATCH = 2 };
enum { ADDRESS = 0, STATUS = 1, NUMBER = 2 };
static const uint64_t ROOM = UINT64_C(256) << 20;
static const uint32_t GOOD = UINT32_MAX;

typedef struct { uint32_t kind, value; } argument;
typedef struct { uint32_t module, number, group, groups, count; argument arguments[MOST_ARGUMENTS]; } launch;
typedef struct { uint32_t kind, bytes; uint64_t at; } memory;

static VkInstance instance;
static VkPhysicalDevice physical;
static VkDevice device;
static VkQueue queue;
static VkCommandBuffer commands;
static VkFence fence;
static VkPipelineLayout layout;
static VkShaderModule *modules;
static unsigned char *mapped;
static uint64_t address;

static void require(int is_good, const char *what)
{
    if (is_good) return;
    fprintf(stderr, "%s\n", what);
    exit(4);
}

static void take(void *to, size_t bytes) { require(bytes == 0 || fread(to, 1, bytes, stdin) == bytes, "input ends"); }
static void give(const void *from, size_t bytes)
{
    require(bytes == 0 || fwrite(from, 1, bytes, stdout) == bytes, "output ends");
}

static VKAPI_ATTR VkBool32 VKAPI_CALL complain(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
    VkDebugUtilsMessageTypeFlagsEXT kinds, const VkDebugUtilsMessengerCallbackDataEXT *data, void *user)
{
    (void)severity, (void)kinds, (void)user;
    require(0, data->pMessage);
    return VK_FALSE;
}

static void create_instance(int validate)
{
    const char *const layers[] = { "VK_LAYER_KHRONOS_validation" }, *const extensions[] = { "VK_EXT_debug_utils" };
    const VkDebugUtilsMessengerCreateInfoEXT messenger = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        .pfnUserCallback = complain };
    const VkApplicationInfo application = { .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2 };
    const VkInstanceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pNext = validate ? &messenger : NULL, .pApplicationInfo = &application,
        .enabledLayerCount = validate, .ppEnabledLayerNames = layers,
        .enabledExtensionCount = validate, .ppEnabledExtensionNames = extensions };
    require(vkCreateInstance(&info, NULL, &instance) == VK_SUCCESS, "there is no Vulkan");
    if (!validate) return;
    PFN_vkCreateDebugUtilsMessengerEXT create =
        (PFN_vkCreateDebugUtilsMessengerEXT)vkGetInstanceProcAddr(instance, "vkCreateDebugUtilsMessengerEXT");
    static VkDebugUtilsMessengerEXT made;
    require(create != NULL && create(instance, &messenger, NULL, &made) == VK_SUCCESS, "no messenger");
}

static void create_device(void)
{
    uint32_t count = 1;
    const VkResult found = vkEnumeratePhysicalDevices(instance, &count, &physical);
    require((found == VK_SUCCESS || found == VK_INCOMPLETE) && count == 1, "there is no device");
    const float priority = 1.0f;
    const VkDeviceQueueCreateInfo queues = { .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueCount = 1, .pQueuePriorities = &priority };
    VkPhysicalDeviceVulkan12Features second = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .bufferDeviceAddress = 1, .storageBuffer8BitAccess = 1, .shaderInt8 = 1 };
    VkPhysicalDeviceVulkan11Features first = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .pNext = &second, .storageBuffer16BitAccess = 1 };
    const VkPhysicalDeviceFeatures2 features = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = &first, .features = { .shaderFloat64 = 1, .shaderInt64 = 1, .shaderInt16 = 1 } };
    const VkDeviceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &features,
        .queueCreateInfoCount = 1, .pQueueCreateInfos = &queues };
    require(vkCreateDevice(physical, &info, NULL, &device) == VK_SUCCESS, "the device lacks a feature");
    vkGetDeviceQueue(device, 0, 0, &queue);
}

static void create_memory(void)
{
    const VkBufferCreateInfo info = { .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = ROOM,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT };
    VkBuffer buffer;
    VkMemoryRequirements needs;
    VkPhysicalDeviceMemoryProperties kinds;
    require(vkCreateBuffer(device, &info, NULL, &buffer) == VK_SUCCESS, "no buffer");
    vkGetBufferMemoryRequirements(device, buffer, &needs);
    vkGetPhysicalDeviceMemoryProperties(physical, &kinds);
    const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    uint32_t kind = 0;
    while (kind < kinds.memoryTypeCount
           && (!(needs.memoryTypeBits >> kind & 1) || (kinds.memoryTypes[kind].propertyFlags & wanted) != wanted))
        ++kind;
    require(kind < kinds.memoryTypeCount, "the host sees no memory of the device");
    const VkMemoryAllocateFlagsInfo flags = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT };
    const VkMemoryAllocateInfo room = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &flags,
        .allocationSize = needs.size, .memoryTypeIndex = kind };
    VkDeviceMemory held;
    void *seen;
    require(vkAllocateMemory(device, &room, NULL, &held) == VK_SUCCESS, "no memory");
    require(vkBindBufferMemory(device, buffer, held, 0) == VK_SUCCESS, "the buffer has no memory");
    require(vkMapMemory(device, held, 0, VK_WHOLE_SIZE, 0, &seen) == VK_SUCCESS, "memory is not mapped");
    const VkBufferDeviceAddressInfo asked = { .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = buffer };
    mapped = seen;
    address = vkGetBufferDeviceAddress(device, &asked);
}

static void create_commands(void)
{
    const VkCommandPoolCreateInfo pool = { .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT };
    VkCommandBufferAllocateInfo info = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = 1 };
    const VkFenceCreateInfo fences = { .sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO };
    const VkPushConstantRange range = { VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSHED * 8 };
    const VkPipelineLayoutCreateInfo own = { .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 1, .pPushConstantRanges = &range };
    require(vkCreateCommandPool(device, &pool, NULL, &info.commandPool) == VK_SUCCESS, "no command pool");
    require(vkAllocateCommandBuffers(device, &info, &commands) == VK_SUCCESS, "no command buffer");
    require(vkCreateFence(device, &fences, NULL, &fence) == VK_SUCCESS, "no fence");
    require(vkCreatePipelineLayout(device, &own, NULL, &layout) == VK_SUCCESS, "no pipeline layout");
}

static VkShaderModule module_of(const char *path)
{
    FILE *const file = fopen(path, "rb");
    require(file != NULL && fseek(file, 0, SEEK_END) == 0, path);
    const long bytes = ftell(file);
    uint32_t *const words = malloc((size_t)bytes);
    rewind(file);
    require(words != NULL && fread(words, 1, (size_t)bytes, file) == (size_t)bytes, path);
    fclose(file);
    const VkShaderModuleCreateInfo info = { .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = (size_t)bytes, .pCode = words };
    VkShaderModule made;
    require(vkCreateShaderModule(device, &info, NULL, &made) == VK_SUCCESS, path);
    free(words);
    return made;
}

static VkPipeline pipeline_of(const launch *one)
{
    /* The number of the launch in its module, and behind it the threads of a group. */
    const VkSpecializationMapEntry entries[] = { { 0, 0, sizeof one->number }, { 1, sizeof one->number, sizeof one->group } };
    const VkSpecializationInfo number = { 2, entries, sizeof one->number + sizeof one->group, &one->number };
    const VkComputePipelineCreateInfo info = { .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, .layout = layout,
        .stage = { .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_COMPUTE_BIT,
            .module = modules[one->module], .pName = "main", .pSpecializationInfo = &number } };
    VkPipeline made;
    require(vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, NULL, &made) == VK_SUCCESS, "no pipeline");
    return made;
}

/* The arguments of a launch: in push constants, or where there are too many of them, in memory that those point to. */
static void record(const launch *one, const memory *all, uint64_t status, uint64_t *block, VkPipeline pipeline)
{
    static const VkMemoryBarrier barrier = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT };
    uint64_t values[MOST_ARGUMENTS] = { 0 };
    for (uint32_t i = 0; i < one->count; ++i) {
        const argument given = one->arguments[i];
        values[i] = given.kind == NUMBER ? given.value : address + (given.kind == STATUS ? status : all[given.value].at);
    }
    if (one->count >= PUSHED) {
        memcpy(mapped + *block, values, sizeof values);
        values[PUSHED - 1] = address + *block;
        *block += sizeof values;
    }
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSHED * 8, values);
    vkCmdDispatch(commands, one->groups, 1, 1);
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1,
        &barrier, 0, NULL, 0, NULL);
}

static void run(const launch *launches, uint32_t count, const memory *all, uint64_t status, uint64_t block)
{
    static const VkCommandBufferBeginInfo begin = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT };
    static const VkMemoryBarrier seen = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT, .dstAccessMask = VK_ACCESS_HOST_READ_BIT };
    const VkSubmitInfo submit = { .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1, .pCommandBuffers = &commands };
    VkPipeline pipelines[MOST_LAUNCHES];
    require(vkBeginCommandBuffer(commands, &begin) == VK_SUCCESS, "nothing is recorded");
    for (uint32_t i = 0; i < count; ++i) {
        pipelines[i] = pipeline_of(&launches[i]);
        record(&launches[i], all, status, &block, pipelines[i]);
    }
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &seen, 0, NULL,
        0, NULL);
    require(vkEndCommandBuffer(commands) == VK_SUCCESS, "the recording does not end");
    require(vkQueueSubmit(queue, 1, &submit, fence) == VK_SUCCESS, "nothing is submitted");
    require(vkWaitForFences(device, 1, &fence, VK_TRUE, UINT64_C(120000000000)) == VK_SUCCESS, "it takes too long");
    require(vkResetFences(device, 1, &fence) == VK_SUCCESS, "the fence stays");
    for (uint32_t i = 0; i < count; ++i) vkDestroyPipeline(device, pipelines[i], NULL);
}

static int is_damaged(const memory *one)
{
    int found = 0;
    for (int k = 1; k <= GUARD; ++k)
        found |= mapped[one->at - (uint64_t)k] != 0x5a || mapped[one->at + one->bytes + (uint64_t)k - 1] != 0x5a;
    return found;
}

int main(int count, char **words)
{
    const int validate = count > 1 && strcmp(words[1], "--validate") == 0;
    create_instance(validate);
    create_device();
    create_memory();
    create_commands();
    modules = calloc((size_t)count, sizeof *modules);
    require(modules != NULL, "no memory for modules");
    for (int i = 1 + validate; i < count; ++i) modules[i - 1 - validate] = module_of(words[i]);
    uint32_t head[2];
    while (fread(head, sizeof head, 1, stdin) == 1) {
        static memory all[MOST_BUFFERS];
        static launch launches[MOST_LAUNCHES];
        require(head[0] <= MOST_BUFFERS && head[1] <= MOST_LAUNCHES, "the case is too large");
        uint64_t at = 256, end;
        for (uint32_t i = 0; i < head[0]; ++i) {
            take(&all[i], 2 * sizeof(uint32_t));
            all[i].at = at += GUARD;
            at = (at + all[i].bytes + GUARD + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        }
        for (uint32_t i = 0; i < head[1]; ++i) {
            take(&launches[i], 5 * sizeof(uint32_t));
            require(launches[i].count <= MOST_ARGUMENTS, "too many arguments");
            take(launches[i].arguments, launches[i].count * sizeof(argument));
        }
        end = at + MOST_LAUNCHES * MOST_ARGUMENTS * 8;
        require(end <= ROOM, "the case needs more memory");
        memset(mapped, 0x5a, end);
        memcpy(mapped, &GOOD, sizeof GOOD);
        for (uint32_t i = 0; i < head[0]; ++i) {
            memset(mapped + all[i].at, 0xff, all[i].bytes);
            if (all[i].kind == INPUT) take(mapped + all[i].at, all[i].bytes);
        }
        run(launches, head[1], all, 0, at);
        uint32_t reply[2] = { 0, 0 };
        memcpy(reply, mapped, sizeof reply[0]);
        for (uint32_t i = 0; i < head[0]; ++i) reply[1] |= (uint32_t)is_damaged(&all[i]);
        give(reply, sizeof reply);
        for (uint32_t i = 0; i < head[0]; ++i)
            if (all[i].kind == OUTPUT) give(mapped + all[i].at, all[i].bytes);
        fflush(stdout);
    }
    return 0;
}
