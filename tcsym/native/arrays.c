/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of a call: which is which, and their memory. numpy's arrays are read through numpy's C
 * API, other libraries' tensors through DLPack's C exchange API. Whatever is unusual counts as OTHER:
 * such calls are served by Python, which also says what is wrong with them. */
#include "native.h"

#include "dlpack.h"

/* ---- which argument is which */

static bool match(Call *call, Py_ssize_t n, Py_ssize_t total) {
    PyObject **given = call->given;
    if (call->n_args > n)
        return false;
    memcpy(given, call->args, call->n_args * sizeof *given);
    memset(given + call->n_args, 0, (total - call->n_args) * sizeof *given);
    Py_ssize_t n_keywords = call->keywords ? PyTuple_GET_SIZE(call->keywords) : 0;
    for (Py_ssize_t k = 0; k < n_keywords; k++) {
        Py_ssize_t place = total; /* from the end: options come before inputs of the same name */
        while (place-- > 0 &&
               PyTuple_GET_ITEM(call->names, place) != PyTuple_GET_ITEM(call->keywords, k))
            ;
        if (place < 0 || given[place])
            return false;
        given[place] = call->args[call->n_args + k];
    }
    for (Py_ssize_t k = n; k < total; k++)
        if (given[k] == Py_None)
            given[k] = NULL;
    return true;
}

static bool is_busy(void);

bool tcsym_read_call(Call *call, PyObject *names) {
    if (call->names == names)
        return call->is_read;
    Py_ssize_t total = PyTuple_GET_SIZE(names), n = total - N_OPTIONS;
    call->names = names;
    call->is_read = match(call, n, total);
    bool exchanged = false;
    for (Py_ssize_t k = 0; call->is_read && k < n; k++) {
        if (!call->given[k]) { /* a size that something else tells */
            call->arrays[k].library = OTHER;
            continue;
        }
        tcsym_read_array(call->given[k], call->arrays + k, call->rooms[k], &call->held);
        exchanged |= call->arrays[k].library == EXCHANGED;
    }
    return call->is_read = call->is_read && !(exchanged && is_busy());
}

/* ---- numbers */

bool tcsym_integer(PyObject *x, int64_t low, int64_t high, int64_t *value) {
    int overflow;
    if (!PyLong_CheckExact(x))
        return false;
    *value = PyLong_AsLongLongAndOverflow(x, &overflow);
    return !overflow && low <= *value && *value <= high;
}

bool tcsym_size(PyObject *x, int64_t *value) {
    if (PyLong_CheckExact(x))
        return tcsym_integer(x, 0, SIZE_BOUND - 1, value);
    PyObject *number = PyArray_IsScalar(x, Integer) ? PyNumber_Index(x) : NULL;
    bool is_size = number && tcsym_integer(number, 0, SIZE_BOUND - 1, value);
    Py_XDECREF(number);
    PyErr_Clear();
    return is_size;
}

bool tcsym_read_sizes(const Call *call, PyObject *names, const int64_t *places, bool only_these,
                      int64_t *values) {
    PyObject *sizes = call->given[PyTuple_GET_SIZE(call->names) - N_OPTIONS + SIZES];
    Py_ssize_t n = PyTuple_GET_SIZE(names), named = 0;
    if (!n)
        return !sizes || !only_these;
    if (sizes && !PyDict_CheckExact(sizes))
        return false;
    for (Py_ssize_t k = 0; k < n; k++) {
        int64_t slot = places[2 * k], parameter = places[2 * k + 1];
        PyObject *number = parameter < 0 ? NULL : call->given[parameter];
        if (!number && sizes) {
            number = PyDict_GetItemWithError(sizes, PyTuple_GET_ITEM(names, k));
            named++;
        }
        if (!number || !tcsym_size(number, values + slot)) {
            PyErr_Clear();
            return false;
        }
    }
    return !sizes || !only_these || PyDict_GET_SIZE(sizes) == named;
}

/* `kind`: bytes of an integer in [low, high]; 32, 64: a float with that many bits, of which integers
 * in that range are; 0: numpy's scalars only. */
