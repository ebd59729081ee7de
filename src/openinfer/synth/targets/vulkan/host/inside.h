/* What the files of the device share: devices, and memory on them. */

#include "device.h"

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

/* The device that memory is on, else a new one, which has all that is needed; its user gives it back. */
oi_problem oi_device_for(const oi_given *given, oi_device *known, oi_device **made);
void oi_device_free(oi_device *device);

/* What a pointer stands for: NULL if that is not memory which was asked for. */
oi_memory *oi_memory_of(const void *at);

/* Memory gets its bytes on a device, unless it has them; a second device is refused. */
oi_problem oi_memory_on(oi_memory *memory, oi_device *device);
