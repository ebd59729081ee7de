#include "inside.h"

#include <stdlib.h>
#include <string.h>

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* Enough groups for a unit per thread, up to the most that every device accepts. */
static int64_t groups_of(uint64_t units)
{
    const uint64_t groups = (units + OI_GROUP - 1) / OI_GROUP;
    return groups < 65535 ? (int64_t)groups : 65535;
}

/* The first kernel of every project copies words. */
static void copy(oi_queue *q, void *to, const void *from, size_t bytes, bool is_kept)
{
    if (to == from || bytes == 0) return;
    if (((uintptr_t)to | (uintptr_t)from) % 4 != 0) {
        const oi_cells all = { .axes = 1, .cell_bits = 8, .value_bits = 8, .entry = 1, .shape = { (int64_t)bytes },
            .count = { (int64_t)bytes }, .cells = to };
        oi_move(q, 1, &all, from, NULL);
        return;
    }
    const size_t words = (bytes + 3) / 4;
    const oi_argument given[] = { { from, (int64_t)(words * 4), false }, { to, (int64_t)(words * 4), true },
        { NULL, (int64_t)bytes, false } };
    const int32_t before = q->wanted.count;
    oi_launch(q, 0, groups_of(words), is_kept ? -2 : -1, 3, given);
    if (is_kept && q->wanted.count > before) q->wanted.calls[before].keeps = q->failing;
}

void oi_copy(oi_queue *q, void *to, const void *from, size_t bytes) { copy(q, to, from, bytes, false); }

void oi_keep_copy(oi_queue *q, void *to, const void *from, size_t bytes) { copy(q, to, from, bytes, true); }

static int64_t both(uint64_t low, uint64_t high) { return (int64_t)(low | high << 32); }

/* The range from the first cell to the end of the last one inside the array; and the number of cells. */
static oi_range hull_of(const oi_cells *c, uint64_t *cells)
{
    int64_t first = 0, last = 0;
    *cells = 1;
    for (int32_t axis = 0; axis < c->axes; ++axis) {
        const int64_t end = c->first[axis] + c->count[axis] < c->shape[axis] ? c->first[axis] + c->count[axis] : c->shape[axis];
        *cells *= (uint64_t)c->count[axis];
        first = first * c->shape[axis] + (c->first[axis] < c->shape[axis] ? c->first[axis] : c->shape[axis]);
        last = last * c->shape[axis] + (end > 0 ? end - 1 : 0);
    }
    const int64_t bits = c->entry * c->cell_bits;
    return (oi_range){ c->cells + first * bits / 8, c->cells + ((last + 1) * bits + 7) / 8, false, 0, 0 };
}

/* --- tensors computed in place ------------------------------------------------------------------------------------ */

void oi_hand_over(oi_queue *q, const void *value) { q->handed_over = value; }

static bool meet(const oi_range *one, const oi_range *other) { return one->first < other->end && other->first < one->end; }

/* Whether recorded launches use any of a range. */
static bool is_used(const oi_queue *q, const oi_range *range)
{
    const bool is_state = q->state != NULL && oi_is_in(range->first, q->state->here, q->state->bytes);
    const int32_t count = is_state ? q->in_state_count : q->touched_count;
    bool found = false;
    if (!is_state && !meet(&q->outside, range)) return false;
    for (int32_t k = 0; k < count && !found; ++k) found = meet(&q->touched[is_state ? q->in_state[k] : k], range);
    return found;
}

/* The range of a tensor in the launch that computes it, if that can write to the cells instead: no later launch uses
   the tensor, none uses the cells or their backup, and none from that one on can fail. NULL otherwise. */
