#define _GNU_SOURCE
#include "inside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint64_t MAGIC = UINT64_C(0x4f4943554d454d31);

/* --- devices ------------------------------------------------------------------------------------------------------ */

int oi_enter(const oi_device *device)
{
    int before = device->number;
    if (cudaGetDevice(&before) != cudaSuccess) before = device->number;
    if (before != device->number) cudaSetDevice(device->number);
    return before;
}

void oi_leave(int device)
{
    int now = device;
    if (cudaGetDevice(&now) == cudaSuccess && now != device) cudaSetDevice(device);
}

bool oi_is_own(const oi_device *own) { return own->process == getpid(); }

void oi_device_free(oi_device *own)
{
    if (own == NULL || __atomic_sub_fetch(&own->users, 1, __ATOMIC_ACQ_REL) > 0) return;
    free(own);
}

/* Gets the current device of the calling thread, if it has what the kernels need. */
static oi_problem device_new(const oi_given *given, oi_device **made)
{
    int count = 0, number = 0, lanes = 0;
    struct cudaFuncAttributes about;
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found == cudaErrorInitializationError) return OI_FORKED; /* the parent process used CUDA before the fork */
    if (found != cudaSuccess || count == 0 || cudaGetDevice(&number) != cudaSuccess) return OI_NO_DRIVER;
    if (cudaDeviceGetAttribute(&lanes, cudaDevAttrWarpSize, number) != cudaSuccess || (uint32_t)lanes < given->lanes)
        return OI_NO_FEATURE;
    /* Kernels are compiled for one architecture, and some need more shared memory than a group gets by default. */
    for (int32_t i = 0; i < given->kernel_count; ++i) {
        const oi_kernel *const kernel = &given->kernels[i];
        if (cudaFuncGetAttributes(&about, kernel->function) != cudaSuccess || (kernel->shared > 0
            && cudaFuncSetAttribute(kernel->function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel->shared)
                != cudaSuccess)) {
            (void)cudaGetLastError();
            return OI_NO_FEATURE;
        }
    }
    oi_device *const own = calloc(1, sizeof *own);
    if (own == NULL) return OI_NO_MEMORY;
    own->number = number;
    own->users = 1;
    own->process = getpid();
    *made = own;
    return OI_GOOD;
}

oi_problem oi_device_for(const oi_given *given, oi_device *known, oi_device **made)
{
    if (known == NULL) return device_new(given, made);
    if (!oi_is_own(known)) return OI_FORKED;
    const int before = oi_enter(known);
    const oi_problem problem = device_new(given, made);
    oi_leave(before);
    return problem;
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
    if (oi_is_own(device)) {
        const int before = oi_enter(device);
        if (own->held.there != NULL) cudaFree(own->held.there);
        if (own->held.pinned != NULL) cudaFreeHost(own->held.pinned);
        oi_leave(before);
    }
    if (own->use <= OI_HIDDEN && own->here != NULL) munmap(own->here, room_of(own));
    own->here = NULL;
    own->held = (oi_held){ NULL, NULL };
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

/* What the host writes is copied to the device before launches run; what it reads, launches write to host memory. */
static bool is_allocated(oi_memory *own)
{
    const size_t room = room_of(own);
    void *seen = NULL;
    if (own->use != OI_READ_BACK) {
        if (cudaMalloc(&own->held.there, room) != cudaSuccess) return false;
        own->address = (uint64_t)(uintptr_t)own->held.there;
    }
    if (own->use > OI_HIDDEN) {
        if (cudaHostAlloc(&own->held.pinned, room, cudaHostAllocMapped | cudaHostAllocPortable) != cudaSuccess) return false;
        seen = own->held.pinned;
    } else { /* a mirror takes up pages only where it is touched */
        const int access = own->use == OI_HIDDEN ? PROT_NONE : PROT_READ | PROT_WRITE;
        seen = mmap(NULL, room, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (seen == MAP_FAILED) return false;
    }
    own->here = seen;
    if (own->use != OI_READ_BACK) return true;
    void *address = NULL;
    if (cudaHostGetDevicePointer(&address, own->held.pinned, 0) != cudaSuccess) return false;
    own->address = (uint64_t)(uintptr_t)address;
    return true;
}

oi_problem oi_memory_on(oi_memory *own, oi_device *device, oi_use use)
{
    if (own->device != NULL) return own->device->number == device->number ? OI_GOOD : OI_TWO_DEVICES;
    own->device = device;
    own->use = use;
    __atomic_add_fetch(&device->users, 1, __ATOMIC_ACQ_REL);
    const int before = oi_enter(device);
    const bool is_good = is_allocated(own);
    if (!is_good) (void)cudaGetLastError();
    oi_leave(before);
    if (is_good) return OI_GOOD;
    unbound(own);
    return OI_NO_MEMORY;
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

bool oi_memory_put(const oi_memory *memory, size_t at, const void *from, size_t bytes)
{
    const int before = oi_enter(memory->device);
    /* A copy from pageable memory may return before the data has arrived on the device. */
    const bool is_good = bytes == 0
        || (cudaMemcpy((unsigned char *)memory->held.there + at, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess
            && cudaStreamSynchronize(cudaStreamLegacy) == cudaSuccess);
    oi_leave(before);
    return is_good;
}

bool oi_memory_get(const oi_memory *memory, size_t at, void *to, size_t bytes)
{
    const int before = oi_enter(memory->device);
    const bool is_good = bytes == 0
        || cudaMemcpy(to, (const unsigned char *)memory->held.there + at, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    oi_leave(before);
    return is_good;
}