bool tcsym_element(PyObject *number, const Wanted *wanted, int64_t *element) {
    if (PyFloat_CheckExact(number)) {
        double value = PyFloat_AS_DOUBLE(number);
        float rounded = (float)value;
        if (wanted->kind == 64)
            memcpy(element, &value, sizeof value);
        else if (wanted->kind == 32 && !(isinf(rounded) && isfinite(value)))
            memcpy(element, &rounded, sizeof rounded);
        else
            return false;
        return true;
    }
    int64_t whole;
    if (PyBool_Check(number))
        whole = number == Py_True;
    else if (!tcsym_integer(number, wanted->low, wanted->high, &whole)) {
        if (Py_TYPE(number) != wanted->type->typeobj)
            return false;
        PyArray_ScalarAsCtype(number, element);
        return true;
    }
    double value = (double)whole;
    float rounded = (float)whole;
    if (wanted->kind == 64)
        memcpy(element, &value, sizeof value);
    else if (wanted->kind == 32)
        memcpy(element, &rounded, sizeof rounded);
    else if (wanted->kind)
        *element = whole; /* little-endian: its first bytes are the shorter integer */
    return wanted->kind != 0;
}

/* ---- libraries with DLPack's exchange API */

/* One library: its types, of which instances are read (subclasses are not). While one of the
 * functions in `busy` says so, calls mean something else than what they do: they are recorded, faked
 * or transformed. So they do while `forward`, a module, is at a level of forward differentiation. */
static struct {
    const DLPackExchangeAPI *api;
    PyTypeObject *types[2];
    PyObject *grad_is_enabled, *bump, *forward, *busy;
    PyObject *requires_grad, *is_neg, *is_inference, *level; /* names */
} exchange;

PyObject *tcsym_set_exchange(PyObject *module, PyObject *args) {
    PyObject *capsule, *first, *second, *grad_is_enabled, *bump, *forward, *busy;
    if (!PyArg_ParseTuple(args, "OO!O!OOOO!:set_exchange", &capsule, &PyType_Type, &first,
                          &PyType_Type, &second, &grad_is_enabled, &bump, &forward, &PyTuple_Type,
                          &busy))
        return NULL;
    const DLPackExchangeAPI *api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (!api)
        return NULL;
    while (api && api->version.major > DLPACK_MAJOR)
        api = api->older;
    if (!api || api->version.major != DLPACK_MAJOR || !api->tensor_from_object)
        Py_RETURN_FALSE;
    exchange.requires_grad = PyUnicode_InternFromString("requires_grad");
    exchange.is_neg = PyUnicode_InternFromString("is_neg");
    exchange.is_inference = PyUnicode_InternFromString("is_inference");
    exchange.level = PyUnicode_InternFromString("_current_level");
    if (!exchange.requires_grad || !exchange.is_neg || !exchange.is_inference || !exchange.level)
        return NULL;
    exchange.types[0] = (PyTypeObject *)Py_NewRef(first); /* for the life of the process */
    exchange.types[1] = (PyTypeObject *)Py_NewRef(second);
    exchange.grad_is_enabled = Py_NewRef(grad_is_enabled);
    exchange.bump = Py_NewRef(bump);
    exchange.forward = Py_NewRef(forward);
    exchange.busy = Py_NewRef(busy);
    exchange.api = api;
    Py_RETURN_TRUE;
}

/* Whether an answer, which this takes, is false. Errors are dropped: Python will meet them again. */
static bool is_false(PyObject *answer) {
    bool result = answer == Py_False;
    if (!answer)
        PyErr_Clear();
    Py_XDECREF(answer);
    return result;
}

/* Autograd need not know what is done with the tensor. */
static bool needs_no_gradient(PyObject *tensor) {
    return is_false(PyObject_GetAttr(tensor, exchange.requires_grad)) ||
           is_false(PyObject_CallNoArgs(exchange.grad_is_enabled));
}

