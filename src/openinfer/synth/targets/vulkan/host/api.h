/* The Vulkan objects behind the types of the device interface. */

#include <pthread.h>
#include <sys/types.h>
#include <vulkan/vulkan.h>

typedef struct {
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family;
    double tick; /* nanoseconds per tick of the clock; 0 without one */
    bool is_processor; /* the device is a CPU: do not poll while waiting for it */
    VkPhysicalDeviceMemoryProperties kinds;
    pthread_mutex_t lock; /* of the queue */
    int32_t users;
    pid_t process;
} oi_device;

typedef struct {
    VkBuffer buffer;
    VkDeviceMemory memory;
} oi_held;

typedef VkCommandBuffer oi_commands;

typedef struct {
    VkShaderModule *modules;
    VkPipeline *pipelines;
    int32_t count;
    VkPipelineLayout layout;
    VkCommandPool pool;
    VkFence fence;
    VkQueryPool clock;
    const oi_kernel *kernels;
    struct oi_memory *teams; /* the words of teams, all zero between launches; or NULL */
} oi_tools;

enum {
    PUSHED = 16, /* 64-bit words that fit in the push constants of every device */
    TAKEN = 0,   /* bytes behind the inputs, for the device's own use */
};
