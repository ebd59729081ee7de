//: oi_team
/* A number that grows, and those who wait for it: first awake, since it soon will, then asleep. */
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

/* Waits until the number is as large as wanted; what it is then. */
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

/* The threads that run parts of a call beside the caller's. Who comes first takes the next part: a thread that the
   system has put aside is not waited for. */
struct oi_team {
    oi_gate begun, ended; /* how many calls there were, and how many parts are over */
    _Alignas(64) atomic_ullong left; /* the call, and in the lower half how many parts of it are unclaimed */
    _Atomic(oi_work *) work; /* NULL: go home */
    _Atomic(const void *) call;
    unsigned calls, done, size;
    pid_t process; /* whose threads these are: a child that was forked has none of them */
    pthread_t thread[];
};

/* Runs parts of a call as long as there are any. */
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
    if (team->process != getpid()) { /* no thread to wait for, and locks as they happened to be */
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

/* A number of threads, the caller's included; NULL where there is no memory for them, or the system has no more. */
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

/* The team of this process: that of the parent, in a child that was forked, makes way for one of its own, or for none
   where it cannot be had. */
static oi_team *oi_team_here(oi_team *team, unsigned threads)
{
    if (team == NULL || team->process == getpid()) return team;
    oi_team_stop(team);
    return oi_team_start(threads);
}

/* All parts of a call; without a team, one after the other. */
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
