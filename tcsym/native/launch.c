/* SPDX-License-Identifier: Apache-2.0 */
/* Running a kernel in its scratch memory, and Python's view of that and of the pool. */
#define _GNU_SOURCE
#include "native.h"
#include "system.h"

/* ---- scratch memory and launch */

/* Makes a part hold `bytes`, with a quarter to spare so that slowly growing sizes settle. The old
 * content is lost. From 4 MiB on, huge pages are asked for. False: out of memory. */
static bool reserve(void **memory, int64_t *capacity, int64_t bytes) {
    if (*capacity >= bytes)
        return true;
    size_t wanted = (size_t)bytes + (size_t)bytes / 4, unit = wanted >= 4 << 20 ? 2 << 20 : 64;
    size_t size = (wanted + unit - 1) / unit * unit;
    free(*memory);
    *memory = aligned_alloc(unit, size);
    *capacity = *memory ? (int64_t)size : 0;
    if (*memory && unit > 64)
        ask_for_huge_pages(*memory, size);
    return *memory != NULL;
}

/* The fields of `CONTEXT_FIELDS` (tcsym/ir/compiled.py). */
typedef struct {
    void (*parallel_for)(Pool *, Task *, void *, int64_t, int64_t);
    Pool *pool;
    int64_t threads;
    void *shared, *private;
    int64_t private_bytes;
    int32_t *fault; /* of regions of a device; a processor's leave it alone */
} Context;

/* Calls a kernel with scratch memory from the arena. `private_bytes` is a multiple of 64. */
int32_t tcsym_launch(Kernel *kernel, void *const *buffers, const int64_t *sizes, Arena *arena,
                     int64_t shared_bytes, int64_t private_bytes, int64_t threads, Pool *pool) {
    int32_t fault = 0;
    Context context = {tcsym_parallel_for, pool, threads, NULL, NULL, private_bytes, &fault};
    if (!shared_bytes && !private_bytes) {
        int32_t result = kernel(buffers, sizes, &context);
        return result ? result : fault;
    }
    if (!tcsym_claim(&arena->busy))
        return ARENA_BUSY;
    int32_t result = OUT_OF_MEMORY;
    if (reserve(&arena->shared.memory, &arena->shared.capacity, shared_bytes) &&
        reserve(&arena->private.memory, &arena->private.capacity, private_bytes * threads)) {
        context.shared = arena->shared.memory;
        context.private = arena->private.memory;
        result = kernel(buffers, sizes, &context);
    }
    tcsym_release(&arena->busy);
    return result ? result : fault;
}

/* Stands for a task whose code is not made yet: the kernel's result is CODE_MISSING. The data's first
 * word is where that is noted (tcsym/codegen/cpu/launch.py). */
void tcsym_missing_task(void *data, void *arena, int64_t lower, int64_t upper) {
    /* Relaxed: many tasks may say the same, and the join hands it over. */
    atomic_store_explicit(*(_Atomic int32_t **)data, CODE_MISSING, memory_order_relaxed);
}

/* launch(kernel, buffers, sizes, arena, shared_bytes, private_bytes, threads, pool) -> int */
PyObject *tcsym_launch_kernel(PyObject *module, PyObject *args) {
    PyObject *kernel, *buffers, *sizes, *arena, *pool;
    long long shared_bytes, private_bytes, threads;
    if (!PyArg_ParseTuple(args, "O!SSO!LLLO!:launch", &PyLong_Type, &kernel, &buffers, &sizes,
                          &tcsym_Arena, &arena, &shared_bytes, &private_bytes, &threads, &tcsym_Pool,
                          &pool))
        return NULL;
    Kernel *code = (Kernel *)PyLong_AsVoidPtr(kernel);
    void *const *pointers = (void *const *)PyBytes_AS_STRING(buffers);
    const int64_t *values = (const int64_t *)PyBytes_AS_STRING(sizes);
    int32_t result;
    Py_BEGIN_ALLOW_THREADS
    result = tcsym_launch(code, pointers, values, (Arena *)arena, shared_bytes, private_bytes,
                          threads, ((PoolObject *)pool)->pool);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(result);
}

/* ---- Python's view of both */

static void arena_dealloc(PyObject *self) {
    Arena *arena = (Arena *)self;
    free(arena->shared.memory);
    free(arena->private.memory);
    Py_TYPE(self)->tp_free(self);
}

/* hold(shared_bytes, private_bytes): exactly so many, whatever it held before. The caller knows that
 * no kernel runs in it. */
