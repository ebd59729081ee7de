/* oinf_dump: prints what an .oinf model file holds, or why it is refused.
 *
 * Written from docs/oinf.md alone, as an example of a reader in plain C11 and POSIX. The file is hostile until shown
 * otherwise: a `struct span` is the part still unread, nothing is read without asking it what is left, and the output
 * is held back until the whole file is accepted. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 72, MAX_NAME = 255, MAX_RANK = 16, HAS_DATA = 1, HAS_QUANT = 2, SHOWN = 4 };
enum { BOOL = 12, BITSET = 13, STRING = 14, NDARRAY = 15, T2 = 24, T1 = 25, TAGS = 26 };
static const uint64_t MAX_CLAIM_BITS = UINT64_C(1) << 50; /* 2^47 bytes */
static const uint64_t MAX_GAP = UINT64_C(2) << 20;        /* zeros that belong to no entry */

/* The type tags. kind: i signed, u unsigned, f float; tags 0 and 13 to 15 are no element types (bits 0). */
static const struct { const char *name; unsigned bits; char kind; } types[TAGS] = {
    {"", 0, 0},         {"i8", 8, 'i'},   {"i16", 16, 'i'},  {"i32", 32, 'i'}, {"i64", 64, 'i'}, {"u8", 8, 'u'},
    {"u16", 16, 'u'},   {"u32", 32, 'u'}, {"u64", 64, 'u'},  {"f16", 16, 'f'}, {"f32", 32, 'f'}, {"f64", 64, 'f'},
    {"bool", 8, 'u'},   {"bitset", 0, 0}, {"string", 0, 0},  {"ndarray", 0, 0}, {"bf16", 16, 'f'}, {"f8", 8, 'f'},
    {"i4", 4, 'i'},     {"i2", 2, 'i'},   {"i1", 1, 'i'},    {"u4", 4, 'u'},   {"u2", 2, 'u'},   {"u1", 1, 'u'},
    {"t2", 2, 'i'},     {"t1", 1, 'u'},
};

struct span { uint64_t pos, end; };                                   /* unread bytes: pos <= end <= file_size */
struct text { const uint8_t *bytes; uint64_t length, at; };           /* a String and the byte it starts at */
struct shape { uint64_t tag, rank, dims[MAX_RANK], count, nbytes; };  /* a tensor type and the size it gives */

static const char *path;
static const uint8_t *file;
static uint64_t file_size, version, data_start, unclaimed;
static struct span *blobs; /* room for every blob the tables can name */
static struct text *names; /* room for the largest table */
static size_t n_blobs;
static FILE *out; /* the output so far, kept in memory */

/* Says what is wrong at which byte and ends the program. */
__attribute__((noreturn, format(printf, 2, 3))) static void refuse(uint64_t at, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: byte %" PRIu64 ": ", path, at);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(EXIT_FAILURE);
}

/* Refuses unless `count` more bytes are left. */
static void need(const struct span *span, uint64_t count, const char *what) {
    if (count > span->end - span->pos)
        refuse(span->pos, "%s takes %" PRIu64 " bytes, %" PRIu64 " are left", what, count, span->end - span->pos);
}

/* The little-endian integer of `width` (1 to 8) bytes at `pos`; the caller knows that they are there. */
static uint64_t integer_at(uint64_t pos, unsigned width) {
    uint64_t value = 0;
    for (unsigned i = 0; i < width; i++) value |= (uint64_t)file[pos + i] << (8 * i);
    return value;
}

/* Reads one integer and steps over it. */
static uint64_t take(struct span *span, unsigned width, const char *what) {
    need(span, width, what);
    span->pos += width;
    return integer_at(span->pos - width, width);
}

/* Reads one integer that must have the given value. */
static void take_exactly(struct span *span, unsigned width, uint64_t wanted, const char *what) {
    uint64_t at = span->pos, value = take(span, width, what);
    if (value != wanted) refuse(at, "%s is %" PRIu64 ", not %" PRIu64, what, value, wanted);
}

/* Steps over `count` bytes that must be zero. */
static void take_zeros(struct span *span, uint64_t count, const char *what) {
    need(span, count, what);
    for (uint64_t stop = span->pos + count; span->pos < stop; span->pos++)
        if (file[span->pos] != 0) refuse(span->pos, "%s is not zero", what);
}

/* Steps over the rest of a span that belongs to no entry: zeros, and not too many of them. */
static void take_gap(struct span *span) {
    uint64_t length = span->end - span->pos;
    if (length > MAX_GAP) refuse(span->pos, "%" PRIu64 " bytes that belong to no entry", length);
    take_zeros(span, length, "byte that belongs to no entry");
}

