/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for CUDA: what their host halves launch grids by.
 *
 * Nothing of the device's memory is allocated here, and nothing waits for it, so that CUDA graphs can
 * capture a call. A call of many launches that is repeated is recorded as a graph of our own. */
#include "native.h"

#define DRIVER(X)                                                                                  \
    X(cuMemsetD32Async, (uint64_t to, unsigned value, size_t n, void *stream))                     \
    X(cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t bytes, void *stream))              \
    X(cuStreamCreate, (void **stream, unsigned flags))                                             \
    X(cuStreamDestroy_v2, (void *stream))                                                          \
    X(cuStreamIsCapturing, (void *stream, int *status))                                            \
    X(cuStreamBeginCapture_v2, (void *stream, int mode))                                           \
    X(cuStreamEndCapture, (void *stream, void **graph))                                            \
    X(cuGraphDestroy, (void *graph))                                                               \
    X(cuGraphInstantiateWithFlags, (void **ready, void *graph, unsigned long long flags))          \
    X(cuGraphExecUpdate_v2, (void *ready, void *graph, void *why))                                 \
    X(cuGraphExecDestroy, (void *ready))                                                           \
    X(cuGraphLaunch, (void *ready, void *stream))
#include "../artifact/cuda_grids.h"
enum { NON_BLOCKING = 1 }; /* CU_STREAM_* */

/* Memory of the device for calls on one stream: for one at a time, until it has enqueued all. */
typedef struct {
    PyObject *owner; /* of the memory */
    void *stream;
    uint64_t memory;
    int64_t bytes;
    _Atomic int32_t busy;
} Scratch;
enum { MOST_STREAMS = 8 };

/* Calls of some sizes and addresses, of so many launches that a graph of them pays. */
typedef struct {
    int64_t *key; /* the sizes; the addresses in the graph: of buffers, of scratch memory */
    void *ready;  /* CUgraphExec; null: a call of such sizes came once */
    int64_t used; /* when: a count of calls; 0: it is of no sizes */
} Recorded;
enum { MOST_RECORDED = 8 };

/* The functions of one kernel in one context of the driver. */
typedef struct {
    PyObject_HEAD
    void *context;
    unsigned long long fault_word; /* where the device reaches it */
    const _Atomic uint32_t *words; /* those of all kernels, where the host reads them */
    const int64_t *n_words;
    int device;
    long long multiprocessors, n_functions, n_sizes, n_buffers;
    Function *functions;
    Scratch scratch[MOST_STREAMS];
    long long least; /* launches of a call that is recorded; 0: none is */
    _Atomic int32_t recording; /* whether a call uses what follows */
    int64_t calls;
    void *apart; /* the stream on which calls are recorded */
    Recorded recorded[MOST_RECORDED];
    int64_t *keys; /* of all that are recorded */
} Grids;

/* The fields of `CONTEXT_FIELDS` (tcsym/ir/compiled.py). */
typedef struct {
    int32_t (*launch)(Queue *, int64_t, void *, int64_t, int64_t, int64_t, int64_t, int64_t);
    Queue *queue;
    int64_t threads;
    uint64_t shared, private;
    int64_t private_bytes;
    uint64_t fault_word;
} Context;

typedef struct {
    Kernel *kernel;
    void *const *buffers;
    const int64_t *sizes;
    uint64_t arena;
} Called;

static int32_t enqueue_on(Grids *grids, const Called *called, void *stream, int64_t *launches) {
    Queue queue = {grids->functions, stream, grids->n_functions, grids->multiprocessors, 0};
    Context context = {launch, &queue, 1, called->arena, 0, 0, grids->fault_word};
    int32_t result = called->kernel(called->buffers, called->sizes, &context);
    *launches = queue.launches;
    return result;
}

/* The default stream cannot be captured. */
static bool is_capturing(void *stream) {
    int status = 0;
    return stream && (cuStreamIsCapturing(stream, &status) || status);
}

static void forget(Recorded *r) {
    if (r->ready)
        cuGraphExecDestroy(r->ready); /* once it has run */
    r->ready = NULL;
    r->used = 0;
}

static bool has_sizes(const Grids *grids, const Recorded *r, const Called *called) {
    return r->used && !memcmp(r->key, called->sizes, grids->n_sizes * sizeof *r->key);
}

static bool has_addresses(const Grids *grids, const Recorded *r, const Called *called) {
    const int64_t *addresses = r->key + grids->n_sizes;
    return r->ready && (uint64_t)addresses[grids->n_buffers] == called->arena &&
           !memcmp(addresses, called->buffers, grids->n_buffers * sizeof *addresses);
}

