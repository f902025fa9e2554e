/* SPDX-License-Identifier: Apache-2.0 */
/* What threads of a device on the host do to memory: accesses beside it, races, what no order settles.
 *
 * Generated code tells of each access. Of each byte of shared memory it is known who touched it since
 * the last barrier; if checks are on, of each element of a global buffer who did in this grid.
 */
#include "simt.h"

static _Thread_local Launch next; /* of the grid that is launched next */
static atomic_bool checks_are_on; /* relaxed: grids that run when it changes go either way */

/* ---- shared memory */

static void touch(Simt *simt, const char *at, int64_t bytes, bool writes, int pending,
                  int64_t line) {
    int64_t own = slot_of(simt) * simt->shared_stride, first = at - simt->shared;
    if (first < own || first + bytes > own + simt->shared_bytes)
        tcsym_simt_fail(simt, line, "an access beside shared memory");
    uint32_t phase = phase_of(simt);
    for (int64_t at_byte = first; at_byte < first + bytes; at_byte++) {
        Shadow *s = &simt->shadow[at_byte];
        bool is_written = s->written_in == phase && s->writer != simt->current;
        bool is_read = s->read_in == phase && s->reader != simt->current;
        long long byte = at_byte - own;
        if (s->pending && !pending)
            tcsym_simt_fail(simt, line, "shared memory is used while a copy to it is on its way");
        else if (is_written)
            tcsym_simt_fail(simt, line, "a race: thread %d wrote byte %lld of shared memory",
                            s->writer % simt->n_threads, byte);
        else if (writes && is_read && s->reader == SEVERAL)
            tcsym_simt_fail(simt, line, "a race: others read byte %lld of shared memory", byte);
        else if (writes && is_read)
            tcsym_simt_fail(simt, line, "a race: thread %d read byte %lld of shared memory",
                            s->reader % simt->n_threads, byte);
        if (writes) {
            s->writer = (int16_t)simt->current;
            s->written_in = phase;
        } else {
            bool again = s->read_in == phase && s->reader != simt->current;
            s->reader = again ? SEVERAL : (int16_t)simt->current;
            s->read_in = phase;
        }
        s->pending = (int16_t)(s->pending + pending);
    }
}

/* ---- the device's memory */

static int64_t block_of(const Simt *simt, Touch touch) {
    return (touch.thread - 1) / simt->n_threads;
}

/* True if nothing orders an earlier access and this one. */
static bool meets(const Simt *simt, Touch earlier, Touch now) {
    if (!earlier.thread || earlier.thread == now.thread)
        return false;
    bool is_own = block_of(simt, earlier) == block_of(simt, now);
    return is_own ? earlier.phase == now.phase : earlier.round == now.round;
}

static void note(const Simt *simt, Touch last[2], Touch now) {
    if (last[0].thread && last[0].thread != now.thread) {
        bool moves = block_of(simt, last[0]) != block_of(simt, now);
        if (moves || !last[1].thread || block_of(simt, last[1]) == block_of(simt, now))
            last[1] = last[0];
    }
    last[0] = now;
}

static void mark(Simt *simt, const Global *global, Mark *mark, int64_t element, Use use,
                 int64_t line) {
    Touch now = {(uint32_t)(simt->block * simt->n_threads + thread_of(simt) + 1), phase_of(simt),
                 simt->round};
    const Touch earlier[] = {mark->writer, mark->updaters[0], mark->updaters[1], mark->readers[0],
                             mark->readers[1]};
    for (int k = 0; k < (use == READS ? 3 : 5); k++)
        if (!(use == UPDATES && (k == 1 || k == 2)) && meets(simt, earlier[k], now))
            tcsym_simt_fail(simt, line, "a race: thread %lld of block %lld %s element %lld of `%s`",
                            (long long)((earlier[k].thread - 1) % simt->n_threads),
                            (long long)block_of(simt, earlier[k]), k > 2 ? "read" : "wrote",
                            (long long)element, global->name);
    if (use == WRITES)
        mark->writer = now;
    else
        note(simt, use == READS ? mark->readers : mark->updaters, now);
}

static int64_t first_byte(const Global *global) { return global->first * global->bytes; }

static int64_t n_elements(const Global *global) {
    return global->count > 0 ? global->last - global->first + 1 : 0;
}

/* ---- two runs of a grid */

void tcsym_simt_forget(Simt *simt) {
    for (int64_t k = 0; simt->watched && k < simt->launch.n_globals; k++)
        free(simt->watched[k].marks);
    free(simt->watched);
    simt->watched = NULL;
}

bool tcsym_simt_watch(Simt *simt) {
    if (!atomic_load_explicit(&checks_are_on, memory_order_relaxed))
        return true;
    simt->watched = calloc(simt->launch.n_globals + 1, sizeof *simt->watched);
    for (int64_t k = 0; simt->watched && k < simt->launch.n_globals; k++) {
        const Global *global = &simt->launch.globals[k];
        Watched *w = &simt->watched[k];
        if (!global->is_written || !(w->n = n_elements(global)))
            continue;
        w->bytes = w->n * global->bytes;
        w->marks = calloc(1, w->n * sizeof *w->marks + 2 * w->bytes);
        if (!w->marks)
            return false;
        w->memory = global->base + first_byte(global);
        w->before = (char *)(w->marks + w->n);
        w->after = w->before + w->bytes;
        memcpy(w->before, w->memory, w->bytes);
    }
    return simt->watched;
}

/* Keeps what the first run wrote, and sets the memory back. */
void tcsym_simt_set_back(Simt *simt) {
    for (Watched *w = simt->watched; w < simt->watched + simt->launch.n_globals; w++) {
        if (!w->marks)
            continue;
        memcpy(w->after, w->memory, w->bytes);
        memcpy(w->memory, w->before, w->bytes);
        memset(w->marks, 0, w->n * sizeof *w->marks);
    }
}

