/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of large results: blocks that are used again when the arrays that had them are gone.
 * numpy's arrays get them through a memory handler (NEP 49), tensors through DLPack's deleter, which
 * may run without the GIL. */
#define _GNU_SOURCE
#include "native.h"
#include "system.h"

enum { PAGE = 1 << 16 /* AArch64's largest */, ALIGNMENT = 2 << 20, MOST_BLOCKS = 16, MOST_AGE = 64 };
int64_t tcsym_large = 4 << 20;

/* In the page before a block, whose address is a multiple of ALIGNMENT. */
typedef struct {
    int64_t capacity;
    int64_t stamp; /* what the clock showed when it became idle */
} Head;

static struct {
    atomic_flag lock;
    int64_t most;  /* bytes that may be idle; -1: not decided yet */
    int64_t idle;  /* bytes that are */
    int64_t clock; /* number of blocks that became idle so far */
    int64_t count;
    void *blocks[MOST_BLOCKS]; /* idle ones, oldest first */
} state = {.lock = ATOMIC_FLAG_INIT, .most = -1};

bool tcsym_is_decided(void) {
    return state.most >= 0;
}

static void lock(void) { /* acquires the state that `unlock` releases */
    while (atomic_flag_test_and_set_explicit(&state.lock, memory_order_acquire))
        tcsym_pause();
}

static void unlock(void) {
    atomic_flag_clear_explicit(&state.lock, memory_order_release);
}

static Head *head_of(void *block) {
    return (Head *)((char *)block - PAGE);
}

static void unmap(void *block) {
    munmap(head_of(block), head_of(block)->capacity + PAGE);
}

/* Rounded up to an eighth of its power of two, and to pages: blocks of like sizes replace another. */
static int64_t rounded(int64_t bytes) {
    int64_t some = bytes > PAGE ? bytes : PAGE;
    int64_t eighth = INT64_C(1) << (60 - __builtin_clzll((uint64_t)some));
    int64_t unit = eighth > PAGE ? eighth : PAGE;
    return (some + unit - 1) / unit * unit;
}

static void *removed(int64_t place) {
    void *block = state.blocks[place];
    state.count--;
    state.idle -= head_of(block)->capacity;
    memmove(state.blocks + place, state.blocks + place + 1,
            (state.count - place) * sizeof *state.blocks);
    return block;
}

