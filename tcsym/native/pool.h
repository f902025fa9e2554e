/* SPDX-License-Identifier: Apache-2.0 */
/* The worker pool. It knows nothing of Python, so that it can be run without. */
#ifndef TCSYM_POOL_H
#define TCSYM_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Takes what one thread at a time uses. False if another one has it: nothing is learnt of it then.
 * Acquires what the one before wrote there until `tcsym_release`. */
static inline bool tcsym_claim(_Atomic int32_t *busy) {
    int32_t idle = 0;
    return atomic_compare_exchange_strong_explicit(busy, &idle, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void tcsym_release(_Atomic int32_t *busy) {
    atomic_store_explicit(busy, 0, memory_order_release); /* for the next claim */
}

typedef struct Pool Pool;
typedef void Task(void *data, int64_t task, int64_t n_tasks);
typedef void GompParallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
typedef int GompNumber(void);

/* A moment in a loop that waits for another thread. */
static inline void tcsym_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Null: out of memory. Its pages are never unmapped: a thread that outlives the interpreter may be
 * using them. */
Pool *tcsym_new_pool(void);
/* For the child of a fork: the pool is fresh. */
void tcsym_forget_pool(Pool *pool);
/* The same by the system, in all children from now on. False if it cannot. */
bool tcsym_wipe_on_fork(Pool *pool);
/* Ends and joins the workers, unless tasks are running. */
void tcsym_stop_pool(Pool *pool);
/* Whether threads wait without spinning. */
void tcsym_set_patient(Pool *pool, bool patient);
/* Tasks run on OpenMP's threads from now on, which wait for `spin` cycles spinning. */
void tcsym_use_openmp(Pool *pool, GompParallel *parallel, GompNumber *thread, GompNumber *threads,
                      int64_t spin);
int32_t tcsym_workers(const Pool *pool);
/* Runs at most `n_tasks` tasks, as many as a loop of `work` sixteenths of a cycle is worth, every one
 * on a thread of its own where there are enough, else several on the caller's. */
void tcsym_parallel_for(Pool *pool, Task *function, void *data, int64_t n_tasks, int64_t work);

#endif
