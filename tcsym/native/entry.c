/* SPDX-License-Identifier: Apache-2.0 */
/* Entry: a callable that checks the arguments of one kernel, makes its results and runs it.
 * It takes the straight way only: arrays of one library, of the exact types and of the layouts that
 * the code is for; sizes that agree; every precondition true; results that can be allocated, or
 * arrays given for them, or updated, that overlap nothing. Anything else, at any point before the
 * kernel runs, undoes what was done and calls `slow` with the same arguments: another entry, in the
 * end the Python function that serves every call and says what is wrong. What a check in the kernel
 * found `failed` raises: the kernel has run, and may have updated arrays. */
#include "native.h"
#include "dlpack.h"

static const double LARGE_WORK = 32768.0; /* product of sizes from which on the GIL is released */
enum { MOST_THREADS = 4096 };
static const int64_t MOST_SHARED = INT64_C(1) << 46, MOST_PRIVATE = INT64_C(1) << 40;
enum { PRIVATE_UNIT = 128 }; /* tasks' private parts lie on different pairs of cache lines */

/* Made from the words that tcsym/runtime/entering.py writes. */
typedef struct {
    int64_t n_inputs; /* and sizes that are parameters */
    int64_t n_inouts, n_outputs, n_sizes, n_values, exact, n_free, n_buffers, n_arguments, n_steps;
    int64_t shared, private; /* values: bytes of scratch memory */
    const int64_t *initial;  /* of the values */
    Wanted *arrays;
    const int64_t *inouts;    /* numbers of inputs that are updated */
    const int64_t *free;      /* values that no array tells, see `tcsym_read_sizes` */
    const int64_t *buffers;   /* the kernel's: numbers of arrays */
    const int64_t *arguments; /* the kernel's sizes: (-1, value) or (array, axis of its stride) */
    const Step *steps;
} Plan;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *slow, *failed, *names, *free_names, *types, *results, *kept, *arena, *pool, *words, *weak;
    PyObject *grids; /* of a device, owned by `arena`; null: the kernel runs here */
    int64_t cores, *served;
    const int64_t *threads; /* most threads of a call; 0: not decided yet */
    Kernel *kernel;
    Plan plan;
} Entry;

/* ---- one call */

typedef struct {
    Library library;
    int64_t threads;
    void *stream; /* of a device */
    PyObject *like; /* the first array that describes itself */
    int64_t numbers[MOST_ARRAYS]; /* elements of arguments that are numbers */
    Array outputs[MOST_ARRAYS];
    PyObject *made[MOST_ARRAYS]; /* owned */
    Room rooms[MOST_ARRAYS];
} Run;

static int device_of(const Entry *entry) {
    return entry->grids ? tcsym_device_of(entry->grids) : ON_HOST;
}

/* The kernel reads the array's memory. */
static bool is_there(const Entry *entry, const Array *array) {
    return entry->grids ? array->place == DLPACK_CUDA && array->device == device_of(entry)
                        : array->place == DLPACK_CPU;
}

/* What describes itself is of one type and on one stream; Python puts others in an order. */
static bool is_alike(const Array *array, PyObject *object, Run *run, bool *has_stream) {
    if (array->library != DESCRIBED)
        return true;
    if (!run->like)
        run->like = object;
    if (!*has_stream && array->has_stream)
        run->stream = array->stream;
    *has_stream |= array->has_stream;
    return Py_IS_TYPE(object, Py_TYPE(run->like)) &&
           (!array->has_stream || array->stream == run->stream);
}

