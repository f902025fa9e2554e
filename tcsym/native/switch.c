/* SPDX-License-Identifier: Apache-2.0 */
/* Switch: a callable that passes a call on to a function by the sizes of its arguments.
 * A polymorphic inline cache (Hölzle, Chambers, Ungar: Optimizing dynamically-typed object-oriented
 * languages with polymorphic inline caches, ECOOP 1991) whose keys are sizes, hashed to groups of
 * rows. It checks no more than it needs to read the sizes; the functions check everything.
 * Sizes without a function of their own may have one by region: the first whose condition holds.
 * Where calls are tracked, sizes without a row take one. A row that only counts is given up after as
 * many calls of others that hash to it: what is called often stays (the majority vote of Boyer and
 * Moore, by group). */
#include "native.h"

enum { GROUP = 4, LOG_GROUPS = 7, ROWS_ALL = GROUP << LOG_GROUPS };
static const uint64_t MULTIPLIER = UINT64_C(0x9E3779B97F4A7C15); /* 2^64 / golden ratio (Knuth 6.4) */

typedef struct {
    bool used;
    PyObject *function; /* null: calls are counted only */
    int64_t calls, notice_at;
} Row;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *names, *free_names, *standard, *notice, *regions; /* `regions`: a list */
    PyObject *words;
    int64_t first_notice, total, notice_total;
    Row *rows;
    int64_t *keys; /* sizes of the rows */
    /* from the words that tcsym/runtime/switch_image.py writes */
    int64_t n_sizes, n_keys, n_places, n_free, n_values, n_steps, region;
    const int64_t *initial; /* values; the first ones are sizes */
    const int64_t *key_at;  /* sizes that tell calls apart */
    const int64_t *places;  /* (argument, its rank, axis, size) */
    const int64_t *free;    /* sizes that no array tells, see `tcsym_read_sizes` */
    const Step *steps;
} Switch;

/* ---- rows */

static uint64_t hash_of(const Switch *s, const int64_t *key) {
    uint64_t hash = 0;
    for (int64_t k = 0; k < s->n_keys; k++)
        hash = (hash ^ (uint64_t)key[k]) * MULTIPLIER;
    return hash;
}

/* The first row of the group for these sizes. */
static Row *group_of(const Switch *s, const int64_t *key) {
    return s->rows + (hash_of(s, key) >> (64 - LOG_GROUPS)) * GROUP;
}

static Row *find_row(const Switch *s, const int64_t *key) {
    Row *first = group_of(s, key);
    for (Row *row = first; row < first + GROUP; row++) {
        const int64_t *found = s->keys + (row - s->rows) * s->n_keys;
        if (row->used && !memcmp(found, key, s->n_keys * sizeof *key))
            return row;
    }
    return NULL;
}

/* For these sizes from now on; the caller drops what the row had. */
static void set_row(Switch *s, Row *row, const int64_t *key, Row content) {
    *row = content;
    memcpy(s->keys + (row - s->rows) * s->n_keys, key, s->n_keys * sizeof *key);
}

static void set_function(Row *row, PyObject *function) {
    PyObject *before = row->function;
    row->function = function == Py_None ? NULL : Py_XNewRef(function);
    Py_XDECREF(before);
}

/* A free row, else one that only counts, else the least used. */
static Row *victim(const Switch *s, const int64_t *key) {
    Row *first = group_of(s, key), *best = first;
    for (Row *row = first; row < first + GROUP; row++) {
        int rank = row->used + (row->function != NULL), least = best->used + (best->function != NULL);
        if (rank < least || (rank == least && row->calls < best->calls))
            best = row;
    }
    return best;
}

/* Counts a call of sizes that have no row: takes one if it is free or outvoted. */
static void count_new(Switch *s, const int64_t *key) {
    Row *first = group_of(s, key), *row = first;
    while (row < first + GROUP - 1 && row->used)
        row++;
    if (row->used) {
        row = first + (hash_of(s, key) >> 32) % GROUP;
        if (row->function || --row->calls >= 0)
            return;
    }
    set_row(s, row, key, (Row){true, NULL, 1, s->first_notice});
}

/* ---- calls */

static bool read_sizes(const Switch *s, const Call *call, int64_t *values) {
    memcpy(values, s->initial, s->n_values * sizeof *values);
    for (int64_t k = 0; k < s->n_places; k++) {
        const int64_t *place = s->places + 4 * k;
        const Array *array = call->arrays + place[0];
        if (array->library == OTHER || array->rank != place[1])
            return false;
        values[place[3]] = array->extents[place[2]];
        if (values[place[3]] >= SIZE_BOUND)
            return false;
    }
    return tcsym_read_sizes(call, s->free_names, s->free, false, values);
}

static PyObject *region_function(const Switch *s, int64_t *values) {
    if (!PyList_GET_SIZE(s->regions) || !tcsym_evaluate(s->steps, s->n_steps, values))
        return s->standard;
    if (values[s->region] >= PyList_GET_SIZE(s->regions))
        return s->standard; /* cleared: the switch is going */
    PyObject *function = PyList_GET_ITEM(s->regions, values[s->region]);
    return function == Py_None ? s->standard : function;
}

