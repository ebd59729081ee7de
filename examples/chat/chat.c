/* A conversation with a language model: plain C around two generated libraries, which share one state.

   chat [--prompt TEXT] [--system TEXT] [--temperature T] [--top-k K] [--top-p P] [--seed N] [--tokens N] [--greedy]
        [--ids]

   Without --prompt it reads what you say line by line: /reset begins a new conversation, /quit ends it, and Ctrl-C
   stops an answer. --greedy takes the likeliest token each time, --ids prints numbers of tokens instead of text. It is
   run in the folder that has its files, or in the one named by $CHAT. */

#define _DEFAULT_SOURCE

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "chat_format.h"
#include "chat_sizes.h"
#include "decode.h"
#include "prefill.h"
#include "tokenizer.h"

#if PREFILL_STATE_ID != DECODE_STATE_ID
#error "both graphs must declare the same persistent variables"
#endif

#define MOST_LINE 16384
#define MOST_CANDIDATES 1024

static _Alignas(64) unsigned char prefill_arena[PREFILL_ARENA_BYTES], decode_arena[DECODE_ARENA_BYTES];
static _Alignas(64) unsigned char state[DECODE_STATE_BYTES]; /* both are given it: what one writes the other reads */
static prefill_context prefill;
static decode_context decode;
static tokenizer pieces;
static tokenizer_work work;
static const void *prefill_weights, *decode_weights;
static volatile sig_atomic_t is_stopped;

typedef struct {
    const char *prompt, *system, *folder;
    float temperature, top_p;
    long top_k, tokens;
    uint64_t seed;
    bool in_numbers;
} options;

static bool failed(const char *what)
{
    fprintf(stderr, "chat: %s\n", what);
    return false;
}

static void stop(int signal_number)
{
    (void)signal_number;
    is_stopped = 1;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* A file as memory: the system reads what is used, when it is used, and programs share it. */
static const void *mapped(const char *folder, const char *name, size_t *bytes)
{
    char path[1024];
    struct stat about;
    void *data = MAP_FAILED;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int file = open(path, O_RDONLY);
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0) {
        *bytes = (size_t)about.st_size;
        data = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, file, 0);
    }
    if (file >= 0) close(file);
    if (data != MAP_FAILED) return data;
    fprintf(stderr, "chat: cannot read %s: run it in its folder, or set CHAT to that folder\n", path);
    return NULL;
}

/* Only one of the two libraries works at a time: the weights of the other need no memory, they are in the file. */
static void forget(const void *weights, size_t bytes)
{
    madvise((void *)(uintptr_t)weights, bytes, MADV_DONTNEED);
}

static bool begin(const char *folder)
{
    size_t bytes = 0, prefill_bytes = 0, decode_bytes = 0;
    const void *const vocabulary = mapped(folder, "tokenizer.bin", &bytes);
    decode_weights = mapped(folder, "decode/src/weights.bin", &decode_bytes);
    prefill_weights = mapped(folder, "prefill/src/weights.bin", &prefill_bytes);
    if (vocabulary == NULL || decode_weights == NULL || prefill_weights == NULL) return false;
    if (!tokenizer_open(&pieces, vocabulary, bytes)) return failed("tokenizer.bin is not that of this program");
    const bool is_decode = decode_check_weights(decode_weights, decode_bytes) == DECODE_OK;
    forget(decode_weights, decode_bytes);
    const bool is_prefill = prefill_check_weights(prefill_weights, prefill_bytes) == PREFILL_OK;
    forget(prefill_weights, prefill_bytes);
    if (!is_decode || !is_prefill) return failed("these are not the weights of this program");
    if (prefill_init(&prefill, prefill_arena, sizeof prefill_arena, state, sizeof state, prefill_weights,
                     prefill_bytes) != PREFILL_OK)
        return failed(prefill_last_error(&prefill));
    if (decode_init(&decode, decode_arena, sizeof decode_arena, state, sizeof state, decode_weights, decode_bytes)
        != DECODE_OK)
        return failed(decode_last_error(&decode));
    return true;
}

/* --- choosing a token --------------------------------------------------------------------------------------------- */

static uint64_t random_state;