static bool read_inputs(const Entry *entry, const Call *call, Run *run, int64_t *values) {
    bool has_stream = false;
    run->library = OTHER;
    run->like = NULL;
    run->stream = NULL;
    for (int64_t k = 0; k < entry->plan.n_inputs; k++) {
        const Wanted *wanted = entry->plan.arrays + k;
        const Array *array = call->arrays + k;
        if (wanted->rank < 0) {
            int64_t value;
            if (call->given[k] && !wanted->binds[0] &&
                (!tcsym_size(call->given[k], &value) || value != values[wanted->axes[0]]))
                return false;
            continue;
        }
        if (!call->given[k])
            return false;
        if (array->library == OTHER) {
            if (wanted->rank || !tcsym_element(call->given[k], wanted, run->numbers + k))
                return false;
            continue;
        }
        if (run->library == OTHER)
            run->library = array->library;
        if (run->library != array->library || !is_there(entry, array) || !tcsym_fits(array, wanted) ||
            !is_alike(array, call->given[k], run, &has_stream))
            return false;
        for (int64_t d = 0; d < wanted->rank; d++) {
            int64_t *value = values + wanted->axes[d];
            if (wanted->binds[d] ? array->extents[d] >= SIZE_BOUND : array->extents[d] != *value)
                return false;
            *value = array->extents[d];
        }
    }
    if (entry->grids && run->library == OTHER)
        return false; /* nothing says where */
    if (entry->grids)
        return !tcsym_has_faults(entry->grids) &&
               (run->library == DESCRIBED ||
                (run->library == EXCHANGED && tcsym_current_stream(device_of(entry), &run->stream)));
    if (run->library == OTHER)
        run->library = NUMPY;
    return true;
}

/* The inputs that are updated may be, and share no memory with other inputs. */
static bool may_update(const Entry *entry, const Call *call, const Run *run) {
    const Plan *plan = &entry->plan;
    for (int64_t k = 0; k < plan->n_inouts; k++) {
        int64_t at = plan->inouts[k];
        const Array *array = call->arrays + at;
        if (array->library == OTHER || !array->writable ||
            !tcsym_is_apart(array, call->arrays, (int)at, plan->arrays[at].bytes) ||
            !tcsym_is_apart(array, array + 1, (int)(plan->n_inputs - at - 1), plan->arrays[at].bytes))
            return false;
    }
    for (int64_t k = 0; k < plan->n_inouts; k++)
        if (!tcsym_note_written(call->given[plan->inouts[k]], run->library))
            return false;
    return true;
}

static bool choose_threads(const Entry *entry, const Call *call, Run *run) {
    PyObject *given = call->given[entry->plan.n_inputs + THREADS];
    run->threads = *entry->threads;
    if (given && !tcsym_integer(given, 1, MOST_THREADS, &run->threads))
        return false;
    return run->threads > 0;
}

static bool take_given(const Entry *entry, const Call *call, Run *run, PyObject *given,
                       const int64_t *values) {
    const Plan *plan = &entry->plan;
    Array others[2 * MOST_ARRAYS];
    memcpy(others, call->arrays, plan->n_inputs * sizeof *others);
    if (plan->n_outputs != 1 &&
        (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != plan->n_outputs))
        return false;
    for (int64_t k = 0; k < plan->n_outputs; k++) {
        const Wanted *wanted = plan->arrays + plan->n_inputs + k;
        PyObject *object = plan->n_outputs > 1 ? PyTuple_GET_ITEM(given, k) : given;
        Array *array = run->outputs + k;
        bool has_stream = true;
        tcsym_read_array(object, array, run->rooms[k], NULL);
        if (array->library != run->library || !is_there(entry, array) || !array->writable ||
            !tcsym_fits(array, wanted) || !is_alike(array, object, run, &has_stream))
            return false;
        for (int64_t d = 0; d < wanted->rank; d++)
            if (array->extents[d] != values[wanted->axes[d]])
                return false;
        if (!tcsym_is_apart(array, others, (int)(plan->n_inputs + k), wanted->bytes))
            return false;
        others[plan->n_inputs + k] = *array;
        run->made[k] = Py_NewRef(object);
    }
    for (int64_t k = 0; k < plan->n_outputs; k++)
        if (!tcsym_note_written(run->made[k], run->library))
            return false;
    return true;
}