static oi_range *maker_of(oi_queue *q, const oi_range *tensor, const oi_range *cells, const oi_range *kept)
{
    oi_range *found = NULL;
    if (q->is_checking || q->touched_count + 2 > RANGES || is_used(q, cells)) return NULL;
    if (kept->first != NULL && is_used(q, kept)) return NULL;
    for (int32_t k = q->touched_count - 1; k >= 0; --k) {
        oi_range *const one = &q->touched[k];
        if (!meet(one, tensor)) continue;
        if (found != NULL && found->call == one->call) return NULL; /* twice in the last launch that uses it */
        if (found != NULL) break;
        found = one;
    }
    if (found == NULL || !found->is_written) return NULL;
    if (found->first != tensor->first || found->end != tensor->end) return NULL;
    for (int32_t i = found->call; i < q->wanted.count; ++i)
        if (q->wanted.calls[i].failure >= 0) return NULL;
    return found;
}

/* Moves the last launch to an earlier position. */
static void move_up(oi_queue *q, int32_t place)
{
    oi_call *const calls = q->wanted.calls;
    const int32_t last = q->wanted.count - 1;
    const oi_call moved = calls[last];
    int32_t since = moved.ranges; /* the first range that may belong to one of these launches */
    for (int32_t i = place; i < last; ++i) since = calls[i].ranges < since ? calls[i].ranges : since;
    memmove(calls + place + 1, calls + place, (size_t)(last - place) * sizeof *calls);
    calls[place] = moved;
    for (int32_t i = place + 1; i <= last; ++i)
        if (*oi_number_of(q, &calls[i]) != 0) *oi_number_of(q, &calls[i]) += 1;
    for (int32_t k = since; k < q->touched_count; ++k) {
        int32_t *const call = &q->touched[k].call;
        *call = *call == last ? place : *call + (*call >= place);
    }
}

/* Changes the launch that computes a tensor, which nothing else reads, to write to the cells; false if it cannot. Their
   old contents are saved by a launch before the barrier that precedes it. */
static bool is_made_there(oi_queue *q, const oi_range *tensor, const oi_range *cells, unsigned char *to)
{
    const size_t bytes = (size_t)(cells->end - cells->first);
    const oi_range kept = { to, to == NULL ? NULL : to + bytes, true, 0, 0 };
    oi_range *const made = oi_address(q, cells->first) % 16 == 0 ? maker_of(q, tensor, cells, &kept) : NULL;
    if (made == NULL) return false;
    const int32_t count = q->wanted.count;
    int32_t first = made->call;
    while (first > 0 && !q->wanted.calls[first].waits) --first;
    if (to != NULL) {
        if (!q->wanted.calls[first].waits) return false;
        oi_keep_copy(q, to, cells->first, bytes);
        if (q->wanted.count != count + 1) return false;
        move_up(q, first);
    }
    oi_call *const call = &q->wanted.calls[made->call];
    q->wanted.values[call->at + 2 + (size_t)made->argument] = oi_address(q, cells->first);
    *oi_number_of(q, call) = q->can_fail ? (uint64_t)made->call + 1 : 0;
    call->failure = -1;
    made->first = cells->first;
    made->end = cells->end;
    oi_note(q, (int32_t)(made - q->touched));
    oi_outdate(q, made);
    return true;
}

/* The word that contains an address; NULL for NULL. */
static const unsigned char *word_at(const void *at)
{
    return at == NULL ? NULL : (const unsigned char *)at - (uintptr_t)at % 4;
}

