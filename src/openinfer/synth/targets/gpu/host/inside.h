/* What the files of the device share: devices, and memory on them. */

#include "device.h"

#include "api.h"

/* Memory of the device's own, which has a mirror here (or only addresses for one); memory that the host writes; memory
   that the host reads. */
typedef enum { OI_MIRRORED, OI_HIDDEN, OI_WRITTEN, OI_READ_BACK } oi_use;

enum { OI_OWNED = 256 }; /* pieces of a state that only the host uses */

/* Memory that was asked for; it lies on a device from the first time on that an instance gets it. */
typedef struct oi_memory {
    uint64_t magic;
    struct oi_memory *self;
    size_t bytes;
    oi_device *device;
    oi_held held;
    oi_use use;
    unsigned char *here; /* the mirror, or the memory itself */
    uint64_t address;
    const void *user; /* the instance that last worked on it */
    struct {
        size_t at, bytes;
    } owned[OI_OWNED];
    int32_t owned_count;
} oi_memory;

/* Whether a device belongs to this process. */
bool oi_is_own(const oi_device *device);

/* The device that memory is on, else a new one, which has all that is needed; its user gives it back. */
oi_problem oi_device_for(const oi_given *given, oi_device *known, oi_device **made);
void oi_device_free(oi_device *device);

/* What a pointer stands for: NULL if that is not memory which was asked for. */
oi_memory *oi_memory_of(const void *at);

/* Memory gets its bytes on a device, unless it has them; a second device is refused. */
oi_problem oi_memory_on(oi_memory *memory, oi_device *device, oi_use use);

/* Copies between the host and a device's own memory; nothing else may work on it. Whether that went well. */
bool oi_memory_put(const oi_memory *memory, size_t at, const void *from, size_t bytes);
bool oi_memory_get(const oi_memory *memory, size_t at, void *to, size_t bytes);

/* --- instances ---------------------------------------------------------------------------------------------------- */

enum {
    HEAD = 64,         /* bytes of the block for the status */
    BLOCK = 1 << 20,   /* bytes of the block up to the end of arguments */
    DATA = 1 << 18,    /* bytes behind them for what the host puts into memory */
    SCALAR = 256,      /* the most bytes of what the host looks at while a step runs */
    LOOKED = 1 << 14,  /* bytes that are read back for such */
    SPARE = 1 << 15,   /* bytes of the block for launches that read back */
    RANGES = 4096,     /* pieces of memory that the launches of one submission work on */
    KEPT = 32,         /* recordings */
    CLOCKED = 4096,    /* launches of a submission that are timed */
    COUNTED = 1024,    /* the most groups of a launch that each say when they have ended */
};

/* A launch. Its values are the groups (as an indirect dispatch has them: two words), then the arguments. */
typedef struct {
    int32_t kernel, failure, place, count;
    size_t at;     /* the place of its values */
    bool waits;    /* for all launches before it */
    bool is_given; /* groups and arguments are read from the block: they have not been the same every time */
    bool awaits;   /* it begins at once, and its groups wait by themselves */
    int64_t keeps; /* launches that can fail before it, if it copies what is about to change; else -1 */
} oi_call;

typedef struct {
    oi_call *calls;
    uint64_t *values;
    int32_t count, room;
    size_t used, space;
} oi_calls;

/* Launches as commands, which are submitted again as long as the same is wanted. */
typedef struct {
    oi_commands commands;
    oi_calls calls;
    int64_t when; /* the submission that it was last used by */
} oi_recording;

typedef struct {
    const unsigned char *first, *end;
    bool is_written;
    int32_t call, argument; /* of a launch */
} oi_range;

/* A place that the host looks at, and its copy in memory that is read back; what is small and has been looked at once is
   from then on copied whenever it changes. */
typedef struct {
    const unsigned char *at;
    size_t bytes, room, slot;
    bool is_new;    /* the copy is what the device has */
    bool is_here;   /* the mirror is */
    bool is_looked; /* somebody has looked */
    bool is_asked;  /* a copy is recorded */
} oi_watch;

struct oi_queue {
    oi_device *device;
    oi_memory *arena, *state;
    oi_memory *weights; /* a copy of them */
    oi_memory *block;   /* the status, arguments that change, data */
    oi_memory *inputs, *shown;
    const unsigned char *inputs_at;
    size_t input_bytes, data_used, shown_used;
    oi_watch *watches;
    int32_t watch_count, watch_room;
    oi_kept *records;
    int64_t record_room;
    int32_t first_problem;
    oi_tools tools;
    uint64_t status;            /* the address of the word for the first failure */
    oi_calls wanted;            /* since the last submission */
    oi_recording kept[KEPT];
    int64_t submissions, recordings, waits;
    int64_t failing; /* launches that can fail, recorded so far */
    int64_t unkept;  /* copies for a rollback that were made after so many of them were left out; -1: none were */
    int32_t place;
    int32_t failed;             /* the first failure, until somebody asks */
    bool is_lost, is_checking, can_fail, is_settling, is_timed;
    bool has_inputs;            /* there are some that no submission has seen */
    const void *handed_over;    /* a tensor that only what comes next reads */
    oi_range touched[RANGES];   /* what launches work on */
    int32_t touched_count, since; /* and from where on, behind the last barrier */
    int64_t *nanoseconds, *calls;
};

bool oi_is_in(const void *at, const void *first, size_t bytes);

/* The address on the device of a place in memory of the instance. */
uint64_t oi_address(const oi_queue *queue, const void *at);

/* What the host has seen of a place is not what is there any more. */
void oi_outdate(oi_queue *queue, const oi_range *changed);

/* The instance cannot be used any more. */
void oi_lose(oi_queue *queue, oi_problem problem);

/* The number of a launch, by which it knows whether one before it has failed; 0 if it does not look. */
uint64_t *oi_number_of(const oi_queue *queue, const oi_call *call);

/* Records copies of what the host wants to see; and what becomes of them when they are made, or something failed. */
void oi_ask_again(oi_queue *queue);
void oi_answered(oi_queue *queue, bool has_failed);

/* --- commands: what a device is told, by the interface that it has -------------------------------------------------- */

/* What an instance needs to have its kernels run. */
oi_problem oi_tools_new(oi_queue *queue, const oi_given *given);
void oi_tools_free(oi_queue *queue);

/* Whether groups of a kernel wait for others by themselves, and are counted when they end. */
bool oi_counts(const oi_queue *queue, int32_t kernel);

/* Launches become commands; commands run, and have ended. Whether that went well. */
bool oi_commands_made(oi_queue *queue, oi_recording *recording);
bool oi_commands_run(oi_queue *queue, oi_recording *recording);

/* The number of the first launch that has failed, which is forgotten; 0 if none has. */
uint32_t oi_first_failed(oi_queue *queue);

/* Whether launches can be timed, from now on; and how long those of the last submission took. */
bool oi_clock_runs(oi_queue *queue, bool is_wanted);
void oi_add_times(oi_queue *queue);
