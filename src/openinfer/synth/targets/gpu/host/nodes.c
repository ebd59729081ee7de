/* Runs kernels one at a time, for a caller that reads every result. Each has its own queue; all of them share an arena,
   and so a device. */

#include "inside.h"

#include <stdlib.h>

typedef struct {
    int32_t kernel, first, count, can_fail; /* count arguments, from index first on */
    int64_t groups;
} nodes_launch;

/* Memory of number bytes at an offset in the arena, or just a number if the offset is negative. */
typedef struct {
    int64_t offset, number;
    int32_t is_written;
} nodes_argument;

typedef struct {
    oi_queue *queue;
    const oi_memory *memory;
    unsigned char *arena; /* the mirror */
    int64_t nanoseconds, calls;
} nodes_kernel;

enum { NODES_REFUSED = 0, NODES_PROBLEM = 1 }; /* how a run ends: -1, the first, or the second plus a problem */

void *nodes_memory(size_t bytes) { return oi_memory_new(bytes); }

void nodes_release(void *memory) { oi_memory_free(memory); }

/* Returns -1, or the problem. */
int32_t nodes_open(void *arena, size_t bytes, const oi_kernel *kernels, int32_t count, uint32_t lanes, nodes_kernel **made)
{
    const oi_given given = { .arena = arena, .arena_bytes = bytes, .kernels = kernels, .kernel_count = count,
        .first_problem = NODES_PROBLEM, .lanes = lanes };
    oi_mirrors mirrors = { 0 };
    nodes_kernel *const own = calloc(1, sizeof *own);
    if (own == NULL) return OI_NO_MEMORY;
    const oi_problem problem = oi_open(&given, &mirrors, &own->queue);
    if (problem != OI_GOOD) {
        free(own);
        return (int32_t)problem;
    }
    own->memory = oi_memory_of(arena);
    own->arena = mirrors.arena;
    oi_time(own->queue, &own->nanoseconds, &own->calls);
    *made = own;
    return -1;
}

void nodes_close(nodes_kernel *own)
{
    if (own == NULL) return;
    oi_close(own->queue);
    free(own);
}

/* The mirror of the arena. */
unsigned char *nodes_bytes(const nodes_kernel *own) { return own->arena; }

/* Runs launches and waits for them. Uploads the first given_bytes of the mirror before, and downloads made_bytes from
   made_at on after. Sets nanoseconds to the time on the device, or to -1 if it has no clock. */
int32_t nodes_run(nodes_kernel *own, int32_t count, const nodes_launch *launches, const nodes_argument *arguments,
    size_t given_bytes, size_t made_at, size_t made_bytes, int64_t *nanoseconds)
{
    oi_argument given[64];
    own->nanoseconds = own->calls = 0;
    if (!oi_memory_put(own->memory, 0, own->arena, given_bytes)) return NODES_PROBLEM + (int32_t)OI_LOST;
    for (int32_t i = 0; i < count; ++i) {
        const nodes_launch *const one = &launches[i];
        if (one->count > 64) return NODES_PROBLEM + (int32_t)OI_NO_MEMORY;
        for (int32_t k = 0; k < one->count; ++k) {
            const nodes_argument *const from = &arguments[one->first + k];
            given[k] = (oi_argument){ from->offset < 0 ? NULL : own->arena + from->offset, from->number,
                from->is_written != 0 };
        }
        oi_place(own->queue, 0);
        oi_launch(own->queue, one->kernel, one->groups, one->can_fail ? NODES_REFUSED : -1, one->count, given);
    }
    const int32_t failed = oi_settle(own->queue);
    *nanoseconds = own->calls > 0 ? own->nanoseconds : -1;
    if (failed < 0 && !oi_memory_get(own->memory, made_at, own->arena + made_at, made_bytes))
        return NODES_PROBLEM + (int32_t)OI_LOST;
    return failed;
}
