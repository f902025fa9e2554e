/* SPDX-License-Identifier: Apache-2.0 */
/* The pool as everybody uses it at once, for ThreadSanitizer, which tells what no order keeps apart.
 *
 * Tasks read what the caller wrote and write what it reads afterwards: plain memory, which the next
 * loop uses again. */
#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_TASKS = 8, CALLERS = 3, LONG = 1 << 30, SHORT = 1 << 14 }; /* work */

typedef struct {
    Pool *pool;
    int64_t value, nested, n_tasks; /* the last: as how many it ran */
    useconds_t workers_wait; /* the caller has slept long by then */
    int64_t cells[MOST_TASKS][16];
} Loop;

static _Atomic int64_t others_ran, are_done; /* tasks but the first of a loop; callers */

static void fill(void *data, int64_t task, int64_t n_tasks) {
    Loop *loop = data;
    if (!task)
        loop->n_tasks = n_tasks;
    else {
        atomic_fetch_add_explicit(&others_ran, 1, memory_order_relaxed);
        usleep(loop->workers_wait);
    }
    for (int64_t k = task; k < MOST_TASKS; k += n_tasks)
        if (loop->nested) {
            Loop inner = {.pool = loop->pool, .value = loop->value};
            tcsym_parallel_for(loop->pool, fill, &inner, 3, LONG);
            loop->cells[k][0] = inner.cells[k][0];
        } else {
            loop->cells[k][0] = loop->value + k;
        }
}

static void run(Loop *loop, int64_t n_tasks, int64_t value, int64_t work) {
    loop->value = value;
    tcsym_parallel_for(loop->pool, fill, loop, n_tasks, work);
    for (int64_t k = 0; k < MOST_TASKS; k++)
        if (loop->cells[k][0] != value + k) {
            fprintf(stderr, "%ld of %ld tasks: %ld, not %ld\n", (long)k, (long)n_tasks,
                    (long)loop->cells[k][0], (long)(value + k));
            abort();
        }
}

/* Loops of all numbers of tasks, in close succession and after pauses, until the workers took part in
 * so many. */
static void run_loops(Pool *pool, int64_t rounds) {
    Loop loop = {.pool = pool};
    for (int64_t k = 0; rounds > 0; k++, rounds -= loop.n_tasks > 1) {
        loop.nested = k % 5 == 1;
        loop.workers_wait = k % 16 == 3 ? 300 : 0;
        run(&loop, 2 + k % (MOST_TASKS - 1), k, k % 7 == 2 ? SHORT : LONG);
        if (k % 16 == 8)
            usleep(300); /* the workers fall asleep */
        if (k % 64 == 63)
            tcsym_stop_pool(pool);
    }
}

static void *call(void *pool) {
    run_loops(pool, 100);
    atomic_fetch_add_explicit(&are_done, 1, memory_order_relaxed);
    return NULL;
}

/* OpenMP's run time in place: a thread for each number but 0. */
static _Thread_local int number, count = 1;
typedef struct {
    void (*function)(void *);
    void *data;
    int number, count;
} Member;

static void *join_team(void *argument) {
    Member *member = argument;
    number = member->number;
    count = member->count;
    member->function(member->data);
    return NULL;
}

static void team(void (*function)(void *), void *data, unsigned threads, unsigned flags) {
    pthread_t started[MOST_TASKS];
    Member members[MOST_TASKS];
    for (unsigned k = threads; k-- > 0;) {
        members[k] = (Member){function, data, (int)k, (int)threads};
        if (k && pthread_create(started + k, NULL, join_team, members + k))
            abort();
    }
    join_team(members);
    for (unsigned k = 1; k < threads; k++)
        pthread_join(started[k], NULL);
}

static int team_number(void) { return number; }
static int team_count(void) { return count; }

/* Callers side by side, of which one at a time has the workers, while others stop the pool, tell it to
 * spin or not to and count its workers; or give it another one's threads. */
static void run_callers(Pool *pool, bool use_openmp) {
    pthread_t callers[CALLERS];
    atomic_store_explicit(&are_done, 0, memory_order_relaxed);
    for (int k = 0; k < CALLERS; k++)
        if (pthread_create(callers + k, NULL, call, pool))
            abort();
    for (int k = 0; atomic_load_explicit(&are_done, memory_order_relaxed) < CALLERS; k++) {
        tcsym_set_patient(pool, k % 2);
        if (tcsym_workers(pool) >= MOST_TASKS)
            abort();
        if (k == 2 && use_openmp)
            tcsym_use_openmp(pool, team, team_number, team_count, 1000);
        if (k % 8 == 7)
            tcsym_stop_pool(pool);
        usleep(1000);
    }
    for (int k = 0; k < CALLERS; k++)
        pthread_join(callers[k], NULL);
}

int main(void) {
    Pool *pool = tcsym_new_pool();
    if (!pool)
        return 1;
    for (int patient = 0; patient < 2; patient++) {
        tcsym_set_patient(pool, patient);
        run_loops(pool, 300);
        tcsym_stop_pool(pool);
    }
    run_callers(pool, false);
    run_callers(pool, true);
    tcsym_stop_pool(pool);
    if (tcsym_workers(pool) || !others_ran)
        return 1;
    return 0;
}