static PyObject *arena_hold(PyObject *self, PyObject *args) {
    Arena *arena = (Arena *)self;
    long long wanted[2];
    if (!PyArg_ParseTuple(args, "LL:hold", wanted, wanted + 1))
        return NULL;
    for (int k = 0; k < 2; k++) {
        void **memory = k ? &arena->private.memory : &arena->shared.memory;
        int64_t *capacity = k ? &arena->private.capacity : &arena->shared.capacity;
        if (*capacity == wanted[k])
            continue;
        free(*memory);
        *capacity = 0;
        *memory = wanted[k] ? aligned_alloc(64, (size_t)(wanted[k] + 63) / 64 * 64) : NULL;
        if (wanted[k] && !*memory)
            return PyErr_NoMemory();
        *capacity = wanted[k];
    }
    Py_RETURN_NONE;
}

static PyMethodDef arena_methods[] = {
    {"hold", arena_hold, METH_VARARGS, "hold(shared_bytes, private_bytes): just as much."},
    {NULL},
};

static PyMemberDef arena_members[] = {
    {"shared_bytes", T_LONGLONG, offsetof(Arena, shared.capacity), READONLY, "Memory it holds."},
    {"private_bytes", T_LONGLONG, offsetof(Arena, private.capacity), READONLY, "Memory it holds."},
    {NULL},
};

PyTypeObject tcsym_Arena = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tcsym.runtime._native.Arena",
    .tp_doc = "Scratch memory of one running kernel, which only grows.",
    .tp_basicsize = sizeof(Arena),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = arena_dealloc,
    .tp_methods = arena_methods,
    .tp_members = arena_members,
};

static PyObject *pool_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PoolObject *self = (PoolObject *)type->tp_alloc(type, 0);
    if (self && !(self->pool = tcsym_new_pool())) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static PyObject *pool_stop(PyObject *self, PyObject *nothing) {
    Py_BEGIN_ALLOW_THREADS
    tcsym_stop_pool(((PoolObject *)self)->pool);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *pool_forget(PyObject *self, PyObject *nothing) {
    tcsym_forget_pool(((PoolObject *)self)->pool);
    Py_RETURN_NONE;
}

static PyObject *pool_wipe_on_fork(PyObject *self, PyObject *nothing) {
    return PyBool_FromLong(tcsym_wipe_on_fork(((PoolObject *)self)->pool));
}

static PyObject *pool_be_patient(PyObject *self, PyObject *patient) {
    tcsym_set_patient(((PoolObject *)self)->pool, patient == Py_True);
    Py_RETURN_NONE;
}

static PyObject *pool_use_openmp(PyObject *self, PyObject *args) {
    unsigned long long parallel, thread, threads;
    long long spin;
    if (!PyArg_ParseTuple(args, "KKKL:use_openmp", &parallel, &thread, &threads, &spin))
        return NULL;
    tcsym_use_openmp(((PoolObject *)self)->pool, (GompParallel *)(uintptr_t)parallel,
                     (GompNumber *)(uintptr_t)thread, (GompNumber *)(uintptr_t)threads, spin);
    Py_RETURN_NONE;
}

static PyObject *pool_workers(PyObject *self, void *closure) {
    return PyLong_FromLong(tcsym_workers(((PoolObject *)self)->pool));
}

static PyObject *pool_address(PyObject *self, void *closure) {
    return PyLong_FromVoidPtr(((PoolObject *)self)->pool);
}

static PyMethodDef pool_methods[] = {
    {"stop", pool_stop, METH_NOARGS, "Ends own threads, unless they are running tasks."},
    {"forget", pool_forget, METH_NOARGS, "For the child of a fork: the pool is fresh."},
    {"wipe_on_fork", pool_wipe_on_fork, METH_NOARGS,
     "Has children of forks find a fresh pool. False where the system cannot (Linux before 4.14)."},
    {"be_patient", pool_be_patient, METH_O, "Whether threads wait without spinning."},
    {"use_openmp", pool_use_openmp, METH_VARARGS,
     "use_openmp(GOMP_parallel, omp_get_thread_num, omp_get_num_threads, cycles of spinning)"},
    {NULL},
};

static PyGetSetDef pool_getters[] = {
    {"workers", pool_workers, NULL, "Own threads started so far."},
    {"address", pool_address, NULL, "The first argument of `parallel_for`."},
    {NULL},
};

PyTypeObject tcsym_Pool = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tcsym.runtime._native.Pool",
    .tp_doc = "Threads that run the tasks of `parallel_for`.",
    .tp_basicsize = sizeof(PoolObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = pool_new,
    .tp_methods = pool_methods,
    .tp_getset = pool_getters,
};