/* What has just this call; else one of its sizes; else null. */
static Recorded *recorded_of(Grids *grids, const Called *called) {
    Recorded *found = NULL, *end = grids->recorded + MOST_RECORDED;
    for (Recorded *r = grids->recorded; r < end; r++)
        if (has_sizes(grids, r, called)) {
            if (has_addresses(grids, r, called))
                return r;
            found = r;
        }
    return found;
}

/* The one that is used for longest, or was never; of these sizes from now on. */
static Recorded *taken(Grids *grids, const Called *called) {
    Recorded *r = grids->recorded;
    for (Recorded *other = r; other < grids->recorded + MOST_RECORDED; other++)
        if (other->used < r->used)
            r = other;
    if (!has_sizes(grids, r, called))
        forget(r);
    memcpy(r->key, called->sizes, grids->n_sizes * sizeof *r->key);
    r->used = grids->calls;
    return r;
}

/* The launches of a call as a graph, in place of the one of other addresses, which is changed if the
 * driver can. 0, or DRIVER_ERROR less its code, or what the host half says. */
static int32_t record_relaxed(Grids *grids, Recorded *r, const Called *called) {
    void *graph = NULL, *ready = r->ready;
    int64_t launches, why[4], *addresses = r->key + grids->n_sizes;
    int code = grids->apart ? 0 : cuStreamCreate(&grids->apart, NON_BLOCKING);
    if (code || (code = cuStreamBeginCapture_v2(grids->apart, RELAXED)))
        return DRIVER_ERROR - code;
    int32_t result = enqueue_on(grids, called, grids->apart, &launches);
    code = cuStreamEndCapture(grids->apart, &graph);
    r->ready = NULL;
    if (!result && !code) {
        if (ready && !cuGraphExecUpdate_v2(ready, graph, why))
            r->ready = ready;
        else
            code = cuGraphInstantiateWithFlags(&r->ready, graph, 0);
    }
    if (ready && r->ready != ready)
        cuGraphExecDestroy(ready);
    if (graph)
        cuGraphDestroy(graph);
    memcpy(addresses, called->buffers, grids->n_buffers * sizeof *addresses);
    addresses[grids->n_buffers] = (int64_t)called->arena;
    return result || !code ? result : DRIVER_ERROR - code;
}

