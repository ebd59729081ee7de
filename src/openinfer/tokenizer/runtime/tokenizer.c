/* Splits a text at whole pieces, then into words, and joins the symbols of each word. See tokenizer.h. */

#include "tokenizer.h"

#include <string.h>

#include "tokenizer_tables.h"

enum { MAGIC = 0x4b54494f, VERSION = 1, HEAD = 8, BYTES = 256, UNKNOWN = 2, CONTROL = 3 };

/* --- the vocabulary ----------------------------------------------------------------------------------------------- */

static bool all_below(const uint32_t *values, uint32_t count, uint32_t limit)
{
    for (uint32_t i = 0; i < count; ++i)
        if (values[i] >= limit) return false;
    return true;
}

static bool is_sound(const tokenizer *t, uint32_t text_bytes)
{
    for (uint32_t i = 0; i < t->pieces; ++i)
        if (t->start[i] > t->start[i + 1]) return false;
    for (int i = 0; i < BYTES; ++i)
        if (t->of_byte[i] < -1 || t->of_byte[i] >= (int32_t)t->pieces) return false;
    for (uint32_t i = 0; i < t->merges; ++i)
        if (t->merge[4 * i + 3] >= t->pieces) return false;
    return t->start[t->pieces] == text_bytes && all_below(t->by_text, t->sorted, t->pieces)
        && all_below(t->wholes, t->whole, t->pieces);
}

bool tokenizer_open(tokenizer *t, const void *data, size_t bytes)
{
    const uint32_t *const head = data, *next = head + HEAD;
    if (bytes < HEAD * sizeof *head || head[0] != MAGIC || head[1] != VERSION) return false;
    for (int i = 2; i < 7; ++i)
        if (head[i] > 1u << 26) return false;
    t->pieces = head[2], t->merges = head[3], t->sorted = head[4], t->whole = head[5];
    const size_t words = HEAD + 3 * (size_t)t->pieces + 1 + t->sorted + t->whole + 4 * (size_t)t->merges + BYTES;
    if (t->pieces == 0 || bytes != words * sizeof *head + head[6]) return false;
    t->start = next, next += t->pieces + 1;
    t->kind = next, next += t->pieces;
    t->rank = next, next += t->pieces;
    t->by_text = next, next += t->sorted;
    t->wholes = next, next += t->whole;
    t->merge = next, next += 4 * (size_t)t->merges;
    t->of_byte = (const int32_t *)next, next += BYTES;
    t->text = (const char *)next;
    return is_sound(t, head[6]);
}

static uint32_t bytes_of(const tokenizer *t, uint32_t piece)
{
    return t->start[piece + 1] - t->start[piece];
}

const char *tokenizer_piece(const tokenizer *t, int64_t token, size_t *bytes)
{
    const bool is_shown = token >= 0 && token < t->pieces && t->kind[token] != CONTROL && t->kind[token] != UNKNOWN;
    *bytes = is_shown ? bytes_of(t, (uint32_t)token) : 0;
    return is_shown ? t->text + t->start[token] : "";
}

/* The piece with this text, or -1. */
static inline int32_t piece_of(const tokenizer *t, const char *text, uint32_t bytes)
{
    uint32_t low = 0, high = t->sorted;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2, piece = t->by_text[middle], own = bytes_of(t, piece);
        const int order = memcmp(t->text + t->start[piece], text, own < bytes ? own : bytes);
        if (order == 0 && own == bytes) return (int32_t)piece;
        if (order < 0 || (order == 0 && own < bytes)) low = middle + 1;
        else high = middle;
    }
    return -1;
}

/* --- characters --------------------------------------------------------------------------------------------------- */

static inline bool is_between(char c, unsigned first, unsigned last)
{
    return (unsigned char)c >= first && (unsigned char)c <= last;
}

size_t tokenizer_character_bytes(const char *text, size_t bytes)
{
    const unsigned lead = bytes > 0 ? (unsigned char)text[0] : 0x80;
    size_t count = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (count > bytes) return 0;
    if (count > 2 && !is_between(text[1], lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80,
                                 lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF))
        return 0;
    for (size_t i = 1; i < count; ++i)
        if (!is_between(text[i], 0x80, 0xBF)) return 0;
    return count;
}

