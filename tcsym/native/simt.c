/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a device on the host: every thread of a block is a fiber, blocks run one after the other,
 * or at once if they wait for each other.
 *
 * Generated code of a region is a function of one thread. Where threads wait for each other it calls
 * a function below, which switches to the next fiber; so a thread runs until it has to wait. What a
 * device leaves open is decided against the program: shared memory starts as NaN, asynchronous copies
 * happen as late as they may. What a device would not notice is an error: accesses beside a buffer,
 * races on shared memory, threads that never come to a barrier or come to different ones, shuffles
 * of threads that are not there.
 *
 * When checks are on (`simt_check`), a grid runs twice: forwards, then from the last block and
 * thread on, with other contents of shared memory. What differs then was not defined. Threads that
 * touch one element of a global buffer, not both to read it, with no barrier of theirs between, are
 * an error too.
 */
#include "simt.h"
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>

static _Thread_local char report[256];

/* ---- fibers: a switch saves the registers that a function keeps, by the ABI of the processor: System
 * V ABI, AMD64 supplement, 3.2.1; Procedure Call Standard for the Arm 64-bit Architecture, 6.1.
 * The first switch to a fiber takes KEPT registers from its stack, the last one of which is where it
 * goes on: `enter`, which calls `start` with its argument, both in registers. */

void tcsym_switch_fiber(void **from, void *to);
void tcsym_enter_fiber(void);
#if defined(__APPLE__) /* macOS: never run */
#define ASSEMBLY(name, text)                                                                          \
    __asm__(".text\n.p2align 4\n.globl _" name "\n.private_extern _" name "\n_" name ":\n" text)
#else
#define ASSEMBLY(name, text)                                                                          \
    __asm__(".text\n.p2align 4\n.globl " name "\n.hidden " name "\n.type " name ",@function\n" name   \
            ":\n" text ".size " name ",.-" name "\n")
#endif
#if defined(__x86_64__)
ASSEMBLY("tcsym_switch_fiber",
         "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
         "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
         "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n");
ASSEMBLY("tcsym_enter_fiber", "  movq %r12, %rdi\n  callq *%r13\n  ud2\n");
enum { KEPT = 7, ARGUMENT = 3, CALLED = 2, NEXT = 6, SPARE = 2 }; /* r15 r14 r13 r12 rbx rbp, return */
#elif defined(__aarch64__)
ASSEMBLY("tcsym_switch_fiber",
         "  sub sp, sp, #160\n"
         "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
         "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
         "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n"
         "  stp d14, d15, [sp, #144]\n"
         "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
         "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
         "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
         "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n"
         "  ldp d14, d15, [sp, #144]\n"
         "  add sp, sp, #160\n  ret\n");
ASSEMBLY("tcsym_enter_fiber", "  mov x0, x19\n  blr x20\n  brk #1\n");
enum { KEPT = 20, ARGUMENT = 0, CALLED = 1, NEXT = 11, SPARE = 2 }; /* x19 to x30, d8 to d15 */
#endif

static void yield(Simt *simt) {
    tcsym_switch_fiber(&simt->fibers[simt->current].stack_pointer, simt->host);
}

void tcsym_simt_say(Simt *simt, const char *format, ...) {
    va_list values;
    va_start(values, format);
    if (!simt->failed)
        vsnprintf(report, sizeof report, format, values);
    va_end(values);
    simt->failed = true;
}

void tcsym_simt_fail(Simt *simt, int64_t line, const char *format, ...) {
    char what[192], where[32] = "";
    va_list values;
    va_start(values, format);
    vsnprintf(what, sizeof what, format, values);
    va_end(values);
    if (line)
        snprintf(where, sizeof where, ", line %lld", (long long)line);
    tcsym_simt_say(simt, "block %lld, thread %d%s: %s", (long long)simt->block, thread_of(simt),
                   where, what);
    yield(simt); /* for good: the scheduler gives up */
}

