/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a device on the host: what simt.c, which runs them, and simt_memory.c share. */
#ifndef TCSYM_SIMT_H
#define TCSYM_SIMT_H
#include "native.h"
#include <stdio.h>
#include <string.h>

enum { LANES = 32, MOST_THREADS = 1024, MOST_COPIES = 256, SEVERAL = -1 };
enum { STACK_BYTES = 256 * 1024, GUARD_BYTES = 1 << 16 /* AArch64's largest page */ };
typedef enum { READS, WRITES, UPDATES } Use; /* of an element, the last as a whole */
typedef enum { READY, AT_BARRIER, AT_GRID, IN_SHUFFLE, IN_PRODUCT, ENDED } State;

/* Into shared memory; of zeros without a source. */
typedef struct {
    char *to;
    const char *from;
    int64_t bytes;
    int group;
} Copy;

/* Copies of the last `group` are not committed yet. */
typedef struct {
    State state;
    void *stack_pointer;
    char *stack;
    int64_t value, source; /* of a shuffle */
    float *held;           /* in a product: 4 elements of the result, those of both factors */
    int64_t depth;
    int64_t site;          /* of the barrier or shuffle that it waits at */
    int n_copies, group;
    Copy copies[MOST_COPIES];
} Fiber;

/* Who touched a byte of shared memory since the last barrier, and how many copies to it are on
 * their way. */
typedef struct {
    int16_t writer, reader, pending;
    uint32_t written_in, read_in;
} Shadow;

/* What a region reads and writes of the device's memory: `first` to `last` element from `base`, if
 * it has `count` of them. The layout is that of codegen/device/launch.py. */
typedef struct {
    char *base;
    int64_t first, last, count, bytes, is_written;
    const char *name;
} Global;

/* What a grid is launched with. `fault`: not 0 once the program's own checks found something; results
 * do not matter then. */
typedef struct {
    const Global *globals;
    int64_t n_globals;
    const int32_t *fault;
} Launch;

/* Who touched an element in this grid, as 1 + thread, counted over all blocks, and how many barriers
 * of its block, and of the grid, were passed then. Of those that read it, and of those that updated it as a whole, the
 * second is in another block than the first, if there was one. */
typedef struct {
    uint32_t thread, phase, round;
} Touch;
typedef struct {
    Touch writer, readers[2], updaters[2];
} Mark;
/* All bytes of a buffer, at the start and at the end of the first run, behind the marks. */
typedef struct {
    Mark *marks;
    char *memory, *before, *after;
    int64_t n, bytes;
} Watched;

struct Simt {
    Region *region;
    void *data;
    void *host; /* stack pointer of the scheduler */
    char *shared;
    int64_t shared_bytes, shared_stride, n_blocks, block; /* the last: which runs now */
    int n_threads, n_together, current; /* fiber, of all blocks that are there at once */
    uint32_t round, phases[MOST_THREADS]; /* barriers passed so far: of the grid, of each such block */
    Shadow *shadow;
    char *stacks;
    int n_stacks;
    bool failed;
    Launch launch;
    Watched *watched; /* of each global buffer, null if checks are off */
    Fiber fibers[MOST_THREADS];
};

static inline int slot_of(const Simt *simt) { return simt->current / simt->n_threads; }
static inline int thread_of(const Simt *simt) { return simt->current % simt->n_threads; }
static inline uint32_t phase_of(const Simt *simt) { return simt->phases[slot_of(simt)]; }

/* simt.c. `say` ends the grid with this report, if it is the first one; `fail` does of a thread, which
 * does not go on. `line`: of the program, 0 if that is not known. */
void tcsym_simt_say(Simt *simt, const char *format, ...);
void tcsym_simt_fail(Simt *simt, int64_t line, const char *format, ...);

/* simt_memory.c: what is watched if checks are on. */
Launch tcsym_simt_next_launch(void);
bool tcsym_simt_watch(Simt *simt);
void tcsym_simt_set_back(Simt *simt);
void tcsym_simt_compare(Simt *simt);
void tcsym_simt_forget(Simt *simt);

#endif