void tcsym_simt_compare(Simt *simt) {
    for (int64_t k = 0; k < simt->launch.n_globals; k++) {
        const Global *global = &simt->launch.globals[k];
        const Watched *w = &simt->watched[k];
        int64_t e = 0, size = global->bytes;
        while (e < w->n && !memcmp(w->memory + e * size, w->after + e * size, size))
            e++;
        if (e >= w->n)
            continue;
        Touch writer = w->marks[e].writer.thread ? w->marks[e].writer : w->marks[e].updaters[0];
        long long block = writer.thread ? block_of(simt, writer) : 0;
        long long thread = writer.thread ? (writer.thread - 1) % simt->n_threads : 0;
        tcsym_simt_say(simt,
                       "block %lld, thread %lld: element %lld of `%s` depends on the order of "
                       "threads or on shared memory that nothing set",
                       block, thread, (long long)(e + global->first), global->name);
    }
}

/* ---- what generated code calls */

void tcsym_simt_touch(Simt *simt, const char *at, int64_t bytes, int64_t writes, int64_t line) {
    touch(simt, at, bytes, writes, 0, line);
}

static bool is_inside(const Global *global, const char *at, int64_t bytes) {
    int64_t from = at - global->base - first_byte(global);
    return 0 <= from && from + bytes <= n_elements(global) * global->bytes;
}

static void use(Simt *simt, int64_t k, const char *at, int64_t bytes, Use how, int64_t line) {
    const Global *global = &simt->launch.globals[k];
    Mark *marks = simt->watched ? simt->watched[k].marks : NULL;
    int64_t from = at - global->base - first_byte(global);
    if (marks)
        for (int64_t e = from / global->bytes; e * global->bytes < from + bytes; e++)
            mark(simt, global, &marks[e], e + global->first, how, line);
}

/* An access to global buffer number `k` of the region. */
void tcsym_simt_global(Simt *simt, const char *at, int64_t bytes, int64_t how, int64_t k,
                       int64_t line) {
    if (!simt->launch.globals)
        return; /* launched by others, who do not name what they give */
    if (k >= simt->launch.n_globals)
        tcsym_simt_fail(simt, line, "memory that the launch does not name");
    const Global *global = &simt->launch.globals[k];
    long long first = global->first, n = n_elements(global);
    if (!is_inside(global, at, bytes))
        tcsym_simt_fail(simt, line, "element %lld of `%s`, which has elements %lld to %lld",
                        (long long)((at - global->base) / global->bytes), global->name, first,
                        first + n - 1);
    use(simt, k, at, bytes, (Use)how, line);
}

/* What is copied from a global buffer, if it is from one of the region's. */
static void use_any(Simt *simt, const char *at, int64_t bytes) {
    for (int64_t k = 0; k < simt->launch.n_globals; k++)
        if (is_inside(&simt->launch.globals[k], at, bytes)) {
            use(simt, k, at, bytes, READS, 0);
            return;
        }
    if (simt->launch.globals)
        tcsym_simt_fail(simt, 0, "a copy from beside all buffers");
}

/* The global buffers of the next grid, and where it notes faults. */
void tcsym_simt_globals(const void *globals, int64_t n, const int32_t *fault) {
    next = (Launch){globals, n, fault};
}

Launch tcsym_simt_next_launch(void) {
    Launch taken = next;
    next = (Launch){NULL, 0, NULL};
    return taken;
}

/* A copy into shared memory that begins now and is done when a wait says so; zeros, unless `reads`. */
void tcsym_simt_copy(Simt *simt, char *to, const char *from, int64_t bytes, int64_t reads) {
    Fiber *fiber = &simt->fibers[simt->current];
    if ((uintptr_t)to % bytes || (reads && (uintptr_t)from % bytes))
        tcsym_simt_fail(simt, 0, "an asynchronous copy that is not aligned");
    if (fiber->n_copies == MOST_COPIES)
        tcsym_simt_fail(simt, 0, "too many asynchronous copies at once");
    touch(simt, to, bytes, true, 1, 0);
    if (reads)
        use_any(simt, from, bytes);
    fiber->copies[fiber->n_copies++] = (Copy){to, reads ? from : NULL, bytes, fiber->group};
}

void tcsym_simt_commit(Simt *simt) { simt->fibers[simt->current].group++; }

/* Until no more than the last `left` groups of this thread are on their way. */
void tcsym_simt_wait(Simt *simt, int64_t left) {
    Fiber *fiber = &simt->fibers[simt->current];
    int kept = 0;
    for (const Copy *copy = fiber->copies; copy < fiber->copies + fiber->n_copies; copy++) {
        if (copy->group >= fiber->group - left) {
            fiber->copies[kept++] = *copy;
            continue;
        }
        if (copy->from)
            memcpy(copy->to, copy->from, copy->bytes);
        else
            memset(copy->to, 0, copy->bytes);
        Shadow *s = &simt->shadow[copy->to - simt->shared];
        for (Shadow *end = s + copy->bytes; s < end; s++) {
            s->pending--;
            s->writer = (int16_t)simt->current; /* others see it after a barrier */
            s->written_in = phase_of(simt);
        }
    }
    fiber->n_copies = kept;
}

/* Whether what costs much is checked, of all grids from now on. */
PyObject *tcsym_simt_check(PyObject *module, PyObject *whether) {
    int on = PyObject_IsTrue(whether);
    if (on < 0)
        return NULL;
    atomic_store_explicit(&checks_are_on, on, memory_order_relaxed);
    Py_RETURN_NONE;
}

