/* What Vulkan calls things. */

#include <pthread.h>
#include <sys/types.h>
#include <vulkan/vulkan.h>

typedef struct {
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family;
    double tick; /* nanoseconds; 0 where there is no clock */
    bool is_processor; /* it is this machine's: whoever waits for it must not keep it busy */
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
} oi_tools;

enum { PUSHED = 16 }; /* words of 64 bits that the push constants of every device hold */