static bool make_outputs(const Entry *entry, Run *run, const int64_t *values) {
    const Plan *plan = &entry->plan;
    for (int64_t k = 0; k < plan->n_outputs; k++) {
        const Wanted *wanted = plan->arrays + plan->n_inputs + k;
        int64_t extents[NPY_MAXDIMS];
        if (wanted->layout != DENSE && (wanted->exact || entry->grids))
            return false; /* new memory is dense; a device's library does not tell its strides */
        for (int64_t d = 0; d < wanted->rank; d++) {
            extents[d] = values[wanted->axes[d]];
            if (extents[d] < 0)
                return false;
        }
        Array *output = run->outputs + k;
        run->made[k] =
            run->library == DESCRIBED
                ? tcsym_new_described(run->like, device_of(entry), run->stream, wanted, extents, output)
                : tcsym_new_array(run->library, device_of(entry), wanted, extents, output);
        if (!run->made[k])
            return false;
    }
    return true;
}

static bool run_kernel(const Entry *entry, const Call *call, Run *run, const int64_t *values) {
    const Plan *plan = &entry->plan;
    void *buffers[2 * MOST_ARRAYS];
    int64_t arguments[plan->n_arguments + 1];
    int64_t shared = values[plan->shared], private = values[plan->private];
    if (shared > MOST_SHARED || private > MOST_PRIVATE)
        return false;
    shared = shared > 0 ? shared : 0;
    private = private > 0 ? (private + PRIVATE_UNIT - 1) / PRIVATE_UNIT * PRIVATE_UNIT : 0;
    for (int64_t k = 0; k < plan->n_buffers; k++) {
        int64_t place = plan->buffers[k], output = place - plan->n_inputs;
        buffers[k] = output >= 0                           ? run->outputs[output].data
                     : call->arrays[place].library != OTHER ? call->arrays[place].data
                                                            : (void *)(run->numbers + place);
    }
    for (int64_t k = 0; k < plan->n_arguments; k++) {
        int64_t place = plan->arguments[2 * k], at = plan->arguments[2 * k + 1];
        const Array *array = place < plan->n_inputs ? call->arrays + place
                                                    : run->outputs + (place - plan->n_inputs);
        arguments[k] =
            place < 0 ? values[at] : array->strides[at] / (plan->arrays[place].bytes / array->unit);
    }
    if (entry->grids) {
        Number numbers[MOST_ARRAYS];
        int64_t n = 0;
        for (int64_t k = 0; k < plan->n_buffers; k++) {
            int64_t place = plan->buffers[k];
            if (place < plan->n_inputs && call->arrays[place].library == OTHER)
                numbers[n++] = (Number){run->numbers[place], plan->arrays[place].bytes, k};
        }
        return !tcsym_enqueue(entry->grids, entry->kernel, buffers, arguments, shared, run->stream,
                              numbers, n);
    }
    double work = 1.0;
    for (int64_t k = 0; k < plan->n_sizes; k++)
        work *= (double)values[k];
    Pool *pool = ((PoolObject *)entry->pool)->pool;
    Arena *arena = (Arena *)entry->arena;
    tcsym_set_patient(pool, run->threads > entry->cores);
    PyThreadState *state = work >= LARGE_WORK ? PyEval_SaveThread() : NULL;
    int32_t code = tcsym_launch(entry->kernel, buffers, arguments, arena, shared, private,
                                run->threads, pool);
    if (state)
        PyEval_RestoreThread(state);
    if (code > 0)
        Py_XDECREF(PyObject_CallFunction(entry->failed, "i", (int)code));
    return code == 0;
}

/* What the caller gets; null, and an error only of a check in the kernel, if it gets nothing. */
static PyObject *serve(Entry *entry, const Call *call, Run *run) {
    const Plan *plan = &entry->plan;
    int64_t values[plan->n_values];
    memcpy(values, plan->initial, sizeof values);
    PyObject *given = call->given[plan->n_inputs + OUT];
    if (!tcsym_read_sizes(call, entry->free_names, plan->free, true, values) ||
        !read_inputs(entry, call, run, values) ||
        !tcsym_evaluate(plan->steps, plan->n_steps, values) || !choose_threads(entry, call, run))
        return NULL;
    if (!may_update(entry, call, run) ||
        !(given ? take_given(entry, call, run, given, values) : make_outputs(entry, run, values)) ||
        !run_kernel(entry, call, run, values))
        return NULL;
    if (plan->n_outputs == 0)
        return Py_NewRef(Py_None);
    if (plan->n_outputs == 1)
        return Py_NewRef(run->made[0]);
    PyTypeObject *type = (PyTypeObject *)entry->results; /* a named tuple */
    PyObject *all = type->tp_alloc(type, plan->n_outputs);
    for (int64_t k = 0; all && k < plan->n_outputs; k++)
        PyTuple_SET_ITEM(all, k, Py_NewRef(run->made[k]));
    PyErr_Clear();
    return all;
}

