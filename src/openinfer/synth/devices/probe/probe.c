/* Describes the Vulkan device of this machine: one fact per line, a key and its value.
 *
 * The arguments are shaders: arithmetic on f32, on f64, and on f32 with subnormal numbers preserved, and conversions of
 * f16. Their results are compared with those of the CPU. Exits with 3 if there is no driver, with 4 if no device has the required features. */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

enum { NO_DRIVER = 3, NO_DEVICE = 4, FAILED = 5 };
enum { NORMAL = 1 << 16, TINY = 1 << 12, COUNT = NORMAL + TINY, GIVEN = 3, FOUND = 5, GROUP = 64 };
enum { PRODUCT, SUM, QUOTIENT, ROOT, FUSED };

typedef union { uint64_t bits; uint32_t word; float single; double wide; } number;
typedef struct { uint64_t given, found; uint32_t count; } arguments;

/* From VK_KHR_cooperative_matrix, which older headers lack. */
typedef struct {
    VkStructureType type;
    void *next;
    uint32_t m, n, k, a, b, c, result, saturates, scope;
} matrix_shape;
static const VkStructureType MATRIX_SHAPE = (VkStructureType)1000506001;
enum { SUBGROUP_SCOPE = 3 };
typedef VkResult(VKAPI_PTR *matrix_shapes)(VkPhysicalDevice, uint32_t *, matrix_shape *);

static VkInstance instance;
static VkPhysicalDevice physical;
static VkPhysicalDeviceVulkan12Features second = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES };
static VkPhysicalDeviceVulkan11Features first = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
    .pNext = &second };
static VkPhysicalDeviceFeatures2 features = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &first };
static VkPhysicalDeviceVulkan12Properties controls = {
    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES };
static VkPhysicalDeviceVulkan11Properties groups = {
    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &controls };
static VkPhysicalDeviceProperties2 about = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &groups };

static void require(int is_good, int code, const char *what)
{
    if (is_good) return;
    fprintf(stderr, "%s\n", what);
    exit(code);
}

static void number_fact(const char *key, uint64_t value) { printf("%s %llu\n", key, (unsigned long long)value); }

/* --- limits and features ------------------------------------------------------------------------------------------ */

static int has_extension(const char *name)
{
    uint32_t count = 0;
    vkEnumerateDeviceExtensionProperties(physical, NULL, &count, NULL);
    VkExtensionProperties *const all = calloc((size_t)count + 1, sizeof *all);
    require(all != NULL, FAILED, "out of memory");
    vkEnumerateDeviceExtensionProperties(physical, NULL, &count, all);
    int found = 0;
    for (uint32_t i = 0; i < count; ++i) found |= strcmp(all[i].extensionName, name) == 0;
    free(all);
    return found;
}

/* Prefers a discrete GPU, and a CPU least, as generated programs do. */
static void choose_device(void)
{
    static const int rank[] = { 1, 3, 4, 2, 0 };
    const VkApplicationInfo application = { .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .apiVersion = VK_API_VERSION_1_3 };
    const VkInstanceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pApplicationInfo = &application };
    require(vkCreateInstance(&info, NULL, &instance) == VK_SUCCESS, NO_DRIVER, "there is no driver");
    VkPhysicalDevice devices[16];
    uint32_t count = 16;
    int best = -1;
    const VkResult found = vkEnumeratePhysicalDevices(instance, &count, devices);
    require((found == VK_SUCCESS || found == VK_INCOMPLETE) && count > 0, NO_DRIVER, "there is no device");
    for (uint32_t i = 0; i < count; ++i) {
        VkPhysicalDeviceProperties one;
        vkGetPhysicalDeviceProperties(devices[i], &one);
        const int own = one.deviceType <= VK_PHYSICAL_DEVICE_TYPE_CPU ? rank[one.deviceType] : 0;
        if (one.apiVersion < VK_API_VERSION_1_2 || own <= best) continue;
        best = own;
        physical = devices[i];
    }
    require(best >= 0, NO_DEVICE, "no device supports Vulkan 1.2");
    vkGetPhysicalDeviceFeatures2(physical, &features);
    vkGetPhysicalDeviceProperties2(physical, &about);
}