/* The second kernel of every project accesses cells, in units of 32 bits if all sides allow it, else of elements. */
void oi_move(oi_queue *q, int32_t action, const oi_cells *c, const void *value, void *kept)
{
    const uintptr_t places = (uintptr_t)c->cells | (uintptr_t)value | (uintptr_t)kept;
    const bool by_words = c->cell_bits == c->value_bits && c->entry * c->cell_bits % 32 == 0 && places % 4 == 0;
    const uint64_t cell_bits = by_words ? 32 : (uint64_t)c->cell_bits, value_bits = by_words ? 32 : (uint64_t)c->value_bits;
    const uint64_t entry = (uint64_t)(by_words ? c->entry * c->cell_bits / 32 : c->entry);
    uint64_t cells = 0, initial = c->initial;
    const oi_range hull = hull_of(c, &cells);
    const uint64_t units = cells * entry;
    for (int32_t bits = c->cell_bits; bits < 32; bits *= 2) initial |= initial << bits;
    if (c->cell_bits < 64) initial |= initial << 32;
    if (units == 0) return;
    const unsigned char *const base[] = { word_at(c->cells), word_at(value), word_at(kept) };
    const int64_t value_bytes = (int64_t)((units * value_bits + 31) / 32 * 4), length = hull.end > hull.first ? hull.end - hull.first : 0;
    const oi_range tensor = { value, value == NULL ? NULL : (const unsigned char *)value + length, false, 0, 0 };
    const bool is_one_piece = by_words && (uint64_t)length * 8 == units * cell_bits;
    if (action == 1 && is_one_piece && q->handed_over == value && is_made_there(q, &tensor, &hull, kept)) return;
    const bool is_read = action == 0;
    /* The launch is ordered by the first three: cells, tensor and backup. The kernel addresses cells from the start of
       the array, which is the fourth. */
    oi_argument given[10 + 2 * OI_MOST_AXES] = {
        { hull.first, length, !is_read },
        { value == NULL ? NULL : base[1], action == 3 ? hull.end - c->cells : value_bytes + 4, is_read },
        { kept == NULL ? NULL : base[2], (int64_t)((units * cell_bits + 31) / 32 * 4), true },
        { NULL, (int64_t)oi_address(q, base[0]), false },
        { NULL, both((uint64_t)action, (uint64_t)c->axes), false },
        { NULL, both(cell_bits, value_bits), false },
        { NULL, both((uintptr_t)c->cells % 4 * 8 / cell_bits, (uintptr_t)value % 4 * 8 / value_bits), false },
        { NULL, both(entry, units), false },
        { NULL, (int64_t)initial, false },
        { NULL, both(kept != NULL, 0), false },
    };
    for (int32_t axis = 0; axis < c->axes; ++axis) {
        const int64_t first = c->first[axis] < c->shape[axis] ? c->first[axis] : c->shape[axis];
        given[10 + 2 * axis].number = both((uint64_t)c->shape[axis], (uint64_t)first);
        given[11 + 2 * axis].number = c->count[axis];
    }
    oi_launch(q, 1, groups_of(units), -1, 10 + 2 * c->axes, given);
}

void oi_set(oi_queue *q, void *at, int32_t bits, int64_t count, uint64_t element)
{
    const int64_t per = bits < 32 ? 32 / bits : 1, words = (uintptr_t)at % 4 == 0 ? count / per : 0, rest = count - words * per;
    oi_cells all = { .axes = 1, .cell_bits = bits, .value_bits = bits, .entry = per, .initial = element, .shape = { words },
        .count = { words }, .cells = at };
    if (words > 0) oi_move(q, 2, &all, NULL, NULL);
    all.entry = 1;
    all.shape[0] = count;
    all.first[0] = count - rest;
    all.count[0] = rest;
    if (rest > 0) oi_move(q, 2, &all, NULL, NULL);
}

/* --- what the host sees ------------------------------------------------------------------------------------------- */

/* Marks copies of the state as out of date if another instance has used it since. */
static void use_state(oi_queue *q)
{
    if (q->state == NULL || q->state->user == q) return;
    for (int32_t i = 0; i < q->watch_count; ++i)
        if (oi_is_in(q->watches[i].at, q->state->here, q->state->bytes)) q->watches[i].is_new = q->watches[i].is_here = false;
    q->state->user = q;
}