static void start(Simt *simt) {
    char *shared = simt->shared + slot_of(simt) * simt->shared_stride;
    simt->region(simt->data, shared, simt->block, thread_of(simt), simt);
    Fiber *fiber = &simt->fibers[simt->current];
    if (fiber->n_copies)
        tcsym_simt_fail(simt, 0, "ends with asynchronous copies that nothing waits for");
    fiber->state = ENDED;
    yield(simt);
}

static void prepare(Simt *simt, Fiber *fiber) {
    uint64_t *top = (uint64_t *)(fiber->stack + STACK_BYTES) - SPARE - KEPT;
    for (int k = 0; k < KEPT; k++)
        top[k] = 0;
    top[NEXT] = (uint64_t)(uintptr_t)tcsym_enter_fiber;
    top[ARGUMENT] = (uint64_t)(uintptr_t)simt;
    top[CALLED] = (uint64_t)(uintptr_t)start;
    fiber->stack_pointer = top;
    fiber->state = READY;
    fiber->n_copies = fiber->group = 0;
}

/* ---- what generated code calls */

/* Lets others run. `site`: a number that barriers and shuffles elsewhere in the region do not have. */
static void wait_as(Simt *simt, State state, int64_t site) {
    simt->fibers[simt->current].state = state;
    simt->fibers[simt->current].site = site;
    yield(simt);
}

void tcsym_simt_barrier(Simt *simt, int64_t site) { wait_as(simt, AT_BARRIER, site); }

int64_t tcsym_simt_blocks(Simt *simt) { return simt->n_blocks; }

/* A device counts blocks that have come in the lower bits of the counter: 0 when none has. */
void tcsym_simt_grid_barrier(Simt *simt, const int32_t *counter, int64_t site) {
    if (*counter & INT32_MAX)
        tcsym_simt_fail(simt, 0, "a barrier of the grid whose counter is not 0");
    wait_as(simt, AT_GRID, site);
}

/* The value of thread `source` of the same warp, or its own if that is no lane of a warp. All of the
 * warp take part. */
int64_t tcsym_simt_shuffle(Simt *simt, int64_t value, int64_t source, int64_t site) {
    Fiber *fiber = &simt->fibers[simt->current];
    fiber->value = value;
    fiber->source = source;
    wait_as(simt, IN_SHUFFLE, site);
    return fiber->value;
}

/* held[0..3] += what this thread holds of a product of two matrices, 16 x depth and depth x 8, of
 * which the elements that it holds follow. All 32 threads of the warp take part. */
void tcsym_simt_multiply(Simt *simt, float *held, int64_t depth, int64_t site) {
    simt->fibers[simt->current].held = held;
    simt->fibers[simt->current].depth = depth;
    wait_as(simt, IN_PRODUCT, site);
}

/* Threads that wait for each other stand at one place. */
static bool are_together(Simt *simt, int first, int n, const char *what) {
    for (int k = first + 1; k < first + n; k++) {
        if (simt->fibers[k].site == simt->fibers[first].site)
            continue;
        tcsym_simt_say(simt, "block %lld: threads %d and %d wait at different %s",
                       (long long)simt->block, first % simt->n_threads, k % simt->n_threads, what);
        return false;
    }
    return true;
}

/* ---- products. Reference: PTX ISA, fragments of mma.m16n8k16 (16 bits) and mma.m16n8k8 (tf32) */

enum { TILE_ROWS = 16, TILE_COLUMNS = 8, MOST_DEPTH = 16, SUMS = 4 };

/* What the multiplier is given: of float32 the nearest number of ten bits behind the point, of two the
 * one farther from 0 (`cvt.rna.tf32`). */
static float factor(float x, int64_t depth) {
    uint32_t bits;
    if (depth != 8 || x != x)
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x1000) & ~UINT32_C(0x1fff); /* an infinity stays one */
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