bool tcsym_is_dense(const Array *array) {
    int64_t expected = 1;
    bool dense = true;
    for (int d = array->rank; d-- > 0; expected *= array->extents[d]) {
        if (!array->extents[d])
            return true;
        dense &= array->extents[d] == 1 || array->strides[d] == expected;
    }
    return dense;
}

static bool is_empty(const Array *array) {
    for (int d = 0; d < array->rank; d++)
        if (!array->extents[d])
            return true;
    return false;
}

static bool read_exchanged(PyObject *object, Array *array) {
    DLTensor view;
    if (!needs_no_gradient(object))
        return false;
    if (exchange.api->tensor_from_object(object, &view)) {
        PyErr_Clear();
        return false;
    }
    array->rank = view.ndim;
    array->extents = view.shape;
    array->strides = view.strides;
    array->unit = (view.dtype.bits + 7) / 8;
    array->code = code_of(view.dtype);
    array->data = (char *)view.data + view.byte_offset;
    array->dense = tcsym_is_dense(array);
    array->writable = true;
    array->place = view.device.type;
    array->device = view.device.id;
    if ((view.device.type != DLPACK_CPU && view.device.type != DLPACK_CUDA) ||
        (!view.data && !is_empty(array)))
        return false; /* without memory: it stands for another, as under torch's transforms */
    /* Lazily negated: its memory has the opposite of its values. */
    return is_false(PyObject_CallMethodNoArgs(object, exchange.is_neg));
}

static bool is_busy(void) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(exchange.busy); k++) {
        PyObject *answer = PyObject_CallNoArgs(PyTuple_GET_ITEM(exchange.busy, k));
        int yes = answer ? PyObject_IsTrue(answer) : 1;
        Py_XDECREF(answer);
        if (yes) {
            PyErr_Clear();
            return true;
        }
    }
    PyObject *level = PyObject_GetAttr(exchange.forward, exchange.level);
    long at = level ? PyLong_AsLong(level) : 0;
    Py_XDECREF(level);
    PyErr_Clear();
    return at != -1;
}

bool tcsym_note_written(PyObject *object, Library library) {
    if (library != EXCHANGED)
        return true;
    if (!is_false(PyObject_CallMethodNoArgs(object, exchange.is_inference)))
        return false; /* it may be written in inference mode only */
    PyObject *done = PyObject_CallOneArg(exchange.bump, object);
    Py_XDECREF(done);
    PyErr_Clear();
    return done != NULL;
}

/* ---- arrays */

void tcsym_read_array(PyObject *object, Array *array, int64_t *room, PyObject **held) {
    array->library = OTHER;
    if (PyArray_CheckExact(object)) {
        PyArrayObject *found = (PyArrayObject *)object;
        int flags = PyArray_FLAGS(found);
        if (!(flags & NPY_ARRAY_ALIGNED))
            return;
        array->library = NUMPY;
        array->place = DLPACK_CPU;
        array->device = 0;
        array->dense = flags & NPY_ARRAY_C_CONTIGUOUS;
        array->writable = flags & NPY_ARRAY_WRITEABLE;
        array->rank = PyArray_NDIM(found);
        array->type = PyArray_DESCR(found);
        array->data = PyArray_BYTES(found);
        array->extents = (const int64_t *)PyArray_DIMS(found); /* another type of 64 bits on macOS */
        array->strides = (const int64_t *)PyArray_STRIDES(found);
        array->unit = 1;
    } else if (exchange.api &&
               (Py_IS_TYPE(object, exchange.types[0]) || Py_IS_TYPE(object, exchange.types[1]))) {
        if (read_exchanged(object, array))
            array->library = EXCHANGED;
    } else if (tcsym_read_described(object, array, room, held)) {
        array->library = DESCRIBED;
    }
}

static bool has_unit_steps(const Array *array, int axis, int64_t unit_stride) {
    return array->strides[axis] == unit_stride || array->extents[axis] <= 1;
}