size_t tokenizer_whole_bytes(const char *text, size_t bytes)
{
    for (size_t back = 1; back <= bytes && back <= 3; ++back) {
        const unsigned lead = (unsigned char)text[bytes - back];
        if (lead < 0x80) break;
        if (lead < 0xC0) continue;
        const size_t needed = lead < 0xC2 || lead > 0xF4 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        return back < needed ? bytes - back : bytes;
    }
    return bytes;
}

/* Copies a text, with U+FFFD for every byte of no valid character. Returns its bytes, or -1 if it is too long. */
static int64_t repaired(const char *text, size_t bytes, char *to)
{
    size_t length = 0;
    for (size_t at = 0; at < bytes;) {
        const size_t count = tokenizer_character_bytes(text + at, bytes - at);
        if (length + 4 > TOKENIZER_MOST_TEXT) return -1;
        if (count == 0) {
            memcpy(to + length, "\xEF\xBF\xBD", 3);
            length += 3, at += 1;
        } else {
            memcpy(to + length, text + at, count);
            length += count, at += count;
        }
    }
    return (int64_t)length;
}

/* --- joins -------------------------------------------------------------------------------------------------------- */

typedef struct {
    const tokenizer *t;
    tokenizer_work *work;
    int64_t *tokens, most, count;
} encoding;

static void put(encoding *e, int32_t piece)
{
    if (piece < 0) return;
    if (e->count < e->most) e->tokens[e->count] = piece;
    ++e->count;
}

static inline bool is_before(const tokenizer_join *one, const tokenizer_join *other)
{
    return one->rank < other->rank || (one->rank == other->rank && one->left < other->left);
}

static void push(tokenizer_work *w, tokenizer_join join)
{
    size_t at = w->queued++;
    for (size_t parent; at > 0; at = parent) {
        parent = (at - 1) / 2;
        if (!is_before(&join, &w->queue[parent])) break;
        w->queue[at] = w->queue[parent];
    }
    w->queue[at] = join;
}

static tokenizer_join pop(tokenizer_work *w)
{
    const tokenizer_join first = w->queue[0], last = w->queue[--w->queued];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < w->queued; at = child) {
        if (child + 1 < w->queued && is_before(&w->queue[child + 1], &w->queue[child])) ++child;
        if (!is_before(&w->queue[child], &last)) break;
        w->queue[at] = w->queue[child];
    }
    w->queue[at] = last;
    return first;
}

/* Finds what two neighbours join to; false if they do not. */
static bool found_join(const encoding *e, const tokenizer_symbol *one, const tokenizer_symbol *other,
        tokenizer_join *join)
{
    const tokenizer *const t = e->t;
#if TOKENIZER_SCORED
    join->piece = piece_of(t, e->work->text + one->start, one->bytes + other->bytes);
    join->rank = join->piece < 0 ? 0 : t->rank[join->piece];
    return join->piece >= 0;
#else
    uint32_t low = 0, high = t->merges;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2, *const merge = t->merge + 4 * (size_t)middle;
        const int64_t left = (int64_t)merge[0] - one->piece, right = (int64_t)merge[1] - other->piece;
        if (left == 0 && right == 0) {
            join->rank = merge[2], join->piece = (int32_t)merge[3];
            return true;
        }
        if (left < 0 || (left == 0 && right < 0)) low = middle + 1;
        else high = middle;
    }
    return false;
#endif
}

static void consider(encoding *e, int32_t left, int32_t right)
{
    tokenizer_work *const w = e->work;
    tokenizer_join join;
    if (left < 0 || right < 0 || !found_join(e, &w->symbol[left], &w->symbol[right], &join)) return;
    join.left = (uint32_t)left, join.bytes = w->symbol[left].bytes + w->symbol[right].bytes;
    push(w, join);
}

