/* Kernels for CUDA: what their host halves launch grids by, and arrays that pass through DLPack.
 *
 * The driver is not linked: its functions come as pointers (tcsym/runtime/cuda/driver.py). Nothing is
 * allocated here, and nothing waits for the device, so that CUDA graphs can capture a call. */
#include "native.h"
#include "dlpack.h"

/* Of cuda.h, the driver's interface. */
typedef int LaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                         void *stream, void **parameters, void **extra);
typedef int LaunchTogether(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared_bytes, void *stream, void **parameters);
typedef int Occupancy(int *blocks, void *function, int threads, size_t shared_bytes);
typedef int PushContext(void *context);
typedef int PopContext(void **context);
typedef int Write(uint64_t to, unsigned value, size_t n, void *stream);
enum { END = 0, BUFFER = 1, BUFFER_SIZE = 2 }; /* CU_LAUNCH_PARAM_* */
enum { INVALID_VALUE = 1, TOO_LARGE = 720, MOST_BLOCKS = 0x7fffffff }; /* CUDA_ERROR_* */

/* Memory of the device for calls on one stream: for one at a time, until it has enqueued all. */
typedef struct {
    void *stream;
    uint64_t memory;
    int64_t bytes, busy;
} Scratch;
enum { MOST_STREAMS = 8 };

/* The functions of one kernel in one context of the driver. */
typedef struct {
    PyObject_HEAD
    LaunchKernel *launch;
    LaunchTogether *launch_together;
    Occupancy *occupancy; /* of a multiprocessor */
    PushContext *push;
    PopContext *pop;
    Write *write[3]; /* 1, 2, 4 bytes */
    void *context;
    uint64_t fault_word; /* where the device reaches it */
    const uint32_t *words;  /* those of all kernels, where the host reads them */
    const int64_t *n_words;
    int device;
    int64_t multiprocessors, n_functions;
    void **functions;
    int64_t *resident; /* blocks of each function that run at once; 0: not known yet */
    Scratch scratch[MOST_STREAMS];
} Grids;

/* The fields of `CONTEXT_FIELDS` (tcsym/ir/compiled.py). */
typedef struct {
    const Grids *grids;
    void *stream;
} Queue;
typedef struct {
    int32_t (*run)(const Queue *, int64_t, void *, int64_t, int64_t, int64_t, int64_t, int64_t);
    const Queue *queue;
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
        int each, code = grids->occupancy(&each, called, (int)threads, (size_t)shared_bytes);
        if (code || !each)
            return code ? code : TOO_LARGE;
        resident = each * grids->multiprocessors;
        __atomic_store_n(grids->resident + function, resident, __ATOMIC_RELAXED);
    }
    for (int64_t k = 0; k < n_words; k++)
        parameters[k] = words + k;
    return grids->launch_together(called, (unsigned)(blocks < resident ? blocks : resident), 1, 1,
                                  (unsigned)threads, 1, 1, (unsigned)shared_bytes, queue->stream,
                                  parameters);
}

/* Enqueues a function on a grid. 0, or DRIVER_ERROR less the driver's code. */
static int32_t run(const Queue *queue, int64_t function, void *words, int64_t n_words, int64_t blocks,
                   int64_t threads, int64_t shared_bytes, int64_t together) {
    const Grids *grids = queue->grids;
    size_t bytes = (size_t)n_words * sizeof(int64_t);
    void *extra[] = {(void *)BUFFER, words, (void *)BUFFER_SIZE, &bytes, (void *)END};
    if (blocks <= 0)
        return 0; /* which the driver calls an error */
    if (blocks > MOST_BLOCKS || function < 0 || function >= grids->n_functions)
        return DRIVER_ERROR - INVALID_VALUE;
    int code = together
                   ? run_together(queue, function, words, n_words, blocks, threads, shared_bytes)
                   : grids->launch(grids->functions[function], (unsigned)blocks, 1, 1,
                                   (unsigned)threads, 1, 1, (unsigned)shared_bytes, queue->stream,
                                   NULL, extra);
    return code ? DRIVER_ERROR - code : 0;
}

