/* Lets the model go on with a text: plain C around two generated libraries, which share one state.

   talk [-n TOKENS] [-t TEMPERATURE] [-s SEED] [-l STATE] [-w STATE] [-i] [PROMPT]

   -l goes on from a saved state, -w saves the state at the end, -i prints numbers of tokens instead of text.
   It is run in the folder that has prefill/src/weights.bin and decode/src/weights.bin, or in the one named by $TALK. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "pieces.h"
#include "prefill.h"

#if PREFILL_STATE_ID != DECODE_STATE_ID
#error "prefill.oig and decode.oig must declare the same persistent variables"
#endif

#define CONTEXT 256 /* tokens that the cache has room for: C of the graphs */
#define END 0
#define MOST_TEXT 4096

static _Alignas(64) unsigned char prefill_arena[PREFILL_ARENA_BYTES], decode_arena[DECODE_ARENA_BYTES];
static _Alignas(64) unsigned char state[DECODE_STATE_BYTES];
static _Alignas(64) unsigned char prefill_weights[PREFILL_WEIGHT_BYTES], decode_weights[DECODE_WEIGHT_BYTES];
static unsigned char saved[DECODE_SAVED_BYTES];

static int failed(const char *what)
{
    fprintf(stderr, "talk: %s\n", what);
    return 1;
}

/* --- text as numbers: the rule of tokenizer.py ------------------------------------------------------------------- */

static int kind_of(char c)
{
    if (c == ' ') return 0;
    if (c == '\n') return 1;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return 2;
    if (c >= '0' && c <= '9') return 3;
    return 4;
}

/* Whether a word begins at text[i]. A word has the last of the spaces before it. */
static bool is_border(const char *text, size_t i)
{
    const int before = kind_of(text[i - 1]), here = kind_of(text[i]);
    if (here == 0) return before != 0 || (text[i + 1] != '\0' && kind_of(text[i + 1]) >= 2);
    if (before == 0) return here == 1;
    return before != here;
}

static int number_of(const char *text, size_t length)
{
    for (int i = 1; i < PIECES; ++i)
        if (strlen(pieces[i]) == length && memcmp(pieces[i], text, length) == 0) return i;
    return -1;
}

