#include "inside.h"

#include <stdlib.h>
#include <string.h>

/* --- recorded launches -------------------------------------------------------------------------------------------- */

/* Reserves space for one more launch with this many values; false if out of memory. */
static bool has_room(oi_calls *all, int32_t values)
{
    if (all->count == all->room) {
        const int32_t room = all->room > 0 ? 2 * all->room : 64;
        oi_call *const calls = realloc(all->calls, (size_t)room * sizeof *calls);
        if (calls == NULL) return false;
        all->calls = calls;
        all->room = room;
    }
    if (all->used + (size_t)values > all->space) {
        const size_t space = 2 * all->space + (size_t)values + 256;
        uint64_t *const made = realloc(all->values, space * sizeof *made);
        if (made == NULL) return false;
        all->values = made;
        all->space = space;
    }
    return true;
}

static void calls_free(oi_calls *all)
{
    free(all->calls);
    free(all->values);
    *all = (oi_calls){ 0 };
}

/* Copies launches; those that read their arguments from the block keep doing so. */
static bool calls_copied(oi_calls *to, const oi_calls *from)
{
    for (int32_t i = 0; i < from->count; ++i) {
        oi_call one = from->calls[i];
        const bool is_known = i < to->count;
        one.is_given = one.is_given || (is_known && to->calls[i].is_given);
        if (!is_known) {
            if (!has_room(to, 0)) return false;
            to->count = i + 1;
        }
        to->calls[i] = one;
    }
    if (from->used > to->space) {
        uint64_t *const made = realloc(to->values, from->used * sizeof *made);
        if (made == NULL) return false;
        to->values = made;
        to->space = from->used;
    }
    memcpy(to->values, from->values, from->used * sizeof *to->values);
    to->used = from->used;
    return true;
}

/* --- instances ---------------------------------------------------------------------------------------------------- */

static bool is_made(oi_queue *q, oi_memory **made, size_t bytes, oi_use use)
{
    *made = oi_memory_new(bytes);
    return *made != NULL && oi_memory_on(*made, q->device, use) == OI_GOOD;
}

/* Puts arena, state and weights on one device: that of the arena or the state if either has one, else a new one. */
static oi_problem gather(oi_queue *q, const oi_given *given, oi_mirrors *mirrors)
{
    oi_memory *const arena = oi_memory_of(given->arena), *const state = oi_memory_of(given->state);
    if (arena == NULL || arena->bytes < given->arena_bytes) return OI_FOREIGN;
    if (given->state_bytes > 0 && (state == NULL || state->bytes < given->state_bytes)) return OI_FOREIGN;
    oi_device *const known = arena->device != NULL || state == NULL ? arena->device : state->device;
    oi_problem problem = oi_device_for(given, known, &q->device);
    if (problem == OI_GOOD) problem = oi_memory_on(arena, q->device, OI_MIRRORED);
    if (problem == OI_GOOD && state != NULL) problem = oi_memory_on(state, q->device, OI_MIRRORED);
    if (problem != OI_GOOD) return problem;
    q->arena = arena;
    q->state = state;
    q->inputs_at = arena->here + given->inputs_at;
    q->input_bytes = given->input_bytes;
    if (!is_made(q, &q->weights, given->weight_bytes, OI_HIDDEN) || !is_made(q, &q->block, BLOCK + DATA, OI_WRITTEN)
        || !is_made(q, &q->inputs, given->input_bytes + TAKEN, OI_WRITTEN)
        || !is_made(q, &q->shown, given->shown_bytes + LOOKED, OI_READ_BACK))
        return OI_NO_MEMORY;
    if (!oi_memory_put(q->weights, 0, given->weights, given->weight_bytes)) return OI_LOST;
    *mirrors = (oi_mirrors){ arena->here, state == NULL ? NULL : state->here, q->weights->here };
    return OI_GOOD;
}

oi_problem oi_open(const oi_given *given, oi_mirrors *mirrors, oi_queue **made)
{
    oi_queue *const q = calloc(1, sizeof *q);
    if (q == NULL) return OI_NO_MEMORY;
    q->failed = -1;
    q->place = -1;
    q->unkept = -1;
    q->first_problem = given->first_problem;
    oi_problem problem = gather(q, given, mirrors);
    if (problem == OI_GOOD) problem = oi_tools_new(q, given);
    if (problem != OI_GOOD) {
        oi_close(q);
        return problem;
    }
    *made = q;
    return OI_GOOD;
}

