/* The objects of the CUDA runtime behind the types of the device interface. */

#include <cuda_runtime_api.h>
#include <sys/types.h>

typedef struct {
    int number;
    int32_t users;
    pid_t process;
} oi_device;

/* Device memory, pinned host memory that the device can access, or both. */
typedef struct {
    void *there, *pinned;
} oi_held;

/* Launches as a graph, from their second submission on. */
typedef struct {
    cudaGraph_t graph;
    cudaGraphExec_t made;
    cudaGraphNode_t *nodes;
    cudaGraphNode_t take; /* copies to the device what the host has written */
    int32_t room;
    bool is_known;
} oi_commands;

typedef struct {
    const oi_kernel *kernels;
    cudaStream_t stream;
    uint32_t *status, *seen; /* the number of the first launch that failed: on the device, and on the host */
    cudaEvent_t *clock;
} oi_tools;

enum {
    PUSHED = 1 << 12, /* the most arguments of a launch */
    TAKEN = 1 << 20,  /* bytes behind the inputs, for the words that kernels look up: as many as the block has */
};

/* Makes a device current for the calling thread and returns the previous one's number, for oi_leave. */
int oi_enter(const oi_device *device);
void oi_leave(int device);