static void say_limits(void)
{
    const VkPhysicalDeviceLimits *const limits = &about.properties.limits;
    printf("name %s\ndriver %s %s\n", about.properties.deviceName, controls.driverName, controls.driverInfo);
    number_fact("vendor", about.properties.vendorID);
    for (int i = 0; i < 3; ++i) number_fact("limits.max_workgroup_size", limits->maxComputeWorkGroupSize[i]);
    number_fact("limits.max_workgroup_invocations", limits->maxComputeWorkGroupInvocations);
    number_fact("limits.max_shared_memory_bytes", limits->maxComputeSharedMemorySize);
    number_fact("limits.max_push_constants_bytes", limits->maxPushConstantsSize);
    number_fact("limits.max_storage_buffer_range_bytes", limits->maxStorageBufferRange);
    number_fact("limits.subgroup_size", groups.subgroupSize);
    if (has_extension("VK_NV_shader_sm_builtins")) {
        VkPhysicalDeviceShaderSMBuiltinsPropertiesNV units = {
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV };
        VkPhysicalDeviceProperties2 asked = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &units };
        vkGetPhysicalDeviceProperties2(physical, &asked);
        number_fact("limits.compute_units", units.shaderSMCount);
    }
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(physical, &memory);
    uint64_t most = 0;
    for (uint32_t i = 0; i < memory.memoryHeapCount; ++i)
        if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT && memory.memoryHeaps[i].size > most)
            most = memory.memoryHeaps[i].size;
    number_fact("memory.global_bytes", most);
}

static void say_matrices(void)
{
    const matrix_shapes ask =
        (matrix_shapes)vkGetInstanceProcAddr(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    uint32_t count = 0;
    if (ask == NULL || ask(physical, &count, NULL) != VK_SUCCESS) return;
    matrix_shape *const all = calloc((size_t)count + 1, sizeof *all);
    require(all != NULL, FAILED, "out of memory");
    for (uint32_t i = 0; i < count; ++i) all[i].type = MATRIX_SHAPE;
    require(ask(physical, &count, all) >= VK_SUCCESS, FAILED, "the shapes of cooperative matrices cannot be queried");
    for (uint32_t i = 0; i < count; ++i)
        if (all[i].scope == SUBGROUP_SCOPE && !all[i].saturates && all[i].c == all[i].result)
            printf("matrix %u %u %u %u %u %u\n", all[i].a, all[i].b, all[i].c, all[i].m, all[i].n, all[i].k);
    free(all);
}

static void say_features(void)
{
    const VkSubgroupFeatureFlags has = groups.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT
        ? groups.subgroupSupportedOperations : 0;
    const int shuffles = (has & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0;
    const int has_matrices = has_extension("VK_KHR_cooperative_matrix");
    VkPhysicalDeviceShaderIntegerDotProductProperties dots = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES };
    VkPhysicalDeviceProperties2 asked = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &dots };
    if (about.properties.apiVersion >= VK_API_VERSION_1_3 || has_extension("VK_KHR_shader_integer_dot_product"))
        vkGetPhysicalDeviceProperties2(physical, &asked);
    number_fact("features.fp16", second.shaderFloat16);
    number_fact("features.int8", second.shaderInt8);
    number_fact("features.int8_dot", dots.integerDotProduct4x8BitPackedSignedAccelerated);
    number_fact("features.int16", features.features.shaderInt16);
    number_fact("features.subgroup_ops", shuffles && (has & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) != 0);
    number_fact("features.subgroup_shuffle", (uint64_t)shuffles);
    number_fact("features.buffer_addresses", second.bufferDeviceAddress);
    number_fact("features.cooperative_matrix", (uint64_t)has_matrices);
    number_fact("features.fp64", features.features.shaderFloat64);
    number_fact("features.int64", features.features.shaderInt64);
    number_fact("features.storage_8bit", second.storageBuffer8BitAccess);
    number_fact("features.storage_16bit", first.storageBuffer16BitAccess);
    if (has_matrices) say_matrices();
}

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

