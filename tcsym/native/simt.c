/* Blocks of a device on the host: every thread of a block is a fiber, blocks run one after the other.
 *
 * Generated code of a region is a function of one thread. Where threads wait for each other it calls
 * a function below, which switches to the next fiber; so a thread runs until it has to wait. What a
 * device leaves open is decided against the program: shared memory starts as NaN, asynchronous copies
 * happen as late as they may, threads run forwards or backwards. What a device would not notice is
 * an error: races, threads that never come to a barrier, shuffles of threads that are not there.
 */
#include "native.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { LANES = 32, MOST_THREADS = 1024, MOST_COPIES = 256, GRANULE = 1, NOBODY = -1, SEVERAL = -2 };
enum { STACK_BYTES = 256 * 1024, GUARD_BYTES = 4096 };
typedef enum { READY, AT_BARRIER, IN_SHUFFLE, IN_PRODUCT, ENDED } State;

/* `copies` before `waited` groups are done; those of the last `group` are not committed yet. */
typedef struct {
    State state;
    void *stack_pointer;
    char *stack;
    int64_t value, source; /* of a shuffle */
    float *held;           /* in a product: 4 elements of the result, those of both factors */
    int64_t depth;
    int n_copies, group;
    struct {
        char *to;
        const char *from;
        int64_t bytes;
        int group;
    } copies[MOST_COPIES];
} Fiber;

/* Who touched a granule of shared memory since the last barrier, and how many copies to it are on
 * their way. */
typedef struct {
    int16_t writer, reader, pending;
    uint32_t written_in, read_in;
} Shadow;

struct Simt {
    Region *region;
    void *data;
    void *host; /* stack pointer of the scheduler */
    char *shared;
    int64_t shared_bytes, block;
    int n_threads, current;
    uint32_t phase; /* barriers passed so far, in all blocks */
    Shadow *shadow;
    char *stacks;
    int n_stacks;
    bool failed;
    Fiber fibers[MOST_THREADS];
};

static _Thread_local char report[256];

/* ---- fibers: System V ABI, AMD64 supplement, 3.2.1: registers that a function keeps */

void tcsym_switch_fiber(void **from, void *to);
__asm__(".text\n.p2align 4\n.globl tcsym_switch_fiber\n.hidden tcsym_switch_fiber\n"
        ".type tcsym_switch_fiber,@function\ntcsym_switch_fiber:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
        ".size tcsym_switch_fiber,.-tcsym_switch_fiber\n");

static void yield(Simt *simt) {
    tcsym_switch_fiber(&simt->fibers[simt->current].stack_pointer, simt->host);
}

static void fail(Simt *simt, const char *what) {
    if (!simt->failed)
        snprintf(report, sizeof report, "block %lld, thread %d: %s", (long long)simt->block,
                 simt->current, what);
    simt->failed = true;
    yield(simt); /* for good: the scheduler gives up */
}

static void start(Simt *simt) {
    simt->region(simt->data, simt->shared, simt->block, simt->current, simt);
    Fiber *fiber = &simt->fibers[simt->current];
    if (fiber->n_copies)
        fail(simt, "ends with asynchronous copies that nothing waits for");
    fiber->state = ENDED;
    yield(simt);
}

/* The first switch to a fiber pops six registers and returns into `enter`, with the argument of
 * `start` in one of them. */
void tcsym_enter_fiber(void);
__asm__(".text\n.p2align 4\n.globl tcsym_enter_fiber\n.hidden tcsym_enter_fiber\n"
        ".type tcsym_enter_fiber,@function\ntcsym_enter_fiber:\n"
        "  movq %r12, %rdi\n  callq *%r13\n  ud2\n"
        ".size tcsym_enter_fiber,.-tcsym_enter_fiber\n");

static void prepare(Simt *simt, Fiber *fiber) {
    uint64_t *top = (uint64_t *)(fiber->stack + STACK_BYTES) - 2;
    *--top = (uint64_t)(uintptr_t)tcsym_enter_fiber;
    *--top = 0;                                 /* rbp */
    *--top = 0;                                 /* rbx */
    *--top = (uint64_t)(uintptr_t)simt;         /* r12 */
    *--top = (uint64_t)(uintptr_t)start;        /* r13 */
    *--top = 0;                                 /* r14 */
    *--top = 0;                                 /* r15 */
    fiber->stack_pointer = top;
    fiber->state = READY;
    fiber->n_copies = fiber->group = 0;
}

