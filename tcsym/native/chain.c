/* SPDX-License-Identifier: Apache-2.0 */
/* Chain: the kernels of a program one after the other, for arguments of fixed layouts and sizes, in
 * memory that was made before. A call checks that its arguments are such, runs the kernels, copies
 * what is kept for the next call, and gives back the same results as always. Other arguments are
 * passed on to `slow`, as are calls while another one is in that memory.
 * On a device the kernels are enqueued on the stream of the call before, in order: calls of others are
 * passed on, too.
 * Kernels of a group do not need each other, and may run at once. */
#include "native.h"
#include "dlpack.h"

enum { MOST_THREADS = 4096 };
/* What a session on a device says meanwhile: addresses of scratch memory and of memory for numbers,
 * and the stream. */
typedef struct {
    int64_t scratch, numbers, stream;
} Cells;

/* What an input must be: as `Wanted`, and of just these extents and steps. `low`, `high`: where its
 * memory lies, seen from its first element. `is_updated`: the call writes it. */
typedef struct {
    Wanted wanted;
    bool is_updated;
    const int64_t *extents, *strides; /* in bytes */
    int64_t low, high;
} Input;

/* A kernel. `buffers`: for each an input, or -1, and else an address. */
typedef struct {
    Kernel *kernel;
    int64_t n_buffers, n_values, shared, private;
    const int64_t *buffers, *values;
} Link;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *slow, *failed, *names, *types, *results, *lock, *pool, *words, *kept;
    PyObject *arenas;     /* on a device: the grids of each link */
    const Cells *cells;   /* null: the kernels run here */
    PyObject *like;       /* a type: of the arrays that describe themselves */
    const int64_t *threads; /* in force; 0: not decided yet */
    int64_t n_inputs, n_links, n_groups, n_copies, n_constants, library, low, high, is_long, made_for;
    int64_t cores;
    Input *inputs;
    Link *links;
    const int64_t *groups, *copies, *constants; /* (first, count, tasks, work); (to, from, bytes);
                                                  * from the first byte to behind the last */
} Chain;

/* ---- running */

typedef struct {
    const Chain *chain;
    void *const *given;
    const int64_t *group;
    int64_t threads;
    _Atomic int64_t code;
    int64_t at; /* of the first failure */
} Run;

/* Relaxed: a task asks in order to stop early, and the join hands over what tasks wrote. */
static int64_t failure(const Run *run) {
    return atomic_load_explicit(&run->code, memory_order_relaxed);
}

/* What came of a kernel: `at` is written by the first that fails. */
static void note(Run *run, int64_t at, int64_t code) {
    int64_t none = 0;
    if (code && atomic_compare_exchange_strong_explicit(&run->code, &none, code,
                                                        memory_order_relaxed, memory_order_relaxed))
        run->at = at;
}

static int64_t launch(const Chain *c, int64_t k, Arena *arena, void *const *given, int64_t threads) {
    const Link *link = c->links + k;
    void *buffers[link->n_buffers + 1];
    for (int64_t b = 0; b < link->n_buffers; b++) {
        int64_t input = link->buffers[2 * b];
        buffers[b] = input >= 0 ? given[input] : (void *)link->buffers[2 * b + 1];
    }
    if (c->cells)
        return tcsym_enqueue_in(PyTuple_GET_ITEM(c->arenas, k), link->kernel, buffers, link->values,
                                (uint64_t)c->cells->scratch, (void *)c->cells->stream);
    return tcsym_launch(link->kernel, buffers, link->values, arena, link->shared, link->private,
                        threads, ((PoolObject *)c->pool)->pool);
}

static Arena *arena_of(const Chain *c, int64_t k) {
    return c->cells ? NULL : (Arena *)PyTuple_GET_ITEM(c->arenas, k);
}

static PyObject *grids_of(const Chain *c) { return PyTuple_GET_ITEM(c->arenas, 0); }

/* Tasks share the kernels of a group in turn; each is on a thread of its own, so the kernels begin no
 * more of them. */
static void run_some(void *data, int64_t task, int64_t n_tasks) {
    Run *run = data;
    for (int64_t k = task; k < run->group[1]; k += n_tasks) {
        int64_t at = run->group[0] + k;
        note(run, at, launch(run->chain, at, arena_of(run->chain, k), run->given, 1));
    }
}