static VkDevice device;
static VkQueue queue;
static uint32_t family;
static unsigned char *mapped;
static uint64_t address;

static void create_device(void)
{
    VkQueueFamilyProperties families[16];
    uint32_t count = 16;
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
    while (family < count && !(families[family].queueFlags & VK_QUEUE_COMPUTE_BIT)) ++family;
    require(family < count, NO_DEVICE, "the device has no compute queue");
    const float priority = 1.0f;
    const VkDeviceQueueCreateInfo queues = { .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = family, .queueCount = 1, .pQueuePriorities = &priority };
    VkPhysicalDeviceVulkan12Features addresses = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .bufferDeviceAddress = 1 };
    const VkPhysicalDeviceFeatures2 wanted = { .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = &addresses, .features = { .shaderFloat64 = features.features.shaderFloat64 } };
    const VkDeviceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &wanted,
        .queueCreateInfoCount = 1, .pQueueCreateInfos = &queues };
    require(vkCreateDevice(physical, &info, NULL, &device) == VK_SUCCESS, FAILED, "the device cannot be opened");
    vkGetDeviceQueue(device, family, 0, &queue);
}

static void create_memory(void)
{
    const VkBufferCreateInfo info = { .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = (GIVEN + FOUND) * COUNT * sizeof(number),
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT };
    VkBuffer buffer;
    VkMemoryRequirements needs;
    VkPhysicalDeviceMemoryProperties kinds;
    require(vkCreateBuffer(device, &info, NULL, &buffer) == VK_SUCCESS, FAILED, "the buffer cannot be created");
    vkGetBufferMemoryRequirements(device, buffer, &needs);
    vkGetPhysicalDeviceMemoryProperties(physical, &kinds);
    const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    uint32_t kind = 0;
    while (kind < kinds.memoryTypeCount
           && (!(needs.memoryTypeBits >> kind & 1) || (kinds.memoryTypes[kind].propertyFlags & wanted) != wanted))
        ++kind;
    require(kind < kinds.memoryTypeCount, FAILED, "the device has no host-visible memory");
    const VkMemoryAllocateFlagsInfo flags = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT };
    const VkMemoryAllocateInfo room = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &flags,
        .allocationSize = needs.size, .memoryTypeIndex = kind };
    VkDeviceMemory held;
    void *seen = NULL;
    require(vkAllocateMemory(device, &room, NULL, &held) == VK_SUCCESS
            && vkBindBufferMemory(device, buffer, held, 0) == VK_SUCCESS
            && vkMapMemory(device, held, 0, VK_WHOLE_SIZE, 0, &seen) == VK_SUCCESS, FAILED, "out of device memory");
    const VkBufferDeviceAddressInfo asked = { .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = buffer };
    mapped = seen;
    address = vkGetBufferDeviceAddress(device, &asked);
}

static VkPipeline pipeline_of(const char *path, VkPipelineLayout layout)
{
    FILE *const file = fopen(path, "rb");
    require(file != NULL && fseek(file, 0, SEEK_END) == 0, FAILED, path);
    const long bytes = ftell(file);
    uint32_t *const words = malloc((size_t)bytes);
    rewind(file);
    require(words != NULL && fread(words, 1, (size_t)bytes, file) == (size_t)bytes, FAILED, path);
    fclose(file);
    const VkShaderModuleCreateInfo code = { .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = (size_t)bytes, .pCode = words };
    VkComputePipelineCreateInfo info = { .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, .layout = layout,
        .stage = { .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_COMPUTE_BIT,
            .pName = "main" } };
    VkPipeline made = VK_NULL_HANDLE;
    require(vkCreateShaderModule(device, &code, NULL, &info.stage.module) == VK_SUCCESS
            && vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, NULL, &made) == VK_SUCCESS, FAILED, path);
    free(words);
    return made;
}