/* Numbers of a text in `tokens`; neighbours within a word are joined, those first whose piece comes first. */
static size_t encode(const char *text, int64_t *tokens)
{
    static char plain[MOST_TEXT + 1];
    static size_t start[MOST_TEXT + 1];
    size_t length = 0, count;
    for (; *text != '\0' && length < MOST_TEXT; ++text) {
        const char c = *text == '\t' ? ' ' : *text;
        if (c == '\n' || (c >= ' ' && c <= '~')) plain[length++] = c;
    }
    plain[length] = '\0';
    for (count = 0; count < length; ++count) start[count] = count;
    start[count] = length;
    for (;;) {
        int best = PIECES;
        size_t place = 0;
        for (size_t i = 0; i + 1 < count; ++i) {
            if (is_border(plain, start[i + 1])) continue;
            const int joined = number_of(plain + start[i], start[i + 2] - start[i]);
            if (joined > 0 && joined < best) {
                best = joined;
                place = i;
            }
        }
        if (best == PIECES) break;
        memmove(start + place + 1, start + place + 2, (count - place - 1) * sizeof *start);
        --count;
    }
    for (size_t i = 0; i < count; ++i) tokens[i] = number_of(plain + start[i], start[i + 1] - start[i]);
    return count;
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static bool read_file(const char *folder, const char *name, void *to, size_t bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s%s%s", folder, *folder == '\0' ? "" : "/", name);
    FILE *const file = fopen(path, "rb");
    const size_t got = file == NULL ? 0 : fread(to, 1, bytes, file);
    const bool is_whole = file != NULL && got == bytes && fgetc(file) == EOF;
    if (file != NULL) fclose(file);
    return is_whole;
}

static bool write_file(const char *path, const void *from, size_t bytes)
{
    FILE *const file = fopen(path, "wb");
    const bool is_whole = file != NULL && fwrite(from, 1, bytes, file) == bytes;
    return file != NULL && fclose(file) == 0 && is_whole;
}

/* --- talking ----------------------------------------------------------------------------------------------------- */

static prefill_context prefill;
static decode_context decode;

static int begin(const char *folder, const char *from)
{
    if (!read_file(folder, "prefill/src/weights.bin", prefill_weights, sizeof prefill_weights)
        || !read_file(folder, "decode/src/weights.bin", decode_weights, sizeof decode_weights))
        return failed("there are no weights here: run it in its folder, or set TALK to that folder");
    if (prefill_check_weights(prefill_weights, sizeof prefill_weights) != PREFILL_OK
        || decode_check_weights(decode_weights, sizeof decode_weights) != DECODE_OK)
        return failed("these are not the weights of this program");
    /* Both are given the same memory for their state: what one writes the other reads. */
    if (prefill_init(&prefill, prefill_arena, sizeof prefill_arena, state, sizeof state, prefill_weights,
                     sizeof prefill_weights) != PREFILL_OK)
        return failed(prefill_last_error(&prefill));
    if (decode_init(&decode, decode_arena, sizeof decode_arena, state, sizeof state, decode_weights,
                    sizeof decode_weights) != DECODE_OK)
        return failed(decode_last_error(&decode));
    if (from == NULL) return 0;
    if (!read_file("", from, saved, sizeof saved) || decode_load_state(&decode, saved, sizeof saved) != DECODE_OK)
        return failed("the state cannot be read, or is none of this program");
    return 0;
}

/* A persistent number. There is no error: both names are in the graph. */
static int64_t number(const char *name)
{
    decode_tensor tensor = { 0 };
    decode_fetch(&decode, name, &tensor);
    return *(const int64_t *)tensor.data;
}

static int talk(const char *prompt, int64_t count, float temperature, int64_t seed, bool in_numbers)
{
    static int64_t tokens[MOST_TEXT + 1];
    prefill_outputs first;
    decode_outputs next;
    const decode_inputs none = { .temperature = &temperature, .seed = &seed };
    tokens[0] = number("token"); /* chosen last, and not in the cache yet; in the beginning it is END */
    size_t length = 1 + encode(prompt, tokens + 1);
    const size_t room = (size_t)(CONTEXT - number("step"));
    if (room == 0) return failed("the cache is full");
    if (length > room) length = room;
    const prefill_inputs in = {
        .prompt = tokens, .temperature = &temperature, .seed = &seed, .T = (int64_t)length
    };
    if (prefill_step(&prefill, &in, &first) != PREFILL_OK) return failed(prefill_last_error(&prefill));
    int64_t token = first.token[0];
    if (!in_numbers) fputs(prompt, stdout);
    while (count-- > 0 && token != END) {
        if (in_numbers) printf("%d\n", (int)token);
        else fputs(pieces[token], stdout);
        fflush(stdout);
        if (count == 0 || number("step") == CONTEXT) break;
        if (decode_step(&decode, &none, &next) != DECODE_OK) return failed(decode_last_error(&decode));
        token = next.token[0];
    }
    if (!in_numbers) putchar('\n');
    return 0;
}

int main(int argc, char **argv)
{
    const char *prompt = "The for statement", *from = NULL, *to = NULL, *const folder = getenv("TALK");
    int64_t count = 200, seed = 1;
    float temperature = 0.7f;
    bool in_numbers = false;
    for (int i = 1; i < argc; ++i) {
        const bool is_option = argv[i][0] == '-' && argv[i][1] != '\0' && argv[i][2] == '\0';
        const char option = is_option ? argv[i][1] : '\0';
        if (option == 'i') in_numbers = true;
        else if (!is_option) prompt = argv[i];
        else if (strchr("ntslw", option) == NULL || ++i == argc)
            return failed("use: talk [-n TOKENS] [-t TEMPERATURE] [-s SEED] [-l STATE] [-w STATE] [-i] [PROMPT]");
        else if (option == 'n') count = strtoll(argv[i], NULL, 10);
        else if (option == 't') temperature = strtof(argv[i], NULL);
        else if (option == 's') seed = strtoll(argv[i], NULL, 10);
        else if (option == 'l') from = argv[i];
        else to = argv[i];
    }
    if (begin(folder == NULL ? "" : folder, from) != 0) return 1;
    if (talk(prompt, count, temperature, seed, in_numbers) != 0) return 1;
    if (to == NULL) return 0;
    if (decode_save_state(&decode, saved, sizeof saved) != DECODE_OK || !write_file(to, saved, sizeof saved))
        return failed("the state cannot be written");
    return 0;
}
