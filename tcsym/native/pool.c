/* SPDX-License-Identifier: Apache-2.0 */
/* The worker pool that runs `parallel_for` of generated code. */
#define _GNU_SOURCE
#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the clock */

#if defined(__x86_64__)
#include <x86intrin.h>

static uint64_t clock_cycles(void) { return __rdtsc(); }
#elif defined(__aarch64__)
/* The counter's ticks are longer than cycles, by how much a register says: as cycles of 2.5 GHz. */
static uint64_t clock_cycles(void) {
    static uint64_t each; /* in 256ths; threads that find 0 all write the same */
    uint64_t ticks, scale = __atomic_load_n(&each, __ATOMIC_RELAXED);
    if (!scale) {
        uint64_t frequency;
        __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(frequency));
        scale = frequency ? 256 * UINT64_C(2500000000) / frequency : 256;
        __atomic_store_n(&each, scale ? scale : 1, __ATOMIC_RELAXED);
    }
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return (uint64_t)((unsigned __int128)ticks * scale >> 8);
}
#endif

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

typedef struct {
    _Atomic int32_t state;
    int64_t task, n_tasks;
    Task *function;
    void *data;
    struct Pool *pool;
    pthread_t thread;
} __attribute__((aligned(128))) Slot;

/* Zero when fresh; a forked child finds zeros. */
struct Pool {
    _Atomic int32_t busy; /* 1 while tasks run: a second caller then works alone */
    int32_t n_workers, patient;
    int64_t gomp_spin;      /* cycles that OpenMP's threads wait spinning */
    GompParallel *gomp_parallel;
    GompNumber *gomp_thread, *gomp_threads;
    uint64_t warm;   /* until then the threads wait spinning */
    uint64_t soon;   /* until then a loop follows the last one closely */
    int64_t missed;  /* what threads would have saved since the last loop that did not; less than 0
                      * where they have cost time that they must save first */
    _Atomic int32_t remaining __attribute__((aligned(128))); /* tasks on workers; see CALLER_ASLEEP */
    Slot slots[MOST_WORKERS];
};
static const int32_t CALLER_ASLEEP = INT32_MIN; /* a bit of `remaining` */

/* ---- sleeping and waking */

