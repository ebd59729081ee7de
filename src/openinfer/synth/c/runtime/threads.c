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

static void oi_gate_wait(oi_gate *gate, unsigned wanted)
{
    for (int i = 0; i < 10000; ++i) {
        if (atomic_load_explicit(&gate->value, memory_order_acquire) == wanted) return;
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
    pthread_mutex_lock(&gate->lock);
    atomic_fetch_add(&gate->sleepers, 1u);
    while (atomic_load(&gate->value) != wanted) pthread_cond_wait(&gate->grown, &gate->lock);
    atomic_fetch_sub(&gate->sleepers, 1u);
    pthread_mutex_unlock(&gate->lock);
}

typedef void oi_work(const void *call, int64_t part);
typedef struct oi_team oi_team;

typedef struct {
    oi_team *team;
    pthread_t thread;
    int64_t part;
} oi_member;

/* The threads that run parts of a call while the caller's thread runs the first. */
struct oi_team {
    oi_gate begun, ended;
    oi_work *work; /* NULL: go home */
    const void *call;
    unsigned done; /* how many parts the members have run when the call is over */
    unsigned size;
    oi_member member[];
};

static void *oi_team_member(void *argument)
{
    const oi_member *const own = argument;
    oi_team *const team = own->team;
    for (unsigned call = 1;; ++call) {
        oi_gate_wait(&team->begun, call);
        if (team->work == NULL) return NULL;
        team->work(team->call, own->part);
        oi_gate_open(&team->ended);
    }
}

static void oi_team_stop(oi_team *team)
{
    if (team == NULL) return;
    team->work = NULL;
    oi_gate_open(&team->begun);
    for (unsigned i = 0; i < team->size; ++i) pthread_join(team->member[i].thread, NULL);
    pthread_cond_destroy(&team->begun.grown);
    pthread_cond_destroy(&team->ended.grown);
    pthread_mutex_destroy(&team->begun.lock);
    pthread_mutex_destroy(&team->ended.lock);
    free(team);
}

/* So many threads, the caller's included; NULL where there is no memory for them, or the system has no more. */
static oi_team *oi_team_start(unsigned threads)
{
    const size_t bytes = sizeof(oi_team) + threads * sizeof(oi_member);
    oi_team *const team = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (team == NULL) return NULL;
    memset(team, 0, bytes);
    pthread_mutex_init(&team->begun.lock, NULL);
    pthread_mutex_init(&team->ended.lock, NULL);
    pthread_cond_init(&team->begun.grown, NULL);
    pthread_cond_init(&team->ended.grown, NULL);
    for (unsigned i = 0; i + 1 < threads; ++i) {
        oi_member *const own = &team->member[i];
        own->team = team;
        own->part = (int64_t)i + 1;
        if (pthread_create(&own->thread, NULL, oi_team_member, own) != 0) {
            oi_team_stop(team);
            return NULL;
        }
        team->size = i + 1;
    }
    return team;
}

/* All parts of a call; without a team, one after the other. */
static void oi_run(oi_team *team, int64_t parts, oi_work *work, const void *call)
{
    if (team == NULL) {
        for (int64_t part = 0; part < parts; ++part) work(call, part);
        return;
    }
    team->work = work;
    team->call = call;
    team->done += team->size;
    oi_gate_open(&team->begun);
    work(call, 0);
    oi_gate_wait(&team->ended, team->done);
}
