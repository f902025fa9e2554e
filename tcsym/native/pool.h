/* SPDX-License-Identifier: Apache-2.0 */
/* The worker pool. It knows nothing of Python, so that it can be run without. */
#ifndef TCSYM_POOL_H
#define TCSYM_POOL_H

#include <stdbool.h>
#include <stdint.h>

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
