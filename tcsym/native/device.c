/* Kernels for CUDA: what their host halves launch grids by.
 *
 * The driver is not linked: its functions come as pointers (tcsym/runtime/cuda/driver.py). Nothing of
 * the device's memory is allocated here, and nothing waits for it, so that CUDA graphs can capture a
 * call. A call of many launches that is repeated is recorded as a graph of our own. */
#include "native.h"

/* Of cuda.h, the driver's interface, in the order of `TABLE`. */
typedef int Write(uint64_t to, unsigned value, size_t n, void *stream);
typedef struct {
    int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                  unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,
                  void **parameters, void **extra);
    int (*launch_together)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared_bytes, void *stream, void **parameters);
    int (*occupancy)(int *blocks, void *function, int threads, size_t shared_bytes);
    int (*push)(void *context);
    int (*pop)(void **context);
    Write *write[3]; /* 1, 2, 4 bytes */
    int (*is_capturing)(void *stream, int *status);
    int (*exchange_mode)(int *mode); /* of captures, in this thread */
    int (*new_stream)(void **stream, unsigned flags);
    int (*drop_stream)(void *stream);
    int (*begin_capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
    int (*drop_graph)(void *graph);
    int (*make_ready)(void **ready, void *graph, unsigned long long flags);
    int (*update)(void *ready, void *graph, void *why);
    int (*drop_ready)(void *ready);
    int (*launch_graph)(void *ready, void *stream);
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
} Driver;
enum { END = 0, BUFFER = 1, BUFFER_SIZE = 2 }; /* CU_LAUNCH_PARAM_* */
enum { NON_BLOCKING = 1, RELAXED = 2 };        /* CU_STREAM_*, CU_STREAM_CAPTURE_MODE_* */
enum { INVALID_VALUE = 1, TOO_LARGE = 720, MOST_BLOCKS = 0x7fffffff }; /* CUDA_ERROR_* */

/* Memory of the device for calls on one stream: for one at a time, until it has enqueued all. */
typedef struct {
    PyObject *owner; /* of the memory */
    void *stream;
    uint64_t memory;
    int64_t bytes, busy;
} Scratch;
enum { MOST_STREAMS = 8 };

/* Calls of some sizes and addresses, of so many launches that a graph of them pays. */
typedef struct {
    int64_t *sizes;
    uint64_t *addresses; /* of the buffers and the scratch memory in the graph */
    void *ready;         /* CUgraphExec; null: a call of such sizes came once */
    int64_t used;        /* when: a count of calls */
} Recorded;
enum { MOST_RECORDED = 8 };

/* The functions of one kernel in one context of the driver. */
typedef struct {
    PyObject_HEAD
    Driver driver;
    void *context;
    uint64_t fault_word; /* where the device reaches it */
    const uint32_t *words;  /* those of all kernels, where the host reads them */
    const int64_t *n_words;
    int device;
    int64_t multiprocessors, n_functions, n_sizes, n_buffers;
    void **functions;
    int64_t *resident; /* blocks of each function that run at once; 0: not known yet */
    Scratch scratch[MOST_STREAMS];
    int64_t least; /* launches of a call that is recorded; 0: none is */
    int64_t recording, calls; /* the former: whether a call uses what follows */
    void *apart; /* the stream on which calls are recorded */
    Recorded recorded[MOST_RECORDED];
} Grids;

/* The fields of `CONTEXT_FIELDS` (tcsym/ir/compiled.py). */
typedef struct {
    const Grids *grids;
    void *stream;
    int64_t launches;
} Queue;
typedef struct {
    int32_t (*run)(Queue *, int64_t, void *, int64_t, int64_t, int64_t, int64_t, int64_t);
    Queue *queue;
    int64_t threads;
    uint64_t shared, private;
    int64_t private_bytes;
    uint64_t fault_word;
} Context;

/* As many blocks as run at once, `blocks` at most, which wait for each other. The driver takes the
 * parameters of such a grid one by one. 0, or its code. */
static int run_together(const Queue *queue, int64_t function, int64_t *words, int64_t n_words,
                        int64_t blocks, int64_t threads, int64_t shared_bytes) {
    const Grids *grids = queue->grids;
    void *called = grids->functions[function], *parameters[n_words];
    int64_t resident = __atomic_load_n(grids->resident + function, __ATOMIC_RELAXED);
    if (!resident) {
        int each, code = grids->driver.occupancy(&each, called, (int)threads, (size_t)shared_bytes);
        if (code || !each)
            return code ? code : TOO_LARGE;
        resident = each * grids->multiprocessors;
        __atomic_store_n(grids->resident + function, resident, __ATOMIC_RELAXED);
    }
    for (int64_t k = 0; k < n_words; k++)
        parameters[k] = words + k;
    return grids->driver.launch_together(called, (unsigned)(blocks < resident ? blocks : resident), 1, 1,
                                  (unsigned)threads, 1, 1, (unsigned)shared_bytes, queue->stream,
                                  parameters);
}