static void multiply(Fiber *fibers) {
    int64_t depth = fibers[0].depth;
    float left[TILE_ROWS][MOST_DEPTH], right[MOST_DEPTH][TILE_COLUMNS];
    int n_left = TILE_ROWS * (int)depth / LANES, n_right = TILE_COLUMNS * (int)depth / LANES;
    for (int k = 0; k < LANES; k++) {
        const float *a = fibers[k].held + SUMS, *b = a + n_left;
        for (int e = 0; e < n_left; e++)
            left[across(k, e, depth, true)][along(k, e, depth, true)] = factor(a[e], depth);
        for (int e = 0; e < n_right; e++)
            right[along(k, e, depth, false)][across(k, e, depth, false)] = factor(b[e], depth);
    }
    for (int k = 0; k < LANES; k++)
        for (int e = 0; e < SUMS; e++) {
            int row = k / 4 + 8 * (e / 2), column = 2 * (k % 4) + e % 2;
            for (int t = 0; t < depth; t++)
                fibers[k].held[e] += left[row][t] * right[t][column];
        }
}

/* ---- the scheduler */

/* False, and said so, if one of `n` threads takes from a lane that is not there. */
static bool shuffle(Simt *simt, Fiber *fibers, int n) {
    int64_t values[LANES];
    for (int k = 0; k < n; k++)
        values[k] = fibers[k].value;
    for (int k = 0; k < n; k++) {
        int64_t source = fibers[k].source;
        if (n <= source && source < LANES) {
            int thread = (int)(fibers + k - simt->fibers) % simt->n_threads;
            tcsym_simt_say(simt, "block %lld, thread %d: a shuffle from lane %lld of %d",
                           (long long)simt->block, thread, (long long)source, n);
            return false;
        }
        fibers[k].value = values[0 <= source && source < n ? source : k];
    }
    return true;
}

/* True if all threads of the warp that begins at `first` stand in a shuffle or product, which is then
 * done. `end`: of its block. */
static bool exchange(Simt *simt, int first, int end) {
    int n = end - first < LANES ? end - first : LANES;
    Fiber *fibers = &simt->fibers[first];
    bool is_product = fibers[0].state == IN_PRODUCT;
    if (is_product ? n < LANES : fibers[0].state != IN_SHUFFLE)
        return false;
    for (int k = 1; k < n; k++)
        if (fibers[k].state != fibers[0].state || (is_product && fibers[k].depth != fibers[0].depth))
            return false;
    if (!are_together(simt, first, n, is_product ? "products" : "shuffles"))
        return false;
    if (is_product)
        multiply(fibers);
    else if (!shuffle(simt, fibers, n))
        return false;
    for (int k = 0; k < n; k++)
        fibers[k].state = READY;
    return true;
}

/* Runs every thread as far as it goes. True if one ran. */
static bool run_ready(Simt *simt, int64_t first, bool backwards) {
    bool ran = false;
    int n = simt->n_threads * simt->n_together;
    for (int k = 0; k < n && !simt->failed; k++) {
        simt->current = backwards ? n - 1 - k : k;
        simt->block = first + slot_of(simt);
        if (simt->fibers[simt->current].state == READY) {
            tcsym_switch_fiber(&simt->host, simt->fibers[simt->current].stack_pointer);
            ran = true;
        }
    }
    return ran;
}

static int count(const Simt *simt, int first, State state) {
    int found = 0;
    for (int k = first; k < first + simt->n_threads; k++)
        found += simt->fibers[k].state == state;
    return found;
}

/* They were all at one barrier. */
static void let_go(Simt *simt, int slot) {
    for (int k = 0; k < simt->n_threads; k++)
        simt->fibers[slot * simt->n_threads + k].state = READY;
    simt->phases[slot]++;
}

/* Lets threads of a block go on, none of which could: what they wait for has come. */
static void settle(Simt *simt, int slot) {
    int n = simt->n_threads, first = slot * n, waiting = count(simt, first, AT_BARRIER);
    if (waiting == n) {
        if (are_together(simt, first, n, "barriers"))
            let_go(simt, slot);
        return;
    }
    bool exchanged = false;
    for (int k = first; k < first + n; k += LANES)
        exchanged |= exchange(simt, k, first + n);
    if (!exchanged)
        tcsym_simt_say(simt, "block %lld: %d of %d threads wait at a barrier, %d have ended",
                       (long long)simt->block, waiting + count(simt, first, AT_GRID), n,
                       count(simt, first, ENDED));
}

