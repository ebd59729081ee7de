/* Memory of a device, and launches on it. The same for every project but for the names of its functions. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What can be wrong, in the order of the messages that the project has for it. */
typedef enum {
    OI_NO_DRIVER, OI_NO_FEATURE, OI_NO_PIPELINE, OI_LOST, OI_FORKED, OI_NO_MEMORY, OI_FOREIGN, OI_TWO_DEVICES, OI_GOOD
} oi_problem;

/* What an instance works in: memory that was asked for, and weights, which are copied. */
typedef struct {
    void *arena, *state;
    const void *weights;
    size_t arena_bytes, state_bytes, weight_bytes;
    size_t inputs_at, input_bytes; /* the part of the arena that the host writes */
    size_t shown_bytes; /* of all that a step shows the host */
    const oi_kernel *kernels;
    int32_t kernel_count, first_problem; /* the number of the first problem among all failures */
    uint32_t lanes; /* threads that kernels take to exchange values; a device may have more */
} oi_given;

/* Memory has a mirror here, of the same size: places in it stand for those on the device. Only what is looked at is
   copied into it. That of the weights cannot be looked at. */
typedef struct {
    unsigned char *arena, *state;
    const unsigned char *weights;
} oi_mirrors;

/* An argument of a launch: memory of so many bytes, or a number. */
typedef struct {
    const void *at;
    int64_t number;
    bool is_written;
} oi_argument;

/* Cells of an array, each of a number of elements: those from the first on, so many along each axis. */
typedef struct {
    int32_t axes, cell_bits, value_bits; /* the bits of elements there, and in a tensor that they are copied from or to */
    int64_t entry;
    uint64_t initial;                    /* the element that is read outside of the array, or that is filled in */
    int64_t shape[OI_MOST_AXES], first[OI_MOST_AXES], count[OI_MOST_AXES];
    unsigned char *cells;
} oi_cells;

/* What a step has changed: a place, and where among what is kept that is which was there before. */
typedef enum { OI_KEPT_HERE, OI_KEPT_THERE, OI_KEPT_CELLS, OI_KEPT_HEAP } oi_kept_kind;
typedef struct {
    oi_kept_kind kind;
    void *at;
    size_t bytes, place;
    int64_t failing; /* launches that can fail which were recorded before it */
    oi_cells cells;
} oi_kept;

typedef struct oi_queue oi_queue;

void *oi_memory_new(size_t bytes);
void oi_memory_free(void *memory);

oi_problem oi_open(const oi_given *given, oi_mirrors *mirrors, oi_queue **made);
void oi_close(oi_queue *queue);

/* Records a launch; it runs before the queue is settled. A negative failure is none; below -1, it may also run
   after another one has failed. */
void oi_launch(oi_queue *queue, int32_t kernel, int64_t groups, int32_t failure, int32_t count, const oi_argument *given);

/* Records a copy; one that keeps what is about to change is made even if something has failed before. */
void oi_copy(oi_queue *queue, void *to, const void *from, size_t bytes);
void oi_keep_copy(oi_queue *queue, void *to, const void *from, size_t bytes);

/* Records what is done to cells: they are read into a tensor (0), written from one (1), filled with the initial element
   (2), or copied from those of another array of the same shape (3). What they were is kept, if there is a place. */
void oi_move(oi_queue *queue, int32_t action, const oi_cells *cells, const void *value, void *kept);

/* Nothing reads a tensor but the move that is recorded next: the launch that makes it may put it there at once. */
void oi_hand_over(oi_queue *queue, const void *value);

/* Records that elements get a value. */
void oi_set(oi_queue *queue, void *at, int32_t bits, int64_t count, uint64_t element);

/* Runs all that is recorded, and waits for it. The first failure, or -1. */
int32_t oi_settle(oi_queue *queue);

/* The same at the end of a step. Copies for a rollback are left out where no later launch can fail: an earlier launch
   that fails stops the writes that they were made for. */
int32_t oi_finish(oi_queue *queue);

/* How many launches that can fail were recorded so far; and whether what a record keeps was copied. */
int64_t oi_failing(const oi_queue *queue);
bool oi_is_kept(const oi_queue *queue, const oi_kept *record);

/* The mirror gets what is on the device now, which may take waiting for what is recorded. The first failure, or -1. */
int32_t oi_look(oi_queue *queue, const void *at, size_t bytes);

/* The device gets what the host has written into the mirror. */
void oi_upload(oi_queue *queue, const void *at, size_t bytes);

/* Memory that only the host uses, on either side: it is not looked at. */
void oi_own(oi_queue *queue, const void *at, size_t bytes);

/* Where the host writes inputs; and what a step shows, from when it is settled until the next step. */
unsigned char *oi_inputs(oi_queue *queue);
void oi_show(oi_queue *queue, const void *at, size_t bytes, size_t most);
const void *oi_shown(const oi_queue *queue, const void *at);
bool oi_is_shown(const oi_queue *queue, const void *p);

/* Records of what a step has changed, by their numbers; NULL where there is no memory. */
oi_kept *oi_record(oi_queue *queue, int64_t number);

/* How often something was submitted so far, and how often it had to be recorded first. */
int64_t oi_submitted(const oi_queue *queue);
int64_t oi_recorded(const oi_queue *queue);

/* How many launches of the last submission waited for those before them. */
int64_t oi_waited(const oi_queue *queue);

/* Nanoseconds of every launch, by the number of its place: they are added up while there is an array. */
void oi_time(oi_queue *queue, int64_t *nanoseconds, int64_t *calls);
void oi_place(oi_queue *queue, int32_t place);