void oi_close(oi_queue *q)
{
    if (q == NULL) return;
    if (q->device != NULL && oi_is_own(q->device)) oi_tools_free(q);
    calls_free(&q->wanted);
    for (int i = 0; i < KEPT; ++i) calls_free(&q->kept[i].calls);
    free(q->records);
    free(q->watches);
    oi_memory_free(q->block);
    oi_memory_free(q->inputs);
    oi_memory_free(q->shown);
    oi_memory_free(q->weights);
    oi_device_free(q->device);
    free(q);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

bool oi_is_in(const void *at, const void *first, size_t bytes)
{
    return (uintptr_t)at >= (uintptr_t)first && (uintptr_t)at - (uintptr_t)first < bytes;
}

/* The device address of a pointer into the instance's memory; 0 for other pointers. */
uint64_t oi_address(const oi_queue *q, const void *at)
{
    const oi_memory *const all[] = { q->arena, q->state, q->weights, q->block, q->shown };
    if (oi_is_in(at, q->inputs_at, q->input_bytes)) return q->inputs->address + ((uintptr_t)at - (uintptr_t)q->inputs_at);
    for (int i = 0; i < 5; ++i)
        if (all[i] != NULL && oi_is_in(at, all[i]->here, all[i]->bytes))
            return all[i]->address + ((uintptr_t)at - (uintptr_t)all[i]->here);
    return 0;
}

static bool overlaps(const oi_range *one, const unsigned char *first, const unsigned char *end)
{
    return first < one->end && one->first < end;
}

void oi_outdate(oi_queue *q, const oi_range *changed)
{
    for (int32_t i = 0; i < q->watch_count; ++i)
        if (overlaps(changed, q->watches[i].at, q->watches[i].at + q->watches[i].bytes))
            q->watches[i].is_new = q->watches[i].is_here = q->watches[i].is_asked = false;
}

void oi_note(oi_queue *q, int32_t range)
{
    const oi_range *const one = &q->touched[range];
    if (q->state != NULL && oi_is_in(one->first, q->state->here, q->state->bytes)) {
        q->in_state[q->in_state_count++] = range;
        return;
    }
    if (q->outside.end == NULL || one->first < q->outside.first) q->outside.first = one->first;
    if (q->outside.end == NULL || one->end > q->outside.end) q->outside.end = one->end;
}

/* Whether an argument is memory that launches may write; none writes weights. */
static bool is_shared(const oi_queue *q, const oi_argument *one)
{
    return one->at != NULL && one->number != 0 && !oi_is_in(one->at, q->weights->here, q->weights->bytes);
}

/* Whether a launch waits for those before it: it does if it reads or writes what they write, writes what they read, or
   follows one that can fail. */
static bool is_ordered(oi_queue *q, int32_t count, const oi_argument *given)
{
    bool waits = q->is_checking || q->touched_count + count > RANGES;
    for (int32_t i = 0; i < count && !waits; ++i) {
        const unsigned char *const first = given[i].at;
        const bool is_used = is_shared(q, &given[i]);
        for (int32_t k = q->since; is_used && k < q->touched_count && !waits; ++k)
            waits = (given[i].is_written || q->touched[k].is_written)
                && overlaps(&q->touched[k], first, first + given[i].number);
    }
    if (waits) {
        q->since = q->touched_count;
        q->is_checking = false;
    }
    for (int32_t i = 0; i < count; ++i) {
        const unsigned char *const first = given[i].at;
        if (!is_shared(q, &given[i]) || q->touched_count == RANGES) continue;
        q->touched[q->touched_count++] = (oi_range){ first, first + given[i].number, given[i].is_written, q->wanted.count, i };
        oi_note(q, q->touched_count - 1);
        if (given[i].is_written) oi_outdate(q, &q->touched[q->touched_count - 1]);
    }
    return waits;
}

void oi_lose(oi_queue *q, oi_problem problem)
{
    q->is_lost = true;
    if (q->failed < 0) q->failed = q->first_problem + (int32_t)problem;
}

static int32_t settle(oi_queue *q);

/* Whether a launch with this many values can be recorded, after submitting the others if the block is full. */
static bool is_recording(oi_queue *q, int32_t values)
{
    if (!q->is_settling && (q->wanted.used + (size_t)values) * 8 > BLOCK - HEAD - SPARE) {
        const int32_t failed = settle(q);
        if (failed >= 0) q->failed = failed;
    }
    if (q->failed >= 0 || q->is_lost) return false;
    if (!has_room(&q->wanted, values)) oi_lose(q, OI_NO_MEMORY);
    return !q->is_lost;
}

void oi_launch(oi_queue *q, int32_t kernel, int64_t groups, int32_t failure, int32_t count, const oi_argument *given)
{
    oi_calls *const all = &q->wanted;
    const int32_t total = count + 2; /* and the address of the status, and the launch's own number */
    if (groups <= 0 || !is_recording(q, total + 2)) return;
    uint64_t *const to = all->values + all->used;
    to[0] = (uint64_t)groups | UINT64_C(1) << 32;
    to[1] = 1;
    for (int32_t i = 0; i < count; ++i)
        to[2 + i] = given[i].at != NULL ? oi_address(q, given[i].at) : (uint64_t)given[i].number;
    q->can_fail = q->can_fail || failure >= 0;
    to[2 + count] = q->status;
    to[3 + count] = q->can_fail && failure >= -1 ? (uint64_t)all->count + 1 : 0; /* 0: no check */
    const int32_t ranges = q->touched_count;
    const bool waits = is_ordered(q, count, given);
    all->calls[all->count++] = (oi_call){ .ranges = ranges, .kernel = kernel, .failure = failure, .place = q->place, .count = total,
        .at = all->used, .waits = waits, .is_given = total >= PUSHED, .keeps = -1 };
    all->used += (size_t)total + 2;
    q->handed_over = NULL;
    q->is_checking = q->is_checking || failure >= 0;
    q->failing += failure >= 0;
    q->place = -1;
}

uint64_t *oi_number_of(const oi_queue *q, const oi_call *call)
{
    return q->wanted.values + call->at + (size_t)call->count + 1;
}

/* --- submissions -------------------------------------------------------------------------------------------------- */

typedef enum { OTHER, ALIKE, SAME } oi_likeness;

static bool is_same(const oi_calls *one, const oi_calls *other, int32_t i)
{
    const oi_call *const call = &one->calls[i];
    const size_t bytes = ((size_t)call->count + 2) * sizeof *one->values;
    return memcmp(one->values + call->at, other->values + call->at, bytes) == 0;
}

/* Compares a recording with the wanted launches. ALIKE: the same kernels with other arguments. */
static oi_likeness likeness(const oi_calls *one, const oi_calls *wanted)
{
    oi_likeness found = SAME;
    if (one->count != wanted->count || one->used != wanted->used) return OTHER;
    for (int32_t i = 0; i < one->count; ++i) {
        const oi_call *const call = &one->calls[i], *const other = &wanted->calls[i];
        if (call->kernel != other->kernel || call->count != other->count) return OTHER;
        if (call->waits != other->waits || call->awaits != other->awaits) return OTHER;
        if (!call->is_given && !is_same(one, wanted, i)) found = ALIKE;
    }
    return found;
}

/* The recording of the wanted launches: a cached one; or one that is alike, changed to read the arguments that differ
   from the block from now on; or a new one in place of the least recently used. NULL on failure. */
static oi_recording *recording_of(oi_queue *q)
{
    oi_recording *best = NULL, *oldest = &q->kept[0];
    for (int i = 0; i < KEPT; ++i) {
        oi_recording *const one = &q->kept[i];
        const oi_likeness found = likeness(&one->calls, &q->wanted);
        if (found == SAME) return one;
        if (found == ALIKE && best == NULL) best = one;
        if (one->when < oldest->when) oldest = one;
    }
    if (best == NULL) {
        best = oldest;
        best->calls.count = 0;
    }
    for (int32_t i = 0; i < best->calls.count; ++i)
        best->calls.calls[i].is_given = best->calls.calls[i].is_given || !is_same(&best->calls, &q->wanted, i);
    q->recordings += 1;
    const bool is_whole = calls_copied(&best->calls, &q->wanted) && oi_commands_made(q, best);
    if (!is_whole) best->calls.count = 0;
    return is_whole ? best : NULL;
}

/* Whether a launch and all after it, up to the next one that waits, can wait themselves, without a barrier. */
static bool can_await(const oi_queue *q, int32_t first)
{
    bool found = true;
    for (int32_t i = first; i < q->wanted.count && found && (i == first || !q->wanted.calls[i].waits); ++i)
        found = oi_counts(q, q->wanted.calls[i].kernel);
    return found;
}

/* Stores, in the upper half of each launch's number, how many groups must have ended before it may go on; the highest
   bit says that its own groups are counted. With many groups, a barrier is faster. */
static void count_groups(oi_queue *q)
{
    uint32_t groups = 0, awaited = 0;
    bool is_counted = true; /* all groups since the last barrier */
    for (int32_t i = 0; i < q->wanted.count; ++i) {
        oi_call *const call = &q->wanted.calls[i];
        uint64_t *const values = q->wanted.values + call->at;
        const uint32_t own = (uint32_t)values[0];
        const bool counts = own <= COUNTED && oi_counts(q, call->kernel);
        if (call->waits) {
            call->awaits = is_counted && !q->is_timed && can_await(q, i);
            awaited = call->awaits ? groups : 0;
            is_counted = true;
        }
        is_counted = is_counted && counts;
        groups += counts ? own : 0;
        values[call->count + 1] |= (uint64_t)(awaited | (uint32_t)counts << 31) << 32;
    }
}

/* Drops the rollback copies after the last launch that can fail. If one of them waits, the next launch does instead. */
static void leave_copies_out(oi_queue *q)
{
    oi_calls *const all = &q->wanted;
    int32_t count = 0;
    bool waits = false;
    for (int32_t i = 0; i < all->count; ++i) {
        oi_call one = all->calls[i];
        waits = waits || one.waits;
        if (one.keeps == q->failing) {
            q->unkept = q->failing;
            continue;
        }
        one.waits = waits;
        waits = false;
        if (*oi_number_of(q, &one) != 0) *oi_number_of(q, &one) = (uint64_t)count + 1;
        all->calls[count++] = one;
    }
    all->count = count;
}

static bool has_run(oi_queue *q)
{
    oi_recording *const r = recording_of(q);
    if (r == NULL) return false;
    r->when = ++q->submissions;
    q->waits = 0;
    for (int32_t i = 0; i < r->calls.count; ++i) q->waits += r->calls.calls[i].waits;
    return oi_commands_run(q, r);
}

static int32_t settle(oi_queue *q)
{
    if (q->wanted.count > 0 && !q->is_lost) {
        q->is_settling = true;
        oi_ask_again(q);
        q->is_settling = false;
        count_groups(q);
        if (!oi_is_own(q->device)) oi_lose(q, OI_FORKED);
        else if (!has_run(q)) oi_lose(q, OI_LOST);
        const uint32_t number = !q->is_lost && q->can_fail ? oi_first_failed(q) : 0;
        if (number > 0 && q->failed < 0) q->failed = q->wanted.calls[number - 1].failure;
        if (!q->is_lost && q->is_timed) oi_add_times(q);
        oi_answered(q, q->failed >= 0);
    }
    q->wanted.count = q->touched_count = q->in_state_count = q->since = 0;
    q->outside.first = q->outside.end = NULL;
    q->wanted.used = q->data_used = 0;
    q->is_checking = q->can_fail = false;
    const int32_t failed = q->failed;
    if (!q->is_lost) q->failed = -1;
    return failed;
}

int32_t oi_settle(oi_queue *q)
{
    if (q == NULL) return -1;
    q->unkept = -1;
    return settle(q);
}

int32_t oi_finish(oi_queue *q)
{
    q->unkept = -1;
    leave_copies_out(q);
    return settle(q);
}

int64_t oi_failing(const oi_queue *q) { return q->failing; }

bool oi_is_kept(const oi_queue *q, const oi_kept *record) { return record->failing != q->unkept; }

int64_t oi_submitted(const oi_queue *q) { return q->submissions; }

int64_t oi_recorded(const oi_queue *q) { return q->recordings; }

int64_t oi_waited(const oi_queue *q) { return q->waits; }

/* --- the clock ---------------------------------------------------------------------------------------------------- */

void oi_time(oi_queue *q, int64_t *nanoseconds, int64_t *calls)
{
    q->nanoseconds = nanoseconds;
    q->calls = calls;
    const bool was_timed = q->is_timed;
    q->is_timed = oi_clock_runs(q, nanoseconds != NULL);
    if (q->is_timed == was_timed) return;
    for (int i = 0; i < KEPT; ++i) q->kept[i].calls.count = 0; /* made without the clock, or with one that is gone */
}

void oi_place(oi_queue *q, int32_t place) { q->place = place; }