/* As many blocks as are there at once. */
static void run_together(Simt *simt, int64_t first, bool backwards) {
    int blocks = simt->n_together, n = simt->n_threads;
    memset(simt->shared, backwards ? 0x5a : 0xff, blocks * simt->shared_stride);
    for (int k = 0; k < blocks * n; k++)
        prepare(simt, &simt->fibers[k]);
    for (int slot = 0; slot < blocks; slot++)
        simt->phases[slot]++;
    while (!simt->failed) {
        if (run_ready(simt, first, backwards))
            continue;
        int ended = 0, met = 0;
        for (int slot = 0; slot < blocks && !simt->failed; slot++) {
            simt->block = first + slot;
            if (count(simt, slot * n, ENDED) == n)
                ended++;
            else if (count(simt, slot * n, AT_GRID) == n)
                met++;
            else
                settle(simt, slot);
        }
        if (ended == blocks)
            return;
        if (met == blocks && are_together(simt, 0, blocks * n, "barriers")) {
            for (int slot = 0; slot < blocks; slot++)
                let_go(simt, slot);
            simt->round++;
        } else if (met && met + ended == blocks) {
            tcsym_simt_say(simt, "%d of %d blocks wait for the grid, %d have ended", met, blocks, ended);
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
    free(simt->shared);
    free(simt->shadow);
    simt->shared = aligned_alloc(128, (shared_bytes + 128) / 128 * 128);
    simt->shadow = calloc(shared_bytes + 1, sizeof *simt->shadow);
    return simt->shared && simt->shadow ? simt : NULL;
}

static void run_blocks(Simt *simt, int64_t blocks, bool backwards) {
    for (int64_t k = 0; k < blocks && !simt->failed; k += simt->n_together)
        run_together(simt, backwards ? blocks - simt->n_together - k : k, backwards);
}

/* Runs all blocks; if checks are on, once more the other way round. together: at once, as many as
 * there are fibers for. 0; OUT_OF_MEMORY; or SIMT_FAULT, and `simt_report` tells what happened. */
int32_t tcsym_simt_grid(Region *region, void *data, int64_t blocks, int64_t threads,
                        int64_t shared_bytes, int64_t together, int64_t backwards) {
    if (blocks <= 0) {
        tcsym_simt_next_launch(); /* it was this one */
        return 0;
    }
    if (threads < 1 || threads > MOST_THREADS) {
        snprintf(report, sizeof report, "a block of %lld threads", (long long)threads);
        return SIMT_FAULT;
    }
    if (together && blocks > MOST_THREADS / threads)
        blocks = MOST_THREADS / threads;
    int64_t at_once = together ? blocks : 1, stride = (shared_bytes + 127) / 128 * 128;
    Simt *simt = take(at_once * threads, at_once * stride);
    if (!simt)
        return OUT_OF_MEMORY;
    simt->region = region;
    simt->data = data;
    simt->shared_bytes = shared_bytes;
    simt->shared_stride = stride;
    simt->n_threads = (int)threads;
    simt->n_together = (int)at_once;
    simt->n_blocks = blocks;
    simt->round = 0;
    memset(simt->phases, 0, sizeof simt->phases);
    simt->failed = false;
    simt->launch = tcsym_simt_next_launch();
    if (!tcsym_simt_watch(simt)) {
        tcsym_simt_forget(simt);
        return OUT_OF_MEMORY;
    }
    run_blocks(simt, blocks, backwards);
    if (simt->watched && !simt->failed && !(simt->launch.fault && *simt->launch.fault)) {
        tcsym_simt_set_back(simt);
        run_blocks(simt, blocks, !backwards);
        tcsym_simt_compare(simt);
    }
    tcsym_simt_forget(simt);
    return simt->failed ? SIMT_FAULT : 0;
}

PyObject *tcsym_simt_report(PyObject *module, PyObject *nothing) {
    return PyUnicode_FromString(report);
}
