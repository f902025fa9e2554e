/* SPDX-License-Identifier: Apache-2.0 */
/* The worker pool that runs `parallel_for` of generated code. */
#define _GNU_SOURCE
#include "pool.h"
#include "system.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

/* Times are cycles of the processor's clock. A sleeping worker begins 20 microseconds after it was
 * woken, and more; waking it takes the caller a system call. */
enum {
    MOST_WORKERS = 255,
    SPIN = 100000,      /* about 40 microseconds */
    GOMP_START = 13,    /* log2 of what OpenMP takes to start and join threads, 2 microseconds */
    GOMP_WAKING = 100000,
    WAKING = 40000,
    WAKING_EACH = 20000,
};

typedef enum { IDLE, POSTED, ASLEEP, STOP, WORKING } State;

/* Of shared words, all threads see the changes of each in one order, and that is all that they agree
 * by: who sleeps is said by the word that wakes it, which the system compares once more. None needs
 * sequential consistency. An order stronger than relaxed hands over plain memory beside its word. */

/* Plain memory of a slot is the caller's until it posts the task, then the worker's that takes it,
 * until that counts down `remaining`; or the caller's again, if it takes the task back. */
typedef struct {
    _Atomic int32_t state;
    int64_t task, n_tasks;
    Task *function;
    void *data;
    struct Pool *pool;
    pthread_t thread;
} __attribute__((aligned(128))) Slot;

/* Zero when fresh; a forked child finds zeros. Its plain memory is for who has claimed it; that of
 * OpenMP is written once, before `gomp_parallel`. */
struct Pool {
    _Atomic int32_t busy; /* 1 while tasks run: a second caller then works alone */
    _Atomic int32_t n_workers; /* changed by who has the claim */
    _Atomic int32_t patient;
    _Atomic(GompParallel *) gomp_parallel;
    GompNumber *gomp_thread, *gomp_threads;
    int64_t gomp_spin;     /* cycles that OpenMP's threads wait spinning */
    uint64_t warm;         /* until then the threads wait spinning */
    _Atomic uint64_t soon; /* until then a loop follows the last one closely, whosoever's */
    int64_t missed;  /* what threads would have saved since the last loop that did not; less than 0
                      * where they have cost time that they must save first */
    _Atomic int32_t remaining __attribute__((aligned(128))); /* tasks on workers; see CALLER_ASLEEP */
    Slot slots[MOST_WORKERS];
};
static const int32_t CALLER_ASLEEP = INT32_MIN; /* a bit of `remaining` */

/* ---- shared words */

/* Whether `*word` was `from`, and is `to` now. Relaxed where it was not: nothing follows from that. */
static inline bool change(_Atomic int32_t *word, int32_t from, int32_t to, memory_order order) {
    return atomic_compare_exchange_strong_explicit(word, &from, to, order, memory_order_relaxed);
}