static PyObject *choose(Switch *s, Call *call) {
    if (++s->total == s->notice_total)
        return s->notice;
    int64_t values[s->n_values + 1], key[s->n_keys + 1];
    if (!tcsym_read_call(call, s->names) || !read_sizes(s, call, values))
        return s->standard;
    for (int64_t k = 0; k < s->n_keys; k++)
        key[k] = values[s->key_at[k]];
    Row *row = find_row(s, key);
    if (row && ++row->calls == row->notice_at)
        return s->notice;
    if (row && row->function)
        return row->function;
    if (!row && s->first_notice)
        count_new(s, key);
    return region_function(s, values);
}

static PyObject *switch_vectorcall(PyObject *self, PyObject *const *args, size_t n_args,
                                   PyObject *keywords) {
    Call call;
    call.args = args;
    call.n_args = PyVectorcall_NARGS(n_args);
    call.keywords = keywords;
    call.names = call.held = NULL;
    PyObject *result = tcsym_pass_on(choose((Switch *)self, &call), &call);
    Py_XDECREF(call.held);
    return result;
}

/* ---- what Python does with it; sizes are tuples of the sizes that tell calls apart */

static bool read_key(const Switch *s, PyObject *sizes, int64_t *key) {
    if (!PyTuple_CheckExact(sizes) || PyTuple_GET_SIZE(sizes) != s->n_keys) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple with one number for each size");
        return false;
    }
    for (int64_t k = 0; k < s->n_keys; k++) {
        key[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, k));
        if (key[k] == -1 && PyErr_Occurred())
            return false;
    }
    return true;
}

static PyObject *switch_put(PyObject *self, PyObject *args) {
    Switch *s = (Switch *)self;
    PyObject *sizes, *function;
    long long notice_in;
    int64_t key[s->n_keys + 1];
    if (!PyArg_ParseTuple(args, "OOL:put", &sizes, &function, &notice_in) ||
        !read_key(s, sizes, key))
        return NULL;
    Row *row = find_row(s, key);
    if (!row) {
        row = victim(s, key);
        PyObject *before = row->function;
        set_row(s, row, key, (Row){.used = true});
        set_function(row, function);
        row->notice_at = notice_in;
        Py_XDECREF(before);
    } else {
        row->notice_at = notice_in ? row->calls + notice_in : 0;
        set_function(row, function);
    }
    Py_RETURN_NONE;
}

static PyObject *switch_notice(PyObject *self, PyObject *args) {
    Switch *s = (Switch *)self;
    PyObject *sizes;
    long long notice_in;
    int64_t key[s->n_keys + 1];
    if (!PyArg_ParseTuple(args, "OL:notice_again", &sizes, &notice_in) || !read_key(s, sizes, key))
        return NULL;
    Row *row = find_row(s, key);
    if (row)
        row->notice_at = row->calls + notice_in;
    Py_RETURN_NONE;
}

static PyObject *switch_remove(PyObject *self, PyObject *sizes) {
    Switch *s = (Switch *)self;
    int64_t key[s->n_keys + 1];
    if (!read_key(s, sizes, key))
        return NULL;
    Row *row = find_row(s, key);
    if (row) {
        PyObject *before = row->function;
        *row = (Row){0};
        Py_XDECREF(before);
    }
    Py_RETURN_NONE;
}

static PyObject *key_tuple(const Switch *s, int64_t row) {
    PyObject *sizes = PyTuple_New(s->n_keys);
    for (int64_t k = 0; sizes && k < s->n_keys; k++) {
        PyObject *size = PyLong_FromLongLong(s->keys[row * s->n_keys + k]);
        if (!size) {
            Py_CLEAR(sizes);
            break;
        }
        PyTuple_SET_ITEM(sizes, k, size);
    }
    return sizes;
}

static PyObject *switch_counts(PyObject *self, PyObject *nothing) {
    Switch *s = (Switch *)self;
    PyObject *counts = PyDict_New();
    for (int64_t k = 0; counts && k < ROWS_ALL; k++) {
        if (!s->rows[k].used)
            continue;
        PyObject *calls = PyLong_FromLongLong(s->rows[k].calls), *sizes = key_tuple(s, k);
        if (!calls || !sizes || PyDict_SetItem(counts, sizes, calls))
            Py_CLEAR(counts);
        Py_XDECREF(calls);
        Py_XDECREF(sizes);
    }
    return counts;
}

static PyObject *switch_calls(PyObject *self, PyObject *sizes) {
    Switch *s = (Switch *)self;
    int64_t key[s->n_keys + 1];
    if (!read_key(s, sizes, key))
        return NULL;
    const Row *row = find_row(s, key);
    return PyLong_FromLongLong(row ? row->calls : 0);
}

/* ---- making switches */