/* The array, known not to be dense if `exact`, has the layout. */
static bool has_layout(const Array *array, const Wanted *wanted, int64_t unit_stride) {
    int last = array->rank - 1;
    for (Layout stricter = ROWS; stricter <= COLUMNS && last >= 0; stricter++, last--) {
        if ((Layout)wanted->layout == stricter)
            return has_unit_steps(array, last, unit_stride);
        if (wanted->exact && has_unit_steps(array, last, unit_stride))
            return false;
    }
    return true;
}

bool tcsym_fits(const Array *array, const Wanted *wanted) {
    bool same =
        array->library == NUMPY ? array->type == wanted->type : array->code == wanted->code;
    if (!same || array->rank != wanted->rank)
        return false;
    if (array->library != NUMPY && (uintptr_t)array->data % wanted->bytes)
        return false;
    if (wanted->layout == DENSE || (wanted->exact && array->dense))
        return wanted->layout == DENSE && array->dense;
    int64_t unit_stride = wanted->bytes / array->unit;
    for (int d = 0; d < array->rank; d++)
        if (array->strides[d] % unit_stride)
            return false;
    return has_layout(array, wanted, unit_stride);
}

/* Lowest address, and one past the highest. */
static void span_of(const Array *array, int64_t bytes, uintptr_t *low, uintptr_t *high) {
    *low = (uintptr_t)array->data;
    *high = *low + bytes;
    for (int d = 0; d < array->rank; d++) {
        int64_t way = (array->extents[d] - 1) * array->strides[d] * array->unit;
        if (!array->extents[d]) {
            *low = *high = 0;
            return;
        }
        *(way < 0 ? low : high) += way;
    }
}

/* True only if each stride is longer than all that lies within it. */
static bool is_nested(const Array *array, int64_t bytes) {
    for (int d = 0; d < array->rank; d++) {
        int64_t stride = llabs(array->strides[d]), within = bytes;
        if (array->extents[d] <= 1)
            continue;
        for (int e = 0; e < array->rank; e++)
            if (e != d && llabs(array->strides[e]) <= stride)
                within += (array->extents[e] - 1) * llabs(array->strides[e]) * array->unit;
        if (stride * array->unit < within)
            return false;
    }
    return true;
}

bool tcsym_is_apart(const Array *array, const Array *others, int n, int64_t bytes) {
    uintptr_t low, high, other_low, other_high;
    if (!array->dense && !is_nested(array, bytes))
        return false;
    span_of(array, bytes, &low, &high);
    for (int k = 0; k < n; k++) {
        if (others[k].library == OTHER)
            continue;
        int64_t other_bytes = others[k].library == NUMPY ? PyDataType_ELSIZE(others[k].type)
                                                         : others[k].unit;
        span_of(others + k, other_bytes, &other_low, &other_high);
        if (high > other_low && other_high > low)
            return false;
    }
    return true;
}

/* ---- new arrays */

/* A tensor of ours and its memory, in one piece unless that is a block. */
typedef struct {
    DLManagedTensorVersioned managed;
    void *block;
    int64_t shape_and_strides[];
} Owned;

static void free_owned(DLManagedTensorVersioned *managed) {
    Owned *owned = (Owned *)managed;
    if (owned->block)
        tcsym_give_block(owned->block);
    free(owned);
}