/* Enqueues a function on a grid. 0, or DRIVER_ERROR less the driver's code. */
static int32_t run(Queue *queue, int64_t function, void *words, int64_t n_words, int64_t blocks,
                   int64_t threads, int64_t shared_bytes, int64_t together) {
    const Grids *grids = queue->grids;
    size_t bytes = (size_t)n_words * sizeof(int64_t);
    void *extra[] = {(void *)BUFFER, words, (void *)BUFFER_SIZE, &bytes, (void *)END};
    if (blocks <= 0)
        return 0; /* which the driver calls an error */
    if (blocks > MOST_BLOCKS || function < 0 || function >= grids->n_functions)
        return DRIVER_ERROR - INVALID_VALUE;
    queue->launches++;
    int code = together
                   ? run_together(queue, function, words, n_words, blocks, threads, shared_bytes)
                   : grids->driver.launch(grids->functions[function], (unsigned)blocks, 1, 1,
                                   (unsigned)threads, 1, 1, (unsigned)shared_bytes, queue->stream,
                                   NULL, extra);
    return code ? DRIVER_ERROR - code : 0;
}

/* What a call is, in the words of its graph. */
typedef struct {
    Kernel *kernel;
    void *const *buffers;
    const int64_t *sizes;
    uint64_t arena;
} Called;

static int32_t enqueue_on(Grids *grids, const Called *called, void *stream, int64_t *launches) {
    Queue queue = {grids, stream, 0};
    Context context = {run, &queue, 1, called->arena, 0, 0, grids->fault_word};
    int32_t result = called->kernel(called->buffers, called->sizes, &context);
    *launches = queue.launches;
    return result;
}

/* The default stream cannot be captured. */
static bool is_capturing(const Grids *grids, void *stream) {
    int status = 0;
    return stream && (grids->driver.is_capturing(stream, &status) || status);
}

static void forget(Grids *grids, Recorded *r) {
    if (r->ready)
        grids->driver.drop_ready(r->ready); /* once it has run */
    free(r->sizes);
    free(r->addresses);
    *r = (Recorded){NULL};
}

static bool has_sizes(const Grids *grids, const Recorded *r, const Called *called) {
    return r->sizes && !memcmp(r->sizes, called->sizes, grids->n_sizes * sizeof *r->sizes);
}