/* The watch of a value, created on first use; NULL if out of memory. */
static oi_watch *watch_of(oi_queue *q, const void *at, size_t bytes)
{
    for (int32_t i = 0; i < q->watch_count; ++i) {
        oi_watch *const one = &q->watches[i];
        if (one->at != at) continue;
        if (one->bytes != bytes) one->is_new = one->is_here = one->is_asked = false;
        one->bytes = bytes;
        return one;
    }
    if (q->watch_count == q->watch_room) {
        const int32_t room = q->watch_room > 0 ? 2 * q->watch_room : 32;
        oi_watch *const made = realloc(q->watches, (size_t)room * sizeof *made);
        if (made == NULL) return NULL;
        q->watches = made;
        q->watch_room = room;
    }
    oi_watch *const one = &q->watches[q->watch_count++];
    *one = (oi_watch){ .at = at, .bytes = bytes };
    return one;
}

/* Records a copy of a watched value into memory that is read back; false if that is full. */
static bool is_asked(oi_queue *q, oi_watch *one, size_t most)
{
    const size_t bytes = (most + 63) / 64 * 64;
    if (bytes > one->room) {
        if (q->shown->bytes - q->shown_used < bytes) return false;
        one->slot = q->shown_used;
        one->room = bytes;
        q->shown_used += bytes;
        one->is_new = one->is_asked = false; /* what has been copied is where the value was shown before */
    }
    if (!one->is_asked && !one->is_new) {
        oi_copy(q, q->shown->here + one->slot, one->at, one->bytes);
        one->is_asked = true;
    }
    return true;
}

void oi_ask_again(oi_queue *q)
{
    use_state(q);
    for (int32_t i = 0; i < q->watch_count; ++i)
        if (q->watches[i].is_looked && !q->watches[i].is_here) is_asked(q, &q->watches[i], q->watches[i].bytes);
}

void oi_answered(oi_queue *q, bool has_failed)
{
    for (int32_t i = 0; i < q->watch_count; ++i) {
        oi_watch *const one = &q->watches[i];
        one->is_new = !has_failed && (one->is_new || one->is_asked);
        one->is_here = !has_failed && one->is_here;
        one->is_asked = false;
    }
}

/* Updates the mirror of a watched value from its copy. */
static void reflect(const oi_queue *q, oi_watch *one)
{
    if (!one->is_here) memcpy((void *)(uintptr_t)one->at, q->shown->here + one->slot, one->bytes);
    one->is_here = true;
}

static oi_memory *memory_at(const oi_queue *q, const void *at)
{
    return oi_is_in(at, q->arena->here, q->arena->bytes) ? q->arena : q->state;
}

/* Whether only the host uses some of the bytes. */
static bool is_owned(const oi_queue *q, const void *at, size_t bytes)
{
    const size_t first = q->state == NULL ? 0 : (size_t)((const unsigned char *)at - q->state->here);
    if (q->state == NULL || !oi_is_in(at, q->state->here, q->state->bytes)) return false;
    for (int32_t i = 0; i < q->state->owned_count; ++i)
        if (q->state->owned[i].at < first + bytes && first < q->state->owned[i].at + q->state->owned[i].bytes) return true;
    return false;
}

/* Copies bytes from the device to the mirror, except those that only the host uses. */
static bool is_got(const oi_memory *own, size_t at, size_t end)
{
    if (end > own->bytes) end = own->bytes;
    while (at < end) {
        size_t stop = end, next = end;
        for (int32_t i = 0; i < own->owned_count; ++i) {
            const size_t first = own->owned[i].at, last = first + own->owned[i].bytes;
            if (last <= at || first >= stop) continue;
            stop = first > at ? first : at;
            next = last;
        }
        if (stop > at && !oi_memory_get(own, at, own->here + at, stop - at)) return false;
        at = next;
    }
    return true;
}

