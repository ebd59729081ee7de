$facts
/* Memory of a device, and launches on it. Projects differ only in the prefix of the functions' names. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Problems with a device, in the order of the project's messages for them. */
typedef enum {
    OI_NO_DRIVER, OI_NO_FEATURE, OI_NO_PIPELINE, OI_LOST, OI_FORKED, OI_NO_MEMORY, OI_FOREIGN, OI_TWO_DEVICES, OI_GOOD
} oi_problem;

$kernel
/* What an instance works in: memory from oi_memory_new, and weights, which are copied. */
typedef struct {
    void *arena, *state;
    const void *weights;
    size_t arena_bytes, state_bytes, weight_bytes;
    size_t inputs_at, input_bytes; /* the range of the arena that the host writes */
    size_t shown_bytes; /* of all outputs of a step */
    const oi_kernel *kernels;
    int32_t kernel_count, first_problem; /* the failure number of the first problem */
    uint32_t lanes; /* the subgroup size that the kernels assume; a device may have a larger one */
} oi_given;

/* Host mirrors of device memory, of the same size: a pointer into a mirror stands for the same offset on the device.
   Only what the host reads is copied into them. The mirror of the weights cannot be accessed. */
typedef struct {
    unsigned char *arena, *state;
    const unsigned char *weights;
} oi_mirrors;

/* An argument of a launch: a number or, unless at is NULL, memory of that many bytes. */
typedef struct {
    const void *at;
    int64_t number;
    bool is_written;
} oi_argument;

/* A slice of the cells of an array, each of entry elements: along each axis, count of them, from first on. */
typedef struct {
    int32_t axes, cell_bits, value_bits; /* bits of an element in the cells, and in a tensor on the other side */
    int64_t entry;
    uint64_t initial;                    /* the element that is read outside the array, or that a fill writes */
    int64_t shape[OI_MOST_AXES], first[OI_MOST_AXES], count[OI_MOST_AXES];
    unsigned char *cells;
} oi_cells;

/* A record in the undo log of a step: what has changed, and the offset of its old contents in the log's memory. */
typedef enum { OI_KEPT_HERE, OI_KEPT_THERE, OI_KEPT_CELLS, OI_KEPT_HEAP } oi_kept_kind;
typedef struct {
    oi_kept_kind kind;
    void *at;
    size_t bytes, place;
    int64_t failing; /* launches recorded before it that can fail */
    oi_cells cells;
} oi_kept;

typedef struct oi_queue oi_queue;

void *oi_memory_new(size_t bytes);
void oi_memory_free(void *memory);

oi_problem oi_open(const oi_given *given, oi_mirrors *mirrors, oi_queue **made);
void oi_close(oi_queue *queue);

/* Records a launch; it runs before the queue is settled. If failure is negative, it cannot fail; below -1, it may also
   run after an earlier one has failed. */
void oi_launch(oi_queue *queue, int32_t kernel, int64_t groups, int32_t failure, int32_t count, const oi_argument *given);

/* Records a copy. oi_keep_copy saves what is about to change, and copies even if an earlier launch has failed. */
void oi_copy(oi_queue *queue, void *to, const void *from, size_t bytes);
void oi_keep_copy(oi_queue *queue, void *to, const void *from, size_t bytes);

/* Records an access to cells: read into a tensor (0), written from one (1), filled with the initial element (2), or
   copied from another array of the same shape (3). Their old contents are saved in kept, unless it is NULL. */
void oi_move(oi_queue *queue, int32_t action, const oi_cells *cells, const void *value, void *kept);

/* Declares that only the next recorded move reads a tensor, so the launch that computes it may write the cells. */
void oi_hand_over(oi_queue *queue, const void *value);

/* Records a fill of elements with a value. */
void oi_set(oi_queue *queue, void *at, int32_t bits, int64_t count, uint64_t element);

/* Runs all recorded launches and waits for them. Returns the first failure, or -1. */
int32_t oi_settle(oi_queue *queue);

/* The same at the end of a step. Rollback copies after which no launch can fail are dropped: if an earlier launch
   fails, the writes that they precede do not happen. */
int32_t oi_finish(oi_queue *queue);

/* The number of launches recorded so far that can fail; and whether the copy of a record was made. */
int64_t oi_failing(const oi_queue *queue);
bool oi_is_kept(const oi_queue *queue, const oi_kept *record);

/* Updates the mirror from the device, waiting for launches if needed. Returns the first failure, or -1. */
int32_t oi_look(oi_queue *queue, const void *at, size_t bytes);

/* Copies what the host has written into the mirror to the device. */
void oi_upload(oi_queue *queue, const void *at, size_t bytes);

/* Declares memory that only the host uses: its mirror is never updated from the device. */
void oi_own(oi_queue *queue, const void *at, size_t bytes);

/* Where the host writes inputs; and copies of outputs, valid once the step is settled, until the next step. */
unsigned char *oi_inputs(oi_queue *queue);
void oi_show(oi_queue *queue, const void *at, size_t bytes, size_t most);
const void *oi_shown(const oi_queue *queue, const void *at);
bool oi_is_shown(const oi_queue *queue, const void *p);

/* A record of the undo log, by its number; NULL if out of memory. */
oi_kept *oi_record(oi_queue *queue, int64_t number);

/* The number of submissions so far, and of those that had to be recorded first. */
int64_t oi_submitted(const oi_queue *queue);
int64_t oi_recorded(const oi_queue *queue);

/* The number of launches in the last submission that waited for those before them. */
int64_t oi_waited(const oi_queue *queue);

/* Adds up times and calls of launches by their position, until nanoseconds is NULL; oi_place sets the next one's. */
void oi_time(oi_queue *queue, int64_t *nanoseconds, int64_t *calls);
void oi_place(oi_queue *queue, int32_t place);
