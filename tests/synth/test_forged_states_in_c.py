"""States with a right CRC and wrong contents: refused, or harmless. Under the sanitizers, in C."""

import subprocess
from pathlib import Path

from openinfer import Synthesizer, graph
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.target import Passes

TEXT = """
dynamic { x: f32[3]; }
persistent {
    n: i32; flag: bool[5]; t: t2[7]; q: u4[3]; i: i64;
    A(t): f32[3] @table; B(t): bool[2] @table @fixed(t=6); C(t): u4[3] @table @fixed(t=5); T(t): t2[7] @table;
    M(l, r, s): f32[1, 2] @auto_dim(r, s) @table; F(l, r): i16[2, 3] @auto_dim(r) @table @fixed(l=3, r=4);
    G(r): f32[2, 3] @auto_dim(r) @table; E(t, u): f32[0] @table;
}
volatile { y: f32[3]; z: f32[0]; p: bool[2]; k: u4[3]; m: f32[2, 3]; g: i16[3, 3]; w: f32[3, 3]; }
block entry {
    cache.write x >> A[n];
    cache.read A[n] >> y;
    op not(p) >> p; cache.write p >> B[n];
    cache.write q >> C[n]; cache.read C[n] >> k;
    cache.write t >> T[n]; cache.read T[n] >> t;
    cache.write m >> M[n, 1, 1]; cache.write g >> F[n, 1]; cache.write w >> G[1];
    cache.write z >> E[n, n];
    cache.increment n;
    loop r (j in 0..i) { op add(y, y) >> y; }
    cache.increment i;
    return y, k;
}
"""

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "forged.h"
#define CHECK(what) do { if (!(what)) { printf("line %d: %s\\n", __LINE__, #what); return 1; } } while (0)
static forged_context c;
static const char *const names[] = { "n", "flag", "t", "q", "i", "A", "B", "C", "T", "M", "F", "G", "E" };
static const int64_t odd[] = {
    -1, 0, 1, 2, 3, 4, 5, 7, 255, 1 << 20, INT64_C(1) << 31, INT64_C(1) << 40, INT64_MAX / 2, INT64_MAX, INT64_MIN,
};
static uint64_t seed = 88172645463325252u;
static unsigned chance(unsigned most)
{
    seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17;
    return (unsigned)(seed >> 33) % most;
}

static uint32_t crc32(const unsigned char *data, size_t bytes)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; ++i) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1u ? 0xedb88320u : 0u);
    }
    return ~crc;
}

/* Reads every element that a fetch promises. */
static int look(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        forged_tensor tensor;
        CHECK(forged_fetch(&c, names[i], &tensor) == FORGED_OK);
        int64_t count = 1, at[FORGED_MAX_RANK] = { 0 };
        for (int axis = 0; axis < tensor.rank; ++axis) {
            CHECK(tensor.shape[axis] >= 0);
            count *= tensor.shape[axis] > 0 ? tensor.shape[axis] : 0;
        }
        const volatile unsigned char *const data = tensor.data;
        const int is_code = tensor.bits == 8 && tensor.dtype[0] != 'i';
        for (int64_t one = 0; data != NULL && one < count; ++one) {
            int64_t place = 0;
            for (int axis = 0; axis < tensor.rank; ++axis) place += at[axis] * tensor.strides[axis];
            const unsigned char first = data[place * tensor.bits / 8];
            if (is_code) CHECK(first < (tensor.dtype[0] == 'b' ? 2 : tensor.dtype[0] == 't' ? 4 : 16));
            (void)data[((place + 1) * tensor.bits - 1) / 8];
            for (int axis = tensor.rank; axis-- > 0 && ++at[axis] == tensor.shape[axis];) at[axis] = 0;
        }
    }
    return 0;
}

static int step(void)
{
    static const float x[3] = { 1, 2, 3 };
    forged_outputs out;
    return forged_step(&c, &(forged_inputs){ x }, &out);
}

int main(void)
{
    unsigned char *const arena = aligned_alloc(64, FORGED_ARENA_BYTES);
    unsigned char *const state = aligned_alloc(64, FORGED_STATE_BYTES);
    CHECK(forged_init(&c, arena, FORGED_ARENA_BYTES, state, FORGED_STATE_BYTES, state, 0) == FORGED_OK);
    forged_set_budget(&c, 200); /* a forged counter is the end of a loop */
    CHECK(step() == FORGED_OK && step() == FORGED_OK);
    const size_t bytes = forged_saved_bytes(&c);
    unsigned char *const honest = malloc(bytes), *const now = malloc(bytes + 64);
    CHECK(forged_save_state(&c, honest, bytes) == FORGED_OK);
    int accepted = 0, refused = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        const size_t length = chance(20) == 0 ? bytes - chance(200) : chance(20) == 0 ? bytes + chance(64) : bytes;
        unsigned char *const forged = malloc(length);
        memset(forged, 0, length);
        memcpy(forged, honest, length < bytes ? length : bytes);
        for (unsigned times = 1 + chance(3); times-- > 0;) {
            if (chance(4) > 0) {
                const size_t word = 48 + 8 * (size_t)chance((unsigned)(length - 48) / 8);
                memcpy(forged + word, &odd[chance(sizeof odd / sizeof *odd)], 8);
            } else {
                forged[48 + chance((unsigned)length - 48)] ^= (unsigned char)(1 + chance(255));
            }
        }
        const uint64_t total = length;
        memcpy(forged + 24, &total, 8);
        const uint32_t crc = crc32(forged + 48, length - 48);
        memcpy(forged + 32, &crc, 4);
        CHECK(forged_load_state(&c, honest, bytes) == FORGED_OK);
        if (forged_load_state(&c, forged, length) != FORGED_OK) {
            refused += 1;
            CHECK(forged_saved_bytes(&c) == bytes && forged_save_state(&c, now, bytes) == FORGED_OK);
            CHECK(memcmp(now, honest, bytes) == 0);
        } else {
            accepted += 1;
            if (look()) return 1;
            if (step() == FORGED_OK && look()) return 1;
        }
        free(forged);
    }
    for (int bit = 0; bit < 48 * 8; ++bit) { /* and not a bit of the head can change */
        honest[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHECK(forged_load_state(&c, honest, bytes) == FORGED_ERROR_STATE);
        honest[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    CHECK(accepted > 50 && refused > 50);
    printf("%d accepted, %d refused\\n", accepted, refused);
    forged_free(&c);
    free(honest); free(now); free(arena); free(state);
    return 0;
}
"""


def test_states_with_a_right_crc_and_wrong_contents_promise_nothing_that_is_not_there(tmp_path: Path) -> None:
    plan = Synthesizer(name="forged", passes=Passes(divide=Divide(1))).synthesize(None, graph(TEXT))
    plan.emit(tmp_path)
    (tmp_path / "main.c").write_text(MAIN, encoding="ascii")
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DROUNDS=1000"]
    flags = ["-std=c11", "-O1", "-g", *sanitizers, "-Iinclude", *plan.project.options.flags]
    sources = ["main.c", "src/forged.c", "src/kernels.c"]
    subprocess.run(["gcc", *flags, *sources, "-o", "forged"], check=True, cwd=tmp_path)
    ended = subprocess.run(["./forged"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