static PyObject *enter(Entry *entry, Call *call) {
    if (tcsym_read_call(call, entry->names)) {
        Run run;
        memset(run.made, 0, entry->plan.n_outputs * sizeof *run.made);
        PyObject *result = serve(entry, call, &run);
        for (int64_t k = 0; k < entry->plan.n_outputs; k++)
            Py_XDECREF(run.made[k]);
        if (result || PyErr_Occurred()) { /* a fault that the kernel found: it ran */
            ++*entry->served;
            return result;
        }
    }
    return tcsym_pass_on(entry->slow, call);
}

PyObject *tcsym_pass_on(PyObject *function, Call *call) {
    Py_INCREF(function); /* somebody may replace it meanwhile */
    PyObject *result = Py_IS_TYPE(function, &tcsym_Entry)
                           ? enter((Entry *)function, call)
                           : PyObject_Vectorcall(function, call->args, call->n_args, call->keywords);
    Py_DECREF(function);
    return result;
}

static PyObject *entry_vectorcall(PyObject *self, PyObject *const *args, size_t n_args,
                                  PyObject *keywords) {
    Call call;
    call.args = args;
    call.n_args = PyVectorcall_NARGS(n_args);
    call.keywords = keywords;
    call.names = call.held = NULL;
    PyObject *result = enter((Entry *)self, &call);
    Py_XDECREF(call.held);
    return result;
}

/* ---- making entries */

static bool read_wanted(Wanted *wanted, Words *words) {
    const int64_t *facts = tcsym_take(words, 7);
    if (!facts)
        return false;
    wanted->rank = facts[0];
    wanted->layout = facts[1];
    wanted->bytes = facts[2];
    wanted->code = (uint32_t)facts[3];
    wanted->kind = facts[4];
    wanted->low = facts[5];
    wanted->high = facts[6];
    int64_t n_values = wanted->rank < 0 ? 1 : wanted->rank;
    wanted->axes = tcsym_take(words, n_values);
    wanted->binds = wanted->axes ? tcsym_take(words, n_values) : NULL;
    return wanted->binds && wanted->rank <= NPY_MAXDIMS;
}