static void run_all(Run *run) {
    const Chain *c = run->chain;
    Pool *pool = ((PoolObject *)c->pool)->pool;
    tcsym_set_patient(pool, run->threads > c->cores);
    for (int64_t g = 0; g < c->n_groups && !failure(run); g++) {
        run->group = c->groups + 4 * g;
        int64_t tasks = run->group[2] < run->threads ? run->group[2] : run->threads;
        if (tasks > 1) {
            tcsym_parallel_for(pool, run_some, run, tasks, run->group[3]);
            continue;
        }
        for (int64_t k = 0; k < run->group[1] && !failure(run); k++) {
            int64_t at = run->group[0] + k;
            note(run, at, launch(c, at, arena_of(c, 0), run->given, run->threads));
        }
    }
    for (int64_t k = 0; k < c->n_copies && !failure(run); k++) {
        const int64_t *copy = c->copies + 3 * k;
        if (c->cells)
            note(run, c->n_links - 1,
                 tcsym_copy_on_device(grids_of(c), copy, (void *)c->cells->stream));
        else
            memcpy((void *)copy[0], (void *)copy[1], (size_t)copy[2]);
    }
}

/* The results; null, and an error set, if a kernel failed. */
static PyObject *ran(Chain *c, void *const *given, int64_t threads) {
    Run run = {.chain = c, .given = given, .threads = threads};
    PyThreadState *state = c->is_long ? PyEval_SaveThread() : NULL;
    run_all(&run);
    if (state)
        PyEval_RestoreThread(state);
    int64_t code = failure(&run);
    if (!code)
        return Py_NewRef(c->results);
    PyObject *nothing =
        PyObject_CallFunction(c->failed, "LL", (long long)run.at, (long long)code);
    if (nothing)
        PyErr_SetString(PyExc_RuntimeError, "a kernel failed");
    Py_XDECREF(nothing);
    return NULL;
}

/* ---- calls */

static bool same(const int64_t *a, const int64_t *b, int64_t n, int64_t unit) {
    for (int64_t k = 0; k < n; k++)
        if (a[k] * unit != b[k])
            return false;
    return true;
}

/* Its memory is read there, on the stream. */
static bool is_there(const Chain *c, const Array *array, PyObject *object) {
    void *stream = array->stream;
    if (!c->cells)
        return array->place == DLPACK_CPU;
    if (array->place != DLPACK_CUDA || array->device != tcsym_device_of(grids_of(c)))
        return false;
    if (array->library == EXCHANGED ? !tcsym_current_stream(array->device, &stream)
                                    : (PyObject *)Py_TYPE(object) != c->like)
        return false;
    return stream == (void *)c->cells->stream || (array->library == DESCRIBED && !array->has_stream);
}

static bool is_wanted(const Chain *c, const Input *input, const Array *array, PyObject *object) {
    const Wanted *wanted = &input->wanted;
    intptr_t at = (intptr_t)array->data;
    return array->library == (Library)c->library && is_there(c, array, object) && tcsym_fits(array, wanted) &&
           same(array->extents, input->extents, wanted->rank, 1) &&
           (wanted->layout == DENSE || same(array->strides, input->strides, wanted->rank, array->unit)) &&
           (at + input->low >= c->high || at + input->high <= c->low);
}

/* The inputs that are updated may be, and share no memory with what else the call reads. */
static bool may_update(const Chain *c, const Call *call) {
    for (int64_t k = 0; k < c->n_inputs; k++) {
        const Input *input = c->inputs + k;
        const Array *array = call->arrays + k;
        if (!input->is_updated)
            continue;
        if (array->library == OTHER || !array->writable ||
            !tcsym_is_apart(array, call->arrays, (int)k, input->wanted.bytes) ||
            !tcsym_is_apart(array, array + 1, (int)(c->n_inputs - k - 1), input->wanted.bytes))
            return false;
        intptr_t at = (intptr_t)array->data;
        for (const int64_t *x = c->constants; x < c->constants + 2 * c->n_constants; x += 2)
            if (at + input->low < x[1] && at + input->high > x[0])
                return false;
    }
    for (int64_t k = 0; k < c->n_inputs; k++)
        if (c->inputs[k].is_updated && !tcsym_note_written(call->given[k], (Library)c->library))
            return false;
    return true;
}