/* Runs a shader and returns its results. */
static const number *run(const char *path, const number *given)
{
    const VkPushConstantRange range = { VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(arguments) };
    const VkPipelineLayoutCreateInfo own = { .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 1, .pPushConstantRanges = &range };
    const VkCommandPoolCreateInfo pool = { .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .queueFamilyIndex = family };
    VkCommandBufferAllocateInfo info = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = 1 };
    const VkCommandBufferBeginInfo begin = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO };
    const VkMemoryBarrier seen = { .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT, .dstAccessMask = VK_ACCESS_HOST_READ_BIT };
    const uint64_t half = GIVEN * COUNT * sizeof(number);
    const arguments here = { address, address + half, COUNT };
    VkPipelineLayout layout = VK_NULL_HANDLE;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    memcpy(mapped, given, half);
    require(vkCreatePipelineLayout(device, &own, NULL, &layout) == VK_SUCCESS
            && vkCreateCommandPool(device, &pool, NULL, &info.commandPool) == VK_SUCCESS
            && vkAllocateCommandBuffers(device, &info, &commands) == VK_SUCCESS
            && vkBeginCommandBuffer(commands, &begin) == VK_SUCCESS, FAILED, "the commands cannot be recorded");
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline_of(path, layout));
    vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof here, &here);
    vkCmdDispatch(commands, (COUNT + GROUP - 1) / GROUP, 1, 1);
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &seen, 0, NULL,
        0, NULL);
    const VkSubmitInfo submit = { .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1, .pCommandBuffers = &commands };
    require(vkEndCommandBuffer(commands) == VK_SUCCESS && vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE) == VK_SUCCESS
            && vkQueueWaitIdle(queue) == VK_SUCCESS, FAILED, "the shader failed");
    return (const number *)(void *)(mapped + half);
}

static uint64_t random_bits(void)
{
    static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state * UINT64_C(0x2545f4914f6cdd1d);
}

/* Normal numbers around 1, then numbers of which some are subnormal, or have subnormal sums and products. In every
 * other normal triple, the third is minus the rounded product of the others: two roundings lose what remains. */
static void choose_singles(number *given)
{
    for (int i = 0; i < COUNT; ++i, given += GIVEN) {
        for (int k = 0; k < GIVEN; ++k) {
            const uint32_t bits = (uint32_t)(random_bits() >> 32);
            const uint32_t exponent = i < NORMAL ? 107 + bits % 40 : bits % 3 == 0 ? 0 : bits % 70;
            given[k].bits = (bits & 0x7fffffu) | exponent << 23;
        }
        if (i < NORMAL && i % 2) given[2].single = -(given[0].single * given[1].single);
    }
}

static void choose_doubles(number *given)
{
    for (int i = 0; i < COUNT; ++i, given += GIVEN) {
        for (int k = 0; k < GIVEN; ++k) {
            const uint64_t bits = random_bits();
            given[k].bits = (bits & UINT64_C(0xfffffffffffff)) | (1003 + (bits >> 52) % 40) << 52;
        }
        if (i % 2) given[2].wide = -(given[0].wide * given[1].wide);
    }
}

/* Which f32 operations have the results of the CPU: a bit for each on normal numbers, and one for sums and products of
 * subnormal ones. */
enum { SUBNORMAL = 1 << FOUND };
static int exact_singles(const char *path)
{
    static number given[GIVEN * COUNT];
    choose_singles(given);
    const number *found = run(path, given);
    int exact = (1 << (FOUND + 1)) - 1;
    for (int i = 0; i < COUNT; ++i, found += FOUND) {
        const float a = given[GIVEN * i].single, b = given[GIVEN * i + 1].single, c = given[GIVEN * i + 2].single;
        const number wanted[FOUND] = { { .single = a * b }, { .single = a + b }, { .single = a / b },
            { .single = sqrtf(a) }, { .single = fmaf(a, b, c) } };
        for (int k = 0; k < FOUND; ++k) {
            if (found[k].word == wanted[k].word) continue;
            if (i < NORMAL) exact &= ~(1 << k);
            else if (k == PRODUCT || k == SUM) exact &= ~SUBNORMAL;
        }
    }
    return exact;
}