/* The same, whoever captures another stream. */
static int32_t record(Grids *grids, Recorded *r, const Called *called) {
    int mode = RELAXED, code = cuThreadExchangeStreamCaptureMode(&mode);
    if (code)
        return DRIVER_ERROR - code;
    int32_t result = record_relaxed(grids, r, called);
    cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

/* As a graph, if a call of the sizes came before. A graph that is captured takes the launches. */
static int32_t repeated(Grids *grids, const Called *called, void *stream) {
    Recorded *r = grids->calls ? recorded_of(grids, called) : NULL;
    int64_t launches;
    if (!r || is_capturing(stream)) {
        int32_t result = enqueue_on(grids, called, stream, &launches);
        if (!result && !r && launches >= grids->least && ++grids->calls)
            taken(grids, called);
        return result;
    }
    if (r->ready && !has_addresses(grids, r, called))
        r = taken(grids, called);
    r->used = ++grids->calls;
    int32_t result = has_addresses(grids, r, called) ? 0 : record(grids, r, called);
    if (result)
        return result;
    int code = cuGraphLaunch(r->ready, stream);
    return code ? DRIVER_ERROR - code : 0;
}

static int32_t enqueue(Grids *grids, const Called *called, void *stream) {
    int64_t launches;
    int code = cuCtxPushCurrent_v2(grids->context);
    if (code)
        return DRIVER_ERROR - code;
    int32_t result;
    if (grids->least && tcsym_claim(&grids->recording)) {
        result = repeated(grids, called, stream);
        tcsym_release(&grids->recording);
    } else {
        result = enqueue_on(grids, called, stream, &launches);
    }
    void *popped;
    code = cuCtxPopCurrent_v2(&popped);
    return result || !code ? result : DRIVER_ERROR - code;
}

/* That of a stream, claimed; null if there is none of that size, or it is taken. */
static Scratch *scratch_for(Grids *grids, void *stream, int64_t bytes) {
    for (int k = 0; k < MOST_STREAMS; k++) {
        Scratch *scratch = grids->scratch + k;
        if (scratch->bytes >= bytes && scratch->stream == stream && tcsym_claim(&scratch->busy))
            return scratch;
    }
    return NULL;
}

/* Numbers are copied into the launch, so graphs keep them by value. Each has a place of 8 bytes. */
int tcsym_write_numbers(PyObject *object, uint64_t at, void **buffers, const Number *numbers,
                        int64_t n, void *stream) {
    const Grids *grids = (const Grids *)object;
    int code = n ? cuCtxPushCurrent_v2(grids->context) : 0;
    if (code || !n)
        return code;
    for (int64_t k = 0; k < n && !code; k++, at += sizeof(int64_t)) {
        const Number *number = numbers + k;
        buffers[number->buffer] = (void *)(uintptr_t)at;
        code = cuMemsetD32Async(at, (unsigned)number->value, 1, stream);
        if (!code && number->bytes == 8)
            code = cuMemsetD32Async(at + 4, (unsigned)((uint64_t)number->value >> 32), 1, stream);
    }
    void *popped;
    int popping = cuCtxPopCurrent_v2(&popped);
    return code ? code : popping;
}

int32_t tcsym_enqueue(PyObject *object, Kernel *kernel, void **buffers, const int64_t *sizes,
                      int64_t scratch_bytes, void *stream, const Number *numbers, int64_t n_numbers) {
    Grids *grids = (Grids *)object;
    scratch_bytes = (scratch_bytes + 7) / 8 * 8;
    int64_t needed = scratch_bytes + n_numbers * (int64_t)sizeof(int64_t);
    if (needed && is_capturing(stream))
        return ARENA_BUSY; /* memory of the graph's own is needed */
    Scratch *scratch = needed ? scratch_for(grids, stream, needed) : NULL;
    if (needed && !scratch)
        return ARENA_BUSY;
    int32_t result;
    Py_BEGIN_ALLOW_THREADS /* a full stream makes the driver wait */
    uint64_t memory = scratch ? scratch->memory : 0;
    int code = tcsym_write_numbers(object, memory + (uint64_t)scratch_bytes, buffers, numbers, n_numbers, stream);
    result = code ? DRIVER_ERROR - code : enqueue(grids, &(Called){kernel, buffers, sizes, memory}, stream);
    Py_END_ALLOW_THREADS
    if (scratch)
        tcsym_release(&scratch->busy);
    return result;
}

int32_t tcsym_enqueue_in(PyObject *grids, Kernel *kernel, void *const *buffers, const int64_t *sizes,
                         uint64_t scratch, void *stream) {
    return enqueue((Grids *)grids, &(Called){kernel, buffers, sizes, scratch}, stream);
}

int32_t tcsym_copy_on_device(PyObject *object, const int64_t *copy, void *stream) {
    void *popped;
    int code = cuCtxPushCurrent_v2(((Grids *)object)->context);
    if (code)
        return DRIVER_ERROR - code;
    code = cuMemcpyDtoDAsync_v2((uint64_t)copy[0], (uint64_t)copy[1], (size_t)copy[2], stream);
    cuCtxPopCurrent_v2(&popped);
    return code ? DRIVER_ERROR - code : 0;
}

int tcsym_device_of(PyObject *grids) { return ((Grids *)grids)->device; }

bool tcsym_has_faults(PyObject *object) {
    const Grids *grids = (const Grids *)object;
    uint32_t all = 0; /* relaxed: devices write at any time, and what they found is read later */
    for (int64_t k = 0; k < *grids->n_words; k++)
        all |= atomic_load_explicit(grids->words + k, memory_order_relaxed);
    return all != 0;
}

/* grids.lend(stream, owner, memory, bytes): for calls on that stream, in place of less. */
static PyObject *grids_lend(PyObject *self, PyObject *args) {
    unsigned long long stream, memory;
    long long bytes;
    PyObject *owner;
    if (!PyArg_ParseTuple(args, "KOKL:lend", &stream, &owner, &memory, &bytes))
        return NULL;
    for (int k = 0; k < MOST_STREAMS; k++) {
        Scratch *scratch = ((Grids *)self)->scratch + k;
        if (scratch->owner && scratch->stream != (void *)(uintptr_t)stream)
            continue;
        if (scratch->bytes >= bytes || !tcsym_claim(&scratch->busy))
            break;
        PyObject *before = scratch->owner;
        scratch->owner = Py_NewRef(owner);
        scratch->stream = (void *)(uintptr_t)stream;
        scratch->memory = memory;
        scratch->bytes = bytes;
        tcsym_release(&scratch->busy);
        Py_XDECREF(before);
        break;
    }
    Py_RETURN_NONE;
}

/* grids.enqueue(kernel, buffers, sizes, arena, stream): what the host half of the kernel returns */
static PyObject *grids_enqueue(PyObject *self, PyObject *args) {
    unsigned long long kernel, arena, stream;
    PyObject *buffers, *sizes;
    if (!PyArg_ParseTuple(args, "KSSKK:enqueue", &kernel, &buffers, &sizes, &arena, &stream))
        return NULL;
    Called called = {(Kernel *)(uintptr_t)kernel, (void *const *)PyBytes_AS_STRING(buffers),
                     (const int64_t *)PyBytes_AS_STRING(sizes), arena};
    int32_t result;
    Py_BEGIN_ALLOW_THREADS
    result = enqueue((Grids *)self, &called, (void *)(uintptr_t)stream);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(result);
}

/* Relaxed: the word is all that is said. Memory is then freed by the driver, which called this. */
void tcsym_mark(_Atomic int64_t *word) { atomic_store_explicit(word, 1, memory_order_relaxed); }

/* grids.forget(): no call was recorded. Before the functions are unloaded, in their context. */
static PyObject *grids_forget(PyObject *self, PyObject *nothing) {
    Grids *grids = (Grids *)self;
    for (int k = 0; k < MOST_RECORDED; k++)
        forget(grids->recorded + k);
    if (grids->apart)
        cuStreamDestroy_v2(grids->apart);
    grids->apart = NULL;
    Py_RETURN_NONE;
}

/* missing_of_driver(): the library that is not there, or the function that it lacks; else None */
PyObject *tcsym_missing_of_driver(PyObject *module, PyObject *nothing) {
    const char *name = missing_of_driver();
    return name ? PyUnicode_FromString(name) : Py_NewRef(Py_None);
}

/* Grids(context, word, words, count of them, device, multiprocessors, least, functions, number of
 * sizes, of buffers) */
static PyObject *grids_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    unsigned long long context, words, n_words;
    PyObject *functions;
    Grids *grids = (Grids *)type->tp_alloc(type, 0);
    if (!grids || !PyArg_ParseTuple(args, "KKKKiLLO!LL:Grids", &context, &grids->fault_word, &words,
                                    &n_words, &grids->device, &grids->multiprocessors,
                                    &grids->least, &PyTuple_Type, &functions, &grids->n_sizes,
                                    &grids->n_buffers)) {
        Py_XDECREF(grids);
        return NULL;
    }
    grids->context = (void *)(uintptr_t)context;
    grids->words = (const _Atomic uint32_t *)(uintptr_t)words;
    grids->n_words = (const int64_t *)(uintptr_t)n_words;
    grids->n_functions = PyTuple_GET_SIZE(functions);
    int64_t n_key = grids->n_sizes + grids->n_buffers + 1;
    grids->functions = PyMem_Calloc(grids->n_functions + 1, sizeof *grids->functions);
    grids->keys = PyMem_Calloc(MOST_RECORDED * n_key, sizeof *grids->keys);
    for (int64_t k = 0; grids->functions && k < grids->n_functions; k++)
        grids->functions[k].handle = PyLong_AsVoidPtr(PyTuple_GET_ITEM(functions, k));
    for (int k = 0; grids->keys && k < MOST_RECORDED; k++)
        grids->recorded[k].key = grids->keys + k * n_key;
    if (!grids->functions || !grids->keys)
        PyErr_NoMemory();
    if (PyErr_Occurred())
        Py_CLEAR(grids);
    return (PyObject *)grids;
}

static void grids_dealloc(PyObject *self) {
    for (int k = 0; k < MOST_STREAMS; k++)
        Py_XDECREF(((Grids *)self)->scratch[k].owner);
    PyMem_Free(((Grids *)self)->functions);
    PyMem_Free(((Grids *)self)->keys);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef grids_methods[] = {
    {"lend", grids_lend, METH_VARARGS, "lend(stream, owner, memory, bytes)"},
    {"enqueue", grids_enqueue, METH_VARARGS, "enqueue(kernel, buffers, sizes, arena, stream)"},
    {"forget", grids_forget, METH_NOARGS, "forget(): the graphs of calls; in the functions' context."},
    {NULL},
};

PyTypeObject tcsym_Grids = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tcsym.runtime._native.Grids",
    .tp_doc = "Functions of a kernel on a device, which its host half launches.",
    .tp_basicsize = sizeof(Grids),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = grids_new,
    .tp_dealloc = grids_dealloc,
    .tp_methods = grids_methods,
};