/* How many zeros follow `length` bytes up to a multiple of 8. */
static uint64_t padding(uint64_t length) { return (8 - length % 8) % 8; }

/* Reads a String with its padding. */
static struct text take_string(struct span *span, const char *what) {
    struct text text = {.at = span->pos};
    text.length = take(span, 4, what);
    need(span, text.length, what);
    text.bytes = file + span->pos;
    span->pos += text.length;
    take_zeros(span, padding(4 + text.length), "padding of a string");
    return text;
}

/* Reads the name that an entry starts with. */
static struct text take_name(struct span *span) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    struct text name = take_string(span, "name");
    if (name.length < 1 || name.length > MAX_NAME) refuse(name.at, "name of %" PRIu64 " bytes", name.length);
    for (uint64_t i = 0; i < name.length; i++)
        if (!memchr(allowed, name.bytes[i], sizeof allowed - 1))
            refuse(name.at + 4 + i, "character 0x%02x in a name", name.bytes[i]);
    return name;
}

/* Orders names for qsort. */
static int by_name(const void *left, const void *right) {
    const struct text *a = left, *b = right;
    int order = memcmp(a->bytes, b->bytes, a->length < b->length ? a->length : b->length);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

/* Ends a table: only zeros are left of its section, and no two of its names are the same. */
static void finish_table(struct span *section, size_t count) {
    take_gap(section);
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 1; i < count; i++)
        if (by_name(&names[i - 1], &names[i]) == 0)
            refuse(names[i].at > names[i - 1].at ? names[i].at : names[i - 1].at, "second entry of this name");
}

/* Checks that a blob lies in the data section and remembers it; `at` is where the entry says so. Blobs that overlap
 * are found at the end (check_gaps); until then `unclaimed` keeps a file from having the same bytes read many times. */
static struct span claim_blob(uint64_t at, uint64_t nbytes, uint64_t offset) {
    if (offset % 8 != 0) refuse(at, "offset %" PRIu64 " is no multiple of 8", offset);
    if (offset < data_start || offset > file_size || nbytes > file_size - offset)
        refuse(at, "%" PRIu64 " bytes from %" PRIu64 " do not lie in the data section", nbytes, offset);
    if (nbytes > unclaimed) refuse(at, "blobs overlap: together they are larger than the data section");
    unclaimed -= nbytes;
    struct span blob = {offset, offset + nbytes};
    if (nbytes > 0) blobs[n_blobs++] = blob;
    return blob;
}

/* Orders blobs for qsort. */
static int by_start(const void *left, const void *right) {
    const struct span *a = left, *b = right;
    return (a->pos > b->pos) - (a->pos < b->pos);
}

/* Checks that no two blobs overlap and that what no blob covers is zero and short. */
static void check_gaps(void) {
    uint64_t covered = data_start;
    qsort(blobs, n_blobs, sizeof *blobs, by_start);
    for (size_t i = 0; i <= n_blobs; i++) {
        uint64_t next = i < n_blobs ? blobs[i].pos : file_size;
        if (next < covered) refuse(next, "blob overlaps the one before it");
        take_gap(&(struct span){covered, next});
        if (i < n_blobs) covered = blobs[i].end;
    }
}

/* Reads the element type (one of the 22 that a tensor may have) and ndim of a shape; its dims may come later. */
static struct shape take_type(struct span *span) {
    uint64_t at = span->pos, tag = take(span, 4, "element type"), rank = take(span, 4, "ndim");
    if (tag >= TAGS || types[tag].bits == 0) refuse(at, "%" PRIu64 " is no tensor type", tag);
    if (rank > MAX_RANK) refuse(at + 4, "%" PRIu64 " dimensions, at most %d are allowed", rank, MAX_RANK);
    return (struct shape){.tag = tag, .rank = rank};
}

/* Reads the dims of a shape and computes its size, which is at most 2^47 bytes. */
static void take_dims(struct span *span, struct shape *shape) {
    uint64_t claim = types[shape->tag].bits; /* in bits, zero extents counted as 1 */
    shape->count = 1;
    for (uint64_t i = 0; i < shape->rank; i++) {
        uint64_t at = span->pos, dim = take(span, 8, "dims"), factor = dim > 0 ? dim : 1;
        if (factor > MAX_CLAIM_BITS / claim) refuse(at, "shape of more than 2^47 bytes");
        claim *= factor;
        shape->count *= dim; /* at most claim */
        shape->dims[i] = dim;
    }
    shape->nbytes = (shape->count * types[shape->tag].bits + 7) / 8;
}