static bool read_words(Switch *s) {
    Words words = tcsym_words(s->words);
    const size_t n_bytes = offsetof(Switch, initial) - offsetof(Switch, n_sizes);
    const int64_t *counts = tcsym_take(&words, n_bytes / sizeof *counts);
    if (!counts)
        return false;
    memcpy(&s->n_sizes, counts, n_bytes);
    s->rows = PyMem_Calloc(ROWS_ALL, sizeof *s->rows);
    s->keys = PyMem_Calloc(ROWS_ALL * (s->n_keys + 1), sizeof *s->keys);
    if (!s->rows || !s->keys) {
        PyErr_NoMemory();
        return false;
    }
    return (s->initial = tcsym_take(&words, s->n_values)) &&
           (s->key_at = tcsym_take(&words, s->n_keys)) &&
           (s->places = tcsym_take(&words, 4 * s->n_places)) &&
           (s->free = tcsym_take(&words, 2 * s->n_free)) &&
           (s->steps = (const Step *)tcsym_take(&words, 5 * s->n_steps));
}

static PyObject *switch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *words, *names, *free_names, *regions, *standard;
    if (!PyArg_ParseTuple(args, "SO!O!O!O:Switch", &words, &PyTuple_Type, &names, &PyTuple_Type,
                          &free_names, &PyList_Type, &regions, &standard))
        return NULL;
    Switch *s = (Switch *)type->tp_alloc(type, 0);
    if (!s)
        return NULL;
    s->vectorcall = switch_vectorcall;
    s->words = Py_NewRef(words);
    s->names = Py_NewRef(names);
    s->free_names = Py_NewRef(free_names);
    s->regions = Py_NewRef(regions);
    s->standard = Py_NewRef(standard);
    s->notice = Py_NewRef(standard);
    if (!read_words(s))
        Py_CLEAR(s);
    return (PyObject *)s;
}

static int switch_traverse(PyObject *self, visitproc visit, void *arg) {
    Switch *s = (Switch *)self;
    Py_VISIT(s->standard);
    Py_VISIT(s->notice);
    Py_VISIT(s->regions);
    for (int64_t k = 0; s->rows && k < ROWS_ALL; k++)
        Py_VISIT(s->rows[k].function);
    return 0;
}

static int switch_clear(PyObject *self) {
    Switch *s = (Switch *)self;
    for (int64_t k = 0; s->rows && k < ROWS_ALL; k++)
        Py_CLEAR(s->rows[k].function);
    if (s->regions)
        PyList_SetSlice(s->regions, 0, PY_SSIZE_T_MAX, NULL);
    Py_XSETREF(s->notice, Py_NewRef(Py_None)); /* a call finds something to call */
    Py_XSETREF(s->standard, Py_NewRef(Py_None));
    return 0;
}

static void switch_dealloc(PyObject *self) {
    Switch *s = (Switch *)self;
    PyObject_GC_UnTrack(self);
    switch_clear(self);
    Py_XDECREF(s->standard);
    Py_XDECREF(s->notice);
    Py_XDECREF(s->regions);
    Py_XDECREF(s->names);
    Py_XDECREF(s->free_names);
    Py_XDECREF(s->words);
    PyMem_Free(s->rows);
    PyMem_Free(s->keys);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef switch_methods[] = {
    {"put", switch_put, METH_VARARGS, "put(sizes, function or None, notice_in)"},
    {"notice_again", switch_notice, METH_VARARGS, "notice_again(sizes, notice_in)"},
    {"remove", switch_remove, METH_O, "remove(sizes)"},
    {"counts", switch_counts, METH_NOARGS, "Calls by sizes, of all that have a row."},
    {"calls", switch_calls, METH_O, "calls(sizes): since they have a row; 0 without one."},
    {NULL},
};

static PyMemberDef switch_members[] = {
    {"standard", T_OBJECT_EX, offsetof(Switch, standard), 0, "What serves all other calls."},
    {"notice", T_OBJECT_EX, offsetof(Switch, notice), 0, "What calls that are looked at enter."},
    {"regions", T_OBJECT_EX, offsetof(Switch, regions), READONLY, "Functions of the regions."},
    {"first_notice", T_LONGLONG, offsetof(Switch, first_notice), 0,
     "The number of the call, of sizes without a row, that is looked at; 0: they take no row."},
    {"total", T_LONGLONG, offsetof(Switch, total), READONLY, "Calls so far."},
    {"notice_total", T_LONGLONG, offsetof(Switch, notice_total), 0,
     "The number of the call that is looked at whatever its sizes; 0: none is."},
    {NULL},
};

PyTypeObject tcsym_Switch = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tcsym.runtime._native.Switch",
    .tp_doc = "What calls of a kernel with several versions enter: picks one by sizes.",
    .tp_basicsize = sizeof(Switch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Switch, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = switch_new,
    .tp_traverse = switch_traverse,
    .tp_clear = switch_clear,
    .tp_dealloc = switch_dealloc,
    .tp_methods = switch_methods,
    .tp_members = switch_members,
};