/* A new block; null if there is no memory. */
static void *mapped(int64_t bytes) {
    int64_t all = bytes + ALIGNMENT + PAGE;
    char *start = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    uintptr_t place = ((uintptr_t)start + PAGE + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *block = (char *)place, *head = block - PAGE;
    if (head > start)
        munmap(start, head - start);
    if (block + bytes < start + all)
        munmap(block + bytes, start + all - (block + bytes));
    head_of(block)->capacity = bytes;
    ask_for_huge_pages(block, bytes);
    return block;
}

/* A block of at least `bytes`: the smallest idle one that is at most a quarter larger, or a new one. */
void *tcsym_take_block(int64_t bytes) {
    if (bytes > (int64_t)MOST_BYTES)
        return NULL;
    int64_t need = rounded(bytes), bound = need + need / 4, best = -1;
    lock();
    for (int64_t k = 0; k < state.count; k++) {
        int64_t capacity = head_of(state.blocks[k])->capacity;
        if (need <= capacity && capacity <= bound) {
            bound = capacity;
            best = k;
        }
    }
    void *block = best >= 0 ? removed(best) : NULL;
    unlock();
    return block ? block : mapped(need);
}

void tcsym_give_block(void *block) {
    int64_t bytes = head_of(block)->capacity;
    lock();
    if (bytes > state.most) {
        unlock();
        unmap(block);
        return;
    }
    if (state.count && state.clock - head_of(state.blocks[0])->stamp > MOST_AGE)
        unmap(removed(0)); /* nobody wanted it while many others became idle */
    while (state.count && (state.idle + bytes > state.most || state.count >= MOST_BLOCKS))
        unmap(removed(0));
    state.blocks[state.count++] = block;
    state.idle += bytes;
    head_of(block)->stamp = ++state.clock;
    unlock();
}

/* ---- numpy's memory handler: what an array does with its block */

static void *handle_malloc(void *context, size_t bytes) {
    return bytes > (size_t)MOST_BYTES ? NULL : tcsym_take_block(bytes ? (int64_t)bytes : 1);
}

static void *handle_calloc(void *context, size_t count, size_t each) {
    size_t bytes;
    void *block = __builtin_mul_overflow(count, each, &bytes) ? NULL : handle_malloc(context, bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

static void handle_free(void *context, void *block, size_t bytes) {
    if (block)
        tcsym_give_block(block);
}

static void *handle_realloc(void *context, void *old, size_t bytes) {
    void *block = handle_malloc(context, bytes);
    if (block && old) {
        size_t had = (size_t)head_of(old)->capacity;
        memcpy(block, old, had < bytes ? had : bytes);
        tcsym_give_block(old);
    }
    return block;
}

static PyDataMem_Handler handler = {
    "tcsym", 1, {NULL, handle_malloc, handle_calloc, handle_realloc, handle_free}};
static PyObject *capsule; /* never freed: arrays may be the last thing of a process */

bool tcsym_make_handler(void) {
    capsule = PyCapsule_New(&handler, "mem_handler", NULL);
    return capsule != NULL;
}

PyObject *tcsym_block_array(PyArray_Descr *type, int rank, const int64_t *extents) {
    PyObject *before = PyDataMem_SetHandler(capsule);
    if (!before) {
        Py_DECREF(type);
        return NULL;
    }
    const npy_intp *own = (const npy_intp *)extents;
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, type, rank, own, NULL, NULL, 0, NULL);
    PyObject *error_type, *error, *traceback;
    PyErr_Fetch(&error_type, &error, &traceback);
    Py_XDECREF(PyDataMem_SetHandler(before));
    Py_DECREF(before);
    PyErr_Restore(error_type, error, traceback);
    return array;
}

/* ---- for Python */

/* large_array(shape, dtype) -> array, or None if it is not large or there is no memory */
PyObject *tcsym_large_array(PyObject *module, PyObject *args) {
    PyObject *shape, *type;
    int64_t extents[NPY_MAXDIMS];
    if (!PyArg_ParseTuple(args, "O!O!:large_array", &PyTuple_Type, &shape, &PyArrayDescr_Type, &type))
        return NULL;
    Py_ssize_t rank = PyTuple_GET_SIZE(shape);
    double bytes = (double)PyDataType_ELSIZE((PyArray_Descr *)type);
    for (Py_ssize_t d = 0; d < rank && d < NPY_MAXDIMS; d++) {
        extents[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
        bytes *= (double)extents[d];
    }
    if (PyErr_Occurred())
        return NULL;
    if (rank > NPY_MAXDIMS || bytes < (double)tcsym_large || bytes > MOST_BYTES)
        Py_RETURN_NONE;
    PyObject *array = tcsym_block_array((PyArray_Descr *)Py_NewRef(type), (int)rank, extents);
    if (array)
        return array;
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* set_idle_memory(bytes): what is idle beyond it is given back to the system now */
PyObject *tcsym_set_idle_memory(PyObject *module, PyObject *most) {
    int64_t bytes = PyLong_AsLongLong(most);
    if (bytes == -1 && PyErr_Occurred())
        return NULL;
    lock();
    state.most = bytes;
    while (state.idle > state.most)
        unmap(removed(0));
    unlock();
    Py_RETURN_NONE;
}

/* idle_memory() -> (bytes, blocks) */
PyObject *tcsym_idle_memory(PyObject *module, PyObject *nothing) {
    lock();
    long long bytes = state.idle, blocks = state.count;
    unlock();
    return Py_BuildValue("LL", bytes, blocks);
}