/* splitmix64: from 0 up to 1. */
static double drawn(void)
{
    uint64_t z = (random_state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* The likeliest tokens in `best`, the likeliest first; how many there are. */
static long likeliest(const float *logits, long most, int32_t *best)
{
    long count = 0;
    for (int32_t token = 0; token < CHAT_VOCABULARY; ++token) {
        if (count == most && !(logits[token] > logits[best[count - 1]])) continue;
        long at = count < most ? count++ : count - 1;
        for (; at > 0 && logits[token] > logits[best[at - 1]]; --at) best[at] = best[at - 1];
        best[at] = token;
    }
    return count;
}

static int32_t chosen(const float *logits, const options *o)
{
    static int32_t best[MOST_CANDIDATES];
    static double weight[MOST_CANDIDATES];
    const bool is_greedy = o->temperature <= 0;
    long count = likeliest(logits, is_greedy ? 1 : o->top_k, best);
    if (is_greedy) return best[0];
    double sum = 0, kept = 0;
    for (long i = 0; i < count; ++i) {
        weight[i] = exp((double)(logits[best[i]] - logits[best[0]]) / (double)o->temperature);
        sum += weight[i];
    }
    for (long i = 0; i < count; ++i) {
        kept += weight[i];
        if (kept >= (double)o->top_p * sum) count = i + 1;
    }
    double left = drawn() * kept;
    for (long i = 0; i < count; ++i)
        if ((left -= weight[i]) < 0) return best[i];
    return best[count - 1];
}

static bool is_end(int32_t token)
{
    for (size_t i = 0; i < sizeof chat_ends / sizeof *chat_ends; ++i)
        if (chat_ends[i] == token) return true;
    return false;
}

/* --- a turn ------------------------------------------------------------------------------------------------------- */

/* Tokens in the cache. There is no error: the graph has the name. */
static int64_t in_use(void)
{
    decode_tensor tensor = { 0 };
    decode_fetch(&decode, "step", &tensor);
    return *(const int64_t *)tensor.data;
}

/* The tokens of a turn: texts between two control tokens are encoded together. -1 where they are too many. */
static int64_t encoded(const chat_part *part, const char *system, const char *user, int64_t *tokens, int64_t most)
{
    static char text[TOKENIZER_MOST_TEXT];
    size_t length = 0;
    int64_t count = 0;
    for (;; ++part) {
        if (part->token >= 0 || part->token == CHAT_END) {
            const int64_t found = tokenizer_encode(&pieces, &work, text, length, tokens + count, most - count);
            if (found < 0) return -1;
            count += found, length = 0;
            if (part->token == CHAT_END) return count;
            if (count == most) return -1;
            tokens[count++] = part->token;
            continue;
        }
        const char *const added = part->token == CHAT_TEXT ? part->text : part->token == CHAT_USER ? user : system;
        if (length + strlen(added) > sizeof text) return -1;
        memcpy(text + length, added, strlen(added));
        length += strlen(added);
    }
}

/* Takes in tokens, as many at once as the graph takes; the logits of what follows, or NULL. */
static const float *read_tokens(const int64_t *tokens, int64_t count)
{
    prefill_outputs out = { 0 };
    forget(decode_weights, DECODE_WEIGHT_BYTES);
#ifdef PREFILL_THREADS
    prefill_start_threads(&prefill); /* without them it does the work alone */
#endif
    for (int64_t at = 0; at < count; at += CHAT_PROMPT) {
        const prefill_inputs in = { .tokens = tokens + at, .T = count - at < CHAT_PROMPT ? count - at : CHAT_PROMPT };
        if (prefill_step(&prefill, &in, &out) != PREFILL_OK) {
            failed(prefill_last_error(&prefill));
            out.logits = NULL;
            break;
        }
    }
#ifdef PREFILL_THREADS
    prefill_stop_threads(&prefill);
#endif
    forget(prefill_weights, PREFILL_WEIGHT_BYTES);
    return out.logits;
}

/* Prints text, with U+FFFD for what is not UTF-8. */
static void print_text(const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const size_t own = tokenizer_character_bytes(text + at, bytes - at);
        if (own == 0) fputs("\xEF\xBF\xBD", stdout);
        else fwrite(text + at, 1, own, stdout);
        at += own == 0 ? 1 : own;
    }
    fflush(stdout);
}

/* Prints what a token adds, whole characters only; what is left at the end, where there is no token. */
static void show(int32_t token, bool in_numbers)
{
    static char waiting[4 + 1024];
    static size_t length;
    size_t bytes;
    const char *const piece = tokenizer_piece(&pieces, token, &bytes);
    if (in_numbers) {
        printf("%d\n", (int)token);
        return;
    }
    if (bytes > sizeof waiting - length) bytes = sizeof waiting - length;
    memcpy(waiting + length, piece, bytes);
    length += bytes;
    const size_t whole = token < 0 ? length : tokenizer_whole_bytes(waiting, length);
    print_text(waiting, whole);
    memmove(waiting, waiting + whole, length -= whole);
}

/* Answers until the model ends, Ctrl-C, or there is no more room; how many tokens it said, or -1. */
static int64_t answer(const float *logits, const options *o)
{
    int64_t count = 0;
#ifdef DECODE_THREADS
    decode_start_threads(&decode);
#endif
    while (logits != NULL && !is_stopped && count < o->tokens) {
        const int32_t token = chosen(logits, o);
        if (is_end(token)) break;
        show(token, o->in_numbers);
        ++count;
        if (in_use() == CHAT_CONTEXT) {
            fprintf(stderr, "\nchat: the conversation has %d tokens, all there is room for; /reset begins a new one\n",
                    CHAT_CONTEXT);
            break;
        }
        const int64_t next = token;
        const decode_inputs in = { .token = &next };
        decode_outputs out;
        if (decode_step(&decode, &in, &out) != DECODE_OK) {
            failed(decode_last_error(&decode));
            logits = NULL;
            break;
        }
        logits = out.logits;
    }
#ifdef DECODE_THREADS
    decode_stop_threads(&decode);
#endif
    if (!o->in_numbers) show(-1, false), puts("");
    fflush(stdout);
    return logits == NULL ? -1 : count;
}

static bool turn(const char *text, const options *o)
{
    static int64_t tokens[CHAT_CONTEXT];
    const int64_t room = CHAT_CONTEXT - in_use();
    const chat_part *const parts = in_use() > 0 ? chat_next : o->system[0] ? chat_with_system : chat_without_system;
    const int64_t count = encoded(parts, o->system, text, tokens, room);
    if (count < 0) {
        fprintf(stderr, "chat: this has more than the %d tokens that are left of %d; /reset begins a conversation\n",
                (int)room, CHAT_CONTEXT);
        return false;
    }
    is_stopped = 0;
    const double start = seconds();
    const float *const logits = read_tokens(tokens, count);
    const double middle = seconds();
    const int64_t said = answer(logits, o);
    if (said < 0) return false;
    const double end = seconds();
    fprintf(stderr, "[%d tokens read, %.0f a second; %d said, %.0f a second; %d of %d in use]\n", (int)count,
            (double)count / (middle - start), (int)said, (double)said / (end - middle), (int)in_use(), CHAT_CONTEXT);
    return true;
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static int talk(const options *o)
{
    static char line[MOST_LINE];
    const bool is_terminal = isatty(0) != 0;
    if (is_terminal)
        fputs("Say something. /reset begins a new conversation, /quit ends it, Ctrl-C stops an answer.\n", stderr);
    for (;;) {
        if (is_terminal) fputs("> ", stderr);
        is_stopped = 0;
        if (fgets(line, sizeof line, stdin) == NULL) break; /* the end of the input, or Ctrl-C */
        const size_t length = strcspn(line, "\n");
        if (line[length] == '\0' && length + 1 == sizeof line) {
            for (int c = 0; c != '\n' && c != EOF;) c = getchar();
            failed("a line has at most 16,000 bytes");
            continue;
        }
        line[length] = '\0';
        if (strcmp(line, "/quit") == 0) break;
        if (strcmp(line, "/reset") == 0) prefill_reset(&prefill);
        else if (line[0] != '\0') turn(line, o);
    }
    if (is_terminal) fputs("\n", stderr);
    return 0;
}

#define USE \
    "use: chat [--prompt TEXT] [--system TEXT] [--temperature T] [--top-k K] [--top-p P] [--seed N] [--tokens N]" \
    " [--greedy] [--ids]"

static int usage(void)
{
    failed(USE);
    return 2;
}

static bool number(const char *text, double least, double most, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && *value >= least && *value <= most;
}

int main(int argc, char **argv)
{
    const char *const folder = getenv("CHAT");
    options o = { .system = CHAT_DEFAULT_SYSTEM, .folder = folder == NULL ? "." : folder, .temperature = 0.7f,
                  .top_p = 0.9f, .top_k = 40, .tokens = CHAT_CONTEXT, .seed = 1 };
    for (int i = 1; i < argc; ++i) {
        const char *const name = argv[i];
        double value = 0;
        if (strcmp(name, "--greedy") == 0) o.temperature = 0;
        else if (strcmp(name, "--ids") == 0) o.in_numbers = true;
        else if (strcmp(name, "--help") == 0) return puts(USE) < 0;
        else if (++i == argc) return usage();
        else if (strcmp(name, "--prompt") == 0) o.prompt = argv[i];
        else if (strcmp(name, "--system") == 0) o.system = argv[i];
        else if (strcmp(name, "--temperature") == 0 && number(argv[i], 0, 100, &value)) o.temperature = (float)value;
        else if (strcmp(name, "--top-k") == 0 && number(argv[i], 1, MOST_CANDIDATES, &value)) o.top_k = (long)value;
        else if (strcmp(name, "--top-p") == 0 && number(argv[i], 0, 1, &value)) o.top_p = (float)value;
        else if (strcmp(name, "--seed") == 0 && number(argv[i], 0, 1e15, &value)) o.seed = (uint64_t)value;
        else if (strcmp(name, "--tokens") == 0 && number(argv[i], 0, 1e9, &value)) o.tokens = (long)value;
        else return usage();
    }
    const struct sigaction action = { .sa_handler = stop };
    sigaction(SIGINT, &action, NULL);
    random_state = o.seed;
    if (!begin(o.folder)) return 1;
    return o.prompt != NULL ? !turn(o.prompt, &o) : talk(&o);
}