static bool read_plan(Entry *entry) {
    Plan *plan = &entry->plan;
    Words words = tcsym_words(entry->words);
    const int64_t *counts = tcsym_take(&words, offsetof(Plan, initial) / sizeof *counts);
    if (!counts)
        return false;
    memcpy(plan, counts, offsetof(Plan, initial));
    int64_t n_arrays = plan->n_inputs + plan->n_outputs;
    if (n_arrays != PyTuple_GET_SIZE(entry->types) || n_arrays < 1 ||
        plan->n_inputs != PyTuple_GET_SIZE(entry->names) - N_OPTIONS ||
        plan->n_free != PyTuple_GET_SIZE(entry->free_names)) {
        PyErr_SetString(PyExc_ValueError, "the words are of other arguments");
        return false;
    }
    plan->arrays = PyMem_Calloc(n_arrays, sizeof(Wanted));
    if (!plan->arrays) {
        PyErr_NoMemory();
        return false;
    }
    plan->initial = tcsym_take(&words, plan->n_values);
    for (int64_t k = 0; plan->initial && k < n_arrays; k++) {
        plan->arrays[k].type = (PyArray_Descr *)PyTuple_GET_ITEM(entry->types, k);
        plan->arrays[k].exact = plan->exact;
        if (!read_wanted(plan->arrays + k, &words))
            return false;
    }
    return plan->initial && (plan->inouts = tcsym_take(&words, plan->n_inouts)) &&
           (plan->free = tcsym_take(&words, 2 * plan->n_free)) &&
           (plan->buffers = tcsym_take(&words, plan->n_buffers)) &&
           (plan->arguments = tcsym_take(&words, 2 * plan->n_arguments)) &&
           (plan->steps = (const Step *)tcsym_take(&words, 5 * plan->n_steps));
}

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *words, *names, *free_names, *types, *results, *kernel, *threads, *served, *arena, *pool,
        *kept, *slow, *failed;
    long long cores;
    if (!PyArg_ParseTuple(args, "SO!O!O!OO!O!O!OO!LOOO:Entry", &words, &PyTuple_Type, &names,
                          &PyTuple_Type, &free_names, &PyTuple_Type, &types, &results, &PyLong_Type,
                          &kernel, &PyLong_Type, &threads, &PyLong_Type, &served, &arena,
                          &tcsym_Pool, &pool, &cores, &kept, &slow, &failed))
        return NULL;
    if (!Py_IS_TYPE(arena, &tcsym_Arena) && !Py_IS_TYPE(arena, &tcsym_Grids)) {
        PyErr_SetString(PyExc_TypeError, "an Arena or Grids");
        return NULL;
    }
    Entry *entry = (Entry *)type->tp_alloc(type, 0);
    if (!entry)
        return NULL;
    entry->vectorcall = entry_vectorcall;
    entry->grids = Py_IS_TYPE(arena, &tcsym_Grids) ? arena : NULL;
    entry->cores = cores;
    entry->kernel = (Kernel *)PyLong_AsVoidPtr(kernel);
    entry->threads = PyLong_AsVoidPtr(threads);
    entry->served = PyLong_AsVoidPtr(served);
    entry->words = Py_NewRef(words);
    entry->names = Py_NewRef(names);
    entry->free_names = Py_NewRef(free_names);
    entry->types = Py_NewRef(types);
    entry->results = Py_NewRef(results);
    entry->arena = Py_NewRef(arena);
    entry->pool = Py_NewRef(pool);
    entry->kept = Py_NewRef(kept);
    entry->slow = Py_NewRef(slow);
    entry->failed = Py_NewRef(failed);
    if (!read_plan(entry))
        Py_CLEAR(entry);
    return (PyObject *)entry;
}

static int entry_traverse(PyObject *self, visitproc visit, void *arg) {
    Entry *entry = (Entry *)self;
    Py_VISIT(entry->slow);
    Py_VISIT(entry->failed);
    Py_VISIT(entry->kept);
    Py_VISIT(entry->results);
    return 0;
}

static int entry_clear(PyObject *self) {
    Entry *entry = (Entry *)self;
    PyObject *none = entry->slow ? Py_NewRef(Py_None) : NULL; /* a call finds something to call */
    Py_XSETREF(entry->slow, none);
    return 0;
}

static void entry_dealloc(PyObject *self) {
    Entry *entry = (Entry *)self;
    PyObject *owned[] = {entry->slow,  entry->failed,  entry->names, entry->free_names, entry->types,
                         entry->results, entry->kept, entry->arena, entry->pool,       entry->words};
    PyObject_GC_UnTrack(self);
    if (entry->weak)
        PyObject_ClearWeakRefs(self);
    for (size_t k = 0; k < sizeof owned / sizeof *owned; k++)
        Py_XDECREF(owned[k]);
    PyMem_Free(entry->plan.arrays);
    Py_TYPE(self)->tp_free(self);
}

static PyMemberDef entry_members[] = {
    {"kept", T_OBJECT_EX, offsetof(Entry, kept), READONLY, "What lives as long as the entry."},
    {"slow", T_OBJECT_EX, offsetof(Entry, slow), 0, "What serves all other calls."},
    {NULL},
};

PyTypeObject tcsym_Entry = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tcsym.runtime._native.Entry",
    .tp_doc = "What calls of a kernel enter: serves some, passes the others to `slow`.",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Entry, vectorcall),
    .tp_weaklistoffset = offsetof(Entry, weak),
    .tp_call = PyVectorcall_Call,
    .tp_new = entry_new,
    .tp_traverse = entry_traverse,
    .tp_clear = entry_clear,
    .tp_dealloc = entry_dealloc,
    .tp_members = entry_members,
};
