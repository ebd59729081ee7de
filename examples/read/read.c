/* Reads the text in a picture: plain C around two generated libraries, one that finds lines and one that reads them.

   read [-b BOXES.ppm] IN.ppm

   It prints a line of text for every line that it finds, from the top to the bottom; -b writes the picture with a box
   around each. Lines lie straight. It is run in the folder that has finder/src/weights.bin and reader/src/weights.bin,
   or in the one named by $READ. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "characters.h"
#include "finder.h"
#include "picture.h"
#include "reader.h"
#include "weights.h"

#define SIDE 640 /* the first network looks at squares of this size */
#define HEIGHT 48 /* the second one at lines that are so high, */
#define MOST_WIDTH 960 /* and no longer than this */
#define MOST_LINES 256

static _Alignas(FINDER_ALIGNMENT) unsigned char finder_arena[FINDER_ARENA_BYTES], finder_weights[FINDER_WEIGHT_BYTES];
static _Alignas(READER_ALIGNMENT) unsigned char reader_arena[READER_ARENA_BYTES], reader_weights[READER_WEIGHT_BYTES];
static finder_context finder;
static reader_context reader;

static int failed(const char *what)
{
    fprintf(stderr, "read: %s\n", what);
    return 1;
}

/* --- where lines are --------------------------------------------------------------------------------------------- */

typedef struct {
    int left, top, right, bottom, count;
    double sum;
} patch;

/* The pixels that hang together with this one and are likely to be text. They are taken out of the map. */
static patch connected(float *map, int start)
{
    static int waiting[SIDE * SIDE];
    patch found = { SIDE, SIDE, -1, -1, 0, 0 };
    int count = 0;
    waiting[count++] = start;
    found.sum = (double)map[start];
    map[start] = 0;
    while (count > 0) {
        const int at = waiting[--count], x = at % SIDE, y = at / SIDE;
        const int near[4] = { x > 0 ? at - 1 : at, x < SIDE - 1 ? at + 1 : at, at - SIDE, at + SIDE };
        if (x < found.left) found.left = x;
        if (x > found.right) found.right = x;
        if (y < found.top) found.top = y;
        if (y > found.bottom) found.bottom = y;
        ++found.count;
        for (int i = 0; i < 4; ++i) {
            if (near[i] < 0 || near[i] >= SIDE * SIDE || !(map[near[i]] > 0.3f)) continue;
            found.sum += (double)map[near[i]];
            map[near[i]] = 0;
            waiting[count++] = near[i];
        }
    }
    return found;
}

static int by_place(const void *one, const void *other)
{
    const box *const a = one, *const b = other;
    const float apart = a->top + a->height / 2 - b->top - b->height / 2;
    if (fabsf(apart) * 2 > fminf(a->height, b->height)) return apart > 0 ? 1 : -1;
    return (a->left > b->left) - (a->left < b->left);
}

/* Boxes around lines, in pixels of the picture. What the network marks is the middle of a line: its box is larger. */
static int lines_of(const picture *p, box *lines)
{
    static float input[3 * SIDE * SIDE], map[SIDE * SIDE];
    static const float mean[3] = { 0.485f, 0.456f, 0.406f }, deviation[3] = { 0.229f, 0.224f, 0.225f };
    finder_outputs out;
    int count = 0;
    const float factor = fit(p, SIDE, input);
    for (int i = 0; i < 3 * SIDE * SIDE; ++i)
        input[i] = (input[i] / 255 - mean[i / SIDE / SIDE]) / deviation[i / SIDE / SIDE];
    if (finder_step(&finder, &(finder_inputs){ .x = input }, &out) != FINDER_OK) return -1;
    memcpy(map, out.fetch_name_0, sizeof map);
    for (int i = 0; i < SIDE * SIDE && count < MOST_LINES; ++i) {
        if (!(map[i] > 0.3f)) continue;
        const patch found = connected(map, i);
        const float width = (float)(found.right - found.left + 1), height = (float)(found.bottom - found.top + 1);
        const float more = 0.75f * width * height / (width + height);
        if (found.sum < 0.6 * found.count || height < 3 || width < 3) continue;
        lines[count++] = (box){ ((float)found.left - more) / factor, ((float)found.top - more) / factor,
                                (width + 2 * more) / factor, (height + 2 * more) / factor };
    }
    qsort(lines, (size_t)count, sizeof *lines, by_place);
    return count;
}

/* --- what they say ----------------------------------------------------------------------------------------------- */

/* Prints the text of a line: the likeliest character at each place, repeats and blanks left out. */
static int print_line(const picture *p, box line)
{
    static float input[3 * HEIGHT * MOST_WIDTH];
    const float wanted = ceilf((float)HEIGHT * line.width / line.height);
    const int width = wanted > MOST_WIDTH ? MOST_WIDTH : wanted < HEIGHT ? HEIGHT : (int)wanted;
    reader_outputs out;
    reader_tensor places;
    int before = 0;
    scale(p, line, width, HEIGHT, width, HEIGHT, input);
    for (int i = 0; i < 3 * HEIGHT * width; ++i) input[i] = input[i] / 127.5f - 1;
    if (reader_step(&reader, &(reader_inputs){ .x = input, .DynamicDimension_1 = width }, &out) != READER_OK) return 1;
    if (reader_fetch(&reader, "fetch_name_0", &places) != READER_OK) return 1;
    for (int64_t i = 0; i < places.shape[1]; ++i) {
        const float *const likely = out.fetch_name_0 + i * CHARACTERS;
        int best = 0;
        for (int k = 1; k < CHARACTERS; ++k)
            if (likely[k] > likely[best]) best = k;
        if (best != 0 && best != before) fputs(characters[best], stdout);
        before = best;
    }
    putchar('\n');
    return 0;
}

int main(int argc, char **argv)
{
    static const unsigned char green[3] = { 40, 230, 70 };
    static box lines[MOST_LINES];
    const char *drawn = NULL;
    picture p = { 0 };
    if (argc == 4 && strcmp(argv[1], "-b") == 0) {
        drawn = argv[2];
        argc -= 2, argv += 2;
    }
    if (argc != 2) return failed("usage: read [-b BOXES.ppm] IN.ppm");
    if (!read_weights("READ", "finder", finder_weights, sizeof finder_weights) ||
        !read_weights("READ", "reader", reader_weights, sizeof reader_weights))
        return failed("the weights are not here; set READ to the folder that has finder and reader");
    if (!read_picture(argv[1], &p)) return failed("the picture is not a PPM file (P6, of bytes)");
    if (finder_init(&finder, finder_arena, FINDER_ARENA_BYTES, NULL, 0, finder_weights, FINDER_WEIGHT_BYTES) != FINDER_OK)
        return failed(finder_last_error(&finder));
    if (reader_init(&reader, reader_arena, READER_ARENA_BYTES, NULL, 0, reader_weights, READER_WEIGHT_BYTES) != READER_OK)
        return failed(reader_last_error(&reader));
    const int count = lines_of(&p, lines);
    if (count < 0) return failed(finder_last_error(&finder));
    for (int i = 0; i < count; ++i)
        if (print_line(&p, lines[i]) != 0) return failed(reader_last_error(&reader));
    for (int i = 0; i < count; ++i) outline(&p, lines[i], green);
    const bool is_written = drawn == NULL || write_picture(drawn, &p);
    free(p.rgb);
    return is_written ? 0 : failed("the picture cannot be written");
}
