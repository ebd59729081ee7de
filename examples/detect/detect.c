/* Finds faces in a picture and draws a box around each: plain C around one generated library.

   detect [-t SCORE] IN.ppm OUT.ppm

   It prints a line for every face: its score, and the left, top, width and height of its box in pixels.
   It is run in the folder that has yunet/src/weights.bin, or in the one named by $DETECT. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picture.h"
#include "weights.h"
#include "yunet.h"

#define SIDE 640 /* the network looks at squares of this size */
#define MOST_FACES 256
#define MARKS 5 /* eyes, nose, corners of the mouth */

typedef struct {
    float score, marks[2 * MARKS];
    box at;
} face;

static _Alignas(YUNET_ALIGNMENT) unsigned char arena[YUNET_ARENA_BYTES], weights[YUNET_WEIGHT_BYTES];
static float input[3 * SIDE * SIDE];

static int failed(const char *what)
{
    fprintf(stderr, "detect: %s\n", what);
    return 1;
}

/* Faces of one grid: a cell knows whether there is one, and where it lies, in cells. */
static int gather(const float *is_face, const float *is_there, const float *boxes, const float *marks, int stride,
                  float least, float factor, face *faces, int count)
{
    const int cells = SIDE / stride;
    for (int i = 0; i < cells * cells && count < MOST_FACES; ++i) {
        const float score = sqrtf(is_face[i] * is_there[i]), size = (float)stride / factor;
        const float x = (float)(i % cells), y = (float)(i / cells), *const b = boxes + 4 * i;
        if (!(score >= least)) continue;
        face *const f = faces + count++;
        f->score = score;
        const float width = expf(b[2]) * size, height = expf(b[3]) * size;
        f->at = (box){ (x + b[0]) * size - width / 2, (y + b[1]) * size - height / 2, width, height };
        for (int k = 0; k < 2 * MARKS; ++k) f->marks[k] = (marks[2 * MARKS * i + k] + (k % 2 ? y : x)) * size;
    }
    return count;
}

static int by_score(const void *one, const void *other)
{
    const float a = ((const face *)one)->score, b = ((const face *)other)->score;
    return (a < b) - (a > b);
}

static float shared(const box *a, const box *b)
{
    const float width = fminf(a->left + a->width, b->left + b->width) - fmaxf(a->left, b->left);
    const float height = fminf(a->top + a->height, b->top + b->height) - fmaxf(a->top, b->top);
    const float both = width > 0 && height > 0 ? width * height : 0;
    return both / (a->width * a->height + b->width * b->height - both);
}

/* Of boxes that cover each other, the best; the others are the same face. */
static int distinct(face *faces, int count)
{
    int kept = 0;
    qsort(faces, (size_t)count, sizeof *faces, by_score);
    for (int i = 0; i < count; ++i) {
        bool is_new = true;
        for (int k = 0; k < kept && is_new; ++k) is_new = shared(&faces[k].at, &faces[i].at) < 0.3f;
        if (is_new) faces[kept++] = faces[i];
    }
    return kept;
}

static void draw(picture *p, const face *f)
{
    static const unsigned char green[3] = { 40, 230, 70 }, red[3] = { 240, 50, 60 };
    const int pen = 1 + (p->width + p->height) / 500;
    outline(p, f->at, green);
    for (int k = 0; k < MARKS; ++k)
        paint(p, (int)f->marks[2 * k] - pen, (int)f->marks[2 * k + 1] - pen, 2 * pen, 2 * pen, red);
}

int main(int argc, char **argv)
{
    static face faces[MOST_FACES];
    static yunet_context context;
    float least = 0.7f;
    picture p = { 0 };
    yunet_outputs out;
    if (argc == 5 && strcmp(argv[1], "-t") == 0) {
        least = strtof(argv[2], NULL);
        argc -= 2, argv += 2;
    }
    if (argc != 3) return failed("usage: detect [-t SCORE] IN.ppm OUT.ppm");
    if (!read_weights("DETECT", "yunet", weights, sizeof weights))
        return failed("yunet/src/weights.bin is not here; set DETECT to the folder that has yunet");
    if (!read_picture(argv[1], &p)) return failed("the picture is not a PPM file (P6, of bytes)");
    if (yunet_init(&context, arena, sizeof arena, NULL, 0, weights, sizeof weights) != YUNET_OK)
        return failed(yunet_last_error(&context));
    yunet_start_threads(&context); /* without them, one thread does it all */
    const float factor = fit(&p, SIDE, input);
    const int status = yunet_step(&context, &(yunet_inputs){ .input = input }, &out);
    yunet_stop_threads(&context);
    if (status != YUNET_OK) return failed(yunet_last_error(&context));
    int count = gather(out.cls_8, out.obj_8, out.bbox_8, out.kps_8, 8, least, factor, faces, 0);
    count = gather(out.cls_16, out.obj_16, out.bbox_16, out.kps_16, 16, least, factor, faces, count);
    count = gather(out.cls_32, out.obj_32, out.bbox_32, out.kps_32, 32, least, factor, faces, count);
    count = distinct(faces, count);
    for (int i = 0; i < count; ++i) {
        const box at = faces[i].at;
        printf("%.2f %.0f %.0f %.0f %.0f\n", (double)faces[i].score, (double)at.left, (double)at.top, (double)at.width,
               (double)at.height);
        draw(&p, faces + i);
    }
    const bool is_written = write_picture(argv[2], &p);
    free(p.rgb);
    return is_written ? 0 : failed("the picture cannot be written");
}