/* Relaxed, as `put` is: the word alone matters here, or another order beside it hands memory over. */
static inline int32_t look(const _Atomic int32_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline void put(_Atomic int32_t *word, int32_t value) {
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint64_t spin_cycles(const Pool *pool) {
    return look(&pool->patient) ? 0 : SPIN;
}

/* ---- workers */

/* Waits until the worker is to do something: spins, then sleeps. Relaxed: what it is to do is read
 * once it is taken. */
static void await(Slot *slot) {
    uint64_t start = clock_cycles();
    while (look(&slot->state) == IDLE) {
        tcsym_pause();
        if (clock_cycles() - start >= spin_cycles(slot->pool) &&
            change(&slot->state, IDLE, ASLEEP, memory_order_relaxed))
            while (look(&slot->state) == ASLEEP)
                sleep_while(&slot->state, ASLEEP);
    }
}

static void *worker(void *argument) {
    Slot *slot = argument;
    Pool *pool = slot->pool;
    for (;;) {
        await(slot);
        if (look(&slot->state) == STOP)
            return NULL;
        /* Acquires what `run_own` released: the slot, and what the caller wrote for its tasks. */
        if (!change(&slot->state, POSTED, WORKING, memory_order_acquire))
            continue; /* the caller took the task back */
        slot->function(slot->data, slot->task, slot->n_tasks);
        put(&slot->state, IDLE); /* nothing is posted before the next line is seen */
        /* Releases what the task wrote, and the slot, which was read, for `join`. */
        if (atomic_fetch_sub_explicit(&pool->remaining, 1, memory_order_release) ==
            CALLER_ASLEEP + 1)
            wake(&pool->remaining);
    }
}

/* Starts workers until there are `wanted`, with all signals blocked: they are the main thread's. How
 * many of so many there are. */
static int32_t grow(Pool *pool, int32_t wanted) {
    int32_t n_workers = look(&pool->n_workers);
    if (n_workers >= wanted)
        return wanted;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; n_workers < wanted; n_workers++) {
        Slot *slot = pool->slots + n_workers;
        put(&slot->state, IDLE); /* `pthread_create` hands the slot over */
        slot->pool = pool;
        if (pthread_create(&slot->thread, NULL, worker, slot))
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    put(&pool->n_workers, n_workers);
    return n_workers;
}

/* Has a worker, which may sleep, find a state. */
static void tell(Slot *slot, State state, memory_order order) {
    if (atomic_exchange_explicit(&slot->state, state, order) == ASLEEP)
        wake(&slot->state);
}

void tcsym_stop_pool(Pool *pool) {
    if (!tcsym_claim(&pool->busy))
        return;
    for (int32_t k = look(&pool->n_workers); k-- > 0; put(&pool->n_workers, k)) {
        tell(pool->slots + k, STOP, memory_order_relaxed); /* a worker that stops reads no more */
        pthread_join(pool->slots[k].thread, NULL);
    }
    tcsym_release(&pool->busy);
}

/* ---- parallel_for */

static void run_serially(Task *function, void *data, int64_t first, int64_t step, int64_t n_tasks) {
    for (int64_t task = first; task < n_tasks; task += step)
        function(data, task, n_tasks);
}

/* OpenMP's threads, if they are used. Acquires what `tcsym_use_openmp` released: the rest of it. */
static GompParallel *openmp(const Pool *pool) {
    return atomic_load_explicit(&pool->gomp_parallel, memory_order_acquire);
}

/* Notes the end of a loop. `woken`: threads ran it, so that they are spinning now; the caller has the
 * claim then. */
static void note_end(Pool *pool, bool woken) {
    uint64_t window = openmp(pool) && !look(&pool->patient) ? (uint64_t)pool->gomp_spin
                                                            : spin_cycles(pool);
    uint64_t soon = clock_cycles() + window - window / 8; /* they began to wait a little earlier */
    atomic_store_explicit(&pool->soon, soon, memory_order_relaxed);
    if (woken)
        pool->warm = soon;
}

/* Cycles until `n_tasks` begin on threads that sleep. */
static int64_t waking(const Pool *pool, int64_t n_tasks) {
    return openmp(pool) ? GOMP_WAKING : (n_tasks - 1) * WAKING_EACH + WAKING;
}

/* Notes what a short loop cost on `n_tasks` spinning threads: if it took `elapsed`, longer than
 * `cycles` on one, something else has a thread's processor. Then threads rest until short loops have
 * missed as much as was lost. (Of long ones such an estimate says too little: memory may be what they
 * wait for.) */
static void note_loss(Pool *pool, int64_t elapsed, int64_t cycles, int64_t n_tasks) {
    if (cycles < waking(pool, n_tasks) && elapsed > cycles) {
        pool->warm = 0;
        pool->missed = cycles - elapsed;
    }
}

/* How many of `n_tasks` pay for a loop that takes `cycles`. Spinning threads start at once. Waking
 * sleeping ones takes longer than a short loop, but it is the first of many such loops perhaps: they
 * are woken when the loops since the last pause have missed as much as waking costs. A single long
 * loop has missed that much at once. */
static int64_t useful_tasks(Pool *pool, int64_t n_tasks, uint64_t cycles) {
    uint64_t most = openmp(pool) ? cycles >> GOMP_START : (uint64_t)n_tasks;
    uint64_t fewer = most < (uint64_t)n_tasks ? most : (uint64_t)n_tasks, now = clock_cycles();
    if (fewer <= 1)
        return 1;
    if (now < pool->warm)
        return (int64_t)fewer;
    int64_t debt = pool->missed < 0 ? pool->missed : 0, gain = (int64_t)(cycles - cycles / fewer);
    bool follows = now < atomic_load_explicit(&pool->soon, memory_order_relaxed);
    int64_t missed = (follows ? pool->missed : debt) + gain;
    int64_t saved = missed > gain ? missed : gain; /* a long loop pays for itself */
    bool pays = saved >= waking(pool, (int64_t)fewer);
    pool->missed = pays ? 0 : missed;
    return pays ? (int64_t)fewer : 1;
}

/* Waits until no task remains: spins, then sleeps. Finding none acquires what every worker released:
 * each count, and the bit, change the word as the one before left it. */
static void join(Pool *pool) {
    uint64_t start = clock_cycles();
    int32_t seen;
    while ((seen = atomic_load_explicit(&pool->remaining, memory_order_acquire)) & ~CALLER_ASLEEP) {
        tcsym_pause();
        if (clock_cycles() - start < spin_cycles(pool))
            continue;
        if (seen & CALLER_ASLEEP)
            sleep_while(&pool->remaining, seen);
        else
            atomic_fetch_or_explicit(&pool->remaining, CALLER_ASLEEP, memory_order_relaxed);
    }
}

static void run_own(Pool *pool, Task *function, void *data, int64_t n_tasks) {
    int32_t wanted = n_tasks - 1 < MOST_WORKERS ? (int32_t)(n_tasks - 1) : MOST_WORKERS;
    int32_t n_posted = grow(pool, wanted);
    put(&pool->remaining, n_posted); /* workers see it once they have a task, posted after it */
    for (int32_t k = 0; k < n_posted; k++) {
        Slot *slot = pool->slots + k;
        slot->task = k + 1;
        slot->n_tasks = n_tasks;
        slot->function = function;
        slot->data = data;
        tell(slot, POSTED, memory_order_release); /* for `worker`: the slot, and all before */
    }
    function(data, 0, n_tasks);
    run_serially(function, data, n_posted + 1, 1, n_tasks);
    /* What no worker has begun: waking may take longer. Relaxed: what it takes, it wrote itself. */
    for (int32_t k = n_posted; k-- > 0;)
        if (change(&pool->slots[k].state, POSTED, IDLE, memory_order_relaxed)) {
            function(data, k + 1, n_tasks);
            atomic_fetch_sub_explicit(&pool->remaining, 1, memory_order_relaxed);
        }
    join(pool);
}

typedef struct {
    Pool *pool;
    Task *function;
    void *data;
    int64_t n_tasks;
} Team;

/* A team may be smaller than asked for: each of its threads takes every so manieth task. */
static void run_part(void *argument) {
    const Team *team = argument;
    run_serially(team->function, team->data, team->pool->gomp_thread(), team->pool->gomp_threads(),
                 team->n_tasks);
}

void tcsym_parallel_for(Pool *pool, Task *function, void *data, int64_t n_tasks, int64_t work) {
    if (n_tasks < 1)
        return;
    if (n_tasks == 1 || !tcsym_claim(&pool->busy)) {
        function(data, 0, 1);
        return;
    }
    int64_t n_useful = useful_tasks(pool, n_tasks, (uint64_t)work >> 4);
    if (n_useful <= 1) {
        tcsym_release(&pool->busy);
        function(data, 0, 1);
        note_end(pool, false);
        return;
    }
    uint64_t began = clock_cycles();
    bool was_warm = began < pool->warm;
    GompParallel *parallel = openmp(pool);
    if (parallel) {
        Team team = {pool, function, data, n_useful};
        parallel(run_part, &team, (unsigned)n_useful, 0);
    } else {
        run_own(pool, function, data, n_useful);
    }
    note_end(pool, true);
    if (was_warm)
        note_loss(pool, (int64_t)(clock_cycles() - began), work >> 4, n_useful);
    tcsym_release(&pool->busy);
}

/* ---- pools */

Pool *tcsym_new_pool(void) {
    Pool *pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pool == MAP_FAILED ? NULL : pool;
}

void tcsym_forget_pool(Pool *pool) { memset(pool, 0, sizeof *pool); }

bool tcsym_wipe_on_fork(Pool *pool) { return wipe_on_fork(pool, sizeof *pool); }

void tcsym_set_patient(Pool *pool, bool patient) { put(&pool->patient, patient); }

/* Releases the rest of it for `openmp`: kernels may be running. */
void tcsym_use_openmp(Pool *pool, GompParallel *parallel, GompNumber *thread, GompNumber *threads,
                      int64_t spin) {
    pool->gomp_spin = spin;
    pool->gomp_threads = threads;
    pool->gomp_thread = thread;
    atomic_store_explicit(&pool->gomp_parallel, parallel, memory_order_release);
}

int32_t tcsym_workers(const Pool *pool) { return look(&pool->n_workers); }