/* ---- shared memory */

static void touch(Simt *simt, const char *at, int64_t bytes, bool writes, int pending) {
    int64_t first = at - simt->shared;
    if (first < 0 || first + bytes > simt->shared_bytes)
        fail(simt, "an access beside shared memory");
    for (int64_t g = first / GRANULE; g < (first + bytes + GRANULE - 1) / GRANULE; g++) {
        Shadow *s = &simt->shadow[g];
        bool is_written = s->written_in == simt->phase && s->writer != simt->current;
        bool is_read = s->read_in == simt->phase && s->reader != simt->current;
        char what[96];
        if (s->pending && !pending) {
            fail(simt, "shared memory is used while a copy to it is on its way");
        } else if (is_written && s->writer != NOBODY) {
            snprintf(what, sizeof what, "a race: thread %d wrote byte %lld of shared memory",
                     s->writer, (long long)(g * GRANULE));
            fail(simt, what);
        } else if (writes && is_read && s->reader != NOBODY) {
            snprintf(what, sizeof what, "a race: thread %d read byte %lld of shared memory",
                     s->reader, (long long)(g * GRANULE));
            fail(simt, what);
        }
        if (writes) {
            s->writer = (int16_t)simt->current;
            s->written_in = simt->phase;
        } else {
            bool again = s->read_in == simt->phase && s->reader != simt->current;
            s->reader = again ? SEVERAL : (int16_t)simt->current;
            s->read_in = simt->phase;
        }
        s->pending = (int16_t)(s->pending + pending);
    }
}

/* ---- what generated code calls */

void tcsym_simt_barrier(Simt *simt) {
    simt->fibers[simt->current].state = AT_BARRIER;
    yield(simt);
}

/* The value of thread `source` of the same warp; all of the warp take part. */
int64_t tcsym_simt_shuffle(Simt *simt, int64_t value, int64_t source) {
    Fiber *fiber = &simt->fibers[simt->current];
    fiber->state = IN_SHUFFLE;
    fiber->value = value;
    fiber->source = source;
    yield(simt);
    return fiber->value;
}

void tcsym_simt_touch(Simt *simt, const char *at, int64_t bytes, int64_t writes) {
    touch(simt, at, bytes, writes, 0);
}

/* A copy into shared memory that begins now and is done when a wait says so; zeros, unless `reads`. */
void tcsym_simt_copy(Simt *simt, char *to, const char *from, int64_t bytes, int64_t reads) {
    Fiber *fiber = &simt->fibers[simt->current];
    if ((uintptr_t)to % bytes || (reads && (uintptr_t)from % bytes))
        fail(simt, "an asynchronous copy that is not aligned");
    if (fiber->n_copies == MOST_COPIES)
        fail(simt, "too many asynchronous copies at once");
    touch(simt, to, bytes, true, 1);
    int k = fiber->n_copies++;
    fiber->copies[k].to = to;
    fiber->copies[k].from = reads ? from : NULL;
    fiber->copies[k].bytes = bytes;
    fiber->copies[k].group = fiber->group;
}

void tcsym_simt_commit(Simt *simt) { simt->fibers[simt->current].group++; }

/* Until no more than the last `left` groups of this thread are on their way. */
void tcsym_simt_wait(Simt *simt, int64_t left) {
    Fiber *fiber = &simt->fibers[simt->current];
    int kept = 0;
    for (int k = 0; k < fiber->n_copies; k++) {
        if (fiber->copies[k].group >= fiber->group - left) {
            fiber->copies[kept++] = fiber->copies[k];
            continue;
        }
        char *to = fiber->copies[k].to;
        if (fiber->copies[k].from)
            memcpy(to, fiber->copies[k].from, fiber->copies[k].bytes);
        else
            memset(to, 0, fiber->copies[k].bytes);
        int64_t first = to - simt->shared, end = first + fiber->copies[k].bytes;
        for (int64_t g = first / GRANULE; g < (end + GRANULE - 1) / GRANULE; g++)
            simt->shadow[g].pending--;
    }
    fiber->n_copies = kept;
}

/* held[0..3] += what this thread holds of a product of two matrices, 16 x depth and depth x 8, of
 * which the elements that it holds follow. All 32 threads of the warp take part. */