/* Joins neighbours until none are left to join: the lowest rank first, then the leftmost. */
static void join_symbols(encoding *e, int32_t count)
{
    tokenizer_work *const w = e->work;
    w->queued = 0;
    for (int32_t i = 0; i < count; ++i) w->symbol[i].before = i - 1, w->symbol[i].after = i + 1 < count ? i + 1 : -1;
    for (int32_t i = 0; i + 1 < count; ++i) consider(e, i, i + 1);
    while (w->queued > 0) {
        const tokenizer_join join = pop(w);
        tokenizer_symbol *const left = &w->symbol[join.left];
        if (left->bytes == 0 || left->after < 0) continue;
        tokenizer_symbol *const right = &w->symbol[left->after];
        if (left->bytes + right->bytes != join.bytes) continue; /* stale: one of them has been joined since */
        left->bytes = join.bytes, left->piece = join.piece;
        right->bytes = 0;
        left->after = right->after;
        if (left->after >= 0) w->symbol[left->after].before = (int32_t)join.left;
        consider(e, left->before, (int32_t)join.left);
        consider(e, (int32_t)join.left, left->after);
    }
    for (int32_t i = 0; i < count; ++i) {
        const tokenizer_symbol *const one = &w->symbol[i];
        if (one->piece >= 0 && one->bytes > 0) put(e, one->piece);
        else for (uint32_t j = 0; TOKENIZER_SCORED && j < one->bytes; ++j)
            put(e, e->t->of_byte[(unsigned char)w->text[one->start + j]]);
    }
}

#if TOKENIZER_SCORED

/* --- text between whole pieces: characters, including spaces ------------------------------------------------------ */

static void encode_text(encoding *e, uint32_t start, uint32_t bytes, bool is_first)
{
    tokenizer_work *const w = e->work;
    int32_t count = 0;
    uint32_t to = start; /* in place: the sign for a space is longer than a space */
    if (TOKENIZER_SPACE_BEFORE && is_first) {
        w->text[--to] = ' '; /* the byte before is encoded already */
        w->symbol[count++] = (tokenizer_symbol){ .start = to, .bytes = 1, .piece = piece_of(e->t, w->text + to, 1) };
        ++to;
    }
    for (uint32_t at = start; at < start + bytes;) {
        uint32_t length = (uint32_t)tokenizer_character_bytes(w->text + at, start + bytes - at);
        if (length == 3 && memcmp(w->text + at, "\xE2\x96\x81", 3) == 0) w->text[to] = ' ', at += 3, length = 1;
        else memmove(w->text + to, w->text + at, length), at += length;
        const int32_t piece = piece_of(e->t, w->text + to, length);
        w->symbol[count++] = (tokenizer_symbol){ .start = to, .bytes = length, .piece = piece };
        to += length;
    }
    join_symbols(e, count);
}

#else

/* --- text between whole pieces: words ----------------------------------------------------------------------------- */

static uint32_t class_bits(uint32_t code)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < sizeof tokenizer_classes / sizeof *tokenizer_classes; ++i) {
        const uint32_t *const range = tokenizer_classes[i].ranges;
        uint32_t low = 0, high = tokenizer_classes[i].count;
        while (low < high) {
            const uint32_t middle = (low + high) / 2;
            if (range[2 * middle + 1] < code) low = middle + 1;
            else high = middle;
        }
        if (low < tokenizer_classes[i].count && range[2 * low] <= code) bits |= tokenizer_classes[i].bit;
    }
    return bits;
}

static bool has(const tokenizer_item *item, uint32_t code)
{
    bool is_named = (class_bits(code) & item->classes) != 0;
    for (uint32_t i = 0; !is_named && i < item->ranges; ++i) {
        const uint32_t *const range = tokenizer_ranges[item->first_range + i];
        is_named = range[0] <= code && code <= range[1];
    }
    return is_named != (item->is_negated != 0);
}

/* The end of the items from `which` on, or -1 if they do not match: greedy, with backtracking. */
static int64_t matched(const uint32_t *code, const tokenizer_alternative *one, uint32_t which, int64_t at, int64_t end)
{
    if (which == one->items)
        return !one->is_before_space || at == end || (class_bits(code[at]) & TOKENIZER_SPACE) != 0 ? at : -1;
    const tokenizer_item *const item = &tokenizer_items[one->first_item + which];
    const int64_t most = item->most < end - at ? at + item->most : end;
    int64_t stop = at;
    while (stop < most && has(item, code[stop])) ++stop;
    for (; stop >= at + item->least; --stop) {
        const int64_t found = matched(code, one, which + 1, stop, end);
        if (found >= 0) return found;
    }
    return -1;
}

static int64_t end_of_word(const uint32_t *code, const tokenizer_pattern *pattern, int64_t at, int64_t end)
{
    for (uint32_t i = 0; i < pattern->alternatives; ++i) {
        const int64_t stop = matched(code, &tokenizer_alternatives[pattern->first_alternative + i], 0, at, end);
        if (stop > at) return stop;
    }
    return at;
}