int32_t oi_look(oi_queue *q, const void *at, size_t bytes)
{
    if (bytes == 0) return -1;
    if (oi_is_in(at, q->inputs_at, q->input_bytes)) {
        const size_t from = (size_t)((const unsigned char *)at - q->inputs_at);
        if (bytes > SCALAR) memcpy((void *)(uintptr_t)at, q->inputs->here + from, bytes);
        return -1;
    }
    use_state(q);
    oi_watch *const one = bytes <= SCALAR && !is_owned(q, at, bytes) ? watch_of(q, at, bytes) : NULL;
    if (one != NULL && (one->is_here || one->is_new)) {
        reflect(q, one);
        return -1;
    }
    const bool is_copied = one != NULL && is_asked(q, one, bytes);
    if (one != NULL) one->is_looked = true;
    int32_t failed = oi_settle(q);
    if (failed >= 0) return failed;
    if (is_copied) {
        reflect(q, one);
        return -1;
    }
    const oi_memory *const own = memory_at(q, at);
    const size_t from = (size_t)((const unsigned char *)at - own->here);
    if (is_got(own, from, from + bytes)) return -1;
    oi_lose(q, OI_LOST);
    return oi_settle(q);
}

void oi_upload(oi_queue *q, const void *at, size_t bytes)
{
    const bool is_small = bytes <= DATA / 4;
    if (bytes == 0) return;
    use_state(q);
    if (!is_small || q->data_used + bytes > DATA) {
        const int32_t failed = oi_settle(q);
        if (failed >= 0) q->failed = failed;
    }
    if (q->failed >= 0) return;
    if (is_small) {
        unsigned char *const data = q->block->here + BLOCK + q->data_used;
        memcpy(data, at, bytes);
        oi_copy(q, (void *)(uintptr_t)at, data, bytes);
        q->data_used += (bytes + 15) / 16 * 16;
    } else {
        const oi_memory *const own = memory_at(q, at);
        const size_t to = (size_t)((const unsigned char *)at - own->here);
        if (!oi_memory_put(own, to, at, bytes)) oi_lose(q, OI_LOST);
        for (int32_t i = 0; i < q->watch_count; ++i)
            if (oi_is_in(q->watches[i].at, at, bytes)) q->watches[i].is_new = q->watches[i].is_here = false;
    }
    oi_watch *const one = bytes <= SCALAR && !is_owned(q, at, bytes) ? watch_of(q, at, bytes) : NULL;
    if (one != NULL) one->is_here = true;
}

void oi_own(oi_queue *q, const void *at, size_t bytes)
{
    oi_memory *const own = q->state;
    const size_t first = (size_t)((const unsigned char *)at - own->here);
    for (int32_t i = 0; i < own->owned_count; ++i)
        if (own->owned[i].at == first) return;
    if (bytes == 0 || own->owned_count == OI_OWNED) return;
    own->owned[own->owned_count].at = first;
    own->owned[own->owned_count++].bytes = bytes;
}

unsigned char *oi_inputs(oi_queue *q)
{
    q->has_inputs = true;
    return q->inputs->here;
}

void oi_show(oi_queue *q, const void *at, size_t bytes, size_t most)
{
    use_state(q);
    if (bytes == 0 || bytes > most) return; /* no shape: a dynamic size has no valid value */
    oi_watch *const one = watch_of(q, at, bytes);
    if (one == NULL || !is_asked(q, one, most)) oi_lose(q, OI_NO_MEMORY);
}

const void *oi_shown(const oi_queue *q, const void *at)
{
    for (int32_t i = 0; i < q->watch_count; ++i)
        if (q->watches[i].at == at && q->watches[i].is_new) return q->shown->here + q->watches[i].slot;
    return at;
}

bool oi_is_shown(const oi_queue *q, const void *p) { return oi_is_in(p, q->shown->here, q->shown->bytes); }

oi_kept *oi_record(oi_queue *q, int64_t number)
{
    if (number >= q->record_room) {
        const int64_t room = 2 * number + 16;
        oi_kept *const made = realloc(q->records, (size_t)room * sizeof *made);
        if (made == NULL) return NULL;
        q->records = made;
        q->record_room = room;
    }
    return &q->records[number];
}