/* The results; null if the chain does not serve the call, or, with an error set, if it failed. */
static PyObject *served(Chain *c, Call *call) {
    void *given[MOST_ARRAYS];
    int64_t numbers[MOST_ARRAYS], threads = *c->threads, n_written = 0;
    Number written[MOST_ARRAYS];
    PyObject *const *options = call->given + c->n_inputs;
    if (options[OUT] || options[SIZES] || !threads)
        return NULL;
    if (options[THREADS] && !tcsym_integer(options[THREADS], 1, MOST_THREADS, &threads))
        return NULL;
    if (threads != c->made_for) /* which scratch memory depends on, and what runs at once */
        return NULL;
    for (int64_t k = 0; k < c->n_inputs; k++) {
        const Input *input = c->inputs + k;
        const Array *array = call->arrays + k;
        if (array->library == OTHER) {
            if (input->wanted.rank || !tcsym_element(call->given[k], &input->wanted, numbers + k))
                return NULL;
            given[k] = numbers + k;
            written[n_written++] = (Number){numbers[k], input->wanted.bytes, k};
            continue;
        }
        if (!is_wanted(c, input, array, call->given[k]))
            return NULL;
        given[k] = array->data;
    }
    if (!may_update(c, call))
        return NULL;
    if (c->cells && (tcsym_has_faults(grids_of(c)) ||
                     tcsym_write_numbers(grids_of(c), (uint64_t)c->cells->numbers, given, written,
                                         n_written, (void *)c->cells->stream)))
        return NULL;
    return ran(c, given, threads);
}

/* The results of a call while nobody else uses the memory; null, perhaps with an error set. */
static PyObject *alone(Chain *c, Call *call) {
    static PyObject *acquire, *release;
    if (!acquire && !(acquire = PyUnicode_InternFromString("acquire")))
        return NULL;
    if (!release && !(release = PyUnicode_InternFromString("release")))
        return NULL;
    PyObject *result = NULL, *waiting[] = {c->lock, Py_False};
    PyObject *is_free = PyObject_VectorcallMethod(acquire, waiting, 2, NULL);
    if (is_free == Py_True) {
        result = served(c, call);
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        Py_XDECREF(PyObject_VectorcallMethod(release, waiting, 1, NULL));
        PyErr_Restore(type, value, trace);
    }
    Py_XDECREF(is_free);
    return result;
}

static PyObject *chain_vectorcall(PyObject *self, PyObject *const *args, size_t n_args,
                                  PyObject *keywords) {
    Chain *c = (Chain *)self;
    Call call;
    call.args = args;
    call.n_args = PyVectorcall_NARGS(n_args);
    call.keywords = keywords;
    call.names = call.held = NULL;
    PyObject *result = NULL;
    Py_INCREF(self);
    if (tcsym_read_call(&call, c->names))
        result = alone(c, &call);
    if (!result && !PyErr_Occurred())
        result = tcsym_pass_on(c->slow, &call);
    Py_XDECREF(call.held);
    Py_DECREF(self);
    return result;
}

/* run(addresses, threads) -> results. The caller holds the lock. */
static PyObject *chain_run(PyObject *self, PyObject *args) {
    Chain *c = (Chain *)self;
    PyObject *addresses;
    long long threads;
    void *given[MOST_ARRAYS];
    if (!PyArg_ParseTuple(args, "O!L:run", &PyTuple_Type, &addresses, &threads))
        return NULL;
    if (PyTuple_GET_SIZE(addresses) != c->n_inputs) {
        PyErr_SetString(PyExc_ValueError, "the addresses are of other inputs");
        return NULL;
    }
    for (int64_t k = 0; k < c->n_inputs; k++)
        given[k] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(addresses, k));
    return PyErr_Occurred() ? NULL : ran(c, given, threads);
}

/* ---- making one */

static bool read_input(Input *input, PyArray_Descr *type, Words *words) {
    const int64_t *facts = tcsym_take(words, 10);
    if (!facts)
        return false;
    input->wanted = (Wanted){.type = type, .rank = facts[0], .layout = facts[1], .bytes = facts[2],
                             .code = (uint32_t)facts[3], .kind = facts[4], .low = facts[5],
                             .high = facts[6]};
    input->low = facts[7];
    input->high = facts[8];
    input->is_updated = facts[9];
    input->extents = tcsym_take(words, input->wanted.rank);
    input->strides = input->extents ? tcsym_take(words, input->wanted.rank) : NULL;
    return input->strides != NULL;
}

static bool read_link(Link *link, Words *words) {
    const int64_t *facts = tcsym_take(words, 5);
    if (!facts)
        return false;
    *link = (Link){(Kernel *)facts[0], facts[1], facts[2], facts[3], facts[4], NULL, NULL};
    link->buffers = tcsym_take(words, 2 * link->n_buffers);
    link->values = link->buffers ? tcsym_take(words, link->n_values) : NULL;
    return link->values != NULL;
}