void tcsym_simt_multiply(Simt *simt, float *held, int64_t depth) {
    Fiber *fiber = &simt->fibers[simt->current];
    fiber->state = IN_PRODUCT;
    fiber->held = held;
    fiber->depth = depth;
    yield(simt);
}

/* ---- products. Reference: PTX ISA, fragments of mma.m16n8k16 (16 bits) and mma.m16n8k8 (tf32) */

enum { TILE_ROWS = 16, TILE_COLUMNS = 8, MOST_DEPTH = 16, SUMS = 4 };

/* What the multiplier sees: of float32 ten bits behind the point. */
static float factor(float x, int64_t depth) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= depth == 8 ? ~UINT32_C(0x1fff) : ~UINT32_C(0);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Depth and row (or column) of element `e` of a factor that a lane holds. */
static int along(int lane, int e, int64_t depth, bool left) {
    int pair = left ? e / 4 : e / 2;
    if (depth == 8)
        return lane % 4 + 4 * (left ? e / 2 : e);
    return 2 * (lane % 4) + e % 2 + 8 * pair;
}

static int across(int lane, int e, int64_t depth, bool left) {
    int second = depth == 8 ? e % 2 : e / 2 % 2;
    return lane / 4 + (left ? 8 * second : 0);
}

/* True if all threads of the warp that begins at `first` stand in a product, which is then done. */
static bool multiply_warp(Simt *simt, int first) {
    Fiber *fibers = &simt->fibers[first];
    if (simt->n_threads - first < LANES)
        return false;
    int64_t depth = fibers[0].depth;
    for (int k = 0; k < LANES; k++)
        if (fibers[k].state != IN_PRODUCT || fibers[k].depth != depth)
            return false;
    float left[TILE_ROWS][MOST_DEPTH], right[MOST_DEPTH][TILE_COLUMNS];
    int n_left = TILE_ROWS * (int)depth / LANES, n_right = TILE_COLUMNS * (int)depth / LANES;
    for (int k = 0; k < LANES; k++) {
        const float *a = fibers[k].held + SUMS, *b = a + n_left;
        for (int e = 0; e < n_left; e++)
            left[across(k, e, depth, true)][along(k, e, depth, true)] = factor(a[e], depth);
        for (int e = 0; e < n_right; e++)
            right[along(k, e, depth, false)][across(k, e, depth, false)] = factor(b[e], depth);
    }
    for (int k = 0; k < LANES; k++) {
        for (int e = 0; e < SUMS; e++) {
            int row = k / 4 + 8 * (e / 2), column = 2 * (k % 4) + e % 2;
            for (int t = 0; t < depth; t++)
                fibers[k].held[e] += left[row][t] * right[t][column];
        }
        fibers[k].state = READY;
    }
    return true;
}

/* ---- the scheduler */

/* True if all threads of the warp that begins at `first` stand in a shuffle, which is then done. */
static bool shuffle_warp(Simt *simt, int first) {
    int n = simt->n_threads - first < LANES ? simt->n_threads - first : LANES;
    int64_t values[LANES];
    for (int k = 0; k < n; k++) {
        if (simt->fibers[first + k].state != IN_SHUFFLE)
            return false;
        values[k] = simt->fibers[first + k].value;
    }
    for (int k = 0; k < n; k++) {
        Fiber *fiber = &simt->fibers[first + k];
        bool there = 0 <= fiber->source && fiber->source < n;
        fiber->value = there ? values[fiber->source] : values[k];
        fiber->state = READY;
    }
    return true;
}

/* Runs every thread as far as it goes. True if one ran. */
static bool run_ready(Simt *simt, bool backwards) {
    bool ran = false;
    for (int k = 0; k < simt->n_threads && !simt->failed; k++) {
        simt->current = backwards ? simt->n_threads - 1 - k : k;
        if (simt->fibers[simt->current].state == READY) {
            tcsym_switch_fiber(&simt->host, simt->fibers[simt->current].stack_pointer);
            ran = true;
        }
    }
    return ran;
}