static int is_fused_in_doubles(const char *path)
{
    static number given[GIVEN * COUNT];
    choose_doubles(given);
    const number *found = run(path, given);
    int exact = 1;
    for (int i = 0; i < COUNT; ++i, found += FOUND)
        exact &= found[FUSED].wide == fma(given[GIVEN * i].wide, given[GIVEN * i + 1].wide, given[GIVEN * i + 2].wide);
    return exact;
}

/* Numbers of the size of f16 and slightly beyond, of any number of digits, and next to such; and every pair of a code
 * and its complement. */
static void choose_halves(number *given)
{
    for (int i = 0; i < COUNT; ++i, given += GIVEN) {
        for (int k = 0; k < 2; ++k) {
            const uint64_t bits = random_bits();
            const uint32_t digits = (uint32_t)(bits >> 32), exponent = bits % 64 == 0 ? 255 : 100 + (bits >> 6) % 45;
            const uint32_t last = digits >> 27, mantissa = (digits & 0x7fffffu) >> last << last;
            given[k].bits = ((uint32_t)(bits >> 31) & 0x80000000u) | exponent << 23 | (mantissa + (bits >> 14) % 3 / 2);
        }
        given[2].bits = ((uint32_t)~i & 0xffffu) << 16 | ((uint32_t)i & 0xffffu);
    }
}

static double value_of_half(uint32_t code)
{
    const int exponent = (int)(code >> 10 & 31), digits = (int)(code & 1023);
    const double size = exponent == 31 ? (digits ? NAN : INFINITY)
        : exponent == 0 ? ldexp(digits, -24) : ldexp(digits + 1024, exponent - 25);
    return copysign(size, code & 0x8000u ? -1.0 : 1.0);
}

/* The nearest f16; of two, the even one. */
static double half_of(float x)
{
    if (x == 0 || !isfinite(x)) return x;
    const int exponent = ilogbf(x) < -14 ? -24 : ilogbf(x) - 10;
    const double rounded = ldexp(nearbyint(ldexp(x, -exponent)), exponent);
    return copysign(fabs(rounded) < 65536 ? fabs(rounded) : INFINITY, x);
}

static int is_same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

static int has_exact_halves(const char *path)
{
    static number given[GIVEN * COUNT];
    choose_halves(given);
    const number *found = run(path, given), *own = given;
    int exact = 1;
    for (int i = 0; i < COUNT; ++i, found += FOUND, own += GIVEN) {
        for (int k = 0; k < 2; ++k) {
            exact &= is_same(value_of_half(found[0].word >> 16 * k & 0xffffu), half_of(own[k].single));
            exact &= is_same(found[k + 1].single, value_of_half(own[2].word >> 16 * k & 0xffffu));
        }
    }
    return exact;
}

static void say_numerics(char **shaders)
{
    create_device();
    create_memory();
    const int exact = exact_singles(shaders[1]);
    require(exact & 1 << PRODUCT && exact & 1 << SUM, FAILED, "sums or products of f32 are wrong");
    const int is_fused = exact & 1 << FUSED && (!features.features.shaderFloat64 || is_fused_in_doubles(shaders[2]));
    printf("numerics.f32_division %s\n", exact & 1 << QUOTIENT ? "exact" : "last bit");
    printf("numerics.f32_sqrt %s\n", exact & 1 << ROOT ? "exact" : "last bit");
    printf("numerics.fma %s\n", is_fused ? "exact" : "two roundings");
    const int may_ask = !(exact & SUBNORMAL) && controls.shaderDenormPreserveFloat32;
    const int asked = may_ask && exact_singles(shaders[3]) & SUBNORMAL;
    printf("numerics.f32_subnormals %s\n", exact & SUBNORMAL ? "exact" : asked ? "when_asked" : "flushed");
    printf("numerics.f16_conversions %s\n", has_exact_halves(shaders[4]) ? "exact" : "inexact");
}

int main(int count, char **words)
{
    require(count == 5, FAILED, "expected four shaders");
    choose_device();
    say_limits();
    say_features();
    if (second.bufferDeviceAddress) say_numerics(words);
    return 0;
}
