//: oi_team
/* A counter, and the threads that wait for it: they spin first, since most waits are short, then sleep. */
typedef struct {
    _Alignas(64) atomic_uint value;
    atomic_uint sleepers;
    pthread_mutex_t lock;
    pthread_cond_t grown;
} oi_gate;

static void oi_gate_open(oi_gate *gate)
{
    atomic_fetch_add(&gate->value, 1u);
    if (atomic_load(&gate->sleepers) > 0) {
        pthread_mutex_lock(&gate->lock);
        pthread_cond_broadcast(&gate->grown);
        pthread_mutex_unlock(&gate->lock);
    }
}

/* Waits until the counter reaches a value, and returns it. */
static unsigned oi_gate_wait(oi_gate *gate, unsigned wanted)
{
    unsigned value = atomic_load(&gate->value);
    for (int i = 0; i < 10000; ++i) {
        if ((int)(value - wanted) >= 0) return value;
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
        value = atomic_load_explicit(&gate->value, memory_order_acquire);
    }
    pthread_mutex_lock(&gate->lock);
    atomic_fetch_add(&gate->sleepers, 1u);
    while ((int)((value = atomic_load(&gate->value)) - wanted) < 0) pthread_cond_wait(&gate->grown, &gate->lock);
    atomic_fetch_sub(&gate->sleepers, 1u);
    pthread_mutex_unlock(&gate->lock);
    return value;
}

typedef void oi_work(const void *call, int64_t part);
typedef struct oi_team oi_team;

/* Worker threads, which run the parts of a call together with its caller. Parts are claimed one by one, so that none
   waits for a thread that is not scheduled. */
struct oi_team {
    oi_gate begun, ended; /* the numbers of calls and of finished parts */
    _Alignas(64) atomic_ullong left; /* upper half: the number of the call; lower half: its unclaimed parts */
    _Atomic(oi_work *) work; /* NULL: exit */
    _Atomic(const void *) call;
    unsigned calls, done, size;
    pid_t process; /* the owner: a forked child has none of its threads */
    pthread_t thread[];
};

/* Claims and runs parts of a call until none are left. */
static void oi_team_work(oi_team *team, unsigned number, oi_work *work, const void *call)
{
    unsigned long long left = atomic_load(&team->left);
    while (left >> 32 == number && (unsigned)left > 0) {
        if (!atomic_compare_exchange_weak(&team->left, &left, left - 1)) continue;
        work(call, (int64_t)(unsigned)left - 1);
        oi_gate_open(&team->ended);
        left = atomic_load(&team->left);
    }
}

static void *oi_team_member(void *argument)
{
    oi_team *const team = argument;
    for (unsigned number = 0;;) {
        number = oi_gate_wait(&team->begun, number + 1);
        oi_work *const work = atomic_load(&team->work);
        const void *const call = atomic_load(&team->call);
        if (work == NULL) return NULL;
        oi_team_work(team, number, work, call);
    }
}

static void oi_team_stop(oi_team *team)
{
    if (team == NULL) return;
    if (team->process != getpid()) { /* after a fork: no threads to join, and locks in any state */
        free(team);
        return;
    }
    atomic_store(&team->work, NULL);
    oi_gate_open(&team->begun);
    for (unsigned i = 0; i < team->size; ++i) pthread_join(team->thread[i], NULL);
    pthread_cond_destroy(&team->begun.grown);
    pthread_cond_destroy(&team->ended.grown);
    pthread_mutex_destroy(&team->begun.lock);
    pthread_mutex_destroy(&team->ended.lock);
    free(team);
}

/* Starts a team of this many threads, the caller included; NULL if out of memory or threads. */
static oi_team *oi_team_start(unsigned threads)
{
    const size_t bytes = sizeof(oi_team) + threads * sizeof(pthread_t);
    oi_team *const team = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (team == NULL) return NULL;
    memset(team, 0, bytes);
    team->process = getpid();
    pthread_mutex_init(&team->begun.lock, NULL);
    pthread_mutex_init(&team->ended.lock, NULL);
    pthread_cond_init(&team->begun.grown, NULL);
    pthread_cond_init(&team->ended.grown, NULL);
    for (; team->size + 1 < threads; ++team->size) {
        if (pthread_create(&team->thread[team->size], NULL, oi_team_member, team) != 0) {
            oi_team_stop(team);
            return NULL;
        }
    }
    return team;
}

/* The team of this process: a forked child replaces its parent's with a new one, or with NULL if that fails. */
static oi_team *oi_team_here(oi_team *team, unsigned threads)
{
    if (team == NULL || team->process == getpid()) return team;
    oi_team_stop(team);
    return oi_team_start(threads);
}

/* Runs all parts of a call; without a team, in sequence. */
static void oi_run(oi_team *team, unsigned parts, oi_work *work, const void *call)
{
    if (team == NULL) {
        for (unsigned part = 0; part < parts; ++part) work(call, part);
        return;
    }
    const unsigned number = ++team->calls;
    atomic_store(&team->work, work);
    atomic_store(&team->call, call);
    atomic_store(&team->left, (unsigned long long)number << 32 | parts);
    oi_gate_open(&team->begun);
    oi_team_work(team, number, work, call);
    team->done += parts;
    oi_gate_wait(&team->ended, team->done);
}
