/* Text to the tokens of a language model and back. Plain C: no allocation, no locale, no files.

   The vocabulary is the content of tokenizer.bin, in the caller's memory; tokenizer_tables.h says how text is split
   into words. The tokens are the same as those of openinfer.tokenizer. */

#ifndef OPENINFER_TOKENIZER_H
#define OPENINFER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TOKENIZER_MOST_TEXT
#define TOKENIZER_MOST_TEXT 32768 /* most bytes of a text to encode */
#endif

/* A vocabulary. Its members are private; they point into the bytes that it was opened with. */
typedef struct {
    uint32_t pieces, merges, sorted, whole;
    const uint32_t *start;   /* the offset of each piece's text, and the end of the last one */
    const uint32_t *kind;    /* the kind of each piece */
    const uint32_t *rank;    /* the order in which scored pieces are joined */
    const uint32_t *by_text; /* the pieces that text can become, sorted by text */
    const uint32_t *wholes;  /* pieces that are never split, wherever they occur; longest first */
    const uint32_t *merge;   /* left, right, rank and piece of each merge, sorted by left and right */
    const int32_t *of_byte;  /* the piece of each byte, or -1 */
    const char *text;
} tokenizer;

typedef struct {
    uint32_t rank, left, bytes;
    int32_t piece;
} tokenizer_join;

typedef struct {
    uint32_t start, bytes; /* 0 bytes: joined to the symbol before */
    int32_t before, after, piece;
} tokenizer_symbol;

/* Working memory of the encoder, about 3 MB. */
typedef struct {
    char text[TOKENIZER_MOST_TEXT + 4];
    uint32_t code[TOKENIZER_MOST_TEXT + 1], place[TOKENIZER_MOST_TEXT + 1];
    uint32_t word[2][TOKENIZER_MOST_TEXT + 1];
    tokenizer_symbol symbol[TOKENIZER_MOST_TEXT + 1];
    tokenizer_join queue[3 * TOKENIZER_MOST_TEXT + 3];
    size_t queued;
} tokenizer_work;

/* Opens the content of tokenizer.bin, which must be aligned to 4 bytes and outlive `t`. Returns false if invalid. */
bool tokenizer_open(tokenizer *t, const void *data, size_t bytes);

/* Encodes a text. Returns the number of tokens, or -1 if the text is too long or they are more than `most`. Text never
   becomes control tokens. Each byte that is not valid UTF-8 becomes U+FFFD. */
int64_t tokenizer_encode(const tokenizer *t, tokenizer_work *work, const char *text, size_t bytes, int64_t *tokens,
        int64_t most);

/* The text of a token; empty for a control token, or a number that is not a token. */
const char *tokenizer_piece(const tokenizer *t, int64_t token, size_t *bytes);

/* The bytes of the UTF-8 character at the start of the text, or 0 if there is no valid one. */
size_t tokenizer_character_bytes(const char *text, size_t bytes);

/* The bytes that are complete characters; the rest is the start of one that continues in the next bytes. */
size_t tokenizer_whole_bytes(const char *text, size_t bytes);

#endif
