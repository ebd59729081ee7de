/* Writes down what is said in a WAV file: plain C around five generated libraries, Silero VAD and Whisper tiny.

   listen IN.wav

   First it prints where there is speech, then the text, word by word as it is found. It hears the first 30 seconds.
   It is run in the folder that has vad/src/weights.bin and the others, or in the one named by $LISTEN. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crossing.h"
#include "decoder.h"
#include "encoder.h"
#include "mel.h"
#include "sound.h"
#include "vad.h"
#include "weights.h"
#include "words.h"

#define SAMPLES (30 * RATE)
#define CHUNK 512  /* what the detector of speech takes at a time, */
#define CONTEXT 64 /* after the end of what it took before */
#define MOST_TOKENS 224

static float sound[CONTEXT + SAMPLES + CHUNK]; /* begins with silence */

static int failed(const char *what)
{
    fprintf(stderr, "listen: %s\n", what);
    return 1;
}

static void *memory(size_t bytes)
{
    void *const found = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (found == NULL) exit(failed("there is not enough memory"));
    return found;
}

/* A library with its memory; all five begin alike. */
#define START(name, NAME) \
    do { \
        void *const weights = memory(NAME##_WEIGHT_BYTES), *const arena = memory(NAME##_ARENA_BYTES); \
        void *const state = NAME##_STATE_BYTES > 0 ? memory(NAME##_STATE_BYTES) : NULL; \
        if (!read_weights("LISTEN", #name, weights, NAME##_WEIGHT_BYTES)) \
            exit(failed("the weights of " #name " are not here; set LISTEN to the folder that has them")); \
        if (name##_init(&name, arena, NAME##_ARENA_BYTES, state, NAME##_STATE_BYTES, weights, NAME##_WEIGHT_BYTES) != \
            NAME##_OK) \
            exit(failed(name##_last_error(&name))); \
    } while (0)

#define STEP(name, NAME, in, out) \
    do { \
        if (name##_step(&name, in, out) != NAME##_OK) exit(failed(name##_last_error(&name))); \
    } while (0)

/* The keys and values of a layer that nothing reads in the first step, and those that every later step looks at. */
#define NO_PAST(l) \
    with.past_key_values_##l##_encoder_key = with.past_key_values_##l##_encoder_value = sound; \
    with.past_key_values_##l##_decoder_key = with.past_key_values_##l##_decoder_value = sound;
#define HEARD(l) \
    in.past_key_values_##l##_encoder_key = keys.present_##l##_encoder_key; \
    in.past_key_values_##l##_encoder_value = keys.present_##l##_encoder_value;

static vad_context vad;
static mel_context mel;
static encoder_context encoder;
static crossing_context crossing;
static decoder_context decoder;

/* Prints from when to when there is speech; false where there is none. */
static bool find_speech(int count)
{
    bool is_speech = false, has_any = false;
    for (int at = 0; at < count; at += CHUNK) {
        vad_outputs out;
        STEP(vad, VAD, (&(vad_inputs){ .input = sound + at }), &out);
        const bool is_now = out.output[0] > (is_speech ? 0.35f : 0.5f);
        if (is_now && !is_speech) printf("speech from %.1f s", (double)at / RATE);
        if (!is_now && is_speech) printf(" to %.1f s\n", (double)at / RATE);
        is_speech = is_now;
        has_any |= is_now;
    }
    if (is_speech) printf(" to %.1f s\n", (double)count / RATE);
    return has_any;
}

/* The text, token by token: the likeliest each time. */
static void print_text(int count)
{
    static const int64_t begin[] = { TOKEN_START, TOKEN_ENGLISH, TOKEN_TRANSCRIBE, TOKEN_WITHOUT_TIMES };
    const int64_t length = count, first = TOKEN_START;
    mel_outputs features;
    encoder_outputs heard;
    crossing_outputs keys;
    STEP(mel, MEL, (&(mel_inputs){ .waveforms = sound + CONTEXT, .waveforms_lens = &length }), &features);
    STEP(encoder, ENCODER, (&(encoder_inputs){ .input_features = features.features }), &heard);
    crossing_inputs with = { .input_ids = &first, .encoder_hidden_states = heard.last_hidden_state };
    NO_PAST(0)
    NO_PAST(1)
    NO_PAST(2)
    NO_PAST(3)
    STEP(crossing, CROSSING, &with, &keys);
    int64_t token = begin[0];
    decoder_inputs in = { .input_ids = &token, .encoder_hidden_states = heard.last_hidden_state };
    HEARD(0)
    HEARD(1)
    HEARD(2)
    HEARD(3)
    for (int i = 0; i < MOST_TOKENS; ++i) {
        decoder_outputs out;
        STEP(decoder, DECODER, &in, &out);
        if (i + 1 < (int)(sizeof begin / sizeof *begin)) {
            token = begin[i + 1];
            continue;
        }
        int best = 0;
        for (int k = 1; k < TOKENS; ++k)
            if (out.logits[k] > out.logits[best]) best = k;
        if (best >= WORDS) break; /* the end, or a mark that is no text */
        fwrite(words[best].text, 1, words[best].length, stdout);
        fflush(stdout);
        token = best;
    }
    putchar('\n');
}

int main(int argc, char **argv)
{
    if (argc != 2) return failed("usage: listen IN.wav");
    FILE *const file = fopen(argv[1], "rb");
    int64_t left = file == NULL ? -1 : read_head(file);
    if (left < 0) return failed("there is no WAV file of 16 bits, one channel, 16 kHz");
    const int count = read_samples(file, &left, sound + CONTEXT, SAMPLES);
    fclose(file);
    START(vad, VAD);
    if (!find_speech(count)) return 0;
    START(mel, MEL);
    START(encoder, ENCODER);
    START(crossing, CROSSING);
    START(decoder, DECODER);
    encoder_start_threads(&encoder); /* most of the work; without them, one thread does it all */
    decoder_start_threads(&decoder);
    print_text(count);
    encoder_stop_threads(&encoder);
    decoder_stop_threads(&decoder);
    return 0;
}
