/* Text to the tokens of a language model and back. Plain C: no allocation, no locale, no files.

   The vocabulary is the content of tokenizer.bin, in memory of the caller's; how text is split into words is in
   tokenizer_tables.h. The tokens are those that openinfer.tokenizer gives. */

#ifndef OPENINFER_TOKENIZER_H
#define OPENINFER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TOKENIZER_MOST_TEXT
#define TOKENIZER_MOST_TEXT 32768 /* bytes of a text that is encoded at once */
#endif

/* A vocabulary. Everything in here is private; it points into the bytes that it was opened with. */
typedef struct {
    uint32_t pieces, merges, sorted, whole;
    const uint32_t *start;   /* where the text of each piece begins, and of the last one ends */
    const uint32_t *kind;    /* what each is for */
    const uint32_t *rank;    /* which of two pieces with scores is joined first */
    const uint32_t *by_text; /* the pieces that text can become, in the order of their texts */
    const uint32_t *wholes;  /* pieces that are taken whole wherever they stand, the longest first */
    const uint32_t *merge;   /* left, right, rank and piece of each, in the order of the first two */
    const int32_t *of_byte;  /* the piece of each byte, or -1 */
    const char *text;
} tokenizer;

typedef struct {
    uint32_t rank, left, bytes;
    int32_t piece;
} tokenizer_join;

typedef struct {
    uint32_t start, bytes; /* 0 bytes: it has become part of the one before */
    int32_t before, after, piece;
} tokenizer_symbol;

/* Memory that encoding works in, about 3 MB. */
typedef struct {
    char text[TOKENIZER_MOST_TEXT + 4];
    uint32_t code[TOKENIZER_MOST_TEXT + 1], place[TOKENIZER_MOST_TEXT + 1];
    uint32_t word[2][TOKENIZER_MOST_TEXT + 1];
    tokenizer_symbol symbol[TOKENIZER_MOST_TEXT + 1];
    tokenizer_join queue[3 * TOKENIZER_MOST_TEXT + 3];
    size_t queued;
} tokenizer_work;

/* Takes the content of tokenizer.bin, which begins at a multiple of 4 and must stay; false where it is not sound. */
bool tokenizer_open(tokenizer *t, const void *data, size_t bytes);

/* The tokens of a text: how many, or -1 where it is too long or they are more than `most`. Control tokens are never
   among them, whatever the text says. Bytes that are not UTF-8 become U+FFFD, each of them. */
int64_t tokenizer_encode(const tokenizer *t, tokenizer_work *work, const char *text, size_t bytes, int64_t *tokens,
        int64_t most);

/* What a token adds to a text; nothing for a control token, or a number that is not a token. */
const char *tokenizer_piece(const tokenizer *t, int64_t token, size_t *bytes);

/* The bytes of the character of UTF-8 that begins here, or 0 where none does. */
size_t tokenizer_character_bytes(const char *text, size_t bytes);

/* How many of these bytes are whole characters: the rest waits for what follows. */
size_t tokenizer_whole_bytes(const char *text, size_t bytes);

#endif