static bool has_addresses(const Grids *grids, const Recorded *r, const Called *called) {
    return r->ready && r->addresses[grids->n_buffers] == called->arena &&
           !memcmp(r->addresses, called->buffers, grids->n_buffers * sizeof *r->addresses);
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

/* The one that is used for longest, or was never; of these sizes from now on. Null without memory. */
static Recorded *taken(Grids *grids, const Called *called) {
    Recorded *r = grids->recorded;
    for (Recorded *other = r; other < grids->recorded + MOST_RECORDED; other++)
        if (other->used < r->used)
            r = other;
    if (has_sizes(grids, r, called))
        return r;
    forget(grids, r);
    r->used = grids->calls;
    r->sizes = calloc(grids->n_sizes + 1, sizeof *r->sizes);
    r->addresses = calloc(grids->n_buffers + 1, sizeof *r->addresses);
    if (!r->sizes || !r->addresses) {
        forget(grids, r);
        return NULL;
    }
    memcpy(r->sizes, called->sizes, grids->n_sizes * sizeof *r->sizes);
    return r;
}

/* The launches of a call as a graph, in place of the one of other addresses, which is changed if the
 * driver can. 0, or DRIVER_ERROR less its code, or what the host half says. */
static int32_t record(Grids *grids, Recorded *r, const Called *called) {
    const Driver *driver = &grids->driver;
    void *graph = NULL, *ready = r->ready;
    int64_t launches, why[4];
    int mode = RELAXED, code = driver->exchange_mode(&mode); /* whatever other threads capture */
    if (!code && !grids->apart)
        code = driver->new_stream(&grids->apart, NON_BLOCKING);
    if (code || (code = driver->begin_capture(grids->apart, RELAXED)))
        return DRIVER_ERROR - code;
    int32_t result = enqueue_on(grids, called, grids->apart, &launches);
    code = driver->end_capture(grids->apart, &graph);
    r->ready = NULL;
    if (!result && !code) {
        if (ready && !driver->update(ready, graph, why))
            r->ready = ready;
        else
            code = driver->make_ready(&r->ready, graph, 0);
    }
    if (ready && r->ready != ready)
        driver->drop_ready(ready);
    if (graph)
        driver->drop_graph(graph);
    driver->exchange_mode(&mode);
    memcpy(r->addresses, called->buffers, grids->n_buffers * sizeof *r->addresses);
    r->addresses[grids->n_buffers] = called->arena;
    return result || !code ? result : DRIVER_ERROR - code;
}

/* As a graph, if a call of the sizes came before. A graph that is captured takes the launches. */
static int32_t repeated(Grids *grids, const Called *called, void *stream) {
    Recorded *r = grids->calls ? recorded_of(grids, called) : NULL;
    bool is_known = r && !is_capturing(grids, stream);
    int64_t launches;
    if (is_known && r->ready && !has_addresses(grids, r, called))
        r = taken(grids, called);
    if (!is_known || !r) {
        int32_t result = enqueue_on(grids, called, stream, &launches);
        if (!result && !is_known && !r && launches >= grids->least && ++grids->calls)
            taken(grids, called);
        return result;
    }
    r->used = ++grids->calls;
    int32_t result = has_addresses(grids, r, called) ? 0 : record(grids, r, called);
    if (result)
        return result;
    int code = grids->driver.launch_graph(r->ready, stream);
    return code ? DRIVER_ERROR - code : 0;
}

static int32_t enqueue(Grids *grids, const Called *called, void *stream) {
    int64_t idle = 0, launches;
    int code = grids->driver.push(grids->context);
    if (code)
        return DRIVER_ERROR - code;
    int32_t result;
    if (grids->least && __atomic_compare_exchange_n(&grids->recording, &idle, 1, false,
                                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        result = repeated(grids, called, stream);
        __atomic_store_n(&grids->recording, 0, __ATOMIC_RELEASE);
    } else {
        result = enqueue_on(grids, called, stream, &launches);
    }
    void *popped;
    code = grids->driver.pop(&popped);
    return result || !code ? result : DRIVER_ERROR - code;
}

/* That of a stream, claimed; null if there is none of that size, or it is taken. */
static Scratch *claim(Grids *grids, void *stream, int64_t bytes) {
    for (int k = 0; k < MOST_STREAMS; k++) {
        Scratch *scratch = grids->scratch + k;
        int64_t idle = 0;
        if (scratch->bytes >= bytes && scratch->stream == stream &&
            __atomic_compare_exchange_n(&scratch->busy, &idle, 1, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return scratch;
    }
    return NULL;
}

/* Numbers are copied into the launch, so graphs keep them by value. */
int tcsym_write_numbers(PyObject *object, uint64_t at, void **buffers, const Number *numbers,
                        int64_t n, void *stream) {
    const Grids *grids = (const Grids *)object;
    int code = n ? grids->driver.push(grids->context) : 0;
    if (code || !n)
        return code;
    for (int64_t k = 0; k < n && !code; k++, at += sizeof(int64_t)) {
        const Number *number = numbers + k;
        int size = number->bytes >= 4 ? 2 : (int)number->bytes - 1;
        buffers[number->buffer] = (void *)(uintptr_t)at;
        code = grids->driver.write[size](at, (unsigned)number->value, 1, stream);
        if (!code && number->bytes == 8)
            code = grids->driver.write[2](at + 4, (unsigned)((uint64_t)number->value >> 32), 1, stream);
    }
    void *popped;
    int popping = grids->driver.pop(&popped);
    return code ? code : popping;
}

int32_t tcsym_enqueue(PyObject *object, Kernel *kernel, void **buffers, const int64_t *sizes,
                      int64_t scratch_bytes, void *stream, const Number *numbers, int64_t n_numbers) {
    Grids *grids = (Grids *)object;
    scratch_bytes = (scratch_bytes + 7) / 8 * 8;
    int64_t needed = scratch_bytes + n_numbers * (int64_t)sizeof(int64_t);
    if (needed && is_capturing(grids, stream))
        return ARENA_BUSY; /* memory of the graph's own is needed */
    Scratch *scratch = needed ? claim(grids, stream, needed) : NULL;
    if (needed && !scratch)
        return ARENA_BUSY;
    int32_t result;
    Py_BEGIN_ALLOW_THREADS /* a full stream makes the driver wait */
    uint64_t memory = scratch ? scratch->memory : 0;
    int code = tcsym_write_numbers(object, memory + (uint64_t)scratch_bytes, buffers, numbers, n_numbers, stream);
    result = code ? DRIVER_ERROR - code : enqueue(grids, &(Called){kernel, buffers, sizes, memory}, stream);
    Py_END_ALLOW_THREADS
    if (scratch)
        __atomic_store_n(&scratch->busy, 0, __ATOMIC_RELEASE);
    return result;
}

int32_t tcsym_enqueue_in(PyObject *grids, Kernel *kernel, void *const *buffers, const int64_t *sizes,
                         uint64_t scratch, void *stream) {
    return enqueue((Grids *)grids, &(Called){kernel, buffers, sizes, scratch}, stream);
}

int32_t tcsym_copy_on_device(PyObject *object, const int64_t *copy, void *stream) {
    const Driver *driver = &((Grids *)object)->driver;
    void *popped;
    int code = driver->push(((Grids *)object)->context);
    if (code)
        return DRIVER_ERROR - code;
    code = driver->copy((uint64_t)copy[0], (uint64_t)copy[1], (size_t)copy[2], stream);
    driver->pop(&popped);
    return code ? DRIVER_ERROR - code : 0;
}

int tcsym_device_of(PyObject *grids) { return ((Grids *)grids)->device; }

bool tcsym_has_faults(PyObject *object) {
    const Grids *grids = (const Grids *)object;
    uint32_t all = 0;
    for (int64_t k = 0; k < *grids->n_words; k++)
        all |= __atomic_load_n(grids->words + k, __ATOMIC_RELAXED);
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
        int64_t idle = 0;
        if (scratch->owner && scratch->stream != (void *)(uintptr_t)stream)
            continue;
        if (scratch->bytes >= bytes ||
            !__atomic_compare_exchange_n(&scratch->busy, &idle, 1, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
            break;
        PyObject *before = scratch->owner;
        scratch->owner = Py_NewRef(owner);
        scratch->stream = (void *)(uintptr_t)stream;
        scratch->memory = memory;
        scratch->bytes = bytes;
        __atomic_store_n(&scratch->busy, 0, __ATOMIC_RELEASE);
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

void tcsym_mark(int64_t *word) { __atomic_store_n(word, 1, __ATOMIC_RELEASE); }

/* grids.forget(): no call was recorded. Before the functions are unloaded, in their context. */
static PyObject *grids_forget(PyObject *self, PyObject *nothing) {
    Grids *grids = (Grids *)self;
    for (int k = 0; k < MOST_RECORDED; k++)
        forget(grids, grids->recorded + k);
    if (grids->apart)
        grids->driver.drop_stream(grids->apart);
    grids->apart = NULL;
    Py_RETURN_NONE;
}

/* Grids(addresses of the driver's functions, context, word, words, count of them, device,
 * multiprocessors, least, functions, number of sizes, of buffers) */
static PyObject *grids_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    unsigned long long context, fault_word, words, n_words;
    int device;
    long long multiprocessors, least, n_sizes, n_buffers;
    PyObject *driver, *functions;
    if (!PyArg_ParseTuple(args, "SKKKKiLLO!LL:Grids", &driver, &context, &fault_word, &words, &n_words,
                          &device, &multiprocessors, &least, &PyTuple_Type, &functions, &n_sizes,
                          &n_buffers))
        return NULL;
    if (PyBytes_GET_SIZE(driver) != sizeof(Driver)) {
        PyErr_SetString(PyExc_ValueError, "the addresses are of other functions");
        return NULL;
    }
    Grids *grids = (Grids *)type->tp_alloc(type, 0);
    if (!grids)
        return NULL;
    memcpy(&grids->driver, PyBytes_AS_STRING(driver), sizeof(Driver));
    grids->context = (void *)(uintptr_t)context;
    grids->fault_word = fault_word;
    grids->words = (const uint32_t *)(uintptr_t)words;
    grids->n_words = (const int64_t *)(uintptr_t)n_words;
    grids->device = device;
    grids->multiprocessors = multiprocessors;
    grids->least = least;
    grids->n_sizes = n_sizes;
    grids->n_buffers = n_buffers;
    grids->n_functions = PyTuple_GET_SIZE(functions);
    grids->functions = PyMem_Calloc(grids->n_functions + 1, sizeof *grids->functions);
    grids->resident = PyMem_Calloc(grids->n_functions + 1, sizeof *grids->resident);
    for (int64_t k = 0; grids->functions && k < grids->n_functions; k++)
        grids->functions[k] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(functions, k));
    if (!grids->functions || !grids->resident)
        PyErr_NoMemory();
    if (PyErr_Occurred())
        Py_CLEAR(grids);
    return (PyObject *)grids;
}

static void grids_dealloc(PyObject *self) {
    for (int k = 0; k < MOST_STREAMS; k++)
        Py_XDECREF(((Grids *)self)->scratch[k].owner);
    PyMem_Free(((Grids *)self)->functions);
    PyMem_Free(((Grids *)self)->resident);
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