static void run_block(Simt *simt, bool backwards) {
    memset(simt->shared, 0xff, simt->shared_bytes);
    for (int k = 0; k < simt->n_threads; k++)
        prepare(simt, &simt->fibers[k]);
    simt->phase++;
    while (!simt->failed) {
        if (run_ready(simt, backwards))
            continue;
        int waiting = 0, ended = 0;
        for (int k = 0; k < simt->n_threads; k++) {
            waiting += simt->fibers[k].state == AT_BARRIER;
            ended += simt->fibers[k].state == ENDED;
        }
        if (ended == simt->n_threads)
            return;
        if (waiting == simt->n_threads) {
            for (int k = 0; k < simt->n_threads; k++)
                simt->fibers[k].state = READY;
            simt->phase++;
            continue;
        }
        bool exchanged = false;
        for (int k = 0; k < simt->n_threads; k += LANES)
            exchanged |= shuffle_warp(simt, k) || multiply_warp(simt, k);
        if (!exchanged) {
            snprintf(report, sizeof report,
                     "block %lld: %d of %d threads wait at a barrier, %d have ended",
                     (long long)simt->block, waiting, simt->n_threads, ended);
            simt->failed = true;
        }
    }
}

/* ---- one grid */

/* Stacks are kept for the next grid of the same host thread, and freed with it. */
static pthread_key_t kept;
static pthread_once_t key_is_made = PTHREAD_ONCE_INIT;
enum { STACK_STRIDE = STACK_BYTES + GUARD_BYTES };

static void destroy(void *simt) {
    Simt *s = simt;
    if (s->stacks)
        munmap(s->stacks, (size_t)STACK_STRIDE * MOST_THREADS);
    free(s->shared);
    free(s->shadow);
    free(s);
}

static void make_key(void) { pthread_key_create(&kept, destroy); }

/* Room for `threads` fibers and `shared_bytes`; null if there is none. */
static Simt *take(int64_t threads, int64_t shared_bytes) {
    pthread_once(&key_is_made, make_key);
    Simt *simt = pthread_getspecific(kept);
    if (!simt) {
        simt = calloc(1, sizeof *simt);
        if (!simt || pthread_setspecific(kept, simt)) {
            free(simt);
            return NULL;
        }
    }
    if (!simt->stacks) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *memory = mmap(NULL, (size_t)STACK_STRIDE * MOST_THREADS, PROT_NONE, flags, -1, 0);
        if (memory == MAP_FAILED)
            return NULL;
        simt->stacks = memory;
    }
    for (; simt->n_stacks < threads; simt->n_stacks++) {
        char *stack = simt->stacks + (int64_t)STACK_STRIDE * simt->n_stacks + GUARD_BYTES;
        if (mprotect(stack, STACK_BYTES, PROT_READ | PROT_WRITE))
            return NULL;
        simt->fibers[simt->n_stacks].stack = stack;
    }
    int64_t n_granules = shared_bytes / GRANULE + 1;
    free(simt->shared);
    free(simt->shadow);
    simt->shared = aligned_alloc(128, (shared_bytes + 128) / 128 * 128);
    simt->shadow = calloc(n_granules, sizeof *simt->shadow);
    if (!simt->shared || !simt->shadow)
        return NULL;
    for (int64_t g = 0; g < n_granules; g++)
        simt->shadow[g].writer = simt->shadow[g].reader = NOBODY;
    return simt;
}

/* Runs all blocks. 0; OUT_OF_MEMORY; or SIMT_FAULT, and `simt_report` tells what happened. */
int32_t tcsym_simt_grid(Region *region, void *data, int64_t blocks, int64_t threads,
                        int64_t shared_bytes, int64_t backwards) {
    if (blocks <= 0)
        return 0;
    if (threads < 1 || threads > MOST_THREADS) {
        snprintf(report, sizeof report, "a block of %lld threads", (long long)threads);
        return SIMT_FAULT;
    }
    Simt *simt = take(threads, shared_bytes);
    if (!simt)
        return OUT_OF_MEMORY;
    simt->region = region;
    simt->data = data;
    simt->shared_bytes = shared_bytes;
    simt->n_threads = (int)threads;
    simt->phase = 0;
    simt->failed = false;
    for (int64_t k = 0; k < blocks && !simt->failed; k++) {
        simt->block = backwards ? blocks - 1 - k : k;
        run_block(simt, backwards);
    }
    return simt->failed ? SIMT_FAULT : 0;
}

PyObject *tcsym_simt_report(PyObject *module, PyObject *nothing) {
    return PyUnicode_FromString(report);
}
