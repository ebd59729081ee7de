/* Memory of a Vulkan device, and launches on it. The same for every project but for the names of its functions. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What can be wrong, in the order of the messages that the project has for it. */
typedef enum {
    OI_NO_DRIVER, OI_NO_FEATURE, OI_NO_PIPELINE, OI_LOST, OI_FORKED, OI_NO_MEMORY, OI_FOREIGN, OI_TWO_DEVICES, OI_GOOD
} oi_problem;

/* A compute shader in SPIR-V. */
typedef struct {
    const uint32_t *words;
    size_t bytes;
} oi_shader;

/* What an instance works in: memory that was asked for, and weights, which are copied. */
typedef struct {
    void *arena, *state;
    const void *weights;
    size_t arena_bytes, state_bytes, weight_bytes;
    const oi_shader *shaders;
    int32_t shader_count, first_problem; /* the number of the first problem among all failures */
    uint32_t lanes; /* threads that shaders take to exchange values; a device may have more */
} oi_given;

/* Where the same memory lies for the host. */
typedef struct {
    unsigned char *arena, *state;
    const unsigned char *weights;
} oi_mapped;

/* An argument of a launch: memory of so many bytes, or a number. */
typedef struct {
    const void *at;
    int64_t number;
    bool is_written;
} oi_argument;

typedef struct oi_queue oi_queue;

void *oi_memory_new(size_t bytes);
void oi_memory_free(void *memory);

oi_problem oi_open(const oi_given *given, oi_mapped *mapped, oi_queue **made);
void oi_close(oi_queue *queue);

/* Records a launch; it runs before the queue is settled. A negative failure is none; below -1, it may also run
   after another one has failed. */
void oi_launch(oi_queue *queue, int32_t shader, int64_t groups, int32_t failure, int32_t count, const oi_argument *given);

/* Records a copy. */
void oi_copy(oi_queue *queue, void *to, const void *from, size_t bytes);

/* Whether a launch that is recorded writes there, or reads what is to be written. */
bool oi_is_awaited(const oi_queue *queue, const void *at, size_t bytes, bool is_written);

/* Runs all that is recorded, and waits for it. The first failure, or -1. */
int32_t oi_settle(oi_queue *queue);

/* How often something was submitted so far, and how often it had to be recorded first. */
int64_t oi_submitted(const oi_queue *queue);
int64_t oi_recorded(const oi_queue *queue);

/* Nanoseconds of every launch, by the number of its place: they are added up while there is an array. */
void oi_time(oi_queue *queue, int64_t *nanoseconds, int64_t *calls);
void oi_place(oi_queue *queue, int32_t place);
