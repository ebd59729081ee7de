/* What the runtime of CUDA calls things. */

#include <cuda_runtime_api.h>
#include <sys/types.h>

typedef struct {
    int number;
    int32_t users;
    pid_t process;
} oi_device;

/* Memory of the device, memory of the host that the device reaches, or both. */
typedef struct {
    void *there, *pinned;
} oi_held;

/* Launches as a graph, from the second time on that they are wanted. */
typedef struct {
    cudaGraph_t graph;
    cudaGraphExec_t made;
    cudaGraphNode_t *nodes;
    int32_t room;
    bool is_known;
} oi_commands;

typedef struct {
    const oi_kernel *kernels;
    cudaStream_t stream;
    uint32_t *status, *seen; /* the number of the first launch that has failed: there, and here */
    cudaEvent_t *clock;
} oi_tools;

enum {
    PUSHED = 1 << 12, /* the most arguments of a launch */
};

/* The calling thread works with a device from now on; the device that it did work with. */
int oi_enter(const oi_device *device);
void oi_leave(int device);