/* Splits words by a pattern: `from` and `to` hold the starts of the words, and the end of the last one. */
static uint32_t split(const uint32_t *code, const tokenizer_pattern *pattern, const uint32_t *from, uint32_t words,
        uint32_t *to)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < words; ++i) {
        int64_t at = from[i], left = at;
        while (at < from[i + 1]) {
            const int64_t stop = end_of_word(code, pattern, at, from[i + 1]);
            if (stop == at) {
                ++at;
                continue;
            }
            if (left < at) to[count++] = (uint32_t)left;
            to[count++] = (uint32_t)at;
            at = left = stop;
        }
        if (left < at) to[count++] = (uint32_t)left;
    }
    to[count] = from[words];
    return count;
}

static void encode_word(encoding *e, uint32_t start, uint32_t bytes)
{
    tokenizer_work *const w = e->work;
    const int32_t whole = TOKENIZER_WHOLE_WORDS ? piece_of(e->t, w->text + start, bytes) : -1;
    if (whole >= 0) {
        put(e, whole);
        return;
    }
    for (uint32_t i = 0; i < bytes; ++i) {
        const int32_t piece = e->t->of_byte[(unsigned char)w->text[start + i]];
        w->symbol[i] = (tokenizer_symbol){ .start = start + i, .bytes = 1, .piece = piece };
    }
    join_symbols(e, (int32_t)bytes);
}

static void encode_text(encoding *e, uint32_t start, uint32_t bytes, bool is_first)
{
    tokenizer_work *const w = e->work;
    uint32_t characters = 0, words = 1, which = 0;
    (void)is_first;
    for (uint32_t at = start; at < start + bytes;) {
        const uint32_t length = (uint32_t)tokenizer_character_bytes(w->text + at, start + bytes - at);
        uint32_t code = (unsigned char)w->text[at] & (length == 1 ? 0x7Fu : 0xFFu >> (length + 1));
        for (uint32_t i = 1; i < length; ++i) code = code << 6 | ((unsigned char)w->text[at + i] & 0x3Fu);
        w->code[characters] = code, w->place[characters++] = at;
        at += length;
    }
    w->place[characters] = start + bytes;
    w->word[0][0] = 0, w->word[0][1] = characters;
    for (size_t i = 0; i < sizeof tokenizer_patterns / sizeof *tokenizer_patterns; ++i, which = 1 - which)
        words = split(w->code, &tokenizer_patterns[i], w->word[which], words, w->word[1 - which]);
    for (uint32_t i = 0; i < words; ++i) {
        const uint32_t first = w->place[w->word[which][i]], last = w->place[w->word[which][i + 1]];
        encode_word(e, first, last - first);
    }
}

#endif

/* --- whole texts -------------------------------------------------------------------------------------------------- */

/* The longest whole piece that the text starts with, or -1. */
static int32_t whole_piece(const tokenizer *t, const char *text, uint32_t bytes)
{
    for (uint32_t i = 0; i < t->whole; ++i) {
        const uint32_t piece = t->wholes[i], own = bytes_of(t, piece);
        if (own > 0 && own <= bytes && memcmp(t->text + t->start[piece], text, own) == 0) return (int32_t)piece;
    }
    return -1;
}

int64_t tokenizer_encode(const tokenizer *t, tokenizer_work *work, const char *text, size_t bytes, int64_t *tokens,
        int64_t most)
{
    encoding e = { .t = t, .work = work, .tokens = tokens, .most = most };
    const int64_t length = repaired(text, bytes, work->text + 1); /* leaves one byte for a space in front */
    if (length < 0) return -1;
    const uint32_t end = 1 + (uint32_t)length;
    uint32_t left = 1;
    bool is_first = true;
    for (uint32_t at = 1; at < end;) {
        const int32_t piece = whole_piece(t, work->text + at, end - at);
        if (piece < 0) {
            ++at;
            continue;
        }
        if (left < at) encode_text(&e, left, at - left, is_first);
        put(&e, piece);
        is_first = true;
        left = at += bytes_of(t, (uint32_t)piece);
    }
    if (left < end) encode_text(&e, left, end - left, is_first);
    return e.count <= most ? e.count : -1;
}
