/* Internal header of the device sources: devices and their memory, instances, and commands. */

#include "device.h"

#include "api.h"

/* Device memory with a mirror on the host; the same, but only addresses are reserved for the mirror; memory that the
   host writes; memory that the host reads back. */
typedef enum { OI_MIRRORED, OI_HIDDEN, OI_WRITTEN, OI_READ_BACK } oi_use;

enum { OI_OWNED = 256 }; /* most ranges of a state that only the host uses */

/* An allocation. It is bound to a device when the first instance uses it. */
typedef struct oi_memory {
    uint64_t magic;
    struct oi_memory *self;
    size_t bytes;
    oi_device *device;
    oi_held held;
    oi_use use;
    unsigned char *here; /* host pointer: the mirror, or the memory itself */
    uint64_t address;
    const void *user; /* the instance that last used it */
    struct {
        size_t at, bytes;
    } owned[OI_OWNED];
    int32_t owned_count;
} oi_memory;

/* Whether a device belongs to this process. */
bool oi_is_own(const oi_device *device);

/* Gets a device that can run the kernels: the known one, or a new one if that is NULL. Free it with oi_device_free. */
oi_problem oi_device_for(const oi_given *given, oi_device *known, oi_device **made);
void oi_device_free(oi_device *device);

/* The allocation behind a pointer; NULL if the pointer is not from oi_memory_new. */
oi_memory *oi_memory_of(const void *at);

/* Allocates the memory on a device, unless it is there already; a second device is an error. */
oi_problem oi_memory_on(oi_memory *memory, oi_device *device, oi_use use);

/* Copy between the host and device memory that nothing else uses meanwhile. Return whether that succeeded. */
bool oi_memory_put(const oi_memory *memory, size_t at, const void *from, size_t bytes);
bool oi_memory_get(const oi_memory *memory, size_t at, void *to, size_t bytes);

/* --- instances ---------------------------------------------------------------------------------------------------- */

enum {
    HEAD = 64,         /* bytes of the block for the status */
    BLOCK = 1 << 20,   /* bytes of the block up to the end of the arguments */
    DATA = 1 << 18,    /* bytes after the arguments, for small uploads */
    SCALAR = 256,      /* most bytes of a watched value */
    LOOKED = 1 << 14,  /* bytes for the copies of watched values */
    SPARE = 1 << 15,   /* bytes of the block reserved for launches that read back */
    RANGES = 4096,     /* most memory ranges that the launches of a submission use */
    KEPT = 32,         /* cached recordings */
    CLOCKED = 4096,    /* most launches of a submission that are timed */
    COUNTED = 1024,    /* most groups of a launch whose ends are counted */
};

/* A launch. Its values are the group counts of an indirect dispatch, in two words, then the arguments. */
typedef struct {
    int32_t kernel, failure, place, count;
    int32_t ranges; /* index of the first memory range that it uses */
    size_t at;      /* index of its first value */
    bool waits;     /* for all launches before it */
    bool is_given;  /* groups and arguments are read from the block: they change between submissions */
    bool awaits;    /* starts at once: its groups wait themselves, without a barrier */
    int64_t keeps;  /* of a rollback copy: the number of launches before it that can fail; else -1 */
} oi_call;

typedef struct {
    oi_call *calls;
    uint64_t *values;
    int32_t count, room;
    size_t used, space;
} oi_calls;

/* Launches as commands, which are resubmitted as long as the launches are the same. */
typedef struct {
    oi_commands commands;
    oi_calls calls;
    int64_t when; /* the last submission that used it */
} oi_recording;

typedef struct {
    const unsigned char *first, *end;
    bool is_written;
    int32_t call, argument; /* the launch, and the index of its argument */
} oi_range;

/* A watched value: one that the host reads, and its copy in memory that is read back. Once the host has read a small
   value, it is copied with every submission that changes it. */
typedef struct {
    const unsigned char *at;
    size_t bytes, room, slot;
    bool is_new;    /* the copy is up to date */
    bool is_here;   /* the mirror is up to date */
    bool is_looked; /* the host has read it */
    bool is_asked;  /* a copy is recorded */
} oi_watch;

struct oi_queue {
    oi_device *device;
    oi_memory *arena, *state;
    oi_memory *weights; /* the device's copy */
    oi_memory *block;   /* the status, arguments that change, small uploads */
    oi_memory *inputs, *shown;
    const unsigned char *inputs_at;
    size_t input_bytes, data_used, shown_used;
    oi_watch *watches;
    int32_t watch_count, watch_room;
    oi_kept *records;
    int64_t record_room;
    int32_t first_problem;
    oi_tools tools;
    uint64_t status;            /* the address of the word that records the first failure */
    oi_calls wanted;            /* launches since the last submission */
    oi_recording kept[KEPT];
    int64_t submissions, recordings, waits;
    int64_t failing; /* launches that can fail, recorded so far */
    int64_t unkept;  /* rollback copies made at this value of failing were dropped; -1: none were */
    int32_t place;
    int32_t failed;             /* the first failure, until it is reported */
    bool is_lost, is_checking, can_fail, is_settling, is_timed;
    bool has_inputs;            /* written since the last submission */
    const void *handed_over;    /* a tensor that only the next recorded move reads */
    oi_range touched[RANGES];   /* memory that the recorded launches use */
    int32_t touched_count, since; /* since: the first range after the last barrier */
    int32_t in_state[2 * RANGES], in_state_count; /* which of these ranges are in the state, some twice */
    oi_range outside;           /* what contains all others */
    int64_t *nanoseconds, *calls;
};

bool oi_is_in(const void *at, const void *first, size_t bytes);

/* The device address of a pointer into the instance's memory; 0 for other pointers. */
uint64_t oi_address(const oi_queue *queue, const void *at);

/* Notes that launches use a range, so that few ranges need to be compared with others. */
void oi_note(oi_queue *queue, int32_t range);

/* Marks the host's copies of watched values that overlap a changed range as out of date. */
void oi_outdate(oi_queue *queue, const oi_range *changed);

/* Marks the instance as lost: it cannot be used any more. */
void oi_lose(oi_queue *queue, oi_problem problem);

/* Where the number of a launch is stored: the launch does nothing if a lower number has failed. 0: no check. */
uint64_t *oi_number_of(const oi_queue *queue, const oi_call *call);

/* Records copies of watched values; and marks them as up to date after a submission, or all as outdated on failure. */
void oi_ask_again(oi_queue *queue);
void oi_answered(oi_queue *queue, bool has_failed);

/* --- commands: launches through the API of the device ------------------------------------------------------------- */

/* The API objects that an instance needs to run its kernels. */
oi_problem oi_tools_new(oi_queue *queue, const oi_given *given);
void oi_tools_free(oi_queue *queue);

/* Whether the groups of a kernel wait for earlier launches themselves, and are counted when they end. */
bool oi_counts(const oi_queue *queue, int32_t kernel);

/* Build the commands of a recording; run them and wait for their end. Return whether that succeeded. */
bool oi_commands_made(oi_queue *queue, oi_recording *recording);
bool oi_commands_run(oi_queue *queue, oi_recording *recording);

/* Returns the number of the first launch that failed and clears it; 0 if none failed. */
uint32_t oi_first_failed(oi_queue *queue);

/* Turns timing on or off and returns whether launches are timed; adds up the times of the last submission. */
bool oi_clock_runs(oi_queue *queue, bool is_wanted);
void oi_add_times(oi_queue *queue);