static PyObject *new_exchanged(const Wanted *wanted, const int64_t *extents, int64_t bytes,
                               Array *array) {
    enum { LINE = 64 };
    size_t head = sizeof(Owned) + 2 * wanted->rank * sizeof(int64_t);
    head = (head + LINE - 1) / LINE * LINE;
    bool large = bytes >= tcsym_large;
    size_t inside = large ? 0 : ((size_t)bytes + LINE - 1) / LINE * LINE;
    Owned *owned = aligned_alloc(LINE, head + inside);
    if (!owned)
        return NULL;
    memset(owned, 0, sizeof *owned);
    owned->block = large ? tcsym_take_block(bytes) : NULL;
    if (large && !owned->block) {
        free(owned);
        return NULL;
    }
    int64_t *shape = owned->shape_and_strides, *strides = shape + wanted->rank, stride = 1;
    for (int64_t d = wanted->rank; d-- > 0; stride *= extents[d] ? extents[d] : 1) {
        shape[d] = extents[d];
        strides[d] = stride;
    }
    owned->managed.version.major = DLPACK_MAJOR;
    owned->managed.deleter = free_owned;
    DLTensor *tensor = &owned->managed.dl_tensor;
    tensor->data = large ? owned->block : (char *)owned + head;
    tensor->device.type = DLPACK_CPU;
    tensor->ndim = (int32_t)wanted->rank;
    tensor->dtype.code = wanted->code & 255;
    tensor->dtype.bits = wanted->code >> 8 & 255;
    tensor->dtype.lanes = 1;
    tensor->shape = shape;
    tensor->strides = strides;
    array->data = tensor->data;
    array->strides = strides;
    array->unit = wanted->bytes;
    void *object = NULL;
    if (exchange.api->object_from_managed(&owned->managed, &object)) {
        PyErr_Clear(); /* the memory was handed over all the same */
        return NULL;
    }
    return object;
}

static void set_error(void *context, const char *kind, const char *message) {}

/* As the library itself makes it: it knows which memory its streams have done with. */
static PyObject *new_on_device(int device, const Wanted *wanted, const int64_t *extents,
                               Array *array) {
    DLTensor prototype = {
        .device = {DLPACK_CUDA, device},
        .ndim = (int32_t)wanted->rank,
        .dtype = {(uint8_t)wanted->code, (uint8_t)(wanted->code >> 8), 1},
        .shape = (int64_t *)extents,
    };
    DLManagedTensorVersioned *managed = NULL;
    void *object = NULL;
    if (!exchange.api->allocate || exchange.api->allocate(&prototype, &managed, NULL, set_error)) {
        PyErr_Clear();
        return NULL;
    }
    array->data = (char *)managed->dl_tensor.data + managed->dl_tensor.byte_offset;
    array->unit = wanted->bytes;
    array->strides = NULL; /* they go with `managed`; entries make dense arrays and ask for none */
    if (exchange.api->object_from_managed(managed, &object)) {
        PyErr_Clear();
        return NULL;
    }
    return object;
}

bool tcsym_current_stream(int device, void **stream) {
    if (!exchange.api->current_stream ||
        exchange.api->current_stream(DLPACK_CUDA, device, stream)) {
        PyErr_Clear();
        return false;
    }
    return true;
}

static PyObject *new_numpy(const Wanted *wanted, const int64_t *extents, int64_t bytes,
                           Array *array) {
    int rank = (int)wanted->rank;
    PyObject *made = NULL;
    if (bytes >= tcsym_large) {
        Py_INCREF(wanted->type);
        made = tcsym_block_array(wanted->type, rank, extents);
        PyErr_Clear();
    }
    if (!made) {
        Py_INCREF(wanted->type);
        const npy_intp *own = (const npy_intp *)extents;
        made = PyArray_NewFromDescr(&PyArray_Type, wanted->type, rank, own, NULL, NULL, 0, NULL);
    }
    if (!made) {
        PyErr_Clear();
        return NULL;
    }
    array->data = PyArray_BYTES((PyArrayObject *)made);
    array->strides = (const int64_t *)PyArray_STRIDES((PyArrayObject *)made);
    array->unit = 1;
    return made;
}

PyObject *tcsym_new_array(Library library, int device, const Wanted *wanted, const int64_t *extents,
                          Array *array) {
    double most = (double)wanted->bytes;
    int64_t bytes = wanted->bytes;
    for (int64_t d = 0; d < wanted->rank; d++)
        most *= extents[d] ? (double)extents[d] : 1.0;
    if (most > MOST_BYTES)
        return NULL;
    for (int64_t d = 0; d < wanted->rank; d++)
        bytes *= extents[d];
    if (device != ON_HOST)
        return library == EXCHANGED ? new_on_device(device, wanted, extents, array) : NULL;
    if (bytes >= tcsym_large && !tcsym_is_decided())
        return NULL;
    return (library == EXCHANGED ? new_exchanged : new_numpy)(wanted, extents, bytes, array);
}