static void sleep_while(_Atomic int32_t *word, int32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void wake(_Atomic int32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

static uint64_t spin_cycles(const Pool *pool) {
    return pool->patient ? 0 : SPIN;
}

/* ---- workers */

/* Waits until the worker is to do something: spins, then sleeps. */
static void await(Slot *slot) {
    uint64_t start = clock_cycles();
    while (slot->state == IDLE) {
        tcsym_pause();
        int32_t idle = IDLE;
        if (clock_cycles() - start >= spin_cycles(slot->pool) &&
            atomic_compare_exchange_strong(&slot->state, &idle, ASLEEP))
            while (slot->state == ASLEEP)
                sleep_while(&slot->state, ASLEEP);
    }
}

static void *worker(void *argument) {
    Slot *slot = argument;
    Pool *pool = slot->pool;
    for (;;) {
        await(slot);
        int32_t posted = POSTED;
        if (slot->state == STOP)
            break;
        if (!atomic_compare_exchange_strong(&slot->state, &posted, WORKING))
            continue; /* the caller took the task back */
        slot->function(slot->data, slot->task, slot->n_tasks);
        slot->state = IDLE;
        if (atomic_fetch_sub(&pool->remaining, 1) == CALLER_ASLEEP + 1)
            wake(&pool->remaining);
    }
    slot->state = IDLE;
    return NULL;
}

/* Starts workers until there are `wanted`, with all signals blocked: they are the main thread's. */
static void grow(Pool *pool, int32_t wanted) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; pool->n_workers < wanted; pool->n_workers++) {
        Slot *slot = pool->slots + pool->n_workers;
        slot->state = IDLE;
        slot->pool = pool;
        if (pthread_create(&slot->thread, NULL, worker, slot))
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool claim(Pool *pool) {
    int32_t idle = 0;
    return atomic_compare_exchange_strong(&pool->busy, &idle, 1);
}

void tcsym_stop_pool(Pool *pool) {
    if (!claim(pool))
        return;
    for (; pool->n_workers; pool->n_workers--) {
        Slot *slot = pool->slots + pool->n_workers - 1;
        if (atomic_exchange(&slot->state, STOP) == ASLEEP)
            wake(&slot->state);
        pthread_join(slot->thread, NULL);
    }
    pool->busy = 0;
}

/* ---- parallel_for */

static void run_serially(Task *function, void *data, int64_t first, int64_t step, int64_t n_tasks) {
    for (int64_t task = first; task < n_tasks; task += step)
        function(data, task, n_tasks);
}

/* Notes the end of a loop. `woken`: threads ran it, so that they are spinning now. */
static void note_end(Pool *pool, bool woken) {
    uint64_t window = pool->gomp_parallel && !pool->patient ? (uint64_t)pool->gomp_spin
                                                            : spin_cycles(pool);
    pool->soon = clock_cycles() + window - window / 8; /* they began to wait a little earlier */
    if (woken)
        pool->warm = pool->soon;
}

/* Cycles until `n_tasks` begin on threads that sleep. */
static int64_t waking(const Pool *pool, int64_t n_tasks) {
    return pool->gomp_parallel ? GOMP_WAKING : (n_tasks - 1) * WAKING_EACH + WAKING;
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
    uint64_t most = pool->gomp_parallel ? cycles >> GOMP_START : (uint64_t)n_tasks;
    uint64_t fewer = most < (uint64_t)n_tasks ? most : (uint64_t)n_tasks, now = clock_cycles();
    if (fewer <= 1)
        return 1;
    if (now < pool->warm)
        return (int64_t)fewer;
    int64_t debt = pool->missed < 0 ? pool->missed : 0, gain = (int64_t)(cycles - cycles / fewer);
    int64_t missed = (now < pool->soon ? pool->missed : debt) + gain;
    int64_t saved = missed > gain ? missed : gain; /* a long loop pays for itself */
    bool pays = saved >= waking(pool, (int64_t)fewer);
    pool->missed = pays ? 0 : missed;
    return pays ? (int64_t)fewer : 1;
}

/* Waits until no task remains: spins, then sleeps. */
static void join(Pool *pool) {
    uint64_t start = clock_cycles();
    while (pool->remaining) {
        tcsym_pause();
        if (clock_cycles() - start < spin_cycles(pool))
            continue;
        int32_t seen = atomic_fetch_or(&pool->remaining, CALLER_ASLEEP);
        while (seen & ~CALLER_ASLEEP) {
            sleep_while(&pool->remaining, seen | CALLER_ASLEEP);
            seen = pool->remaining;
        }
        return;
    }
}

static void run_own(Pool *pool, Task *function, void *data, int64_t n_tasks) {
    int32_t wanted = n_tasks - 1 < MOST_WORKERS ? (int32_t)(n_tasks - 1) : MOST_WORKERS;
    if (pool->n_workers < wanted)
        grow(pool, wanted);
    int32_t n_posted = pool->n_workers < wanted ? pool->n_workers : wanted;
    pool->remaining = n_posted;
    for (int32_t k = 0; k < n_posted; k++) {
        Slot *slot = pool->slots + k;
        slot->task = k + 1;
        slot->n_tasks = n_tasks;
        slot->function = function;
        slot->data = data;
        if (atomic_exchange(&slot->state, POSTED) == ASLEEP)
            wake(&slot->state);
    }
    function(data, 0, n_tasks);
    run_serially(function, data, n_posted + 1, 1, n_tasks);
    for (int32_t k = n_posted; k-- > 0;) { /* what no worker has begun: waking may take longer */
        int32_t posted = POSTED;
        if (atomic_compare_exchange_strong(&pool->slots[k].state, &posted, IDLE)) {
            function(data, k + 1, n_tasks);
            atomic_fetch_sub(&pool->remaining, 1);
        }
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
    if (n_tasks == 1 || !claim(pool)) {
        function(data, 0, 1);
        return;
    }
    int64_t n_useful = useful_tasks(pool, n_tasks, (uint64_t)work >> 4);
    if (n_useful <= 1) {
        pool->busy = 0;
        function(data, 0, 1);
        note_end(pool, false);
        return;
    }
    uint64_t began = clock_cycles();
    bool was_warm = began < pool->warm;
    if (pool->gomp_parallel) {
        Team team = {pool, function, data, n_useful};
        pool->gomp_parallel(run_part, &team, (unsigned)n_useful, 0);
    } else {
        run_own(pool, function, data, n_useful);
    }
    note_end(pool, true);
    if (was_warm)
        note_loss(pool, (int64_t)(clock_cycles() - began), work >> 4, n_useful);
    pool->busy = 0;
}

/* ---- pools */

Pool *tcsym_new_pool(void) {
    Pool *pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pool == MAP_FAILED ? NULL : pool;
}

void tcsym_forget_pool(Pool *pool) { memset(pool, 0, sizeof *pool); }

bool tcsym_wipe_on_fork(Pool *pool) { return !madvise(pool, sizeof *pool, MADV_WIPEONFORK); }

void tcsym_set_patient(Pool *pool, bool patient) { pool->patient = patient; }

void tcsym_use_openmp(Pool *pool, GompParallel *parallel, GompNumber *thread, GompNumber *threads,
                      int64_t spin) {
    pool->gomp_spin = spin;
    pool->gomp_threads = threads;
    pool->gomp_thread = thread;
    pool->gomp_parallel = parallel;
}

int32_t tcsym_workers(const Pool *pool) { return pool->n_workers; }