static bool read_words(Chain *c) {
    Words words = tcsym_words(c->words);
    const int64_t *counts = tcsym_take(&words, 10);
    if (!counts)
        return false;
    memcpy(&c->n_inputs, counts, 10 * sizeof *counts);
    c->inputs = PyMem_Calloc(c->n_inputs + 1, sizeof *c->inputs);
    c->links = PyMem_Calloc(c->n_links + 1, sizeof *c->links);
    if (!c->inputs || !c->links) {
        PyErr_NoMemory();
        return false;
    }
    if (c->n_inputs > MOST_ARRAYS || c->n_inputs != PyTuple_GET_SIZE(c->types)) {
        PyErr_SetString(PyExc_ValueError, "the words are of other inputs");
        return false;
    }
    bool is_read = true;
    for (int64_t k = 0; is_read && k < c->n_inputs; k++)
        is_read = read_input(c->inputs + k, (PyArray_Descr *)PyTuple_GET_ITEM(c->types, k), &words);
    for (int64_t k = 0; is_read && k < c->n_links; k++)
        is_read = read_link(c->links + k, &words);
    return is_read && (c->groups = tcsym_take(&words, 4 * c->n_groups)) &&
           (c->copies = tcsym_take(&words, 3 * c->n_copies)) &&
           (c->constants = tcsym_take(&words, 2 * c->n_constants));
}

static PyObject *chain_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *words, *names, *types, *results, *threads, *arenas, *pool, *lock, *like, *kept, *failed,
        *slow;
    long long cores;
    unsigned long long cells;
    if (!PyArg_ParseTuple(args, "SO!O!OO!O!O!LOKOOOO:Chain", &words, &PyTuple_Type, &names,
                          &PyTuple_Type, &types, &results, &PyLong_Type, &threads, &PyTuple_Type,
                          &arenas, &tcsym_Pool, &pool, &cores, &lock, &cells, &like, &kept, &failed,
                          &slow))
        return NULL;
    Chain *c = (Chain *)type->tp_alloc(type, 0);
    if (!c)
        return NULL;
    c->vectorcall = chain_vectorcall;
    c->threads = PyLong_AsVoidPtr(threads);
    c->words = Py_NewRef(words);
    c->names = Py_NewRef(names);
    c->types = Py_NewRef(types);
    c->results = Py_NewRef(results);
    c->arenas = Py_NewRef(arenas);
    c->pool = Py_NewRef(pool);
    c->lock = Py_NewRef(lock);
    c->like = Py_NewRef(like);
    c->cells = (const Cells *)(uintptr_t)cells;
    c->kept = Py_NewRef(kept);
    c->failed = Py_NewRef(failed);
    c->slow = Py_NewRef(slow);
    if (!read_words(c))
        Py_CLEAR(c);
    else
        c->cores = cores;
    return (PyObject *)c;
}

static int chain_traverse(PyObject *self, visitproc visit, void *arg) {
    Chain *c = (Chain *)self;
    Py_VISIT(c->slow);
    Py_VISIT(c->failed);
    Py_VISIT(c->kept);
    Py_VISIT(c->results);
    return 0;
}

static int chain_clear(PyObject *self) {
    Chain *c = (Chain *)self;
    PyObject *slow = c->slow, *failed = c->failed;
    c->slow = Py_NewRef(Py_None); /* a call finds something to call */
    c->failed = Py_NewRef(Py_None);
    Py_XDECREF(slow);
    Py_XDECREF(failed);
    return 0;
}

static void chain_dealloc(PyObject *self) {
    Chain *c = (Chain *)self;
    PyObject *owned[] = {c->slow, c->failed, c->names, c->types, c->results, c->like,
                         c->lock, c->arenas, c->pool,  c->words, c->kept};
    PyObject_GC_UnTrack(self);
    for (size_t k = 0; k < sizeof owned / sizeof *owned; k++)
        Py_XDECREF(owned[k]);
    PyMem_Free(c->inputs);
    PyMem_Free(c->links);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef chain_methods[] = {
    {"run", chain_run, METH_VARARGS, "run(addresses, threads): the results; the lock is held."},
    {NULL},
};

PyTypeObject tcsym_Chain = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tcsym.runtime._native.Chain",
    .tp_doc = "What calls of a session enter: runs the kernels of a program in its memory.",
    .tp_basicsize = sizeof(Chain),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Chain, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = chain_new,
    .tp_traverse = chain_traverse,
    .tp_clear = chain_clear,
    .tp_dealloc = chain_dealloc,
    .tp_methods = chain_methods,
};
