/* How long a number takes to another thread and back, in nanoseconds: about 50 where both run on cores that share a
   cache, some hundreds where they do not. The least of many rounds, or of those that end within a tenth of a second:
   where other programs take the cores, a round takes as long as the system's time slices. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { TURNS = 100, ROUNDS = 500, STOP = -1 };
static const double LONGEST = 1e8;
static _Alignas(64) atomic_int ball;

static void *other(void *unused)
{
    int wanted = 1;
    for (int seen = 0; seen != STOP; seen = atomic_load(&ball)) {
        if (seen != wanted) continue;
        atomic_store(&ball, wanted + 1);
        wanted += 2;
    }
    return unused;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

int main(void)
{
    pthread_t thread;
    double least = 1e9;
    if (pthread_create(&thread, NULL, other, NULL) != 0) return 1;
    const double start = now();
    for (int round = 0; round < ROUNDS && now() - start < LONGEST; ++round) {
        const double begin = now();
        for (int i = round * TURNS; i < (round + 1) * TURNS; ++i) {
            atomic_store(&ball, 2 * i + 1);
            while (atomic_load(&ball) != 2 * i + 2) {
            }
        }
        const double each = (now() - begin) / TURNS;
        if (each < least) least = each;
    }
    atomic_store(&ball, STOP);
    pthread_join(thread, NULL);
    printf("%.0f\n", least);
    return 0;
}