static int32_t enqueue(const Grids *grids, Kernel *kernel, void *const *buffers, const int64_t *sizes,
                       uint64_t arena, void *stream) {
    Queue queue = {grids, stream};
    Context context = {run, &queue, 1, arena, 0, 0, grids->fault_word};
    int code = grids->push(grids->context);
    if (code)
        return DRIVER_ERROR - code;
    int32_t result = kernel(buffers, sizes, &context);
    void *popped;
    code = grids->pop(&popped);
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
static int write_numbers(const Grids *grids, uint64_t at, void **buffers, const Number *numbers,
                         int64_t n, void *stream) {
    int code = n ? grids->push(grids->context) : 0;
    if (code || !n)
        return code;
    for (int64_t k = 0; k < n && !code; k++, at += sizeof(int64_t)) {
        const Number *number = numbers + k;
        int size = number->bytes >= 4 ? 2 : (int)number->bytes - 1;
        buffers[number->buffer] = (void *)(uintptr_t)at;
        code = grids->write[size](at, (unsigned)number->value, 1, stream);
        if (!code && number->bytes == 8)
            code = grids->write[2](at + 4, (unsigned)((uint64_t)number->value >> 32), 1, stream);
    }
    void *popped;
    int popping = grids->pop(&popped);
    return code ? code : popping;
}

int32_t tcsym_enqueue(PyObject *object, Kernel *kernel, void **buffers, const int64_t *sizes,
                      int64_t scratch_bytes, void *stream, const Number *numbers, int64_t n_numbers) {
    Grids *grids = (Grids *)object;
    scratch_bytes = (scratch_bytes + 7) / 8 * 8;
    int64_t needed = scratch_bytes + n_numbers * (int64_t)sizeof(int64_t);
    Scratch *scratch = needed ? claim(grids, stream, needed) : NULL;
    if (needed && !scratch)
        return ARENA_BUSY;
    int32_t result;
    Py_BEGIN_ALLOW_THREADS /* a full stream makes the driver wait */
    uint64_t memory = scratch ? scratch->memory : 0;
    int code = write_numbers(grids, memory + (uint64_t)scratch_bytes, buffers, numbers, n_numbers, stream);
    result = code ? DRIVER_ERROR - code : enqueue(grids, kernel, buffers, sizes, memory, stream);
    Py_END_ALLOW_THREADS
    if (scratch)
        __atomic_store_n(&scratch->busy, 0, __ATOMIC_RELEASE);
    return result;
}

int tcsym_device_of(PyObject *grids) { return ((Grids *)grids)->device; }

bool tcsym_has_faults(PyObject *object) {
    const Grids *grids = (const Grids *)object;
    uint32_t all = 0;
    for (int64_t k = 0; k < *grids->n_words; k++)
        all |= __atomic_load_n(grids->words + k, __ATOMIC_RELAXED);
    return all != 0;
}

/* grids.lend(stream, memory, bytes): for calls on that stream, in place of less. Whether it is taken. */
static PyObject *grids_lend(PyObject *self, PyObject *args) {
    unsigned long long stream, memory;
    long long bytes;
    if (!PyArg_ParseTuple(args, "KKL:lend", &stream, &memory, &bytes))
        return NULL;
    for (int k = 0; k < MOST_STREAMS; k++) {
        Scratch *scratch = ((Grids *)self)->scratch + k;
        int64_t idle = 0;
        if (scratch->bytes && scratch->stream != (void *)(uintptr_t)stream)
            continue;
        if (scratch->bytes >= bytes ||
            !__atomic_compare_exchange_n(&scratch->busy, &idle, 1, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
            break;
        scratch->stream = (void *)(uintptr_t)stream;
        scratch->memory = memory;
        scratch->bytes = bytes;
        __atomic_store_n(&scratch->busy, 0, __ATOMIC_RELEASE);
        Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
}

/* grids.enqueue(kernel, buffers, sizes, arena, stream): what the host half of the kernel returns */
static PyObject *grids_enqueue(PyObject *self, PyObject *args) {
    unsigned long long kernel, arena, stream;
    PyObject *buffers, *sizes;
    if (!PyArg_ParseTuple(args, "KSSKK:enqueue", &kernel, &buffers, &sizes, &arena, &stream))
        return NULL;
    int32_t result;
    Py_BEGIN_ALLOW_THREADS
    result = enqueue((Grids *)self, (Kernel *)(uintptr_t)kernel,
                     (void *const *)PyBytes_AS_STRING(buffers),
                     (const int64_t *)PyBytes_AS_STRING(sizes), arena, (void *)(uintptr_t)stream);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(result);
}

static PyObject *grids_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    unsigned long long launch[3], push, pop, write[3], context, fault_word, words, n_words;
    int device, multiprocessors;
    PyObject *functions;
    if (!PyArg_ParseTuple(args, "(KKK)KK(KKK)KKKKiiO!:Grids", launch, launch + 1, launch + 2, &push,
                          &pop, write, write + 1, write + 2, &context, &fault_word, &words, &n_words,
                          &device, &multiprocessors, &PyTuple_Type, &functions))
        return NULL;
    Grids *grids = (Grids *)type->tp_alloc(type, 0);
    if (!grids)
        return NULL;
    grids->launch = (LaunchKernel *)(uintptr_t)launch[0];
    grids->launch_together = (LaunchTogether *)(uintptr_t)launch[1];
    grids->occupancy = (Occupancy *)(uintptr_t)launch[2];
    grids->push = (PushContext *)(uintptr_t)push;
    grids->pop = (PopContext *)(uintptr_t)pop;
    for (int k = 0; k < 3; k++)
        grids->write[k] = (Write *)(uintptr_t)write[k];
    grids->context = (void *)(uintptr_t)context;
    grids->fault_word = fault_word;
    grids->words = (const uint32_t *)(uintptr_t)words;
    grids->n_words = (const int64_t *)(uintptr_t)n_words;
    grids->device = device;
    grids->multiprocessors = multiprocessors;
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
    PyMem_Free(((Grids *)self)->functions);
    PyMem_Free(((Grids *)self)->resident);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef grids_methods[] = {
    {"lend", grids_lend, METH_VARARGS, "lend(stream, memory, bytes): scratch memory, if it is taken."},
    {"enqueue", grids_enqueue, METH_VARARGS, "enqueue(kernel, buffers, sizes, arena, stream)"},
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

/* ---- DLPack's capsules, of version 0 as of 1: a name says which, and whether somebody took it */

/* Of version 0. */
typedef struct Managed {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct Managed *);
} Managed;

static const char *const OLD = "dltensor", *const NEW = "dltensor_versioned";
static const char *const USED_OLD = "used_dltensor", *const USED_NEW = "used_dltensor_versioned";
enum { READ_ONLY = 1 };

static void free_old(PyObject *capsule) {
    Managed *managed = PyCapsule_GetPointer(capsule, USED_OLD);
    if (managed && managed->deleter)
        managed->deleter(managed);
}

static void free_new(PyObject *capsule) {
    DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, USED_NEW);
    if (managed && managed->deleter)
        managed->deleter(managed);
}

/* read_capsule(capsule): (pointer, shape, strides or None, code of the type, writable). From now on
 * the capsule owns the tensor: it lives as long. */
PyObject *tcsym_read_capsule(PyObject *module, PyObject *capsule) {
    bool is_new = PyCapsule_IsValid(capsule, NEW);
    void *pointer = PyCapsule_GetPointer(capsule, is_new ? NEW : OLD);
    if (!pointer)
        return NULL;
    const DLManagedTensorVersioned *versioned = pointer;
    if (is_new && versioned->version.major != DLPACK_MAJOR) {
        PyErr_SetString(PyExc_BufferError, "another version of DLPack");
        return NULL;
    }
    if (PyCapsule_SetName(capsule, is_new ? USED_NEW : USED_OLD) ||
        PyCapsule_SetDestructor(capsule, is_new ? free_new : free_old))
        return NULL;
    const DLTensor *tensor = is_new ? &versioned->dl_tensor : &((Managed *)pointer)->dl_tensor;
    PyObject *shape = PyTuple_New(tensor->ndim);
    PyObject *strides = tensor->strides ? PyTuple_New(tensor->ndim) : Py_NewRef(Py_None);
    for (int d = 0; shape && strides && d < tensor->ndim; d++) {
        PyTuple_SET_ITEM(shape, d, PyLong_FromLongLong(tensor->shape[d]));
        if (tensor->strides)
            PyTuple_SET_ITEM(strides, d, PyLong_FromLongLong(tensor->strides[d]));
    }
    unsigned long long data = (uintptr_t)tensor->data + tensor->byte_offset;
    unsigned code = tensor->dtype.code | tensor->dtype.bits << 8 | (unsigned)tensor->dtype.lanes << 16;
    int writable = !(is_new && versioned->flags & READ_ONLY);
    return Py_BuildValue("KNNIO", data, shape, strides, code, writable ? Py_True : Py_False);
}

/* A tensor of ours that somebody may take. */
typedef struct {
    union {
        Managed old;
        DLManagedTensorVersioned versioned;
    } managed;
    PyObject *owner;
    int64_t shape_and_strides[];
} Shown;

/* Whoever took the tensor may let it go in any thread, and after the interpreter has ended. */
static void release(Shown *shown) {
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(shown->owner);
        PyGILState_Release(state);
    }
    free(shown);
}

static void delete_old(Managed *managed) { release(managed->manager_ctx); }
static void delete_new(DLManagedTensorVersioned *managed) { release(managed->manager_ctx); }

static void drop_shown(PyObject *capsule) {
    const char *name = PyCapsule_GetName(capsule);
    if (!strcmp(name, NEW) || !strcmp(name, OLD)) /* nobody took it */
        release(PyCapsule_GetPointer(capsule, name));
}

/* make_capsule(owner, pointer, shape, code of the type, device type, device, versioned): of a dense
 * tensor in the owner's memory. */
PyObject *tcsym_make_capsule(PyObject *module, PyObject *args) {
    PyObject *owner, *shape;
    unsigned long long pointer;
    unsigned code;
    int type, device, is_new;
    if (!PyArg_ParseTuple(args, "OKO!Iiip:make_capsule", &owner, &pointer, &PyTuple_Type, &shape, &code,
                          &type, &device, &is_new))
        return NULL;
    Py_ssize_t rank = PyTuple_GET_SIZE(shape);
    Shown *shown = calloc(1, sizeof *shown + 2 * rank * sizeof(int64_t));
    if (!shown)
        return PyErr_NoMemory();
    int64_t *extents = shown->shape_and_strides, stride = 1;
    for (Py_ssize_t d = rank; d-- > 0; stride *= extents[d] ? extents[d] : 1) {
        extents[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
        extents[rank + d] = stride;
    }
    DLTensor *tensor = is_new ? &shown->managed.versioned.dl_tensor : &shown->managed.old.dl_tensor;
    *tensor = (DLTensor){
        .data = (void *)(uintptr_t)pointer,
        .device = {type, device},
        .ndim = (int32_t)rank,
        .dtype = {(uint8_t)code, (uint8_t)(code >> 8), (uint16_t)(code >> 16)},
        .shape = extents,
        .strides = extents + rank,
    };
    if (is_new) {
        shown->managed.versioned.version.major = DLPACK_MAJOR;
        shown->managed.versioned.manager_ctx = shown;
        shown->managed.versioned.deleter = delete_new;
    } else {
        shown->managed.old.manager_ctx = shown;
        shown->managed.old.deleter = delete_old;
    }
    shown->owner = Py_NewRef(owner);
    PyObject *capsule = PyErr_Occurred() ? NULL : PyCapsule_New(shown, is_new ? NEW : OLD, drop_shown);
    if (!capsule)
        release(shown);
    return capsule;
}