/* The stored bits of element k of the data at `base`. */
static uint64_t element_bits(uint64_t base, uint64_t tag, uint64_t k) {
    unsigned bits = types[tag].bits;
    if (bits >= 8) return integer_at(base + k * (bits / 8), bits / 8);
    return (file[base + k * bits / 8] >> (k * bits % 8)) & ((1U << bits) - 1);
}

/* Checks the element codes that the format does not allow: bool above 1, t2 code 2, spare bits that are set. */
static void check_elements(uint64_t base, uint64_t tag, uint64_t count) {
    uint64_t used = count * types[tag].bits;
    for (uint64_t k = 0; tag == BOOL && k < count; k++)
        if (file[base + k] > 1) refuse(base + k, "bool is %u, not 0 or 1", file[base + k]);
    for (uint64_t k = 0; tag == T2 && k < count; k++)
        if (element_bits(base, T2, k) == 2) refuse(base + k / 4, "t2 element has the code 2");
    if (used % 8 != 0 && file[base + used / 8] >> (used % 8) != 0) refuse(base + used / 8, "spare bits are not zero");
}

/* The value of an f32, f16, bf16 or f8 (the upper byte of an f16) given its bits. */
static double float_value(uint64_t tag, uint64_t stored) {
    uint32_t bits = (uint32_t)stored;
    float value;
    if (strcmp(types[tag].name, "bf16") == 0) bits <<= 16;
    else if (types[tag].bits < 32) {
        uint32_t half = types[tag].bits == 8 ? bits << 8 : bits;
        uint32_t sign = half >> 15, exponent = half >> 10 & 31, fraction = half & 1023;
        if (exponent == 0) return (sign ? -1.0 : 1.0) * fraction * 0x1p-24;
        bits = sign << 31 | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Prints element k of the data at `base`, a space before it. */
static void print_element(uint64_t base, uint64_t tag, uint64_t k) {
    uint64_t bits = element_bits(base, tag, k), sign = UINT64_C(1) << (types[tag].bits - 1);
    if (tag == T1) fprintf(out, " %d", bits ? 1 : -1);
    else if (types[tag].kind == 'u') fprintf(out, " %" PRIu64, bits);
    else if (types[tag].kind == 'i') fprintf(out, " %" PRId64, (int64_t)((bits ^ sign) - sign));
    else {
        double value;
        if (types[tag].bits == 64) memcpy(&value, &bits, sizeof value);
        else value = float_value(tag, bits);
        if (isnan(value)) fputs(" nan", out); /* not "-nan" */
        else fprintf(out, " %.9g", value);
    }
}

/* Prints a type as `f32[2,3]`. */
static void print_shape(const struct shape *shape) {
    fprintf(out, " %s[", types[shape->tag].name);
    for (uint64_t i = 0; i < shape->rank; i++) fprintf(out, "%s%" PRIu64, i ? "," : "", shape->dims[i]);
    fputc(']', out);
}

/* Ends a payload: `padded` ones go on with zeros up to a multiple of 8 (they start on one); then nothing is left. */
static void finish_payload(struct span payload, bool padded) {
    if (padded) take_zeros(&payload, padding(payload.pos), "padding of a payload");
    if (payload.pos != payload.end)
        refuse(payload.pos, "%" PRIu64 " bytes more than the value takes", payload.end - payload.pos);
}

/* Reads and prints the payload of one metadata entry. */
static void dump_metadata(struct span payload, uint64_t tag) {
    if (tag == STRING) {
        struct text text = take_string(&payload, "string");
        for (uint64_t i = 0; i < text.length; i++)
            if (text.bytes[i] < 0x20 || text.bytes[i] > 0x7e) refuse(text.at + 4 + i, "string is not printable ASCII");
        fputc(' ', out);
        fwrite(text.bytes, 1, text.length, out);
    } else if (tag == BITSET) {
        uint64_t bits = take(&payload, 4, "bit_count"), nbytes = (bits + 7) / 8;
        take_exactly(&payload, 4, nbytes, "byte_count");
        need(&payload, nbytes, "bitset");
        check_elements(payload.pos, T1, bits);
        fputc(' ', out);
        for (uint64_t k = 0; k < bits; k++) fputc('0' + (int)element_bits(payload.pos, T1, k), out);
        payload.pos += nbytes;
    } else {
        struct shape shape = {.tag = tag, .count = 1, .nbytes = (types[tag].bits + 7) / 8};
        if (tag == NDARRAY) {
            shape = take_type(&payload);
            take_dims(&payload, &shape);
            print_shape(&shape);
        }
        need(&payload, shape.nbytes, "value");
        check_elements(payload.pos, shape.tag, shape.count);
        for (uint64_t k = 0; k < shape.count; k++) print_element(payload.pos, shape.tag, k);
        payload.pos += shape.nbytes;
    }
    finish_payload(payload, tag == STRING || tag == BITSET || tag == NDARRAY);
}

/* Reads and prints a tensor's quantization. */
static void dump_quantization(struct span payload, const struct shape *shape) {
    uint64_t start = payload.pos, scheme = take(&payload, 4, "scheme"), mode = take(&payload, 4, "scale_mode");
    uint64_t zp_mode = take(&payload, 4, "zp_mode");
    if (scheme != 1 && scheme != 2) refuse(start, "scheme %" PRIu64, scheme);
    if (mode != 1 && mode != 2) refuse(start + 4, "scale_mode %" PRIu64, mode);
    if (zp_mode != 0 && zp_mode != mode) refuse(start + 8, "zp_mode %" PRIu64, zp_mode);
    if (zp_mode != 0 && scheme == 1) refuse(start + 8, "symmetric with a zero point");
    take_exactly(&payload, 4, 0, "reserved");
    uint64_t axis = take(&payload, 8, "scale_axis");
    if (mode == 1 ? axis != 0 : axis >= shape->rank) refuse(start + 16, "scale_axis %" PRIu64, axis);
    uint64_t count = mode == 1 ? 1 : shape->dims[axis], zp_count = zp_mode ? count : 0;
    take_exactly(&payload, 8, count, "scale_count");
    take_exactly(&payload, 8, zp_mode ? axis : 0, "zp_axis");
    take_exactly(&payload, 8, zp_count, "zp_count");
    need(&payload, 4 * (count + zp_count), "scales and zero points"); /* count <= 2^50, see take_dims */
    fprintf(out, " quant %s %s %" PRIu64 " scales", scheme == 1 ? "symmetric" : "asymmetric",
            mode == 1 ? "per_tensor" : "per_channel", axis);
    for (uint64_t k = 0; k < count; k++) {
        double scale = float_value(10, integer_at(payload.pos + 4 * k, 4));
        if (!isfinite(scale) || scale <= 0) refuse(payload.pos + 4 * k, "scale is not finite and positive");
        fprintf(out, " %.9g", scale);
    }
    payload.pos += 4 * count;
    fprintf(out, " zero_points%s", zp_mode ? "" : " none");
    for (uint64_t k = 0; k < zp_count; k++) print_element(payload.pos, 3, k);
    payload.pos += 4 * zp_count;
    finish_payload(payload, true);
}

/* FNV-1a, 64 bits. */
static uint64_t hash(struct span data) {
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (; data.pos < data.end; data.pos++) value = (value ^ file[data.pos]) * UINT64_C(0x100000001b3);
    return value;
}

/* Reads and prints what follows a tensor's name. */
static void dump_tensor(struct span *table) {
    struct shape shape = take_type(table);
    uint64_t flags = take(table, 4, "flags"), quant_nbytes = 0, quant_offset = 0;
    if (flags & ~(uint64_t)(version == 1 ? HAS_DATA : HAS_DATA | HAS_QUANT))
        refuse(table->pos - 4, "tensor flags %" PRIu64 " in version %" PRIu64, flags, version);
    take_dims(table, &shape);
    uint64_t at = table->pos, nbytes = take(table, 8, "data_nbytes"), offset = take(table, 8, "data_offset");
    if (version == 2) {
        quant_nbytes = take(table, 8, "quant_nbytes");
        quant_offset = take(table, 8, "quant_offset");
    }
    print_shape(&shape);
    fprintf(out, " %" PRIu64, nbytes);
    if (flags & HAS_DATA) {
        if (nbytes != shape.nbytes) refuse(at, "data_nbytes %" PRIu64 ", not %" PRIu64, nbytes, shape.nbytes);
        struct span data = claim_blob(at + 8, nbytes, offset);
        check_elements(offset, shape.tag, shape.count);
        fprintf(out, " %016" PRIx64, hash(data));
    } else {
        if (nbytes != 0 || offset != 0) refuse(at, "size or offset of a tensor without data");
        fputs(" none", out);
    }
    if (flags & HAS_QUANT) dump_quantization(claim_blob(at + 24, quant_nbytes, quant_offset), &shape);
    else if (quant_nbytes != 0 || quant_offset != 0) refuse(at + 16, "quant fields of a tensor without quantization");
    if (flags & HAS_DATA) fputs(" values", out);
    for (uint64_t k = 0; flags & HAS_DATA && k < shape.count && k < SHOWN; k++) print_element(offset, shape.tag, k);
}

/* Reads and prints one of the three tables (0 size variables, 1 metadata, 2 tensors). */
static void dump_table(int which, struct span section, uint64_t count) {
    static const char *const words[] = {"size", "meta", "tensor"};
    for (uint64_t i = 0; i < count; i++) {
        names[i] = take_name(&section);
        fprintf(out, "%s %.*s", words[which], (int)names[i].length, (const char *)names[i].bytes);
        if (which == 0) fprintf(out, " %" PRIu64, take(&section, 8, "value"));
        else if (which == 1) {
            uint64_t at = section.pos, tag = take(&section, 4, "value_type");
            if (tag == 0 || tag >= TAGS) refuse(at, "value_type %" PRIu64, tag);
            take_exactly(&section, 4, 0, "metadata flags");
            uint64_t nbytes = take(&section, 8, "nbytes"), offset = take(&section, 8, "offset");
            fprintf(out, " %s", types[tag].name);
            dump_metadata(claim_blob(at + 16, nbytes, offset), tag);
        } else dump_tensor(&section);
        fputc('\n', out);
    }
    finish_table(&section, count);
}

/* Reads the header, then the tables, then looks at what lies between the blobs. */
static void dump_file(void) {
    static const uint64_t least[] = {16, 32, 36}; /* bytes of the shortest entry of each table */
    struct span header = {0, file_size};
    uint64_t count[3], offset[4], most = 0;
    need(&header, HEADER, "file header");
    if (memcmp(file, "OINF", 5) != 0) refuse(0, "not an .oinf file");
    header.pos = 5;
    version = take(&header, 4, "version");
    if (version != 1 && version != 2) refuse(5, "version %" PRIu64, version);
    take_exactly(&header, 4, 0, "header flags");
    for (int i = 0; i < 3; i++) count[i] = take(&header, 4, "entry count");
    take_exactly(&header, 4, 0, "reserved");
    for (int i = 0; i < 4; i++) {
        uint64_t at = header.pos;
        offset[i] = take(&header, 8, "section offset");
        if (offset[i] % 8 != 0) refuse(at, "section offset %" PRIu64 " is no multiple of 8", offset[i]);
        if (offset[i] < (i ? offset[i - 1] : HEADER) || offset[i] > file_size)
            refuse(at, "section offset %" PRIu64 " is out of order or past the end", offset[i]);
    }
    data_start = offset[3];
    unclaimed = file_size - data_start;
    take_exactly(&header, 8, file_size, "file_size");
    take_zeros(&header, 3, "padding of the header");
    take_gap(&(struct span){HEADER, offset[0]});
    for (int i = 0; i < 3; i++) {
        if (count[i] > (offset[i + 1] - offset[i]) / least[i])
            refuse(13 + 4 * (uint64_t)i, "%" PRIu64 " entries do not fit their section", count[i]);
        if (count[i] > most) most = count[i];
    }
    names = calloc(most + 1, sizeof *names);
    blobs = calloc(count[1] + 2 * count[2] + 1, sizeof *blobs);
    if (!names || !blobs) refuse(0, "out of memory");
    for (int i = 0; i < 3; i++) dump_table(i, (struct span){offset[i], offset[i + 1]}, count[i]);
    check_gaps();
}

/* Maps the file named on the command line, reads it, and prints what was read if all of it is allowed. */
int main(int argc, char **argv) {
    static char *text; /* static: still held when refuse() exits */
    size_t length = 0;
    struct stat status;
    if (argc != 2) return fputs("usage: oinf_dump FILE\n", stderr), 2;
    path = argv[1];
    int descriptor = open(path, O_RDONLY);
    if (descriptor < 0 || fstat(descriptor, &status) != 0) refuse(0, "cannot be opened");
    if (!S_ISREG(status.st_mode) || status.st_size < HEADER) refuse(0, "not a file of at least %d bytes", HEADER);
    file_size = (uint64_t)status.st_size;
    file = mmap(NULL, (size_t)file_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (file == MAP_FAILED) refuse(0, "cannot be mapped");
    out = open_memstream(&text, &length);
    if (!out) refuse(0, "out of memory");
    dump_file();
    if (ferror(out) || fclose(out) != 0) refuse(0, "out of memory");
    return fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
